"""From the model's float scales and zero points to the integers that the array works with.

The arithmetic is that of TVM's `qnn.requantize` with `rounding="UPWARD"` and
`compute_dtype="int64"` (src/relay/qnn/utils.cc, GetFixedPointMultiplierShift), in the form of
`hwlib_scale_t`: a value is shifted left, multiplied in 64 bits and shifted right once, halves
rounded towards plus infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byoc_hw.errors import GraphError, Unsupported
from byoc_hw.graph import Add, Conv2d, Dense, Layer, Pool2d, Quantization, Tensor

Weighted = Conv2d | Dense
"""The layers with weights; a `DepthwiseConv2d` is a `Conv2d`."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]

FRACTION_BITS = 31
MAX_RIGHT = 62
"""The widest right shift that `1 << (right - 1)` and the 64-bit product leave defined."""

_INT8_MAX, _INT8_MIN = 127, -128
_LARGEST_INT8 = 128
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Scale:
    """`(value * 2**left * multiplier + 2**(right - 1)) >> right`, as `hwlib_scale_t`.

    `multiplier` is 0 or 2**30 .. 2**31 - 1, `right` 1 .. 62. `left` follows from the scales: more
    than 31 is beyond `hwlib_scale_t`, and `rescaled_bound` is then beyond int32 as well.
    """

    multiplier: int
    left: int
    right: int

    def apply(self, value: int) -> int:
        """The scaled value, in integers of any width."""
        return ((value << self.left) * self.multiplier + (1 << (self.right - 1))) >> self.right


DEAD = Scale(0, 0, FRACTION_BITS)
"""A ratio so small that every int32 becomes 0; TVM's own shift is undefined there."""

IDENTITY = Scale(1 << 30, 1, FRACTION_BITS)
"""A ratio of exactly 1. TVM skips the multiplication, which gives the same result."""


def scale_of(input_scale: float, output_scale: float) -> Scale:
    """The fixed point of `input_scale / output_scale`, each rounded to float32 first, as TVM stores them.

    Raises `GraphError` unless both are finite and positive (a zero input scale is a dead channel).
    """
    numerator, denominator = float(np.float32(input_scale)), float(np.float32(output_scale))
    if not (math.isfinite(numerator) and math.isfinite(denominator) and numerator >= 0 and denominator > 0):
        raise GraphError(f"scales are finite and positive: got {input_scale} to {output_scale}")
    significand, exponent = math.frexp(numerator / denominator)
    # Exact: a double's 53 bits hold the 31 that are kept and the half. C's round(), as TVM uses it.
    multiplier = math.floor(math.ldexp(significand, FRACTION_BITS) + 0.5)
    if multiplier == 1 << FRACTION_BITS:
        multiplier, exponent = multiplier // 2, exponent + 1
    right = FRACTION_BITS + max(-exponent, 0)
    if multiplier == 0 or right > MAX_RIGHT:
        return DEAD
    return Scale(multiplier, max(exponent, 0), right)


def rescale(scale: Scale, values: npt.ArrayLike) -> Int64s:
    """The scaled values as int64, for values within the layer's `accumulator_bound`."""
    shifted = np.asarray(values, np.int64) << np.int64(scale.left)
    rounded: Int64s = (shifted * np.int64(scale.multiplier) + np.int64(1 << (scale.right - 1))) >> np.int64(scale.right)
    return rounded


# ---------------------------------------------------------------- the scales of each layer kind


def sum_scales(layer: Weighted) -> tuple[Scale, ...]:
    """One scale for each output channel: from the int32 sum to the output."""
    output = _quantization(layer, layer.ofm).scale[0]
    scales = tuple(scale_of(scale, output) for scale in layer.accumulator.scale)
    return scales if len(scales) == layer.out_channels else scales * layer.out_channels


def add_scales(layer: Add) -> tuple[Scale, Scale]:
    """The scales of the two inputs to the output."""
    output = _quantization(layer, layer.ofm).scale[0]
    first, second = (scale_of(_quantization(layer, tensor).scale[0], output) for tensor in layer.inputs)
    return first, second


def pool_scale(layer: Pool2d) -> Scale:
    """The scale from the average to the output; the identity where the layer does not rescale."""
    if not layer.rescaled:
        return IDENTITY
    return scale_of(_quantization(layer, layer.ifm).scale[0], _quantization(layer, layer.ofm).scale[0])


def pool_zero_points(layer: Pool2d) -> tuple[int, int]:
    """The zero points of input and output; 0 and 0 where the layer does not rescale."""
    if not layer.rescaled:
        return 0, 0
    return zero_point(layer, layer.ifm), zero_point(layer, layer.ofm)


def zero_point(layer: Layer, tensor: Tensor) -> int:
    """The one zero point of a tensor of `layer`; `GraphError` where it has several that differ."""
    distinct = set(_quantization(layer, tensor).zero_point)
    if len(distinct) != 1:
        raise GraphError(f"{layer.name}: {tensor.name} has one zero point: got {sorted(distinct)}")
    return distinct.pop()


# ---------------------------------------------------------------- weights and bias


def weight_values(layer: Weighted) -> Int8s:
    """The weights as [k][fy][fx][c]; a dense layer's as a 1 x 1 convolution's."""
    data = layer.weights.data
    if data is None:
        raise GraphError(f"{layer.name}: weights are constant: they are computed at run time")
    if data.ndim == 2:
        return data[:, np.newaxis, np.newaxis, :]
    # A depthwise filter sums over its window only: (C, FY, FX, 1) is its [k][fy][fx][c] already.
    return data


def folded_bias(layer: Weighted) -> Int32s:
    """The bias of each output channel with the input's zero point folded in: shape (K,).

    `bias - ifm_zero_point * sum(weights - weight_zero_point)`, so that the array multiplies raw
    inputs. Padding reads as the zero point, which keeps the sum right at the borders. Raises
    `Unsupported` where it is beyond int32: `accumulator_bound` is then beyond it too.
    """
    folded = _folded_bias(layer)
    worst = int(np.abs(folded).max(initial=0))
    if worst > _INT32_MAX:
        raise Unsupported(f"{layer.name}: bias with folded zero points is int32: got {worst}")
    return folded.astype(np.int32)


def accumulator_bound(layer: Weighted) -> int:
    """The largest magnitude that the sum can have on the way, for any input and any order of summing.

    Beyond 2**31 - 1 the int32 accumulator may wrap; the front end declines the layer.
    """
    return int(_channel_bounds(layer).max(initial=0))


def rescaled_bound(layer: Layer) -> int:
    """The largest magnitude of a value before the clamp to int8, output zero point included.

    Beyond 2**31 - 1 TVM's own int32 would overflow; the front end declines the layer. Layers that
    do not rescale give 128.
    """
    if isinstance(layer, Conv2d | Dense):
        bounds = (int(bound) for bound in _channel_bounds(layer))
        largest = max(_largest(scale, bound) for scale, bound in zip(sum_scales(layer), bounds, strict=True))
        return largest + abs(zero_point(layer, layer.ofm))
    if isinstance(layer, Add):
        inputs = zip(add_scales(layer), layer.inputs, strict=True)
        largest = sum(_largest(scale, _largest_offset(zero_point(layer, tensor))) for scale, tensor in inputs)
        return largest + abs(zero_point(layer, layer.ofm))
    if isinstance(layer, Pool2d) and layer.rescaled:
        before, after = pool_zero_points(layer)
        return _largest(pool_scale(layer), _largest_offset(before)) + abs(after)
    return _LARGEST_INT8


def _quantization(layer: Layer, tensor: Tensor) -> Quantization:
    if tensor.quantization is None:
        raise GraphError(f"{layer.name}: {tensor.name} is quantized: it has no scale")
    return tensor.quantization


def _centred_weights(layer: Weighted) -> Int64s:
    """weights - weight_zero_point as [k][everything that k sums over]."""
    values = weight_values(layer).astype(np.int64)
    return values.reshape(len(values), -1) - zero_point(layer, layer.weights)


def _folded_bias(layer: Weighted) -> Int64s:
    folded: Int64s = -zero_point(layer, layer.ifm) * _centred_weights(layer).sum(axis=1, dtype=np.int64)
    if layer.bias is None:
        return folded
    if layer.bias.data is None:
        raise GraphError(f"{layer.name}: bias is constant: it is computed at run time")
    return folded + layer.bias.data.astype(np.int64)


def _channel_bounds(layer: Weighted) -> Int64s:
    # The folded bias alone plus each product at its largest bounds every partial sum as well.
    products = np.abs(_centred_weights(layer)).sum(axis=1, dtype=np.int64) * _LARGEST_INT8
    bounds: Int64s = products + np.abs(_folded_bias(layer))
    return bounds


def _largest(scale: Scale, bound: int) -> int:
    return max(abs(scale.apply(bound)), abs(scale.apply(-bound)))


def _largest_offset(zero: int) -> int:
    """The largest magnitude of an int8 less its zero point."""
    return max(abs(_INT8_MAX - zero), abs(_INT8_MIN - zero))
