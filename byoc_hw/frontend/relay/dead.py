"""Dead channels: zeroes their weights and biases. `byoc_hw/frontend/dead_channels.py` says why."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.dead_channels import HARMLESS_RATIO, is_dead
from byoc_hw.frontend.relay.compose import called_with, each_call
from byoc_hw.frontend.relay.read import constant
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.tensor import Array


def zero_dead_channels() -> tvm.transform.Pass:
    """Zero weights and bias of each channel whose requantize shift is undefined, and replace its scale."""
    return each_call(_zeroed, "ZeroDeadChannels")


def _zeroed(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    dead = dead_channels(call)
    silent = _silence(call.args[0], arguments[0], dead, int(call.attrs.axis)) if dead.any() else None
    if silent is None:
        return called_with(call, arguments)
    _, scale, zero_point, out_scale, out_zero_point = arguments
    harmless = np.where(dead, constant(out_scale) * HARMLESS_RATIO, constant(scale)).astype("float32")
    scale = relay.const(harmless.reshape(constant(scale).shape))
    return called_with(call, [silent, scale, zero_point, out_scale, out_zero_point])


def dead_channels(call: relay.Call) -> Array:
    """For each scale of a requantize, per channel or per tensor, whether its shift is undefined."""
    nothing = np.zeros(1, bool)
    if operator_name(call) != "qnn.requantize":
        return nothing
    if not isinstance(call.args[1], relay.Constant) or not isinstance(call.args[3], relay.Constant):
        return nothing
    scales, out = constant(call.args[1]), constant(call.args[3])
    return np.asarray([is_dead(scale, out.flat[0]) for scale in scales.ravel()])


def _silence(total: relay.Expr, new: relay.Expr, dead: Array, channel_axis: int) -> relay.Expr | None:
    """The int32 sum with the dead channels at 0, or None if it is not a sum of constant weights.

    `new` is the rebuilt sum; `total` is the original, which has checked types. `channel_axis` is the
    axis of the sum that `dead` is indexed by.
    """
    if not isinstance(total, relay.Call):
        return None
    name, args = operator_name(total), list(new.args)
    if name in ("nn.bias_add", "add") and isinstance(args[1], relay.Constant):
        inner = _silence(total.args[0], args[0], dead, channel_axis)
        if inner is None:
            return None
        if name == "add":  # `add` broadcasts: the bias has its channels on the channel axis of the sum
            rank = len(total.checked_type.shape)
            dead = dead.reshape([-1 if axis == channel_axis % rank else 1 for axis in range(rank)])
        args = [inner, relay.const(np.where(dead, 0, constant(args[1])).astype("int32"))]
    elif (
        name in ("qnn.conv2d", "qnn.dense")
        and isinstance(args[1], relay.Constant)
        and isinstance(args[3], relay.Constant)
    ):
        weights = constant(args[1])
        shape = [1] * weights.ndim if dead.size == 1 else _filters_shape(total)
        if shape is None:
            return None
        zeroed = np.where(dead.reshape(shape), constant(args[3]).flat[0], weights).astype(weights.dtype)
        args[1] = relay.const(zeroed, dtype=str(weights.dtype))
    else:
        return None
    return called_with(total, args)


def _filters_shape(call: relay.Call) -> list[int] | None:
    """The shape of one value for each output channel, along the weights; None where they are in another order.

    Depthwise weights may have channels along O and the filters of each along I.
    """
    weights = constant(call.args[1])
    if operator_name(call) == "qnn.dense":
        return [len(weights), 1]
    layout = str(call.attrs.kernel_layout)
    filters = int(call.checked_type.shape[str(call.attrs.data_layout).index("C")])
    for letters in ("O", "I", "OI" if layout.find("O") < layout.find("I") else ""):
        shape = [extent if letter in letters else 1 for letter, extent in zip(layout, weights.shape, strict=True)]
        if math.prod(shape) == filters:
            return shape
    return None
