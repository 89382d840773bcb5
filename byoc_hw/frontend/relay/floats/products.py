"""Float convolutions and dense layers: their weights as numpy has them, and where these stand in the module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.read import padding, pair
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.quantization.network import FloatConvolution, FloatDense, FloatProduct
from byoc_hw.tensor import Array


@dataclass(frozen=True, eq=False)
class Written:
    """Where a product's weights and bias stand: its call, the axis of the outputs, and how weights are laid out."""

    call: relay.Call
    bias_axis: int
    weight_axis: int
    laid_out: Callable[[Array], Array]
    shared: int = 0  # outputs that share a scale, of depthwise weights with a multiplier


def product_of(call: relay.Call) -> tuple[FloatProduct, Written] | None:
    """A call with constant weights, and where these stand."""
    name = operator_name(call)
    if name not in ("nn.conv2d", "nn.dense") or not isinstance(call.args[1], relay.Constant):
        return None
    weights = call.args[1].data.numpy()
    if weights.dtype != np.float32:
        return None
    if name == "nn.dense":
        written = Written(call, len(static_shape(call)) - 1, 0, lambda levels: levels)
        return FloatDense(weights, np.zeros(len(weights), np.float32)), written
    attrs = call.attrs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if layout not in ("NHWC", "NCHW") or sorted(kernel) != sorted("OHWI") or str(attrs.out_layout) not in ("", layout):
        return None
    ordered, filters = weights.transpose([kernel.index(axis) for axis in "OHWI"]), static_shape(call)[layout.index("C")]
    channels, rows, columns, _ = ordered.shape
    multiplier = filters // channels
    if multiplier > 1:  # depthwise: (channels, multiplier) in the O and I dimensions
        ordered = ordered.transpose(0, 3, 1, 2).reshape(filters, rows, columns, 1)
    convolution = FloatConvolution(
        np.ascontiguousarray(ordered),
        np.zeros(filters, np.float32),
        pair(attrs.strides),
        padding(attrs.padding),
        pair(attrs.dilation),
        int(attrs.groups),
        layout == "NCHW",
        multiplier > 1,
    )

    def laid_out(levels: Array) -> Array:
        if multiplier > 1:
            levels = levels.reshape(channels, multiplier, rows, columns).transpose(0, 2, 3, 1)
        return levels.transpose(["OHWI".index(axis) for axis in kernel])

    return convolution, Written(
        call, layout.index("C"), kernel.index("O"), laid_out, multiplier if multiplier > 1 else 0
    )


def convolution_kind(product: FloatProduct) -> str:
    """The layer kind of a convolution."""
    depthwise = isinstance(product, FloatConvolution) and product.groups > 1 and product.weights.shape[3] == 1
    return "depthwise_conv2d" if depthwise else "conv2d"


def static_shape(expr: relay.Expr) -> tuple[int, ...]:
    """The static shape of an expression, () of a tuple; `InvalidInput` for another one."""
    kind = expr.checked_type
    if isinstance(kind, tvm.ir.TupleType):
        return ()
    if not all(hasattr(extent, "value") for extent in kind.shape):
        raise InvalidInput(f"quantize takes a module of static shapes: got {kind}")
    return tuple(int(extent) for extent in kind.shape)
