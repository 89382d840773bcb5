"""Windows of convolutions and pooling."""

from __future__ import annotations

from byoc_hw.tensor import Padding, Pair, Tensor


def moving_strides(strides: Pair, window: Pair, ifm: Tensor, around: Padding) -> Pair:
    """Strides, height and width; 1 where the window covers the padded input, so that it never moves."""
    padded = (ifm.shape[1] + around[0] + around[2], ifm.shape[2] + around[1] + around[3])
    height, width = (
        1 if size == extent else stride for stride, size, extent in zip(strides, window, padded, strict=True)
    )
    return height, width
