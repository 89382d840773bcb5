"""Operators that only move int8 values, in terms of slice, concatenate, transpose and reshape.

split, stack, depth_to_space, space_to_depth, upsampling, an image of one pixel, row or column repeated; and
qnn.concatenate, whose inputs with another quantization are requantized first, as TVM does.
"""

from __future__ import annotations

from itertools import accumulate

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, each_call
from byoc_hw.frontend.relay.read import equal_constants, is_static
from byoc_hw.frontend.relay.sources import operator_name, with_span


def plain_moves() -> tvm.transform.Pass:
    """Replace each such operator of int8 values; the others, and all other types, stay as they are."""
    return each_call(_plain, "PlainMoves")


def _plain(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    rewritten = {
        "split": _split,
        "stack": _stack,
        "nn.depth_to_space": _depth_to_space,
        "nn.space_to_depth": _space_to_depth,
        "nn.upsampling": _upsampling,
        "broadcast_to": _broadcast_to,
        "qnn.concatenate": _concatenate,
    }.get(operator_name(call))
    if rewritten is None or not _moves_int8(call):
        return called_with(call, arguments)
    return rewritten(call, arguments)


def _moves_int8(call: relay.Call) -> bool:
    """Whether an operator's inputs have static shapes, and are all of int8."""
    ifm = call.args[0].checked_type
    return all(
        tensor.dtype == "int8" and is_static(tensor)
        for tensor in (ifm.fields if isinstance(ifm, relay.TupleType) else (ifm,))
    )


def _for(call: relay.Call, made: relay.Call) -> relay.Call:
    """A new call with the source names of the one that it replaces."""
    return with_span(made, call.span)


def _shape(expr: relay.Expr) -> list[int]:
    return [int(extent) for extent in expr.checked_type.shape]


# ---------------------------------------------------------------- several inputs or outputs


def _split(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    shape = _shape(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    extents = [int(part.shape[axis]) for part in call.checked_type.fields]
    parts = []
    for start, extent in zip(accumulate([0, *extents]), extents, strict=False):
        begin, end = [0] * len(shape), list(shape)
        begin[axis], end[axis] = start, start + extent
        parts.append(_for(call, relay.strided_slice(arguments[0], begin, end)))
    return relay.Tuple(parts, call.span)


def _stack(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    if not isinstance(arguments[0], relay.Tuple):
        return called_with(call, arguments)
    axis = int(call.attrs.axis) % len(call.checked_type.shape)
    parts = [_for(call, relay.expand_dims(part, axis)) for part in arguments[0].fields]
    return _for(call, relay.concatenate(relay.Tuple(parts, call.span), axis))


def _concatenate(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    data, scales, zero_points, scale, zero_point = arguments
    quantizations = (scales, zero_points)
    if not all(isinstance(one, relay.Tuple) for one in (data, *quantizations)):
        return called_with(call, arguments)
    if not all(isinstance(one, relay.Constant) for one in (*scales.fields, *zero_points.fields, scale, zero_point)):
        return called_with(call, arguments)
    parts = [
        part
        if equal_constants(own_scale, scale) and equal_constants(own_zero_point, zero_point)
        else _for(call, relay.qnn.op.requantize(part, own_scale, own_zero_point, scale, zero_point, out_dtype="int8"))
        for part, own_scale, own_zero_point in zip(data.fields, scales.fields, zero_points.fields, strict=True)
    ]
    return _for(call, relay.concatenate(relay.Tuple(parts, call.span), int(call.attrs.axis)))


# ---------------------------------------------------------------- blocks of pixels and channels


def _depth_to_space(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    block, blocks_first = int(call.attrs.block_size), str(call.attrs.mode) == "DCR"
    if str(call.attrs.layout) == "NHWC":
        batch, height, width, channels = _shape(call.args[0])
        kept = channels // block**2
        split = (batch, height, width, *((block, block, kept) if blocks_first else (kept, block, block)))
        order = (0, 1, 3, 2, 4, 5) if blocks_first else (0, 1, 4, 2, 5, 3)
    else:
        batch, channels, height, width = _shape(call.args[0])
        kept = channels // block**2
        split = (batch, *((block, block, kept) if blocks_first else (kept, block, block)), height, width)
        order = (0, 3, 4, 1, 5, 2) if blocks_first else (0, 1, 4, 2, 5, 3)
    return _permuted(call, arguments[0], split, order)


def _space_to_depth(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    block = int(call.attrs.block_size)
    if str(call.attrs.layout) == "NHWC":
        batch, height, width, channels = _shape(call.args[0])
        split: tuple[int, ...] = (batch, height // block, block, width // block, block, channels)
        order = (0, 1, 3, 2, 4, 5)
    else:
        batch, channels, height, width = _shape(call.args[0])
        split = (batch, channels, height // block, block, width // block, block)
        order = (0, 3, 5, 1, 2, 4)
    return _permuted(call, arguments[0], split, order)


def _upsampling(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """As TVM computes it: ConvertLayout knows image.resize2d, but not nn.upsampling."""
    layout, method = str(call.attrs.layout), str(call.attrs.method)
    if layout not in ("NHWC", "NCHW"):
        return called_with(call, arguments)
    size = [_shape(call)[layout.index(letter)] for letter in "HW"]
    coordinates = "align_corners" if call.attrs.align_corners else "asymmetric"
    return _for(
        call,
        relay.image.resize2d(arguments[0], size, None, layout, method.removeprefix("bi"), coordinates, ""),
    )


def _broadcast_to(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """One row or column, or a pixel, repeated: the nearest one of each place."""
    before, after = _shape(call.args[0]), _shape(call)
    for layout in ("NHWC", "NCHW"):
        size = [after[layout.index(letter)] for letter in "HW"]
        kept = len(before) == 4 and all(before[layout.index(letter)] == after[layout.index(letter)] for letter in "NC")
        if kept and before != after:
            return _for(
                call, relay.image.resize2d(arguments[0], size, None, layout, "nearest_neighbor", "asymmetric", "")
            )
    return called_with(call, arguments)


def _permuted(call: relay.Call, ifm: relay.Expr, split: tuple[int, ...], order: tuple[int, ...]) -> relay.Expr:
    """The input's dimensions split, in another order, and joined to those of the call."""
    moved = _for(call, relay.transpose(_for(call, relay.reshape(ifm, split)), order))
    return _for(call, relay.reshape(moved, _shape(call)))
