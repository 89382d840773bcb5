"""Windows of convolutions and pooling."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from byoc_hw.graph import Pool2d
from byoc_hw.tensor import Padding, Pair, Tensor

LONGEST_SIDE = 32
"""The longest side of a window over a whole image that is left as it is: as far as most accelerators go."""


def moving_strides(strides: Pair, window: Pair, ifm: Tensor, around: Padding) -> Pair:
    """Strides, height and width; 1 where the window covers the padded input, so that it never moves."""
    padded = (ifm.shape[1] + around[0] + around[2], ifm.shape[2] + around[1] + around[3])
    height, width = (
        1 if size == extent else stride for stride, size, extent in zip(strides, window, padded, strict=True)
    )
    return height, width


def sides(height: int, width: int) -> Pair:
    """The sides of a window over all pixels of an image, of which the order does not matter: its own, or, where one is
    longer than `LONGEST_SIDE`, those that differ least."""
    least = squarest(height * width)
    return least if LONGEST_SIDE < max(height, width) > max(least) else (height, width)


def squarest(count: int) -> Pair:
    """The sides of a window over so many elements, which differ least."""
    shorter = next(side for side in range(isqrt(count), 0, -1) if count % side == 0)
    return shorter, count // shorter


def in_whole_images(layer: Pool2d) -> Pool2d:
    """A pooling over all pixels of its input, with the `sides` of such a window; any other one as it is."""
    batch, height, width, channels = layer.ifm.shape
    if batch != 1 or layer.kernel != (height, width) or any(layer.padding):
        return layer
    kernel = sides(height, width)
    ifm = replace(layer.ifm, shape=(1, *kernel, channels))
    return layer if kernel == layer.kernel else replace(layer, ifm=ifm, kernel=kernel, dilation=(1, 1))
