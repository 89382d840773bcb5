"""TVM's golden semantics on this machine: compiled with LLVM, at the same settings wherever results are compared.

Compiling takes longer than running, so what makes programs fast and does not change a value is left out. LLVM's
optimization is one such thing, but where it puts a product or a root in place of a power. SimplifyExpr is another one,
but where it puts `x` in place of `x + x` of bool. Constants are folded only where TVM cannot lower them, as it cannot a
reshape of a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from byoc_hw.frontend.relay.host import golden_semantics, quiet
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.tensor import Array

# Plain `llvm` may default to another processor; with -mcpu, LLVM may fuse float operations.
_TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu"
_LEFT_OUT = ["SimplifyExpr", "SimplifyExprPostAlterOp", "AlterOpLayout"]


def golden_executor(mod: tvm.IRModule) -> Any:
    """TVM's executor of a type-checked module without regions."""
    target = _TARGET if _has(mod, "power") else f"{_TARGET} -opt-level=0"
    left_out = [] if _has(mod, "add", "bool") else _LEFT_OUT
    try:
        library = _built(mod, target, [*left_out, "FoldConstant"])
    except Exception:  # TVM raises errors of every class; those that folding does not avoid come once more
        library = _built(mod, target, left_out)
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def _built(mod: tvm.IRModule, target: str, left_out: Sequence[str]) -> Any:
    with quiet(), golden_semantics(), tvm.transform.PassContext(opt_level=3, disabled_pass=left_out):
        return relay.build(mod, target)


def _has(mod: tvm.IRModule, name: str, dtype: str | None = None) -> bool:
    """Whether a module has calls of an operator, with results of a type if one is given."""
    found: list[bool] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call) and operator_name(node) == name:
            found.append(dtype is None or node.checked_type.dtype == dtype)

    relay.analysis.post_order_visit(mod["main"].body, visit)
    return any(found)


def golden_values(outputs: Sequence[relay.Expr], inputs: Sequence[tuple[relay.Var, Array]]) -> list[Array]:
    """The values of expressions over these inputs."""
    function = relay.Function([variable for variable, _ in inputs], relay.Tuple(list(outputs)))
    executor = golden_executor(relay.transform.InferType()(tvm.IRModule.from_expr(function)))
    executor.run(**{variable.name_hint: tvm.nd.array(value) for variable, value in inputs})
    return [executor.get_output(index).numpy() for index in range(len(outputs))]
