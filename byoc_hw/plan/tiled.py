"""One layer by itself, cut along every axis, from main memory to main memory: what always fits, if anything does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from byoc_hw.errors import PlanError
from byoc_hw.graph import Add, Conv2d, Dense, Layer, Pool2d, Softmax
from byoc_hw.plan.flash import WeightBlock
from byoc_hw.plan.ops import Buffer, activations, copy_op, job_op
from byoc_hw.plan.steps import Image, Job
from byoc_hw.plan.tiling import PSUM_BYTES, Tiler, Tiling
from byoc_hw.plan.transfers import Box, linear_chunks, tile_transfers
from byoc_hw.plan.window import Extent, Window, extents, window_of
from byoc_hw.plan.work import Region, Unit


@dataclass(frozen=True)
class Tile:
    """One job: output rows and columns, output channels `channel` on, input channels `depth` on.

    `loaded` gives the first of the input channels that are in local memory, and their number.
    """

    row: Extent
    column: Extent
    channel: int
    channels: int
    depth: int
    depths: int
    loaded: tuple[int, int]

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
    """The jobs in order; slices of input channels innermost."""
    pixels = [(row, column) for row in window.rows.cut(tiling.rows) for column in window.columns.cut(tiling.columns)]
    channels = list(linear_chunks(window.out_channels, tiling.channels))
    order = (
        [(pixel, channel) for pixel in pixels for channel in channels]
        if tiling.rows_outer
        else [(pixel, channel) for channel in channels for pixel in pixels]
    )
    for (row, column), channel in order:
        for depth in linear_chunks(window.in_channels, tiling.depth) if window.sums else [channel]:
            yield Tile(row, column, *channel, *depth, (0, window.in_channels) if tiling.whole_ifm else depth)


def tiled(region: Region, number: int, index: int) -> None:
    """Append the units of a group with a tiling: one for each tile."""
    group, layer = region.choices.groups[number], region.layers[index]
    assert group.tiling is not None
    if isinstance(layer, Add | Softmax):
        _linear(region, number, index, layer, group.tiling)
        return
    assert isinstance(layer, Conv2d | Dense | Pool2d)
    window = window_of(layer)
    if group.tiling.depth > window.in_channels or min(group.tiling.rows, group.tiling.columns) < 1:
        raise PlanError(f"{layer.name}: a tiling fits its layer: got {group.tiling}")
    run = _Tiles(region, number, index, layer, window, group.tiling)
    for tile in tiles(window, group.tiling):
        run.tile(tile)


class _Tiles:
    """Emits tile after tile, loading only what the tile before has not left in local memory."""

    def __init__(self, region: Region, number: int, index: int, layer: Layer, window: Window, tiling: Tiling) -> None:
        self.region, self.number, self.index = region, number, index
        self.layer, self.window = layer, window
        self.group = region.choices.groups[number]
        self.sliced = Tiler(window, region.accelerator).sliced(tiling)
        self.ifm: tuple[Box, Buffer] | None = None
        self.ofm = self.psum = activations(layer.name, 0)
        self.kept: dict[WeightBlock, Buffer] = {}

    def tile(self, tile: Tile) -> None:
        """The unit of one tile."""
        region, layer, window = self.region, self.layer, self.window
        unit = Unit(self.number, self.group.overlap)
        first = not window.sums or tile.depth == 0
        last = not window.sums or tile.depth + tile.depths == window.in_channels
        ifm_buffer = self._load_ifm(tile, unit)
        if first:
            outputs = tile.row.size * tile.column.size * tile.channels
            self.ofm = activations(layer.ofm.name, outputs)
            self.psum = activations(layer.name, PSUM_BYTES * outputs)
        local = {"ifm": ifm_buffer, "ofm": self.ofm, **self._load_weights(tile, unit)}
        if not (first and last):
            local["psum"] = self.psum
        ifm, ofm = tile.ifm.extents, tile.ofm.extents
        job = Job(
            ifm=tile.depth - tile.loaded[0],
            ofm=0,
            ifm_shape=(ifm[0], ifm[1], tile.depths),
            ofm_shape=ofm,
            ifm_row=ifm[1] * ifm[2],
            ofm_row=ofm[1] * ofm[2],
            ifm_pixel=ifm[2],
            ofm_pixel=ofm[2],
            weights=self.weights_at,
            params=region.params_at(tile.channel) if self.sliced else 0,
            padding=(tile.row.pad_before, tile.column.pad_before, tile.row.pad_after, tile.column.pad_after),
            first=first,
            last=last,
            image=region.image(layer, tile.ofm.origin, ofm),
        )
        unit.jobs.append(job_op(self.index, layer, job, local, region.accelerator))
        if last:
            _, width, channels = extents(layer.ofm)
            for home in region.targets(region.storages.of[layer.ofm]):
                for move in tile_transfers(tile.ofm, width, channels):
                    unit.stores.append(copy_op(self.index, move, home, self.ofm, False, region.accelerator))
        region.units.append(unit)

    def _load_ifm(self, tile: Tile, unit: Unit) -> Buffer:
        if self.ifm is not None and self.ifm[0] == tile.ifm:
            return self.ifm[1]
        region, layer = self.region, self.layer
        height, width, channels = tile.ifm.extents
        buffer = activations(layer.ifm.name, height * width * channels)
        self.ifm = tile.ifm, buffer
        home = region.homes[region.storages.of[layer.ifm]]
        _, width, channels = extents(layer.ifm)
        for move in tile_transfers(tile.ifm, width, channels):
            unit.loads.append(copy_op(self.index, move, home, buffer, True, region.accelerator))
        return buffer

    def _load_weights(self, tile: Tile, unit: Unit) -> dict[str, Buffer]:
        self.weights_at = 0
        layer = self.layer
        if not isinstance(layer, Conv2d | Dense):
            return {}
        depth, depths = (tile.depth, tile.depths) if self.window.sums else (0, 1)
        block = WeightBlock(self.index, tile.channel, tile.channels, depth, depths, not self.sliced)
        self.weights_at = self.region.flash.weights_at(block)
        shared = WeightBlock(self.index, 0, layer.out_channels, 0, 0, True)
        needed = {"params": shared, "weights": block} if self.sliced else {"weights": block}
        if not self.group.resident:
            self.kept = {key: buffer for key, buffer in self.kept.items() if key in needed.values()}
        for key in needed.values():
            if key not in self.kept:
                self.kept[key], load = self.region.weights(self.index, layer, key)
                unit.jobs.append(load)
        found = {name: self.kept[key] for name, key in needed.items()}
        return {"params": found["weights"], **found}


def _linear(region: Region, number: int, index: int, layer: Add | Softmax, tiling: Tiling) -> None:
    """Runs of `columns` pixels of an element-wise layer, or of rows of a softmax."""
    each = layer.ifm.shape[-1] if isinstance(layer, Softmax) else 1
    inputs = tuple(dict.fromkeys(region.storages.of[tensor] for tensor in layer.inputs))
    for first, pixels in linear_chunks(layer.ofm.elements // each, tiling.columns):
        start, count = first * each, pixels * each
        unit = Unit(number, region.choices.groups[number].overlap)
        buffers = {storage: activations(storage.name, count) for storage in inputs}
        for storage, buffer in buffers.items():
            unit.loads += region.part(index, region.homes[storage], buffer, start, start, start + count, True)
        ofm = activations(layer.ofm.name, count)
        local = {"ofm": ofm, "ifm": buffers[region.storages.of[layer.ifm]]}
        if isinstance(layer, Add):
            local["ifm2"] = buffers[region.storages.of[layer.ifm2]]
        shape = (1, pixels, each)
        job = Job(
            ifm=0,
            ofm=0,
            ifm_shape=shape,
            ofm_shape=shape,
            ifm_row=count,
            ofm_row=count,
            ifm_pixel=each,
            ofm_pixel=each,
            image=Image(start, (1, 1, count), (count, count)),
        )
        unit.jobs.append(job_op(index, layer, job, local, region.accelerator))
        for home in region.targets(region.storages.of[layer.ofm]):
            unit.stores += region.part(index, home, ofm, start, start, start + count, False)
        region.units.append(unit)
