"""DMA copies for tensors, their tiles and their permutations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from byoc_hw.plan.array.window import Extents
from byoc_hw.plan.steps import Address, Copy


class Transfer(NamedTuple):
    """One copy between main memory and local memory, either way: byte offsets from the two starts."""

    main: int
    local: int
    nbytes: int
    rows: int = 1
    main_stride: int = 0
    local_stride: int = 0

    def load(self, main: Address, local: Address) -> Copy:
        """The copy into local memory."""
        return Copy(local + self.local, main + self.main, self.nbytes, self.rows, self.local_stride, self.main_stride)

    def store(self, main: Address, local: Address) -> Copy:
        """The copy out of local memory."""
        return Copy(main + self.main, local + self.local, self.nbytes, self.rows, self.main_stride, self.local_stride)


class Box(NamedTuple):
    """A part of an activation tensor [h][w][c] that is dense in local memory."""

    origin: tuple[int, int, int]
    extents: Extents


class Pieces(NamedTuple):
    """The copies of a box: `copies` copies of `rows` rows of `nbytes` bytes."""

    copies: int
    rows: int
    nbytes: int


def tile_pieces(extents: Extents, width: int, channels: int, pitch: int = 0) -> Pieces:
    """The fewest copies for a box of these extents inside rows of `width` x `channels`. In local memory it is dense, or
    its rows lie `pitch` pixels apart."""
    box_height, box_width, box_channels = extents
    in_line = box_height == 1 or (box_width == width and pitch in (0, box_width))
    if box_channels == channels and in_line:
        return Pieces(1, 1, box_height * box_width * channels)
    if box_channels == channels:
        return Pieces(1, box_height, box_width * channels)
    if in_line or box_width == 1:
        return Pieces(1, box_height * box_width, box_channels)
    # Pixels inside a row and rows inside the tensor have different strides: a copy for each row.
    return Pieces(box_height, box_width, box_channels)


def tile_transfers(box: Box, width: int, channels: int, pitch: int = 0, start: int = 0) -> Iterator[Transfer]:
    """The copies between a box of a tensor with rows of this size and its image in local memory, from byte `start` on:
    a dense one, or with rows `pitch` pixels apart."""
    row, column, channel = box.origin
    _, box_width, box_channels = box.extents
    pieces = tile_pieces(box.extents, width, channels, pitch)
    main, local = (row * width + column) * channels + channel, (pitch or box_width) * box_channels
    in_pixels = box_channels < channels and box_width > 1
    main_stride, local_stride = (channels, box_channels) if in_pixels else (width * channels, local)
    for index in range(pieces.copies):
        yield Transfer(
            main + index * width * channels,
            start + index * local,
            pieces.nbytes,
            pieces.rows,
            main_stride,
            local_stride,
        )


def linear_chunks(nbytes: int, limit: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each chunk of at most `limit` bytes."""
    for start in range(0, nbytes, limit):
        yield start, min(limit, nbytes - start)


# ---------------------------------------------------------------- permutations


class Strided(NamedTuple):
    """Copies of `rows` rows of `nbytes` bytes, one for each index of the dimensions in `looped`: of each of these the
    count, and the bytes from one index to the next in main memory and in local memory."""

    nbytes: int
    rows: int
    main_stride: int
    local_stride: int
    looped: tuple[tuple[int, int, int], ...]

    @property
    def copies(self) -> int:
        """Their number."""
        return prod(count for count, _, _ in self.looped)

    def keeps(self, alignment: int) -> bool:
        """Whether lengths and strides are multiples of a number of bytes."""
        strides = (stride for _, *both in self.looped for stride in both)
        return not any(value % alignment for value in (self.nbytes, self.main_stride, self.local_stride, *strides))

    def transfers(self, start: int = 0) -> Iterator[Transfer]:
        """The copies, from byte `start` of main memory on."""
        for indices in product(*(range(count) for count, _, _ in self.looped)):
            main = start + sum(index * stride for index, (_, stride, _) in zip(indices, self.looped, strict=True))
            local = sum(index * stride for index, (_, _, stride) in zip(indices, self.looped, strict=True))
            yield Transfer(main, local, self.nbytes, self.rows, self.main_stride, self.local_stride)


def strided(
    counts: tuple[int, ...], main_strides: tuple[int, ...], local_strides: tuple[int, ...]
) -> Iterator[Transfer]:
    """The fewest copies for a box of elements of a byte with these strides on either side."""
    return merged(zip(counts, main_strides, local_strides, strict=True)).transfers()


def merged(box: Iterable[tuple[int, int, int]]) -> Strided:
    """The same for a box by dimension: its count, and the strides in main memory and in local memory."""
    dimensions: list[tuple[int, int, int]] = []
    for count, main, local in box:
        if count == 1:
            continue
        if dimensions and dimensions[-1][1:] == (main * count, local * count):
            dimensions[-1] = dimensions[-1][0] * count, main, local
        else:
            dimensions.append((count, main, local))
    nbytes = next((count for count, main, local in dimensions if main == local == 1), 1)
    looped = sorted(dimension for dimension in dimensions if dimension[1:] != (1, 1))
    rows, main_stride, local_stride = looped.pop() if looped else (1, 0, 0)
    return Strided(nbytes, rows, main_stride, local_stride, tuple(looped))


@dataclass(frozen=True)
class Permutation:
    """Bytes reordered: `axes[i]` is the dimension of the input that dimension i of the output is."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def output_strides(self) -> tuple[int, ...]:
        """By dimension of the input: bytes from one index to the next in the output."""
        strides = dense_strides(tuple(self.shape[axis] for axis in self.axes))
        return tuple(strides[self.axes.index(dimension)] for dimension in range(len(self.shape)))

    def then(self, other: Permutation) -> Permutation | None:
        """Both, one after the other, of which the second takes the bytes in any dimensions; None where no dimensions
        are those of both."""
        made = tuple(self.shape[axis] for axis in self.axes)
        parts = _parts_of_both(made, other.shape)
        if parts is None:
            return None
        read = [part for axis in range(len(made)) for part in parts if part.first == self.axes.index(axis)]
        written = [part for axis in other.axes for part in parts if part.second == axis]
        return Permutation(tuple(part.size for part in read), tuple(map(read.index, written)))


class _Part(NamedTuple):
    """Elements that are part of a dimension of one shape, and of one of another shape."""

    size: int
    first: int
    second: int
    inside: int  # elements from one index to the next


def _parts_of_both(one: tuple[int, ...], other: tuple[int, ...]) -> list[_Part] | None:
    """The dimensions of which both shapes are made, in order; None if there are none."""
    found, inside = list[_Part](), 1
    left, places = [list(one), list(other)], [len(one) - 1, len(other) - 1]
    while max(places) >= 0:
        for shape, side in zip(left, (0, 1), strict=True):
            while places[side] >= 0 and shape[places[side]] == 1:
                places[side] -= 1
        if min(places) < 0:
            break
        sizes = [shape[place] for shape, place in zip(left, places, strict=True)]
        size = min(sizes)
        if max(sizes) % size:
            return None
        found.append(_Part(size, places[0], places[1], inside))
        inside *= size
        for shape, place in zip(left, places, strict=True):
            shape[place] //= size
    return found[::-1]


def canonical(shape: tuple[int, ...], axes: tuple[int, ...], itemsize: int = 1) -> Permutation:
    """The same reordering with the fewest dimensions.

    Dimensions of one element go, and dimensions that stay neighbours become one, so that
    (1, C, H, W) to (1, H, W, C) is a 2-D transposition of C x HW. An element's bytes are an
    innermost dimension that never moves.
    """
    sizes, order = (*shape, itemsize), (*axes, len(axes))
    rank = {axis: index for index, axis in enumerate(axis for axis, size in enumerate(sizes) if size > 1)}
    groups: list[list[int]] = []
    for axis in (axis for axis in order if axis in rank):
        if groups and rank[axis] == rank[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    by_input = sorted(groups)
    return Permutation(
        tuple(prod(sizes[axis] for axis in group) for group in by_input) or (1,),
        tuple(by_input.index(group) for group in groups) or (0,),
    )


def slabs(shape: tuple[int, ...], limit: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut a dense array into contiguous boxes of at most `limit` bytes: origin and extents of each."""
    inner = prod(shape[1:])
    if inner > limit:
        for index in range(shape[0]):
            for origin, extents in slabs(shape[1:], limit):
                yield (index, *origin), (1, *extents)
        return
    for start, count in linear_chunks(shape[0], limit // inner):
        yield (start, *(0 for _ in shape[1:])), (count, *shape[1:])


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one index of each dimension to the next, where nothing lies between."""
    return tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
