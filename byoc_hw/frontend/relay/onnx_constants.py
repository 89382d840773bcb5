"""What TVM's ONNX importer computes of constants, in numpy.

The importer folds every operator that it makes: most have nothing to fold, and most of the others change the type of a
zero point or compute a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relay
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.constant_values import arrays_of_constants, computed

_OF_SHAPES = ("shape_of", "vm.shape_of", "ndarray_size")
"""Operators that TVM folds whatever their operands are."""


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
        found = computed(expr, arguments)
        if found is not None:
            return found
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
        return not expr.op.name.startswith("qnn.") and arrays_of_constants(expr.args) is not None


@contextmanager
def folded_in_numpy() -> Iterator[None]:
    """The importer folds with numpy what it can meanwhile."""
    tvms = importer.fold_constant
    importer.fold_constant = _Folding(tvms).fold
    try:
        yield
    finally:
        importer.fold_constant = tvms
