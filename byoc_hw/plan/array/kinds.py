"""The geometry of each layer kind, and the cycles of its jobs.

The only code in `plan/` that depends on the layer kind. The rest asks `geometry` which of six forms a
layer has, or whether it is `Weighted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from typing_extensions import assert_never

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import (
    Add,
    Concat,
    Conv2d,
    Convolution,
    Dense,
    DepthwiseConv2d,
    Gather,
    Layer,
    Lookup,
    MatMul,
    Mul,
    Ordering,
    Pad,
    Pool2d,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Suppression,
    Transpose,
    Weighted,
)
from byoc_hw.integers import ceil_div
from byoc_hw.limits import MOST_PADDING, KernelPart, Limits
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.window import Axis, Extents
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Pair

PSUM_BYTES = 4
"""Bytes of one partial sum, an int32."""


@dataclass(frozen=True)
class Window:
    """A layer whose jobs slide a window over height and width.

    `sums` is true for layers in which every output channel sums over all `in_channels` of its group, false for
    those that work channel by channel. A job is inside one of the `groups`.
    """

    rows: Axis
    columns: Axis
    in_channels: int
    out_channels: int
    sums: bool
    groups: int = 1

    @property
    def ifm_channels(self) -> int:
        """Channels of the whole input."""
        return self.in_channels * self.groups

    @property
    def group_channels(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.groups

    def channels(self, size: int) -> list[tuple[int, int]]:
        """The output channels in pieces of at most `size` that are inside a group each: the first, and the number."""
        group = self.group_channels
        return [
            (start + first, count)
            for start in range(0, self.out_channels, group)
            for first, count in linear_chunks(group, size)
        ]

    def first_input(self, channel: int) -> int:
        """The first input channel that an output channel sums over."""
        return channel // self.group_channels * self.in_channels


@dataclass(frozen=True)
class Run:
    """An element-wise layer, whose jobs take one run of elements of each input.

    A run is a multiple of `each` elements. A job reads each output's inputs
    `reads` times in all. With `repeats`, all of the second input is `each` elements, which every job reads.
    """

    each: int
    reads: int
    repeats: bool = False

    def shape(self, elements: int) -> Extents:
        """The extents of a job over a number of elements."""
        return 1, elements // self.each, self.each


@dataclass(frozen=True)
class Product:
    """A matrix product, whose jobs compute rows of one item: from as many rows of its input, and all of the item of
    its second input, which is `channels` vectors of `depth`. An item has `rows` rows."""

    items: int
    rows: int
    depth: int
    channels: int

    @property
    def item_bytes(self) -> int:
        """Bytes of an item of the second input."""
        return self.channels * self.depth

    @property
    def vectors(self) -> tuple[int, int]:
        """Bytes of a row of the input and of the output."""
        return self.depth, self.channels

    def items_of(self, rows: tuple[int, int]) -> tuple[int, int]:
        """The items of the second input that a range of output rows reads."""
        return rows[0] // self.rows, ceil_div(rows[1], self.rows)

    def cut(self, rows: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """A range of rows by item: first row, number of rows."""
        for item in range(*self.items_of(rows)):
            first = max(rows[0], item * self.rows)
            yield first, min(rows[1], (item + 1) * self.rows) - first

    def shapes(self, rows: int) -> tuple[Extents, Extents]:
        """Input and output of a job over a number of rows: each is a pixel of one line."""
        return (1, rows, self.depth), (1, rows, self.channels)


@dataclass(frozen=True)
class CopiesOnly:
    """A layer without jobs: its copies move bytes to other places, from main memory to main memory."""


@dataclass(frozen=True)
class Alias:
    """A layer without jobs or copies: its output is its input's bytes."""


@dataclass(frozen=True)
class Entire:
    """A layer that an accelerator takes as a whole, from main memory to main memory: without tiles."""


Geometry = Window | Run | Product | CopiesOnly | Alias | Entire


@kept_in_first
def geometry(layer: Layer) -> Geometry:
    """The form of a layer. Raises `PlanError` for a geometry that a tile cannot describe."""
    match layer:
        case Conv2d():
            return replace(_window(layer, sums=True), in_channels=layer.in_channels, groups=layer.groups)
        case DepthwiseConv2d() | Pool2d():
            if isinstance(layer, Pool2d) and layer.dilation != (1, 1):
                raise PlanError(f"{layer.name}: dilation is 1: got {layer.dilation[0]} x {layer.dilation[1]}")
            return _window(layer, sums=False)
        case Dense():  # a 1 x 1 convolution: its rows are rows of one pixel
            rows, pixels = (Axis(ifm=size, ofm=size, kernel=1, stride=1, before=0) for size in (layer.ifm.shape[0], 1))
            return Window(rows, pixels, layer.in_channels, layer.out_channels, True)
        case Add() | Mul():
            return Run(each=layer.ifm2.elements if layer.broadcast else 1, reads=2, repeats=layer.broadcast)
        case Softmax():  # three passes: the maximum, the sum of exponentials, the quotients
            return Run(each=layer.ifm.shape[-1], reads=3)
        case MatMul():
            return Product(layer.ifm.shape[0], layer.ifm.shape[1], layer.ifm.shape[3], layer.ofm.shape[3])
        case Lookup():
            return Run(each=layer.ofm.shape[-1] if layer.by_channel else 1, reads=1)
        case Transpose() | Concat() | Slice() | Pad() | Resize():
            return CopiesOnly()
        case Reshape():
            return Alias()
        case Ordering() | Gather() | Suppression():
            return Entire()
        case _:
            assert_never(layer)


def copies_only(layer: Layer) -> bool:
    """Whether a layer has copies but no jobs: it has a group of its own, from main memory to main memory."""
    return isinstance(geometry(layer), CopiesOnly)


def parts_of_kernel(layer: Layer, accelerator: Accelerator, *, turned: bool = False) -> tuple[KernelPart, ...]:
    """The parts of the kernel of a layer with a window, in the order of their jobs: one where the array takes all. Of
    one that is `turned` with height and width swapped."""
    form = geometry(layer)
    assert isinstance(form, Window)
    axes = (form.columns, form.rows) if turned else (form.rows, form.columns)
    (height, down), (width, along) = ((axis.kernel, axis.dilation) for axis in axes)
    return accelerator.limits.get(layer.kind, _NO_LIMITS).parts((height, width), (down, along))


_NO_LIMITS = Limits()


def job_cycles(layer: Layer, ifm: Extents, ofm: Extents, accelerator: Accelerator, kernel: Pair | None = None) -> int:
    """Cycles of the job of `layer` that computes an `ofm` tile from an `ifm` tile.

    Of a layer whose kernel is in parts, of the jobs over all of them, or of the one over a part of size `kernel`.
    """
    if isinstance(layer, Weighted):
        sums = sums_channels(layer)
        groups = _groups(ofm, accelerator.array_rows if sums else accelerator.depthwise_rows, accelerator)
        channels = ifm[2] if sums else 1
        kernels = [part.size for part in parts_of_kernel(layer, accelerator)] if kernel is None else [kernel]
        bits = accelerator.weight_width(layer)
        each = sum(_group_cycles(one, channels, bits, accelerator) for one in kernels)
        return len(kernels) * accelerator.job_setup + groups * each
    form = geometry(layer)
    if isinstance(form, Run):
        return accelerator.job_setup + ceil_div(form.reads * prod(ofm), accelerator.elementwise_width)
    if isinstance(form, Window):
        window = form.rows.kernel * form.columns.kernel
        return accelerator.job_setup + ceil_div(prod(ofm) * window, accelerator.elementwise_width)
    if isinstance(form, Product):  # as a dense layer's, with weights of 8 bits
        groups = _groups(ofm, accelerator.array_rows, accelerator)
        return accelerator.job_setup + groups * _group_cycles((1, 1), ifm[2], 8, accelerator)
    raise PlanError(f"{layer.name}: a {layer.kind} layer has no jobs")


def product_cycles(layer: Layer, form: Product, rows: int, accelerator: Accelerator) -> int:
    """Cycles of the jobs over the first rows of a product."""
    return sum(job_cycles(layer, *form.shapes(count), accelerator) for _, count in form.cut((0, rows)))


def rows_at_a_time(layer: Weighted, accelerator: Accelerator) -> int:
    """Output channels that a job of the layer computes at a time."""
    return accelerator.array_rows if sums_channels(layer) else accelerator.depthwise_rows


def sums_channels(layer: Layer) -> bool:
    """Whether every output channel of a layer sums over all input channels of its group."""
    form = geometry(layer)
    return isinstance(form, Window) and form.sums


def _groups(ofm: Extents, rows: int, accelerator: Accelerator) -> int:
    """Groups of `rows` channels x the array's columns, in every output row."""
    height, width, channels = ofm
    return height * ceil_div(width, accelerator.array_columns) * ceil_div(channels, rows)


def _group_cycles(kernel: Pair, channels: int, bits: int, accelerator: Accelerator) -> int:
    products = channels * kernel[0] * kernel[1]
    return ceil_div(products * bits, 8) + 2 * channels * kernel[0] + accelerator.job_overhead


def _window(layer: Convolution | Pool2d, *, sums: bool) -> Window:
    _check_batch(layer)
    if max(layer.padding) > MOST_PADDING:
        raise PlanError(f"{layer.name}: padding is at most {MOST_PADDING}: got {max(layer.padding)}")
    (_, height, width, in_channels), (_, out_height, out_width, out_channels) = layer.ifm.shape, layer.ofm.shape
    top, left, _, _ = layer.padding
    rows = Axis(height, out_height, layer.kernel[0], layer.strides[0], top, layer.dilation[0])
    columns = Axis(width, out_width, layer.kernel[1], layer.strides[1], left, layer.dilation[1])
    return Window(rows, columns, in_channels, out_channels, sums)


def _check_batch(layer: Convolution | Pool2d) -> None:
    if layer.ifm.shape[0] != 1:
        raise PlanError(f"{layer.name}: batch is 1: got {layer.ifm.shape[0]}")
