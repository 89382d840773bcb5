"""Element by element operators that TVM's importer lacks, or that it computes of stored values as if they were real.

Of quantized tensors they are dequantized, computed as float32, and quantized again.
"""

from __future__ import annotations

import math
from typing import Any

import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import NotImported, ensure


def convert_prelu(converter: Any, operator: Any) -> relay.Expr:
    """x, or x times a constant slope where x is negative."""
    (x, slope), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    ensure("slopes are a constant", not converter.has_expr(slope.tensor_idx), "another tensor")
    stored = converter.get_tensor_value(slope)
    grid = [] if slope.qnn_params is None else [slope.qnn_params[key].data.numpy() for key in ("scale", "zero_point")]
    ensure("scales are one for each tensor", all(one.size == 1 for one in grid), "more")
    values = stored if not grid else (stored.astype("float32") - grid[1].item()) * grid[0]
    real, zero = _real(converter, x), relay.const(0.0, "float32")
    slopes = relay.const(values.astype("float32"), "float32")
    return _stored(converter, relay.maximum(real, zero) + relay.minimum(real, zero) * slopes, output)


def convert_gelu(converter: Any, operator: Any) -> relay.Expr:
    """x times the normal distribution's integral up to x, or its approximation by tanh."""
    (x,), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    options, table = tflite.GeluOptions(), operator.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    real = _real(converter, x)
    if table is not None and options.Approximate():
        inner = real + _float(0.044715) * real * real * real
        integral = relay.tanh(_float(math.sqrt(2 / math.pi)) * inner)
    else:
        integral = relay.erf(real * _float(math.sqrt(0.5)))
    return _stored(converter, _float(0.5) * real * (_float(1.0) + integral), output)


def convert_broadcast_to(converter: Any, operator: Any) -> relay.Expr:
    """The tensor, repeated along its dimensions of 1 up to the output's shape."""
    x, _ = converter.get_input_tensors(operator)
    (output,) = converter.get_output_tensors(operator)
    if x.qnn_params is not None:
        ensure("input and output have one scale", bool(converter.has_same_qnn_params(x, output)), "two")
    shape = tuple(map(int, converter.get_tensor_shape(output)))
    return relay.broadcast_to(converter.get_tensor_expr(x), shape)


def refuse_quantized_product(converter: Any, operator: Any) -> relay.Expr:
    """REDUCE_PROD of stored values is not the product of the real ones."""
    (output,) = converter.get_output_tensors(operator)
    raise NotImported("type is not quantized", converter.get_tensor_type_str(output.tensor.Type()))


def _float(value: float) -> relay.Expr:
    return relay.const(value, "float32")


def _real(converter: Any, tensor: Any) -> relay.Expr:
    value = converter.get_tensor_expr(tensor)
    return value if tensor.qnn_params is None else converter.dequantize(value, tensor)


def _stored(converter: Any, value: relay.Expr, tensor: Any) -> relay.Expr:
    return value if tensor.qnn_params is None else converter.quantize(value, tensor)
