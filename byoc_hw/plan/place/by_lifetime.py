"""Placement by lifetime: blocks that are never live together may share addresses.

Used for local memory (`local.py`), for a region by itself (`stages.py`) and for a whole model (`arena.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from byoc_hw.errors import PlanError
from byoc_hw.plan.region_memory import Lifetime

_PROMOTIONS = 32


@dataclass(frozen=True)
class Block:
    """`nbytes` of memory at a multiple of `alignment`, disjoint from the blocks named in `conflicts`.

    `owner` is its name in reports and errors; several blocks may have one owner.
    """

    name: str
    nbytes: int
    alignment: int
    conflicts: frozenset[str]
    owner: str


@dataclass(frozen=True)
class Arena:
    """The offset of each block, the size, and lower bounds for any placement.

    `lower_bound` is the largest sum of bytes that are live at once; `proven` is larger where
    alignment or an exact search shows that no placement is smaller.
    """

    offsets: dict[str, int]
    nbytes: int
    lower_bound: int
    proven: int = 0

    @property
    def gap(self) -> int:
        """The most bytes that a better placement could save."""
        return self.nbytes - max(self.proven, self.lower_bound)


def blocks_from_lifetimes(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[Block, ...]:
    """A block for each lifetime; two conflict where they share a step."""
    names = np.array([life.name for life in lifetimes], object)
    first, last = (np.array([getattr(life, end) for life in lifetimes], np.int64) for end in ("first", "last"))

    def conflicts(index: int) -> frozenset[str]:
        others = (first <= last[index]) & (last >= first[index])
        others[index] = False
        return frozenset(names[others].tolist())

    return tuple(
        Block(one.name, one.nbytes, alignment, conflicts(index), one.owner) for index, one in enumerate(lifetimes)
    )


def live_together(lifetimes: Sequence[Lifetime]) -> list[list[str]]:
    """The names of what is live at each step at which something starts."""
    steps = sorted({life.first for life in lifetimes})
    return [[life.name for life in lifetimes if life.first <= step <= life.last] for step in steps]


def largest_sum(lifetimes: Iterable[Lifetime]) -> int:
    """The largest sum of bytes live in one step: the lower bound of any placement."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        changes[life.first] = changes.get(life.first, 0) + life.nbytes
        changes[life.last + 1] = changes.get(life.last + 1, 0) - life.nbytes
    live = largest = 0
    for step in sorted(changes):
        live += changes[step]
        largest = max(largest, live)
    return largest


def aligned_sum(blocks: Iterable[Block]) -> int:
    """The fewest bytes for blocks that are all live at once: the sum with padding for all but one of them."""
    sizes = [(block.nbytes, block.alignment) for block in blocks]
    unit = gcd(*(alignment for _, alignment in sizes)) if sizes else 1
    padding = [-nbytes % unit for nbytes, _ in sizes]
    return sum(nbytes for nbytes, _ in sizes) + sum(padding) - max(padding, default=0)


def place(blocks: Sequence[Block], lower_bound: int, proven: int = 0) -> Arena:
    """Place the blocks greedily in a few orders, and keep the smallest arena.

    The search ends at `lower_bound`, or at `proven` where that is larger. The result does
    not depend on the order of `blocks`. Raises `PlanError` for two blocks with the same name and for
    conflicts that are not mutual.
    """
    by_name = {block.name: block for block in sorted(blocks, key=lambda block: block.name)}
    _check(blocks, by_name)
    proven = max(lower_bound, proven)
    best: Arena | None = None
    for order in _orders(by_name):
        arena = _improve(order, by_name, proven)
        if best is None or arena.nbytes < best.nbytes:
            best = arena
        if best.nbytes <= proven:
            break
    return Arena(best.offsets if best else {}, best.nbytes if best else 0, lower_bound, proven)


def _check(blocks: Sequence[Block], by_name: Mapping[str, Block]) -> None:
    if len(by_name) != len(blocks):
        names = [block.name for block in blocks]
        raise PlanError(f"two blocks of memory are named {next(name for name in names if names.count(name) > 1)}")
    for block in by_name.values():
        if all(name != block.name and block.name in _conflicts(by_name, name) for name in block.conflicts):
            continue
        for name in sorted(block.conflicts):
            if name not in by_name or name == block.name or block.name not in by_name[name].conflicts:
                raise PlanError(f"conflicts are mutual: {block.name} names {name}, which does not name it back")


def _conflicts(blocks: Mapping[str, Block], name: str) -> frozenset[str]:
    return blocks[name].conflicts if name in blocks else frozenset()


def _orders(blocks: Mapping[str, Block]) -> list[list[str]]:
    """The orders in which greedy placement is tried; ties go by name."""

    def crowd(block: Block) -> int:
        return block.nbytes + sum(blocks[name].nbytes for name in block.conflicts)

    keys: tuple[Callable[[Block], tuple[int, ...]], ...] = (
        lambda block: (-block.nbytes,),
        lambda block: (-crowd(block), -block.nbytes),
        lambda block: (-len(block.conflicts), -block.nbytes),
        lambda block: (-block.nbytes * len(block.conflicts), -block.nbytes),
    )
    return [[block.name for block in sorted(blocks.values(), key=key)] for key in keys]


def _improve(order: list[str], blocks: Mapping[str, Block], lower_bound: int) -> Arena:
    """Place greedily; then move the block that ends highest to the front and repeat, while that helps."""
    numbers = {name: number for number, name in enumerate(blocks)}
    greedy = _Greedy(blocks, numbers)
    left = [numbers[name] for name in order]
    best = spans = greedy.placed(left)
    fewest = top = _top(spans)
    for _ in range(_PROMOTIONS):
        if fewest <= lower_bound:
            break
        highest = next(number for number in left if spans[number][1] == top)
        if highest == left[0]:
            break
        left.remove(highest)
        left.insert(0, highest)
        spans = greedy.placed(left)
        top = _top(spans)
        if top < fewest:
            best, fewest = spans, top
    return Arena({name: best[number][0] for name, number in numbers.items()}, fewest, lower_bound)


def _top(spans: Sequence[tuple[int, int]]) -> int:
    return max((stop for _, stop in spans), default=0)


class _Greedy:
    """Greedy placement of blocks in any order. Blocks are numbers, as it runs a hundred times for one arena."""

    def __init__(self, blocks: Mapping[str, Block], numbers: Mapping[str, int]) -> None:
        self._sizes = [(block.nbytes, block.alignment) for block in blocks.values()]
        self._conflicts = [[numbers[name] for name in block.conflicts] for block in blocks.values()]

    def placed(self, order: Sequence[int]) -> list[tuple[int, int]]:
        """Start and end of each block: each in turn at the lowest offset that is free of those placed before it."""
        spans: list[tuple[int, int]] = [(-1, -1)] * len(order)
        for number in order:
            nbytes, alignment = self._sizes[number]
            offset = 0
            for start, stop in sorted([spans[other] for other in self._conflicts[number]]):
                if offset + nbytes <= start:
                    break
                if stop > offset:
                    offset = -(-stop // alignment) * alignment
            spans[number] = offset, offset + nbytes
        return spans
