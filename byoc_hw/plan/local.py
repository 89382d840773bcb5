"""Places in the local memories, by lifetime over the order of the work.

Of the bytes that are free, a buffer gets those whose last user is longest ago: the copy that fills it
can then start early.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.plan.exact import improved
from byoc_hw.plan.memory import Lifetime, blocks_from_lifetimes, place
from byoc_hw.plan.memory import peak as largest_sum
from byoc_hw.plan.ops import Buffer, Op
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS
from byoc_hw.plan.tiling import alignment, round_up


@dataclass(frozen=True)
class Life:
    """The first and the last operation that touch a buffer."""

    buffer: Buffer
    first: int
    last: int


def lives(ops: Sequence[Op]) -> dict[int, list[Life]]:
    """By space, the lives of all buffers in order of their beginning."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for index, op in enumerate(ops):
        for access in op.accesses:
            if isinstance(access.place, Buffer):
                first, _ = spans.get(access.place, (index, index))
                spans[access.place] = first, index
    found: dict[int, list[Life]] = {ACTIVATIONS: [], WEIGHTS: []}
    for buffer, (first, last) in spans.items():
        found[buffer.space].append(Life(buffer, first, last))
    return found


def place_local(ops: Sequence[Op], accelerator: Accelerator, *, exact: bool = False) -> dict[Buffer, int]:
    """The offset of each buffer. Raises `PlanError` where they do not fit.

    With `exact` a search goes on where the fast ways find no place though the bytes would be enough.
    """
    sizes = {ACTIVATIONS: accelerator.activation_memory, WEIGHTS: accelerator.weight_memory}
    names = {ACTIVATIONS: "activation", WEIGHTS: "weight"}
    unit = alignment(accelerator)
    offsets: dict[Buffer, int] = {}
    for space, alive in lives(ops).items():
        size, needed = sizes[space], peak(alive)
        found = None
        if needed <= size:
            found = _oldest_first(alive, size, unit) or _by_size(alive, size, unit, exact)
        if found is None:
            raise PlanError(
                f"what is live at once fits local {names[space]} memory: {needed} bytes needed, {size} bytes there"
            )
        offsets |= found
    return offsets


def peak(alive: Sequence[Life]) -> int:
    """The most bytes that are live at once."""
    return largest_sum(_lifetimes(alive))


def _lifetimes(alive: Sequence[Life]) -> list[Lifetime]:
    return [Lifetime(f"{index:05}", life.buffer.nbytes, life.first, life.last, "") for index, life in enumerate(alive)]


_RETRIES = 8
"""Buffers at most that get their place before the others do."""


def _oldest_first(alive: Sequence[Life], size: int, unit: int) -> dict[Buffer, int] | None:
    """Each buffer over what has been dead for longest. One that finds no room gets its place before all others."""
    before: list[tuple[Life, int]] = []
    for _ in range(_RETRIES):
        found = _in_time(alive, size, unit, before)
        if isinstance(found, dict):
            return found
        edges = sorted({0, *(round_up(start + life.buffer.nbytes, unit) for life, start in before)})
        offset = next((edge for edge in edges if _apart(found, edge, before)), None)
        if offset is None or offset + found.buffer.nbytes > size:
            return None
        before.append((found, offset))
    return None


def _in_time(
    alive: Sequence[Life], size: int, unit: int, before: Sequence[tuple[Life, int]]
) -> dict[Buffer, int] | Life:
    """Places in the order in which buffers begin, around those that have one `before`; or the first without room."""
    offsets = {life.buffer: start for life, start in before}
    edges = {round_up(edge, unit) for life, start in before for edge in (start, start + life.buffer.nbytes)}
    taken = _Taken([], [], [])
    for life in alive:
        nbytes = life.buffer.nbytes
        if life.buffer not in offsets:
            best: tuple[int, int] | None = None
            for offset in sorted(edges.union(taken.edges(unit))):
                if offset + nbytes > size:
                    break
                last = taken.last(offset, offset + nbytes)
                if last < life.first and (best is None or last < best[0]) and _apart(life, offset, before):
                    best = last, offset
            if best is None:
                return life
            offsets[life.buffer] = best[1]
        taken.put(offsets[life.buffer], offsets[life.buffer] + nbytes, life.last)
    return offsets


def _apart(life: Life, offset: int, others: Sequence[tuple[Life, int]]) -> bool:
    """Whether a buffer can lie there beside others that have their places."""
    stop = offset + life.buffer.nbytes
    return not any(
        other.first <= life.last and life.first <= other.last and start < stop and offset < start + other.buffer.nbytes
        for other, start in others
    )


@dataclass(frozen=True)
class _Taken:
    """What lay where last: pieces from `starts` to `stops`, by address, and the last operation that touches each."""

    starts: list[int]
    stops: list[int]
    lasts: list[int]

    def edges(self, unit: int) -> list[int]:
        """Where a buffer may start."""
        return sorted({0, *(round_up(edge, unit) for edge in (*self.starts, *self.stops))})

    def last(self, start: int, stop: int) -> int:
        """The last operation that touches any of these bytes, -1 if none does."""
        found = -1
        for index in range(bisect_right(self.stops, start), len(self.starts)):
            if self.starts[index] >= stop:
                break
            found = max(found, self.lasts[index])
        return found

    def put(self, start: int, stop: int, last: int) -> None:
        """Put a buffer over what is there."""
        first = bisect_right(self.stops, start)
        end = bisect_left(self.starts, stop)
        pieces = [(start, stop, last)]
        if first < end and self.starts[first] < start:
            pieces.insert(0, (self.starts[first], start, self.lasts[first]))
        if first < end and self.stops[end - 1] > stop:
            pieces.append((stop, self.stops[end - 1], self.lasts[end - 1]))
        self.starts[first:end], self.stops[first:end], self.lasts[first:end] = map(list, zip(*pieces, strict=True))


_MANY = 2500
"""Buffers beyond which placing by size would take too long."""


_WORK = 0.5
"""The limit of the exact search: a plan needs one at most, but a tuner asks for many."""


def _by_size(alive: Sequence[Life], size: int, unit: int, exact: bool) -> dict[Buffer, int] | None:
    """Large buffers first, by the search that places the arena, and by the exact one."""
    if len(alive) > _MANY:
        return None
    lifetimes = _lifetimes(alive)
    blocks = blocks_from_lifetimes(lifetimes, unit)
    arena = place(blocks, largest_sum(lifetimes))
    if arena.nbytes > size and exact:
        arena = improved(replace(arena, proven=size), blocks, _WORK)  # as small as needed, not as possible
    if arena.nbytes > size:
        return None
    return {life.buffer: arena.offsets[f"{index:05}"] for index, life in enumerate(alive)}
