"""What TVM's ONNX importer asks for with each operator that it makes, in less time.

It folds every operator: most have nothing to fold, and most of the others change the type of a zero point or compute a
shape, which numpy does. And it asks for the type of what an operator reads: TVM works out all types from the inputs on,
each time again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.constant_folding import is_foldable
from byoc_hw.frontend.relay.constant_values import computed_or_called


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
        return computed_or_called(expr, [self._visited(argument) for argument in expr.args])

    def _may_fold(self, expr: relay.Expr) -> bool:
        """Whether TVM may find something to fold in an expression that was looked at."""
        if isinstance(expr, relay.Constant | relay.Var):
            return False
        if isinstance(expr, relay.Tuple):
            return any(self._left[field] for field in expr.fields)
        if isinstance(expr, relay.TupleGetItem):
            return self._left[expr.tuple_value]
        if not isinstance(expr, relay.Call) or any(self._left[argument] for argument in expr.args):
            return True
        return is_foldable(expr, qnn=False)


class _Types:
    """The types of the expressions of one import: each is inferred once, from those of what it reads."""

    def __init__(self, tvms: Callable[..., relay.Expr]) -> None:
        self._tvms = tvms
        self._known: dict[relay.Expr, relay.Type] = {}

    def infer(self, node: relay.Expr, mod: Any = None) -> Any:
        """As `infer_type` of the importer, of whose result it reads `checked_type` alone."""
        if mod is not None or isinstance(node, relay.Function):
            return self._tvms(node, mod)
        waiting = [node]
        while waiting:
            missing = [part for part in _parts(waiting[-1]) if part not in self._known]
            if missing:
                waiting += missing
            else:
                one = waiting.pop()
                if one not in self._known:
                    self._known[one] = self._type_of(one)
        return SimpleNamespace(checked_type=self._known[node])

    def _type_of(self, expr: relay.Expr) -> relay.Type:
        if isinstance(expr, relay.Tuple):
            return relay.TupleType([self._known[field] for field in expr.fields])
        if isinstance(expr, relay.TupleGetItem):
            return self._known[expr.tuple_value].fields[expr.index]
        if _is_of_an_operator(expr):
            arguments = [
                one if isinstance(one, relay.Constant) else relay.Var(f"x{at}", self._known[one])
                for at, one in enumerate(expr.args)
            ]
            expr = relay.Call(expr.op, arguments, expr.attrs, expr.type_args)
        return self._tvms(expr).checked_type


def _parts(expr: relay.Expr) -> list[relay.Expr]:
    """The expressions whose types give that of one; none of one that is inferred as a whole."""
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    return list(expr.args) if _is_of_an_operator(expr) else []


def _is_of_an_operator(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op)


@contextmanager
def quick_importer() -> Iterator[None]:
    """The importer folds and infers types in less time meanwhile."""
    before = importer.fold_constant, importer.infer_type, common.infer_type
    fold, infer, _ = before
    importer.fold_constant = _Folding(fold).fold
    importer.infer_type = common.infer_type = _Types(infer).infer
    try:
        yield
    finally:
        importer.fold_constant, importer.infer_type, common.infer_type = before
