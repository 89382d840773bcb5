"""Relay operators that TVM compiles to calls of C functions of ours.

An operator reads inputs and constants, and writes tensors of the types in its attributes. TVM plans its memory and its
workspace as those of any other, and keeps constants in flash.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relay, te, tir

from byoc_hw.graph import Layer
from byoc_hw.program import HostWork, KernelCall

Kernel = Callable[[Layer | HostWork], KernelCall]
"""How a function of ours computes a layer, or does other work."""

PREFIXES = ("tflite_", "host_")
"""What the names of the C functions start with."""


def kernel_called(
    made: KernelCall, inputs: Sequence[relay.Expr], types: Sequence[relay.TensorType], span: object
) -> relay.Call:
    """The call of a C function with these inputs, whose outputs have these types: a tuple if there are several."""
    operands = [*inputs, *(relay.const(array, str(array.dtype)) for array in made.constants)]
    attributes = tvm.ir.make_node(
        "DictAttrs",
        shapes=[list(each.shape) for each in types],
        dtypes=[each.dtype for each in types],
        workspace=made.workspace,
    )
    return relay.Call(_operator(made.function, len(operands)), operands, attributes, span=span)


@functools.cache
def _operator(function: str, operands: int) -> tvm.ir.Op:
    """The operator that calls a C function with pointers to its operands, its workspace and its outputs."""
    name = f"byoc_hw.{function}"
    relay.op.op.register(name)
    operator = relay.op.get(name)
    operator.set_num_inputs(operands)
    for index in range(operands):
        operator.add_argument(f"operand{index}", "Tensor", "an input, or constants")
    operator.set_attrs_type_key("DictAttrs")
    operator.add_type_rel(name, _type_of)
    relay.op.op.register_pattern(name, relay.op.OpPattern.OPAQUE)
    relay.op.op.register_stateful(name, True)  # TVM does not compute it at compile time, where the function is not
    relay.op.op.register_strategy(name, _strategy(function, name))
    return operator


def _type_of(operands: Sequence[tvm.ir.Type], attrs: Any) -> tvm.ir.Type:
    pairs = zip(attrs["shapes"], attrs["dtypes"], strict=True)
    types = [relay.TensorType([int(extent) for extent in shape], str(dtype)) for shape, dtype in pairs]
    return types[0] if len(types) == 1 else relay.TupleType(types)


def _strategy(function: str, name: str) -> Any:
    def compute(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type) -> list[te.Tensor]:
        types = out_type.fields if isinstance(out_type, relay.TupleType) else [out_type]

        def call(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
            builder = tir.ir_builder.create()
            pointers = [each.access_ptr("r") for each in ins]
            if int(attrs["workspace"]):
                own = builder.allocate("int32", int(attrs["workspace"]), name=f"{function}_order", scope="global")
                pointers.append(own.asobject().data)
            pointers += [each.access_ptr("w") for each in outs]
            builder.emit(tir.call_extern("int32", function, *pointers))
            return builder.get()

        shapes, dtypes = [each.shape for each in types], [each.dtype for each in types]
        made = te.extern(shapes, list(inputs), call, dtype=dtypes, name=f"T_{function}")
        return list(made) if len(types) > 1 else [made]

    @tvm.target.override_native_generic_func(f"byoc_hw_{function}_strategy")  # type: ignore[untyped-decorator]
    def strategy(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type, target: tvm.target.Target) -> Any:
        chosen = relay.op.OpStrategy()
        schedule = relay.op.strategy.wrap_topi_schedule(tvm.topi.generic.schedule_extern)
        chosen.add_implementation(compute, schedule, name=name)
        return chosen

    return strategy
