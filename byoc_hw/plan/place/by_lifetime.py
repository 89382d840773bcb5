"""Placement by lifetime: blocks that are never live together may share addresses.

Used for local memory (`local.py`), for a region by itself (`stages.py`) and for a whole model (`arena.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
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
    return tuple(
        Block(
            one.name,
            one.nbytes,
            alignment,
            frozenset(other.name for other in lifetimes if other is not one and _overlap(one, other)),
            one.owner,
        )
        for one in lifetimes
    )


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


def _overlap(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last


def _check(blocks: Sequence[Block], by_name: Mapping[str, Block]) -> None:
    if len(by_name) != len(blocks):
        names = [block.name for block in blocks]
        raise PlanError(f"two blocks of memory are named {next(name for name in names if names.count(name) > 1)}")
    for block in by_name.values():
        for name in sorted(block.conflicts):
            if name not in by_name or name == block.name or block.name not in by_name[name].conflicts:
                raise PlanError(f"conflicts are mutual: {block.name} names {name}, which does not name it back")


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
    best = _greedy(order, blocks, lower_bound)
    arena = best
    for _ in range(_PROMOTIONS):
        if best.nbytes <= lower_bound:
            break
        highest = max(order, key=lambda name: arena.offsets[name] + blocks[name].nbytes)
        if highest == order[0]:
            break
        order = [highest, *(name for name in order if name != highest)]
        arena = _greedy(order, blocks, lower_bound)
        if arena.nbytes < best.nbytes:
            best = arena
    return best


def _greedy(order: Sequence[str], blocks: Mapping[str, Block], lower_bound: int) -> Arena:
    """Each block in turn at the lowest offset that is free of those placed before it."""
    offsets: dict[str, int] = {}
    for name in order:
        block = blocks[name]
        taken = sorted((offsets[other], blocks[other].nbytes) for other in block.conflicts if other in offsets)
        offset = 0
        for start, nbytes in taken:
            if offset + block.nbytes <= start:
                break
            offset = max(offset, round_up(start + nbytes, block.alignment))
        offsets[name] = offset
    top = max((offset + blocks[name].nbytes for name, offset in offsets.items()), default=0)
    return Arena(dict(sorted(offsets.items())), top, lower_bound)
