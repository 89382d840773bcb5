"""Reads convolutions, matrix products and pooling of Relax in QDQ form as layers."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from byoc_hw.frontend.reduction import reduction
from byoc_hw.frontend.relax.qdq_match import QdqMatch, padding_of, pair_of
from byoc_hw.frontend.relax.versions import extents_of
from byoc_hw.frontend.windows import in_whole_images, moving_strides
from byoc_hw.graph import Conv2d, Dense, DepthwiseConv2d, Pool2d, PoolMode
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Padding, Quantization


def conv2d_of(match: QdqMatch) -> Conv2d | None:
    """The layer of a matched convolution; a depthwise one with a filter for each channel is another pattern's."""
    groups = int(match["nn.conv2d"].attrs.groups)
    if _is_depthwise(match) and extents_of(match["nn.conv2d"])[3] == groups:
        return None
    return Conv2d(**_convolution(match), groups=groups)


def depthwise_of(match: QdqMatch) -> DepthwiseConv2d | None:
    """The layer of a matched depthwise convolution; any other is another pattern's."""
    return DepthwiseConv2d(**_convolution(match)) if _is_depthwise(match) else None


def _is_depthwise(match: QdqMatch) -> bool:
    conv = match["nn.conv2d"]
    check_nhwc(str(conv.attrs.data_layout))
    return int(conv.attrs.groups) == extents_of(conv.args[0])[3] > 1


def check_nhwc(layout: str) -> None:
    """Raise `NotALayer` for another layout of data: this front end does not convert it."""
    if layout != "NHWC":
        raise NotALayer("data layout is NHWC", layout)


def _convolution(match: QdqMatch) -> dict[str, Any]:
    """The fields of a `Conv2d` or `DepthwiseConv2d`; raises `NotALayer`."""
    conv = match["nn.conv2d"]
    layout = str(conv.attrs.kernel_layout)
    if sorted(layout) != sorted("OHWI"):
        raise NotALayer("kernel layout is a permutation of OHWI", layout)
    if str(conv.attrs.out_layout) not in ("", "NHWC"):
        raise NotALayer("output layout is the input's", conv.attrs.out_layout)
    kernel = match.stored(conv.args[1])
    real_shape = extents_of(conv.args[1])
    data = match.constant(kernel.expr)
    # A kernel that is reshaped behind its dequantize has its channels last, as TFLite's depthwise ones.
    axis = data.ndim - 1 if data.shape != real_shape else layout.index("O")
    weights = data.reshape(real_shape).transpose([layout.index(letter) for letter in "OHWI"])
    filters = extents_of(conv)[3]
    if weights.shape[0] != filters and weights.shape[0] * weights.shape[3] == filters:
        # Depthwise weights may have (channels, multiplier) in the O and I dimensions.
        weights = weights.transpose(0, 3, 1, 2).reshape(filters, *weights.shape[1:3], 1)
    fields = match.product("nn.conv2d", weights, axis)
    if match.get("nn.pad") is not None:
        fields["ifm"] = match.activation(match.inputs[0], fields["ifm"].name, fields["ifm"].quantization)
    padding = _padding(match, fields["ifm"].quantization.zero_point[0])
    strides = moving_strides(pair_of(conv.attrs.strides), pair_of(weights.shape[1:3]), fields["ifm"], padding)
    return fields | {"strides": strides, "padding": padding, "dilation": pair_of(conv.attrs.dilation)}


def _padding(match: QdqMatch, zero_point: int) -> Padding:
    """A convolution's own padding, with that of a pad in front of it."""
    own, pad = padding_of(match["nn.conv2d"].attrs.padding), match.get("nn.pad")
    if pad is None:
        return own
    if str(pad.attrs.pad_mode) != "constant":
        raise NotALayer("nn.pad's mode is constant", pad.attrs.pad_mode)
    if float(pad.attrs.pad_value) != zero_point:
        raise NotALayer(f"nn.pad fills with the input's zero point, {zero_point}", pad.attrs.pad_value)
    widths = pad_widths(pad)
    batch, (top, bottom), (left, right), channels = widths
    if (batch, channels) != ((0, 0), (0, 0)):
        raise NotALayer("nn.pad widens height and width only", widths)
    if min(top, bottom, left, right) < 0:
        raise NotALayer("nn.pad's widths are not negative", widths)
    return own[0] + top, own[1] + left, own[2] + bottom, own[3] + right


def dense_of(match: QdqMatch) -> Dense:
    """The layer of a matched product of constant weights with a matrix, or with as many as there are."""
    product = match["matmul"]
    kernel = match.stored(product.args[1])
    data = match.constant(kernel.expr)
    if data.ndim != 2 or len(extents_of(product.args[0])) < 2:
        raise NotALayer("matrices have two dimensions", f"{len(extents_of(product.args[0]))} and {data.ndim}")
    fields = match.product("matmul", np.ascontiguousarray(data.T), axis=1)
    for name in ("ifm", "ofm"):  # the rows of all matrices
        tensor = fields[name]
        fields[name] = replace(tensor, shape=(prod(tensor.shape[:-1]), tensor.shape[-1]))
    return Dense(**fields)


# ---------------------------------------------------------------- pooling


def pool2d_of(match: QdqMatch, operator: str, mode: PoolMode) -> Pool2d:
    """The layer of a matched pooling over a window of stored values."""
    pool, name = match[operator], match.name
    attrs = pool.attrs
    check_nhwc(str(attrs.layout))
    if bool(attrs.ceil_mode):
        raise NotALayer("ceil_mode is off", "on")
    before, ofm, source = _grids(match, operator)
    ifm = match.activation(source, f"{name}_ifm", before)
    window, padding = pair_of(attrs.pool_size), padding_of(attrs.padding)
    counted = mode == "avg" and bool(attrs.count_include_pad)
    if counted and any(padding) and before is not None and before.zero_point != (0,):
        raise NotALayer("an average that counts its padding has zero point 0", before.zero_point[0])
    act_min, act_max = match.stored_bounds()
    layer = Pool2d(
        name=name,
        source=match.sources,
        ifm=ifm,
        ofm=match.activation(match.root, name, ofm),
        mode=mode,
        kernel=window,
        strides=moving_strides(pair_of(attrs.strides), window, ifm, padding),
        padding=padding,
        dilation=pair_of(attrs.dilation),
        count_include_pad=counted,
        rescaled=ofm is not None,
        act_min=act_min,
        act_max=act_max,
    )
    return in_whole_images(layer)


def reduced_of(match: QdqMatch, operator: str, mode: PoolMode) -> Pool2d:
    """The layer of a matched reduction, rescaled where it is of real values."""
    call, name = match[operator], match.name
    shape = extents_of(call.args[0])
    given = range(len(shape)) if call.attrs.axis is None else [int(axis) % len(shape) for axis in call.attrs.axis]
    window = reduction(shape, sorted(given))
    ifm, ofm, source = _grids(match, operator)
    if mode == "sum" and ifm is not None:  # each value that is added has the zero point
        ifm = replace(ifm, zero_point=(ifm.zero_point[0] * prod(shape[axis] for axis in given),))
    act_min, act_max = match.stored_bounds()
    return Pool2d(
        name=name,
        source=match.sources,
        ifm=replace(match.activation(source, f"{name}_ifm", ifm), shape=window.ifm),
        ofm=replace(match.activation(match.root, name, ofm), shape=window.ofm),
        mode=mode,
        kernel=window.kernel,
        rescaled=ofm is not None,
        act_min=act_min,
        act_max=act_max,
    )


def _grids(match: QdqMatch, operator: str) -> tuple[Quantization | None, Quantization | None, Any]:
    """The quantizations of a layer's input and output, if it is of real values, and what is stored of the input."""
    if match.get("quantize") is None:
        return None, None, match.inputs[0]
    stored = match.stored(match[operator].args[0])
    return stored.quantization, match.output, stored.expr


# ---------------------------------------------------------------- pads


def pad_widths(pad: Any) -> list[tuple[int, int]]:
    """The widths before and behind each dimension."""
    widths = [int(width) for width in pad.attrs.pad_width]
    return list(zip(widths[::2], widths[1::2], strict=True))
