"""TVM's golden semantics on this machine: compiled with LLVM, at the same settings wherever results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from byoc_hw.frontend.relay.host import golden_semantics, quiet
from byoc_hw.tensor import Array

# Plain `llvm` may default to another processor; with -mcpu, LLVM may fuse float operations.
_TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu"


def golden_executor(mod: tvm.IRModule) -> Any:
    """TVM's executor of a module without regions."""
    with quiet(), golden_semantics(), tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, _TARGET)
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def golden_values(outputs: Sequence[relay.Expr], inputs: Sequence[tuple[relay.Var, Array]]) -> list[Array]:
    """The values of expressions over these inputs."""
    function = relay.Function([variable for variable, _ in inputs], relay.Tuple(list(outputs)))
    executor = golden_executor(relay.transform.InferType()(tvm.IRModule.from_expr(function)))
    executor.run(**{variable.name_hint: tvm.nd.array(value) for variable, value in inputs})
    return [executor.get_output(index).numpy() for index in range(len(outputs))]
