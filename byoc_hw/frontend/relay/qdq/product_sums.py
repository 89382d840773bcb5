"""Sums of products: convolutions, matrix products, and a batch normalization by itself, as qnn operators of int32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay.qdq.values import Quantizable, Stored, Sum
from byoc_hw.frontend.relay.sources import operator_name, with_span
from byoc_hw.tensor import Array

BYTES = ("int8", "uint8")
"""The types that qnn operators take."""


def _conv2d(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    return _convolution(call, values, relay.qnn.op.conv2d, {})


def _conv2d_transpose(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    return _convolution(
        call, values, relay.qnn.op.conv2d_transpose, {"output_padding": tuple(call.attrs.output_padding)}
    )


def _convolution(
    call: relay.Call, values: Sequence[Quantizable | None], operator: Callable[..., relay.Call], more: dict[str, object]
) -> Quantizable | None:
    attrs = call.attrs
    operands = _operands(values, str(attrs.kernel_layout).index("O"))
    if operands is None:
        return None
    out_layout = str(attrs.out_layout) or str(attrs.data_layout)
    filters = int(call.checked_type.shape[out_layout.index("C")])
    left, right = operands
    if right.scale.ndim and len(right.scale) != filters:  # depthwise, with a scale for each input
        right = replace(right, scale=np.repeat(right.scale, filters // len(right.scale)))
    conv = operator(
        *_with_grids(left, right),
        kernel_size=tuple(call.args[1].checked_type.shape[str(attrs.kernel_layout).index(side)] for side in "HW"),
        channels=filters,
        strides=tuple(attrs.strides),
        padding=tuple(attrs.padding),
        dilation=tuple(attrs.dilation),
        groups=int(attrs.groups),
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_layout=str(attrs.out_layout),
        out_dtype="int32",
        **more,
    )
    return Sum(with_span(conv, call.span), _product(left, right), out_layout.index("C"))


def _dense(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    operands = _operands(values, channels=0)
    if operands is None:
        return None
    units = int(call.args[1].checked_type.shape[0])
    dense = relay.qnn.op.dense(*_with_grids(*operands), units=units, out_dtype="int32")
    return Sum(with_span(dense, call.span), _product(*operands), axis=1)


def _batch_matmul(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    operands = _operands(values, channels=None)
    if operands is None:
        return None
    left, right = operands  # the qnn operator takes rows of both
    if bool(call.attrs.transpose_a):
        left = replace(left, expr=_transposed(left.expr, call))
    if not bool(call.attrs.transpose_b):
        right = replace(right, expr=_transposed(right.expr, call))
    product = relay.qnn.op.batch_matmul(*_with_grids(left, right), out_dtype="int32")
    return Sum(with_span(product, call.span), _product(left, right), axis=2)


def _transposed(expr: relay.Expr, call: relay.Call) -> relay.Expr:
    """The matrices of an operand transposed, or as they were before they were transposed."""
    axes = (0, 2, 1)
    if isinstance(expr, relay.Call) and operator_name(expr) == "transpose" and tuple(expr.attrs.axes or ()) == axes:
        return expr.args[0]
    return with_span(relay.transpose(expr, axes), call.span)


def _operands(values: Sequence[Quantizable | None], channels: int | None) -> tuple[Stored, Stored] | None:
    """Bytes and weights that a qnn operator multiplies: weights may have a scale for each index of axis `channels`."""
    stored = [None if value is None else value.stored() for value in values]
    left, right = stored
    if left is None or right is None or left.dtype not in BYTES or right.dtype not in BYTES or left.scale.ndim:
        return None
    return (left, right) if right.scale.ndim == 0 or right.axis == channels else None


def _with_grids(left: Stored, right: Stored) -> tuple[relay.Expr, ...]:
    """The operands of a qnn operator of two: both, their zero points, their scales."""
    zero_points = (relay.const(side.zero_point, "int32") for side in (left, right))
    scales = (relay.const(side.scale, "float32") for side in (left, right))
    return (left.expr, right.expr, *zero_points, *scales)


def _product(left: Stored, right: Stored) -> Array:
    return np.asarray(np.multiply(left.scale, right.scale, dtype=np.float32))


def batch_norm_parts(call: relay.Call, values: Sequence[Quantizable | None]) -> list[Quantizable | None] | None:
    """A batch normalization of an image that no convolution in front of it takes: a depthwise convolution of 1 x 1.

    Its weights are 127 or -127, with a scale for each channel. Of its results the first alone has an integer form.
    """
    stored, axis = None if values[0] is None else values[0].stored(), int(call.attrs.axis)
    numbers = [real_numbers(*pair) for pair in zip(values[1:], call.args[1:], strict=True)]
    if stored is None or stored.grid is None or stored.dtype not in BYTES or any(one is None for one in numbers):
        return None
    shape = [int(extent) for extent in call.args[0].checked_type.shape]
    if len(shape) != 4 or axis not in (1, 3):
        return None
    gamma, beta, mean, variance = (one for one in numbers if one is not None)
    factor = (gamma if bool(call.attrs.scale) else 1.0) / np.sqrt(variance + float(call.attrs.epsilon))
    rest = (beta if bool(call.attrs.center) else 0.0) - mean * factor
    real = np.maximum(np.abs(factor) / 127, np.abs(rest) / (float(stored.scale) * _LARGEST_BIAS))
    scale = np.where(real > 0, real, 1).astype(np.float32)
    weights, channels = np.rint(factor / scale).astype(np.int8), shape[axis]
    layout, kernel, extents = ("NCHW", "OIHW", (-1, 1, 1, 1)) if axis == 1 else ("NHWC", "HWOI", (1, 1, -1, 1))
    right = Stored(relay.const(weights.reshape(extents), "int8"), scale, 0, "int8", kernel.index("O"))
    conv = relay.qnn.op.conv2d(
        *_with_grids(stored, right),
        kernel_size=(1, 1),
        channels=channels,
        groups=channels,
        data_layout=layout,
        kernel_layout=kernel if channels > 1 else kernel.replace("HWOI", "HWIO"),
        out_dtype="int32",
    )
    total = Sum(with_span(conv, call.span), _product(stored, right), axis)
    bias = relay.const(np.rint(rest / total.scale.astype(np.float64)).astype(np.int32), "int32")
    return [replace(total, expr=with_span(relay.nn.bias_add(total.expr, bias, axis), call.span)), None, None]


_LARGEST_BIAS = 1 << 30


def real_numbers(value: Quantizable | None, expr: relay.Expr) -> Array | None:
    """The real numbers of a constant, quantized or not; None for what is none."""
    if isinstance(expr, relay.Constant):
        return np.asarray(expr.data.numpy(), np.float64)
    if isinstance(value, Stored) and isinstance(value.expr, relay.Constant):
        return np.asarray((value.expr.data.numpy().astype(np.float64) - value.zero_point) * value.scale, np.float64)
    return None


PRODUCT_SUMS: dict[str, Callable[[relay.Call, Sequence[Quantizable | None]], Quantizable | None]] = {
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
}
"""The operators that sum products, those that a model is quantized for, and what makes a `Sum` of each."""
