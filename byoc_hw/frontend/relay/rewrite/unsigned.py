"""uint8 activations and weights as int8: every value is 128 less, and so is its zero point.

What quantized operators compute does not change with that: they subtract the zero point from a value before they do
anything else, and add it at the end. Borders of the model, and host operators that no rule is for, keep uint8: there a
requantize with equal scales moves values by 128.

With numerics="tflite" there are fewer rules: those for which TFLite's kernels for uint8 give what those for int8 do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main
from byoc_hw.frontend.relay.read import constant, equal_constants
from byoc_hw.frontend.relay.sources import operator_name, with_span
from byoc_hw.tensor import Pair

SHIFT = 128
"""What an int8 value is less than the uint8 value that it stands for."""

_Signed = Callable[[relay.Expr], relay.Expr]


def sign_unsigned(numerics: str, window: Pair) -> tvm.transform.Pass:
    """Rewrite quantized operators of uint8 to int8, exactly; the function's inputs and outputs keep their types.

    `window` are the most rows and columns of a depthwise convolution on the accelerator.
    """

    def rewritten(function: relay.Function) -> relay.Function:
        body = _Rewriter(numerics, window).of(function.body)
        if body.same_as(function.body):
            return function
        kept = function.ret_type, function.type_params, function.attrs, function.span
        return relay.Function(function.params, body, *kept)

    return on_main(rewritten, "SignUnsigned")


class _Rewriter:
    """Each expression in its own type, `new`, and for some of uint8 the int8 form, `signed`.

    An expression that has a signed form is made of it in its own type only where something asks for that.
    """

    def __init__(self, numerics: str, window: Pair) -> None:
        self.numerics, self.window = numerics, window
        self._rules = TFLITE_RULES if numerics == "tflite" else RULES
        self._new: dict[relay.Expr, relay.Expr] = {}
        self._signed: dict[relay.Expr, relay.Expr] = {}

    def of(self, body: relay.Expr) -> relay.Expr:
        """The new body of a function."""
        relay.analysis.post_order_visit(body, self._visit)
        return self.plain(body)

    def plain(self, expr: relay.Expr) -> relay.Expr:
        """The expression in its own type."""
        if expr in self._new:
            return self._new[expr]
        if isinstance(expr, relay.Tuple):
            self._new[expr] = _tuple_of(expr, [self.plain(field) for field in expr.fields])
        else:
            self._new[expr] = _moved(self._signed[expr], expr.span, 0, SHIFT, "uint8")
        return self._new[expr]

    def signed(self, expr: relay.Expr) -> relay.Expr:
        """The int8 form of an expression of uint8; of one of another type the expression itself."""
        if not is_uint8(expr):
            return self.plain(expr)
        if expr not in self._signed:
            if isinstance(expr, relay.Constant):
                self._signed[expr] = relay.const((expr.data.numpy().astype(np.int16) - SHIFT).astype(np.int8), "int8")
            else:
                self._signed[expr] = _moved(self.plain(expr), expr.span, SHIFT, 0, "int8")
        return self._signed[expr]

    def has_signed(self, expr: relay.Expr) -> bool:
        """Whether the int8 form is there, or costs nothing."""
        fields = expr.fields if isinstance(expr, relay.Tuple) else [expr]
        return all(field in self._signed or isinstance(field, relay.Constant) for field in fields)

    def _visit(self, node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            self._call(node)
        elif isinstance(node, relay.TupleGetItem):
            self._item(node)
        elif not isinstance(node, relay.Tuple):
            self._new[node] = node

    def _item(self, node: relay.TupleGetItem) -> None:
        if node.tuple_value in self._signed:
            self._signed[node] = relay.TupleGetItem(self._signed[node.tuple_value], node.index, node.span)
        else:
            value = self.plain(node.tuple_value)
            same = value.same_as(node.tuple_value)
            self._new[node] = node if same else relay.TupleGetItem(value, node.index, node.span)

    def _call(self, call: relay.Call) -> None:
        rule = self._rules.get(operator_name(call))
        made = rule(self, call) if rule is not None else None
        if made is None:
            self._new[call] = called_with(call, [self.plain(argument) for argument in call.args])
        elif is_uint8(call) or not isinstance(call.checked_type, relay.TensorType):
            self._signed[call] = made
        else:
            self._new[call] = made


def is_uint8(expr: relay.Expr) -> bool:
    """Whether an expression is a tensor of uint8."""
    return isinstance(expr.checked_type, relay.TensorType) and str(expr.checked_type.dtype) == "uint8"


def _tuple_of(node: relay.Tuple, fields: list[relay.Expr]) -> relay.Expr:
    same = all(new.same_as(old) for new, old in zip(fields, node.fields, strict=True))
    return node if same else relay.Tuple(fields, node.span)


def _moved(expr: relay.Expr, span: object, zero_point: int, out_zero_point: int, dtype: str) -> relay.Expr:
    """A requantize with equal scales, which moves integers from one zero point to another."""
    one = relay.const(1.0, "float32")
    moved = relay.qnn.op.requantize(
        expr, one, relay.const(zero_point, "int32"), one, relay.const(out_zero_point, "int32"), out_dtype=dtype
    )
    return with_span(moved, span)


# ---------------------------------------------------------------- rules

_Rule = Callable[[_Rewriter, relay.Call], "relay.Expr | None"]
"""Makes the call of int8, or None where the call has nothing of uint8 that is worth it."""

_OUTPUT = -1


def _with_zero_points(*places: tuple[int, int]) -> _Rule:
    """A qnn operator with pairs of places among its operands: of a value, or `_OUTPUT`, and of its zero point."""

    def rule(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
        values = {place: call if place == _OUTPUT else call.args[place] for place, _ in places}
        unsigned = [(place, zero_point) for place, zero_point in places if is_uint8(values[place])]
        if not unsigned or not all(_constant(call.args[zero_point]) for _, zero_point in unsigned):
            return None
        arguments = [None if is_uint8(argument) else rewriter.plain(argument) for argument in call.args]
        for place, zero_point in unsigned:
            arguments[zero_point] = _less(call.args[zero_point])
            if place != _OUTPUT:
                arguments[place] = rewriter.signed(values[place])
        return _called(call, arguments)

    return rule


def _called(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """The call with operands of int8; where it states the type of its result, as int8."""
    attrs = call.attrs
    if is_uint8(call) and operator_name(call) == "qnn.requantize":
        same = {key: str(attrs[key]) for key in ("rounding", "compute_dtype")}
        made = relay.qnn.op.requantize(*arguments, axis=int(attrs.axis), out_dtype="int8", **same)
        attrs = made.attrs
    elif is_uint8(call) and operator_name(call) == "qnn.quantize":
        attrs = relay.qnn.op.quantize(*arguments, axis=int(attrs.axis), out_dtype="int8").attrs
    return relay.Call(call.op, arguments, attrs, None, call.span)


def _rescaled(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A requantize, or the mean that it ends."""
    return _mean(rewriter, call) or _requantize(rewriter, call)


def _requantize(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A requantize; one that only moves uint8 to int8 is nothing."""
    made = _with_zero_points((0, 2), (_OUTPUT, 4))(rewriter, call)
    if made is not None and is_uint8(call.args[0]) and operator_name(made) == "qnn.requantize":
        data, scale, zero_point, out_scale, out_zero_point = made.args
        if (
            equal_constants(scale, out_scale)
            and equal_constants(zero_point, out_zero_point)
            and str(made.attrs.out_dtype) == "int8"
        ):
            return data
    return made


def _concatenate(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    parts, scales, zero_points, out_scale, out_zero_point = call.args
    if not is_uint8(call) or not isinstance(parts, relay.Tuple) or not isinstance(zero_points, relay.Tuple):
        return None
    if not all(map(_constant, (*zero_points.fields, out_zero_point))):
        return None
    signed = relay.Tuple([rewriter.signed(field) for field in parts.fields])
    less = relay.Tuple([_less(field) for field in zero_points.fields])
    arguments = [signed, scales, less, out_scale, _less(out_zero_point)]
    return relay.Call(call.op, arguments, call.attrs, None, call.span)


def _concatenate_equals(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A concatenation of one scale: of others, TFLite's kernel for uint8 computes in floats."""
    _, scales, zero_points, scale, zero_point = call.args
    pairs = ((scales, scale), (zero_points, zero_point))
    equal = all(
        isinstance(many, relay.Tuple) and all(equal_constants(one, result) for one in many.fields)
        for many, result in pairs
    )
    return _concatenate(rewriter, call) if equal else None


def _weighted(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A convolution, whose weights keep a zero point other than 0, as a sign that they were uint8.

    For these TFLite multiplies the scales of input and weights in float32. Weights with a zero point of 128 are moved
    by one more or less than others; None where that would leave int8.
    """
    made = _PRODUCT(rewriter, call)
    if made is None or constant(made.args[3]).any() or not is_uint8(call.args[1]):
        return made
    if not _constant(made.args[1]):
        return None
    values = constant(made.args[1]).astype(np.int16)
    step = 1 if values.max() < 127 else -1
    if values.min() + step < -128:
        return None
    weights, zero_point = relay.const((values + step).astype(np.int8), "int8"), relay.const(step, "int32")
    return relay.Call(
        made.op, [made.args[0], weights, made.args[2], zero_point, *made.args[4:]], made.attrs, None, made.span
    )


def _clip(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    return _clip_signed(rewriter, call) if rewriter.has_signed(call.args[0]) else None


def _clip_signed(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A clip of what is signed for it: with the requantize behind it, it is one of TFLite's activations."""
    bounds = float(call.attrs.a_min), float(call.attrs.a_max)
    if not is_uint8(call) or any(map(math.isnan, bounds)):
        return None
    low, high = (int(min(max(bound, 0), 255)) - SHIFT for bound in bounds)
    made = relay.clip(rewriter.signed(call.args[0]), low, high)
    return relay.Call(made.op, made.args, made.attrs, None, call.span)


def _pad(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    if not is_uint8(call):
        return None
    if str(call.attrs.pad_mode) != "constant":
        return _picked(rewriter, call)
    if not _constant(call.args[1]):
        return None
    fill = float(call.args[1].data.numpy().reshape(-1)[0])
    if not 0 <= fill <= 255 or fill != int(fill):
        return None
    arguments = [rewriter.signed(call.args[0]), relay.const(int(fill) - SHIFT, "int8")]
    return relay.Call(call.op, arguments, call.attrs, None, call.span)


def _maximum(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """An operator that compares values: what is 128 less compares the same, as does the padding of a maximum."""
    return _picked(rewriter, call) if is_uint8(call) else None


def _view(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """An operator that picks among values. It follows the type of what it reads."""
    if not is_uint8(call.args[0]) and not isinstance(call.args[0], relay.Tuple):
        return None
    return _picked(rewriter, call) if rewriter.has_signed(call.args[0]) else None


def _nearest(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """A resize that picks values; others compute between them."""
    return _view(rewriter, call) if str(call.attrs.method) == "nearest_neighbor" else None


def _picked(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    first = call.args[0]
    if isinstance(first, relay.Tuple):
        if not all(map(is_uint8, first.fields)):
            return None
        data: relay.Expr = relay.Tuple([rewriter.signed(field) for field in first.fields], first.span)
    else:
        data = rewriter.signed(first)
    rest = [rewriter.plain(argument) for argument in call.args[1:]]
    return relay.Call(call.op, [data, *rest], call.attrs, None, call.span)


def _dequantize(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    return _with_zero_points((0, 2))(rewriter, call) if rewriter.has_signed(call.args[0]) else None


def _constant(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Constant)


def _less(zero_point: relay.Constant) -> relay.Constant:
    """A zero point of uint8 as that of int8."""
    return relay.const((zero_point.data.numpy().astype(np.int64) - SHIFT).astype(np.int32), "int32")


# ---------------------------------------------------------------- averages

_MOST_VALUES = 1024
"""The most values of an average whose scale is exact enough."""


def _narrowed(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """The cast that ends an average over windows."""
    if not is_uint8(call) or not isinstance(call.args[0], relay.Call):
        return None
    pool = call.args[0]
    ifm = _widened(pool)
    if ifm is None or operator_name(pool) not in ("nn.avg_pool2d", "nn.global_avg_pool2d"):
        return None
    layout = str(pool.attrs.layout)
    if layout not in ("NHWC", "NCHW"):
        return None
    if operator_name(pool) == "nn.global_avg_pool2d":
        height, width = (int(ifm.checked_type.shape[layout.index(side)]) for side in "HW")
        return _average(rewriter, call, ifm, layout, (height, width), (1, 1))
    attrs = pool.attrs
    if any(map(int, attrs.padding)) or bool(attrs.ceil_mode) or any(int(step) != 1 for step in attrs.dilation):
        return None  # the count differs from window to window
    return _average(rewriter, call, ifm, layout, tuple(map(int, attrs.pool_size)), tuple(map(int, attrs.strides)))


def _mean(rewriter: _Rewriter, call: relay.Call) -> relay.Expr | None:
    """The requantize that ends a mean over height and width."""
    mean = call.args[0]
    if not isinstance(mean, relay.Call) or operator_name(mean) != "mean" or bool(mean.attrs.exclude):
        return None
    ifm = _widened(mean)
    if ifm is None or not _constant(call.args[2]):
        return None
    rank = len(ifm.checked_type.shape)
    axes = sorted(int(axis) % rank for axis in mean.attrs.axis or range(rank))
    layout = {"12": "NHWC", "23": "NCHW"}.get("".join(map(str, axes))) if rank == 4 else None
    if layout is None:
        return None
    window = tuple(int(ifm.checked_type.shape[axis]) for axis in axes)
    average = _average(rewriter, mean, ifm, layout, window, (1, 1))
    if average is None:
        return None
    if not bool(mean.attrs.keepdims):
        average = with_span(relay.reshape(average, mean.checked_type.shape), call.span)
    _, scale, zero_point, out_scale, out_zero_point = call.args
    out = _less(out_zero_point) if is_uint8(call) and _constant(out_zero_point) else out_zero_point
    return _called(call, [average, scale, _less(zero_point), out_scale, out])


def _widened(call: relay.Call) -> relay.Expr | None:
    """The uint8 value that an average of int32 is of, or None."""
    wide = call.args[0]
    if not isinstance(wide, relay.Call) or operator_name(wide) != "cast" or str(wide.attrs.dtype) != "int32":
        return None
    return wide.args[0] if is_uint8(wide.args[0]) else None


def _average(
    rewriter: _Rewriter,
    call: relay.Call,
    ifm: relay.Expr,
    layout: str,
    window: tuple[int, ...],
    strides: tuple[int, ...],
) -> relay.Expr | None:
    """The average of uint8, rounded down, as a depthwise convolution of int8 with equal weights.

    The pooling layer truncates towards 0, which is down for uint8 alone. Of n values the convolution gives
    twice their sum - (n - 1), which scaled by 1 / 2n and rounded to the nearest is the quotient rounded down:
    it is never nearer than 1 / 2n to a half, which is more than the scale's error for these windows.

    TFLite rounds to the nearest, halves up: of 8 times the sum + 2, scaled by 1 / 8n, also if that is rounded twice.
    """
    fits = all(size <= most for size, most in zip(window, rewriter.window, strict=True))
    if not fits or math.prod(window) > _MOST_VALUES or int(ifm.checked_type.shape[0]) != 1:
        return None
    channels, count = int(ifm.checked_type.shape[layout.index("C")]), window[0] * window[1]
    kernel_layout, shape = ("HWOI", (*window, channels, 1)) if layout == "NHWC" else ("OIHW", (channels, 1, *window))
    weight, added = (8, 2) if rewriter.numerics == "tflite" else (2, 1 - count)
    one, part = relay.const(1.0, "float32"), relay.const(1 / (weight * count), "float32")
    conv = relay.qnn.op.conv2d(
        rewriter.signed(ifm),
        relay.const(np.full(shape, weight, np.int8), "int8"),
        *(relay.const(-SHIFT, "int32"), relay.const(0, "int32"), one, part),
        kernel_size=window,
        channels=channels,
        strides=strides,
        groups=channels,
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype="int32",
    )
    bias = relay.const(np.full(channels, added, np.int32), "int32")
    total = relay.nn.bias_add(with_span(conv, call.span), bias, axis=layout.index("C"))
    result = relay.qnn.op.requantize(
        with_span(total, call.span), part, relay.const(0, "int32"), one, relay.const(-SHIFT, "int32")
    )
    return with_span(result, call.span)


_PRODUCT = _with_zero_points((0, 2), (1, 3))
_PAIRWISE = _with_zero_points((0, 3), (1, 5), (_OUTPUT, 7))

_PICKING: dict[str, _Rule] = {
    "clip": _clip,
    "nn.pad": _pad,
    "image.resize2d": _nearest,
    **dict.fromkeys(("nn.max_pool2d", "nn.global_max_pool2d"), _maximum),
    **dict.fromkeys(
        (
            *("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose", "strided_slice", "split"),
            *("nn.depth_to_space", "nn.space_to_depth", "layout_transform", "concatenate", "max", "min"),
            "broadcast_to",
        ),
        _view,
    ),
}
RULES: dict[str, _Rule] = {
    **_PICKING,
    **dict.fromkeys(("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul"), _PRODUCT),
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _PAIRWISE),
    "qnn.requantize": _rescaled,
    "qnn.quantize": _with_zero_points((_OUTPUT, 2)),
    "qnn.dequantize": _dequantize,
    "qnn.concatenate": _concatenate,
    "cast": _narrowed,
}
TFLITE_RULES: dict[str, _Rule] = {
    **_PICKING,
    "clip": _clip_signed,
    "qnn.conv2d": _weighted,
    "qnn.dense": _PRODUCT,
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _PAIRWISE),
    "qnn.requantize": _requantize,
    "qnn.concatenate": _concatenate_equals,
    "cast": _narrowed,
}
