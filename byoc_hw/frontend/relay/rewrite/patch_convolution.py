"""A convolution whose windows lie side by side is one of single pixels, of which each has all values of a window.

    %0 = qnn.conv2d(%x, W)               int32, kernel and strides (s, t), no padding
    %1 = nn.bias_add(%0, b)              [optional; or add]
    %2 = qnn.requantize(%1)              int8

becomes, where the accelerator lacks such strides, as for the patches that vision transformers begin with,

    %0 = strided_slice(%x)               [where rows or columns are left over]
    %1 = reshape, transpose, reshape     space to depth
    %2 = qnn.conv2d(%1, V)               int32: kernel and strides (1, 1), s * t * C channels
    %3 = nn.bias_add(%2, b)
    %4 = qnn.requantize(%3)
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main, rebuild_calls
from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.read import constant, is_static, padding, pair
from byoc_hw.frontend.relay.rewrite.requantized_sum import RequantizedSum, requantized_sum
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import operator_names, with_span
from byoc_hw.frontend.relay.table import offloads


def patch_convolutions(session: Session) -> tvm.transform.Pass:
    """Rewrite each convolution of patches, with strides that the accelerator lacks, that is then offloaded in a
    session. Why another one is not is recorded there."""
    limits = session.accelerator.limits.get("conv2d")

    def rewritten(function: relay.Function) -> relay.Function:
        if limits is None or limits.strides is None or "qnn.conv2d" not in operator_names(function):
            return function
        users, taken = users_of(function), limits.strides

        def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
            found = _read(call)
            if found is None or set(pair(found.conv.attrs.strides)) <= set(taken):
                return called_with(call, arguments)
            if any(len(users[inner]) > 1 for inner in found.inside):
                return called_with(call, arguments)
            if not offloads(session, found.conv.args[0], lambda ifm: found.sums(found.pixels(ifm))):
                return called_with(call, arguments)
            ifm = arguments[0]
            for _ in found.inside:
                ifm = ifm.args[0]
            return found.sums(found.pixels(ifm))

        return rebuild_calls(function, rebuild)

    return on_main(rewritten, "PatchConvolutions")


class _Patches(RequantizedSum):
    """A convolution of patches with what follows it."""

    def pixels(self, ifm: relay.Expr) -> relay.Expr:
        """The values of each window as the channels of a pixel."""
        shape = [int(extent) for extent in self.conv.args[0].checked_type.shape]
        made = [int(extent) for extent in self.conv.checked_type.shape]
        (down, along), letters = pair(self.conv.attrs.strides), self.layout
        batch, channels = shape[0], shape[letters.index("C")]
        height, width = (made[letters.index(letter)] for letter in "HW")
        used = [{"H": height * down, "W": width * along}.get(letter, shape[at]) for at, letter in enumerate(letters)]
        if used != shape:
            ifm = self._named(relay.strided_slice(ifm, [0] * 4, used))
        if letters == "NHWC":
            split, order = (batch, height, down, width, along, channels), (0, 1, 3, 2, 4, 5)
            joined = batch, height, width, down * along * channels
        else:
            split, order = (batch, channels, height, down, width, along), (0, 1, 3, 5, 2, 4)
            joined = batch, channels * down * along, height, width
        result = self._named(relay.reshape(ifm, split))
        result = self._named(relay.transpose(result, order))
        return self._named(relay.reshape(result, joined))

    def sums(self, pixels: relay.Expr) -> relay.Expr:
        """The requantized convolution of such pixels."""
        attrs, weights = self.conv.attrs, constant(self.conv.args[1])
        filters = weights.shape[str(attrs.kernel_layout).index("O")]
        flat = weights.reshape((1, 1, -1, filters) if self.layout == "NHWC" else (filters, -1, 1, 1))
        conv = relay.qnn.op.conv2d(
            pixels,
            relay.const(np.ascontiguousarray(flat), "int8"),
            *self.conv.args[2:],
            kernel_size=(1, 1),
            channels=filters,
            data_layout=self.layout,
            kernel_layout=str(attrs.kernel_layout),
            out_dtype="int32",
        )
        total = self._named(conv)
        if self.bias is not None:
            total = called_with(self.bias, [total, self.bias.args[1]])
        return called_with(self.requantize, [total, *self.requantize.args[1:]])

    def _named(self, call: relay.Call) -> relay.Call:
        return with_span(call, self.conv.span)


def _read(call: relay.Call) -> _Patches | None:
    """The convolution of patches that a requantize ends; None for any other call."""
    read = requantized_sum(call, "qnn.conv2d")
    if read is None:
        return None
    conv = read.conv
    attrs, ifm = conv.attrs, conv.args[0].checked_type
    plain = (
        (str(attrs.data_layout), str(attrs.kernel_layout)) in (("NHWC", "HWIO"), ("NCHW", "OIHW"))
        and str(attrs.out_layout) in ("", str(attrs.data_layout))
        and int(attrs.groups) == 1
        and pair(attrs.dilation) == (1, 1)
        and pair(attrs.kernel_size) == pair(attrs.strides)
        and set(padding(attrs.padding)) == {0}
        and isinstance(conv.args[1], relay.Constant)
        and ifm.dtype == conv.args[1].checked_type.dtype == "int8"
        and conv.checked_type.dtype == "int32"
        and is_static(ifm)
    )
    return _Patches(conv, read.bias, call) if plain else None
