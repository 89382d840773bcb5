"""Layers without jobs, from main memory to main memory: the copies that move their bytes by way of local memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Moving, Pad, Resize, Transpose
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.parcels import Parcel, Progression, Strides, parcels, progressions
from byoc_hw.plan.array.transfers import dense_strides, linear_chunks, slabs, strided
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.ops import Home, LocalBuffer, Op, activations, copy_op
from byoc_hw.plan.work.units import Unit
from byoc_hw.tensor import Tensor

_FILL = 1024
"""Bytes of a constant that fill local memory at once, from a quarter of them in flash."""

_MOST = 1 << 15
"""The most copies of one layer: far beyond what a plan may have, and quickly made."""


def moved(region: WorkBuilder, number: int, index: int, layer: Moving) -> None:
    """Append the units of a group that moves one layer's bytes. Raises `PlanError` where the DMA cannot."""
    if isinstance(layer, Transpose):
        region.transpose(index, layer, number)
        return
    run = _Moves(region, number, index, layer)
    if isinstance(layer, Resize):
        run.resize(layer)
    else:
        run.boxes()


class _Moves:
    def __init__(self, region: WorkBuilder, number: int, index: int, layer: Moving) -> None:
        self.region, self.number, self.index, self.layer = region, number, index, layer
        self.sources = [region.homes[region.storages.of[tensor]] for tensor in layer.inputs]
        self.targets = region.targets(region.storages.of[layer.ofm])
        self.limit = region.whole_memory()
        self.copies = 0

    def boxes(self) -> None:
        """Each box by itself: dense in local memory."""
        layer = self.layer
        inputs = [_strides(tensor, home) for tensor, home in zip(layer.inputs, self.sources, strict=True)]
        outputs = [_strides(layer.ofm, home) for home in self.targets]
        several = [list(parcels(layer, inputs, ofm)) for ofm in outputs]  # the same boxes for each target
        for same in zip(*several, strict=True):
            if same[0].source is not None:
                self._box(self.sources[same[0].source], same)
        if isinstance(layer, Pad):
            self._fill(layer, [[box for box in boxes if box.source is None] for boxes in several])

    def _box(self, source: Home, same: Sequence[Parcel]) -> None:
        box = same[0]
        counts, strides, *targets = _merged(box.counts, box.strides, *(one.target_strides for one in same))
        for origin, shape in slabs(counts, self.limit):
            unit = self._unit()
            local = dense_strides(shape)
            buffer = activations(source.storage.name, prod(shape))
            unit.loads += self._copies(source, buffer, shape, box.start + _at(origin, strides), strides, local, True)
            for home, one, steps in zip(self.targets, same, targets, strict=True):
                unit.stores += self._copies(home, buffer, shape, one.target + _at(origin, steps), steps, local, False)

    def _fill(self, layer: Pad, boxes: Sequence[Sequence[Parcel]]) -> None:
        """Fill boxes from a buffer of the constant."""
        total = max((prod(box.counts) for box in boxes[0]), default=0) if boxes else 0
        if not total:
            return
        region, alignment = self.region, self.region.accelerator.dma_alignment
        nbytes = min(ceil_div(total, alignment) * alignment, max(_FILL, alignment), self.limit)
        tensor, address = region.flash.filled(layer.value, max(_FILL // 4, alignment))
        buffer, unit = activations(layer.name, nbytes), self._unit()
        source = Home(region.storages.of[layer.ofm], address)
        for start, count in linear_chunks(nbytes, tensor.nbytes):
            unit.loads += self._copies(source, buffer, (count,), 0, (1,), (1,), True, start)
        for home, own in zip(self.targets, boxes, strict=True):
            for box in own:
                counts, strides = _merged(box.counts, box.target_strides)
                for origin, shape in slabs(counts, nbytes):
                    start = box.target + _at(origin, strides)
                    unit.stores += self._copies(home, buffer, shape, start, strides, dense_strides(shape), False)

    def resize(self, layer: Resize) -> None:
        """Columns are repeated as rows are loaded, and rows as they are stored."""
        _, height, _, channels = layer.ifm.shape
        width = len(layer.columns)
        ifm, outputs = _strides(layer.ifm, self.sources[0]), [_strides(layer.ofm, home) for home in self.targets]
        columns = progressions(layer.columns)
        row = width * channels
        if row > self.limit:
            raise PlanError(
                f"{layer.name}: a row of the output fits local memory: {row} bytes needed, {self.limit} there"
            )
        lines = progressions(layer.rows)
        for first, count in linear_chunks(height, self.limit // row):
            parts = [part for line in lines if (part := _within(line, first, count)) is not None]
            if not parts:
                continue
            unit, buffer = self._unit(), activations(layer.ifm.name, count * row)
            for column in columns:
                shape = count, column.count, channels
                start = first * ifm[1] + column.from_first * ifm[2]
                strides = ifm[1], column.from_step * ifm[2], ifm[3]
                local = row, column.step * channels, 1
                at = column.first * channels
                unit.loads += self._copies(self.sources[0], buffer, shape, start, strides, local, True, at)
            for home, ofm in zip(self.targets, outputs, strict=True):
                for part in parts:
                    shape, at = (part.count, width, channels), (part.from_first - first) * row
                    local, strides = (part.from_step * row, channels, 1), (part.step * ofm[1], ofm[2], ofm[3])
                    unit.stores += self._copies(home, buffer, shape, part.first * ofm[1], strides, local, False, at)

    def _unit(self) -> Unit:
        unit = Unit(self.number, False)
        self.region.add(unit)
        return unit

    def _copies(
        self,
        home: Home,
        buffer: LocalBuffer,
        shape: tuple[int, ...],
        start: int,
        strides: Strides,
        local: Strides,
        inward: bool,
        at: int = 0,
    ) -> Iterator[Op]:
        """The copies of a box: element `start` of main memory lies at byte `at` of the buffer. An element is a byte."""
        plain = Home(home.storage, home.address)
        for move in strided(shape, strides, local):
            self.copies += 1
            if self.copies > _MOST:
                raise PlanError(f"{self.layer.name}: at most {_MOST} copies are wanted: more are needed")
            move = move._replace(main=move.main + start + home.offset, local=move.local + at)
            yield copy_op(self.index, move, plain, buffer, inward, self.region.accelerator)


def _at(index: Sequence[int], strides: Strides) -> int:
    return sum(place * stride for place, stride in zip(index, strides, strict=True))


def _strides(tensor: Tensor, home: Home) -> Strides:
    """The strides of a tensor in main memory. Raises `PlanError` where it is a view of bytes in another order."""
    if home.strides is None:
        return dense_strides(tensor.shape)
    if len(tensor.shape) != 4 or tensor.shape[0] != 1 or extents(tensor) != home.shape.extents:
        raise PlanError(f"{tensor.name}: lies in another order in main memory: it cannot be read as {tensor.shape}")
    return (0, *home.strides)


def _merged(counts: tuple[int, ...], *strides: Strides) -> tuple[tuple[int, ...], ...]:
    """The counts and strides of a box with the fewest dimensions: neighbours that are one on every side are one."""
    kept: list[list[int]] = []  # count, and a stride for each side
    for dimension in zip(counts, *strides, strict=True):
        count = dimension[0]
        if count == 1:
            continue
        if kept and all(outer == count * inner for outer, inner in zip(kept[-1][1:], dimension[1:], strict=True)):
            kept[-1] = [kept[-1][0] * count, *dimension[1:]]
        else:
            kept.append(list(dimension))
    return tuple(zip(*(kept or [[1] * (1 + len(strides))]), strict=True))


def _within(line: Progression, first: int, count: int) -> Progression | None:
    """The part of a progression that reads some input rows, or None."""
    places = [at for at in range(line.count) if first <= line.from_first + at * line.from_step < first + count]
    if not places:
        return None
    return Progression(
        len(places),
        line.first + places[0] * line.step,
        line.step,
        line.from_first + places[0] * line.from_step,
        line.from_step,
    )
