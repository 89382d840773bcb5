"""int8 softmax on the host as one integer C function, bit-exact with TVM's float operators.

    %0 = qnn.dequantize(%x)              float32
    %1 = nn.softmax(%0)
    %2 = qnn.quantize(%1)                int8, scale 1/256, zero point -128

becomes

    %2 = byoc_hw.softmax_int8(%x)

for which TVM's C target writes a call of `softmax_int8` (see the template of <mod_name>_math.c). Other
forms of softmax stay in floating point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relay, te, tir
from tvm.relay import dataflow_pattern as dfp

from byoc_hw.frontend.relay.compose import called_with, each_call
from byoc_hw.frontend.relay.read import constant, constants

OPERATOR = "byoc_hw.softmax_int8"
_SCALES = 2.0**-25, 2.0**7  # lower bound, exclusive upper bound: what fits the fixed point of the C


def integer_softmax() -> tvm.transform.Pass:
    """Replace each int8 softmax by one operator."""
    return each_call(_rebuilt, "IntegerSoftmax")


def _rebuilt(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    if not _is_ours(call):
        return called_with(call, arguments)
    ifm, scale, zero_point = arguments[0].args[0].args
    bits = constant(scale).astype(np.float32).view(np.int32)
    attributes = {"scale": bits.item(), "zero_point": constant(zero_point).item()}
    attrs = tvm.ir.make_node("DictAttrs", **attributes)
    return relay.Call(relay.op.get(OPERATOR), [ifm], attrs, span=call.span)


def _is_ours(call: relay.Call) -> bool:
    dequantize = dfp.is_op("qnn.dequantize")(dfp.wildcard(), *constants(2))
    if not dfp.is_op("qnn.quantize")(dfp.is_op("nn.softmax")(dequantize), *constants(2)).match(call):
        return False
    softmax = call.args[0]
    ifm, *into = softmax.args[0].args
    values = [constant(value) for value in (*into, *call.args[1:])]
    if any(value.size != 1 for value in values):
        return False
    scale, zero_point, out_scale, out_zero_point = (value.item() for value in values)
    rank, (least, limit) = len(ifm.checked_type.shape), _SCALES
    return (
        (ifm.checked_type.dtype, call.attrs.out_dtype) == ("int8", "int8")
        and int(softmax.attrs.axis) % rank == rank - 1
        and (out_scale, out_zero_point) == (1 / 256, -128)
        and least <= scale < limit
        and -128 <= zero_point <= 127
    )


# ---------------------------------------------------------------- the operator, for TVM


def _compute(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type) -> list[te.Tensor]:
    (ifm,) = inputs
    *outer, columns = (int(extent) for extent in out_type.shape)

    def call(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        builder = tir.ir_builder.create()
        exponentials = builder.allocate("uint32", columns, name="softmax_exponentials", scope="global")
        pointers = [ins[0].access_ptr("r"), outs[0].access_ptr("w"), exponentials.asobject().data]
        numbers = [math.prod(outer), columns, int(attrs["zero_point"]), int(attrs["scale"])]
        builder.emit(tir.call_extern("int32", "softmax_int8", *pointers, *numbers))
        return builder.get()

    return [te.extern(out_type.shape, [ifm], call, dtype="int8", name="T_softmax")]


@tvm.target.override_native_generic_func("byoc_hw_softmax_int8_strategy")  # type: ignore[untyped-decorator]
def _strategy(attrs: Any, inputs: list[te.Tensor], out_type: relay.Type, target: tvm.target.Target) -> Any:
    strategy = relay.op.OpStrategy()
    schedule = relay.op.strategy.wrap_topi_schedule(tvm.topi.generic.schedule_extern)
    strategy.add_implementation(_compute, schedule, name=OPERATOR)
    return strategy


def _register() -> None:
    relay.op.op.register(OPERATOR)
    operator = relay.op.get(OPERATOR)
    operator.set_num_inputs(1)
    operator.add_argument("data", "Tensor", "int8 logits; softmax goes over the last axis")
    operator.set_attrs_type_key("DictAttrs")
    operator.add_type_rel("Identity")
    relay.op.op.register_pattern(OPERATOR, relay.op.OpPattern.OPAQUE)
    relay.op.op.register_strategy(OPERATOR, _strategy)


_register()
