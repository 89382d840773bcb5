"""What neighbouring portions of a group share, the halo: lines that both need are computed, or copied, again.

Outputs on both sides of a border between two stripes see some inputs in common, as many as the kernel reaches beyond
the stride. Of patches each layer computes all lines of a piece that the layers behind it need of it, along rows and
along columns by itself; the pieces are those of the last output, all of one size but for the last one.

The array computes a pixel at least in as many cycles as its part of full groups of outputs (`ways.py`). Rows are packed
in no patches, so that each row of a box there takes whole groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.window import Axis, extents
from byoc_hw.plan.bound.ways import Floats, Groups, Ints, groups, least_of_elements


@lru_cache(maxsize=1 << 12)
def shared(axis: Axis, borders: int) -> int | None:
    """The fewest inputs that outputs on both sides of so many borders see in common, in all; None of too many."""
    if borders >= axis.ofm:
        return None
    border = np.arange(1, axis.ofm) * axis.stride - axis.before
    stop = np.minimum(border - axis.stride + axis.reach, axis.ifm)
    each = np.sort(np.maximum(stop - np.maximum(border, 0), 0))
    return int(each[:borders].sum())


def stored_of_shared(axis: Axis) -> float:
    """The part of shared inputs that are stored at least where they are kept: each one is shared at so many borders."""
    return 1 / max(ceil_div(axis.reach - axis.stride, axis.stride), 1)


# ---------------------------------------------------------------- patches


@dataclass(frozen=True)
class LinesNeeded:
    """The lines that are needed of a tensor along one axis, from `first` to `stop` (not included), for each piece of
    the last output, in pieces of any size: those of a size are in a row, from `begins` on."""

    first: Ints
    stop: Ints
    begins: Ints

    def read(self, axis: Axis) -> LinesNeeded:
        """What a window reads for these outputs."""
        first = self.first * axis.stride - axis.before
        stop = (self.stop - 1) * axis.stride - axis.before + axis.reach
        first = np.clip(first, 0, axis.ifm - 1)
        return LinesNeeded(first, np.clip(stop, first + 1, axis.ifm), self.begins)

    def single(self) -> LinesNeeded:
        """One line for each piece."""
        return LinesNeeded(np.zeros_like(self.first), np.ones_like(self.first), self.begins)

    def beside(self, other: LinesNeeded) -> LinesNeeded:
        """What two layers need, with all that lies between."""
        return LinesNeeded(np.minimum(self.first, other.first), np.maximum(self.stop, other.stop), self.begins)

    def lines(self) -> Ints:
        """The lines of all pieces, for each size."""
        return np.add.reduceat(self.stop - self.first, self.begins)

    def runs(self, columns: int) -> Ints:
        """The runs of so many lines that cover the pieces, for each size."""
        return np.add.reduceat(-(-(self.stop - self.first) // columns), self.begins)


@lru_cache(maxsize=1024)
def lines_needed(lines: int) -> LinesNeeded:
    """An output of so many lines in pieces of each size that `sizes` has, in its order."""
    pieces = [np.arange(0, lines, size) for size in sizes(lines)]
    stops = [np.minimum(first + size, lines) for first, size in zip(pieces, sizes(lines), strict=True)]
    begins = np.cumsum([0, *map(len, pieces[:-1])])
    return LinesNeeded(np.concatenate(pieces), np.concatenate(stops), begins)


@lru_cache(maxsize=1024)
def sizes(count: int) -> Ints:
    """The sizes of pieces that cut so many evenly, in growing order."""
    return np.array(sorted({ceil_div(count, many) for many in range(1, count + 1)}))


# ---------------------------------------------------------------- the array


def pixel_cycles(layer: Layer, one: Accelerator) -> float:
    """The least cycles of the array for a pixel of a layer's output, all channels, where groups are full."""
    if not isinstance(layer, Weighted):
        height, width, _ = extents(layer.ofm)
        return least_of_elements(layer, one) / (height * width)
    some = (groups(layer, one, turned) for turned in (False, True))
    return min(_of_channels(layer, each) / each.outputs for each in some)


def patch_cycles(layer: Layer, rows: LinesNeeded, columns: LinesNeeded, apart: Accelerator) -> Floats:
    """The least cycles of the array for all patches, for each size of pieces along rows and along columns; `apart` is
    the accelerator without packed rows. All in one piece counts as nothing: its rows may be packed."""
    found: Floats
    if isinstance(layer, Weighted) and not is_pointwise(layer):
        straight, turned = (_of_channels(layer, groups(layer, apart, one)) for one in (False, True))
        found = np.minimum(
            straight * np.outer(rows.lines(), columns.runs(apart.array_columns)),
            turned * np.outer(rows.runs(apart.array_columns), columns.lines()),
        )
    else:
        found = np.outer(rows.lines(), columns.lines()) * pixel_cycles(layer, apart)
    found[-1, -1] = 0.0
    return found


def _of_channels(layer: Weighted, some: Groups) -> float:
    """Cycles of as many groups as the channels of an output take."""
    return ceil_div(layer.group_channels, some.channels) * layer.groups * some.cycles
