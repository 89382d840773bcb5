"""Tilings of convolution, dense and pooling layers: their local memory and their cost.

A tile is a number of output rows, columns and channels, and for a layer that sums over input
channels a slice of those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, largest_allowed, piece_sizes, round_up
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.alike_layer import without_values
from byoc_hw.plan.array.cost import copy_cycles, dense_job_cycles, is_pointwise, transfer_cycles
from byoc_hw.plan.array.kinds import PSUM_BYTES, Geometry, Window, geometry, parts_of_kernel
from byoc_hw.plan.array.packing import Packing, least_packed, tile_packing
from byoc_hw.plan.array.transfers import tile_pieces
from byoc_hw.plan.array.weight_blocks import params_together, weights_bytes
from byoc_hw.plan.array.window import Axis, Extent, Extents
from byoc_hw.plan.choices import Tiling
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Pair


@dataclass(frozen=True)
class LocalLayout:
    """Offsets of the parts of a tile in local memory, and the bytes it takes of each memory."""

    ofm: int
    psum: int
    activation_bytes: int
    weights: int
    weight_bytes: int


class TilingCost(NamedTuple):
    """Cycles of a layer in tiles: of all jobs, and of all copies of activations and of weights."""

    jobs: int
    activations: int
    weights: int

    def cycles(self, tiles: int = 1, blocks: int = 1) -> int:
        """Cycles where so many tiles, and blocks of weights, have room at a time: of what has room twice, the array
        computes one while the DMA copies the next. All else is done in turn."""
        beside = (self.activations if tiles > 1 else 0) + (self.weights if blocks > 1 else 0)
        return max(self.jobs, beside) + self.activations + self.weights - beside

    def rank(self, tiles: int = 1, blocks: int = 1) -> float:
        """The same for tilings to be compared: the engine with less to do delays the other one now and then, so a part
        of its work counts as well."""
        cycles, in_turn = self.cycles(tiles, blocks), self.jobs + self.activations + self.weights
        return cycles + (in_turn - cycles) / _DELAYS


_DELAYS = 8
"""The part of the work beside that of the busier engine that counts: one of so many."""


@kept_in_first
def tile_geometry(layer: Layer) -> Geometry:
    """The form of a layer as tiles cut it: the pixels of a pointwise layer are one row, so a tile ends anywhere."""
    form = geometry(layer)
    if not isinstance(form, Window) or not is_pointwise(layer):
        return form
    pixels = replace(form.columns, ifm=form.rows.ifm * form.columns.ifm, ofm=form.rows.ofm * form.columns.ofm)
    return replace(form, rows=replace(form.rows, ifm=1, ofm=1), columns=pixels)


class _Loads(NamedTuple):
    """Cycles of the copies of all weights once, of the smallest block of them, and of the largest one."""

    once: int
    smallest: int
    largest: int


@dataclass
class _Sizes:
    """What is known of the tiles of a layer, and of their cycles, in local memories of any size."""

    tiles: dict[Pair, list[tuple[int, Extent, Extent]]] = field(default_factory=dict)
    packed: dict[Pair, Pair] = field(default_factory=dict)
    outputs: dict[tuple[int, int, bool], list[tuple[int, Pair]]] = field(default_factory=dict)
    jobs: dict[tuple[Extents, int], int] = field(default_factory=dict)
    copies: dict[tuple[Extents, int, int, int], int] = field(default_factory=dict)
    loaded: dict[tuple[int, int, int, bool], Pair] = field(default_factory=dict)
    stored: dict[tuple[int, int, int, bool], int] = field(default_factory=dict)
    weights: dict[Pair, int] = field(default_factory=dict)


@lru_cache(maxsize=64)
def with_memories(accelerator: Accelerator, activations: int, weights: int) -> Accelerator:
    """An accelerator with other local memories, of so many bytes."""
    return replace(accelerator, activation_memory=activations, weight_memory=weights)


@lru_cache(maxsize=64)
def _sizes(layer: Layer, window: Window, accelerator: Accelerator) -> _Sizes:
    """What is known of a layer on all accelerators that differ from one in their memories alone."""
    return _Sizes()


@dataclass
class _Blocks:
    """What is known of the blocks of weights of a layer, by their channels and depth, in one weight memory."""

    places: dict[Pair, Pair] = field(default_factory=dict)
    loads: dict[Pair, _Loads] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tiler:
    """The tilings of one layer with a window on one accelerator. Many of them have copies of the same sizes."""

    layer: Layer
    window: Window
    accelerator: Accelerator
    blocks: int = 1
    """Blocks of weights that have room at a time, beside parameters that do not come with them."""
    inputs: int = 1
    """Inputs of tiles that have room at a time; in slices of input channels beside one output and its partial sums."""
    _blocks: _Blocks = field(default_factory=_Blocks, init=False, repr=False, compare=False)

    @cached_property
    def _known(self) -> _Sizes:
        return _sizes(without_values(self.layer), self.window, with_memories(self.accelerator, 1, 1))

    @cached_property
    def alignment(self) -> int:
        """The alignment of all starts in local memory, in bytes."""
        return self.accelerator.buffer_alignment

    @cached_property
    def _in_parts(self) -> bool:
        """Whether the kernel is in parts, each with jobs of its own."""
        return len(parts_of_kernel(self.layer, self.accelerator)) > 1

    def layout(self, tiling: Tiling) -> LocalLayout:
        """Inputs at 0, then outputs, then partial sums; parameters at 0, then weights."""
        return LocalLayout(*self._activations(tiling.rows, tiling, *self._each(tiling)), *self._weights(tiling))

    def _each(self, tiling: Tiling) -> tuple[int, int]:
        """Bytes of a pixel of a tile's input, and of the partial sum of an output."""
        window = self.window
        if window.sums:
            channels = window.in_channels if tiling.whole_ifm else min(tiling.depth, window.in_channels)
        else:
            channels = min(tiling.channels, window.group_channels)
        return self.layer.ifm.bytes_of(channels), PSUM_BYTES * self.has_partial_sums(tiling)

    def _activations(self, rows: int, tiling: Tiling, pixel: int, psum_bytes: int) -> tuple[int, int, int]:
        """Where outputs and partial sums of a tile of so many rows start, and where it ends."""
        read, written = self._tile_pixels(rows, tiling)
        outputs = written * tiling.channels
        ofm = round_up(read * pixel, self.alignment)
        end = ofm + self.layer.ofm.bytes_of(outputs)
        psum = round_up(end, self.alignment)
        return ofm, psum, psum + psum_bytes * outputs if psum_bytes else end

    def _tile_pixels(self, rows: int, tiling: Tiling) -> Pair:
        """The most pixels of the input of tiles of so many rows, and those of the output."""
        if tiling.packed:
            return self._packed_pixels(rows, tiling.columns)
        ifm = self.window.rows.largest_ifm(rows) * self.window.columns.largest_ifm(tiling.columns)
        return ifm, rows * tiling.columns

    def _packed_pixels(self, rows: int, columns: int) -> tuple[int, int]:
        """The same of tiles whose rows are packed, with what lies around and between them."""
        key = rows, columns
        if key not in self._known.packed:
            cuts = product(_distinct(self.window.rows, rows), _distinct(self.window.columns, columns))
            tiles = [(self.packing(row, column), row, column) for (row, _), (column, _) in cuts]
            self._known.packed[key] = (
                max(one.nbytes((row.ifm_size, column.ifm_size, 1)) for one, row, column in tiles),
                max(one.pixels(row.size, column.size) for one, row, column in tiles),
            )
        return self._known.packed[key]

    def packing(self, row: Extent, column: Extent) -> Packing:
        """How the input of a tile lies in local memory that is packed."""
        return tile_packing(row, column, (self.window.rows.reach, self.window.columns.reach))

    def _weights(self, tiling: Tiling) -> tuple[int, int]:
        """Where the weights of a tile start, behind parameters, and where they end."""
        if not isinstance(self.layer, Weighted):
            return 0, 0
        key = tiling.channels, tiling.depth
        if key not in self._blocks.places:
            start = self.weights_offset(self.params_together(self.layer, tiling))
            self._blocks.places[key] = start, start + self.copied_bytes(self.layer, *key)
        return self._blocks.places[key]

    def params_together(self, layer: Weighted, tiling: Tiling) -> int:
        """The output channels whose parameters are loaded at once: of slices of input channels beside their blocks."""
        if not self.sliced(tiling):
            return tiling.channels
        return params_together(layer, tiling.channels, self.accelerator.weight_memory)

    def staying(self, tiling: Tiling) -> int:
        """How many blocks of weights have room at a time, where several come again for each tile of pixels; else 1."""
        if not isinstance(self.layer, Weighted) or not (self.sliced(tiling) or self._channels_again(tiling)):
            return 1
        beside = self._weights(tiling)[0] if self.sliced(tiling) else 0
        block = round_up(self.block_bytes(tiling), self.alignment)
        return max(1, (self.accelerator.whole_words(self.accelerator.weight_memory) - beside) // block)

    def _channels_again(self, tiling: Tiling) -> bool:
        """Whether all output channels come again for each tile of pixels, in several tiles."""
        return tiling.rows_outer and tiling.channels < self.window.out_channels

    def block_bytes(self, tiling: Tiling) -> int:
        """Bytes of the largest block of weights, with its parameters if these come with it."""
        start, end = self._weights(tiling)
        return end - start if self.sliced(tiling) else end

    def sliced(self, tiling: Tiling) -> bool:
        """Whether an output tile takes several jobs, one for each slice of input channels."""
        return self.window.sums and tiling.depth < self.window.in_channels

    def has_partial_sums(self, tiling: Tiling) -> bool:
        """Whether an output tile takes several jobs, for slices of input channels or parts of the kernel."""
        return self._in_parts or self.sliced(tiling)

    def ifm_channels(self, tiling: Tiling) -> list[tuple[int, int]]:
        """Pairs of a number of input tiles and their channels, at each position, the largest first."""
        if not self.window.sums:
            return self._channels(tiling)
        depth = self.window.in_channels if tiling.whole_ifm else tiling.depth
        return self._in_each_group(piece_sizes(self.window.in_channels, depth))

    def weights_offset(self, channels: int) -> int:
        """Bytes from the parameters of `channels` output channels to their weights, in flash as in local memory."""
        return round_up(PARAMS_BYTES * channels, self.alignment)

    def copied_bytes(self, layer: Weighted, channels: int, depth: int) -> int:
        """Bytes of a copy of these weights."""
        if (channels, depth) not in self._known.weights:
            packed = weights_bytes(layer, channels, depth if self.window.sums else 1, self.accelerator)
            self._known.weights[channels, depth] = round_up(packed, self.accelerator.dma_alignment)
        return self._known.weights[channels, depth]

    def fits(self, tiling: Tiling) -> bool:
        """Whether a tile fits both local memories."""
        return self._weights_fit(tiling) and self._rows_fit(tiling.rows, tiling, *self._each(tiling))

    def most_rows(self, tiling: Tiling) -> int:
        """The most rows that such a tile fits with, 0 if none."""
        if not self._weights_fit(tiling):
            return 0
        each = self._each(tiling)
        return largest_allowed(self.window.rows.ofm, lambda rows: self._rows_fit(rows, tiling, *each))

    def most_depth(self, tiling: Tiling) -> int:
        """The most input channels, but not all, that such a tile fits with as slices, 0 if none."""
        if tiling.channels not in self._blocks.depths:
            self._blocks.depths[tiling.channels] = largest_allowed(
                self.window.in_channels - 1, lambda depth: self._weights_fit(tiling._replace(depth=depth))
            )
        most, bytes_of = self._blocks.depths[tiling.channels], self.layer.ifm.bytes_of
        read, written = self._tile_pixels(tiling.rows, tiling)
        outputs, unit = written * tiling.channels, self.alignment
        beside = round_up(self.layer.ofm.bytes_of(outputs), unit) + PSUM_BYTES * outputs
        room = max(self.room - beside, 0) // self.inputs // unit * unit  # of one input
        if tiling.whole_ifm:
            return most if read * bytes_of(self.window.in_channels) <= room else 0
        return min(most, room // (read * bytes_of(1)))

    def activation_bytes(self, tiling: Tiling) -> int:
        """Bytes of activations that are in local memory at a time."""
        return self._at_a_time(tiling.rows, tiling, *self._each(tiling))

    def _rows_fit(self, rows: int, tiling: Tiling, pixel: int, psum_bytes: int) -> bool:
        return self._at_a_time(rows, tiling, pixel, psum_bytes) <= self.room

    def _at_a_time(self, rows: int, tiling: Tiling, pixel: int, psum_bytes: int) -> int:
        ofm, psum, end = self._activations(rows, tiling, pixel, psum_bytes)
        return end + (self.inputs - 1) * (ofm if self.sliced(tiling) else psum)

    @cached_property
    def room(self) -> int:
        """Bytes of local memory for activations that the DMA reaches."""
        return self.accelerator.whole_words(self.accelerator.activation_memory)

    def _weights_fit(self, tiling: Tiling) -> bool:
        return self.weight_bytes(tiling) <= self.accelerator.weight_memory

    def weight_bytes(self, tiling: Tiling) -> int:
        """Bytes of weight memory of the blocks that have room at a time, and of parameters beside them."""
        beside = self._weights(tiling)[0] if self.sliced(tiling) else 0
        each = self.block_bytes(tiling)
        return beside + (self.blocks - 1) * round_up(each, self.alignment) + each

    def cycles(self, tiling: Tiling, tiles: int = 1, blocks: int = 1) -> int:
        """Cycles of all copies and jobs, as `TilingCost.cycles`."""
        return self.cost(tiling).cycles(tiles, blocks)

    def cost(self, tiling: Tiling) -> TilingCost:
        """What a layer in such tiles takes."""
        return TilingCost(self._array_cycles(tiling), self._activation_cycles(tiling), self._weight_cycles(tiling))

    def least_cost(self, tiling: Tiling, *, weights: bool = True) -> TilingCost:
        """As `cost`, with the jobs of all of the layer in one tile, or in one row if it is packed: no tiles have fewer
        cycles of them. Without copies of `weights` it takes less time to find out."""
        jobs = least_packed(self.layer, self.accelerator) if tiling.packed else self._least_jobs
        return TilingCost(jobs, self._activation_cycles(tiling), self._weight_cycles(tiling) if weights else 0)

    @cached_property
    def _least_jobs(self) -> int:
        window = self.window
        return self._array_cycles(
            Tiling(window.rows.ofm, window.columns.ofm, window.group_channels, window.in_channels)
        )

    # Tiles of one size cost the same: only the few sizes are counted, not every tile.

    def _array_cycles(self, tiling: Tiling) -> int:
        channels, depths = self._channels(tiling), self._depths(tiling)
        return sum(
            times * many * slices * self._job_cycles(pixels, count, depth)
            for times, pixels in self._job_pixels(tiling)
            for many, count in channels
            for slices, depth in depths
        )

    def _job_pixels(self, tiling: Tiling) -> list[tuple[int, Pair]]:
        """How often jobs have each height and width of outputs."""
        key = tiling.rows, tiling.columns, tiling.packed
        if key not in self._known.outputs:
            found: Counter[Pair] = Counter()
            for times, row, column in self._spatial(tiling):
                size = row.size, column.size
                found[(1, self.packing(row, column).pixels(*size)) if tiling.packed else size] += times
            self._known.outputs[key] = [(times, size) for size, times in found.items()]
        return self._known.outputs[key]

    def _spatial(self, tiling: Tiling) -> list[tuple[int, Extent, Extent]]:
        """How often tiles have each extent of rows and of columns."""
        key = tiling.rows, tiling.columns
        if key not in self._known.tiles:
            rows, columns = _distinct(self.window.rows, key[0]), _distinct(self.window.columns, key[1])
            self._known.tiles[key] = [(times * more, row, column) for row, times in rows for column, more in columns]
        return self._known.tiles[key]

    def _channels(self, tiling: Tiling) -> list[tuple[int, int]]:
        return self._in_each_group(piece_sizes(self.window.group_channels, tiling.channels))

    def _in_each_group(self, pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        groups = self.window.groups
        return pieces if groups == 1 else [(many * groups, size) for many, size in pieces]

    def _depths(self, tiling: Tiling) -> list[tuple[int, int]]:
        return piece_sizes(self.window.in_channels, tiling.depth) if self.window.sums else [(1, 1)]

    def _job_cycles(self, pixels: Pair, channels: int, depth: int) -> int:
        """Cycles of a job over some outputs: of its input only the channels count."""
        ofm = *pixels, channels
        key = ofm, depth
        if key not in self._known.jobs:
            self._known.jobs[key] = dense_job_cycles(self.layer, (*pixels, depth), ofm, self.accelerator)
        return self._known.jobs[key]

    def _weight_cycles(self, tiling: Tiling) -> int:
        if not isinstance(self.layer, Weighted):
            return 0
        loads, window = self._weight_loads(self.layer, tiling), self.window
        count = window.groups * ceil_div(window.group_channels, tiling.channels)
        if self.sliced(tiling):
            pieces = ceil_div(window.in_channels, tiling.depth)
            blocks, often = (count * pieces, 1) if tiling.rows_outer else (pieces, count)
        elif self._channels_again(tiling):
            blocks, often = count, 1
        else:
            return loads.once
        stay = self.staying(tiling)
        if stay >= blocks:
            return loads.once
        passes = ceil_div(window.rows.ofm, tiling.rows) * ceil_div(window.columns.ofm, tiling.columns)
        return passes * loads.once - (passes - 1) * often * (loads.smallest + (stay - 1) * loads.largest)

    def _weight_loads(self, layer: Weighted, tiling: Tiling) -> _Loads:
        """What the copies of the weights take."""
        key = tiling.channels, tiling.depth
        if key not in self._blocks.loads:
            channels, depths = self._channels(tiling), self._depths(tiling)
            once = sum(many * self._channel_tile_cycles(layer, tiling, one, depths) for many, one in channels)
            params = 0 if self.sliced(tiling) else self.weights_offset(tiling.channels)
            blocks = [params + self.copied_bytes(layer, channels[at][1], depths[at][1]) for at in (-1, 0)]
            self._blocks.loads[key] = _Loads(once, *(copy_cycles(nbytes, 1, self.accelerator) for nbytes in blocks))
        return self._blocks.loads[key]

    def _channel_tile_cycles(
        self, layer: Weighted, tiling: Tiling, channels: int, depths: list[tuple[int, int]]
    ) -> int:
        """Weights of all slices of a channel tile; its parameters come with the first."""
        slices = [(times, self.copied_bytes(layer, channels, depth)) for times, depth in depths]
        weights = sum(times * copy_cycles(nbytes, 1, self.accelerator) for times, nbytes in slices)
        params, first = self.weights_offset(tiling.channels), slices[0][1]
        if self.sliced(tiling) and self.params_together(layer, tiling) < self.window.out_channels:
            return weights + copy_cycles(params, 1, self.accelerator)
        with_params = copy_cycles(params + first, 1, self.accelerator)
        return weights + with_params - copy_cycles(first, 1, self.accelerator)

    def _ifm_loads(self, tiling: Tiling) -> int:
        """The number of loads of each input."""
        stays = tiling.whole_ifm or not self.sliced(tiling)
        one_place = tiling.rows == self.window.rows.ofm and tiling.columns == self.window.columns.ofm
        if not self.window.sums or (stays and (tiling.rows_outer or one_place)):
            return 1
        return ceil_div(self.window.group_channels, tiling.channels)

    def _activation_cycles(self, tiling: Tiling) -> int:
        loads, (brought, stays) = self._ifm_loads(tiling), self._input_cycles(tiling)
        # Where the order of tiles turns, one of them stays.
        return loads * brought - (loads - 1) * self.window.groups * stays + self._output_cycles(tiling)

    def _input_cycles(self, tiling: Tiling) -> Pair:
        """Cycles to bring all inputs once, and to bring the last one."""
        sums = self.window.sums
        channels = (self.window.in_channels if tiling.whole_ifm else tiling.depth) if sums else tiling.channels
        key = tiling.rows, tiling.columns, channels, tiling.packed
        if key not in self._known.loaded:
            inputs, spatial, packed = self.ifm_channels(tiling), self._spatial(tiling), tiling.packed
            brought = sum(
                times * many * self._load_cycles(row, column, channels, packed)
                for times, row, column in spatial
                for many, channels in inputs
            )
            last = self._load_cycles(*spatial[-1][1:], inputs[-1][1], packed) if sums else 0
            self._known.loaded[key] = brought, last
        return self._known.loaded[key]

    def _output_cycles(self, tiling: Tiling) -> int:
        """Cycles to store all outputs."""
        key = tiling.rows, tiling.columns, tiling.channels, tiling.packed
        if key not in self._known.stored:
            total, window = 0, self.window
            for times, row, column in self._spatial(tiling):
                pitch = self.packing(row, column).pitch if tiling.packed else 0
                for many, channels in self._channels(tiling):
                    ofm = (row.size, column.size, channels)
                    total += times * many * self._tile_cycles(ofm, window.columns.ofm, window.out_channels, pitch)
            self._known.stored[key] = total
        return self._known.stored[key]

    def _load_cycles(self, row: Extent, column: Extent, channels: int, packed: bool) -> int:
        """Cycles to bring some channels of the input of a tile."""
        ifm, window = (row.ifm_size, column.ifm_size, channels), self.window
        if not packed:
            return self._tile_cycles(ifm, window.columns.ifm, window.ifm_channels)
        packing = self.packing(row, column)
        fills = transfer_cycles(packing.fills(ifm, self.accelerator), self.accelerator)
        return fills + self._tile_cycles(ifm, window.columns.ifm, window.ifm_channels, packing.pitch)

    def _tile_cycles(self, extents: Extents, width: int, channels: int, pitch: int = 0) -> int:
        key = extents, width, channels, pitch
        if key not in self._known.copies:
            pieces = tile_pieces(extents, width, channels, pitch)
            self._known.copies[key] = pieces.copies * copy_cycles(pieces.nbytes, pieces.rows, self.accelerator)
        return self._known.copies[key]


@lru_cache(maxsize=64)
def _distinct(axis: Axis, size: int) -> list[tuple[Extent, int]]:
    """One tile of each size along the axis, with how often it occurs. Many tilings share an axis's cuts."""
    starts = range(0, axis.ofm, size)
    # Only the tiles at either end read padding: as many outputs as it or the window is long. All between are alike.
    end = max(axis.reach, axis.before, axis.after) + 1
    ends = starts if len(starts) <= 2 * end else (*starts[:end], *starts[-end:])
    extents = [axis.extent(start, min(size, axis.ofm - start)) for start in ends]
    examples = {(extent.size, extent.ifm_size): extent for extent in extents}
    counts = Counter((extent.size, extent.ifm_size) for extent in extents)
    if len(starts) > len(ends):
        middle = axis.extent(starts[end], size)
        examples[middle.size, middle.ifm_size] = middle
        counts[middle.size, middle.ifm_size] += len(starts) - len(ends)
    return [(examples[sizes], count) for sizes, count in counts.items()]
