"""What TFLite's reference kernels give for an operator between two 8-bit values with scales, of all their inputs.

Those of LOGISTIC, TANH, EXP, ELU and GELU are tables of real functions themselves, the others are fixed point. Inputs
and outputs are int64 without their zero points. A kernel raises `NotALayer` where TFLite does not define it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Quantization

_INT32 = 1 << 31


@dataclass(frozen=True)
class Scales:
    """The quantizations of the input and of the output."""

    before: Quantization
    after: Quantization


ValueKernel = Callable[[Scales, Array, FixedPoint], Array]

# ---------------------------------------------------------------- fixed point


def divided_scales(of: Scales, precision: type[np.float32 | np.float64] = np.float32) -> float:
    """The input's scale over the output's, in the precision in which the kernel divides them."""
    return float(precision(_scale(of.before)) / precision(_scale(of.after)))


def _scale(of: Quantization) -> np.float32:
    return np.float32(of.scale[0])


def _sloped(ifm: Array, negative: Array, ratios: tuple[float, float], by: FixedPoint) -> Array:
    return np.where(ifm >= 0, by.rescaled(ifm, ratios[0], "tflite"), by.rescaled(negative, ratios[1], "tflite"))


def quantized_again(of: Scales, ifm: Array, by: FixedPoint) -> Array:
    """QUANTIZE."""
    return by.rescaled(ifm, divided_scales(of, np.float64), "tflite")


def limited_between(low: float, high: float) -> ValueKernel:
    """RELU and the like, with another output: TFLite limits the output, not the input."""

    def kernel(of: Scales, ifm: Array, by: FixedPoint) -> Array:
        least, most = (step_of(bound, of.after) - of.after.zero_point[0] for bound in (low, high))
        return np.clip(by.rescaled(ifm, divided_scales(of), "tflite"), least, most)

    return kernel


def step_of(real: float, of: Quantization) -> int:
    """The int8 value of a real bound of an activation."""
    if np.isinf(real):
        return 127
    value = np.float32(real) / _scale(of)
    return int(np.clip(of.zero_point[0] + half_away(value), -128, 127))


def half_away(values: Array | np.float32) -> Array:
    """The nearest whole numbers of the same precision, halves away from zero, as `round` of the C library."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + values.dtype.type(0.5)), values))


def leaky_relu(alpha: float) -> ValueKernel:
    """LEAKY_RELU."""
    return prelu_of(np.ones(1, np.int64), alpha)


def prelu_of(steps: Array, step: float) -> ValueKernel:
    """PRELU, whose slopes are numbers of steps: one, or one for each channel of the last dimension."""

    def kernel(of: Scales, ifm: Array, by: FixedPoint) -> Array:
        slope = _scale(of.before) * np.float32(step) / _scale(of.after)
        return _sloped(ifm, ifm * steps, (divided_scales(of), float(slope)), by)

    return kernel


def absolute(of: Scales, ifm: Array, by: FixedPoint) -> Array:
    """ABS."""
    return by.rescaled(np.abs(ifm), divided_scales(of), "tflite")


def hard_swish_of(of: Scales, ifm: Array, by: FixedPoint) -> Array:
    """HARD_SWISH."""
    before, after = float(_scale(of.before)), float(_scale(of.after))
    if before / 128 >= after:
        raise NotALayer("the input's scale is less than 128 times the output's", f"{before:g} and {after:g}")
    return by.hard_swish(ifm, before, after)


def inverse_root_of(of: Scales, ifm: Array, by: FixedPoint) -> Array:
    """RSQRT. TFLite stops at an input below 0; here it counts as 0."""
    return by.inverse_root(np.maximum(ifm, 0), float(_scale(of.before)), float(_scale(of.after)))


# ---------------------------------------------------------------- tables of real functions


def _tabulated(function: Callable[[Array], Array]) -> ValueKernel:
    """The kernel that is a table of a function, which takes and gives float32 or more."""

    def kernel(of: Scales, ifm: Array, by: FixedPoint) -> Array:
        with np.errstate(over="ignore"):
            found = function(_scale(of.before) * ifm.astype(np.float32)).astype(np.float32)
            units = (found * (np.float32(1) / _scale(of.after))).astype(np.float64)
        rounded = half_away(units)
        if np.abs(rounded).max() >= _INT32:  # TFLite casts to int32 before it clamps
            raise NotALayer("values in units of the output are int32", f"{np.abs(rounded).max():g}")
        return rounded.astype(np.int64)

    return kernel


def of_doubles(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of the C library for float32, whose results are those of double precision, rounded."""
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


_exp, _tanh = of_doubles(np.exp), of_doubles(np.tanh)
_erfc = of_doubles(np.vectorize(math.erfc, otypes=[np.float64]))
_ONE, _HALF = np.float32(1), np.float32(0.5)


def _gelu(x: Array) -> Array:
    return _HALF * x * _erfc(x * np.float32(-math.sqrt(0.5)))


def _gelu_by_tanh(x: Array) -> Array:
    factor = np.float32(2 / math.sqrt(math.pi) * math.sqrt(0.5))
    return _HALF * x * (_ONE + _tanh(factor * (x + np.float32(0.044715) * x * x * x)))


SIGMOID = _tabulated(of_doubles(lambda x: 1 / (1 + np.exp(-x))))
TANH = _tabulated(_tanh)
EXP = _tabulated(_exp)
ELU = _tabulated(lambda x: np.where(x < 0, _exp(x) - _ONE, x))
GELU = _tabulated(_gelu)
GELU_BY_TANH = _tabulated(_gelu_by_tanh)
"""The tables, as kernels."""
