"""The work of all parts together: what depends on what, and the order of each engine.

Jobs keep the order of the parts. Lanes depend on each other through main memory, where copies touch the same bytes, and
through local memory that they share. `engine_schedule.py` has the times.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.lanes.engine_schedule import EngineActions, EngineSchedule
from byoc_hw.plan.lanes.oriented import OrientedPart
from byoc_hw.plan.order.copies import Order, needed_first
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, WEIGHTS, Address, Copy, Started
from byoc_hw.plan.work.ops import Access, Home, LocalBuffer, Op, SharedMemory
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

PartAccesses = list[Sequence[Access]]
"""The accesses of each operation of a part in memories that all parts share."""


class InBlock(NamedTuple):
    """Where a tensor of the region lies in main memory: in the block of a tensor, from byte `offset` on."""

    block: Tensor
    offset: int


PlacesInBlocks = Mapping[Tensor, InBlock]
"""Where tensors lie that share a block with others; each of the others has its own."""

OWN_BLOCKS: PlacesInBlocks = {}
"""Each tensor has its own."""


@dataclass(frozen=True)
class JointWork:
    """The operations of all parts, part by part, with the part and the lane of each, and those that it waits for;
    `touched` is what each part touches."""

    ops: tuple[Op, ...]
    parts: tuple[int, ...]
    lanes: tuple[int, ...]
    before: list[set[int]]
    touched: list[PartAccesses]


@dataclass(frozen=True)
class PlacedPart:
    """A part of a region that is laid out, with `pieces` so that its inputs are loaded in pieces."""

    part: OrientedPart
    layout: Layout
    pieces: bool = False

    @property
    def lane(self) -> int:
        """The index of its accelerator."""
        return self.part.cut.lane

    def has_a_share_of(self, chip: Soc) -> bool:
        """Whether it is laid out for a share of its accelerator's activation memory."""
        return self.layout.mapped.accelerator.activation_memory < chip.accelerators[self.lane].activation_memory

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
    """The buffers, by name, that several parts have in common: tensors that stay in local memory. Those to which some
    of a tensor is loaded as well are not among them."""
    count = Counter(buffer for part in parts for buffer in part.layout.places)
    loaded = {
        op.local["target"]
        for part in parts
        for op in part.layout.work.ops
        if isinstance(op.step, Copy) and op.step.inward and [*touched_arguments(part, op)]
    }
    return tuple(dict.fromkeys(one.name for one, many in count.items() if many > 1 and one not in loaded))


def touched_arguments(part: PlacedPart, op: Op) -> Iterator[int]:
    """The arguments of a part that a copy or a call touches."""
    return (argument for argument, _ in accesses_of_arguments(part, op))


def accesses_of_arguments(part: PlacedPart, op: Op) -> Iterator[tuple[int, Access]]:
    """The same with the bytes of each."""
    for access in op.accesses:
        if not isinstance(access.place, LocalBuffer):
            space = main_address(op, access, part.layout.work.homes).space
            if space >= ARGUMENT:
                yield space - ARGUMENT, access


def joint_work(
    parts: Sequence[PlacedPart], chip: Soc, known: OrderedParts | None = None, blocks: PlacesInBlocks = OWN_BLOCKS
) -> JointWork:
    """The work of parts, each on its lane, with tensors in `blocks`. The order of the parts is a possible one. The
    parts `known` are of the same layers, in the same blocks."""
    slabs, memory = _slabs(parts), [chip.memory_of(lane) for lane in range(len(chip.accelerators))]
    touched: list[PartAccesses] = []
    for at, part in enumerate(parts):
        if known is not None and known.parts[at] is part:
            touched.append(known.work.touched[at])
        else:
            found = (_shared(op, part, slabs, blocks, memory[part.lane]) for op in part.layout.work.ops)
            touched.append([tuple(some) for some in found])
    ops = tuple(op for part in parts for op in part.layout.work.ops)
    of_ops = tuple(at for at, part in enumerate(parts) for _ in part.layout.work.ops)
    lanes = tuple(parts[at].lane for at in of_ops)
    accesses = [some for each in touched for some in each]
    return JointWork(ops, of_ops, lanes, dependencies(ops, {}, lanes, accesses), touched)


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


def _shared(
    op: Op, part: PlacedPart, slabs: Mapping[Tensor, tuple[int, ...]], blocks: PlacesInBlocks, memory: int
) -> Iterator[Access]:
    """The accesses in memories that all parts share: local memories, that for activations with a number, and tensors in
    main memory, or the blocks that they lie in."""
    for access in op.accesses:
        place = access.place
        if isinstance(place, LocalBuffer):
            base = part.layout.places[place]
            local = SharedMemory(place.space, memory if place.space == ACTIVATIONS else part.lane)
            yield Access(local, base + access.start, base + access.stop, access.writes)
            continue
        argument = main_address(op, access, part.layout.work.homes).space - ARGUMENT
        if argument < 0:
            yield access
            continue
        whole, start = part.part.arguments[argument]
        cuts = None if whole in blocks else slabs.get(whole)
        block, offset = blocks.get(whole, (whole, 0))
        yield from _pieces(op.step, access, block, offset + start + access.start, cuts)


def main_address(op: Op, access: Access, homes: Mapping[Storage, Home]) -> Address:
    """Where what an operation accesses lies in main memory: an argument that is handed over, or a storage. Of a copy
    this is its end there."""
    if isinstance(access.place, Address):
        return access.place
    assert isinstance(access.place, Storage), "jobs touch no main memory"
    return op.step.main if isinstance(op.step, Copy) else homes[access.place].address


def main_rows(step: Started | None, nbytes: int) -> tuple[int, int, int]:
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
        runs = [
            (first // pixel, ceil_div(first + nbytes, pixel), *_channels(first % pixel, nbytes, pixel))
            for first in rows
        ]
    for first, last, low, high in runs:
        for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
            if begin < high and low < end:
                yield Access(SharedMemory(whole, number), first, last, access.writes)


def _channels(first: int, nbytes: int, pixel: int) -> tuple[int, int]:
    """The bytes of a pixel that so many bytes from one on touch: all of it where they go on in the next one."""
    return (first, first + nbytes) if first + nbytes <= pixel else (0, pixel)


def joint_order(work: JointWork) -> Order:
    """The order of all engines, by time; in `copies` and `jobs` those of all lanes, each lane's in its order."""
    actions = _actions_of(work)
    return _order(work, actions, EngineSchedule(actions))


_PASSES = 8
_IN_VAIN = 3
"""The most orders with patient DMAs that are tried, and how many of them in a row save nothing before that ends."""


def patient_order(work: JointWork) -> Order:
    """The order of the fewest cycles: that of `joint_order`, or one with patient DMAs, each with the times of the one
    before."""
    actions = _actions_of(work)
    best = found = EngineSchedule(actions)
    since = 0
    for _ in range(_PASSES):
        ready = found.ready
        found = EngineSchedule(actions, expected=ready)
        best, since = (found, 0) if found.total < best.total else (best, since + 1)
        if found.ready == ready or since == _IN_VAIN:
            break
    return _order(work, actions, best)


@dataclass(frozen=True)
class OrderedParts:
    """Parts that have addresses, in a possible order, with their work and the order of its operations; `uncut` are the
    parts before some of their operations were cut, if any were, and `blocks` those that tensors share."""

    parts: list[PlacedPart]
    work: JointWork
    order: Order
    uncut: Sequence[PlacedPart] = ()
    blocks: PlacesInBlocks = field(default_factory=dict)


def ordered_parts(parts: Sequence[PlacedPart], chip: Soc, known: OrderedParts | None = None) -> OrderedParts:
    """Parts with the order of the fewest cycles. The parts `known` are of the same layers."""
    work = joint_work(parts, chip, known)
    return OrderedParts(list(parts), work, patient_order(work))


def on_chip(found: OrderedParts, chip: Soc, lanes: Sequence[int]) -> OrderedParts:
    """Parts that were found for some accelerators of a chip, as if it had no other ones, on the whole chip."""
    if len(lanes) == len(chip.accelerators):
        return found
    parts, uncut = ([part.on(lanes[part.lane]) for part in some] for some in (found.parts, found.uncut))
    return replace(ordered_parts(parts, chip), uncut=uncut)


def in_blocks(found: OrderedParts, chip: Soc, blocks: PlacesInBlocks) -> OrderedParts:
    """The same parts with tensors that share blocks of main memory."""
    work = joint_work(found.parts, chip, blocks=blocks)
    return replace(found, work=work, order=patient_order(work), blocks=blocks)


def in_shares(found: OrderedParts, chip: Soc) -> OrderedParts:
    """Parts with addresses in memories of their own, as they lie in the shares of the chip's shared memories."""

    def shifted(part: PlacedPart) -> PlacedPart:
        start, _ = chip.share_of(part.lane)
        places = {one: at + start * (one.space == ACTIVATIONS) for one, at in part.layout.places.items()}
        return replace(part, layout=replace(part.layout, places=places))

    parts, uncut = list(map(shifted, found.parts)), tuple(map(shifted, found.uncut))
    return OrderedParts(parts, joint_work(parts, chip), found.order, uncut)


def _actions_of(work: JointWork) -> EngineActions:
    after: list[list[int]] = [[] for _ in work.ops]
    for index, others in enumerate(work.before):
        for other in others:
            after[other].append(index - other)
    jobs: list[list[int]] = [[] for _ in range(max(work.lanes, default=-1) + 1)]
    for index, (op, lane) in enumerate(zip(work.ops, work.lanes, strict=True)):
        if op.is_job:
            jobs[lane].append(index)
    engine = [2 * lane + (not op.is_job) for op, lane in zip(work.ops, work.lanes, strict=True)]
    loads = [0] * (2 * len(jobs))
    for op, on in zip(work.ops, engine, strict=True):
        loads[on] += op.cycles
    return EngineActions(
        cycles=[op.cycles for op in work.ops],
        engine=engine,
        waits=[len(others) for others in work.before],
        after=[tuple(some) for some in after],
        needed=[at - index for index, at in enumerate(needed_first(work.ops, work.before))],
        jobs=jobs,
        first=[index for index, others in enumerate(work.before) if not others and engine[index] & 1],
        loads=loads,
    )


def _order(work: JointWork, actions: EngineActions, found: EngineSchedule) -> Order:
    assert len(found.begun) == len(work.ops), "the order of the parts is a possible one"
    copies, jobs = ([index for index in found.begun if actions.engine[index] & 1 == kind] for kind in (1, 0))
    start = [end - cycles for end, cycles in zip(found.end, actions.cycles, strict=True)]
    return Order(work.before, copies, jobs, start, found.end, found.ready)
