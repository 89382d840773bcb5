"""Operators of a file that arrive as dequantize, real operators and quantize, and TFLite's kernels for them.

An operator is told by its real operators, which are those of TVM's importer or of `tflite_operators/elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay
from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.sources import operator_name, source_names
from byoc_hw.frontend.relay.tflite_operators.elementwise import elu, gelu, gelu_by_tanh, hard_swish, prelu
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.frontend.tflite_kernels import (
    ELU,
    EXP,
    GELU,
    GELU_BY_TANH,
    SIGMOID,
    TANH,
    Scales,
    ValueKernel,
    absolute,
    hard_swish_of,
    inverse_root_of,
    leaky_relu,
    prelu_of,
)
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class BetweenScales:
    """An operator between two 8-bit values: `function` computes what is quantized of `real`, the dequantized source."""

    source: relay.Expr
    scales: Scales
    real: relay.Call
    function: relay.Call
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
    return BetweenScales(real.args[0], Scales(before, after), real, quantize.args[0], quantize)


def units_of_output(of: BetweenScales, ifm: Array, by: FixedPoint) -> Array | None:
    """The output without its zero point, int64, of an input without its own; None for an operator without a kernel."""
    kernel = _kernel_of(of)
    return None if kernel is None else kernel(of.scales, ifm, by)


def _kernel_of(of: BetweenScales) -> ValueKernel | None:
    name = operator_name(of.function)
    if of.function.args[0] == of.real:
        if name == "nn.leaky_relu":
            return leaky_relu(of.function.attrs.alpha)
        if name in _SINGLE:
            return _SINGLE[name]
    for expression, kernel in _FORMS:
        if tvm.ir.structural_equal(expression(of.real), of.function):
            return kernel
    steps, scale = (is_constant() for _ in range(2))
    x, zeros = wildcard(), [is_constant() for _ in range(2)]
    negative = is_op("multiply")(is_op("multiply")(is_op("minimum")(x, zeros[1]), steps), scale)
    return _prelu(of) if is_op("add")(is_op("maximum")(x, zeros[0]), negative).match(of.function) else None


def _prelu(of: BetweenScales) -> ValueKernel | None:
    product = of.function.args[1]
    steps, step = read.constant(product.args[0].args[1]), read.constant(product.args[1]).item()
    if not tvm.ir.structural_equal(prelu(of.real, steps, step), of.function):
        return None
    return prelu_of(steps.reshape(-1).astype(np.int64), step)


_SINGLE: dict[str, ValueKernel] = {
    "sigmoid": SIGMOID,
    "tanh": TANH,
    "exp": EXP,
    "abs": absolute,
    "rsqrt": inverse_root_of,
}
_FORMS: tuple[tuple[Callable[[relay.Expr], relay.Expr], ValueKernel], ...] = (
    (hard_swish, hard_swish_of),
    (elu, ELU),
    (gelu, GELU),
    (gelu_by_tanh, GELU_BY_TANH),
)
"""Operators of several real operators: what these compute of a real value, and the kernel."""
