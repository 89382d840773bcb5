"""Element-wise operators of Relax on real values, in float32 as TVM computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from byoc_hw.frontend.tflite_kernels import of_doubles
from byoc_hw.tensor import Array

_ZERO, _HALF, _ONE = (np.float32(value) for value in (0, 0.5, 1))
_ERF = of_doubles(np.vectorize(math.erf, otypes=[np.float64]))
_SIGMOID = of_doubles(lambda x: 1 / (1 + np.exp(-x)))
_EXP, _LOG, _TANH = of_doubles(np.exp), of_doubles(np.log), of_doubles(np.tanh)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)


def _gelu(x: Array) -> Array:
    gelu: Array = x * (_HALF + _ERF(x * np.float32(math.sqrt(0.5))) * _HALF)
    return gelu


def _gelu_by_tanh(x: Array) -> Array:
    inner = np.float32(math.sqrt(2 / math.pi)) * x * (_ONE + np.float32(0.044715) * x * x)
    gelu: Array = _HALF * x * (_ONE + _TANH(inner))
    return gelu


def _selu(x: Array) -> Array:
    above, below = np.maximum(x, _ZERO), np.minimum(_ZERO, _SELU_ALPHA * (_EXP(x) - _ONE))
    selu: Array = _SELU_SCALE * (above + below)
    return selu


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    times = x * np.float32(beta)
    return np.where(times > np.float32(threshold), x, _LOG(_ONE + _EXP(times)) / np.float32(beta))


def _power(x: Array, exponent: Array) -> Array:
    return np.power(x.astype(np.float64), exponent.astype(np.float64)).astype(x.dtype)


REAL_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": np.add,
    "clip": lambda x, low, high: np.clip(x, np.float32(low), np.float32(high)),
    "divide": np.divide,
    "erf": _ERF,
    "exp": _EXP,
    "log": _LOG,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_by_tanh,
    "nn.leakyrelu": lambda x, slope: np.where(x > _ZERO, x, x * np.float32(slope)),
    "nn.relu": lambda x: np.maximum(x, _ZERO),
    "nn.selu": _selu,
    "nn.silu": lambda x: x * _SIGMOID(x),
    "nn.softplus": _softplus,
    "power": _power,
    "rsqrt": of_doubles(lambda x: 1 / np.sqrt(x)),
    "sigmoid": _SIGMOID,
    "sqrt": of_doubles(np.sqrt),
    "square": np.square,
    "subtract": np.subtract,
    "tanh": _TANH,
}
"""By the operator's name, of its operands and numbers: an array of the same precision."""
