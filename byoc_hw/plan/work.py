"""What a region does, unit by unit, on buffers that have no place yet.

The choices say which layers take turns and what stays in local memory. A unit is one stripe of a
group or one tile of a layer: what to load, what to compute, what to store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import lcm, prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer, Transpose
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.flash import FlashImage, WeightBlock, Weighted
from byoc_hw.plan.mapping import Mapping
from byoc_hw.plan.ops import Buffer, Home, Op, activations, copy_op, weights_op
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, WEIGHTS, Address, Image
from byoc_hw.plan.storage import Argument, Storage, Storages
from byoc_hw.plan.tiling import alignment
from byoc_hw.plan.transfers import Transfer, canonical, linear_chunks, scatter, slabs, strided
from byoc_hw.plan.window import extents

FLASH_ALIGNMENT = 4
"""Parameters are read as 32-bit words."""


@dataclass
class Unit:
    """One stripe or tile of a group.

    With `overlap` it is loaded before the unit in front of it in the group is computed, and stored
    after the unit behind it is.
    """

    group: int
    overlap: bool
    loads: list[Op] = field(default_factory=list)
    jobs: list[Op] = field(default_factory=list)
    stores: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """All copies and jobs, in an order in which they could run one after the other.

    `homes` says where storages lie in main memory: in scratch at an offset from their own block.
    """

    ops: tuple[Op, ...]
    homes: dict[Storage, Home]
    alignment: int


def in_order(units: Sequence[Unit]) -> Iterator[Op]:
    """The work of all units where they overlap as they say; what is stored is not loaded before."""
    loaded = 0
    late: list[Op] = []
    for index, unit in enumerate(units):
        if index == loaded:
            if unit.group != units[index - 1].group or _touched(late) & _touched(unit.loads):
                yield from late
                late = []
            yield from unit.loads
            loaded += 1
        following = units[index + 1] if index + 1 < len(units) else None
        if (
            following is not None
            and following.overlap
            and following.group == unit.group
            and not _touched(following.loads) & (_touched(late) | _touched(unit.stores))
        ):
            yield from following.loads
            loaded += 1
        yield from unit.jobs
        yield from late
        late = unit.stores
        if not unit.overlap:
            yield from late
            late = []
    yield from late


def _touched(ops: Sequence[Op]) -> set[Storage]:
    """What copies touch in main memory."""
    return {access.place for op in ops for access in op.accesses if isinstance(access.place, Storage)}


class Region:
    """What the groups of a region share while they are turned into units."""

    def __init__(
        self,
        graph: Graph,
        mapping: Mapping,
        storages: Storages,
        choices: Choices,
        accelerator: Accelerator,
    ) -> None:
        self.mapping = mapping
        self.layers: tuple[Layer, ...] = mapping.layers
        self.storages, self.choices, self.accelerator = storages, choices, accelerator
        self.alignment = alignment(accelerator)
        self.flash = FlashImage(accelerator, lcm(FLASH_ALIGNMENT, accelerator.dma_alignment), self.alignment)
        self.units: list[Unit] = []
        self.held: dict[Storage, Buffer] = {}
        self.loaded: dict[Storage, int] = {}
        self.group_of = [number for number, group in enumerate(choices.groups) for _ in range(group.layers)]
        if len(self.group_of) != len(self.layers) or len(choices.blocks) != len(self.layers):
            counts = f"{len(self.group_of)} and {len(choices.blocks)}"
            raise PlanError(f"{graph.name}: choices are for {len(self.layers)} layers: got {counts}")
        self.in_main = {one for one in storages.all if self._needs_main(one)}
        self.homes = {one: home for one in storages.all if (home := self._home(one)) is not None}

    # ------------------------------------------------------------ where things are

    def held_until(self, storage: Storage, group: int) -> int:
        """The last of the groups in a row, from this one on, that have the storage whole; one less if it has not."""
        groups = self.choices.groups
        while group < len(groups) and storage.index in groups[group].whole:
            group += 1
        return group - 1

    def _needs_main(self, storage: Storage) -> bool:
        """Whether a storage that a layer makes goes to main memory."""
        if storage.maker is None:
            return False
        made = self.group_of[storage.maker]
        kept = max(self.held_until(storage, made), made)
        return bool(storage.sinks) or any(self.group_of[reader] > kept for reader in storage.readers)

    def _home(self, storage: Storage) -> Home | None:
        if storage.source is not None:
            return argument_home(storage, storage.source)
        if storage.constant:
            return Home(storage, self.flash.constant(storage.tensor))
        if storage.sinks:
            return argument_home(storage, storage.sinks[0])
        return Home(storage, Address(SCRATCH, 0, storage.block)) if storage in self.in_main else None

    def targets(self, storage: Storage) -> list[Home]:
        """Where a storage that a layer makes goes in main memory."""
        if storage not in self.in_main:
            return []
        return [argument_home(storage, sink) for sink in storage.sinks] or [self.homes[storage]]

    # ------------------------------------------------------------ copies

    def part(
        self, layer: int, home: Home, buffer: Buffer, first: int, start: int, stop: int, inward: bool
    ) -> Iterator[Op]:
        """The copies of bytes `start` to `stop` of a storage; the buffer holds the storage from byte `first` on."""
        for move in moves(home, start, stop):
            yield copy_op(layer, replace(move, local=move.local - first), home, buffer, inward, self.accelerator)

    def weights(self, index: int, layer: Weighted, block: WeightBlock) -> tuple[Buffer, Op]:
        """A buffer for a block of weights, and the copy that fills it."""
        source, nbytes = self.flash.block(block, layer)
        buffer = Buffer(layer.name, WEIGHTS, nbytes)
        return buffer, weights_op(index, source, buffer, self.accelerator)

    def params_at(self, channel: int) -> int:
        """Where a channel's parameters begin in a block that holds a whole layer's."""
        return PARAMS_BYTES * channel

    def image(self, layer: Layer, origin: tuple[int, int, int], shape: tuple[int, int, int]) -> Image:
        """Where a box of a layer's output lies in the tensor as the model has it."""
        height, width, channels = extents(layer.ofm)
        strides = width * channels, channels
        if self.storages.of[layer.ofm].swapped:
            strides = channels, height * channels
        return Image(origin[0] * strides[0] + origin[1] * strides[1] + origin[2], shape, strides)

    # ------------------------------------------------------------ copies only

    def transpose(self, index: int, layer: Transpose, group: int) -> None:
        """Units that reorder a tensor on its way from main memory to main memory."""
        source, target = self.storages.of[layer.ifm], self.storages.of[layer.ofm]
        permutation = canonical(layer.ifm.shape, layer.axes, layer.ifm.nbytes // layer.ifm.elements)
        offset = 0
        for origin, shape in slabs(permutation.shape, self._whole_memory()):
            nbytes = prod(shape)
            buffer = activations(source.name, nbytes)
            unit = Unit(group, False)
            load = Transfer(offset, 0, nbytes)
            unit.loads.append(copy_op(index, load, self.homes[source], buffer, True, self.accelerator))
            for home in self.targets(target):
                for move in scatter(permutation, origin, shape):
                    unit.stores.append(copy_op(index, move, home, buffer, False, self.accelerator))
            self.units.append(unit)
            offset += nbytes

    def pass_through(self) -> None:
        """Units for outputs that are an input, or a constant."""
        limit = self._whole_memory()
        for storage in self.storages.all:
            for sink in storage.sinks if storage.maker is None else ():
                source, target = self.homes[storage], argument_home(storage, sink)
                if source.strides == target.strides:  # in the same order: no matter which
                    source, target = Home(storage, source.address), Home(storage, target.address)
                else:
                    row = storage.extents[1] * storage.extents[2]
                    limit = max(limit // row, 1) * row
                for start, count in linear_chunks(storage.nbytes, limit):
                    buffer, stop = activations(storage.name, count), start + count
                    unit = Unit(len(self.choices.groups), False)
                    unit.loads += self.part(len(self.layers), source, buffer, start, start, stop, True)
                    unit.stores += self.part(len(self.layers), target, buffer, start, start, stop, False)
                    self.units.append(unit)

    def _whole_memory(self) -> int:
        """All of local activations, less what would leave the next chunk unaligned."""
        return self.accelerator.activation_memory // self.accelerator.dma_alignment * self.accelerator.dma_alignment


def argument_home(storage: Storage, argument: Argument) -> Home:
    """Where a storage lies in an argument."""
    return Home(storage, Address(ARGUMENT + argument.index), argument.strides)


def moves(home: Home, start: int, stop: int) -> Iterator[Transfer]:
    """The transfers of bytes `start` to `stop`, whole rows where the home has another order.

    Local offsets are as if all of the storage were there.
    """
    if home.strides is None:
        yield Transfer(start, start, stop - start)
        return
    _, width, channels = home.storage.extents
    row = width * channels
    first, last = start // row, -(-stop // row)
    counts, local = (last - first, width, channels), (row, channels, 1)
    for transfer in strided(counts, home.strides, local):
        yield replace(transfer, main=transfer.main + first * home.strides[0], local=transfer.local + first * row)
