"""Transpositions that the stores of a layer do: where the channels of each pixel lie in the transposed tensor.

A layer's output has rows, columns and channels. Where a transposition moves rows to rows that are equally far apart,
columns likewise, and channels in runs, one copy stores a run of channels of all pixels of a row. So a transposed
convolution, whose pixels come from channels, and what splits the heads of an attention, store what they make where it is
read, and nobody loads it in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from byoc_hw.plan.array.transfers import Permutation, dense_strides
from byoc_hw.plan.array.window import Extents

MOST_RUNS = 512
"""The most runs of channels of a pixel: each of them is a copy."""


class Spread(NamedTuple):
    """Where a run of `channels` channels, from the `first` one on, lies in another tensor: byte `offset` for the first
    pixel, and bytes from one row, and from one pixel, to the next."""

    first: int
    channels: int
    offset: int
    row: int
    pixel: int

    @property
    def strides(self) -> tuple[int, int, int]:
        """The strides of a row, a pixel and a channel."""
        return self.row, self.pixel, 1


class _Dimension(NamedTuple):
    count: int
    inner: int  # elements from one index to the next in the input
    outer: int  # and in the output


def spreads(shape: tuple[int, ...], axes: tuple[int, ...], image: Extents) -> list[Spread] | None:
    """Where a transposition of `shape` to `axes` puts the channels of the pixels of an image, whose elements it takes
    as they lie; None where rows or columns come to lie at several distances, or runs are too many."""
    _, width, channels = image
    outer = Permutation(shape, axes).output_strides
    rows, columns, depths = list[_Dimension](), list[_Dimension](), list[_Dimension]()
    for dimension in map(_Dimension, shape, dense_strides(shape), outer):
        if dimension.count == 1:
            continue
        ends = dimension.count * dimension.inner
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
        run *= depths.pop().count
    if row is None or pixel is None or prod(one.count for one in depths) > MOST_RUNS:
        return None
    return [
        Spread(_at(index, depths, "inner"), run, _at(index, depths, "outer"), row, pixel)
        for index in product(*(range(one.count) for one in depths))
    ]


def _stride(dimensions: Sequence[_Dimension]) -> int | None:
    """The distance of all elements of some dimensions in the output, 0 for a single one; None if there are several."""
    for one, other in zip(dimensions, dimensions[1:], strict=False):
        if one.outer != other.count * other.outer:
            return None
    return dimensions[-1].outer if dimensions else 0


def _at(index: Sequence[int], dimensions: Sequence[_Dimension], side: str) -> int:
    return sum(place * getattr(one, side) for place, one in zip(index, dimensions, strict=True))


def within(spread: Spread, pixels: tuple[int, int], part: Extents, whole: Extents, at: Extents) -> list[Spread] | None:
    """The same for a tensor that lies in another one, from a row, column and channel of it on. `pixels` are the rows and
    columns that are spread. None where these lie at several distances there."""
    _, width, channels = part
    _, around, depth = whole
    if (width, channels) == (around, depth):
        start = (at[0] * around + at[1]) * depth + at[2]
        return [spread._replace(offset=start + spread.offset)]
    found = []
    for first, count, offset in _in_pixels(spread, channels):
        row, rest = divmod(offset, width * channels)
        column, channel = divmod(rest, channels)
        strides = list[int]()
        for many, stride in zip(pixels, (spread.row, spread.pixel), strict=True):
            if many == 1 or stride % (width * channels) == 0:
                strides.append(stride // (width * channels) * around * depth)
            elif stride % channels == 0:
                strides.append(stride // channels * depth)
                column += (many - 1) * stride // channels
            else:
                strides.append(stride)
                channel += (many - 1) * stride
        if column >= width or channel + count > channels:
            return None
        row, column, channel = row + at[0], rest // channels + at[1], rest % channels + at[2]
        found.append(Spread(first, count, (row * around + column) * depth + channel, *strides))
    return found


def _in_pixels(spread: Spread, channels: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a run that lie in one pixel each: their first channels, their sizes and where they lie."""
    done = 0
    while done < spread.channels:
        offset = spread.offset + done
        count = min(channels - offset % channels, spread.channels - done)
        yield spread.first + done, count, offset
        done += count
