"""Collects the units of a region, with the main memory of storages, the buffers that hold them, and their copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, lcm, prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Transpose, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import dense_job_shapes
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.packing import MOST_FILLED
from byoc_hw.plan.array.permuting import permuting_copies, reordered_bytes
from byoc_hw.plan.array.spread import Spread
from byoc_hw.plan.array.storage import Argument, Join, Storage
from byoc_hw.plan.array.transfers import Transfer, linear_chunks, slabs, strided
from byoc_hw.plan.array.window import Extents, extents, row_bytes
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.steps import ARGUMENT, FLASH, FLASH_ALIGNMENT, SCRATCH, WEIGHTS, Address, Copy, Image, Job
from byoc_hw.plan.work.flash import FlashImage, WeightBlock
from byoc_hw.plan.work.ops import (
    Home,
    JobCost,
    LocalBuffer,
    Op,
    activations,
    copy_op,
    job_cost,
    job_op,
    weights_copy,
    weights_op,
)
from byoc_hw.plan.work.units import Busy, Unit
from byoc_hw.tensor import Pair, Tensor


class WorkBuilder:
    """Collects the units of a region.

    `held` are the buffers of storages that are in local memory in full, `loaded` the number of bytes of each that are
    there. `homes` are the places in main memory. Raises `PlanError` for choices of another region. More than `most`
    copies and jobs are a `PlanError` as well, and an engine that is busy for `below` cycles or more.
    """

    def __init__(self, mapped: MappedGraph, choices: Choices, most: float = inf, below: float = inf) -> None:
        self.mapping, self.storages, self.accelerator = mapped.mapping, mapped.storages, mapped.accelerator
        self.layers: tuple[Layer, ...] = mapped.mapping.layers
        self.packed = mapped.mapping.rows.layers
        self.choices = choices
        self.mapped, self._costs = mapped, mapped.shared(_job_costs)
        self._shapes: dict[tuple[int, Extents, Extents], tuple[Extents, Extents]] = {}
        accelerator = mapped.accelerator
        flash_alignment = lcm(FLASH_ALIGNMENT, accelerator.dma_alignment)
        self.flash = FlashImage(accelerator, flash_alignment, accelerator.buffer_alignment)
        self._loads: dict[WeightBlock, tuple[Copy, int]] = {}
        self.units: list[Unit] = []
        self._most, self._below, self._busy = most, below, Busy()
        self.held: dict[Storage, LocalBuffer] = {}
        self.loaded: dict[Storage, int] = {}
        grouped = sum(group.layers for group in choices.groups)
        if grouped != len(self.layers) or len(choices.blocks) != len(self.layers):
            counts = f"{grouped} and {len(choices.blocks)}"
            raise PlanError(f"{mapped.graph.name}: choices are for {len(self.layers)} layers: got {counts}")
        self.group_of = [number for number, group in enumerate(choices.groups) for _ in range(group.layers)]
        self.in_main = {one for one in self.storages.all if self._needs_main(one)}
        self.halos: list[Storage] = []
        self.homes = {one: home for one in self.storages.all if (home := self._home(one)) is not None}

    def add(self, unit: Unit) -> None:
        """Append a unit."""
        self.units.append(unit)
        if self._most < inf or self._below < inf:
            self._busy = self._busy.with_ops((*unit.loads, *unit.jobs, *unit.stores))
            self._busy.check(self.mapped.graph.name, self._most, self._below)

    # ------------------------------------------------------------ where things are

    def held_until(self, storage: Storage, group: int) -> int:
        """The last consecutive group, from this one on, that holds the storage; `group - 1` where this one does not."""
        groups = self.choices.groups
        while group < len(groups) and storage.index in groups[group].held:
            group += 1
        return group - 1

    def _needs_main(self, storage: Storage) -> bool:
        """Whether a storage that a layer writes goes to main memory."""
        if storage.maker is None:
            return bool(storage.parts)
        made = self.group_of[storage.makers[0]]
        kept = max(self.held_until(storage, made), made)
        if len(storage.makers) > 1 and kept < self.group_of[storage.last]:
            raise PlanError(f"{storage.name}: what several layers write is held in local memory to its last reader")
        return bool(storage.sinks or storage.lent) or any(self.group_of[reader] > kept for reader in storage.readers)

    def _home(self, storage: Storage) -> Home | None:
        if storage.source is not None:
            return argument_home(storage, storage.source)
        if storage.constant:
            return Home(storage, self.flash.constant(storage.tensor))
        if storage.sinks:
            return argument_home(storage, storage.sinks[0])
        return scratch_home(storage) if storage in self.in_main else None

    def targets(self, storage: Storage) -> list[Home]:
        """The places in main memory for a storage that a layer writes."""
        joined = [box_home(storage, join, self.homes[join.whole]) for join in storage.joins]
        joined += [self._spread(storage, there, spread) for there, spread in storage.spreads]
        joined += [replace(home, box=part.taken) for part in storage.exits for home in self._homes(part)]
        return self.own_targets(storage) + joined

    def own_targets(self, storage: Storage) -> list[Home]:
        """Those of its own: not where others are put together of it, or boxes of it lie."""
        return self._homes(storage) if storage in self.in_main else []

    def _homes(self, storage: Storage) -> list[Home]:
        """The places in main memory of a storage itself: one for each output that it is."""
        return [argument_home(storage, sink) for sink in storage.sinks] or [self.homes[storage]]

    def sources(self, storage: Storage) -> list[Home]:
        """The places in main memory that a storage is loaded from."""
        return [replace(self._source(part), box=box) for part, box in storage.gathered] or [self._source(storage)]

    def _source(self, storage: Storage) -> Home:
        """Where a storage, or the one that it is a slice of, lies in main memory."""
        if storage.view is not None:
            return box_home(storage, storage.view, self.homes[storage.view.whole])
        return self.homes[storage] if storage.filled is None else Home(storage, Address(FLASH))

    def _spread(self, part: Storage, whole: Storage, spread: Spread) -> Home:
        """The place of some channels of a part in the storage that has them in another order."""
        channels = spread.first, spread.stop
        return Home(whole, self.homes[whole].address, spread.strides, part, spread.offset, channels=channels)

    def halo_home(self, storage: Storage, nbytes: int) -> Home:
        """A place in main memory for bytes of a storage that are there from one stripe to the next."""
        name, number = f"{storage.name} halo", len(self.storages.all) + len(self.halos)
        halo = Storage(number, f"{storage.block} halo", Tensor(name, (nbytes,)), (1, 1, nbytes), False)
        self.halos.append(halo)
        self.homes[halo] = scratch_home(halo)
        return self.homes[halo]

    # ------------------------------------------------------------ copies

    def part(
        self, layer: int, home: Home, buffer: LocalBuffer, first: int, start: int, stop: int, inward: bool
    ) -> Iterator[Op]:
        """The copies of bytes `start` to `stop` of a storage; the buffer holds the storage from byte `first` on."""
        for move in moves(home, start, stop):
            there = move._replace(local=move.local - first) if first else move
            if home.storage.filled is not None:
                yield from self._filling(layer, home.storage, home.storage.filled, buffer, there)
            else:
                yield copy_op(layer, there, home, buffer, inward, self.accelerator)

    def _filling(self, layer: int, storage: Storage, value: int, buffer: LocalBuffer, move: Transfer) -> Iterator[Op]:
        """The copies that fill rows of a buffer with a value, of which flash has a short run."""
        for first, rows in linear_chunks(move.rows, max(1, MOST_FILLED // move.nbytes)):
            local = move.local + first * move.local_stride
            some = move._replace(main=0, local=local, rows=rows, main_stride=move.nbytes)
            yield self.fill(layer, storage, value, buffer, some)

    def fill(self, layer: int, storage: Storage, value: int, buffer: LocalBuffer, move: Transfer) -> Op:
        """The copy that fills rows of a buffer with a value, from a run of it in flash."""
        _, address = self.flash.filled(value, move.rows * move.nbytes)
        return copy_op(layer, move, Home(storage, address), buffer, True, self.accelerator)

    def weights(self, index: int, layer: Weighted, block: WeightBlock, room: int = 0) -> tuple[LocalBuffer, Op]:
        """A buffer for a block of weights, of at least `room` bytes, and the copy that fills it."""
        if block not in self._loads:
            self._loads[block] = weights_copy(*self.flash.block(block, layer), self.accelerator)
        step, cycles = self._loads[block]
        buffer = LocalBuffer(layer.name, WEIGHTS, max(step.nbytes, room))
        return buffer, weights_op(index, step, buffer, cycles)

    def job(self, index: int, layer: Layer, job: Job, local: Mapping[str, LocalBuffer]) -> Op:
        """A job of a layer; its addresses are relative to the buffers in `local`."""
        key = index, job.ifm_shape, job.ofm_shape, job.kernel
        if key not in self._costs:
            self._costs[key] = job_cost(layer, job, self.accelerator)
        return job_op(index, layer, job, local, self._costs[key])

    def dense_shapes(self, index: int, layer: Layer, ifm: Extents, ofm: Extents) -> tuple[Extents, Extents]:
        """The shapes of a job over dense pixels."""
        key = index, ifm, ofm
        if key not in self._shapes:
            self._shapes[key] = dense_job_shapes(layer, ifm, ofm, self.accelerator)
        return self._shapes[key]

    def params_at(self, channel: int) -> int:
        """The offset of a channel's parameters in a block with the parameters of the whole layer."""
        return PARAMS_BYTES * channel

    def image(self, layer: Layer, origin: Extents, shape: Extents) -> Image:
        """The position of a box of a layer's output in the tensor of the model."""
        height, width, channels = extents(layer.ofm)
        strides = width * channels, channels
        if self.storages.of[layer.ofm].swapped:
            strides = channels, height * channels
        return Image(origin[0] * strides[0] + origin[1] * strides[1] + origin[2], shape, strides)

    # ------------------------------------------------------------ copies only

    def transpose(self, index: int, layer: Transpose, group: int) -> None:
        """Append units that reorder a tensor from main memory to main memory, one for each of the group's stripes."""
        source, target = self.storages.of[layer.ifm], self.storages.of[layer.ofm]
        permutation = reordered_bytes(layer)
        targets, offset = self.targets(target), 0
        outer, *inner = permutation.shape
        stripe = ceil_div(outer, self.choices.groups[group].stripes) * prod(inner)
        for origin, shape in slabs(permutation.shape, min(self.whole_memory(), stripe)):
            copies = permuting_copies(permutation, shape, self.accelerator, len(targets))
            buffer, unit = activations(source.name, prod(shape)), Unit(group, False)
            for move in copies.loads.transfers(offset):
                unit.loads.append(copy_op(index, move, self.homes[source], buffer, True, self.accelerator))
            start = sum(place * stride for place, stride in zip(origin, permutation.output_strides, strict=True))
            for home in targets:
                for move in copies.stores.transfers(start):
                    unit.stores.append(copy_op(index, move, home, buffer, False, self.accelerator))
            self.add(unit)
            offset += prod(shape)

    def pass_through(self) -> None:
        """Append units for outputs that are an input or a constant."""
        limit = self.whole_memory()
        for storage in self.storages.all:
            there = storage.sinks[1:] if storage.parts else storage.sinks  # the first one was put together
            for sink in there if storage.maker is None and storage.taken is None else ():
                source, target = self.homes[storage], argument_home(storage, sink)
                if source.strides == target.strides:  # in the same order: any of them
                    source, target = Home(storage, source.address), Home(storage, target.address)
                else:
                    row = row_bytes(storage.tensor)
                    limit = max(limit // row, 1) * row
                for start, count in linear_chunks(storage.nbytes, limit):
                    buffer, stop = activations(storage.name, count), start + count
                    unit = Unit(len(self.choices.groups), False)
                    unit.loads += self.part(len(self.layers), source, buffer, start, start, stop, True)
                    unit.stores += self.part(len(self.layers), target, buffer, start, start, stop, False)
                    self.add(unit)

    def whole_memory(self) -> int:
        """The bytes of local activation memory, rounded down so that the next chunk stays aligned. `PlanError` without
        any."""
        nbytes = self.accelerator.whole_words(self.accelerator.activation_memory)
        if not nbytes:
            word, memory = self.accelerator.dma_alignment, self.accelerator.activation_memory
            raise PlanError(f"local activation memory has at least a word of the DMA, {word} bytes: got {memory}")
        return nbytes


JobShape = tuple[int, Extents, Extents, Pair]
"""The layer of a job by index, the extents of its input and of its output, and its kernel."""


def _job_costs(mapped: MappedGraph) -> dict[JobShape, JobCost]:
    """What is known of the jobs of a mapped region."""
    return {}


def argument_home(storage: Storage, argument: Argument) -> Home:
    """The place of a storage in an argument."""
    return Home(storage, Address(ARGUMENT + argument.index), argument.strides)


def box_home(part: Storage, box: Join, whole: Home) -> Home:
    """The place of a storage that is a box of another one, which lies at `whole`."""
    _, width, channels = box.whole.extents
    strides = whole.strides or (width * channels, channels, 1)
    row, pixel, channel = (step * stride for step, stride in zip(box.steps, strides, strict=True))
    offset = sum(place * stride for place, stride in zip(box.at, strides, strict=True))
    return Home(box.whole, whole.address, (row, pixel, channel), part, offset)


def scratch_home(storage: Storage) -> Home:
    """The place of a storage in scratch: its bytes as they lie in local memory, but for the room around packed rows."""
    _, width, channels = storage.extents
    strides = None if storage.packing is None else (width * channels, channels, 1)
    return Home(storage, Address(SCRATCH, 0, storage.block), strides)


def moves(home: Home, start: int, stop: int) -> Iterator[Transfer]:
    """The transfers of bytes `start` to `stop`: whole rows where the home has another order.

    Local offsets are relative to a buffer with all of the storage.
    """
    if home.box is not None:
        yield from _box(home, home.box, start, stop)
        return
    if home.strides is None:
        yield Transfer(start, start, stop - start)
        return
    _, width, channels = home.shape.extents
    place = home.shape.place(home.shape.tensor)
    first, last = place.rows(start, stop)
    channel, end = home.channels or (0, channels)
    counts, local = (last - first, width, end - channel), (place.row, channels, 1)
    for transfer in strided(counts, home.strides, local) if first < last else ():
        main = home.offset + transfer.main + first * home.strides[0]
        yield transfer._replace(main=main, local=transfer.local + place.offset + first * place.row + channel)


def _box(home: Home, join: Join, start: int, stop: int) -> Iterator[Transfer]:
    """The transfers of the rows of a box that lie in bytes `start` to `stop` of the storage that it is a box of."""
    height, width, channels = home.shape.extents
    place, (top, left, front), (down, along, _) = join.whole.place(join.whole.tensor), join.at, join.steps
    first, last = (min(max(ceil_div(row - top, down), 0), height) for row in place.rows(start, stop))
    strides = home.strides or (width * channels, channels, 1)
    local = place.offset + (top + first * down) * place.row + left * place.pixel + front
    apart = down * place.row, along * place.pixel, 1
    for move in strided((last - first, width, channels), strides, apart) if first < last else ():
        main = home.offset + move.main + first * strides[0]
        yield move._replace(main=main, local=move.local + local)
