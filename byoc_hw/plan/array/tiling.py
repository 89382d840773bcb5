"""Tilings of convolution, dense and pooling layers: their local memory and their cost.

A tile is a number of output rows, columns and channels, and for a layer that sums over input
channels a slice of those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, piece_sizes, round_up
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import copy_cycles, dense_job_cycles
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window, parts_of_kernel
from byoc_hw.plan.array.transfers import tile_pieces
from byoc_hw.plan.array.weight_blocks import weights_bytes
from byoc_hw.plan.array.window import Axis, Extent, Extents
from byoc_hw.plan.choices import Tiling


@dataclass(frozen=True)
class LocalLayout:
    """Offsets of the parts of a tile in local memory, and the bytes it takes of each memory."""

    ofm: int
    psum: int
    activation_bytes: int
    weights: int
    weight_bytes: int


@dataclass(frozen=True)
class TilingCost:
    """Cycles of a layer in tiles: of all jobs, and of all copies of activations and of weights."""

    jobs: int
    activations: int
    weights: int

    def cycles(self, tiles: int = 1, blocks: int = 1) -> int:
        """Cycles where so many tiles, and blocks of weights, have room at a time: of what has room twice, the array
        computes one while the DMA copies the next. All else is done in turn."""
        copies = (self.activations, tiles), (self.weights, blocks)
        beside = sum(cycles for cycles, room in copies if room > 1)
        return max(self.jobs, beside) + self.activations + self.weights - beside


@dataclass(frozen=True)
class Tiler:
    """The tilings of one layer with a window on one accelerator."""

    layer: Layer
    window: Window
    accelerator: Accelerator

    @property
    def alignment(self) -> int:
        """The alignment of all starts in local memory, in bytes."""
        return self.accelerator.buffer_alignment

    def layout(self, tiling: Tiling) -> LocalLayout:
        """Inputs at 0, then outputs, then partial sums; parameters at 0, then weights."""
        window = self.window
        _, ifm_channels = self.ifm_channels(tiling)[0]
        pixels = window.rows.largest_ifm(tiling.rows) * window.columns.largest_ifm(tiling.columns)
        outputs = tiling.rows * tiling.columns * tiling.channels
        ofm = round_up(self.layer.ifm.bytes_of(pixels * ifm_channels), self.alignment)
        end = ofm + self.layer.ofm.bytes_of(outputs)
        psum = round_up(end, self.alignment)
        activation_bytes = psum + PSUM_BYTES * outputs if self.has_partial_sums(tiling) else end
        if not isinstance(self.layer, Weighted):
            return LocalLayout(ofm, psum, activation_bytes, 0, 0)
        # Slices share one block with the parameters of all channels.
        weights = self.weights_offset(window.out_channels if self.sliced(tiling) else tiling.channels)
        weight_bytes = weights + self.copied_bytes(self.layer, tiling.channels, tiling.depth)
        return LocalLayout(ofm, psum, activation_bytes, weights, weight_bytes)

    def sliced(self, tiling: Tiling) -> bool:
        """Whether an output tile takes several jobs, one for each slice of input channels."""
        return self.window.sums and tiling.depth < self.window.in_channels

    def has_partial_sums(self, tiling: Tiling) -> bool:
        """Whether an output tile takes several jobs, for slices of input channels or parts of the kernel."""
        return self.sliced(tiling) or len(parts_of_kernel(self.layer, self.accelerator)) > 1

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
        packed = weights_bytes(layer, channels, depth if self.window.sums else 1, self.accelerator)
        return round_up(packed, self.accelerator.dma_alignment)

    def fits(self, tiling: Tiling) -> bool:
        """Whether a tile fits both local memories."""
        layout = self.layout(tiling)
        return (
            layout.activation_bytes <= self.accelerator.whole_words(self.accelerator.activation_memory)
            and layout.weight_bytes <= self.accelerator.weight_memory
        )

    def cycles(self, tiling: Tiling, tiles: int = 1, blocks: int = 1) -> int:
        """Cycles of all copies and jobs, as `TilingCost.cycles`."""
        return self.cost(tiling).cycles(tiles, blocks)

    def cost(self, tiling: Tiling) -> TilingCost:
        """What a layer in such tiles takes."""
        return TilingCost(self._array_cycles(tiling), self._activation_cycles(tiling), self._weight_cycles(tiling))

    # Tiles of one size cost the same: only the few sizes are counted, not every tile.

    def _array_cycles(self, tiling: Tiling) -> int:
        return sum(
            times * many * slices * self._job_cycles(row, column, channels, depth)
            for times, row, column in self._spatial(tiling)
            for many, channels in self._channels(tiling)
            for slices, depth in self._depths(tiling)
        )

    def _spatial(self, tiling: Tiling) -> list[tuple[int, Extent, Extent]]:
        rows = _distinct(self.window.rows, tiling.rows)
        columns = _distinct(self.window.columns, tiling.columns)
        return [(times * more, row, column) for row, times in rows for column, more in columns]

    def _channels(self, tiling: Tiling) -> list[tuple[int, int]]:
        return self._in_each_group(piece_sizes(self.window.group_channels, tiling.channels))

    def _in_each_group(self, pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(many * self.window.groups, size) for many, size in pieces]

    def _depths(self, tiling: Tiling) -> list[tuple[int, int]]:
        return piece_sizes(self.window.in_channels, tiling.depth) if self.window.sums else [(1, 1)]

    def _job_cycles(self, row: Extent, column: Extent, channels: int, depth: int) -> int:
        ifm, ofm = (row.ifm_size, column.ifm_size, depth), (row.size, column.size, channels)
        return dense_job_cycles(self.layer, ifm, ofm, self.accelerator)

    def _weight_cycles(self, tiling: Tiling) -> int:
        if not isinstance(self.layer, Weighted):
            return 0
        tiles = sum(times for times, _, _ in self._spatial(tiling))
        several = tiling.channels < self.window.out_channels
        loads = tiles if self.sliced(tiling) or (several and tiling.rows_outer) else 1
        layer, channel_tiles, stays = self.layer, self._channels(tiling), 0
        each = sum(many * self._channel_tile_cycles(layer, tiling, channels) for many, channels in channel_tiles)
        if self.sliced(tiling):  # a slice stays between tiles of the same channels
            often = tiles - 1 if tiling.rows_outer else (tiles - 1) * sum(many for many, _ in channel_tiles)
            nbytes = self.copied_bytes(layer, channel_tiles[-1][1], self._depths(tiling)[-1][1])
            stays = often * copy_cycles(nbytes, 1, self.accelerator)
        elif loads > 1:  # the last channels stay, or the first ones
            stays = (loads - 1) * self._channel_tile_cycles(layer, tiling, channel_tiles[-1][1])
        return loads * each - stays

    def _channel_tile_cycles(self, layer: Weighted, tiling: Tiling, channels: int) -> int:
        """Weights of all slices of a channel tile; its parameters come with the first."""
        slices = [(times, self.copied_bytes(layer, channels, depth)) for times, depth in self._depths(tiling)]
        weights = sum(times * copy_cycles(nbytes, 1, self.accelerator) for times, nbytes in slices)
        first = slices[0][1]
        with_params = copy_cycles(self.weights_offset(tiling.channels) + first, 1, self.accelerator)
        return weights + with_params - copy_cycles(first, 1, self.accelerator)

    def _ifm_loads(self, tiling: Tiling) -> int:
        """The number of loads of each input."""
        stays = tiling.whole_ifm or not self.sliced(tiling)
        one_place = tiling.rows == self.window.rows.ofm and tiling.columns == self.window.columns.ofm
        if not self.window.sums or (stays and (tiling.rows_outer or one_place)):
            return 1
        return ceil_div(self.window.group_channels, tiling.channels)

    def _activation_cycles(self, tiling: Tiling) -> int:
        window = self.window
        spatial, channel_tiles = self._spatial(tiling), self._channels(tiling)
        loads = self._ifm_loads(tiling)
        _, row, column = spatial[-1]
        smallest = (row.ifm_size, column.ifm_size, self.ifm_channels(tiling)[-1][1])
        stays = self._tile_cycles(smallest, window.columns.ifm, window.ifm_channels) if window.sums else 0
        total = (1 - loads) * self.window.groups * stays  # where the order of tiles turns, one of them stays
        for times, row, column in spatial:
            for many, channels in self.ifm_channels(tiling):
                ifm = (row.ifm_size, column.ifm_size, channels)
                total += times * loads * many * self._tile_cycles(ifm, window.columns.ifm, window.ifm_channels)
            for many, channels in channel_tiles:
                ofm = (row.size, column.size, channels)
                total += times * many * self._tile_cycles(ofm, window.columns.ofm, window.out_channels)
        return total

    def _tile_cycles(self, extents: Extents, width: int, channels: int) -> int:
        pieces = tile_pieces(extents, width, channels)
        return pieces.copies * copy_cycles(pieces.nbytes, pieces.rows, self.accelerator)


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
