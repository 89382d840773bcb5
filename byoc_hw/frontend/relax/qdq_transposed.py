"""A transposed convolution is a convolution to blocks of outputs, whose stored values are then moved.

    %0 = nn.conv2d_transpose(%x, %w)                 %0 = nn.conv2d(%x, %v)         filters for each place in a block
    %1 = add(%0, %b)                                 %1 = add(%0, %b %b ...)
    %2 = quantize(nn.relu(%1))                       %2 = quantize(nn.relu(%1))
                                                     %3 = reshape, permute_dims, reshape
                                                     %4 = strided_slice             where the last blocks are not full

`frontend/transposed.py` says what %v is. The data is NCHW, of one group, and what is real is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    returned_by,
    steps_of,
    users_of_values,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.qdq_match import padding_of, pair_of
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of
from byoc_hw.frontend.transposed import BlockAxis, block_axis, block_weights
from byoc_hw.tensor import Array


def with_blocks(function: Any) -> Any:
    """The function with such transposed convolutions in the second form, where weights have scales by filter."""
    values, users = dict(steps_of(function)), users_of_values(function)
    found = (_read(variable, values, users) for variable in values)
    by_last = {one.inside[-1]: one for one in found if one is not None}
    steps: list[Assignment] = []
    for variable, value in values.items():
        one = by_last.get(variable)
        steps += [(variable, value)] if one is None else one.steps(values)
    return with_steps(function, without_unused(steps, returned_by(function.body.body)))


@dataclass(frozen=True)
class _Transposed:
    """A transposed convolution: `inside` are its variable, and those up to the quantize behind it."""

    conv: Any
    weights: Array
    scales: Array
    zero_point: int
    biases: Mapping[Any, Array]
    inside: tuple[Any, ...]

    @property
    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """Height and width."""
        attrs, shape, results = self.conv.attrs, extents_of(self.conv.args[0]), extents_of(self.conv)
        before, strides = padding_of(attrs.padding), pair_of(attrs.strides)
        rows, columns = (
            block_axis(self.weights.shape[2 + axis], strides[axis], before[axis], shape[2 + axis], results[2 + axis])
            for axis in (0, 1)
        )
        return rows, columns

    def steps(self, values: Mapping[Any, Any]) -> list[Assignment]:
        """The bindings of the second form."""
        rows, columns = self.axes
        places, steps, span = rows.stride * columns.stride, [], self.conv.span
        batch, filters, *_ = extents_of(self.conv)
        blocks = [batch, places * filters, rows.blocks, columns.blocks]

        def bound(name: str, call: Any, shape: Any, dtype: str, of: Any = span) -> Any:
            fresh = relax.DataflowVar(name, relax.TensorType(list(shape), dtype))
            steps.append((fresh, call_on(call, call.args, fresh.ty, of)))
            return fresh

        name = self.inside[0].name
        oihw = np.ascontiguousarray(block_weights(self.weights, self.zero_point, rows, columns).transpose(3, 2, 0, 1))
        scales = np.tile(self.scales, places) if self.scales.size > 1 else self.scales.reshape(())
        grid = relax.const(scales), relax.const(np.full(scales.shape, self.zero_point, np.int32))
        weights = bound(f"{name}_weights", relax.op.dequantize(relax.const(oihw), *grid, axis=0), oihw.shape, "float32")
        padding = [rows.before, columns.before, rows.after, columns.after]
        conv = relax.op.nn.conv2d(self.conv.args[0], weights, padding=padding)
        last = bound(f"{name}_blocks", conv, blocks, "float32")
        for variable in self.inside[1:]:
            call, operands = values[variable], [last, *values[variable].args[1:]]
            if variable in self.biases:
                operands[1] = relax.const(np.tile(self.biases[variable], places).reshape(1, -1, 1, 1))
            call = call_on(call, operands, None)
            last = bound(f"{variable.name}_blocks", call, blocks, dtype_of(variable), values[variable].span)
        dtype, whole = dtype_of(last), [rows.blocks * rows.stride, columns.blocks * columns.stride]
        if places > 1:
            split = [batch, rows.stride, columns.stride, filters, rows.blocks, columns.blocks]
            order = [0, 3, 4, 1, 5, 2]
            last = bound(f"{name}_split", relax.op.reshape(last, split), split, dtype)
            placed = [split[axis] for axis in order]
            last = bound(f"{name}_placed", relax.op.permute_dims(last, order), placed, dtype)
            last = bound(
                f"{name}_joined", relax.op.reshape(last, [batch, filters, *whole]), [batch, filters, *whole], dtype
            )
        results = extents_of(self.conv)
        if list(results[2:]) != whole:
            cut = relax.op.strided_slice(last, axes=[2, 3], begin=[0, 0], end=list(results[2:]), strides=[1, 1])
            last = bound(f"{name}_cut", cut, results, dtype)
        _, value = steps.pop()
        return [*steps, (self.inside[-1], value)]


def _read(variable: Any, values: Mapping[Any, Any], users: Mapping[Any, list[Any]]) -> _Transposed | None:
    """The transposed convolution of a variable, None for any other value or one that has no such form."""
    conv = values[variable]
    if not is_call(conv, "nn.conv2d_transpose") or not _is_plain(conv):
        return None
    kernel = values.get(conv.args[1])
    if not is_call(kernel, "dequantize") or not all(isinstance(one, Literal) for one in kernel.args):
        return None
    weights, scales, zero_points = (array_of(one) for one in kernel.args)
    filters, axis = weights.shape[1], int(kernel.attrs.axis) % 4
    if weights.dtype != np.int8 or np.unique(zero_points).size > 1 or scales.size not in (1, filters):
        return None
    if scales.size > 1 and axis != 1:
        return None
    inside, biases = [variable], {}
    while not is_call(values[inside[-1]], "quantize"):
        readers = users.get(inside[-1], [])
        call = values.get(readers[0]) if len(readers) == 1 else None
        if is_call(call, "add") and call.args[0].same_as(inside[-1]):
            bias = _bias(call.args[1], filters, values)
            if bias is None:
                return None
            biases[readers[0]] = bias
        elif not is_call(call, "nn.relu", "clip", "quantize") or _by_channel(call):
            return None
        inside.append(readers[0])
    return _Transposed(conv, weights, scales.ravel(), int(zero_points.flat[0]), biases, tuple(inside))


def _is_plain(conv: Any) -> bool:
    attrs = conv.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    return layouts == ("NCHW", "IOHW", "NCHW") and int(attrs.groups) == 1 and pair_of(attrs.dilation) == (1, 1)


def _by_channel(call: Any) -> bool:
    return name_of(call) == "quantize" and array_of(call.args[1]).size > 1


def _bias(operand: Any, filters: int, values: Mapping[Any, Any]) -> Array | None:
    """The real values for the filters that an operand has, perhaps under another shape, or None for another one."""
    value = values.get(operand, operand)
    if is_call(value, "reshape") and tuple(extents_of(value))[-2:] == (1, 1):
        value = values.get(value.args[0], value.args[0])
    if is_call(value, "dequantize"):
        stored = [array_of(one) for one in value.args if isinstance(one, Literal)]
        if len(stored) < 3:
            return None
        real = (stored[0].astype(np.int64) - stored[2]).astype(np.float64) * stored[1]
        return real.astype(np.float32).ravel() if real.size == filters else None
    if not isinstance(value, Literal) or array_of(value).size != filters:
        return None
    return array_of(value).ravel()
