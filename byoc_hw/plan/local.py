"""Places in the local memories, by lifetime over the order of the work.

Of the bytes that are free, a buffer gets those whose last user is longest ago: the copy that fills it
can then start early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.plan.exact import improved
from byoc_hw.plan.memory import Lifetime, blocks_from_lifetimes, place
from byoc_hw.plan.ops import Buffer, Op
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS
from byoc_hw.plan.tiling import alignment, round_up


@dataclass(frozen=True)
class Life:
    """The first and the last operation that touch a buffer."""

    buffer: Buffer
    first: int
    last: int


@dataclass(frozen=True)
class _Taken:
    """Bytes `start` to `stop`, which operation `last` is the last one to touch."""

    start: int
    stop: int
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
            found = _in_time(alive, size, unit, _oldest) or _in_time(alive, size, unit, _lowest)
            found = found or _by_size(alive, size, unit, exact)
        if found is None:
            raise PlanError(
                f"what is live at once fits local {names[space]} memory: {needed} bytes needed, {size} bytes there"
            )
        offsets |= found
    return offsets


def peak(alive: Sequence[Life]) -> int:
    """The most bytes that are live at once."""
    changes = [(life.first, life.buffer.nbytes) for life in alive]
    changes += [(life.last + 1, -life.buffer.nbytes) for life in alive]
    total = most = 0
    for _, change in sorted(changes):
        total += change
        most = max(most, total)
    return most


Preference = Callable[[int, Sequence[_Taken]], tuple[int, int]]
"""What makes one place better than another: of its offset and of what lay there before."""


def _oldest(offset: int, below: Sequence[_Taken]) -> tuple[int, int]:
    return max((taken.last for taken in below), default=-1), offset


def _lowest(offset: int, below: Sequence[_Taken]) -> tuple[int, int]:
    return offset, 0


def _in_time(alive: Sequence[Life], size: int, unit: int, preference: Preference) -> dict[Buffer, int] | None:
    """Each buffer in the order in which they begin."""
    offsets: dict[Buffer, int] = {}
    taken: list[_Taken] = []  # what lay where last, by address
    for life in alive:
        best: tuple[tuple[int, int], int, list[_Taken]] | None = None
        for offset in sorted({0, *(round_up(edge, unit) for one in taken for edge in (one.start, one.stop))}):
            stop = offset + life.buffer.nbytes
            if stop > size:
                break
            below = [one for one in taken if one.start < stop and offset < one.stop]
            if any(one.last >= life.first for one in below):
                continue
            key = preference(offset, below)
            if best is None or key < best[0]:
                best = key, offset, below
        if best is None:
            return None
        _, offset, below = best
        offsets[life.buffer] = offset
        taken = sorted(_without(taken, below, offset, life), key=lambda one: one.start)
    return offsets


def _without(taken: Sequence[_Taken], below: Sequence[_Taken], offset: int, life: Life) -> Iterator[_Taken]:
    """What lies where once a buffer is placed over what is below it."""
    stop = offset + life.buffer.nbytes
    covered = {id(one) for one in below}
    for one in taken:
        if id(one) not in covered:
            yield one
            continue
        if one.start < offset:
            yield _Taken(one.start, offset, one.last)
        if one.stop > stop:
            yield _Taken(stop, one.stop, one.last)
    yield _Taken(offset, stop, life.last)


_MANY = 400
"""Buffers beyond which placing by size would take too long."""


_WORK = 0.5
"""The limit of the exact search: a plan needs one at most, but a tuner asks for many."""


def _by_size(alive: Sequence[Life], size: int, unit: int, exact: bool) -> dict[Buffer, int] | None:
    """Large buffers first, by the search that places the arena, and by the exact one."""
    if len(alive) > _MANY:
        return None
    lifetimes = [
        Lifetime(f"{index:05}", life.buffer.nbytes, life.first, life.last, "") for index, life in enumerate(alive)
    ]
    blocks = blocks_from_lifetimes(lifetimes, unit)
    arena = place(blocks, peak(alive))
    if arena.nbytes > size and exact:
        arena = improved(replace(arena, proven=size), blocks, _WORK)  # as small as needed, not as possible
    if arena.nbytes > size:
        return None
    return {life.buffer: arena.offsets[f"{index:05}"] for index, life in enumerate(alive)}
