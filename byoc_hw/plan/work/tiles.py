"""A single layer cut along every axis, from main memory to main memory: the fallback that every layer has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple, TypeVar

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import PSUM_BYTES, Product, Run, Window, parts_of_kernel
from byoc_hw.plan.array.packing import Packing, packs_tiles
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.tiling import Tiler, tile_geometry
from byoc_hw.plan.array.transfers import Box, linear_chunks, tile_transfers
from byoc_hw.plan.array.weight_blocks import part_bytes
from byoc_hw.plan.array.window import Extent, Extents, extents
from byoc_hw.plan.choices import Tiling
from byoc_hw.plan.steps import Image, Job
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.flash import WeightBlock
from byoc_hw.plan.work.ops import Home, LocalBuffer, Op, activations, copy_op, product_job, run_job
from byoc_hw.plan.work.row_room import zero_points
from byoc_hw.plan.work.units import Unit
from byoc_hw.tensor import Pair


class Tile(NamedTuple):
    """One job, or one for each part of the kernel: output rows and columns, output channels from `channel` on, input
    channels from `depth` on.

    `depth` counts from `first_input`, the first input channel of the group. `loaded` is the first input channel
    that is in local memory, and their number. `first` and `last` say whether it begins and ends the sums over input
    channels.
    """

    row: Extent
    column: Extent
    channel: int
    channels: int
    depth: int
    depths: int
    loaded: tuple[int, int]
    first: bool
    last: bool
    first_input: int = 0

    @property
    def ifm(self) -> Box:
        """The input box in local memory."""
        first, channels = self.loaded
        return Box(
            (self.row.ifm_start, self.column.ifm_start, first), (self.row.ifm_size, self.column.ifm_size, channels)
        )

    @property
    def ofm(self) -> Box:
        """The output box."""
        return Box((self.row.start, self.column.start, self.channel), (self.row.size, self.column.size, self.channels))


def tiles(window: Window, tiling: Tiling) -> Iterator[Tile]:
    """The tiles in order; slices of input channels innermost.

    Inner loops run forward and backward in turn, so that what the last tile has used is there for the next one. The
    last pass over inner tiles is forward: its first outputs are needed first.
    """
    pixels = [(row, column) for row in window.rows.cut(tiling.rows) for column in window.columns.cut(tiling.columns)]
    channels = window.channels(tiling.channels)
    order = (
        [(pixel, channel) for pixel, turn in _turns(pixels) for channel in channels[::turn]]
        if tiling.rows_outer
        else [(pixel, channel) for channel, turn in _turns(channels) for pixel in pixels[::turn]]
    )
    slices = list(linear_chunks(window.in_channels, tiling.depth))
    for ((row, column), channel), turn in _turns(order):
        start = window.first_input(channel[0]) if window.sums else 0
        depths = slices[::turn] if window.sums else [channel]
        for at, (depth, count) in enumerate(depths, 1):
            loaded = (start, window.in_channels) if tiling.whole_ifm and window.sums else (start + depth, count)
            yield Tile(row, column, *channel, depth, count, loaded, at == 1, at == len(depths), start)


_T = TypeVar("_T")


def _turns(outer: Sequence[_T]) -> Iterator[tuple[_T, int]]:
    """Each with the direction of the loop inside: the last one forward, the one before it backward, and so on."""
    for left, one in zip(range(len(outer) - 1, -1, -1), outer, strict=True):
        yield one, -1 if left % 2 else 1


def tiled(region: WorkBuilder, number: int, index: int, tiling: Tiling) -> None:
    """Append the units of a group with a tiling: one for each tile."""
    layer = region.layers[index]
    form = tile_geometry(layer)
    if isinstance(form, Run):
        _runs(region, number, index, layer, form, tiling)
        return
    if isinstance(form, Product):
        _products(region, number, index, layer, form, tiling)
        return
    if not isinstance(form, Window):
        raise PlanError(f"{layer.name}: a {layer.kind} layer has no tiles")
    unpackable = tiling.packed and not packs_tiles(layer, region.accelerator)
    if tiling.depth > form.in_channels or min(tiling.rows, tiling.columns) < 1 or unpackable:
        raise PlanError(f"{layer.name}: a tiling fits its layer: got {tiling}")
    run = _Tiles(region, number, index, layer, form, tiling)
    for tile in tiles(form, tiling):
        run.tile(tile)


class _Target(NamedTuple):
    """A place in main memory for the output of a layer: rows of a tensor with so many pixels and channels, from this
    row, pixel and channel on."""

    home: Home
    width: int
    channels: int
    at: tuple[int, int, int] = (0, 0, 0)

    def box(self, ofm: Box) -> Box:
        """A box of the output there."""
        row, column, channel = (place + first for place, first in zip(self.at, ofm.origin, strict=True))
        return Box((row, column, channel), ofm.extents)


class _Seen(NamedTuple):
    """What a job sees of the input of a tile: from its `first` pixel on, rows `pitch` pixels apart; padding."""

    first: int
    pitch: int
    extents: Pair
    padding: tuple[int, int, int, int]


class _Tiles:
    """Appends tile after tile, and loads only what the previous tile has not left in local memory."""

    def __init__(
        self, region: WorkBuilder, number: int, index: int, layer: Layer, window: Window, tiling: Tiling
    ) -> None:
        self.region, self.number, self.index = region, number, index
        self.layer, self.window = layer, window
        self.group = region.choices.groups[number]
        self.tiler = tiler = Tiler(layer, window, region.accelerator)
        self.packed = tiling.packed
        self.packing: Packing | None = None
        self.sliced, self.staying = tiler.sliced(tiling), tiler.staying(tiling)
        self.once = (
            self.sliced and isinstance(layer, Weighted) and tiler.params_together(layer, tiling) == layer.out_channels
        )
        # Blocks that stay have equal places, as any of them may be the next to be loaded over.
        self.place = tiler.block_bytes(tiling) if self.staying > 1 and not self.group.resident else 0
        self.parts = parts_of_kernel(layer, region.accelerator)
        self.axes = [
            (window.rows.part(one.row, one.height), window.columns.part(one.column, one.width)) for one in self.parts
        ]
        self.source = region.homes[region.storages.of[layer.ifm]]
        made = region.storages.of[layer.ofm]
        height, self.width, _ = made.extents
        self.in_line = window.rows.ofm != height  # all pixels are one row
        self.targets = list(self._targets(made))
        self.spreads = [(Home(there, region.homes[there].address), spread) for there, spread in made.spreads]
        self.ifm: tuple[tuple[Box, Packing | None], LocalBuffer] | None = None
        self.ofm = self.psum = activations(layer.name, 0)
        self.kept: dict[WeightBlock, LocalBuffer] = {}

    def tile(self, tile: Tile) -> None:
        """The unit of one tile."""
        region, layer = self.region, self.layer
        unit = Unit(self.number, self.group.overlap)
        self.packing = self.tiler.packing(tile.row, tile.column) if self.packed else None
        ifm, ofm = tile.ifm, tile.ofm
        ifm_buffer = self._load_ifm(ifm, unit)
        if tile.first:
            outputs = prod(self._outputs(tile))
            self.ofm = activations(layer.ofm.name, layer.ofm.bytes_of(outputs))
            self.psum = activations(layer.name, PSUM_BYTES * outputs)
        local = {"ifm": ifm_buffer, "ofm": self.ofm, "psum": self.psum, **self._load_weights(tile, unit)}
        for number in range(len(self.parts)):
            job = self._job(tile, number, ifm.extents, ofm)
            if job.first and job.last:
                del local["psum"]
            unit.jobs.append(region.job(self.index, layer, job, local))
        if tile.last:
            pitch = 0 if self.packing is None else self.packing.pitch
            for target in self.targets:
                for move in tile_transfers(target.box(ofm), target.width, target.channels, pitch):
                    unit.stores.append(copy_op(self.index, move, target.home, self.ofm, False, region.accelerator))
            for whole, spread in self.spreads:
                for move in spread.of_box(ofm, self.width, pitch, in_line=self.in_line):
                    unit.stores.append(copy_op(self.index, move, whole, self.ofm, False, region.accelerator))
        region.add(unit)

    def _targets(self, made: Storage) -> Iterator[_Target]:
        """Where the output is stored: as it is, and as rows of what is put together of it and others."""
        for home in self.region.own_targets(made):
            yield _Target(home, self.window.columns.ofm, self.window.out_channels)
        for join in made.joins:
            home, (row, _, channel) = Home(join.whole, self.region.homes[join.whole].address), join.at
            height, width, channels = join.whole.extents
            if self.in_line:
                yield _Target(home, height * width, channels, (0, row * width, channel))
            else:
                yield _Target(home, width, channels, (row, 0, channel))

    def _outputs(self, tile: Tile) -> Extents:
        """What the jobs of a tile compute: with packed rows a single one."""
        height, width, channels = tile.row.size, tile.column.size, tile.channels
        return (height, width, channels) if self.packing is None else (1, self.packing.pixels(height, width), channels)

    def _seen(self, tile: Tile, number: int) -> _Seen:
        """What the job over part `number` of the kernel sees."""
        rows, columns = self.axes[number]
        if self.packing is not None:
            part, pitch, outputs = self.parts[number], self.packing.pitch, self._outputs(tile)[1]
            first = part.row * rows.dilation * pitch + part.column * columns.dilation
            return _Seen(first, pitch, (rows.reach, outputs + columns.reach - 1), (0, 0, 0, 0))
        row, column, pitch = tile.row, tile.column, tile.column.ifm_size
        if len(self.parts) > 1:
            row, column = rows.extent(row.start, row.size), columns.extent(column.start, column.size)
        first = (row.ifm_start - tile.row.ifm_start) * pitch + column.ifm_start - tile.column.ifm_start
        padding = row.pad_before, column.pad_before, row.pad_after, column.pad_after
        return _Seen(first, pitch, (row.ifm_size, column.ifm_size), padding)

    def _job(self, tile: Tile, number: int, ifm: Extents, ofm: Box) -> Job:
        """The job over part `number` of the kernel, which reads a part of the tile's input."""
        layer, region, seen, image = self.layer, self.region, self._seen(tile, number), self._image(ofm)
        if self.packing is not None:
            image = image._replace(pitch=seen.pitch)
        ifm_pixel, ofm_pixel = layer.ifm.bytes_of(ifm[2]), layer.ofm.bytes_of(tile.channels)
        kernel, weights = (0, 0), 0
        if isinstance(layer, Weighted):
            depths = tile.depths if self.window.sums else 1
            kernel = self.parts[number].size
            before = (part_bytes(layer, one, tile.channels, depths) for one in self.parts[:number])
            weights = self.weights_at + sum(before)
        read = *seen.extents, tile.depths
        ifm_shape, ofm_shape = region.dense_shapes(self.index, layer, read, self._outputs(tile))
        return Job(
            ifm=seen.first * ifm_pixel + layer.ifm.bytes_of(tile.first_input + tile.depth - tile.loaded[0]),
            ofm=0,
            ifm_shape=ifm_shape,
            ofm_shape=ofm_shape,
            ifm_row=ifm_shape[1] * ifm_pixel if ifm_shape[0] == 1 else seen.pitch * ifm_pixel,
            ofm_row=ofm_shape[1] * ofm_pixel,
            ifm_pixel=ifm_pixel,
            ofm_pixel=ofm_pixel,
            weights=weights,
            params=region.params_at(tile.channel) if self.once else 0,
            padding=seen.padding,
            kernel=kernel,
            first=tile.first and number == 0,
            last=tile.last and number == len(self.parts) - 1,
            image=image,
        )

    def _image(self, box: Box) -> Image:
        """The place of a tile's output in the tensor of the model, whose rows a tile of pixels in a row may begin and
        end in."""
        _, width, _ = extents(self.layer.ofm)
        (_, start, channel), (_, pixels, channels) = box.origin, box.extents
        if not self.in_line:
            return self.region.image(self.layer, box.origin, box.extents)
        first, stop = start // width, ceil_div(start + pixels, width)
        image = self.region.image(self.layer, (first, 0, channel), (stop - first, width, channels))
        return image._replace(pitch=width, first=start - first * width)

    def _load_ifm(self, box: Box, unit: Unit) -> LocalBuffer:
        packing, key = self.packing, (box, self.packing)
        if self.ifm is not None and self.ifm[0] == key:
            return self.ifm[1]
        region, ifm, (height, width, channels) = self.region, self.layer.ifm, box.extents
        pixels = height * width if packing is None else packing.nbytes((height, width, 1))
        buffer = activations(ifm.name, ifm.bytes_of(pixels * channels))
        self.ifm = key, buffer
        at = (0, 0)
        if packing is not None:
            fills = packing.fills(box.extents, region.accelerator)
            unit.loads += zero_points(region, self.index, buffer, fills)
            at = packing.pitch, packing.head * channels
        for move in tile_transfers(box, self.window.columns.ifm, self.window.ifm_channels, *at):
            unit.loads.append(copy_op(self.index, move, self.source, buffer, True, region.accelerator))
        return buffer

    def _load_weights(self, tile: Tile, unit: Unit) -> dict[str, LocalBuffer]:
        self.weights_at = 0
        layer = self.layer
        if not isinstance(layer, Weighted):
            return {}
        depth, depths = (tile.depth, tile.depths) if self.window.sums else (0, 1)
        block = WeightBlock(self.index, tile.channel, tile.channels, depth, depths, not self.sliced)
        self.weights_at = self.region.flash.weights_at(block)
        behind, many = (0, layer.out_channels) if self.once else (tile.channel, tile.channels)
        params = WeightBlock(self.index, behind, many, 0, 0, True)
        needed = {"params": params, "weights": block} if self.sliced else {"weights": block}
        for key in needed.values():
            if key in self.kept:
                self.kept[key] = self.kept.pop(key)  # those used last are behind the others
                continue
            place = self.place if key is block else 0
            self.kept[key], load = self.region.weights(self.index, layer, key, place)
            unit.jobs.append(load)
        if not self.group.resident:
            blocks = [key for key in self.kept if key.depths]
            unused = [key for key in self.kept if not key.depths and key != params]
            for key in (*blocks[: -self.staying], *unused):
                del self.kept[key]
        found = {name: self.kept[key] for name, key in needed.items()}
        return {"params": found["weights"], **found}


def _runs(region: WorkBuilder, number: int, index: int, layer: Layer, form: Run, tiling: Tiling) -> None:
    """The tiles of an element-wise layer: runs of `columns` times `each` elements. An input that repeats stays."""
    runs, resident = layer.inputs, {}
    loads: list[Op] = []
    if form.repeats:
        runs, again = layer.inputs[:1], region.storages.of[layer.inputs[1]]
        resident[again] = activations(again.name, again.nbytes)
        loads += region.part(index, region.homes[again], resident[again], 0, 0, again.nbytes, True)
    inputs = tuple(dict.fromkeys(region.storages.of[tensor] for tensor in runs))
    for first, pixels in linear_chunks(layer.ofm.elements // form.each, tiling.columns):
        elements = pixels * form.each
        start, count = layer.ofm.bytes_of(first * form.each), layer.ofm.bytes_of(elements)
        unit = Unit(number, region.choices.groups[number].overlap, loads=loads)
        loads = []
        buffers = {storage: activations(storage.name, count) for storage in inputs}
        for storage, buffer in buffers.items():
            unit.loads += region.part(index, region.homes[storage], buffer, start, start, start + count, True)
        buffers |= resident
        ofm = activations(layer.ofm.name, count)
        operands = [(buffers[region.storages.of[tensor]], 0) for tensor in layer.inputs]
        image = Image(first * form.each, (1, 1, elements), (elements, elements))
        unit.jobs.append(run_job(index, layer, form, operands, (ofm, 0), elements, image, region.accelerator))
        for home in region.targets(region.storages.of[layer.ofm]):
            unit.stores += region.part(index, home, ofm, start, start, start + count, False)
        region.add(unit)


def _products(region: WorkBuilder, number: int, index: int, layer: Layer, form: Product, tiling: Tiling) -> None:
    """The tiles of a matrix product: item by item, whose second input stays, runs of rows."""
    one, other = (region.homes[region.storages.of[tensor]] for tensor in layer.inputs)
    for item in range(form.items):
        start = item * form.item_bytes
        resident = activations(layer.inputs[1].name, form.item_bytes)
        loads = list(region.part(index, other, resident, start, start, start + form.item_bytes, True))
        for offset, rows in linear_chunks(form.rows, tiling.rows):
            first = item * form.rows + offset
            unit = Unit(number, region.choices.groups[number].overlap, loads=loads)
            loads = []
            read, written = first * form.depth, first * form.channels
            ifm = activations(layer.ifm.name, rows * form.depth)
            ofm = activations(layer.ofm.name, rows * form.channels)
            unit.loads += region.part(index, one, ifm, read, read, read + ifm.nbytes, True)
            image = region.image(layer, (first, 0, 0), (rows, 1, form.channels))
            operands = [(ifm, 0), (resident, 0)]
            unit.jobs.append(product_job(index, layer, form, operands, (ofm, 0), rows, image, region.accelerator))
            for home in region.targets(region.storages.of[layer.ofm]):
                unit.stores += region.part(index, home, ofm, written, written, written + ofm.nbytes, False)
            region.add(unit)
