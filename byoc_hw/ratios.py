"""The ratios of scales that a layer's values are multiplied by, and whether they are shifts: powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from byoc_hw.graph import Add, Convolution, Layer, MatMul, Mul, Pool2d, Softmax, Weighted
from byoc_hw.tensor import Array, Tensor

_FRACTION_BITS = 31
"""Of a multiplier: what is left of a ratio beyond them is rounded off."""


def is_shift(ratio: float) -> bool:
    """Whether the fixed point of a ratio is a power of two, or 0."""
    multiplier = math.floor(math.ldexp(math.frexp(ratio)[0], _FRACTION_BITS) + 0.5)
    return multiplier in (0, 1 << _FRACTION_BITS - 1, 1 << _FRACTION_BITS)


def ratios(layer: Layer) -> Iterator[float]:
    """Each ratio that the array scales by in a layer, none where a scale is not known."""
    quantized = isinstance(layer, Weighted | Add | Mul | MatMul | Pool2d | Softmax)
    if not quantized or any(tensor.quantization is None for tensor in (*layer.inputs, layer.ofm)):
        return
    twice = getattr(layer, "rounding", "upward") == "tflite"
    if isinstance(layer, Softmax):
        yield layer.beta * _scale(layer.ifm)
    elif isinstance(layer, Weighted | MatMul):
        scales = _products(layer) if twice else layer.accumulator.scale
        yield from (float(scale) / _scale(layer.ofm) for scale in scales)
    elif isinstance(layer, Add):
        inputs = [_scale(tensor) for tensor in layer.inputs]
        common = 2 * max(inputs) if twice else _scale(layer.ofm)
        yield from (scale / common for scale in inputs)
        if twice:
            yield common / _scale(layer.ofm)
    elif isinstance(layer, Mul):
        first, second, output = (np.float32(_scale(tensor)) for tensor in (*layer.inputs, layer.ofm))
        yield float(first * second / output) if twice else float(first * second) / float(output)
    elif isinstance(layer, Pool2d) and layer.rescaled:
        yield _scale(layer.ifm) / _scale(layer.ofm) / layer.divisor


def _products(layer: Weighted | MatMul) -> Array:
    """The products of the inputs' scales, or of the input's and the weights'. TFLite rounds those of convolutions to
    float32 only where the weights have a zero point."""
    other = layer.ifm2 if isinstance(layer, MatMul) else layer.weights
    assert other.quantization is not None, "weights of a quantized layer have scales"
    exact = isinstance(layer, Convolution) and not any(other.quantization.zero_point)
    scales = np.asarray(other.quantization.scale, np.float32)
    if exact:
        return np.asarray(scales.astype(np.float64) * _scale(layer.ifm))
    return np.asarray(scales * np.float32(_scale(layer.ifm)))


def _scale(tensor: Tensor) -> float:
    """The one scale of a tensor, as the float32 that the model stores."""
    assert tensor.quantization is not None, "the caller has seen to it"
    return float(np.float32(tensor.quantization.scale[0]))
