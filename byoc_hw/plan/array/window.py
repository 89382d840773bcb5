"""The geometry of a sliding window: the inputs and the padding that a tile of outputs reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from byoc_hw.integers import ceil_div
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Tensor

Extents = tuple[int, int, int]
"""Height, width and channels."""


def extents(tensor: Tensor) -> Extents:
    """Height, width and channels of an activation tensor of any rank: further dimensions count as height, and pixels of
    a tensor that is no image are rows, as stripes are of rows."""
    if len(tensor.shape) < 4:
        shape = (1, *tensor.shape)
        return prod(shape[:-1]), 1, shape[-1]
    return prod(tensor.shape[:-2]), tensor.shape[-2], tensor.shape[-1]


def box_within(
    whole: Sequence[int], box: Sequence[int], begin: Sequence[int], steps: Sequence[int] | None = None
) -> tuple[Extents, Extents] | None:
    """Where a box of a tensor begins, and its steps, by the height, width and channels of both: from shapes and places
    by dimension. None where the rows of the box are not equally far apart."""
    dimensions = list(zip(whole, box, begin, steps or [1] * len(whole), strict=True))
    if len(whole) < 4:  # as extents has them
        dimensions[-1:-1] = [(1, 1, 0, 1)]
    *outer, (_, _, column, along), (_, _, channel, inward) = [(1, 1, 0, 1)] * 2 + dimensions
    first, step, rows, stride = 0, 1, 1, 1
    for size, count, at, by in reversed(outer):
        if count > 1 and rows > 1 and by * stride != step * rows:
            return None
        step = by * stride if count > 1 and rows == 1 else step
        first, rows, stride = first + at * stride, rows * count, stride * size
    return (first, column, channel), (step, along, inward)


@kept_in_first
def row_bytes(tensor: Tensor) -> int:
    """Bytes of one row of a tensor."""
    _, width, channels = extents(tensor)
    return tensor.bytes_of(width * channels)


class Place(NamedTuple):
    """Where the rows of a tensor lie in bytes that may hold other tensors as well.

    The first of `height` rows starts at byte `offset`; bytes from one `row` to the next, from one `pixel` to the
    next, and `reach` from the start of a row to its end.
    """

    offset: int
    row: int
    pixel: int
    height: int
    reach: int

    @property
    def interleaved(self) -> bool:
        """Whether each row has its pixels among those of the other rows."""
        return self.height > 1 and self.row < self.pixel

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The bytes from row `first` to row `stop`, not included."""
        return self.offset + first * self.row, self.offset + (stop - 1) * self.row + self.reach

    def rows(self, start: int, stop: int) -> tuple[int, int]:
        """The rows of which any byte lies from `start` to `stop`, not included."""
        first = max((start - self.offset - self.reach) // self.row + 1, 0)
        return first, min(ceil_div(stop - self.offset, self.row), self.height)


@kept_in_first
def dense_place(tensor: Tensor) -> Place:
    """The place of a tensor that has its bytes for itself."""
    row = row_bytes(tensor)
    return Place(0, row, tensor.bytes_of(extents(tensor)[2]), extents(tensor)[0], row)


class Extent(NamedTuple):
    """A tile along one spatial axis: its outputs, the inputs that they read, the padding at each end."""

    start: int
    size: int
    ifm_start: int
    ifm_size: int
    pad_before: int
    pad_after: int


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a layer: `before` elements of padding, then `ifm` elements of input.

    `before` is below 0 where the first window does not see the first inputs.
    """

    ifm: int
    ofm: int
    kernel: int
    stride: int
    before: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Elements from the first to the last of a window, those included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def after(self) -> int:
        """Elements of padding behind the input that the last window sees; below 0 for inputs that it does not see."""
        return (self.ofm - 1) * self.stride + self.reach - self.before - self.ifm

    def part(self, first: int, count: int) -> Axis:
        """The axis under a part of the kernel: `count` elements of it, from `first` on."""
        if (first, count) == (0, self.kernel):
            return self
        return replace(self, kernel=count, before=self.before - first * self.dilation)

    def extent(self, start: int, size: int) -> Extent:
        """The tile of outputs `start` to `start + size`, without inputs that no output reads.

        There is always an input. Of outputs that see padding only it is the nearest, behind all of their padding.
        """
        first = start * self.stride - self.before
        stop = (start + size - 1) * self.stride - self.before + self.reach
        ifm_start, ifm_stop = max(first, 0), min(stop, self.ifm)
        if ifm_start >= ifm_stop:
            return Extent(start, size, 0 if stop <= 0 else self.ifm - 1, 1, stop - first, 0)
        return Extent(start, size, ifm_start, ifm_stop - ifm_start, ifm_start - first, stop - ifm_stop)

    def cut(self, size: int) -> list[Extent]:
        """The axis in tiles of `size` outputs; the last one may be smaller."""
        return [self.extent(start, min(size, self.ofm - start)) for start in range(0, self.ofm, size)]

    def largest_ifm(self, size: int) -> int:
        """The most inputs that a tile of `size` outputs reads."""
        return min(self.ifm, (size - 1) * self.stride + self.reach)
