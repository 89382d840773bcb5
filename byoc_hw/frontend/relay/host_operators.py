"""Relay operators that TVM compiles to calls of C functions of ours.

An operator reads the inputs of a layer and its constants, and writes one int8 tensor of the shape in its attributes.
TVM plans its memory as that of any other, and keeps constants in flash.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay, te, tir

PREFIX = "tflite_"
"""What the names of the C functions start with."""


@functools.cache
def kernel_operator(function: str, operands: int) -> tvm.ir.Op:
    """The operator that calls a C function with pointers to its operands and to its output."""
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
    return relay.TensorType([int(extent) for extent in attrs["shape"]], "int8")


def _strategy(function: str, name: str) -> Any:
    def compute(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type) -> list[te.Tensor]:
        def call(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
            pointers = [*(each.access_ptr("r") for each in ins), outs[0].access_ptr("w")]
            return tir.Evaluate(tir.call_extern("int32", function, *pointers))

        return [te.extern(out_type.shape, list(inputs), call, dtype="int8", name=f"T_{function}")]

    @tvm.target.override_native_generic_func(f"byoc_hw_{function}_strategy")  # type: ignore[untyped-decorator]
    def strategy(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type, target: tvm.target.Target) -> Any:
        chosen = relay.op.OpStrategy()
        schedule = relay.op.strategy.wrap_topi_schedule(tvm.topi.generic.schedule_extern)
        chosen.add_implementation(compute, schedule, name=name)
        return chosen

    return strategy
