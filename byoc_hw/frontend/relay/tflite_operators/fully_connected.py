"""FULLY_CONNECTED of quantized tensors: TVM's importer takes one scale for all weights, TFLite one for each output too.

%0 = reshape(%x, newshape=[-1, depth])
%1 = qnn.dense(%0, W)                int32
%2 = nn.bias_add(%1, b)              [optional]
%3 = qnn.requantize(%2)              int8, or int16
%4 = clip(%3)                        [optional]
%5 = reshape(%4)                     where the output keeps the dimensions of %x
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import ensure, tensor_scale, tensor_zero_point


def convert_fully_connected(converter: Any, operator: Any) -> relay.Expr:
    """The product of rows and weights, as TVM's converter gives it. Raises `NotImported`."""
    inputs, (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    ensure("inputs are rows, weights, and perhaps a bias", 2 <= len(inputs) <= 3, len(inputs))
    x, weights = inputs[:2]
    for what, tensor in (("weights", weights), ("output", output)):
        ensure(f"{what} are quantized, as the input", tensor.qnn_params is not None, "no scale")
    options, table = tflite.FullyConnectedOptions(), operator.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    ensure("weights have 2 dimensions", weights.tensor.ShapeLength() == 2, weights.tensor.ShapeLength())
    units, depth = map(int, converter.get_tensor_shape(weights))
    dtype = converter.get_tensor_type_str(output.tensor.Type())
    total = relay.qnn.op.dense(
        relay.reshape(converter.get_tensor_expr(x), (-1, depth)),
        converter.get_tensor_expr(weights),
        *(tensor.qnn_params["zero_point"] for tensor in (x, weights)),
        *(tensor.qnn_params["scale"] for tensor in (x, weights)),
        units,
        out_dtype="int64" if dtype == "int16" else "int32",
    )
    if len(inputs) == 3 and inputs[2].tensor_idx >= 0:
        of_bias = converter.get_tensor_type_str(inputs[2].tensor.Type())
        ensure("bias is int32 or int64", of_bias in ("int32", "int64"), of_bias)
        total = relay.nn.bias_add(total, converter.get_tensor_expr(inputs[2]))
    scales = weights.qnn_params["scale"].data.numpy() * tensor_scale(x)
    rows = relay.qnn.op.requantize(
        total,
        relay.const(np.asarray(scales), "float32"),
        relay.const(0, "int32"),
        output.qnn_params["scale"],
        output.qnn_params["zero_point"],
        axis=1 if scales.size > 1 else -1,
        out_dtype=dtype,
    )
    rows = converter.convert_qnn_fused_activation_function(
        expr=rows,
        fused_activation_fn=options.FusedActivationFunction() if table is not None else 0,
        scale=float(tensor_scale(output)),
        zero_point=tensor_zero_point(output),
        dtype=dtype,
    )
    if table is not None and options.KeepNumDims():
        return relay.reshape(rows, (*map(int, converter.get_tensor_shape(x)[:-1]), units))
    return rows
