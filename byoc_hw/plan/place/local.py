"""Addresses in the local memories, by lifetime over the order of the work.

A buffer is placed over the least recently used bytes that are free: the copy that fills it can then start early. In
weight memory those that stay while others come may also lie at its end, so that two others fit side by side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, live_together, place
from byoc_hw.plan.place.exact import improved
from byoc_hw.plan.region_memory import Lifetime
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS
from byoc_hw.plan.work.ops import LocalBuffer, Op


def lifetimes(ops: Sequence[Op]) -> dict[int, dict[LocalBuffer, Lifetime]]:
    """The lifetimes of all buffers by space, in order: from the first to the last operation that uses a buffer."""
    firsts: dict[object, int] = {}
    lasts: dict[object, int] = {}
    for index, op in enumerate(ops):
        for touched, _, _, _ in op.accesses:
            if touched not in lasts:
                firsts[touched] = index
            lasts[touched] = index
    found: dict[int, dict[LocalBuffer, Lifetime]] = {ACTIVATIONS: {}, WEIGHTS: {}}
    for buffer, first in firsts.items():
        if isinstance(buffer, LocalBuffer):
            alive = found[buffer.space]
            alive[buffer] = Lifetime(f"{len(alive):05}", buffer.nbytes, first, lasts[buffer], buffer.name)
    return found


def place_local(
    ops: Sequence[Op],
    accelerator: Accelerator,
    *,
    exact: bool = False,
    spaces: Sequence[int] = (ACTIVATIONS, WEIGHTS),
) -> dict[LocalBuffer, int]:
    """The offset of each buffer in these memories. Raises `PlanError` where they do not fit.

    With `exact`, an exact search runs where the heuristics find no place though there are enough bytes.
    """
    sizes = {ACTIVATIONS: accelerator.activation_memory, WEIGHTS: accelerator.weight_memory}
    names = {ACTIVATIONS: "activation", WEIGHTS: "weight"}
    unit = accelerator.buffer_alignment
    offsets: dict[LocalBuffer, int] = {}
    all_buffers = lifetimes(ops)
    for space in spaces:
        buffers = all_buffers[space]
        alive = list(buffers.values())
        size, needed = accelerator.whole_words(sizes[space]), largest_sum(alive)
        found = None
        if needed <= size:
            found = place_in_time(alive, size, unit)
            if found is not None and space == WEIGHTS:
                found = _more_hidden(found, alive, size, unit, ops)
            found = found or _in_pieces(alive, size, unit, exact)
        if found is None:
            raise PlanError(
                f"what is live at once fits local {names[space]} memory: {needed} bytes needed, {size} bytes there"
            )
        offsets |= {buffer: found[life.name] for buffer, life in buffers.items()}
    return offsets


def apart(ops: Sequence[Op], starts: Sequence[int]) -> list[Sequence[Op]]:
    """The work cut at those of `starts` at which nothing is in local memory."""
    last: dict[LocalBuffer, int] = {}
    for index, op in enumerate(ops):
        last.update((access.place, index) for access in op.accesses if isinstance(access.place, LocalBuffer))
    cuts, end, coming = [0], -1, set(starts)
    for index, op in enumerate(ops):
        if index in coming and end < index:
            cuts.append(index)
        end = max([end, *(last[access.place] for access in op.accesses if isinstance(access.place, LocalBuffer))])
    return [ops[start:stop] for start, stop in pairwise([*cuts, len(ops)])]


def place_apart(
    pieces: Sequence[Sequence[Op]], accelerator: Accelerator, *, exact: bool = False
) -> dict[LocalBuffer, int]:
    """The offset of each buffer, as `place_local` finds it in its piece of the work."""
    offsets: dict[LocalBuffer, int] = {}
    for piece in pieces:
        offsets |= place_local(piece, accelerator, exact=exact)
    return offsets


_RETRIES = 8
"""The most buffers that are placed before the others."""


def place_in_time(alive: Sequence[Lifetime], size: int, unit: int) -> dict[str, int] | None:
    """Place each buffer, in order of their start, over the least recently used bytes. One that finds no room is placed
    before all others."""
    before: list[tuple[Lifetime, int]] = []
    for _ in range(_RETRIES):
        found = _in_time(alive, size, unit, before)
        if isinstance(found, dict):
            return found
        edges = sorted({0, *(round_up(start + life.nbytes, unit) for life, start in before)})
        offset = next((edge for edge in edges if _apart(found, edge, before)), None)
        if offset is None or offset + found.nbytes > size:
            return None
        before.append((found, offset))
    return None


def _in_time(
    alive: Sequence[Lifetime], size: int, unit: int, before: Sequence[tuple[Lifetime, int]]
) -> dict[str, int] | Lifetime:
    """Offsets of the buffers in order of their start, around those of `before`; or the first buffer without room."""
    offsets = {life.name: start for life, start in before}
    edges = sorted({round_up(edge, unit) for life, start in before for edge in (start, start + life.nbytes)})
    taken = _Taken(unit)
    for life in alive:
        if life.name not in offsets:
            candidates = sorted(edges + taken.edges) if edges else taken.edges
            best = _oldest(life, candidates, taken, size, [one for one in before if _together(life, one[0])])
            if best is None:
                return life
            offsets[life.name] = best
        taken.put(offsets[life.name], offsets[life.name] + life.nbytes, life.last)
    return offsets


def _oldest(
    life: Lifetime, candidates: Sequence[int], taken: _Taken, size: int, before: Sequence[tuple[Lifetime, int]]
) -> int | None:
    """The first of the offsets at which a buffer lies over the least recently used bytes, apart from what was placed
    `before` it and lives with it; None where it has no room."""
    best, most, at = None, life.first, 0
    starts, stops, lasts, nbytes = taken.starts, taken.stops, taken.lasts, life.nbytes
    possible = bisect_right(candidates, size - nbytes)
    while most >= 0 and at < possible:
        offset = candidates[at]
        piece = bisect_left(starts, offset + nbytes)
        last = -1  # the last operation that touches any of these bytes: from the highest address down
        while last < most and piece and stops[piece - 1] > offset:
            piece -= 1
            if lasts[piece] > last:
                last = lasts[piece]
        if last >= most:
            at = bisect_left(candidates, stops[piece], at)  # all offsets up to there have these bytes, too
            continue
        if not before or _apart(life, offset, before):
            best, most = offset, last
        at += 1
    return best


def _apart(life: Lifetime, offset: int, others: Sequence[tuple[Lifetime, int]]) -> bool:
    """Whether a buffer at this offset is disjoint from placed buffers that are live at the same time."""
    stop = offset + life.nbytes
    return not any(_together(life, other) and start < stop and offset < start + other.nbytes for other, start in others)


def _together(life: Lifetime, other: Lifetime) -> bool:
    """Whether two buffers are live at the same time."""
    return other.first <= life.last and life.first <= other.last


class _Taken:
    """The last operation that touches each byte, in pieces by address: `lasts`, by the `starts` and `stops` of the
    pieces. `edges` are their ends in whole units: the candidate offsets of a buffer."""

    def __init__(self, unit: int) -> None:
        self.edges = [0]
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.lasts: list[int] = []
        self._unit = unit

    def last(self, start: int, stop: int) -> int:
        """The last operation that touches any of these bytes, or -1."""
        return max(self.lasts[bisect_right(self.stops, start) : bisect_left(self.starts, stop)], default=-1)

    def put(self, start: int, stop: int, last: int) -> None:
        """Record a buffer, at a whole unit, as the last user of its bytes."""
        starts, stops, lasts = self.starts, self.stops, self.lasts
        first, end = bisect_right(stops, start), bisect_left(starts, stop)
        pieces = [(start, stop, last)]
        if first < end and starts[first] < start:
            pieces.insert(0, (starts[first], start, lasts[first]))
        if first < end and stops[end - 1] > stop:
            pieces.append((stop, stops[end - 1], lasts[end - 1]))
        starts[first:end], stops[first:end], lasts[first:end] = zip(*pieces, strict=True)
        whole = round_up(stop, self._unit)
        self.edges[bisect_left(self.edges, start) : bisect_right(self.edges, whole)] = [start, whole]


def _more_hidden(
    found: dict[str, int], alive: Sequence[Lifetime], size: int, unit: int, ops: Sequence[Op]
) -> dict[str, int]:
    """The offsets that were found, or those with buffers that stay at the end of the memory, where jobs hide more
    cycles of copies with them."""
    staying = _at_the_end(alive, size, unit)
    other = _in_time(alive, size, unit, staying) if staying else None
    if not isinstance(other, dict):
        return found
    jobs = [0, *accumulate(op.cycles if op.is_job else 0 for op in ops)]
    return max(found, other, key=lambda offsets: _hidden(offsets, alive, unit, ops, jobs))


def _at_the_end(alive: Sequence[Lifetime], size: int, unit: int) -> list[tuple[Lifetime, int]]:
    """Offsets of the buffers that are still there when two others have come, from the highest one down; none where
    they do not fit so."""
    placed: list[tuple[Lifetime, int]] = []
    live: list[tuple[Lifetime, int]] = []
    for life, second in zip(alive, alive[2:], strict=False):
        if second.first > life.last:
            continue
        live = [one for one in live if _together(life, one[0])]
        below = {size, *(start for _, start in live)}
        offsets = sorted(((edge - life.nbytes) // unit * unit for edge in below), reverse=True)
        offset = next((one for one in offsets if one >= 0 and _apart(life, one, live)), None)
        if offset is None:
            return []
        placed.append((life, offset))
        live.append((life, offset))
    return placed


def _hidden(
    offsets: Mapping[str, int], alive: Sequence[Lifetime], unit: int, ops: Sequence[Op], jobs: Sequence[int]
) -> int:
    """The cycles of the first copies of all buffers that jobs can hide: those from the last use of the bytes on. `jobs`
    are the cycles of all jobs before each operation."""
    taken, found = _Taken(unit), 0
    for life in alive:
        start = offsets[life.name]
        last = taken.last(start, start + life.nbytes)
        if not ops[life.first].is_job:
            found += min(ops[life.first].cycles, jobs[life.first] - jobs[last + 1])
        taken.put(start, start + life.nbytes, life.last)
    return found


def _in_pieces(alive: Sequence[Lifetime], size: int, unit: int, exact: bool) -> dict[str, int] | None:
    """Place the buffers between two times at which there is none by themselves: in time, or else by size."""
    pieces: list[list[Lifetime]] = []
    end = -1
    for life in alive:
        if life.first > end:
            pieces.append([])
        pieces[-1].append(life)
        end = max(end, life.last)
    offsets: dict[str, int] = {}
    for piece in pieces:
        found = place_in_time(piece, size, unit) if len(pieces) > 1 else None
        found = found or _by_size(piece, size, unit, exact)
        if found is None:
            return None
        offsets |= found
    return offsets


_MANY = 2500
"""Number of buffers beyond which placement by size takes too long."""


_SHARE = 1 / 8
"""Part of the limits of the exact search. A tuner runs many searches."""


def _by_size(alive: Sequence[Lifetime], size: int, unit: int, exact: bool) -> dict[str, int] | None:
    """Place large buffers first, as in the arena; then by the exact search."""
    if len(alive) > _MANY:
        return None
    start = alive[0].first
    lives = tuple((life.nbytes, life.first - start, life.last - start) for life in alive)
    found = _offsets_by_size(lives, size, unit, exact)
    return None if found is None else {life.name: offset for life, offset in zip(alive, found, strict=True)}


@lru_cache(maxsize=64)
def _offsets_by_size(
    lives: tuple[tuple[int, int, int], ...], size: int, unit: int, exact: bool
) -> tuple[int, ...] | None:
    """The offset of each buffer, of which the bytes, the first and the last operation are known: layers that are alike
    have the same."""
    alive = [Lifetime(f"{number:05}", *life, owner="") for number, life in enumerate(lives)]
    blocks = blocks_from_lifetimes(alive, unit)
    arena = place(blocks, largest_sum(alive))
    if arena.nbytes > size and exact:
        # As small as needed, not as possible.
        arena = improved(replace(arena, proven=size), blocks, live_together(alive), _SHARE)
    return tuple(arena.offsets[life.name] for life in alive) if arena.nbytes <= size else None
