"""Operators of constants, computed in numpy: TVM compiles a program for each that it folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls
from byoc_hw.frontend.relay.read import layout_axes
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.tensor import Array


def without_plain_constants(main: relay.Function, qnn: bool = False) -> relay.Function:
    """A function with what numpy computes of constants as constants; with `qnn`, of the operators of QNN too."""
    return rebuild_calls(main, lambda call, arguments: computed_or_called(call, arguments, qnn))


def computed_or_called(call: relay.Call, arguments: list[relay.Expr], qnn: bool = False) -> relay.Expr:
    """What a call of these arguments gives, if numpy computes it, or the call."""
    constant = computed(call, arguments, qnn)
    return called_with(call, arguments) if constant is None else constant


def computed(call: relay.Call, arguments: Sequence[relay.Expr], qnn: bool = False) -> relay.Constant | None:
    """What a call of these arguments gives, if they are constants and numpy has the same bits and type as TVM."""
    function = (_COMPUTED | _OF_QNN if qnn else _COMPUTED).get(operator_name(call))
    arrays = None if function is None else _arrays(arguments)
    found = None if function is None or arrays is None else function(call, *arrays)
    return None if found is None else relay.const(np.array(found, order="C"), str(found.dtype))


def _arrays(arguments: Sequence[relay.Expr]) -> list[Array] | None:
    """The values of constants, and of the fields of tuples; None if one of them is none."""
    arrays = []
    for argument in arguments:
        for one in argument.fields if isinstance(argument, relay.Tuple) else [argument]:
            if not isinstance(one, relay.Constant):
                return None
            arrays.append(one.data.numpy())
    return arrays


def _cast(call: relay.Call, array: Array) -> Array | None:
    dtype = np.dtype(str(call.attrs.dtype))
    if array.dtype.kind not in "biu" or dtype.kind not in "iuf":
        return None
    cast = array.astype(dtype)
    return cast if (cast.astype(np.float64) == array.astype(np.float64)).all() else None


def _transpose(call: relay.Call, array: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(array, None if axes is None else [int(axis) for axis in axes])


def _layout_transform(call: relay.Call, array: Array) -> Array | None:
    axes = layout_axes(call)
    return None if axes is None else np.transpose(array, axes)


def _reshape(call: relay.Call, array: Array) -> Array | None:
    shape = [int(extent) for extent in call.attrs.newshape]
    plain = all(extent > 0 or extent == -1 for extent in shape) and shape.count(-1) <= 1
    return array.reshape(shape) if plain else None  # others have meanings of their own


def _strided_slice(call: relay.Call, array: Array) -> Array | None:
    attrs = call.attrs
    begin, end, strides = ([int(one) for one in several] for several in (attrs.begin, attrs.end, attrs.strides))
    axes = range(len(begin)) if attrs.axes is None else [int(axis) % array.ndim for axis in attrs.axes]
    strides = strides * len(begin) if len(strides) == 1 else strides or [1] * len(begin)
    if str(attrs.slice_mode) != "end" or min(strides) < 1 or not len(begin) == len(end) == len(strides) == len(axes):
        return None
    slices = [slice(None)] * array.ndim
    for axis, *bounds in zip(axes, begin, end, strides, strict=True):
        slices[axis] = slice(*bounds)
    return array[tuple(slices)]


def _dequantize(call: relay.Call, array: Array, scale: Array, zero_point: Array) -> Array | None:
    if {str(call.attrs.out_dtype), str(scale.dtype)} != {"float32"} or array.ndim == 0:
        return None
    shape = [1] * array.ndim
    if max(scale.size, zero_point.size) > 1:
        shape[int(call.attrs.axis)] = -1
    shifted = array.astype(np.int32) - zero_point.astype(np.int32).reshape(shape)
    real: Array = shifted.astype(np.float32) * scale.reshape(shape)
    return real


def _concatenate(call: relay.Call, *arrays: Array) -> Array:
    return np.concatenate(arrays, int(call.attrs.axis))


def _pairwise(function: Callable[[Array, Array], Array]) -> Callable[..., Array | None]:
    """A function of integers of one type."""

    def of_both(call: relay.Call, one: Array, other: Array) -> Array | None:
        return function(one, other) if one.dtype == other.dtype and one.dtype.kind in "iu" else None

    return of_both


def _where(call: relay.Call, condition: Array, one: Array, other: Array) -> Array | None:
    return np.where(condition, one, other) if condition.dtype == bool and one.dtype == other.dtype else None


def _expand_dims(call: relay.Call, array: Array) -> Array:
    axis, count = int(call.attrs.axis), int(call.attrs.num_newaxis)
    first = axis if axis >= 0 else axis + array.ndim + 1
    return np.expand_dims(array, tuple(range(first, first + count)))


_COMPUTED: dict[str, Callable[..., Array | None]] = {
    "cast": _cast,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "reshape": _reshape,
    "expand_dims": _expand_dims,
    "strided_slice": _strided_slice,
    "concatenate": _concatenate,
    "maximum": _pairwise(np.maximum),
    "minimum": _pairwise(np.minimum),
    "add": _pairwise(np.add),
    "subtract": _pairwise(np.subtract),
    "less": _pairwise(np.less),
    "where": _where,
}
"""By operator, what is computed of the values of its arguments. None leaves it to TVM."""

_OF_QNN: dict[str, Callable[..., Array | None]] = {"qnn.dequantize": _dequantize}
"""As `_COMPUTED`, of operators that TVM's passes leave as they are, where they are not told otherwise."""
