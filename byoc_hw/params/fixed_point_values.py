"""Fixed point on arrays: what element-wise layers give, for tables of all values."""

from __future__ import annotations

import numpy as np

from byoc_hw.graph import Add, Mul
from byoc_hw.params.requantize import Scale, add_scales, add_sum_scale, mul_scale, scale_of_ratio, zero_point
from byoc_hw.tensor import Array, Rounding


def rescaled_values(values: Array, ratio: float, rounding: Rounding) -> Array:
    """Integers times a ratio, rounded once or twice; int64, not limited to int8."""
    return _scaled(values, scale_of_ratio(ratio), rounding)


def pairwise_values(layer: Add | Mul, ifm: Array, ifm2: Array) -> Array:
    """The output of an element-wise layer with its rounding, of inputs whose shapes broadcast; int64."""
    one, other = ifm - zero_point(layer, layer.ifm), ifm2 - zero_point(layer, layer.ifm2)
    if isinstance(layer, Mul):
        total = _scaled(one * other, mul_scale(layer), layer.rounding)
    else:
        scales, (sign, sign2) = add_scales(layer), layer.signs
        first, second = (_scaled(each, scale, layer.rounding) for each, scale in zip((one, other), scales, strict=True))
        total = _scaled(sign * first + sign2 * second, add_sum_scale(layer), layer.rounding)
    found: Array = np.clip(total + zero_point(layer, layer.ofm), layer.act_min, layer.act_max)
    return found


def _scaled(values: Array, scale: Scale, rounding: Rounding) -> Array:
    distinct, places = np.unique(values, return_inverse=True)
    table = np.array([scale.apply(int(value), rounding) for value in distinct], np.int64)
    return table[places].reshape(values.shape)
