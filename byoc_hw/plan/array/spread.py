"""Transpositions that the stores of a layer do: where the channels of each pixel lie in the transposed tensor.

A layer's output has rows, columns and channels. Where a transposition moves rows to rows that are equally far apart,
columns likewise, and channels in runs, one copy stores a run of channels of all pixels of a row. So a transposed
convolution, whose pixels come from channels, and what splits the heads of an attention, store what they make where it
is read, and nobody loads it in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import inf, prod
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Transpose
from byoc_hw.plan.array.cost import transfer_cycles
from byoc_hw.plan.array.transfers import Box, Permutation, Transfer, dense_strides, strided
from byoc_hw.plan.array.window import Extents

MOST_RUNS = 512
"""The most runs of channels of a pixel: each of them is a copy."""


class Spread(NamedTuple):
    """Where a run of channels, from the `first` one to `stop`, not included, lies in another tensor: byte `offset` for
    the first one of the first pixel, and bytes from one row, pixel and channel to the next."""

    first: int
    stop: int
    offset: int
    strides: tuple[int, int, int]

    def of_channels(self, first: int, stop: int) -> Spread | None:
        """What some channels have of the run; None if they have nothing of it."""
        begin, end = max(self.first, first), min(self.stop, stop)
        offset = self.offset + (begin - self.first) * self.strides[2]
        return self._replace(first=begin, stop=end, offset=offset) if begin < end else None

    def from_channel(self, first: int) -> Spread:
        """The same, with channels counted from one of them on."""
        return self._replace(first=self.first - first, stop=self.stop - first)

    def of_rows(self, rows: int, width: int, channels: int, pitch: int = 0) -> Iterator[Transfer]:
        """The copies of some rows of an image, from the first one on. In local memory they follow each other, or lie
        `pitch` pixels apart."""
        local = (pitch or width) * channels, channels, 1
        return strided((rows, width, self.stop - self.first), self.strides, local)

    def of_box(self, box: Box, width: int, pitch: int, *, in_line: bool) -> Iterator[Transfer]:
        """The copies of what a box of the image, whose rows have `width` pixels, has of the run. In local memory it is
        dense, or its rows lie `pitch` pixels apart. `in_line` the box is of an image that is taken as one row."""
        (row, column, channel), (height, pixels, channels) = box
        run = self.of_channels(channel, channel + channels)
        if run is None:
            return
        local = (pitch or pixels) * channels, channels, 1
        parts = _lines(column, pixels, width) if in_line else [(row, column, height, pixels)]
        for top, left, rows, columns in parts:
            done = (top * width + left - column) * channels if in_line else 0
            strides = (width * channels, channels, 1) if in_line else local
            for move in strided((rows, columns, run.stop - run.first), run.strides, strides):
                main = run.offset + top * run.strides[0] + left * run.strides[1]
                yield move._replace(main=move.main + main, local=move.local + done + run.first - channel)


class _Dimension(NamedTuple):
    size: int
    inner: int  # elements from one index to the next in the input
    outer: int  # and in the output


def spreads(turned: Permutation, image: Extents) -> list[Spread] | None:
    """Where a transposition puts the channels of the pixels of an image, whose elements it takes as they lie; None
    where rows or columns come to lie at several distances, or runs are too many."""
    _, width, channels = image
    shape, outer = turned.shape, turned.output_strides
    rows, columns, depths = list[_Dimension](), list[_Dimension](), list[_Dimension]()
    whole = map(_Dimension, shape, dense_strides(shape), outer)
    halved = (half for dimension in whole for half in _cut(dimension, width * channels))
    for dimension in (half for one in halved for half in _cut(one, channels)):
        if dimension.size == 1:
            continue
        ends = dimension.size * dimension.inner
        if dimension.inner >= width * channels:
            rows.append(dimension)
        elif channels <= dimension.inner and ends <= width * channels:
            columns.append(dimension)
        elif ends <= channels:
            depths.append(dimension)
        else:
            return None
    row, pixel, run = _stride(rows), _stride(columns), 1
    while depths and depths[-1].inner == depths[-1].outer == run:
        run *= depths.pop().size
    channel = 1
    if run == 1 and depths and depths[-1].inner == 1:
        run, _, channel = depths.pop()
    if row is None or pixel is None or prod(one.size for one in depths) > MOST_RUNS:
        return None
    return [
        Spread(first, first + run, offset, (row, pixel, channel))
        for first, offset in (_at(index, depths) for index in product(*(range(one.size) for one in depths)))
    ]


def stored_cycles(layer: Transpose, image: Extents, accelerator: Accelerator) -> float:
    """Cycles of the DMA where an image is stored as the output of a transposition; infinite where it cannot be."""
    found = spreads(Permutation(layer.ifm.shape, layer.axes), image)
    if found is None:
        return inf
    return transfer_cycles((move for one in found for move in one.of_rows(*image)), accelerator)


def _cut(dimension: _Dimension, elements: int) -> list[_Dimension]:
    """A dimension in two where it goes over the end of so many elements, as all pixels over the end of a row."""
    size, inner, outer = dimension
    if not inner < elements < size * inner or elements % inner or size * inner % elements:
        return [dimension]
    inside = elements // inner
    return [_Dimension(size // inside, elements, outer * inside), _Dimension(inside, inner, outer)]


def _stride(dimensions: Sequence[_Dimension]) -> int | None:
    """The distance of all elements of some dimensions in the output, 0 for a single one; None if there are several."""
    for one, other in pairwise(dimensions):
        if one.outer != other.size * other.outer:
            return None
    return dimensions[-1].outer if dimensions else 0


def _at(index: Sequence[int], dimensions: Sequence[_Dimension]) -> tuple[int, int]:
    """An element of some dimensions in the input and in the output."""
    pairs = list(zip(index, dimensions, strict=True))
    return sum(place * one.inner for place, one in pairs), sum(place * one.outer for place, one in pairs)


def _lines(first: int, pixels: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    """The boxes of pixels that follow each other in rows of `width`: to the end of the first row, whole rows, and the
    rest. Of each its row, column, height and width."""
    stop = first + pixels
    while first < stop:
        row, column = divmod(first, width)
        rows = (stop - first) // width if column == 0 else 0
        columns = width if rows else min(width - column, stop - first)
        yield row, column, rows or 1, columns
        first += (rows or 1) * columns


def spread_within(
    spread: Spread, pixels: tuple[int, int], part: Extents, whole: Extents, at: Extents
) -> list[Spread] | None:
    """The same for a tensor that lies in another one, from a row, column and channel of it on. `pixels` are the rows
    and columns that are spread. None where these lie at several distances there."""
    _, width, channels = part
    _, around, depth = whole
    if (width, channels) == (around, depth):
        start = (at[0] * around + at[1]) * depth + at[2]
        return [spread._replace(offset=start + spread.offset)]
    found = []
    for first, stop, offset in _in_pixels(spread, channels):
        row, rest = divmod(offset, width * channels)
        column, channel = divmod(rest, channels)
        strides = list[int]()
        for many, stride in zip(pixels, spread.strides, strict=False):
            if many == 1 or stride % (width * channels) == 0:
                strides.append(stride // (width * channels) * around * depth)
            elif stride % channels == 0:
                strides.append(stride // channels * depth)
                column += (many - 1) * stride // channels
            else:
                strides.append(stride)
                channel += (many - 1) * stride
        if column >= width or channel + stop - first > channels:
            return None
        row, column, channel = row + at[0], rest // channels + at[1], rest % channels + at[2]
        found.append(Spread(first, stop, (row * around + column) * depth + channel, (strides[0], strides[1], 1)))
    return found


def _in_pixels(spread: Spread, channels: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a run that lie in one pixel each, without gaps: their first channels, the ends of them and where
    they lie."""
    first, offset, apart = spread.first, spread.offset, spread.strides[2]
    while first < spread.stop:
        stop = min(first + channels - offset % channels, spread.stop) if apart == 1 else first + 1
        yield first, stop, offset
        first, offset = stop, offset + (stop - first) * apart
