"""FULLY_CONNECTED of int8 with a scale for each output: TVM's importer takes one scale alone.

%0 = reshape(%x)                     (rows, depth)
%1 = qnn.dense(%0)                   int32
%2 = nn.bias_add(%1)                 [optional]
%3 = qnn.requantize(%2)              int8, from a scale for each output
%4 = clip(%3)                        [optional]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relay
from tvm.relay.frontend.tflite import OperatorConverter

from byoc_hw.frontend.relay.tflite_operators.fixed_point import ensure


def convert_fully_connected(converter: Any, operator: Any) -> relay.Expr:
    """The product of a tensor and constant weights, as TVM's converter gives it for one scale. Raises `NotImported`."""
    (x, weights, *biases), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    if weights.qnn_params is None or _numbers(weights, "scale").size == 1:
        return OperatorConverter.convert_fully_connected(converter, operator)
    types = [converter.get_tensor_type_str(one.tensor.Type()) for one in (x, weights, output)]
    ensure("types are int8, if weights have a scale for each output", types == ["int8"] * 3, ", ".join(types))
    units, depth = (int(extent) for extent in converter.get_tensor_shape(weights))
    total = relay.qnn.op.dense(
        relay.reshape(converter.get_tensor_expr(x), (-1, depth)),
        converter.get_tensor_expr(weights),
        *(tensor.qnn_params["zero_point"] for tensor in (x, weights)),
        *(tensor.qnn_params["scale"] for tensor in (x, weights)),
        units=units,
        out_dtype="int32",
    )
    for bias in biases:
        if bias.tensor_idx >= 0:
            total = relay.nn.bias_add(total, converter.get_tensor_expr(bias))
    options, table = tflite.FullyConnectedOptions(), operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    result = converter.convert_qnn_fused_activation_function(
        expr=relay.qnn.op.requantize(
            total,
            relay.const(_numbers(x, "scale") * _numbers(weights, "scale"), "float32"),
            relay.const(0, "int32"),
            *(output.qnn_params[name] for name in ("scale", "zero_point")),
            axis=1,
            out_dtype="int8",
        ),
        fused_activation_fn=options.FusedActivationFunction(),
        scale=float(_numbers(output, "scale")),
        zero_point=int(_numbers(output, "zero_point")),
        dtype="int8",
    )
    return relay.reshape(result, (*converter.get_tensor_shape(x)[:-1], units)) if options.KeepNumDims() else result


def _numbers(tensor: Any, name: str) -> Any:
    return np.asarray(tensor.qnn_params[name].data.numpy())
