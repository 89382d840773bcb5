"""The work of all parts together: what depends on what, and the order of each engine.

Each lane has two engines, a DMA and an array. Jobs keep the order of the parts. A free DMA takes, of its copies that
can start, the one that is needed first, as in a region of one accelerator. Lanes depend on each other through main
memory, where copies touch the same bytes, and through local memory that they share.

A long copy may so begin a moment before one that is needed earlier. A patient DMA knows from an order that was found
before when each copy could start: it does a short one meanwhile, or waits, where that takes less time than the urgent
one would lose.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from byoc_hw.accelerator import Accelerator
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.lanes.oriented import OrientedPart
from byoc_hw.plan.order.copies import Order, needed_first
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, WEIGHTS, Address, Copy, Started
from byoc_hw.plan.work.ops import Access, Home, LocalBuffer, Op, SharedMemory
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class JointWork:
    """The operations of all parts, part by part, with the part and the lane of each, and those that it waits for."""

    ops: tuple[Op, ...]
    parts: tuple[int, ...]
    lanes: tuple[int, ...]
    before: list[set[int]]


@dataclass(frozen=True)
class PlacedPart:
    """A part of a region that is laid out."""

    part: OrientedPart
    layout: Layout

    @property
    def lane(self) -> int:
        """The index of its accelerator."""
        return self.part.cut.lane

    def on(self, lane: int) -> PlacedPart:
        """The same part on an equal accelerator."""
        return replace(self, part=replace(self.part, cut=replace(self.part.cut, lane=lane)))


def shifted_behind(parts: Sequence[tuple[int, Accelerator, Sequence[int]]]) -> list[tuple[int, int]]:
    """Where the buffers of each part begin in both local memories: behind those of the part before on its lane, or at
    the start where they do not fit. The first copies of a part then need not wait for the part before.

    A part is its lane, its accelerator, and the bytes that it needs of both memories.
    """
    lanes: dict[int, tuple[int, ...]] = {}
    stops: dict[int, tuple[int, int]] = {}
    found = []
    for lane, accelerator, (activations, weights) in parts:
        if lane not in lanes:
            sizes = (accelerator.whole_words(one) for one in (accelerator.activation_memory, accelerator.weight_memory))
            lanes[lane] = accelerator.buffer_alignment, *sizes
        unit, *most = lanes[lane]
        first, second = (-(-stop // unit) * unit for stop in stops.get(lane, (0, 0)))
        first = first if first + activations <= most[ACTIVATIONS] else 0
        second = second if second + weights <= most[WEIGHTS] else 0
        stops[lane] = first + activations, second + weights
        found.append((first, second))
    return found


def needs_of(layout: Layout) -> tuple[int, int]:
    """Bytes of both local memories that a layout uses."""
    activations, weights = (
        max((at + one.nbytes for one, at in layout.places.items() if one.space == space), default=0)
        for space in (ACTIVATIONS, WEIGHTS)
    )
    return activations, weights


def side_by_side(parts: Sequence[PlacedPart]) -> list[PlacedPart]:
    """Parts with their buffers shifted behind those of the part before on their lane."""
    shifts = shifted_behind([(one.lane, one.layout.mapped.accelerator, needs_of(one.layout)) for one in parts])
    return [
        replace(one, layout=replace(one.layout, places={b: at + by[b.space] for b, at in one.layout.places.items()}))
        for one, by in zip(parts, shifts, strict=True)
    ]


def handed_over(parts: Sequence[PlacedPart]) -> tuple[str, ...]:
    """The buffers, by name, that several parts have in common: tensors that stay in local memory."""
    count = Counter(buffer for part in parts for buffer in part.layout.places)
    return tuple(buffer.name for buffer, many in count.items() if many > 1)


def joint_work(parts: Sequence[PlacedPart], chip: Soc) -> JointWork:
    """The work of parts, each on its lane. The order of the parts is a possible one."""
    slabs, memory = _slabs(parts), [chip.memory_of(lane) for lane in range(len(chip.accelerators))]
    ops: list[Op] = []
    touching: list[Op] = []
    for part in parts:
        for op in part.layout.work.ops:
            ops.append(op)
            touching.append(replace(op, accesses=tuple(_shared(op, part, slabs, memory[part.lane]))))
    of_ops = tuple(at for at, part in enumerate(parts) for _ in part.layout.work.ops)
    lanes = tuple(parts[at].lane for at in of_ops)
    return JointWork(tuple(ops), of_ops, lanes, dependencies(touching, {}, lanes))


def _slabs(parts: Sequence[PlacedPart]) -> dict[Tensor, tuple[int, ...]]:
    """The channels, in bytes, at which parts cut tensors that they share: from one of them to the next is a slab."""
    found: dict[Tensor, set[int]] = {}
    for part in parts:
        graph = part.layout.mapped.graph
        for (whole, start), tensor in zip(part.part.arguments, (*graph.inputs, *graph.outputs), strict=True):
            if len(whole.shape) == 4 and tensor.shape[-1] < whole.shape[-1]:
                pixel = whole.bytes_of(whole.shape[-1])
                first = start % pixel
                cuts = found.setdefault(whole, {0, pixel})
                cuts |= {first, first + tensor.bytes_of(tensor.shape[-1])}
    return {whole: tuple(sorted(cuts)) for whole, cuts in found.items()}


def _shared(op: Op, part: PlacedPart, slabs: Mapping[Tensor, tuple[int, ...]], memory: int) -> Iterator[Access]:
    """The accesses in memories that all parts share: local memories, that for activations with a number, and tensors in
    main memory."""
    for access in op.accesses:
        place = access.place
        if isinstance(place, LocalBuffer):
            base = part.layout.places[place]
            local = SharedMemory(place.space, memory if place.space == ACTIVATIONS else part.lane)
            yield replace(access, place=local, start=base + access.start, stop=base + access.stop)
            continue
        argument = main_address(op, access, part.layout.work.homes).space - ARGUMENT
        if argument < 0:
            yield access
            continue
        whole, start = part.part.arguments[argument]
        yield from _pieces(op.step, access, whole, start + access.start, slabs.get(whole))


def main_address(op: Op, access: Access, homes: Mapping[Storage, Home]) -> Address:
    """Where the storage that an operation accesses lies in main memory."""
    if isinstance(op.step, Copy):
        return op.step.main
    assert isinstance(access.place, Storage), "jobs touch no main memory"
    return homes[access.place].address


def main_rows(step: Started, nbytes: int) -> tuple[int, int, int]:
    """How `nbytes` of main memory that a copy or a call touches lie: rows, bytes of a row, and from one to the next."""
    if isinstance(step, Copy):
        return step.rows, step.nbytes, step.source_stride if step.inward else step.target_stride
    return 1, nbytes, 0


def _pieces(step: Started, access: Access, whole: Tensor, start: int, cuts: tuple[int, ...] | None) -> Iterator[Access]:
    """The bytes of a tensor in main memory that a copy or a call touches: its rows, or, of a tensor in slabs, those of
    each."""
    count, nbytes, stride = main_rows(step, access.stop - access.start)
    if cuts is None:
        for row in range(count):
            first = start + row * stride
            yield Access(SharedMemory(whole), first, first + nbytes, access.writes)
        return
    pixel = cuts[-1]
    if count > 1 and stride == pixel:
        runs = [(start // pixel, start // pixel + count, start % pixel, start % pixel + nbytes)]
    else:
        rows = [start + row * stride for row in range(count)]
        runs = [(first // pixel, ceil_div(first + nbytes, pixel), 0, pixel) for first in rows]
    for first, last, low, high in runs:
        for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
            if begin < high and low < end:
                yield Access(SharedMemory(whole, number), first, last, access.writes)


def joint_order(work: JointWork) -> Order:
    """The order of all engines, by time; in `copies` and `jobs` those of all lanes, each lane's in its order."""
    return _Scheduler(work).run()


_PASSES = 4
"""The most orders with patient DMAs that are tried."""


def patient_order(work: JointWork) -> Order:
    """The order of the fewest cycles: that of `joint_order`, or one with patient DMAs, each with the times of the one
    before."""
    best = found = joint_order(work)
    for _ in range(_PASSES):
        ready = found.ready
        found = _Scheduler(work, ready).run()
        if found.cycles < best.cycles:
            best = found
        if found.ready == ready:
            break
    return best


class _Scheduler:
    """List scheduling: of all engines, the one that can start first starts its next operation. With the times at which
    each operation is `expected` to be ready, DMAs are patient."""

    def __init__(self, work: JointWork, expected: Sequence[int] = ()) -> None:
        ops, self._before = work.ops, work.before
        self._expected, self._begun = expected, [False] * len(ops)
        self._ops, self._lanes = ops, work.lanes
        self._is_copy = [not op.is_job for op in ops]
        self._needed = needed_first(ops, work.before)
        self._waiting = [len(others) for others in work.before]
        self._after: list[list[int]] = [[] for _ in ops]
        for index, others in enumerate(work.before):
            for other in others:
                self._after[other].append(index)
        self._start, self._end, self._ready = [0] * len(ops), [0] * len(ops), [0] * len(ops)
        count = max(work.lanes, default=-1) + 1
        self._copies: list[list[int]] = [[] for _ in range(count)]  # that are expected, and may not have begun
        self._free = {(lane, copy): 0 for lane in range(count) for copy in (True, False)}
        self._jobs: list[list[int]] = [[] for _ in range(count)]
        self._following = [0] * count
        self._possible: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # copies by need
        self._later: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]  # copies by time
        for index, lane in enumerate(work.lanes):
            if not self._is_copy[index]:
                self._jobs[lane].append(index)
                continue
            self._copies[lane].append(index)
            if self._waiting[index] == 0:
                heappush(self._later[lane], (0, self._needed[index], index))

    def run(self) -> Order:
        copies: list[int] = []
        jobs: list[int] = []
        while (found := min(self._candidates(), default=None)) is not None:
            _, job, lane = found
            index = self._next_job(lane) if job else self._next_copy(lane)
            if index is None:
                continue
            (jobs if job else copies).append(index)
            self._begin(index, lane)
        assert len(copies) + len(jobs) == len(self._ops), "the order of the parts is a possible one"
        return Order(self._before, copies, jobs, self._start, self._end, self._ready)

    def _candidates(self) -> list[tuple[int, bool, int]]:
        """The earliest start, whether it is a job, the lane: of each engine that has something to start."""
        found = []
        for lane, jobs in enumerate(self._jobs):
            at = self._following[lane]
            if at < len(jobs) and self._waiting[jobs[at]] == 0:
                found.append((max(self._free[lane, False], self._ready[jobs[at]]), True, lane))
            if self._possible[lane]:
                found.append((self._free[lane, True], False, lane))
            elif self._later[lane]:
                found.append((max(self._free[lane, True], self._later[lane][0][0]), False, lane))
        return found

    def _next_job(self, lane: int) -> int:
        index = self._jobs[lane][self._following[lane]]
        self._following[lane] += 1
        return index

    def _next_copy(self, lane: int) -> int | None:
        """The copy that a lane's DMA does next; None where it waits for a while."""
        later, possible = self._later[lane], self._possible[lane]
        now = self._free[lane, True] if possible else max(self._free[lane, True], later[0][0])
        while later and later[0][0] <= now:
            _, need, index = heappop(later)
            heappush(possible, (need, index))
        if self._expected and (soon := self._urgent(lane, now)) is not None:
            short = [one for one in possible if now + self._ops[one[1]].cycles <= soon]
            if short:
                possible.remove(min(short))
                heapify(possible)
                return min(short)[1]
            if soon - now < now + self._ops[possible[0][1]].cycles - soon:
                self._free[lane, True] = soon
                return None
        return heappop(possible)[1]

    def _urgent(self, lane: int, now: int) -> int | None:
        """When the first of a lane's copies is expected to be ready that is needed before the next possible one, and
        could begin while that one is under way."""
        need, index = self._possible[lane][0]
        end = now + self._ops[index].cycles
        self._copies[lane] = [one for one in self._copies[lane] if not self._begun[one]]
        urgent = (self._expected[one] for one in self._copies[lane] if self._needed[one] < need)
        return min((ready for ready in urgent if now < ready < end), default=None)

    def _begin(self, index: int, lane: int) -> None:
        engine = lane, self._is_copy[index]
        self._begun[index] = True
        self._start[index] = max(self._free[engine], self._ready[index])
        self._free[engine] = self._end[index] = self._start[index] + self._ops[index].cycles
        for other in self._after[index]:
            self._waiting[other] -= 1
            if (self._lanes[other], self._is_copy[other]) != engine:
                self._ready[other] = max(self._ready[other], self._end[index])
            if self._waiting[other] == 0 and self._is_copy[other]:
                heappush(self._later[self._lanes[other]], (self._ready[other], self._needed[other], other))
