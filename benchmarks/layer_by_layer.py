"""The cycles of a region without overlap: copy in, compute, copy out, layer by layer.

Layers are not swapped or flattened. A layer that does not fit local memories is cut into tiles of whole
rows and of output channels, the cheapest that fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from plans import alone, flash_bytes

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import Alias, Run, Window, geometry, job_cycles
from byoc_hw.plan.order.timeline import timeline


def layer_by_layer(graph: Graph, accelerator: Accelerator) -> int:
    """Cycles of all layers. A layer that no such tiling fits takes the cycles of its own plan."""
    return sum(_layer_cycles(layer, accelerator) for layer in graph.layers)


def _layer_cycles(layer: Layer, accelerator: Accelerator) -> int:
    form = geometry(layer)
    if isinstance(form, Alias):
        return 0
    if isinstance(form, Window):
        fitting = _tilings(layer, form, accelerator)
    elif isinstance(form, Run):
        fitting = _runs(layer, accelerator)
    else:
        fitting = iter(())
    cycles = min(fitting, default=None)
    if cycles is not None:
        return cycles
    plan = alone(layer, accelerator)
    assert plan is not None
    return timeline(plan, accelerator).total


def _runs(layer: Layer, accelerator: Accelerator) -> Iterator[int]:
    """Cycles of an element-wise layer, in the longest runs of pixels that fit."""
    channels, tensors = layer.ofm.shape[-1], len(layer.inputs) + 1
    pixels, most = layer.ofm.elements // channels, accelerator.activation_memory // (tensors * channels)
    if most:
        yield sum(
            count * (tensors * copy_cycles(size * channels, 1, accelerator) + job_cycles(layer, run, run, accelerator))
            for size, count in _sizes(pixels, most).items()
            for run in [(1, size, channels)]
        )


def _tilings(layer: Layer, window: Window, accelerator: Accelerator) -> Iterator[int]:
    """Cycles of the tilings that fit, each with rows and with channels as the outer loop."""
    channels = window.out_channels
    slices = [*range(1, accelerator.array_rows), *range(accelerator.array_rows, channels, accelerator.array_rows)]
    for rows, size in product(range(1, window.rows.ofm + 1), [channels, *slices]):
        tiling = _Tiling(layer, window, rows, size, accelerator)
        if tiling.fits():
            yield tiling.cycles(rows_outer=False)
            yield tiling.cycles(rows_outer=True)


class _Tiling:
    """Tiles of `rows` output rows and `channels` output channels; tiles of equal size are computed once."""

    def __init__(self, layer: Layer, window: Window, rows: int, channels: int, accelerator: Accelerator) -> None:
        self.layer, self.window, self.accelerator = layer, window, accelerator
        self.rows = Counter((extent.ifm_size, extent.size) for extent in window.rows.cut(rows))
        self.channels = _sizes(window.out_channels, channels)

    def fits(self) -> bool:
        """Whether the largest tile fits local memories."""
        (ifm, ofm), channels = max(self.rows), max(self.channels)
        activations = self._ifm_bytes(ifm, channels) + ofm * self.window.columns.ofm * channels
        weights = self._weight_bytes(channels)
        return activations <= self.accelerator.activation_memory and weights <= self.accelerator.weight_memory

    def cycles(self, *, rows_outer: bool) -> int:
        """Cycles of all tiles. The inner loop reloads its data in each outer iteration, unless it is one tile."""
        row_tiles, channel_tiles = self.rows.total(), self.channels.total()
        weights = sum(n * self._load_weights(size) for size, n in self.channels.items())
        cycles = weights * (row_tiles if rows_outer and channel_tiles > 1 else 1)
        for (ifm, ofm), n in self.rows.items():
            if self.window.sums:
                turns = 1 if rows_outer or row_tiles == 1 else channel_tiles
                cycles += n * turns * self._move(ifm * self.window.columns.ifm, self.window.in_channels, whole=True)
            for size, m in self.channels.items():
                cycles += n * m * self._tile(ifm, ofm, size)
        return cycles

    def _tile(self, ifm: int, ofm: int, channels: int) -> int:
        """Cycles of the job, of copying its output, and its input if output channels do not share it."""
        window, whole = self.window, channels == self.window.out_channels
        depth = window.in_channels if window.sums else channels
        job = job_cycles(
            self.layer, (ifm, window.columns.ifm, depth), (ofm, window.columns.ofm, channels), self.accelerator
        )
        load = 0 if window.sums else self._move(ifm * window.columns.ifm, channels, whole=whole)
        return load + job + self._move(ofm * window.columns.ofm, channels, whole=whole)

    def _move(self, pixels: int, channels: int, *, whole: bool) -> int:
        """Cycles of copying pixels: as one row, or for a slice of the channels one row per pixel."""
        nbytes, rows = (pixels * channels, 1) if whole else (channels, pixels)
        return copy_cycles(nbytes, rows, self.accelerator)

    def _load_weights(self, channels: int) -> int:
        nbytes = self._weight_bytes(channels)
        return copy_cycles(nbytes, 1, self.accelerator) if nbytes else 0

    def _ifm_bytes(self, rows: int, channels: int) -> int:
        return rows * self.window.columns.ifm * (self.window.in_channels if self.window.sums else channels)

    def _weight_bytes(self, channels: int) -> int:
        return flash_bytes(self.layer) // self.window.out_channels * channels


def _sizes(total: int, size: int) -> Counter[int]:
    """The sizes of the pieces that `total` is cut into, with their counts."""
    return Counter(min(size, total - start) for start in range(0, total, size))
