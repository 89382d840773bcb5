"""The forms of qnn.conv2d and how they are read: shared by the conv2d and depthwise_conv2d patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay
from tvm.relay import dataflow_pattern as dfp

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.windows import moving_strides
from byoc_hw.pattern import Form, NotALayer
from byoc_hw.tensor import Padding, Quantization, Tensor


def convolution_forms() -> tuple[Form, Form]:
    """A convolution behind an explicit nn.pad, and one with its own padding."""
    padded = dfp.is_op("nn.pad")(dfp.wildcard(), dfp.is_constant())
    return tuple(Form(_convolution(ifm), "qnn.conv2d") for ifm in (padded, dfp.wildcard()))  # type: ignore[return-value]


def _convolution(ifm: dfp.DFPattern) -> dfp.DFPattern:
    return read.requantized(dfp.is_op("qnn.conv2d")(ifm, *read.constants(5)))


def is_depthwise(match: Match) -> bool:
    """Whether the matched convolution has several groups of one input channel each."""
    conv = match["qnn.conv2d"]
    channels = read.shape_of(conv.args[0])[str(conv.attrs.data_layout).index("C")]
    return int(conv.attrs.groups) == channels > 1


def filters(match: Match) -> int:
    """The output channels of the matched convolution."""
    conv = match["qnn.conv2d"]
    return read.shape_of(conv)[str(conv.attrs.data_layout).index("C")]


def read_convolution(match: Match) -> dict[str, Any]:
    """The fields of a `Conv2d` or `DepthwiseConv2d`; raises `NotALayer`."""
    conv, requantize = match["qnn.conv2d"], match["qnn.requantize"]
    layout = str(conv.attrs.data_layout)
    read.to_nhwc(layout)
    if str(conv.attrs.out_layout) not in ("", layout):
        raise NotALayer("output layout is the input's", conv.attrs.out_layout)
    name, channel_axis = read.layer_name(conv), layout.index("C")
    ifm_quantization = read.scalar_quantization(conv.args[4], conv.args[2])
    act_min, act_max = read.clip_range(match)
    ifm = read.activation(match.inputs[0], f"{name}_ifm", layout, ifm_quantization)
    weights = _weights(conv, name)
    padding = _padding(match, layout, ifm_quantization.zero_point[0])
    return {
        "name": name,
        "source": match.sources,
        "ifm": ifm,
        "ofm": read.activation(match.root, name, layout, read.requantize_output(requantize)),
        "weights": weights,
        "bias": read.bias(match, name, channel_axis),
        "accumulator": read.accumulator(requantize, channel_axis),
        "act_min": act_min,
        "act_max": act_max,
        "strides": moving_strides(read.pair(conv.attrs.strides), read.pair(weights.shape[1:3]), ifm, padding),
        "padding": padding,
        "dilation": read.pair(conv.attrs.dilation),
    }


def _weights(conv: relay.Call, name: str) -> Tensor:
    layout = str(conv.attrs.kernel_layout)
    if sorted(layout) != sorted("OHWI"):
        raise NotALayer("kernel layout is a permutation of OHWI", layout)
    data = read.constant(conv.args[1]).transpose([layout.index(letter) for letter in "OHWI"])
    data_layout = str(conv.attrs.data_layout)
    filters = read.shape_of(conv)[data_layout.index("C")]
    if data.shape[0] != filters and data.shape[0] * data.shape[3] == filters:
        # Depthwise weights may have (channels, multiplier) in the O and I dimensions.
        data = data.transpose(0, 3, 1, 2).reshape(filters, *data.shape[1:3], 1)
    scales = tuple(map(float, read.constant(conv.args[5]).ravel()))
    quantization = Quantization(scales, read.one_zero_point(conv.args[3]), axis=0)
    return Tensor(
        f"{name}_weights", data.shape, str(data.dtype), quantization=quantization, data=np.ascontiguousarray(data)
    )


def _padding(match: Match, layout: str, zero_point: int) -> Padding:
    own = read.padding(match["qnn.conv2d"].attrs.padding)
    pad = match.get("nn.pad")
    if pad is None:
        return own
    if str(pad.attrs.pad_mode) != "constant":
        raise NotALayer("nn.pad's mode is constant", pad.attrs.pad_mode)
    value = read.constant(pad.args[1])
    if (value != zero_point).any():
        raise NotALayer(f"nn.pad fills with the input's zero point, {zero_point}", value.flat[0])
    width = [tuple(map(int, axis)) for axis in pad.attrs.pad_width]
    widths = dict(zip(layout, width, strict=True))
    if widths["N"] != (0, 0) or widths["C"] != (0, 0):
        raise NotALayer("nn.pad widens height and width only", width)
    if min(extent for axis in width for extent in axis) < 0:
        raise NotALayer("nn.pad's widths are not negative", width)
    (top, bottom), (left, right) = widths["H"], widths["W"]
    return own[0] + top, own[1] + left, own[2] + bottom, own[3] + right
