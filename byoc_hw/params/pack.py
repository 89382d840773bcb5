"""Packs weights and parameters into the byte layout that the array reads (`hwlib_hal.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_hw.errors import InvalidInput
from byoc_hw.integers import ceil_div
from byoc_hw.limits import WEIGHT_BITS
from byoc_hw.params.requantize import Scale

Integers = npt.NDArray[np.integer[Any]]

PARAMS_BYTES = 12
"""Bytes of `hwlib_params_t`: the parameters of one output channel."""

MAX_LEFT = 31

_PARAMS = np.dtype([("bias", "<i4"), ("multiplier", "<i4"), ("left", "u1"), ("right", "u1"), ("reserved", "<u2")])


def packed_channel_bytes(elements: int, bits: int) -> int:
    """Bytes of one output channel's `elements` weights; the next channel starts on the next byte."""
    return ceil_div(elements * bits, 8)


def pack(weights: Integers, bits: int) -> bytes:
    """Weights [k][fy][fx][c] in two's complement of `bits` bits, the first in the lowest bits.

    Raises `InvalidInput` for a value that does not fit, or a width other than 8, 4 and 2.
    """
    if bits not in WEIGHT_BITS:
        raise InvalidInput(f"weights have 8, 4 or 2 bits: got {bits}")
    _check_range(weights, bits)
    channels = weights.reshape(len(weights), -1).astype(np.int8).view(np.uint8)
    per_byte = 8 // bits
    padded = np.zeros((len(channels), packed_channel_bytes(channels.shape[1], bits) * per_byte), np.uint8)
    padded[:, : channels.shape[1]] = channels & ((1 << bits) - 1)
    grouped = padded.reshape(len(channels), -1, per_byte)
    packed: npt.NDArray[np.uint8] = np.bitwise_or.reduce(grouped << np.arange(0, 8, bits, dtype=np.uint8), axis=2)
    return packed.tobytes()


def pack_params(bias: Integers, scales: Sequence[Scale]) -> bytes:
    """One `hwlib_params_t`, little endian, for each output channel.

    Raises `InvalidInput` where bias and scales differ in length or a shift does not fit its field.
    """
    if len(bias) != len(scales):
        raise InvalidInput(f"one scale for each bias: {len(scales)} for {len(bias)}")
    for scale in scales:
        if scale.left > MAX_LEFT:
            raise InvalidInput(f"left shift is at most {MAX_LEFT}: got {scale.left} (a scale ratio beyond 2^31)")
    params = np.zeros(len(scales), _PARAMS)
    params["bias"] = bias
    params["multiplier"] = [scale.multiplier for scale in scales]
    params["left"] = [scale.left for scale in scales]
    params["right"] = [scale.right for scale in scales]
    return params.tobytes()


def _check_range(weights: Integers, bits: int) -> None:
    if weights.size == 0:
        return
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    smallest, largest = int(weights.min()), int(weights.max())
    if smallest < low or largest > high:
        raise InvalidInput(f"weights of {bits} bits are {low} .. {high}: got {smallest} .. {largest}")
