"""Element-wise operators of Relax on real values, in float32 as TVM computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from byoc_hw.frontend.tflite_kernels import of_doubles
from byoc_hw.tensor import Array

_ZERO = np.float32(0)
REAL_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": np.add,
    "clip": lambda x, low, high: np.clip(x, np.float32(low), np.float32(high)),
    "divide": np.divide,
    "erf": of_doubles(np.vectorize(math.erf, otypes=[np.float64])),
    "exp": of_doubles(np.exp),
    "log": of_doubles(np.log),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "nn.leakyrelu": lambda x, slope: np.where(x > _ZERO, x, x * np.float32(slope)),
    "nn.relu": lambda x: np.maximum(x, _ZERO),
    "rsqrt": of_doubles(lambda x: 1 / np.sqrt(x)),
    "sigmoid": of_doubles(lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": of_doubles(np.sqrt),
    "square": np.square,
    "subtract": np.subtract,
    "tanh": of_doubles(np.tanh),
}
"""By the operator's name, of its operands and numbers: an array of the same precision."""
