"""A transposed convolution is a convolution with stride 1 to blocks of outputs, whose values are then moved.

    %0 = qnn.conv2d_transpose(%x, W)     int32, strides (s, t)
    %1 = nn.bias_add(%0, b)              [optional; or add]
    %2 = qnn.requantize(%1)              int8
    %3 = clip(%2)                        [optional]

becomes

    %0 = qnn.conv2d(%x, V)               int32: s * t * K filters, for each place in a block of s x t outputs K
    %1 = nn.bias_add(%0, b b ...)
    %2 = qnn.requantize(%1)
    %3 = clip(%2)
    %4 = reshape, transpose, reshape     depth to space
    %5 = strided_slice                   [where the last blocks are not full]

`frontend/transposed.py` says what V is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main, rebuild_calls
from byoc_hw.frontend.relay.dead import dead_channels
from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.read import constant, is_static, padding, pair
from byoc_hw.frontend.relay.rewrite.requantized_sum import RequantizedSum, requantized_sum
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import operator_name, operator_names, with_span
from byoc_hw.frontend.relay.table import offloads
from byoc_hw.frontend.transposed import BlockAxis, block_axis, block_weights
from byoc_hw.tensor import Array

_Moved = Callable[[relay.Expr], relay.Expr]


def blockwise_convolutions(session: Session) -> tvm.transform.Pass:
    """Rewrite each transposed convolution whose convolution is then offloaded in a session.

    Why another one is not is recorded there.
    """

    def rewritten(function: relay.Function) -> relay.Function:
        if "qnn.conv2d_transpose" not in operator_names(function):
            return function
        users = users_of(function)
        made: dict[relay.Expr, tuple[relay.Expr, _Moved]] = {}

        def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
            if operator_name(call) == "clip" and arguments[0] in made and len(users[call.args[0]]) == 1:
                blocks, moved = made[arguments[0]]
                return moved(called_with(call, [blocks]))
            found = _read(call)
            if found is None or any(len(users[inner]) > 1 for inner in found.inside):
                return called_with(call, arguments)
            if not offloads(session, found.conv.args[0], found.blocks):
                return called_with(call, arguments)
            ifm = arguments[0]
            for _ in found.inside:
                ifm = ifm.args[0]
            blocks = found.blocks(ifm)
            result = found.moved(blocks)
            made[result] = blocks, found.moved
            return result

        return rebuild_calls(function, rebuild)

    return on_main(rewritten, "BlockwiseConvolutions")


class _Transposed(RequantizedSum):
    """A transposed convolution with what follows it."""

    @property
    def channel_axis(self) -> int:
        return self.layout.index("C")

    @property
    def filters(self) -> int:
        return int(self.conv.checked_type.shape[self.channel_axis])

    @property
    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """Height and width."""
        attrs, weights = self.conv.attrs, constant(self.conv.args[1])
        (top, left, _, _), strides = padding(attrs.padding), pair(attrs.strides)
        ifm, ofm = (
            [int(shape[self.layout.index(letter)]) for letter in "HW"]
            for shape in (self.conv.args[0].checked_type.shape, self.conv.checked_type.shape)
        )
        height, width = (
            block_axis(weights.shape[2 + axis], strides[axis], (top, left)[axis], ifm[axis], ofm[axis])
            for axis in (0, 1)
        )
        return height, width

    def blocks(self, ifm: relay.Expr) -> relay.Expr:
        """The requantized convolution, whose channels are the values of a block."""
        rows, columns = self.axes
        conv = relay.qnn.op.conv2d(
            ifm,
            relay.const(self._weights(rows, columns), "int8"),
            *(self._for_each_place(value) for value in self.conv.args[2:]),
            kernel_size=(rows.kernel, columns.kernel),
            channels=self._places * self.filters,
            strides=(1, 1),
            padding=(rows.before, columns.before, rows.after, columns.after),
            data_layout=self.layout,
            kernel_layout="HWIO" if self.layout == "NHWC" else "OIHW",
            out_dtype="int32",
        )
        total = with_span(conv, self.conv.span)
        if self.bias is not None:
            values = relay.const(np.tile(constant(self.bias.args[1]).reshape(-1), self._places), "int32")
            total = with_span(relay.nn.bias_add(total, values, self.channel_axis), self.bias.span)
        attrs = self.requantize.attrs
        result = relay.qnn.op.requantize(
            total,
            *(self._for_each_place(value) for value in self.requantize.args[1:]),
            axis=self.channel_axis,
            rounding=str(attrs.rounding),
            compute_dtype=str(attrs.compute_dtype),
            out_dtype="int8",
        )
        return with_span(result, self.requantize.span)

    def moved(self, blocks: relay.Expr) -> relay.Expr:
        """The blocks' values at their places in height and width."""
        rows, columns = self.axes
        shape = [int(extent) for extent in self.conv.checked_type.shape]
        batch, inner, result = shape[0], (rows.stride, columns.stride, self.filters), blocks
        whole = [rows.blocks * rows.stride, columns.blocks * columns.stride]
        if self._places > 1:
            if self.layout == "NHWC":
                split, order = (batch, rows.blocks, columns.blocks, *inner), (0, 1, 3, 2, 4, 5)
            else:
                split, order = (batch, *inner, rows.blocks, columns.blocks), (0, 3, 4, 1, 5, 2)
            joined = (batch, *whole, self.filters) if self.layout == "NHWC" else (batch, self.filters, *whole)
            result = self._named(relay.reshape(result, split))
            result = self._named(relay.transpose(result, order))
            result = self._named(relay.reshape(result, joined))
        if whole != [shape[self.layout.index(letter)] for letter in "HW"]:
            result = self._named(relay.strided_slice(result, [0] * 4, shape))
        return result

    def _named(self, call: relay.Call) -> relay.Call:
        return with_span(call, self.conv.span)

    @property
    def _places(self) -> int:
        rows, columns = self.axes
        return rows.stride * columns.stride

    def _for_each_place(self, value: relay.Expr) -> relay.Expr:
        """A vector of a value for each filter, repeated for each place; a single value as a scalar."""
        data = constant(value)
        return relay.const(np.tile(data, self._places) if data.size > 1 else data.reshape(()), str(data.dtype))

    def _weights(self, rows: BlockAxis, columns: BlockAxis) -> Array:
        hwio = block_weights(constant(self.conv.args[1]), constant(self.conv.args[3]).flat[0], rows, columns)
        return np.ascontiguousarray(hwio if self.layout == "NHWC" else hwio.transpose(3, 2, 0, 1))


def _read(call: relay.Call) -> _Transposed | None:
    """The transposed convolution that a requantize ends, None for any other call or one that has no such form."""
    read = requantized_sum(call, "qnn.conv2d_transpose")
    if read is None:
        return None
    found, conv, bias = _Transposed(read.conv, read.bias, call), read.conv, read.bias
    constants = (*conv.args[1:], *call.args[1:], *(() if bias is None else bias.args[1:]))
    if not all(isinstance(value, relay.Constant) for value in constants) or not _is_plain(conv, call):
        return None
    if bias is not None and not _along_channels(found, bias):
        return None
    per_filter = (conv.args[5], call.args[1], call.args[2])
    axis = int(call.attrs.axis) % 4
    if any(constant(value).size not in (1, found.filters) for value in per_filter) or dead_channels(call).any():
        return None
    single = constant(call.args[1]).size == 1 or axis == found.channel_axis
    return found if single and constant(conv.args[3]).size == constant(conv.args[2]).size == 1 else None


def _is_plain(conv: relay.Call, requantize: relay.Call) -> bool:
    attrs, ifm = conv.attrs, conv.args[0].checked_type
    return (
        str(attrs.data_layout) in ("NHWC", "NCHW")
        and str(attrs.out_layout) in ("", str(attrs.data_layout))
        and str(attrs.kernel_layout) == "IOHW"
        and int(attrs.groups) == 1
        and pair(attrs.dilation) == (1, 1)
        and ifm.dtype == conv.args[1].checked_type.dtype == requantize.checked_type.dtype == "int8"
        and conv.checked_type.dtype == "int32"
        and is_static(ifm)
    )


def _along_channels(found: _Transposed, bias: relay.Call) -> bool:
    values = constant(bias.args[1])
    if operator_name(bias) == "nn.bias_add":
        return int(bias.attrs.axis) % 4 == found.channel_axis
    return (1,) * (4 - values.ndim) + values.shape == tuple(
        found.filters if axis == found.channel_axis else 1 for axis in range(4)
    )
