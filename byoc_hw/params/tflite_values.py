"""TFLite's fixed point on arrays: what its element-wise reference kernels give, for tables of all values."""

from __future__ import annotations

import numpy as np

from byoc_hw.graph import Add, Mul
from byoc_hw.params.requantize import Scale, add_scales, add_sum_scale, mul_scale, scale_of_ratio, zero_point
from byoc_hw.tensor import Array


def rescaled_values(values: Array, ratio: float) -> Array:
    """Integers times a ratio, rounded twice; int64, not limited to int8."""
    return _scaled(values, scale_of_ratio(ratio))


def pairwise_values(layer: Add | Mul, ifm: Array, ifm2: Array) -> Array:
    """The output of an element-wise layer with TFLite's rounding, of inputs whose shapes broadcast; int64."""
    one, other = ifm - zero_point(layer, layer.ifm), ifm2 - zero_point(layer, layer.ifm2)
    if isinstance(layer, Mul):
        total = _scaled(one * other, mul_scale(layer))
    else:
        scales, (sign, sign2) = add_scales(layer), layer.signs
        total = _scaled(sign * _scaled(one, scales[0]) + sign2 * _scaled(other, scales[1]), add_sum_scale(layer))
    found: Array = np.clip(total + zero_point(layer, layer.ofm), layer.act_min, layer.act_max)
    return found


def _scaled(values: Array, scale: Scale) -> Array:
    distinct, places = np.unique(values, return_inverse=True)
    table = np.array([scale.apply(int(value), "tflite") for value in distinct], np.int64)
    return table[places].reshape(values.shape)
