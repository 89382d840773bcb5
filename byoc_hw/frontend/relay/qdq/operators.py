"""The float operators that have an integer form, by name: each function makes a `Quantizable` of the operands' values.

A function gets the typed call of the float module, and the values of its operands, None where an operand has no integer
form. It returns None where the operator has none: it then stays a float operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay.qdq.product_sums import BYTES, PRODUCT_SUMS, batch_norm_parts, real_numbers
from byoc_hw.frontend.relay.qdq.values import (
    Build,
    Computed,
    Grid,
    Joined,
    Mapped,
    Quantizable,
    Stored,
    Sum,
    also_named,
)
from byoc_hw.frontend.relay.read import padding, reduced_axes
from byoc_hw.frontend.relay.sources import operator_name, with_span
from byoc_hw.tensor import Array

_Rule = Callable[[relay.Call, Sequence[Quantizable | None]], Quantizable | None]

_CLOSE = 1e-5
"""The relative difference up to which a bias is on the sum's scale: exporters round the product of two scales."""

# ---------------------------------------------------------------- sums with a bias, sums of two


def _bias_add(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    total, _ = values
    if not isinstance(total, Sum) or total.views:
        return None
    axis = int(call.attrs.axis) % len(call.checked_type.shape)
    return _biased(total, call, values[1]) if axis == total.axis else None


def _add(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    for total, other, bias in ((values[0], values[1], call.args[1]), (values[1], values[0], call.args[0])):
        if isinstance(total, Sum) and _along(total, bias, call):
            return _biased(total, call, other, bias)
    return _pairwise(relay.qnn.op.add, call, values)


def _along(total: Sum, bias: relay.Expr, call: relay.Call) -> bool:
    """Whether a bias has one value for each channel of a sum, and the addition keeps the sum's shape."""
    shape = [int(extent) for extent in call.checked_type.shape]
    axis = len(shape) - 1 if total.views else total.axis
    extents = [int(extent) for extent in bias.checked_type.shape]
    extents = [1] * (len(shape) - len(extents)) + extents
    if any(extent != 1 for place, extent in enumerate(extents) if place != axis):
        return False
    return extents[axis] in (1, shape[axis]) and len(shape) == len(extents)


def _biased(
    total: Sum, call: relay.Call, other: Quantizable | None, bias: relay.Expr | None = None
) -> Quantizable | None:
    """The sum plus its bias as int32, on the sum's scale."""
    levels = _levels(total, other, call.args[1] if bias is None else bias)
    if levels is None:
        return None
    channels = int(call.checked_type.shape[-1 if total.views else total.axis])
    data = relay.const(np.ascontiguousarray(np.broadcast_to(levels, (channels,))), "int32")
    return replace(total, expr=with_span(relay.nn.bias_add(total.expr, data, total.axis), call.span))


def _levels(total: Sum, bias: Quantizable | None, expr: relay.Expr) -> Array | None:
    """The integers of a constant bias, flat: those that the model has, or the nearest to its real values."""
    if isinstance(bias, Stored) and isinstance(bias.expr, relay.Constant):
        held = bias.expr.data.numpy().reshape(-1).astype(np.int64) - bias.zero_point
        if np.allclose(bias.scale, total.scale, rtol=_CLOSE, atol=0) and bias.dtype == "int32":
            return np.asarray(held.astype(np.int32))
        real = held * bias.scale.astype(np.float64)
    elif isinstance(expr, relay.Constant):
        real = expr.data.numpy().reshape(-1).astype(np.float64)
    else:
        return None
    levels = np.rint(real / total.scale.astype(np.float64))
    limits = np.iinfo(np.int32)
    return np.asarray(np.clip(levels, limits.min, limits.max).astype(np.int32))


def _pairwise(
    operator: Callable[..., relay.Call], call: relay.Call, values: Sequence[Quantizable | None]
) -> Quantizable | None:
    """An element-wise operator of two stored values."""
    left, right = (None if value is None else value.stored() for value in values)
    if left is None or right is None or left.grid is None or right.grid is None:
        return None
    if left.dtype != right.dtype or left.dtype not in BYTES:
        return None
    operands = (left.expr, right.expr, *left.grid.constants, *right.grid.constants)

    def compute(grid: Grid) -> relay.Expr:
        if grid.dtype != left.dtype:  # qnn operators of two have the type of their operands
            shift = np.iinfo(left.dtype).min - np.iinfo(grid.dtype).min
            between = Grid(grid.scale, int(grid.zero_point + shift), left.dtype)
            result = with_span(operator(*operands, *between.constants), call.span)
            return Stored(result, np.asarray(grid.scale), between.zero_point, left.dtype, 0, call.span).quantized(grid)
        return with_span(operator(*operands, *grid.constants), call.span)

    return Computed(compute)


# ---------------------------------------------------------------- bounds


def _relu(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    return _bounded(call, values[0], 0.0, math.inf)


def _clip(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    return _bounded(call, values[0], float(call.attrs.a_min), float(call.attrs.a_max))


def _maximum(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    value, bound = _with_scalar(call, values)
    return None if bound is None else _bounded(call, value, bound, math.inf)


def _minimum(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    value, bound = _with_scalar(call, values)
    return None if bound is None else _bounded(call, value, -math.inf, bound)


def _with_scalar(call: relay.Call, values: Sequence[Quantizable | None]) -> tuple[Quantizable | None, float | None]:
    for value, other in ((values[0], call.args[1]), (values[1], call.args[0])):
        if isinstance(other, relay.Constant) and other.data.numpy().size == 1:
            return value, float(other.data.numpy().reshape(-1)[0])
    return None, None


def _bounded(call: relay.Call, value: Quantizable | None, low: float, high: float) -> Quantizable | None:
    """The value within bounds. Quantizing is monotone: the integers between those of the bounds are the same."""
    if value is None or math.isnan(low) or math.isnan(high):
        return None
    if isinstance(value, Stored):
        value = replace(value, span=call.span)  # of the requantize, where it is to another grid

    def build(expr: relay.Expr, grid: Grid) -> relay.Expr:
        limits = np.iinfo(grid.dtype)
        bottom, top = grid.level(max(low, -_LARGE)), grid.level(min(high, _LARGE))
        if (bottom, top) == (limits.min, limits.max):
            return also_named(expr, call.span)
        return with_span(relay.clip(expr, bottom, max(bottom, top)), call.span)

    return Mapped(value, build)


_LARGE = float(np.finfo(np.float32).max)

# ---------------------------------------------------------------- the same integers in other places


def _moved(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    """An operator that picks among its input's elements, and so does the same to integers on any grid."""
    value = values[0]
    if value is None:
        return None
    if isinstance(value, Stored) and value.scale.ndim:
        return _weights_moved(call, value)
    build = _same(call)
    if isinstance(value, Sum) and _keeps_last(call, value):
        return replace(value, views=(*value.views, build))
    return _built(value, build, call)


def _built(value: Quantizable, build: Build, call: relay.Call) -> Quantizable:
    stored = value.stored()
    if stored is not None and stored.grid is not None:  # a requantize comes after: it may have less to do there
        return replace(stored, expr=build(stored.expr, stored.grid), span=call.span)
    return Mapped(value, build)


def _keeps_last(call: relay.Call, total: Sum) -> bool:
    """Whether a sum's channels are its last dimension, and stay the last."""
    before, after = call.args[0].checked_type.shape, call.checked_type.shape
    last = bool(total.views) or total.axis == len(before) - 1
    return operator_name(call) == "reshape" and last and len(after) > 0 and int(after[-1]) == int(before[-1])


def _same(call: relay.Call) -> Build:
    def build(expr: relay.Expr, grid: Grid) -> relay.Expr:
        return relay.Call(call.op, [expr, *call.args[1:]], call.attrs, None, call.span)

    return build


def _weights_moved(call: relay.Call, value: Stored) -> Quantizable | None:
    """Weights with a scale for each index of an axis, transposed, or reshaped behind it; other moves lose that axis."""
    moved = replace(value, expr=relay.Call(call.op, [value.expr], call.attrs, None, call.span))
    if operator_name(call) == "transpose":
        rank = len(call.checked_type.shape)
        axes = [int(axis) % rank for axis in call.attrs.axes or reversed(range(rank))]
        return replace(moved, axis=axes.index(value.axis))
    before, after = ([int(extent) for extent in one.checked_type.shape] for one in (call.args[0], call))
    kept = value.axis + 1
    if operator_name(call) == "reshape" and before[:kept] == after[:kept]:
        return moved
    return None


def _max(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    """The maximum along axes; over height and width a pooling, whose layout can be converted."""
    rank, axes = len(call.args[0].checked_type.shape), reduced_axes(call)
    value = values[0]
    if value is None or rank != 4 or axes != [2, 3] or (isinstance(value, Stored) and value.scale.ndim):
        return _moved(call, values)
    shape = [int(extent) for extent in call.checked_type.shape]

    def build(expr: relay.Expr, grid: Grid) -> relay.Expr:
        pooled = with_span(relay.nn.global_max_pool2d(expr), call.span)
        return pooled if len(shape) == rank else with_span(relay.reshape(pooled, shape), call.span)

    return _built(value, build, call)


def _split(call: relay.Call, values: Sequence[Quantizable | None]) -> list[Quantizable | None] | None:
    """The parts of a split value, each a slice."""
    (value,) = values
    if value is None or (isinstance(value, Stored) and value.scale.ndim):
        return None
    shape = [int(extent) for extent in call.args[0].checked_type.shape]
    axis = int(call.attrs.axis) % len(shape)
    parts: list[Quantizable | None] = []
    start = 0
    for part in call.checked_type.fields:
        begin, end = [0] * len(shape), list(shape)
        begin[axis], end[axis] = start, start + int(part.shape[axis])
        parts.append(_built(value, partial(_sliced, begin, end, call.span), call))
        start = end[axis]
    return parts


def _sliced(begin: list[int], end: list[int], span: object, expr: relay.Expr, grid: Grid) -> relay.Expr:
    return with_span(relay.strided_slice(expr, begin, end), span)


def _resize2d(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    return _moved(call, values) if str(call.attrs.method) == "nearest_neighbor" else None


def _pad(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    fill = call.args[1]
    if values[0] is None or str(call.attrs.pad_mode) != "constant" or not isinstance(fill, relay.Constant):
        return None
    real = float(fill.data.numpy().reshape(-1)[0])

    def build(expr: relay.Expr, grid: Grid) -> relay.Expr:
        return with_span(relay.nn.pad(expr, call.attrs.pad_width, float(grid.level(real))), call.span)

    return Mapped(values[0], build)


def concatenated(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    """Several values behind one another. `values` are those of the fields of the call's tuple."""
    stored = [None if value is None else value.stored() for value in values]
    parts = tuple(part for part in stored if part is not None and part.grid is not None)
    axis = int(call.attrs.axis)

    def together(exprs: tuple[relay.Expr, ...]) -> relay.Expr:
        return with_span(relay.concatenate(relay.Tuple(list(exprs)), axis), call.span)

    known = [value for value in values if value is not None]
    if len(parts) < len(stored) == len(known):
        return Computed(lambda grid: together(tuple(value.quantized(grid) for value in known)))
    if len(parts) < len(stored) or len({part.dtype for part in parts}) != 1:
        return None

    def join(grid: Grid) -> relay.Expr:
        if grid.dtype != parts[0].dtype:
            return together(tuple(part.quantized(grid) for part in parts))
        scales, zero_points = zip(*(part.grid.constants for part in parts if part.grid), strict=True)
        whole = relay.qnn.op.concatenate(
            relay.Tuple([part.expr for part in parts]),
            relay.Tuple(list(scales)),
            relay.Tuple(list(zero_points)),
            *grid.constants,
            axis,
        )
        return with_span(whole, call.span)

    return Joined(parts, together, join)


# ---------------------------------------------------------------- functions of one value, by channel


def _prelu(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    """A slope for each channel of an image in NCHW: in NHWC, where a table for each channel has its form."""
    stored, slopes = None if values[0] is None else values[0].stored(), real_numbers(values[1], call.args[1])
    source = None if stored is None else stored.grid
    if stored is None or source is None or slopes is None:
        return None
    if len(call.checked_type.shape) != 4 or int(call.attrs.axis) != 1:
        return None

    def compute(grid: Grid) -> relay.Expr:
        last = with_span(relay.transpose(stored.expr, (0, 2, 3, 1)), call.span)
        real = with_span(relay.qnn.op.dequantize(last, *source.constants, out_dtype="float32"), call.span)
        result = with_span(relay.nn.prelu(real, relay.const(slopes.astype(np.float32)), axis=3), call.span)
        levels = with_span(relay.qnn.op.quantize(result, *grid.constants, out_dtype=grid.dtype), call.span)
        return with_span(relay.transpose(levels, (0, 3, 1, 2)), call.span)

    return Computed(compute)


# ---------------------------------------------------------------- averages


def _averaged(call: relay.Call, values: Sequence[Quantizable | None]) -> Stored | None:
    """The int8 that an average is of: a division truncates towards 0, which int8 has in its middle."""
    stored = None if values[0] is None else values[0].stored()
    if stored is None or stored.grid is None or stored.dtype not in BYTES:
        return None
    if stored.dtype == "int8":
        return stored
    signed = Grid(stored.grid.scale, stored.zero_point - 128, "int8")
    return replace(
        stored, expr=replace(stored, span=call.span).quantized(signed), zero_point=signed.zero_point, dtype="int8"
    )


def _mean(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    stored = _averaged(call, values)
    if stored is None:
        return None
    rank = len(call.args[0].checked_type.shape)
    axes = sorted(int(axis) % rank for axis in call.attrs.axis or range(rank))
    if bool(call.attrs.exclude):
        axes = [axis for axis in range(rank) if axis not in axes]
    return _average(call, stored, axes, bool(call.attrs.keepdims))


def _global_average(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    stored = _averaged(call, values)
    if stored is None:
        return None
    return _average(call, stored, [str(call.attrs.layout).index(side) for side in "HW"], keepdims=True)


def _average(call: relay.Call, stored: Stored, axes: list[int], keepdims: bool) -> Quantizable:
    """The mean of int32, requantized: as TVM imports TFLite's MEAN."""

    def compute(grid: Grid) -> relay.Expr:
        wide = with_span(relay.cast(stored.expr, "int32"), call.span)
        mean = with_span(relay.mean(wide, axis=axes, keepdims=keepdims), call.span)
        return replace(stored, expr=mean, dtype="int32", axis=0, span=call.span).quantized(grid)

    return Computed(compute)


def _average_pool(call: relay.Call, values: Sequence[Quantizable | None]) -> Quantizable | None:
    stored = _averaged(call, values)
    if stored is None or stored.grid is None:
        return None
    attrs = {key: call.attrs[key] for key in call.attrs.keys()}  # noqa: SIM118
    expr, grid = stored.expr, stored.grid
    if bool(attrs["count_include_pad"]) and any(int(extent) for extent in attrs["padding"]):
        expr = _with_border(call, expr, grid)
        attrs["padding"] = (0, 0, 0, 0)
    del attrs["out_layout"]
    wide = with_span(relay.cast(expr, "int32"), call.span)
    pool = with_span(relay.nn.avg_pool2d(wide, **attrs), call.span)
    narrow = with_span(relay.cast(pool, stored.dtype), call.span)
    return replace(stored, expr=narrow, span=call.span)


def _with_border(call: relay.Call, expr: relay.Expr, grid: Grid) -> relay.Expr:
    """The input with its padding of zeros as elements: the integer that stands for 0 is the zero point."""
    top, left, bottom, right = padding(call.attrs.padding)
    widths = {"N": (0, 0), "C": (0, 0), "H": (top, bottom), "W": (left, right)}
    layout = [widths[letter] for letter in str(call.attrs.layout)]
    return with_span(relay.nn.pad(expr, layout, float(grid.zero_point)), call.span)


PRODUCTS = tuple(PRODUCT_SUMS)
"""The operators that sum products: those that a model is quantized for."""

MOVES = (
    *("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose", "strided_slice", "copy"),
    *("nn.depth_to_space", "nn.space_to_depth", "broadcast_to", "layout_transform"),
    *("nn.max_pool2d", "nn.global_max_pool2d", "max", "min"),
)
"""The operators that pick among their input's elements."""

PICKS = frozenset((*MOVES, "image.resize2d"))
"""Those, and the resize, which has a value where it picks: of nearest neighbours."""

RULES: dict[str, _Rule] = {
    **dict.fromkeys(MOVES, _moved),
    **PRODUCT_SUMS,
    "nn.bias_add": _bias_add,
    "add": _add,
    "subtract": partial(_pairwise, relay.qnn.op.subtract),
    "multiply": partial(_pairwise, relay.qnn.op.mul),
    "nn.relu": _relu,
    "clip": _clip,
    "nn.prelu": _prelu,
    "maximum": _maximum,
    "minimum": _minimum,
    "nn.pad": _pad,
    "image.resize2d": _resize2d,
    "max": _max,
    "mean": _mean,
    "nn.global_avg_pool2d": _global_average,
    "nn.avg_pool2d": _average_pool,
}

WITH_PARTS = {"split": _split, "nn.batch_norm": batch_norm_parts}
"""Operators of several results: the value of each, None for one without an integer form."""
