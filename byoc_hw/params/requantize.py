"""Converts the model's float scales and zero points to the integers that the array uses.

There are two arithmetics, both expressed as `hwlib_scale_t`; a layer's `rounding` selects one.

"upward" is that of TVM's `qnn.requantize` with `rounding="UPWARD"` and `compute_dtype="int64"`
(src/relay/qnn/utils.cc, GetFixedPointMultiplierShift): a value is shifted left, multiplied in 64
bits and shifted right once, halves rounded towards plus infinity.

"tflite" is that of TFLite's reference kernels with double rounding: a value is shifted left in 32 bits,
multiplied and shifted right by 31 with halves towards plus infinity, then shifted right by the rest
with halves away from zero. Ratios are of the model's raw scales, in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byoc_hw.errors import GraphError, Unsupported
from byoc_hw.graph import Add, Dense, Layer, MatMul, Mul, Pool2d, Softmax, Weighted
from byoc_hw.integers import LARGEST_INT32
from byoc_hw.tensor import Quantization, Rounding, Tensor

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]

FRACTION_BITS = 31
MAX_RIGHT = 62
"""The largest right shift at which 64-bit rounding cannot overflow; TFLite's second shift is then 31."""

ADD_LEFT = 20
"""Bits that TFLite's addition shifts its inputs left by, for precision."""

SOFTMAX_INTEGER_BITS = 5
"""Integer bits of the fixed point in which TFLite's softmax takes exponentials of differences."""


@dataclass(frozen=True)
class Scale:
    """`(value * 2**left * multiplier + 2**(right - 1)) >> right`, as `hwlib_scale_t`.

    That is upward rounding; TFLite's rounding shifts right by 31 first, then by the rest. `multiplier`
    is 0 or 2**30 .. 2**31 - 1, `right` 1 .. 62. `left` follows from the scales. More than 31 does not
    fit `hwlib_scale_t`; the layer's `sum_bits` are then more than 32 too.
    """

    multiplier: int
    left: int
    right: int

    def apply(self, value: int, rounding: Rounding = "upward") -> int:
        """The scaled value, in integers of any width."""
        product = (value << self.left) * self.multiplier
        if rounding == "upward":
            return (product + (1 << (self.right - 1))) >> self.right
        high, rest = (product + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS, self.right - FRACTION_BITS
        half = (1 << rest) >> 1
        return (high + half) >> rest if high >= 0 else -((half - high) >> rest)


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
    return scale_of_ratio(numerator / denominator)


def scale_of_ratio(ratio: float) -> Scale:
    """The fixed point of a ratio: the nearest 31-bit significand, and a power of two."""
    significand, exponent = math.frexp(ratio)
    # Exact: a double's 53 bits hold the 31 bits and the half. The same as C's round(), which TVM and TFLite use.
    multiplier = math.floor(math.ldexp(significand, FRACTION_BITS) + 0.5)
    if multiplier == 1 << FRACTION_BITS:
        multiplier, exponent = multiplier // 2, exponent + 1
    right = FRACTION_BITS + max(-exponent, 0)
    if multiplier == 0 or right > MAX_RIGHT:
        return DEAD
    return Scale(multiplier, max(exponent, 0), right)


def rescale(scale: Scale, values: npt.ArrayLike) -> Int64s:
    """The values scaled with upward rounding, as int64, for values within the layer's `sum_bits`."""
    shifted = np.asarray(values, np.int64) << np.int64(scale.left)
    rounded: Int64s = (shifted * np.int64(scale.multiplier) + np.int64(1 << (scale.right - 1))) >> np.int64(scale.right)
    return rounded


# ---------------------------------------------------------------- the scales of each layer kind


def sum_scales(layer: Weighted) -> tuple[Scale, ...]:
    """One scale for each output channel: from the int32 sum to the output."""
    output = _quantization(layer, layer.ofm).scale[0]
    if layer.rounding == "tflite":
        scales = tuple(map(scale_of_ratio, _raw_ratios(layer)))
    else:
        scales = tuple(scale_of(scale, output) for scale in layer.accumulator.scale)
    return scales if len(scales) == layer.out_channels else scales * layer.out_channels


def _raw_ratios(layer: Weighted) -> list[float]:
    """Input scale times weight scale over output scale.

    TFLite computes the product in float32 for a dense layer, and for weights that have a zero point: they were uint8.
    """
    tensors = (layer.ifm, layer.weights, layer.ofm)
    ifm, weights, ofm = (np.asarray(_quantization(layer, tensor).scale, np.float32) for tensor in tensors)
    single = isinstance(layer, Dense) or any(_quantization(layer, layer.weights).zero_point)
    product = ifm[0] * weights if single else np.float64(ifm[0]) * weights.astype(np.float64)
    ratios: list[float] = (product.astype(np.float64) / np.float64(ofm[0])).tolist()
    return ratios


def add_scales(layer: Add) -> tuple[Scale, Scale]:
    """The scales of the two inputs: to the output with upward rounding, to the sum with TFLite's."""
    first, second = (_scale(layer, tensor) for tensor in layer.inputs)
    if layer.rounding == "tflite":
        common = 2 * max(first, second)
        one, other = (scale_of_ratio(scale / common) for scale in (first, second))
        return replace(one, left=ADD_LEFT), replace(other, left=ADD_LEFT)
    output = _scale(layer, layer.ofm)
    return scale_of(first, output), scale_of(second, output)


def add_sum_scale(layer: Add) -> Scale:
    """The scale from TFLite's sum to the output; the identity with upward rounding."""
    if layer.rounding == "upward":
        return IDENTITY
    common = 2 * max(_scale(layer, tensor) for tensor in layer.inputs)
    return scale_of_ratio(common / ((1 << ADD_LEFT) * _scale(layer, layer.ofm)))


def subtrahend_number(layer: Add) -> int:
    """0 for a sum, 1 for what is less the second input, 2 for what is less the first."""
    return ("", "ifm2", "ifm").index(layer.subtract)


def mul_scale(layer: Mul) -> Scale:
    """The scale from the product of the inputs to the output. TVM and TFLite multiply the scales in float32."""
    first, second, output = (np.float32(_scale(layer, tensor)) for tensor in (*layer.inputs, layer.ofm))
    if layer.rounding == "tflite":
        return scale_of_ratio(float(first * second / output))
    return scale_of(float(first * second), float(output))


def matmul_scale(layer: MatMul) -> Scale:
    """The scale from the sum of products to the output. TFLite multiplies the inputs' scales in float32."""
    output = _scale(layer, layer.ofm)
    if layer.rounding == "upward":
        return scale_of(layer.accumulator.scale[0], output)
    first, second = (np.float32(_scale(layer, tensor)) for tensor in layer.inputs)
    return scale_of_ratio(float(first * second) / output)


def softmax_scale(layer: Softmax) -> tuple[Scale, int]:
    """The scale from a difference to the exponent's fixed point, and the smallest difference that fits it.

    The fixed point has `SOFTMAX_INTEGER_BITS` integer bits and 26 fraction bits. The exponential of a
    smaller difference counts as 0.
    """
    fraction = FRACTION_BITS - SOFTMAX_INTEGER_BITS
    ratio = min(layer.beta * _scale(layer, layer.ifm) * (1 << fraction), float(LARGEST_INT32))
    scale = scale_of_ratio(ratio)
    reach = ((1 << SOFTMAX_INTEGER_BITS) - 1) << fraction
    return scale, -(reach >> scale.left)


def pool_offset(layer: Pool2d) -> int:
    """What is added to a sum for the input's zero point: TVM's requantize of a sum subtracts it once."""
    return -layer.divisor * zero_point(layer, layer.ifm)


def pool_scale(layer: Pool2d) -> Scale:
    """The scale from the average or sum to the output; the identity where the layer does not rescale."""
    if not layer.rescaled:
        return IDENTITY
    if layer.scales_sum and layer.mode == "avg":
        ratio, count = _scale(layer, layer.ifm) / _scale(layer, layer.ofm), layer.divisor
        return scale_of_ratio(ratio / count) if layer.in_one else mean_scale(scale_of_ratio(ratio), count)
    return scale_of(_quantization(layer, layer.ifm).scale[0], _quantization(layer, layer.ofm).scale[0])


def mean_scale(scale: Scale, count: int) -> Scale:
    """TFLite's scale of a sum of `count` values to their mean: its multiplier is divided, downwards, by the count.

    It is shifted left before by the bits of the count; the multiplier is then 0 or from 2**29 on.
    """
    bits = count.bit_length() - 1
    shift = scale.left - (scale.right - FRACTION_BITS) - bits
    if scale == DEAD or shift < -FRACTION_BITS:
        return DEAD  # TFLite shifts less, to the same end: no sum reaches a half
    return Scale((scale.multiplier << bits) // count, max(shift, 0), FRACTION_BITS + max(-shift, 0))


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
    """The weights as [k][fy][fx][c]; those of a dense layer as for a 1 x 1 convolution."""
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
    `Unsupported` where it exceeds int32; the layer's `sum_bits` are then more than 32 too.
    """
    folded = _folded_bias(layer)
    worst = int(np.abs(folded).max(initial=0))
    if worst > LARGEST_INT32:
        raise Unsupported(f"{layer.name}: bias with folded zero points is int32: got {worst}")
    return folded.astype(np.int32)


def _scale(layer: Layer, tensor: Tensor) -> float:
    """The one scale of a tensor, as the float32 that the model stores."""
    return float(np.float32(_quantization(layer, tensor).scale[0]))


def _quantization(layer: Layer, tensor: Tensor) -> Quantization:
    if tensor.quantization is None:
        raise GraphError(f"{layer.name}: {tensor.name} is quantized: it has no scale")
    return tensor.quantization


def _folded_bias(layer: Weighted) -> Int64s:
    values = weight_values(layer)
    count = math.prod(values.shape[1:])
    sums = values.sum(axis=tuple(range(1, values.ndim)), dtype=np.int64) - count * zero_point(layer, layer.weights)
    folded: Int64s = -zero_point(layer, layer.ifm) * sums
    if layer.bias is None:
        return folded
    if layer.bias.data is None:
        raise GraphError(f"{layer.name}: bias is constant: it is computed at run time")
    return folded + layer.bias.data.astype(np.int64)
