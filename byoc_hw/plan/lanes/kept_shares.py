"""Shares of a tensor that stay in a lane's local memory from one of its parts to a later one.

Parts hand tensors to each other through main memory. Where a part stores what a later part of its lane loads again,
both may have it in one buffer instead: the jobs of the one write where the jobs of the other read, though they have
other strides there, and only what other lanes make of the tensor is loaded. What nobody loads any more is not stored.
It is tried for each tensor, and kept where all parts together take fewer cycles, or as many with fewer bytes copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import Window, geometry
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, ordered_parts, touched_arguments
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.place.local import place_local
from byoc_hw.plan.steps import Copy, Job
from byoc_hw.plan.work.merges import in_buffer
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op, activations, misalignment
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

Numbers = NDArray[np.int64]

_MOST_ORDERED = 5_000
"""The copies and jobs that are ordered in all, for tensors whose copies something waits for."""

_MOST_FOR_BYTES = 1_000
"""The same for the others: fewer bytes are copied, in as many cycles."""

_PIECES = 2
"""The most copies in place of one."""

NOWHERE = -1

_Lain = dict[LocalBuffer, tuple[Tensor, Numbers]]
"""The tensor that was kept in a buffer, and where each byte of it lies there."""


def with_kept_shares(known: OrderedParts, chip: Soc, outside: Collection[Tensor], cost: float) -> OrderedParts:
    """Parts that share no local memory with other lanes, in a possible order, with what is best kept for later parts.
    A copy or job more has to save as many cycles as it costs. The tensors `outside` are inputs and outputs of the
    region."""
    keeper = _Keeper(known, chip, outside, cost)
    keeper.improve(_MOST_ORDERED, waited_for=True)
    keeper.improve(_MOST_FOR_BYTES, waited_for=False)
    best = keeper.best
    if best is known:
        return known
    layouts = [part.layout for part in best.parts]
    ordered = [replace(one, order=order(one.work.ops, one.places)) for one in layouts]
    parts = [replace(part, layout=one) for part, one in zip(best.parts, ordered, strict=True)]
    return replace(best, parts=parts, uncut=known.parts)


class _Keeper:
    """The search for what is kept: `best` are the parts so far."""

    def __init__(self, known: OrderedParts, chip: Soc, outside: Collection[Tensor], cost: float) -> None:
        self._chip, self._outside, self._each = chip, outside, cost
        self._lies: _Lain = {}
        self._take(known)

    def _take(self, best: OrderedParts) -> None:
        self.best, self._buffers = best, [_buffers(part) for part in best.parts]

    def improve(self, most: int, *, waited_for: bool) -> None:
        """Keep what makes the parts better, of tensors some of whose copies are waited for, or of the others."""
        improved = True
        while improved:
            improved = False
            slow = _waited_for(self.best)
            for tensor, first, at in list(self._possible()):
                if waited_for == ((tensor, at) in slow or (tensor, NOWHERE) in slow):
                    most -= len(self.best.work.ops)
                    if most < 0:
                        return
                    improved |= self._tried(tensor, first, at)

    def _possible(self) -> Iterator[tuple[Tensor, LocalBuffer, int]]:
        """The tensors that parts load and others make, and what earlier parts on their lanes have them in, the latest
        first."""
        parts = self.best.parts
        for at, part in enumerate(parts):
            for tensor, own in self._buffers[at].items():
                if tensor in part.part.reads and tensor not in self._outside:
                    same = [number for number in reversed(range(at)) if parts[number].lane == part.lane]
                    found = dict.fromkeys(one for number in same for one in self._buffers[number].get(tensor, ()))
                    yield from ((tensor, first, at) for first in found if first not in own)

    def _tried(self, tensor: Tensor, first: LocalBuffer, at: int) -> bool:
        """Keep a tensor if that is better; whether it is."""
        if first not in {one for some in self._buffers for one in some.get(tensor, ())}:
            return False  # it is in another buffer by now
        with suppress(_CannotStayError, PlanError):
            made = _kept(self.best.parts, tensor, first, at, self._lies)
            other = ordered_parts(_placed(made.parts, self.best.parts[at].lane), self._chip, self.best)
            if self._cost(other) < self._cost(self.best):
                self._lies[made.buffer] = tensor, made.lies
                self._take(other)
                return True
        return False

    def _cost(self, one: OrderedParts) -> tuple[float, int]:
        """What parts cost, and the bytes that they copy."""
        copied = sum(op.step.bytes_moved for op in one.work.ops if isinstance(op.step, Copy))
        return one.order.cycles + self._each * len(one.work.ops), copied


def _waited_for(parts: OrderedParts) -> set[tuple[Tensor, int]]:
    """The tensors with copies on chains of operations that take all the cycles, each of which starts at the end of the
    one before: those that a part loads, with its number, and those that one stores, with `NOWHERE`."""
    work, known = parts.work, parts.order
    ended: dict[tuple[int, bool, int], int] = {}
    for op, one in enumerate(work.ops):
        if one.cycles:
            ended[work.lanes[op], one.is_job, known.end[op]] = op
    open_ = [op for op, end in enumerate(known.end) if end == known.cycles]
    seen = set(open_)
    while open_:
        op = open_.pop()
        start = known.start[op]
        before = [other for other in work.before[op] if known.end[other] == start]
        own = ended.get((work.lanes[op], work.ops[op].is_job, start))
        before += [own] if own is not None else []
        open_ += [other for other in before if other not in seen]
        seen.update(before)
    found = set()
    for op in seen:
        at, step = work.parts[op], work.ops[op].step
        part = parts.parts[at]
        if isinstance(step, Copy):
            number = at if step.inward else NOWHERE
            found |= {(part.part.arguments[argument][0], number) for argument in touched_arguments(part, work.ops[op])}
    return found


class _CannotStayError(Exception):
    """A tensor cannot stay where it is: a job cannot write where another one reads, or a copy would be many."""


# ---------------------------------------------------------------- what parts copy of a tensor


@dataclass(frozen=True)
class _Moved:
    """A copy between a buffer and a tensor of the region: each byte of it, in the tensor and in the buffer."""

    buffer: LocalBuffer
    main: Numbers
    local: Numbers


def _buffers(part: PlacedPart) -> dict[Tensor, list[LocalBuffer]]:
    """The buffers that a part copies something of each tensor of the region to or from."""
    found: dict[Tensor, list[LocalBuffer]] = {}
    for op in part.layout.work.ops:
        if isinstance(op.step, Copy):
            for argument in touched_arguments(part, op):
                some = found.setdefault(part.part.arguments[argument][0], [])
                some += [one for one in op.local.values() if one not in some]
    return found


def _tensor(part: PlacedPart, op: Op) -> Tensor | None:
    """The tensor of the region of which a copy moves something; None for other operations."""
    argument = next(touched_arguments(part, op), None) if isinstance(op.step, Copy) else None
    return None if argument is None else part.part.arguments[argument][0]


def _moved(part: PlacedPart, op: Op) -> _Moved:
    """What a copy moves of a tensor of the region."""
    step = op.step
    assert isinstance(step, Copy)
    _, start = part.part.arguments[next(touched_arguments(part, op))]
    (buffer,) = op.local.values()
    strides = step.target_stride, step.source_stride
    local_stride, main_stride = strides if step.inward else strides[::-1]
    main = _places(start + step.main.offset, (step.rows, step.nbytes), (main_stride, 1))
    local = _places(step.local.offset, (step.rows, step.nbytes), (local_stride, 1))
    return _Moved(buffer, main, local)


def _places(start: int, counts: Sequence[int], strides: Sequence[int]) -> Numbers:
    """The bytes of a box, in order."""
    found = np.array(start, np.int64)
    for count, stride in zip(counts, strides, strict=True):
        found = found[..., None] + np.arange(count, dtype=np.int64) * stride
    return found.ravel()


# ---------------------------------------------------------------- one of them stays


@dataclass(frozen=True)
class _Made:
    """Parts without addresses: one buffer has what is kept, and each byte of the tensor `lies` there."""

    parts: list[PlacedPart]
    buffer: LocalBuffer
    lies: Numbers


def _kept(parts: Sequence[PlacedPart], tensor: Tensor, first: LocalBuffer, at: int, known: _Lain) -> _Made:
    """Parts with what the buffer `first` has of a tensor in the one that part `at` loads it to."""
    last = parts[at]
    unit = last.layout.mapped.accelerator.buffer_alignment
    size = round_up(tensor.nbytes, last.layout.mapped.accelerator.dma_alignment)
    second, there = _loaded(last, tensor, size)
    users, others = (_users(parts, one, at) for one in (first, second))
    lain, before = (_lain(tensor, size, known.get(one)) for one in (first, second))
    has = _has([parts[number] for number in users], tensor, first, lain)
    kept = (has >= 0) & (there >= 0)
    if second is first or not kept.any() or ((has >= 0) & (before >= 0)).any():
        raise _CannotStayError
    there = np.where(there >= 0, there, before)
    moves = _moves(first, has, there, kept)
    base = min(int(moves[moves != _UNSET].min()), 0) // unit * unit
    moves = np.where(moves == _UNSET, _UNSET, moves - base)
    there = np.where(there >= 0, there - base, NOWHERE)
    buffer = activations(tensor.name, max(int(moves.max()) + 1, second.nbytes - base))
    lies = np.where(has >= 0, moves[np.maximum(has, 0)], there)
    made = list(parts)
    for number in users:
        made[number] = _relocated(made[number], first, buffer, moves)
    for number in others:
        made[number] = _relocated(made[number], second, buffer, _further(second, -base, unit))
    stays = np.where(kept | (before >= 0), there, NOWHERE)
    made[at] = _without_loads(last, tensor, second, (buffer, -base), stays)
    return _Made(_without_stores(made, tensor), buffer, lies)


def _lain(tensor: Tensor, size: int, known: tuple[Tensor, Numbers] | None) -> Numbers:
    """Where the bytes of a tensor lie in a buffer that one was kept in before: it has no second one."""
    if known is None:
        return np.full(size, NOWHERE, np.int64)
    if known[0] is not tensor:
        raise _CannotStayError
    return known[1]


def _users(parts: Sequence[PlacedPart], buffer: LocalBuffer, at: int) -> list[int]:
    """The parts before one that have a buffer. None behind it may have it."""
    found = [
        number for number, part in enumerate(parts) if any(buffer in op.local.values() for op in part.layout.work.ops)
    ]
    if found and found[-1] > at:
        raise _CannotStayError
    return [number for number in found if number < at]


_UNSET = -(1 << 60)
"""The new place of a byte that has none."""


def _has(parts: Sequence[PlacedPart], tensor: Tensor, buffer: LocalBuffer, before: Numbers) -> Numbers:
    """Where the bytes of a tensor are in a buffer when some parts have ended: those that were copied from there, or to
    there, and not written since, else where they lay `before`."""
    size = len(before)
    has = np.full(size, NOWHERE, np.int64)
    for part in parts:
        for op in part.layout.work.ops:
            if buffer not in op.local.values():
                continue
            if isinstance(op.step, Copy):
                if _tensor(part, op) is not tensor:
                    raise _CannotStayError
                found = _moved(part, op)
                if found.main.max() >= size:
                    raise _CannotStayError
                has[found.main] = found.local
            elif isinstance(op.step, Job) and op.local.get("ofm") is buffer and op.step.last:
                has[np.isin(has, _tile(op.step, "ofm"))] = NOWHERE
    has = np.where(has >= 0, has, before)
    places = has[has >= 0]
    if len(np.unique(places)) < len(places):
        raise _CannotStayError
    return has


def _loaded(part: PlacedPart, tensor: Tensor, size: int) -> tuple[LocalBuffer, Numbers]:
    """The buffer that a part loads a tensor to, and where its bytes lie there."""
    there = np.full(size, NOWHERE, np.int64)
    buffers = set()
    for op in part.layout.work.ops:
        if _tensor(part, op) is not tensor:
            continue
        found = _moved(part, op)
        buffers.add(found.buffer)
        main, local = found.main, found.local
        if main.max() >= size or not isinstance(op.step, Copy) or not op.step.inward:
            raise _CannotStayError
        if ((there[main] >= 0) & (there[main] != local)).any():
            raise _CannotStayError
        there[main] = local
    if len(buffers) != 1:
        raise _CannotStayError
    (buffer,) = buffers
    places = there[there >= 0]
    if len(np.unique(places)) < len(places):
        raise _CannotStayError
    return buffer, there


def _moves(first: LocalBuffer, has: Numbers, there: Numbers, kept: NDArray[np.bool_]) -> Numbers:
    """The new place of each byte that a buffer has of a tensor: where another one has it. Those not in that one
    have a place as well if it has all others equally far from theirs, or from those in the tensor."""
    moves = np.full(max(first.nbytes, int(has.max()) + 1), _UNSET, np.int64)  # a copy may end in a whole word
    moves[has[kept]] = there[kept]
    missing = np.flatnonzero((has >= 0) & ~kept)
    if missing.size:
        far, main = there[kept] - has[kept], np.flatnonzero(there >= 0)
        shifts = there[main] - main
        if (far == far[0]).all():
            places = has[missing] + far[0]
        elif (shifts == shifts[0]).all():
            places = missing + shifts[0]
        else:
            raise _CannotStayError
        if np.isin(places, there[main]).any():
            raise _CannotStayError
        moves[has[missing]] = places
    return moves


def _further(buffer: LocalBuffer, by: int, unit: int) -> Numbers:
    """The new place of each byte of a buffer, in whole words, so many bytes further on."""
    return np.arange(round_up(buffer.nbytes, unit), dtype=np.int64) + by


def _tile(job: Job, name: str) -> Numbers:
    """The bytes of a job's input or output."""
    shape = job.ofm_shape if name == "ofm" else job.ifm_shape
    row, pixel = (job.ofm_row, job.ofm_pixel) if name == "ofm" else (job.ifm_row, job.ifm_pixel)
    return _places(getattr(job, name), shape, (row, pixel, 1))


def _relocated(part: PlacedPart, before: LocalBuffer, buffer: LocalBuffer, moves: Numbers) -> PlacedPart:
    """A part with each byte of a buffer in its new place in another one."""

    def copies(op: Op) -> Iterator[Op]:
        if _tensor(part, op) is None:
            raise _CannotStayError
        found = _moved(part, op)
        return _copies(part, op, buffer, found.main, _at(moves, found.local))

    return _with_others(part, before, copies, lambda op: _job(part, op, before, buffer, moves))


def _with_others(
    part: PlacedPart, before: LocalBuffer, copies: Callable[[Op], Iterable[Op]], job: Callable[[Op], Op]
) -> PlacedPart:
    """A part with other operations in place of those that have a buffer: of its copies, and of its jobs."""
    ops: list[Op] = []
    for op in part.layout.work.ops:
        if before not in op.local.values():
            ops.append(op)
        elif isinstance(op.step, Copy):
            ops += copies(op)
        else:
            ops.append(job(op))
    return _with_ops(part, ops)


def _at(moves: Numbers, places: Numbers) -> Numbers:
    """The new places of some bytes."""
    if places.min() < 0 or places.max() >= len(moves):
        raise _CannotStayError
    found: Numbers = moves[places]
    if (found == _UNSET).any():
        raise _CannotStayError
    return found


def _job(part: PlacedPart, op: Op, before: LocalBuffer, buffer: LocalBuffer, moves: Numbers) -> Op:
    """A job with each byte of a buffer in its new place in another one."""
    layers = part.layout.mapped.mapping.layers
    slides = op.layer < len(layers) and isinstance(geometry(layers[op.layer]), Window)
    accesses = list(op.accesses)
    fields: dict[str, Any] = {}
    for name in [name for name, place in op.local.items() if place is before]:
        if not isinstance(op.step, Job) or name not in ("ifm", "ifm2", "ofm"):
            raise _CannotStayError
        start = getattr(op.step, name)
        touched = [
            at
            for at, one in enumerate(accesses)
            if one.place is before and one.start == start and one.writes == (name == "ofm")
        ]
        if not touched and not (name == "ofm" and not op.step.last):
            raise _CannotStayError
        new, shape = _shifted(op, name, accesses[touched[0]].stop if touched else start + 1, moves, slides=slides)
        fields |= new
        if touched:
            accesses[touched[0]] = Access(buffer, new[name], new[name] + shape, name == "ofm")
    if any(one.place is before for one in accesses):
        raise _CannotStayError
    local = {name: buffer if place is before else place for name, place in op.local.items()}
    return replace(op, step=op.step._replace(**fields), accesses=tuple(accesses), local=local)


def _shifted(op: Op, name: str, stop: int, moves: Numbers, *, slides: bool) -> tuple[dict[str, int], int]:
    """The fields of a job that touches bytes in their new places, and how many bytes there are from first to last."""
    job = op.step
    assert isinstance(job, Job)
    start = getattr(job, name)
    if not slides or name == "ifm2":
        found = _at(moves, np.arange(start, stop))
        if (np.diff(found) != 1).any():
            raise _CannotStayError
        return {name: int(found[0])}, stop - start
    shape = job.ofm_shape if name == "ofm" else job.ifm_shape
    tile = _at(moves, _tile(job, name)).reshape(shape)
    first = int(tile[0, 0, 0])
    pixel = int(tile[0, 1, 0]) - first if shape[1] > 1 else shape[2]
    row = int(tile[1, 0, 0]) - first if shape[0] > 1 else shape[1] * pixel
    if pixel < shape[2] or row < (shape[1] - 1) * pixel + shape[2]:
        raise _CannotStayError
    if (tile.ravel() != _places(first, shape, (row, pixel, 1))).any():
        raise _CannotStayError
    there = (shape[0] - 1) * row + (shape[1] - 1) * pixel + shape[2]
    return {name: first, f"{name}_row": row, f"{name}_pixel": pixel}, there


def _copies(part: PlacedPart, op: Op, buffer: LocalBuffer, main: Numbers, local: Numbers) -> Iterator[Op]:
    """The copies, in place of one, of some bytes of its tensor to or from a buffer: few of them."""
    step, accelerator = op.step, part.layout.mapped.accelerator
    assert isinstance(step, Copy)
    before = int(_moved(part, op).main[0])
    (there,) = (access for access in op.accesses if isinstance(access.place, Storage))
    boxes = list(_boxes(main, local))
    if len(boxes) > _PIECES:
        raise _CannotStayError
    for (first, begin), (rows, nbytes), (main_stride, local_stride) in boxes:
        ends = step.main + (first - before), step.local._replace(offset=begin)
        target, source = ends[::-1] if step.inward else ends
        strides = (local_stride, main_stride) if step.inward else (main_stride, local_stride)
        made = Copy(target, source, nbytes, rows, *strides)
        if misalignment(made, accelerator.dma_alignment) is not None:
            raise _CannotStayError
        accesses = (
            Access(buffer, begin, begin + (rows - 1) * local_stride + nbytes, step.inward),
            Access(
                there.place,
                there.start + first - before,
                there.start + first - before + (rows - 1) * main_stride + nbytes,
                not step.inward,
            ),
        )
        cycles = copy_cycles(nbytes, rows, accelerator)
        yield Op(made, op.layer, accesses, {"target" if step.inward else "source": buffer}, cycles)


def _boxes(main: Numbers, local: Numbers) -> Iterator[tuple[tuple[int, int], tuple[int, int], tuple[int, int]]]:
    """Bytes as boxes: where each begins in both memories, its rows and the bytes of one, and the strides of both."""
    ends = np.flatnonzero((np.diff(main) != 1) | (np.diff(local) != 1)) + 1
    starts = [0, *(int(one) for one in ends), len(main)]
    rows = [(int(main[first]), int(local[first]), stop - first) for first, stop in pairwise(starts)]
    at = 0
    while at < len(rows):
        first, begin, nbytes = rows[at]
        strides, count = (0, 0), 1
        if at + 1 < len(rows):
            strides = rows[at + 1][0] - first, rows[at + 1][1] - begin
        while at + count < len(rows) and min(strides) >= nbytes:
            following = first + count * strides[0], begin + count * strides[1], nbytes
            if rows[at + count] != following:
                break
            count += 1
        yield (first, begin), (count, nbytes), strides if count > 1 else (0, 0)
        at += count


def _without_loads(
    part: PlacedPart, tensor: Tensor, before: LocalBuffer, moved: tuple[LocalBuffer, int], kept: Numbers
) -> PlacedPart:
    """A part with a buffer of its own in another one, from a byte on, without the loads of what is kept there."""
    buffer, by = moved
    unit = part.layout.mapped.accelerator.buffer_alignment
    moves = _further(before, by, unit)

    def copies(op: Op) -> Iterable[Op]:
        step = op.step
        if _tensor(part, op) is tensor:
            found = _moved(part, op)
            rest = kept[found.main] == NOWHERE
            if not rest.any():
                return ()
            return _copies(part, op, buffer, found.main[rest], _at(moves, found.local[rest]))
        assert isinstance(step, Copy)
        there = _places(by + step.local.offset, (step.rows, step.nbytes), (step.target_stride, 1))
        if not step.inward or np.isin(there, kept).any() or by % unit:
            raise _CannotStayError
        return (in_buffer(op, before, buffer, by),)

    def job(op: Op) -> Op:
        if any(one.place is before and one.writes for one in op.accesses):
            raise _CannotStayError
        return _job(part, op, before, buffer, moves)

    return _with_others(part, before, copies, job)


def _without_stores(parts: Sequence[PlacedPart], tensor: Tensor) -> list[PlacedPart]:
    """Parts without the stores of what none of them loads of a tensor."""
    loads: list[Numbers] = []
    stores: list[tuple[int, Op, Numbers]] = []
    for at, part in enumerate(parts):
        for op in part.layout.work.ops:
            if not isinstance(op.step, Copy):
                if any(part.part.arguments[one][0] is tensor for one in touched_arguments(part, op)):
                    return list(parts)  # a layer as a whole
            elif _tensor(part, op) is tensor:
                main = _moved(part, op).main
                if op.step.inward:
                    loads.append(main)
                else:
                    stores.append((at, op, main))
    made, needed = list(parts), np.concatenate(loads) if loads else np.empty(0, np.int64)
    for at, op, main in stores:
        if not np.isin(main, needed).any():
            made[at] = _with_ops(made[at], [one for one in made[at].layout.work.ops if one is not op])
    return made


def _with_ops(part: PlacedPart, ops: Sequence[Op]) -> PlacedPart:
    """A part with other operations, without addresses."""
    layout = part.layout
    return replace(part, layout=replace(layout, work=replace(layout.work, ops=tuple(ops), starts=())))


def _placed(parts: Sequence[PlacedPart], lane: int) -> list[PlacedPart]:
    """Parts with the buffers of one lane placed at once. Raises `PlanError` where they do not fit."""
    mine = [part for part in parts if part.lane == lane]
    places = place_local([op for part in mine for op in part.layout.work.ops], mine[0].layout.mapped.accelerator)
    made = []
    for part in parts:
        if part.lane == lane:
            used = dict.fromkeys(buffer for op in part.layout.work.ops for buffer in op.local.values())
            part = replace(part, layout=replace(part.layout, places={buffer: places[buffer] for buffer in used}))
        made.append(part)
    return made
