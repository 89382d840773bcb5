"""HARD_SWISH and RSQRT as TFLite's reference kernels compute them, in fixed point of 16 and of 32 bits.

Inputs and outputs are integers without their zero points; outputs are int64, not limited to int8.
"""

from __future__ import annotations

import math

import numpy as np

from byoc_hw.params.requantize import FRACTION_BITS, Scale, scale_of_ratio
from byoc_hw.tensor import Array

_INT16, _INT32 = 1 << 15, 1 << 31


def _half_away(value: int, bits: int) -> int:
    """A value shifted right, with halves away from zero."""
    half = (1 << bits) >> 1
    return (value + half) >> bits if value >= 0 else -((half - value) >> bits)


def _saturated(value: int, limit: int) -> int:
    return max(-limit, min(limit - 1, value))


# ---------------------------------------------------------------- HARD_SWISH

_FINER = 7
"""Bits by which inputs are shifted left: int8 without a zero point then fills int16."""

_REACH = np.float32(3 / 32768)
"""The scale at which the factor of HARD_SWISH, from -3 to 3, fills int16."""


def hard_swish_values(ifm: Array, ifm_scale: float, ofm_scale: float) -> Array:
    """x times relu6(x + 3) / 6, of int8. The input's scale is less than 128 times the output's."""
    fine = np.float32(1 / (1 << _FINER)) * np.float32(ifm_scale)
    output, reach = _narrow(float(fine / np.float32(ofm_scale))), _narrow(float(fine / _REACH))
    return np.array([_hard_swish(int(x) << _FINER, output, reach) for x in ifm.flat], np.int64).reshape(ifm.shape)


def _narrow(ratio: float) -> tuple[int, int]:
    """A ratio as `multiplier / 2**15 * 2**exponent`."""
    scale = scale_of_ratio(ratio)
    return min((scale.multiplier + (1 << 15)) >> 16, _INT16 - 1), scale.left - (scale.right - FRACTION_BITS)


def _high(one: int, other: int) -> int:
    """The upper half of twice a product, with halves up."""
    return (one * other + (1 << 14)) >> 15


def _hard_swish(fine: int, output: tuple[int, int], reach: tuple[int, int]) -> int:
    factor, exponent = fine, reach[1]
    if exponent > 0:  # all but one bit before the product: only the last may limit what comes out
        factor = _saturated(factor << (exponent - 1), _INT16)
    factor = _high(factor, reach[0])
    if exponent > 0:
        factor = _saturated(factor << 1, _INT16)
    elif exponent < 0:
        factor = _half_away(factor, -exponent)
    factor = (factor + _INT16) >> 1
    product = factor * _high(fine, output[0])
    return _half_away(int(math.copysign(abs(product) >> 15, product)), -output[1])


# ---------------------------------------------------------------- RSQRT

_POSITION = 20
"""Fraction bits of an inverse root before it is scaled to the output."""

_HALF_ROOT_OF_2 = 1518500250
_THREE_HALVES = (1 << 28) + (1 << 27)


def inverse_root_values(ifm: Array, ifm_scale: float, ofm_scale: float) -> Array:
    """1 / sqrt(x) of values from 0 to 255; that of 0 is the largest there is."""
    scale = scale_of_ratio(1 / float(np.sqrt(np.float32(ifm_scale)) * np.float32(ofm_scale)))
    exponent = scale.left - (scale.right - FRACTION_BITS) - _POSITION
    table = {int(x): _inverse_root(int(x), scale.multiplier, exponent) for x in np.unique(ifm)}
    return np.array([table[int(x)] for x in ifm.flat], np.int64).reshape(ifm.shape)


def _inverse_root(x: int, multiplier: int, exponent: int) -> int:
    if x == 0:
        return _INT32
    root, shift = _newton(x)
    return _scaled(_scaled(1, root, _POSITION - shift), multiplier, exponent)


def _scaled(value: int, multiplier: int, exponent: int) -> int:
    return Scale(multiplier, max(exponent, 0), FRACTION_BITS + max(-exponent, 0)).apply(value, "tflite")


def _newton(x: int) -> tuple[int, int]:
    """1 / sqrt(x) as `root / 2**31 / 2**shift`, by five of Newton's steps from 1 in fixed point of 3 integer bits."""
    if x == 1:
        return _INT32 - 1, 0
    pairs = (31 - x.bit_length()) // 2 - 1
    shift, x = 11 - pairs, x << (2 * pairs)
    half, root = _half_away(x >> 1, 1), 1 << 28
    for _ in range(5):
        cube = _saturated(_product(_product(root, root), root) << 6, _INT32)
        root = _saturated((_product(_THREE_HALVES, root) - _product(half, cube)) << 3, _INT32)
    root = _product(root, _HALF_ROOT_OF_2)
    return (root << -shift, 0) if shift < 0 else (root, shift)


def _product(one: int, other: int) -> int:
    """The product of two numbers in fixed point of 32 bits."""
    return (one * other + (1 << 30)) >> FRACTION_BITS
