"""TFLite's BATCH_MATMUL of int8 as Relay, with the scales and zero points that TVM's importer leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relay
from tvm.relay.frontend.common import infer_shape, to_int_list


def quantized(converter: Any, operator: Any) -> bool:
    """Whether an operator's first input and output are int8 tensors with scales."""
    tensors = converter.get_input_tensors(operator)[0], converter.get_output_tensors(operator)[0]
    return all(tensor.qnn_params and tensor.tensor.Type() == tflite.TensorType.INT8 for tensor in tensors)


def batch_matmul(converter: Any, operator: Any) -> relay.Expr:
    """The product of an operator, requantized. Leading dimensions are one batch; those of 1 are repeated."""
    one, other = converter.get_input_tensors(operator)
    (output,) = converter.get_output_tensors(operator)
    options = tflite.BatchMatMulOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    first, second = converter.get_tensor_expr(one), converter.get_tensor_expr(other)
    batch = np.broadcast_shapes(infer_shape(first)[:-2], infer_shape(second)[:-2])
    first, second = _matrices(first, batch, options.AdjX()), _matrices(second, batch, not options.AdjY())
    ends = [(tensor.qnn_params["zero_point"], tensor.qnn_params["scale"]) for tensor in (one, other)]
    (one_zero, one_scale), (other_zero, other_scale) = ends
    product = relay.qnn.op.batch_matmul(first, second, one_zero, other_zero, one_scale, other_scale, "int32")
    scale = np.float32(one_scale.data.numpy()) * np.float32(other_scale.data.numpy())
    result = relay.qnn.op.requantize(
        product,
        relay.const(scale, "float32"),
        relay.const(0, "int32"),
        output.qnn_params["scale"],
        output.qnn_params["zero_point"],
        out_dtype="int8",
    )
    return relay.reshape(result, to_int_list(converter.get_tensor_shape(output)))


def _matrices(expr: relay.Expr, batch: tuple[int, ...], swapped: bool) -> relay.Expr:
    """A 3-D tensor of the matrices, with rows and columns `swapped` or not; of one matrix the batch is 1."""
    shape = infer_shape(expr)
    if int(np.prod(shape[:-2])) == 1:
        expr = relay.reshape(expr, (1, *shape[-2:]))
    else:
        if shape[:-2] != batch:
            expr = relay.broadcast_to(expr, (*batch, *shape[-2:]))
        expr = relay.reshape(expr, (-1, *shape[-2:]))
    return relay.transpose(expr, (0, 2, 1)) if swapped else expr
