"""Operators of a file that arrive as dequantize, real operators and quantize, as TFLite's kernels compute them.

Those for LOGISTIC, TANH, EXP, ELU and GELU are tables of real functions themselves, the others are fixed point. An
operator is told by its real operators, which are those of TVM's importer or of `tflite_operators/elementwise.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay
from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.sources import operator_name, source_names
from byoc_hw.frontend.relay.tflite_operators.elementwise import elu, gelu, gelu_by_tanh, hard_swish, prelu
from byoc_hw.frontend.seam import TFLiteArithmetic
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Quantization

_INT32 = 1 << 31


@dataclass(frozen=True)
class BetweenScales:
    """An operator between two 8-bit values: `function` computes what is quantized of `real`, the dequantized source."""

    source: relay.Expr
    before: Quantization
    real: relay.Call
    function: relay.Call
    after: Quantization
    quantize: relay.Call


def between_scales(quantize: relay.Call) -> BetweenScales | None:
    """The operator of the file that ends with a quantize, or None if it is not one, or not one operator."""
    names, left, real = source_names(quantize.span), [quantize.args[0]], None
    while left:
        one = left.pop()
        if isinstance(one, relay.Constant):
            continue
        if not isinstance(one, relay.Call) or source_names(one.span) != names:
            return None
        if operator_name(one) == "qnn.dequantize":
            if real is not None and one != real:
                return None
            real = one
        else:
            left.extend(one.args)
    if real is None or quantize.args[0] == real:
        return None
    before, after = read.scalar_quantization(*real.args[1:]), read.scalar_quantization(*quantize.args[1:])
    return BetweenScales(real.args[0], before, real, quantize.args[0], after, quantize)


def units_of_output(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array | None:
    """The output without its zero point, int64, of an input without its own; None for an operator without a kernel."""
    name = operator_name(of.function)
    if name in _SINGLE and of.function.args[0] == of.real:
        return _SINGLE[name](of, ifm, by)
    for expression, kernel in _FORMS:
        if tvm.ir.structural_equal(expression(of.real), of.function):
            return kernel(of, ifm, by)
    steps, scale = (is_constant() for _ in range(2))
    x, zeros = wildcard(), [is_constant() for _ in range(2)]
    negative = is_op("multiply")(is_op("multiply")(is_op("minimum")(x, zeros[1]), steps), scale)
    if is_op("add")(is_op("maximum")(x, zeros[0]), negative).match(of.function):
        return _prelu(of, ifm, by)
    return None


_Kernel = Callable[[BetweenScales, Array, TFLiteArithmetic], Array]

# ---------------------------------------------------------------- fixed point


def divided_scales(
    before: Quantization, after: Quantization, precision: type[np.float32 | np.float64] = np.float32
) -> float:
    """A scale over another, in the precision in which the kernel divides them."""
    return float(precision(_scale(before)) / precision(_scale(after)))


def _scale(of: Quantization) -> np.float32:
    return np.float32(of.scale[0])


def _sloped(ifm: Array, negative: Array, ratios: tuple[float, float], by: TFLiteArithmetic) -> Array:
    return np.where(ifm >= 0, by.rescaled(ifm, ratios[0]), by.rescaled(negative, ratios[1]))


def _leaky_relu(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array:
    slope = _scale(of.before) * np.float32(of.function.attrs.alpha) / _scale(of.after)
    return _sloped(ifm, ifm, (divided_scales(of.before, of.after), float(slope)), by)


def _prelu(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array | None:
    product = of.function.args[1]
    steps, step = read.constant(product.args[0].args[1]), read.constant(product.args[1]).item()
    if not tvm.ir.structural_equal(prelu(of.real, steps, step), of.function):
        return None
    slope = _scale(of.before) * np.float32(step) / _scale(of.after)
    negative = ifm * steps.reshape(-1).astype(np.int64)
    return _sloped(ifm, negative, (divided_scales(of.before, of.after), float(slope)), by)


def _abs(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array:
    return by.rescaled(np.abs(ifm), divided_scales(of.before, of.after))


def _hard_swish(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array:
    before, after = float(_scale(of.before)), float(_scale(of.after))
    if before / 128 >= after:
        raise NotALayer("the input's scale is less than 128 times the output's", f"{before:g} and {after:g}")
    return by.hard_swish(ifm, before, after)


def _rsqrt(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array:
    """TFLite stops at an input below 0; here it counts as 0."""
    return by.inverse_root(np.maximum(ifm, 0), float(_scale(of.before)), float(_scale(of.after)))


# ---------------------------------------------------------------- tables of real functions


def _tabulated(function: Callable[[Array], Array]) -> _Kernel:
    """The kernel that is a table of a function, which takes and gives float32 or more."""

    def kernel(of: BetweenScales, ifm: Array, by: TFLiteArithmetic) -> Array:
        with np.errstate(over="ignore"):
            found = function(_scale(of.before) * ifm.astype(np.float32)).astype(np.float32)
            units = (found * (np.float32(1) / _scale(of.after))).astype(np.float64)
        rounded = np.copysign(np.floor(np.abs(units) + 0.5), units)
        if np.abs(rounded).max() >= _INT32:  # TFLite casts to int32 before it clamps
            raise NotALayer("values in units of the output are int32", f"{np.abs(rounded).max():g}")
        return rounded.astype(np.int64)

    return kernel


def _double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of the C library for float32, whose results are those of double precision, rounded."""
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


_exp, _tanh = _double(np.exp), _double(np.tanh)
_erfc = _double(np.vectorize(math.erfc, otypes=[np.float64]))
_ONE, _HALF = np.float32(1), np.float32(0.5)


def _gelu(x: Array) -> Array:
    return _HALF * x * _erfc(x * np.float32(-math.sqrt(0.5)))


def _gelu_by_tanh(x: Array) -> Array:
    factor = np.float32(2 / math.sqrt(math.pi) * math.sqrt(0.5))
    return _HALF * x * (_ONE + _tanh(factor * (x + np.float32(0.044715) * x * x * x)))


_SINGLE: dict[str, _Kernel] = {
    "sigmoid": _tabulated(_double(lambda x: 1 / (1 + np.exp(-x)))),
    "tanh": _tabulated(_tanh),
    "exp": _tabulated(_exp),
    "nn.leaky_relu": _leaky_relu,
    "abs": _abs,
    "rsqrt": _rsqrt,
}
_FORMS: tuple[tuple[Callable[[relay.Expr], relay.Expr], _Kernel], ...] = (
    (hard_swish, _hard_swish),
    (elu, _tabulated(lambda x: np.where(x < 0, _exp(x) - _ONE, x))),
    (gelu, _tabulated(_gelu)),
    (gelu_by_tanh, _tabulated(_gelu_by_tanh)),
)
"""Operators of several real operators: what these compute of a real value, and the kernel."""
