"""Element by element operators that TVM's importer lacks, or that it computes of stored values as if they were real.

Of quantized tensors they are dequantized, computed as float32, and quantized again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import NotImported, ensure
from byoc_hw.tensor import Array


def convert_prelu(converter: Any, operator: Any) -> relay.Expr:
    """x, or x times a constant slope where x is negative."""
    (x, slope), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    ensure("slopes are a constant", not converter.has_expr(slope.tensor_idx), "another tensor")
    stored, scale = converter.get_tensor_value(slope).astype("float32"), 1.0
    if slope.qnn_params is not None:
        grid = [slope.qnn_params[key].data.numpy() for key in ("scale", "zero_point")]
        ensure("scales are one for each tensor", all(one.size == 1 for one in grid), "more")
        stored, scale = stored - grid[1].item(), grid[0].item()
    return _stored(converter, prelu(_real(converter, x), stored, scale), output)


def prelu(x: relay.Expr, steps: Array, scale: float) -> relay.Expr:
    """PRELU of a real value; a slope is a number of steps of one scale."""
    zero = _float(0.0)
    return relay.maximum(x, zero) + relay.minimum(x, zero) * relay.const(steps, "float32") * _float(scale)


def convert_gelu(converter: Any, operator: Any) -> relay.Expr:
    """x times the normal distribution's integral up to x, or its approximation by tanh."""
    (x,), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    options, table = tflite.GeluOptions(), operator.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    function = gelu_by_tanh if table is not None and options.Approximate() else gelu
    return _stored(converter, function(_real(converter, x)), output)


def gelu(x: relay.Expr) -> relay.Expr:
    """GELU of a real value."""
    return _float(0.5) * x * (_float(1.0) + relay.erf(x * _float(math.sqrt(0.5))))


def gelu_by_tanh(x: relay.Expr) -> relay.Expr:
    """The approximation of GELU that TFLite has, of a real value."""
    inner = x + _float(0.044715) * x * x * x
    return _float(0.5) * x * (_float(1.0) + relay.tanh(_float(math.sqrt(2 / math.pi)) * inner))


def convert_elu(converter: Any, operator: Any) -> relay.Expr:
    """x, or exp(x) - 1 where x is negative."""
    return _of_one(elu, converter, operator)


def elu(x: relay.Expr) -> relay.Expr:
    """ELU of a real value."""
    return relay.nn.relu(x) - relay.nn.relu(_float(1.0) - relay.exp(x))


def hard_swish(x: relay.Expr) -> relay.Expr:
    """HARD_SWISH of a real value, as TVM's importer has it."""
    return x * relay.clip(x + _float(3.0), 0.0, 6.0) / _float(6.0)


def convert_square(converter: Any, operator: Any) -> relay.Expr:
    """x times x."""
    return _of_one(lambda x: x * x, converter, operator)


def convert_log_softmax(converter: Any, operator: Any) -> relay.Expr:
    """The logarithm of softmax over the last dimension: of other than 2, TVM's importer takes all for one."""
    return _of_one(lambda x: relay.nn.log_softmax(x, axis=-1), converter, operator)


def convert_comparison(compare: Callable[..., relay.Expr], converter: Any, operator: Any) -> relay.Expr:
    """A comparison of two tensors: of their stored values if these have one scale."""
    one, other = converter.get_input_tensors(operator)
    same = other.qnn_params is not None and bool(converter.has_same_qnn_params(one, other))
    read = converter.get_tensor_expr if same else partial(_real, converter)
    return compare(read(one), read(other))


def convert_broadcast_to(converter: Any, operator: Any) -> relay.Expr:
    """The tensor, repeated along its dimensions of 1 up to the output's shape."""
    x, _ = converter.get_input_tensors(operator)
    (output,) = converter.get_output_tensors(operator)
    if x.qnn_params is not None:
        ensure("input and output have one scale", bool(converter.has_same_qnn_params(x, output)), "two")
    shape = tuple(map(int, converter.get_tensor_shape(output)))
    return relay.broadcast_to(converter.get_tensor_expr(x), shape)


def refuse_quantized(converter: Any, operator: Any) -> relay.Expr:
    """What the operator gives of stored values is not what it gives of the real ones."""
    (output,) = converter.get_output_tensors(operator)
    raise NotImported("type is not quantized", converter.get_tensor_type_str(output.tensor.Type()))


def _of_one(function: Callable[[relay.Expr], relay.Expr], converter: Any, operator: Any) -> relay.Expr:
    (x,), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    return _stored(converter, function(_real(converter, x)), output)


def _float(value: float) -> relay.Expr:
    return relay.const(value, "float32")


def _real(converter: Any, tensor: Any) -> relay.Expr:
    value = converter.get_tensor_expr(tensor)
    return value if tensor.qnn_params is None else converter.dequantize(value, tensor)


def _stored(converter: Any, value: relay.Expr, tensor: Any) -> relay.Expr:
    return value if tensor.qnn_params is None else converter.quantize(value, tensor)
