"""Writes parts that are laid out as a chip plan: the steps of each lane, their events, and the region's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm

from byoc_hw.graph import Graph
from byoc_hw.integers import round_up
from byoc_hw.plan.chip_plan import ChipPlan, Part
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.joint import JointWork, OrderedParts, PlacedPart, handed_over
from byoc_hw.plan.lanes.oriented import OrientedPart
from byoc_hw.plan.lanes.reach import Reach
from byoc_hw.plan.lanes.sync import Sync, synchronized
from byoc_hw.plan.library_layer import library_layer
from byoc_hw.plan.order.calls import calls_of
from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.order.memory_map import local_map
from byoc_hw.plan.order.waits import Owned, with_slots, with_waits, with_waits_for_room
from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.region_memory import Lifetime, RegionMemory
from byoc_hw.plan.steps import (
    ARGUMENT,
    FLASH,
    FLASH_ALIGNMENT,
    SCRATCH,
    Address,
    Await,
    Copy,
    EngineAwait,
    EngineSignal,
    RegionPlan,
    Signal,
    Started,
    Step,
    Turn,
    WholeLayer,
)
from byoc_hw.plan.work.ops import LocalBuffer, Op
from byoc_hw.program import ALIGNMENT
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor


def chip_plan(region: Region, chip: Soc, ordered: OrderedParts, *, values: bool = True) -> ChipPlan:
    """The plan of parts; without `values` its constants are zeros, and the calls of libraries are not prepared: quick,
    to learn its cycles and sizes."""
    graph = region.graph
    parts, work, order = ordered.parts, ordered.work, ordered.order
    assert read_when_made([one.part for one in parts]), "the order of the parts is a possible one"
    assert shares_make_all([one.part for one in parts]), "parts make all of what others read in full"
    memory = _Memory(region, chip, ordered)
    sync = synchronized(work, order, chip)
    events = _Events(work, order, sync)
    lanes = sorted(set(work.lanes))
    written = [_Lane(graph, chip, lane, parts, work, order, memory, events, sync).part(values=values) for lane in lanes]
    lifetimes = memory.lifetimes(work, order)
    arena = place(blocks_from_lifetimes(lifetimes.scratch, lifetimes.alignment), largest_sum(lifetimes.scratch))
    plan = ChipPlan(
        graph,
        chip,
        tuple(written),
        len(events.number),
        arena.offsets,
        0,
        order.cycles,
        handed_over=handed_over(parts),
        memory=lifetimes,
    )
    return plan.placed(arena.offsets)


def read_when_made(parts: Sequence[OrientedPart]) -> bool:
    """Whether every tensor that parts share is whole before the first of them reads it."""
    last = {tensor: at for at, part in enumerate(parts) for tensor in part.makes}
    return all(last.get(tensor, -1) < at for at, part in enumerate(parts) for tensor in part.reads)


def shares_make_all(parts: Sequence[OrientedPart]) -> bool:
    """Whether the shares of what a part reads in full, and of what no part reads, are all of it."""
    made, read = Counter[Tensor](), set[Tensor]()
    for part in parts:
        graph = part.mapped.graph
        for at, (tensor, _) in enumerate(part.arguments):
            share = (*graph.inputs, *graph.outputs)[at]
            if at >= len(graph.inputs):
                made[tensor] += share.nbytes
            elif share.nbytes == tensor.nbytes:
                read.add(tensor)
    needed = read | (made.keys() - {tensor for part in parts for tensor in part.reads})
    return all(made[tensor] >= tensor.nbytes for tensor in needed if tensor in made)


class _Events:
    """The operations that the core waits for in another lane, numbered, and for each operation those of other lanes
    that it waits for before."""

    def __init__(self, work: JointWork, order: Order, sync: Sync) -> None:
        place = {index: at for at, index in enumerate(order.jobs)}
        self.awaited: list[list[int]] = []
        for op, (before, lane) in enumerate(zip(work.before, work.lanes, strict=True)):
            waits = sync.ops[op].waits if op in sync.ops else before
            others = {other for other in waits if work.lanes[other] != lane}
            last: dict[int, int] = {}  # of the jobs of each lane: with it those before it have ended
            for job in sorted(others & place.keys(), key=place.__getitem__):
                last[work.lanes[job]] = job
            self.awaited.append(sorted((others - place.keys()) | {*last.values()}))
        self.number = {op: number for number, op in enumerate(sorted({one for some in self.awaited for one in some}))}


def _in_flash(parts: Sequence[PlacedPart], chip: Soc, lane: int) -> tuple[dict[int, int], int]:
    """Where the constants of each part of a lane begin, and the bytes of all."""
    alignment = lcm(FLASH_ALIGNMENT, chip.accelerators[lane].dma_alignment)
    places: dict[int, int] = {}
    nbytes = 0
    for at, part in enumerate(parts):
        if part.lane == lane:
            places[at] = nbytes
            nbytes = round_up(nbytes + part.layout.flash.nbytes, alignment)
    return places, nbytes


def alignment_in_main_memory(chip: Soc) -> int:
    """The bytes of which blocks in main memory start at a multiple."""
    library = any(one.library is not None for one in chip.accelerators)
    return lcm(ALIGNMENT if library else FLASH_ALIGNMENT, chip.dma_alignment)


def main_memory(region: Region, chip: Soc, ordered: OrderedParts) -> tuple[RegionMemory, dict[str, list[Tensor]]]:
    """The main memory that parts of a region use, and by name the tensors in each block between them."""
    memory = _Memory(region, chip, ordered)
    return memory.lifetimes(ordered.work, ordered.order), memory.between()


class _Memory:
    """Where parts find what they share: arguments of the region, and blocks of its scratch."""

    def __init__(self, region: Region, chip: Soc, ordered: OrderedParts) -> None:
        graph, self.arguments = region.graph, region.arguments
        self._graph, self._parts, parts = graph, ordered.parts, ordered.parts
        self._word = chip.dma_alignment
        self._alignment = alignment_in_main_memory(chip)
        in_ram = (lane for lane, one in enumerate(chip.accelerators) if not one.dma_reads_flash)
        self._constants = sum(_in_flash(parts, chip, lane)[1] for lane in in_ram)
        self._place = {tensor: ARGUMENT + index for index, tensor in reversed(list(enumerate(self.arguments)))}
        self.blocks: dict[str, int] = {}  # bytes by name
        self._shared: dict[Tensor, Address] = {}
        names: dict[Tensor, str] = {}
        for tensor in dict.fromkeys(tensor for part in parts for tensor, _ in part.part.arguments):
            if tensor not in self._place:
                block, offset = ordered.blocks.get(tensor, (tensor, 0))
                name = names.setdefault(block, f"{graph.name}: {len(self._shared):05} between {tensor.name}")
                self._shared[tensor] = Address(SCRATCH, offset, name)
                self.blocks[name] = max(self.blocks.get(name, 0), offset + round_up(tensor.nbytes, self._word))
        for part in parts:
            for home in part.layout.work.homes.values():
                if home.address.space == SCRATCH:
                    assert home.address.block is not None
                    self.blocks[home.address.block] = round_up(home.storage.nbytes, self._word)

    def of_argument(self, part: PlacedPart, index: int) -> Address:
        """Where an argument of a part's graph lies."""
        tensor, start = part.part.arguments[index]
        if tensor in self._place:
            return Address(self._place[tensor], start)
        return self._shared[tensor] + start

    def between(self) -> dict[str, list[Tensor]]:
        """The tensors in each block that parts share, by name."""
        found: dict[str, list[Tensor]] = {}
        for tensor, address in self._shared.items():
            assert address.block is not None
            found.setdefault(address.block, []).append(tensor)
        return found

    def lifetimes(self, work: JointWork, order: Order) -> RegionMemory:
        """The main memory of the region, in moments of parts. What another lane may still touch is still live."""
        reach = Reach(work, order)
        touching: dict[str | int, list[int]] = {}
        first: dict[str | int, int] = {}
        for number, (op, index) in enumerate(zip(work.ops, work.parts, strict=True)):
            for key in self._touched(self._parts[index], op):
                touching.setdefault(key, []).append(number)
                first.setdefault(key, index)
        copies = sorted({op for some in touching.values() for op in some})
        last = {key: self._last(reach, touched, copies, work.parts) for key, touched in touching.items()}
        blocks = (
            Lifetime(name, nbytes, first[name], last[name], self._graph.name)
            for name, nbytes in self.blocks.items()
            if name in touching
        )
        spans = [
            (first[index], last[index]) if (index := self._place[tensor]) in touching else None
            for tensor in self.arguments
        ]
        names = [part.layout.mapped.graph.name for part in self._parts]
        moments = *names, "the end"
        return RegionMemory(
            moments, tuple(blocks), tuple(spans), self._alignment, {}, self._word, constants=self._constants
        )

    def _touched(self, part: PlacedPart, op: Op) -> Iterator[str | int]:
        for address in _addresses(op.step):
            if address.space >= ARGUMENT:
                found = self.of_argument(part, address.space - ARGUMENT)
                yield found.space if found.block is None else found.block
            elif address.block is not None:
                yield address.block

    @staticmethod
    def _last(reach: Reach, touched: Sequence[int], copies: Sequence[int], of_part: Sequence[int]) -> int:
        """The last part with a copy that may run before all of these have ended."""
        return max(of_part[copy] for copy in copies if not reach.ended(touched, copy))


class _Lane:
    """The steps of one lane."""

    def __init__(
        self,
        graph: Graph,
        chip: Soc,
        lane: int,
        parts: Sequence[PlacedPart],
        work: JointWork,
        order: Order,
        memory: _Memory,
        events: _Events,
        sync: Sync,
    ) -> None:
        self._graph, self._chip, self._lane = graph, chip, lane
        self._parts, self._work, self._order = parts, work, order
        self._memory, self._events, self._sync = memory, events, sync
        self._mine = [index for index, other in enumerate(work.lanes) if other == lane]
        own = [at for at, part in enumerate(parts) if part.lane == lane]
        self._first: dict[int, int] = {}  # of each part, the number of its first layer in the lane
        self._layers = 0
        for at in own:
            self._first[at] = self._layers
            self._layers += len(parts[at].layout.mapped.mapping.layers)
        self._flash, self._flash_bytes = _in_flash(parts, chip, lane)
        self._spaces: dict[Address, int] = {}

    def part(self, *, values: bool) -> Part:
        """The lane as one part of the chip plan, with the values of its constants or zeros."""
        own = [self._parts[at] for at in self._first]
        name = f"{self._graph.name}_{self._chip.accelerators[self._lane].name}"
        indices = tuple(index for part in own for index in part.part.cut.layers)
        ops = [self._relocated(index) for index in self._mine]
        offsets: dict[LocalBuffer, int] = {}
        for at in self._first:
            offsets |= self._parts[at].layout.places
        steps = tuple(self._steps(ops, offsets))
        of_layers, tail = calls_of(steps, self._layers)
        plan = RegionPlan(
            graph=_lane_graph([part.layout.mapped.graph for part in own], name),
            layers=tuple(layer for part in own for layer in part.layout.mapped.mapping.layers),
            calls=of_layers,
            flash=self._constants(own) if values else bytes(self._flash_bytes),
            scratch_bytes=0,
            tensors={},
            tail=tail,
            local=tuple(local_map(ops, offsets, steps)),
        )
        boxes = tuple(box for part in own for box in part.part.boxes)
        library = self._chip.accelerators[self._lane].library
        calls = None if library is None or not values else library.calls
        prepared = () if calls is None else tuple(library_layer(layer, calls) for layer in plan.layers)
        return Part(self._lane, plan, indices, boxes, tuple(self._spaces), prepared=prepared)

    def _constants(self, own: Sequence[PlacedPart]) -> bytes:
        image = bytearray(self._flash_bytes)
        for part, start in zip(own, self._flash.values(), strict=True):
            data = part.layout.flash.contents(part.layout.mapped.mapping.layers)
            image[start : start + len(data)] = data
        return bytes(image)

    def _steps(self, ops: Sequence[Op], offsets: Mapping[LocalBuffer, int]) -> Iterator[Owned]:
        """The steps with their waits, and with events: each operation after those of other lanes that it waits for."""
        known = {(lane, is_job): -1 for lane in self._work.lanes for is_job in (False, True)}
        engines = self._order.copies, self._order.jobs
        place = {index: at for engine in engines for at, index in enumerate(engine)}
        for owned in self._with_waits(ops, offsets):
            index = None if owned.op is None else self._mine[owned.op]
            synced = None if index is None else self._sync.ops.get(index)
            if index in self._sync.turns:
                yield Owned(Turn(), owned.layer)
            for other in [] if index is None else self._awaited(index, place):
                engine = self._engine(other)
                if place[other] > known[engine]:  # those before it have ended, too
                    known[engine] = place[other]
                    yield Owned(Await(self._events.number[other], engine[0]), owned.layer)
            job = not isinstance(owned.step, Copy)
            for event, value in () if synced is None else synced.awaits:
                yield Owned(EngineAwait(event, value, job), owned.layer)
            yield owned
            if index in self._events.number:
                assert isinstance(owned.step, Started)
                yield Owned(Signal(self._events.number[index], owned.step.slot, job), owned.layer)
            if synced is not None and synced.signal is not None:
                yield Owned(EngineSignal(synced.signal, job), owned.layer)

    def _with_waits(self, ops: Sequence[Op], offsets: Mapping[LocalBuffer, int]) -> Sequence[Owned]:
        """The starts, with the core's waits for operations of this lane."""
        order, queue = self._own_order(), self._chip.accelerators[self._lane].queue
        if self._lane not in self._sync.lanes:
            alone = len(self._mine) == len(self._work.ops)  # nobody is held back where its queue is full
            return (with_waits if alone else with_waits_for_room)(ops, offsets, order, queue)
        at = {index: number for number, index in enumerate(self._mine)}
        is_job = [op.is_job for op in self._work.ops]
        waits = self._sync.waits(self._lane, is_job, queue)
        sequence = [(at[op], user if user is None or user < 0 else at[user]) for op, user in waits]
        return tuple(with_slots(sequence, ops, offsets, order))

    def _awaited(self, index: int, place: Mapping[int, int]) -> list[int]:
        """Of each engine of another lane, the last operation that an operation waits for."""
        last: dict[tuple[int, bool], int] = {}
        for other in self._events.awaited[index]:
            engine = self._engine(other)
            if engine not in last or place[other] > place[last[engine]]:
                last[engine] = other
        return [last[engine] for engine in sorted(last)]

    def _engine(self, op: int) -> tuple[int, bool]:
        """The lane of an operation, and whether the array does it."""
        return self._work.lanes[op], self._work.ops[op].is_job

    def _own_order(self) -> Order:
        """The order of this lane by itself, at the times of the joint order."""
        at = {index: number for number, index in enumerate(self._mine)}
        found = self._order
        return Order(
            [{at[other] for other in found.before[index] if other in at} for index in self._mine],
            [at[index] for index in found.copies if index in at],
            [at[index] for index in found.jobs if index in at],
            *([times[index] for index in self._mine] for times in (found.start, found.end, found.ready)),
        )

    def _relocated(self, index: int) -> Op:
        """An operation as one of the lane: its layer, and its addresses in main memory and flash."""
        op, at = self._work.ops[index], self._work.parts[index]
        part = self._parts[at]
        inside = op.layer < len(part.part.cut.layers)
        layer = self._first[at] + op.layer if inside else self._layers
        step = op.step
        if isinstance(step, Copy):
            step = step._replace(
                target=self._address(part, at, step.target),
                source=self._address(part, at, step.source),
            )
        elif isinstance(step, WholeLayer):
            step = step._replace(
                inputs=tuple(one and self._address(part, at, one) for one in step.inputs),
                output=self._address(part, at, step.output),
                workspace=step.workspace and self._address(part, at, step.workspace),
            )
        return replace(op, step=step, layer=layer)

    def _address(self, part: PlacedPart, at: int, address: Address) -> Address:
        if address.space == FLASH:
            return address + self._flash[at]
        if address.space == SCRATCH:
            there = Address(SCRATCH, 0, address.block)
        elif address.space >= ARGUMENT:
            there = self._memory.of_argument(part, address.space - ARGUMENT)
        else:
            return address
        start, there = there.offset, there._replace(offset=0)
        return Address(ARGUMENT + self._spaces.setdefault(there, len(self._spaces)), start + address.offset)


def _addresses(step: Step) -> tuple[Address, ...]:
    """Where a step reads and writes."""
    if isinstance(step, Copy):
        return step.source, step.target
    return step.addresses if isinstance(step, WholeLayer) else ()


def _lane_graph(parts: Sequence[Graph], name: str) -> Graph:
    """The layers of a lane, with all that they read from others and give to others."""
    layers = tuple(layer for part in parts for layer in part.layers)
    made = {layer.ofm for layer in layers}
    read = (tensor for part in parts for tensor in part.inputs if tensor not in made)
    outputs = (tensor for part in parts for tensor in part.outputs)
    return Graph(name, tuple(dict.fromkeys(read)), tuple(dict.fromkeys(outputs)), layers)
