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

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Scale:
    """`(value * 2**left * multiplier + 2**(right - 1)) >> right`, as `hwlib_scale_t`.

    `multiplier` is 0 or 2**30 .. 2**31 - 1, `right` 1 .. 62. `left` follows from the scales: more
    than 31 is beyond `hwlib_scale_t`, and the layer's `sum_bits` are then beyond 32 as well.
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
    """The scaled values as int64, for values within the layer's `sum_bits`."""
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
    `Unsupported` where it is beyond int32: the layer's `sum_bits` are then beyond 32 too.
    """
    folded = _folded_bias(layer)
    worst = int(np.abs(folded).max(initial=0))
    if worst > _INT32_MAX:
        raise Unsupported(f"{layer.name}: bias with folded zero points is int32: got {worst}")
    return folded.astype(np.int32)


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
