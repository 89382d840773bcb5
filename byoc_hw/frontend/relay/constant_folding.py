"""Folding of constants: by numpy, and by TVM what that leaves, as TVM compiles a program for each of them."""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import with_main
from byoc_hw.frontend.relay.constant_values import without_plain_constants
from byoc_hw.frontend.relay.semantics import golden_semantics

_OF_SHAPES = ("shape_of", "vm.shape_of", "ndarray_size")
"""Operators that TVM folds whatever their operands are."""


def fold_constants(qnn: bool = False) -> tvm.transform.Pass:
    """As TVM's FoldConstant on `main` of a type-checked module; with `qnn`, of those operators too."""

    @tvm.transform.module_pass(opt_level=0, name="byoc_hw.FoldConstants")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        mod = with_main(mod, without_plain_constants(mod["main"], qnn))
        if not _foldable(mod["main"], qnn):
            return mod
        with golden_semantics():
            return relay.transform.FoldConstant(fold_qnn=qnn)(mod)

    return apply


def _foldable(main: relay.Function, qnn: bool) -> bool:
    """Whether an operator of a dataflow graph may be folded; with `qnn`, one of QNN too."""
    found: list[relay.Expr] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.TupleGetItem) or (isinstance(node, relay.Call) and is_foldable(node, qnn)):
            found.append(node)

    relay.analysis.post_order_visit(main.body, visit)
    return bool(found)


def is_foldable(call: relay.Call, qnn: bool) -> bool:
    """Whether TVM may fold a call; with `qnn`, one of QNN too."""
    if not isinstance(call.op, tvm.ir.Op) or call.op.name in _OF_SHAPES:
        return True
    return (qnn or not call.op.name.startswith("qnn.")) and all(map(_is_constant, call.args))


def _is_constant(expr: relay.Expr) -> bool:
    if isinstance(expr, relay.Tuple):
        return all(map(_is_constant, expr.fields))
    return isinstance(expr, relay.Constant)
