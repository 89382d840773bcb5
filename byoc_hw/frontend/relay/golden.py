"""TVM's golden semantics on this machine: compiled with LLVM, at the same settings wherever results are compared.

Compiling takes longer than running, so what makes programs fast and does not change a value is left out. LLVM's
optimization is one such thing, but where it puts a product or a root in place of a power. SimplifyExpr is another one,
but where it regroups float (`regrouped`), and so is what TVM does to products of float, where there are none.
Constants are folded only where TVM cannot lower them, as it cannot a reshape of a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.contrib import cc, graph_executor

from byoc_hw.frontend.linked import can_link, linked
from byoc_hw.frontend.relay.host import quiet
from byoc_hw.frontend.relay.regrouping import regrouped
from byoc_hw.frontend.relay.semantics import golden_semantics
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name
from byoc_hw.remembered import Remembered
from byoc_hw.tensor import Array

# Plain `llvm` may default to another processor; with -mcpu, LLVM may fuse float operations.
TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu"
_LEFT_OUT = [
    *("AlterOpLayout", "EliminateCommonSubexpr", "CanonicalizeCast", "CanonicalizeOps"),
    *("SplitArgs", "LabelOps", "AnnotateMemoryScope"),
]
_OF_FLOAT_PRODUCTS = ["FoldScaleAxis", "FlattenAtrousConv"]
_PRODUCTS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "nn.conv2d_transpose")


_REMEMBERED = 4
"""The programs that are remembered: those that were asked for last."""

_programs: Remembered[tuple[tvm.IRModule, Callable[[], Any]]] = Remembered(_REMEMBERED)


def golden_executor(mod: tvm.IRModule, left_out: Sequence[str] | None = None) -> Any:
    """TVM's executor of a type-checked module without regions; of one that is `regrouped` with what it leaves out.

    A module is compiled once, while it is one of the last."""
    names = tuple(parameter.name_hint for parameter in mod["main"].params)
    key = tvm.ir.structural_hash(mod), names, tuple(left_out or ()), can_link()
    known = _programs.get(key)
    if known is None or not tvm.ir.structural_equal(known[0], mod):
        known = _programs.keep(key, (mod, _program(mod, left_out)))
    return known[1]()


def _program(mod: tvm.IRModule, left_out: Sequence[str] | None) -> Callable[[], Any]:
    """What makes executors of a module that TVM has compiled, each with tensors of its own."""
    called = _called(mod)
    target = TARGET if "power" in called else f"{TARGET} -opt-level=0"
    if left_out is None:
        mod, left_out = regrouped(mod, TARGET)
    left_out = [*left_out, *_LEFT_OUT]
    if not any(dtype.startswith("float") for product in _PRODUCTS for dtype in called.get(product, ())):
        left_out += _OF_FLOAT_PRODUCTS
    try:
        library = _built(mod, target, [*left_out, "FoldConstant"])
    except Exception:  # TVM raises errors of every class; those that folding does not avoid come once more
        library = _built(mod, target, left_out)
    compiled = library.get_lib()
    if not can_link() or compiled.type_key != "llvm":
        return lambda: graph_executor.GraphModule(library["default"](tvm.cpu()))
    loaded = linked(compiled.save, cc.create_shared, tvm.runtime.load_module)

    def executor() -> Any:
        made = graph_executor.create(library.get_graph_json(), loaded, tvm.cpu())
        made.set_input(**library.get_params())
        return made

    return executor


def _built(mod: tvm.IRModule, target: str, left_out: Sequence[str]) -> Any:
    with quiet(), golden_semantics(), tvm.transform.PassContext(opt_level=3, disabled_pass=left_out):
        return relay.build(mod, target)


def _called(mod: tvm.IRModule) -> dict[str, set[str]]:
    """The operators that a module calls, each with the types of its results that are one tensor."""
    found: dict[str, set[str]] = {}
    for call in calls_in_order(mod["main"]):
        types = found.setdefault(operator_name(call), set())
        if isinstance(call.checked_type, relay.TensorType):
            types.add(str(call.checked_type.dtype))
    return found


def golden_values(outputs: Sequence[relay.Expr], inputs: Sequence[tuple[relay.Var, Array]]) -> list[Array]:
    """The values of expressions over these inputs."""
    function = relay.Function([variable for variable, _ in inputs], relay.Tuple(list(outputs)))
    executor = golden_executor(relay.transform.InferType()(tvm.IRModule.from_expr(function)))
    executor.run(**{variable.name_hint: tvm.nd.array(value) for variable, value in inputs})
    return [executor.get_output(index).numpy() for index in range(len(outputs))]
