"""Convolution, dense and pooling as one geometry: what inputs and padding a tile of outputs sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Conv2d, Dense, DepthwiseConv2d, Pool2d, Tensor

Windowed = Conv2d | DepthwiseConv2d | Dense | Pool2d
"""The layers whose jobs slide a window; dense is a 1 x 1 convolution over one pixel."""


def extents(tensor: Tensor) -> tuple[int, int, int]:
    """Height, width and channels of an activation tensor of any rank; further dimensions count as height."""
    shape = (1, 1, *tensor.shape)
    return prod(shape[:-2]), shape[-2], shape[-1]


@dataclass(frozen=True)
class Extent:
    """A tile along one spatial axis: its outputs, the inputs that they need, the padding at each end."""

    start: int
    size: int
    ifm_start: int
    ifm_size: int
    pad_before: int
    pad_after: int


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a layer: `before` elements of padding, then `ifm` elements of input."""

    ifm: int
    ofm: int
    kernel: int
    stride: int
    before: int

    def extent(self, start: int, size: int) -> Extent:
        """The tile of outputs `start` to `start + size`. Inputs that no output needs are not in it."""
        first = start * self.stride - self.before
        stop = (start + size - 1) * self.stride - self.before + self.kernel
        ifm_start, ifm_stop = max(first, 0), min(stop, self.ifm)
        return Extent(start, size, ifm_start, ifm_stop - ifm_start, ifm_start - first, stop - ifm_stop)

    def cut(self, size: int) -> list[Extent]:
        """The axis in tiles of `size` outputs; the last one may be smaller."""
        return [self.extent(start, min(size, self.ofm - start)) for start in range(0, self.ofm, size)]

    def largest_ifm(self, size: int) -> int:
        """The most inputs that a tile of `size` outputs can need."""
        return min(self.ifm, (size - 1) * self.stride + self.kernel)


@dataclass(frozen=True)
class Window:
    """A layer as its tiles see it.

    `sums` tells the layers in which every output channel sums over all input channels from those
    that work channel by channel. `weight_bits` is 0 without weights.
    """

    layer: Windowed
    rows: Axis
    columns: Axis
    in_channels: int
    out_channels: int
    sums: bool
    weight_bits: int

    @property
    def kernel_elements(self) -> int:
        """Weights of one filter for one input channel."""
        return self.rows.kernel * self.columns.kernel


@lru_cache(maxsize=4096)
def window_of(layer: Windowed) -> Window:
    """The window of a layer. Raises `PlanError` for what a tile cannot say."""
    if layer.ifm.shape[0] != 1:
        raise PlanError(f"{layer.name}: batch is 1: got {layer.ifm.shape[0]}")
    if isinstance(layer, Dense):
        pixel = Axis(ifm=1, ofm=1, kernel=1, stride=1, before=0)
        out_channels, in_channels = layer.weights.shape
        return Window(layer, pixel, pixel, in_channels, out_channels, True, layer.weights.bits)
    _check_window(layer)
    (_, height, width, in_channels), (_, out_height, out_width, out_channels) = layer.ifm.shape, layer.ofm.shape
    top, left, _, _ = layer.padding
    rows = Axis(height, out_height, layer.kernel[0], layer.strides[0], top)
    columns = Axis(width, out_width, layer.kernel[1], layer.strides[1], left)
    sums = isinstance(layer, Conv2d) and not isinstance(layer, DepthwiseConv2d)
    bits = layer.weights.bits if isinstance(layer, Conv2d) else 0
    return Window(layer, rows, columns, in_channels, out_channels, sums, bits)


def _check_window(layer: Conv2d | Pool2d) -> None:
    if layer.dilation != (1, 1):
        raise PlanError(f"{layer.name}: dilation is 1: got {layer.dilation[0]} x {layer.dilation[1]}")
    for padding, kernel in zip(layer.padding, layer.kernel * 2, strict=True):
        if padding >= kernel:
            raise PlanError(f"{layer.name}: padding is less than the kernel: got {padding} for {kernel}")
