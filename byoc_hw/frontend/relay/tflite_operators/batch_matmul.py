"""BATCH_MATMUL of int8: TVM's importer has it, but leaves scales and zero points out.

%0 = qnn.batch_matmul(%x, %y)        int32   (batch, rows, depth) and (batch, columns, depth)
%1 = qnn.requantize(%0)              int8
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import ensure


def convert_batch_matmul(converter: Any, operator: Any) -> relay.Expr:
    """The product of two tensors of int8, as TVM's converter gives them. Raises `NotImported`."""
    (x, y), (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    types = [converter.get_tensor_type_str(one.tensor.Type()) for one in (x, y, output)]
    ensure("types are int8, if they are quantized", types == ["int8"] * 3, ", ".join(types))
    options, table = tflite.BatchMatMulOptions(), operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    shape = tuple(map(int, converter.get_tensor_shape(output)))
    left = _matrices(converter, x, shape[:-2], bool(options.AdjX()))
    right = _matrices(converter, y, shape[:-2], not options.AdjY())
    grids = [tensor.qnn_params for tensor in (x, y, output)]
    ensure("scales are one for each tensor", all(_scale(grid).size == 1 for grid in grids), "more")
    total = relay.qnn.op.batch_matmul(
        left,
        right,
        *(grid["zero_point"] for grid in grids[:2]),
        *(grid["scale"] for grid in grids[:2]),
        out_dtype="int32",
    )
    product = np.float32(_scale(grids[0])) * np.float32(_scale(grids[1]))
    return relay.qnn.op.requantize(
        relay.reshape(total, shape),
        relay.const(product, "float32"),
        relay.const(0, "int32"),
        grids[2]["scale"],
        grids[2]["zero_point"],
        out_dtype="int8",
    )


def _scale(grid: Any) -> Any:
    return grid["scale"].data.numpy()


def _matrices(converter: Any, tensor: Any, batch: tuple[int, ...], turned: bool) -> relay.Expr:
    """A tensor as matrices of one batch dimension. A single matrix is one; others are repeated as the output asks."""
    shape = tuple(map(int, converter.get_tensor_shape(tensor)))
    value, count = converter.get_tensor_expr(tensor), int(np.prod(shape[:-2]))
    if count > 1 and shape[:-2] != batch:
        value, count = relay.broadcast_to(value, (*batch, *shape[-2:])), int(np.prod(batch))
    if len(shape) != 3 or len(batch) != 1:
        value = relay.reshape(value, (count, *shape[-2:]))
    return relay.transpose(value, (0, 2, 1)) if turned else value
