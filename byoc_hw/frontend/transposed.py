"""A transposed convolution as a convolution with stride 1 to blocks of outputs.

Output s * q + p reads input i by weight k where s * i + k = s * q + p + padding: for each place p in the block,
inputs q + shift with shifts of its own. The new weights have all shifts of all places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byoc_hw.integers import ceil_div
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class BlockAxis:
    """Height or width: the block's extent, the number of blocks, padding on either side, and of each weight that
    a place in the block has its tap in the new kernel, the place and its index in the old one."""

    stride: int
    blocks: int
    before: int
    after: int
    kernel: int
    weights: tuple[tuple[int, int, int], ...]


def block_axis(kernel: int, stride: int, before: int, ifm: int, ofm: int) -> BlockAxis:
    """An axis with a kernel, a stride and padding before the first output, from `ifm` to `ofm` pixels."""
    shifts = [
        ((place + before - index) // stride, place, index)
        for place in range(stride)
        for index in range(kernel)
        if (place + before - index) % stride == 0
    ]
    blocks = ceil_div(ofm, stride)
    first = min(0, *(shift for shift, _, _ in shifts))
    # Padding is not negative: inputs that no output reads are under taps without weights.
    last = max(first, ifm - blocks, *(shift for shift, _, _ in shifts))
    weights = tuple((shift - first, place, index) for shift, place, index in shifts)
    return BlockAxis(stride, blocks, -first, blocks - ifm + last, last - first + 1, weights)


def block_weights(iohw: Array, zero_point: int, rows: BlockAxis, columns: BlockAxis) -> Array:
    """The new weights, HWIO, with the filters of all places of a block; a weight that a place lacks is the zero point.

    `iohw` are the old ones.
    """
    filters, places = iohw.shape[1], (rows.stride, columns.stride)
    new = np.full((rows.kernel, columns.kernel, len(iohw), *places, filters), zero_point, iohw.dtype)
    for tap, place, index in rows.weights:
        for other_tap, other_place, other_index in columns.weights:
            new[tap, other_tap, :, place, other_place] = iohw[:, :, index, other_index]
    return new.reshape(*new.shape[:3], -1)
