"""Reads Relay calls into layer fields: shared by the pattern files and the lowering.

Shapes are in the layout of `graph.py` (activations NHWC, weights OHWI), whatever the model's layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as dfp

from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.sources import operator_name, source_names
from byoc_hw.frontend.windows import in_whole_images, moving_strides
from byoc_hw.graph import Ordering, Pool2d, PoolMode, Subtrahend
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Padding, Pair, Quantization, Tensor

# ---------------------------------------------------------------- pieces of patterns


def constants(count: int) -> tuple[dfp.DFPattern, ...]:
    """`count` arguments that are constants, a fresh pattern for each."""
    return tuple(dfp.is_constant() for _ in range(count))


def biased(total: dfp.DFPattern) -> dfp.DFPattern:
    """`total`, or `total` plus a constant bias (`add` is what layout conversion makes of a bias_add)."""
    bias_add = dfp.is_op("nn.bias_add")(total, dfp.is_constant())
    return bias_add | dfp.is_op("add")(total, dfp.is_constant()) | total


def clipped(result: dfp.DFPattern) -> dfp.DFPattern:
    """`result`, or its clip."""
    return result.optional(lambda value: dfp.is_op("clip")(value))


def widened() -> dfp.DFPattern:
    """An input as int32."""
    return dfp.is_op("cast")(dfp.wildcard()).has_attr({"dtype": "int32"})


def rescaled(value: dfp.DFPattern) -> dfp.DFPattern:
    """`value` requantized, with or without a clip."""
    return clipped(dfp.is_op("qnn.requantize")(value, *constants(4)))


def requantized(total: dfp.DFPattern) -> dfp.DFPattern:
    """An int32 sum, with or without a bias, requantized, with or without a clip."""
    return rescaled(biased(total))


# ---------------------------------------------------------------- values


def constant(expr: relay.Expr) -> Array:
    """The value of a constant."""
    return np.asarray(expr.data.numpy())


def equal_constants(left: relay.Expr, right: relay.Expr) -> bool:
    """Whether two expressions are constants of one shape and value."""
    both = isinstance(left, relay.Constant) and isinstance(right, relay.Constant)
    return both and np.array_equal(constant(left), constant(right))


def is_static(of: relay.TensorType) -> bool:
    """Whether a tensor's shape is known at compile time."""
    return all(hasattr(extent, "value") for extent in of.shape)


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    """The static shape of an expression; `NotALayer` for a shape that is known at run time only."""
    shape = expr.checked_type.shape
    if not is_static(expr.checked_type):
        raise NotALayer("shape is static", f"({', '.join(map(str, shape))})")
    return tuple(int(extent) for extent in shape)


def activation(expr: relay.Expr, name: str, layout: str = "", quantization: Quantization | None = None) -> Tensor:
    """An activation tensor; `layout` (NHWC or NCHW) says how the model orders a 4-D one."""
    shape = shape_of(expr)
    if layout:
        shape = tuple(shape[axis] for axis in to_nhwc(layout))
    data = constant(expr) if isinstance(expr, relay.Constant) else None
    return Tensor(name, shape, str(expr.checked_type.dtype), quantization=quantization, data=data)


def to_nhwc(layout: str) -> tuple[int, ...]:
    """The axes of a transpose from a layout to NHWC."""
    if layout not in ("NHWC", "NCHW"):  # the layouts that the optimize hook converts between
        raise NotALayer("data layout is NHWC or NCHW", layout)
    return tuple(layout.index(letter) for letter in "NHWC")


def layout_of(call: relay.Call) -> str:
    """NCHW for an operator in NCHW, else NHWC."""
    name = operator_name(call)
    if name == "mean":
        return "NCHW" if reduced_axes(call) == [2, 3] else "NHWC"
    if name in PAIRWISE:
        return "NCHW" if _by_channel_of_nchw(call) else "NHWC"
    attrs = call.attrs
    if attrs is None or not isinstance(call.op, tvm.ir.Op):
        return "NHWC"
    key = _LAYOUT_KEYS[name] if name in _LAYOUT_KEYS else _layout_key(call)
    return "NCHW" if key is not None and str(attrs[key]) == "NCHW" else "NHWC"


def _layout_key(call: relay.Call) -> str | None:
    """The attribute with the layout. It is noted for an operator that declares a type of its attributes: all calls have
    the same ones then."""
    keys = call.attrs.keys()
    key = next((key for key in ("data_layout", "layout") if key in keys), None)
    if call.op.attrs_type_key:
        _LAYOUT_KEYS[operator_name(call)] = key
    return key


_LAYOUT_KEYS: dict[str, str | None] = {}
"""The attribute with the layout, of operators that were seen."""


def scalar_quantization(scale: relay.Expr, zero_point: relay.Expr) -> Quantization:
    """One scale and one zero point; vectors of equal values count as one."""
    scales, zero_points = constant(scale), constant(zero_point)
    return Quantization((_one("scale", scales),), (int(_one("zero point", zero_points)),))


def _one(what: str, values: Array) -> float:
    if not np.array_equal(values, np.full_like(values, values.flat[0]), equal_nan=True):
        raise NotALayer(f"one {what} for the whole tensor", f"{values.size} different ones")
    return float(values.flat[0])


def accumulator(requantize: relay.Call, channel_axis: int) -> Quantization:
    """The quantization of the int32 sum, as requantize states it: per tensor or per channel."""
    total, scale, zero_point, _, _ = requantize.args
    if str(total.checked_type.dtype) != "int32":
        raise NotALayer("sums are int32", total.checked_type.dtype)
    scales = constant(scale)
    if constant(zero_point).any():
        raise NotALayer("requantize's input zero point is 0", constant(zero_point).flat[0])
    if scales.size == 1:
        return Quantization((float(scales.flat[0]),), (0,))
    rank = len(requantize.checked_type.shape)
    axis = int(requantize.attrs.axis) % rank
    if axis != channel_axis % rank:
        raise NotALayer(f"requantize's scales lie along axis {channel_axis % rank}, the output channels", axis)
    return Quantization(tuple(map(float, scales.ravel())), (0,), axis=-1)


def requantize_output(requantize: relay.Call) -> Quantization:
    """The quantization of a requantize's output; `NotALayer` for other arithmetic than the golden semantics."""
    rounding, compute_dtype = str(requantize.attrs.rounding), str(requantize.attrs.compute_dtype)
    if rounding not in ("None", "UPWARD"):
        raise NotALayer("requantize rounds UPWARD", rounding)
    if compute_dtype not in ("None", "int64"):
        raise NotALayer("requantize computes in int64", compute_dtype)
    return scalar_quantization(requantize.args[3], requantize.args[4])


def bias(match: Match, name: str, channel_axis: int) -> Tensor | None:
    """The bias of a matched layer as a 1-D int32 tensor, or None."""
    call = match.get("nn.bias_add") or match.get("add")
    if call is None:
        return None
    values, shape = constant(call.args[1]), shape_of(call)
    rank, channels = len(shape), shape[channel_axis]
    if call.op.name == "nn.bias_add":
        axis = int(call.attrs.axis) % rank
        extents = [values.size if index == axis else 1 for index in range(rank)]
    else:
        extents = [1] * (rank - values.ndim) + list(values.shape)
    if any(extent != 1 for index, extent in enumerate(extents) if index != channel_axis % rank):
        raise NotALayer("bias lies along the output channels", f"shape {tuple(extents)}")
    data = np.broadcast_to(values.reshape(-1), (channels,)).astype(np.int32)
    return Tensor(f"{name}_bias", (channels,), "int32", 32, data=np.ascontiguousarray(data))


def clip_range(match: Match) -> Pair:
    """The range of a match's clip within int8, all of int8 without one; for an empty range its minimum, as in TVM."""
    clip = match.get("clip")
    if clip is None:
        return -128, 127
    bounds = clip.attrs.a_min, clip.attrs.a_max
    if any(math.isnan(bound) for bound in bounds):
        raise NotALayer("bounds of clip are numbers", f"{bounds[0]:g} and {bounds[1]:g}")
    low, high = (int(min(max(bound, -128), 127)) for bound in bounds)
    return low, max(low, high)


def pair(values: Sequence[object]) -> Pair:
    """Two extents, height and width."""
    height, width = (int(value) for value in values)  # type: ignore[call-overload]
    return height, width


def padding(values: Sequence[object]) -> Padding:
    """Top, left, bottom, right, from the 1, 2 or 4 numbers that Relay takes."""
    extents = [int(value) for value in values]  # type: ignore[call-overload]
    if len(extents) == 1:
        extents *= 4
    elif len(extents) == 2:
        extents *= 2
    top, left, bottom, right = extents
    return top, left, bottom, right


def layer_name(call: relay.Call) -> str:
    """The name of a layer: the source operator of the call that it is about."""
    return next(reversed(source_names(call.span)), "layer")


def transposed_axes(call: relay.Call) -> tuple[int, ...]:
    """The axes of a transpose, none of them negative."""
    rank = len(call.checked_type.shape)
    return tuple(int(axis) % rank for axis in call.attrs.axes or reversed(range(rank)))


def layout_axes(call: relay.Call) -> tuple[int, ...] | None:
    """The axes of a layout_transform, as those of a transpose; None if it is no permutation."""
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    plain = source.isalpha() and sorted(source) == sorted(target)  # not in blocks, as NCHW4c
    return tuple(source.index(letter) for letter in target) if plain else None


def one_zero_point(zero_point: relay.Expr) -> tuple[int]:
    """The zero point of a whole weight tensor."""
    return (int(_one("weight zero point", constant(zero_point))),)


def reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same tensor under another shape."""
    return replace(tensor, shape=shape)


# ---------------------------------------------------------------- element-wise layers of two tensors

PAIRWISE = ("qnn.add", "qnn.subtract", "qnn.mul")
"""The operators that `pairwise` reads."""


def _by_channel_of_nchw(call: relay.Call) -> bool:
    """Whether one operand has a value for each channel of the other one, which is in NCHW."""
    small, large = sorted((shape_of(operand) for operand in call.args[:2]), key=prod)
    channels = large[1:2]
    return len(large) == 4 and prod(large) > prod(small) > 1 and small in ((*channels, 1, 1), (1, *channels, 1, 1))


def pairwise(match: Match, call: relay.Call) -> dict[str, Any]:
    """The fields of an element-wise layer of two tensors, from a qnn operator of two; raises `NotALayer`.

    The operand that is broadcast becomes the second input, also of the match.
    """
    lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, scale, zero_point = call.args
    name = layer_name(call)
    operands = [(lhs, lhs_scale, lhs_zero_point), (rhs, rhs_scale, rhs_zero_point)]
    if prod(shape_of(lhs)) < prod(shape_of(rhs)):
        operands.reverse()
    match.inputs[:] = [expr for expr, _, _ in operands]
    ifm, ifm2 = (
        activation(expr, f"{name}_{what}", quantization=scalar_quantization(*constants))
        for what, (expr, *constants) in zip(("ifm", "ifm2"), operands, strict=True)
    )
    ofm = activation(match.root, name, quantization=scalar_quantization(scale, zero_point))
    if layout_of(call) == "NCHW":
        ifm, ofm = (reshaped(tensor, tuple(tensor.shape[axis] for axis in to_nhwc("NCHW"))) for tensor in (ifm, ofm))
        ifm2 = reshaped(ifm2, (1, 1, 1, ifm2.elements))
    act_min, act_max = clip_range(match)
    return {
        "name": name,
        "source": match.sources,
        "ifm": reshaped(ifm, ofm.shape) if ifm.elements == ofm.elements else ifm,
        "ifm2": ifm2,
        "ofm": ofm,
        "act_min": act_min,
        "act_max": act_max,
    }


def check_no_table(call: relay.Call) -> None:
    """Raise `NotALayer` for a qnn operator of two whose smaller operand is one constant value: a table is cheaper."""
    for operand in call.args[:2]:
        if isinstance(operand, relay.Constant) and prod(shape_of(operand)) == 1 < prod(shape_of(call)):
            raise NotALayer("a constant operand has several values: with one the layer is a table", "1")


def subtrahend(match: Match, call: relay.Call) -> Subtrahend:
    """The input of the layer that a subtraction subtracts, once `pairwise` has put the match's inputs in order."""
    return "ifm2" if match.inputs[1].same_as(call.args[1]) else "ifm"


# ---------------------------------------------------------------- orders


PLACES = "an order gives places; values are gathered there, by an accelerator of a chip that does both"
"""What a sort, or a topk that gives values, breaks where it was not rewritten."""


def places_in_order(match: Match, call: relay.Call) -> Ordering:
    """The layer of an argsort, or of a topk that gives places."""
    name, ifm = layer_name(call), activation(match.inputs[0], f"{layer_name(call)}_ifm")
    rank, axis = len(ifm.shape), int(call.attrs.axis)
    if not -rank <= axis < rank:
        raise NotALayer(f"axis is one of the {rank} of the elements", axis)
    ofm = activation(call, name)
    return Ordering(name, match.sources, ifm, ofm, axis=axis % rank, descending=not bool(call.attrs.is_ascend))


# ---------------------------------------------------------------- pooling


def pool2d(match: Match, pool: relay.Call, mode: PoolMode, *, count_include_pad: bool = False) -> Pool2d:
    """The layer of a pooling call with window attributes."""
    whole = replace(_over_all(match, pool), mode=mode, count_include_pad=count_include_pad)
    attrs = pool.attrs
    window = pair(attrs.pool_size), pair(attrs.strides), pair(attrs.dilation)
    return _windowed(whole, *window, padding(attrs.padding), bool(attrs.ceil_mode))


def pool1d(match: Match, pool: relay.Call, mode: PoolMode, *, count_include_pad: bool = False) -> Pool2d:
    """The layer of a 1-D pooling call, whose window lies along the width.

    The batch, and in NCW the channels too, are its height: the same bytes.
    """
    attrs, name, layout = pool.attrs, layer_name(pool), str(pool.attrs.layout)
    if layout not in ("NWC", "NCW"):
        raise NotALayer("data layout is NWC or NCW", layout)
    ifm, ofm = activation(match.inputs[0], f"{name}_ifm"), activation(match.root, name)
    views = []
    for tensor in (ifm, ofm):
        extents = dict(zip(layout, tensor.shape, strict=True))
        inner = extents["C"] if layout == "NWC" else 1
        views.append(reshaped(tensor, (1, tensor.elements // (extents["W"] * inner), extents["W"], inner)))
    act_min, act_max = clip_range(match)
    whole = Pool2d(
        name=name,
        source=match.sources,
        ifm=views[0],
        ofm=views[1],
        mode=mode,
        count_include_pad=count_include_pad,
        act_min=act_min,
        act_max=act_max,
    )
    kernel, stride, dilation = ((1, int(value[0])) for value in (attrs.pool_size, attrs.strides, attrs.dilation))
    left, right = int(attrs.padding[0]), int(attrs.padding[-1])
    return _windowed(whole, kernel, stride, dilation, (0, left, 0, right), bool(attrs.ceil_mode))


def _windowed(whole: Pool2d, kernel: Pair, steps: Pair, dilation: Pair, around: Padding, ceil_mode: bool) -> Pool2d:
    """The layer with this window.

    In ceil_mode windows may go beyond the padding at the bottom and right. What is there is padding, too, but an
    average that counts its padding does not count it.
    """
    layer = replace(whole, kernel=kernel, strides=steps, padding=around, dilation=dilation)
    if ceil_mode:
        layer = replace(layer, padding=_ceiled(layer))
        if layer.count_include_pad and layer.padding != around:
            beyond = f"{layer.padding[2] - around[2]} rows and {layer.padding[3] - around[3]} columns more"
            raise NotALayer("windows end with the padding where an average counts it", beyond)
    return in_whole_images(replace(layer, strides=moving_strides(pair(steps), kernel, layer.ifm, layer.padding)))


def _ceiled(layer: Pool2d) -> Padding:
    """The padding, with what the last window needs more at the bottom and right."""
    after = []
    for axis, size in enumerate(layer.kernel):
        reach = (layer.ofm.shape[1 + axis] - 1) * layer.strides[axis] + (size - 1) * layer.dilation[axis] + 1
        after.append(max(layer.padding[2 + axis], reach - layer.ifm.shape[1 + axis] - layer.padding[axis]))
    return layer.padding[0], layer.padding[1], after[0], after[1]


def global_pool2d(match: Match, pool: relay.Call) -> Pool2d:
    """The layer of a pooling call whose window is the whole input."""
    return in_whole_images(_over_all(match, pool))


def _over_all(match: Match, pool: relay.Call) -> Pool2d:
    """The same with the input's own height and width."""
    layout, name = str(pool.attrs.layout), layer_name(pool)
    ifm = activation(match.inputs[0], f"{name}_ifm", layout)
    act_min, act_max = clip_range(match)
    return Pool2d(
        name=name,
        source=match.sources,
        ifm=ifm,
        ofm=activation(match.root, name, layout),
        kernel=(ifm.shape[1], ifm.shape[2]),
        act_min=act_min,
        act_max=act_max,
    )


def reduced_axes(call: relay.Call) -> list[int]:
    """The axes that a reduction goes over, in order."""
    rank = len(call.args[0].checked_type.shape)
    named = range(rank) if call.attrs.axis is None else call.attrs.axis
    axes = sorted({int(axis) % rank for axis in named})
    return [axis for axis in range(rank) if axis not in axes] if bool(call.attrs.exclude) else axes
