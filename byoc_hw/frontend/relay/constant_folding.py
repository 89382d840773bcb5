"""TVM's folding of constants, where there is anything to fold: the pass itself type-checks the module."""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.frontend.relay.host import golden_semantics

_OF_SHAPES = ("shape_of", "vm.shape_of", "ndarray_size")
"""Operators that TVM folds whatever their operands are."""


def fold_constants(qnn: bool = False) -> tvm.transform.Pass:
    """As TVM's FoldConstant on `main` of a type-checked module; with `qnn`, of those operators too."""

    @tvm.transform.module_pass(opt_level=0, name="byoc_hw.FoldConstants")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not _foldable(mod["main"]):
            return mod
        with golden_semantics():
            return relay.transform.FoldConstant(fold_qnn=qnn)(mod)

    return apply


def _foldable(main: relay.Function) -> bool:
    """Whether an operator of a dataflow graph may be folded."""
    found: list[relay.Expr] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.TupleGetItem) or (isinstance(node, relay.Call) and is_foldable(node)):
            found.append(node)

    relay.analysis.post_order_visit(main.body, visit)
    return bool(found)


def is_foldable(call: relay.Call) -> bool:
    """Whether TVM may fold a call."""
    if not isinstance(call.op, tvm.ir.Op) or call.op.name in _OF_SHAPES:
        return True
    return all(map(_is_constant, call.args))


def _is_constant(expr: relay.Expr) -> bool:
    if isinstance(expr, relay.Tuple):
        return all(map(_is_constant, expr.fields))
    return isinstance(expr, relay.Constant)
