"""Operators of quantized tensors whose zero points TVM's importer takes for one that they do not have."""

from __future__ import annotations

import math
from typing import Any

import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import ensure


def convert_sum(converter: Any, operator: Any) -> relay.Expr:
    """The sum over some axes: of n values it has n zero points.

    %0 = cast(%x, "int32")
    %1 = sum(%0)
    %2 = qnn.requantize(%1)              with n times the zero point of %x
    """
    (x, axes), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    ensure("output is quantized, as the input", output.qnn_params is not None, "no scale")
    options, table = tflite.ReducerOptions(), operator.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    keep = table is not None and bool(options.KeepDims())
    over = tuple(map(int, converter.get_tensor_value(axes).reshape(-1)))
    total = relay.sum(relay.cast(converter.get_tensor_expr(x), "int32"), over, keep)
    shape = converter.get_tensor_shape(x)
    count = math.prod(int(shape[axis]) for axis in {axis % len(shape) for axis in over})
    return relay.qnn.op.requantize(
        total,
        x.qnn_params["scale"],
        relay.const(count * _zero_point(x), "int32"),
        output.qnn_params["scale"],
        output.qnn_params["zero_point"],
        out_dtype=converter.get_tensor_type_str(output.tensor.Type()),
    )


def convert_space_to_batch(converter: Any, operator: Any) -> relay.Expr:
    """Blocks of pixels as batches. What is padded reads as zero: it is stored as the zero point."""
    x, block, padding = converter.get_input_tensors(operator)
    sizes, around = (converter.get_tensor_value(one).tolist() for one in (block, padding))
    return relay.nn.space_to_batch_nd(converter.get_tensor_expr(x), sizes, around, _zero_point(x))


def _zero_point(tensor: Any) -> int:
    """The one zero point of a tensor; raises `NotImported` for several."""
    values = tensor.qnn_params["zero_point"].data.numpy()
    ensure("zero points are one for each tensor", values.size == 1, f"{values.size}")
    return int(values)
