"""The steps of one layer: tiles in, a job on each, tiles out.

Every layer starts and ends with its tensors in main memory and with nothing in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Add, Layer, Pool2d, Reshape, Softmax, Tensor, Transpose
from byoc_hw.params.pack import pack, pack_params
from byoc_hw.params.requantize import folded_bias, sum_scales, weight_values
from byoc_hw.plan.choice import choose
from byoc_hw.plan.flash import FlashImage
from byoc_hw.plan.sequence import Sequencer, Span, misalignment
from byoc_hw.plan.steps import ACTIVATIONS, SCRATCH, WEIGHTS, Address, Copy, Image, Job, Step
from byoc_hw.plan.tiling import LocalLayout, Tiler, Tiling, alignment
from byoc_hw.plan.transfers import Box, canonical, linear_chunks, scatter, slabs, tile_transfers
from byoc_hw.plan.window import Extent, Windowed, window_of

Homes = Mapping[Tensor, Address]
"""Where each activation tensor lies in main memory."""

LOCAL = Address(ACTIVATIONS)
MAIN = Address(SCRATCH)
"""Any aligned start in main memory: where it is does not matter to what the DMA can take."""


@dataclass(frozen=True)
class Region:
    """What the layers of one region share while they are planned."""

    accelerator: Accelerator
    homes: Homes
    flash: FlashImage


def layer_steps(layer: Layer, region: Region) -> tuple[Step, ...]:
    """The steps of one layer; its weights are appended to the region's flash."""
    planner = _PLANNERS.get(layer.kind)
    if planner is None:
        raise PlanError(f"{layer.name}: layer kind is one of {', '.join(_PLANNERS)}: got {layer.kind}")
    return planner(layer, region)


# ---------------------------------------------------------------- convolution, dense, pooling


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


def tiles(tiler: Tiler, tiling: Tiling) -> Iterator[Tile]:
    """The jobs in order; slices of input channels innermost."""
    window = tiler.window
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


def _windowed(layer: Windowed, region: Region) -> tuple[Step, ...]:
    tiling = choose(layer, region.accelerator, _dma_problem)
    tiler = Tiler(window_of(layer), region.accelerator)
    run = _TiledRun(tiler, tiling, region)
    for tile in tiles(tiler, tiling):
        run.tile(tile)
    return run.sequencer.finish()


class _TiledRun:
    """Emits tile after tile, loading only what the tile before has not left in local memory."""

    def __init__(self, tiler: Tiler, tiling: Tiling, region: Region) -> None:
        layer = tiler.window.layer
        self.sequencer = Sequencer(layer.name, region.accelerator)
        self._window = tiler.window
        self._layout = tiler.layout(tiling)
        self._ifm_home, self._ofm_home = region.homes[layer.ifm], region.homes[layer.ofm]
        self._weights = {} if isinstance(layer, Pool2d) else _weights_in_flash(tiler, tiling, region.flash)
        self._resident_ifm: Box | None = None
        self._resident_weights: tuple[int, int] | None = None

    def tile(self, tile: Tile) -> None:
        self._load_ifm(tile)
        self._load_weights(tile)
        first = not self._window.sums or tile.depth == 0
        last = not self._window.sums or tile.depth + tile.depths == self._window.in_channels
        job = _job(tile, self._layout, first, last, self._image(tile) if last else None)
        self.sequencer.job(job, *_job_spans(tile, self._layout, first, last))
        if last:
            self._store_ofm(tile)

    def _image(self, tile: Tile) -> Image:
        width, channels = self._window.columns.ofm, self._window.out_channels
        offset = (tile.row.start * width + tile.column.start) * channels + tile.channel
        return Image(offset, tile.ofm.extents, (width * channels, channels))

    def _load_ifm(self, tile: Tile) -> None:
        if tile.ifm == self._resident_ifm:
            return
        self._resident_ifm = tile.ifm
        for move in tile_transfers(tile.ifm, self._window.columns.ifm, self._window.in_channels):
            self.sequencer.copy(move.load(self._ifm_home, LOCAL))

    def _load_weights(self, tile: Tile) -> None:
        wanted = (tile.channel, tile.depth)
        if not self._weights or wanted == self._resident_weights:
            return
        self._resident_weights = wanted
        block = self._weights[wanted]
        self.sequencer.copy(Copy(Address(WEIGHTS, block.local), block.flash, block.nbytes))

    def _store_ofm(self, tile: Tile) -> None:
        for move in tile_transfers(tile.ofm, self._window.columns.ofm, self._window.out_channels):
            self.sequencer.copy(move.store(self._ofm_home, LOCAL + self._layout.ofm))


def _job(tile: Tile, layout: LocalLayout, first: bool, last: bool, image: Image | None) -> Job:
    ifm, ofm = tile.ifm.extents, tile.ofm.extents
    return Job(
        ifm=tile.depth - tile.loaded[0],
        ofm=layout.ofm,
        ifm_shape=(ifm[0], ifm[1], tile.depths),
        ofm_shape=ofm,
        ifm_row=ifm[1] * ifm[2],
        ofm_row=ofm[1] * ofm[2],
        ifm_pixel=ifm[2],
        ofm_pixel=ofm[2],
        psum=0 if first and last else layout.psum,
        weights=layout.weights,
        padding=(tile.row.pad_before, tile.column.pad_before, tile.row.pad_after, tile.column.pad_after),
        first=first,
        last=last,
        image=image,
    )


def _job_spans(tile: Tile, layout: LocalLayout, first: bool, last: bool) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """What a job reads and writes: whole buffers, since nothing else lies in them."""
    ifm = Span(ACTIVATIONS, 0, layout.ofm)
    psum = Span(ACTIVATIONS, layout.psum, layout.activation_bytes)
    outputs = tile.row.size * tile.column.size * tile.channels
    ofm = Span(ACTIVATIONS, layout.ofm, layout.ofm + outputs)
    weights = Span(WEIGHTS, 0, layout.weight_bytes)
    return (ifm, weights, *(() if first else (psum,))), (ofm if last else psum,)


@dataclass(frozen=True)
class _WeightBlock:
    """Weights of one channel tile and slice: where in flash, and where they go in local memory."""

    flash: Address
    local: int
    nbytes: int


def _weights_in_flash(tiler: Tiler, tiling: Tiling, flash: FlashImage) -> dict[tuple[int, int], _WeightBlock]:
    """The blocks by first output channel and first input channel.

    A channel tile's parameters, padded to the local alignment, lead its first slice in one block.
    Later slices are blocks of weights alone: the parameters stay where they are in local memory.
    """
    layer = tiler.window.layer
    assert not isinstance(layer, Pool2d)
    values, bias, scales = weight_values(layer), folded_bias(layer), sum_scales(layer)
    depth = tiling.depth if tiler.window.sums else 1
    start = tiler.layout(tiling).weights
    blocks = {}
    for channel, channels in linear_chunks(tiler.window.out_channels, tiling.channels):
        part = slice(channel, channel + channels)
        params = pack_params(bias[part], scales[part]).ljust(start, b"\0")
        for first, depths in linear_chunks(values.shape[3], depth):
            packed = pack(values[part, :, :, first : first + depths], layer.weights.bits)
            packed = packed.ljust(tiler.weights_bytes(channels, depths), b"\0")
            data, local = (params + packed, 0) if first == 0 else (packed, start)
            key = (channel, first if tiler.window.sums else channel)
            blocks[key] = _WeightBlock(flash.add(data), local, len(data))
    return blocks


def _dma_problem(tiler: Tiler, tiling: Tiling) -> str | None:
    """The DMA rule that a copy of these tiles would break, or None. Starts of tensors are aligned."""
    if tiler.accelerator.dma_alignment == 1:
        return None
    window = tiler.window
    for tile in tiles(tiler, tiling):
        for box, axis, channels in (
            (tile.ifm, window.columns.ifm, window.in_channels),
            (tile.ofm, window.columns.ofm, window.out_channels),
        ):
            for move in tile_transfers(box, axis, channels):
                problem = misalignment(move.load(MAIN, LOCAL), tiler.accelerator.dma_alignment)
                if problem is not None:
                    return problem
    return None


# ---------------------------------------------------------------- element-wise


def _add(layer: Add, region: Region) -> tuple[Step, ...]:
    accelerator = region.accelerator
    sequencer = Sequencer(layer.name, accelerator)
    # One tensor added to itself is loaded once.
    inputs = tuple(dict.fromkeys(layer.inputs))
    run = _chunk_bytes(layer, len(inputs) + 1, accelerator)
    starts = dict(zip(inputs, range(0, len(inputs) * run, run), strict=True))
    ofm = len(inputs) * run
    for offset, count in linear_chunks(layer.ofm.elements, run):
        for tensor, start in starts.items():
            sequencer.copy(Copy(LOCAL + start, region.homes[tensor] + offset, count))
        job = Job(
            ifm=starts[layer.ifm],
            ifm2=starts[layer.ifm2],
            ofm=ofm,
            ifm_shape=(1, count, 1),
            ofm_shape=(1, count, 1),
            ifm_row=count,
            ofm_row=count,
            ifm_pixel=1,
            ofm_pixel=1,
            image=Image(offset, (1, 1, count), (count, count)),
        )
        reads = tuple(Span(ACTIVATIONS, start, start + count) for start in starts.values())
        sequencer.job(job, reads, (Span(ACTIVATIONS, ofm, ofm + count),))
        sequencer.copy(Copy(region.homes[layer.ofm] + offset, LOCAL + ofm, count))
    return sequencer.finish()


def _softmax(layer: Softmax, region: Region) -> tuple[Step, ...]:
    """Tiles of whole rows: every output of a row depends on all of its inputs."""
    accelerator = region.accelerator
    sequencer = Sequencer(layer.name, accelerator)
    channels = layer.ifm.shape[-1]
    rows_at_once, ofm = _softmax_tile(layer, accelerator)
    for first, rows in linear_chunks(layer.rows, rows_at_once):
        offset, count = first * channels, rows * channels
        sequencer.copy(Copy(LOCAL, region.homes[layer.ifm] + offset, count))
        job = Job(
            ifm=0,
            ofm=ofm,
            ifm_shape=(1, rows, channels),
            ofm_shape=(1, rows, channels),
            ifm_row=count,
            ofm_row=count,
            ifm_pixel=channels,
            ofm_pixel=channels,
            image=Image(offset, (1, rows, channels), (count, channels)),
        )
        sequencer.job(job, (Span(ACTIVATIONS, 0, count),), (Span(ACTIVATIONS, ofm, ofm + count),))
        sequencer.copy(Copy(region.homes[layer.ofm] + offset, LOCAL + ofm, count))
    return sequencer.finish()


def _softmax_tile(layer: Softmax, accelerator: Accelerator) -> tuple[int, int]:
    """Rows of a tile, as many as fit, and where its output starts."""
    channels, unit = layer.ifm.shape[-1], alignment(accelerator)
    step = accelerator.dma_alignment // gcd(accelerator.dma_alignment, channels)  # rows that end on an aligned byte
    half = accelerator.activation_memory // 2 // unit * unit
    rows = min(half // channels, layer.rows)
    if rows < layer.rows:
        rows -= rows % step
    if rows == 0:
        raise PlanError(
            f"{layer.name}: the smallest tile fits local activation memory: "
            f"{2 * -(-min(step, layer.rows) * channels // unit) * unit} bytes needed, "
            f"{accelerator.activation_memory} bytes there"
        )
    return rows, -(-rows * channels // unit) * unit


def _chunk_bytes(layer: Layer, buffers: int, accelerator: Accelerator) -> int:
    """Bytes of each of `buffers` equal buffers that share the local activations, or the whole tensor's."""
    unit = alignment(accelerator)
    most = accelerator.activation_memory // buffers // unit * unit
    if most == 0:
        raise PlanError(
            f"{layer.name}: the smallest tile fits local activation memory: "
            f"{buffers * unit} bytes needed, {accelerator.activation_memory} bytes there"
        )
    return min(most, -(-layer.ofm.nbytes // unit) * unit)


# ---------------------------------------------------------------- copies only


def _reshape(layer: Reshape, region: Region) -> tuple[Step, ...]:
    sequencer = Sequencer(layer.name, region.accelerator)
    source, target = region.homes[layer.ifm], region.homes[layer.ofm]
    if source != target:
        copy_through(sequencer, source, target, layer.ofm.nbytes, region.accelerator)
    return sequencer.finish()


def _transpose(layer: Transpose, region: Region) -> tuple[Step, ...]:
    permutation = canonical(layer.ifm.shape, layer.axes, layer.ifm.nbytes // layer.ifm.elements)
    sequencer = Sequencer(layer.name, region.accelerator)
    source, target = region.homes[layer.ifm], region.homes[layer.ofm]
    offset = 0
    for origin, extents in slabs(permutation.shape, _whole_buffer(region.accelerator)):
        nbytes = prod(extents)
        sequencer.copy(Copy(LOCAL, source + offset, nbytes))
        for move in scatter(permutation, origin, extents):
            sequencer.copy(move.store(target, LOCAL))
        offset += nbytes
    return sequencer.finish()


def copy_through(sequencer: Sequencer, source: Address, target: Address, nbytes: int, accelerator: Accelerator) -> None:
    """Copy between two places in main memory, in chunks through local memory."""
    for offset, count in linear_chunks(nbytes, _whole_buffer(accelerator)):
        sequencer.copy(Copy(LOCAL, source + offset, count))
        sequencer.copy(Copy(target + offset, LOCAL, count))


def _whole_buffer(accelerator: Accelerator) -> int:
    """All of local activations, less what would leave the next chunk unaligned."""
    return accelerator.activation_memory // accelerator.dma_alignment * accelerator.dma_alignment


_PLANNERS: Mapping[str, Callable[[Any, Region], tuple[Step, ...]]] = {
    "conv2d": _windowed,
    "depthwise_conv2d": _windowed,
    "dense": _windowed,
    "pool2d": _windowed,
    "add": _add,
    "softmax": _softmax,
    "reshape": _reshape,
    "transpose": _transpose,
}
