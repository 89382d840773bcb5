"""SVDF of int8, with its state of int16 or int8: a layer of features, and a filter over time.

    %0 = qnn.dense(%x, features)                     int32   (batch, filters)
    %1 = %0 * scale, limited to the state's type
    %2 = concatenate(%state[.., 1:], %1)             the next state, (batch, filters, memory)
    %3 = sum(%2 * times, over memory and rank)       int32   (batch, units)
    %4 = (%3 + bias) * scale + zero point            int8

TFLite keeps the state in the interpreter; here it is an input, and the next state an output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import (
    ensure,
    narrowed,
    scaled,
    tensor_scale,
    tensor_zero_point,
)
from byoc_hw.tensor import Array


def convert_svdf(converter: Any, operator: Any) -> tuple[relay.Expr, relay.Expr]:
    """Output and next state, from an operator as TVM's converter gives it. Raises `NotImported`."""
    inputs, outputs = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    ensure("SVDF has 5 inputs and 1 output", (len(inputs), len(outputs)) == (5, 1), f"{len(inputs)} and {len(outputs)}")
    (x, features, times, bias, state), (output,) = inputs, outputs
    types = [converter.get_tensor_type_str(one.tensor.Type()) for one in (x, features, times, state, output)]
    ensure("types are int8, with times and state of int16, or of int8", types in _TYPES, ", ".join(types))
    dtype = types[3]
    for name, one in {"features": features, "times": times, "state": state}.items():
        ensure(f"zero point of {name} is 0", tensor_zero_point(one) == 0, tensor_zero_point(one))
    features_data, times_data = converter.get_tensor_value(features), converter.get_tensor_value(times)
    filters, memory = times_data.shape
    ensure("memory is at least 2", memory > 1, memory)
    options = _options(operator)
    activation = options.FusedActivationFunction()
    ensure("activation is RELU, as TFLite asks", activation == tflite.ActivationFunctionType.RELU, activation)
    batch, rank = int(x.tensor.Shape(0)), options.Rank()
    ensure("rank divides the filters", rank > 0 and filters % rank == 0, f"{rank} for {filters}")
    shape = converter.get_tensor_shape(state)
    ensure(f"state has shape ({batch}, {filters * memory})", tuple(shape) == (batch, filters * memory), tuple(shape))

    feature = relay.qnn.op.dense(
        converter.get_tensor_expr(x),
        relay.const(features_data, "int8"),
        *(x.qnn_params["zero_point"], relay.const(0, "int32")),
        *(x.qnn_params["scale"], features.qnn_params["scale"]),
        units=filters,
        out_dtype="int32",
    )
    into_state = tensor_scale(x) * tensor_scale(features) / tensor_scale(state)
    new = narrowed(scaled(feature, float(into_state), 255 * _largest_sum(features_data)), 0, dtype)
    history = relay.reshape(converter.get_expr(state.tensor_idx), (batch, filters, memory))
    kept = relay.strided_slice(history, [1], [memory], axes=[2])
    following = relay.concatenate([kept, relay.reshape(new, (batch, filters, 1))], axis=2)

    units = filters // rank
    over = relay.reshape(relay.cast(following, "int32"), (batch, units, rank * memory))
    total = relay.sum(over * relay.const(times_data.astype(np.int32).reshape(units, rank * memory), "int32"), axis=2)
    largest = -np.iinfo(dtype).min * _largest_sum(times_data.reshape(units, rank * memory))
    if bias.tensor_idx >= 0:
        bias_data = converter.get_tensor_value(bias)
        total, largest = total + relay.const(bias_data, "int32"), largest + int(abs(bias_data.astype(np.int64)).max())
    into_output = tensor_scale(state) * tensor_scale(times) / tensor_scale(output)
    result = narrowed(scaled(total, float(into_output), largest), tensor_zero_point(output), "int8")
    return result, relay.reshape(following, (batch, filters * memory))


_TYPES = (["int8", "int8", "int16", "int16", "int8"], ["int8", "int8", "int8", "int8", "int8"])


def _options(operator: Any) -> Any:
    options, table = tflite.SVDFOptions(), operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    return options


def _largest_sum(weights: Array) -> int:
    """The largest sum of absolute values in a row."""
    return int(abs(weights.astype(np.int64)).sum(axis=-1).max())
