"""What TVM's ONNX importer computes of constants, in numpy: TVM compiles a program for each of them.

The importer folds every operator that it makes: most have nothing to fold, and most of the others change the type of a
zero point or compute a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.tensor import Array

_OF_SHAPES = ("shape_of", "vm.shape_of", "ndarray_size")
"""Operators that TVM folds whatever their operands are."""


def _cast(call: relay.Call, array: Array) -> Array | None:
    dtype = np.dtype(str(call.attrs.dtype))
    if array.dtype.kind not in "biu" or dtype.kind not in "iuf":
        return None
    cast = array.astype(dtype)
    return cast if (cast.astype(np.float64) == array.astype(np.float64)).all() else None


def _transpose(call: relay.Call, array: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(array, None if axes is None else [int(axis) for axis in axes])


def _reshape(call: relay.Call, array: Array) -> Array | None:
    shape = [int(extent) for extent in call.attrs.newshape]
    return array.reshape(shape) if min(shape, default=1) > 0 else None  # others have meanings of their own


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


def _concatenate(call: relay.Call, *arrays: Array) -> Array:
    return np.concatenate(arrays, int(call.attrs.axis))


def _pairwise(function: Callable[[Array, Array], Array]) -> Callable[..., Array | None]:
    """A function of integers of one type."""

    def computed(call: relay.Call, one: Array, other: Array) -> Array | None:
        return function(one, other) if one.dtype == other.dtype and one.dtype.kind in "iu" else None

    return computed


def _where(call: relay.Call, condition: Array, one: Array, other: Array) -> Array | None:
    return np.where(condition, one, other) if condition.dtype == bool and one.dtype == other.dtype else None


_COMPUTED: dict[str, Callable[..., Array | None]] = {
    "cast": _cast,
    "transpose": _transpose,
    "reshape": _reshape,
    "strided_slice": _strided_slice,
    "concatenate": _concatenate,
    "maximum": _pairwise(np.maximum),
    "minimum": _pairwise(np.minimum),
    "add": _pairwise(np.add),
    "less": _pairwise(np.less),
    "where": _where,
}
"""What is computed here: the same bits as TVM's. None leaves it to TVM."""


class _Folding:
    """The folding of the expressions of one import: each is looked at once."""

    def __init__(self, tvms: Callable[..., relay.Expr]) -> None:
        self._tvms = tvms
        self._folded: dict[relay.Expr, relay.Expr] = {}
        self._left: dict[relay.Expr, bool] = {}

    def fold(self, expr: relay.Expr, mod: Any = None) -> relay.Expr:
        """As `fold_constant` of the importer."""
        new = self._visited(expr)
        return self._tvms(new, mod) if self._left[new] else new

    def _visited(self, expr: relay.Expr) -> relay.Expr:
        if expr not in self._folded:
            new = self._rebuilt(expr)
            self._folded[expr] = self._folded[new] = new
            self._left.setdefault(new, self._may_fold(new))
        return self._folded[expr]

    def _rebuilt(self, expr: relay.Expr) -> relay.Expr:
        if isinstance(expr, relay.Tuple):
            fields = [self._visited(field) for field in expr.fields]
            same = all(new.same_as(field) for new, field in zip(fields, expr.fields, strict=True))
            return expr if same else relay.Tuple(fields, expr.span)
        if isinstance(expr, relay.TupleGetItem):
            value = self._visited(expr.tuple_value)
            if isinstance(value, relay.Tuple):
                return value.fields[expr.index]
            return expr if value.same_as(expr.tuple_value) else relay.TupleGetItem(value, expr.index, expr.span)
        if not isinstance(expr, relay.Call):
            return expr
        arguments = [self._visited(argument) for argument in expr.args]
        arrays = _arrays(arguments)
        if arrays is not None and (function := _COMPUTED.get(operator_name(expr))):
            found = function(expr, *arrays)
            if found is not None:
                return relay.const(np.array(found, order="C"), str(found.dtype))
        same = all(new.same_as(argument) for new, argument in zip(arguments, expr.args, strict=True))
        return expr if same else relay.Call(expr.op, arguments, expr.attrs, expr.type_args, expr.span)

    def _may_fold(self, expr: relay.Expr) -> bool:
        """Whether TVM may find something to fold in an expression that was looked at."""
        if isinstance(expr, relay.Constant | relay.Var):
            return False
        if isinstance(expr, relay.Tuple):
            return any(self._left[field] for field in expr.fields)
        if isinstance(expr, relay.TupleGetItem):
            return self._left[expr.tuple_value]
        if not isinstance(expr, relay.Call) or not isinstance(expr.op, tvm.ir.Op) or expr.op.name in _OF_SHAPES:
            return True
        if any(self._left[argument] for argument in expr.args):
            return True
        return not expr.op.name.startswith("qnn.") and _arrays(expr.args) is not None


def _arrays(arguments: list[relay.Expr]) -> list[Array] | None:
    """The values of constants and of tuples of these, or None."""
    arrays = []
    for argument in arguments:
        for one in argument.fields if isinstance(argument, relay.Tuple) else [argument]:
            if not isinstance(one, relay.Constant):
                return None
            arrays.append(one.data.numpy())
    return arrays


@contextmanager
def folded_in_numpy() -> Iterator[None]:
    """The importer folds with numpy what it can meanwhile."""
    tvms = importer.fold_constant
    importer.fold_constant = _Folding(tvms).fold
    try:
        yield
    finally:
        importer.fold_constant = tvms
