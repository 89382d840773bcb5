"""Mathematical functions of host operators, as TVM's llvm build computes them.

TVM's C target calls the C library for most functions and has nothing for some. Where TVM's llvm target or LLVM
itself has a formula, the formula is used here too:

    tan(x) -> sin(x) / cos(x)
    sinh(x) -> (exp(x) - exp(-x)) / 2
    pow(x, 0.5) -> sqrt(x)

so that a result differs from TVM's only where the C library's own exp, log, sin, cos, pow ... does; float32's
exp does not (see the template of <mod_name>_math.c). Functions that the C target lacks become calls of the C
library. Sums and complements of bool have one bit, and those of other integers narrower than int as many as their type.
"""

from __future__ import annotations

import tvm
from tvm import tir

from byoc_hw.frontend.powers import power

_FORMULAS = {  # operator: which of TVM's rules
    "tir.tanh": "llvm.FLowerIntrinsic",
    "tir.tan": "llvm.FLegalize",
    "tir.sinh": "llvm.FLegalize",
    "tir.cosh": "llvm.FLegalize",
    "tir.exp10": "llvm.FLegalize",
    "tir.isinf": "default.FLegalize",
    "tir.isfinite": "default.FLegalize",
}
_LIBRARY = {"tir.fabs": "fabs", "tir.trunc": "trunc", "tir.exp2": "exp2"}
_SUFFIXES = {"float32": "f", "float64": ""}


@tir.transform.prim_func_pass(opt_level=0, name="byoc_hw.LikeLLVM")
class LikeLLVM:
    """Replace functions by TVM's formulas for llvm, and those that TVM's C target lacks by the C library's."""

    def transform_function(
        self, function: tir.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
    ) -> tir.PrimFunc:
        """One function; see `tvm.tir.transform.prim_func_pass`."""
        body = function.body
        for rule in (_by_formula, _by_library):  # in this order: the formulas call fabs and exp2
            body = tir.stmt_functor.ir_transform(body, None, rule, ["tir.Call"])
        for bits in (_one_bit, _own_bits):
            body = tir.stmt_functor.ir_transform(body, None, bits, ["tir.Add", "tir.Sub", "tir.Mul", "tir.Call"])
        body = tir.stmt_functor.ir_transform(body, None, _stored, ["tir.BufferStore"])
        return function.with_body(body)


def _one_bit(node: tir.Add | tir.Sub | tir.Mul | tir.Call) -> tir.PrimExpr | None:
    """Sums and complements of bool, which LLVM has in one bit; C would compute them as int, and take any other number
    than 0 for true."""
    if str(node.dtype) != "bool":
        return None
    if isinstance(node, tir.Call):
        return tir.Not(node.args[0]) if getattr(node.op, "name", "") == "tir.bitwise_not" else None
    return tir.And(node.a, node.b) if isinstance(node, tir.Mul) else tir.NE(node.a, node.b)


_WIDE = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
_SUMS = (tir.Add, tir.Sub, tir.Mul)


def _own_bits(node: tir.Add | tir.Sub | tir.Mul | tir.Call) -> tir.PrimExpr | None:
    """Sums and the like of integers narrower than int, which LLVM has in as many bits; C computes them as int."""
    dtype = str(node.dtype)
    if dtype not in _WIDE:
        return None
    if not isinstance(node, tir.Call):
        wide = type(node)(*(tir.Cast(_WIDE[dtype], operand) for operand in (node.a, node.b)))
    elif getattr(node.op, "name", "") in ("tir.shift_left", "tir.bitwise_not"):
        wide = tir.Call(_WIDE[dtype], node.op, [tir.Cast(_WIDE[dtype], operand) for operand in node.args])
    else:
        return None
    return None if _fits(wide, dtype) else tir.Cast(dtype, wide)


def _fits(wide: tir.PrimExpr, dtype: str) -> bool:
    bound = tvm.arith.Analyzer().const_int_bound(wide)
    return bool(tir.min_value(dtype).value <= bound.min_value and bound.max_value <= tir.max_value(dtype).value)


def _stored(store: tir.BufferStore) -> tir.BufferStore | None:
    """A sum that is stored has the bits of its type by that alone; a product of uint16 may be beyond int."""
    value = store.value
    if not isinstance(value, tir.Cast) or str(value.dtype) not in _WIDE or not isinstance(value.value, _SUMS):
        return None
    wide, sides = value.value, (value.value.a, value.value.b)
    if isinstance(wide, tir.Mul) and value.dtype == "uint16":
        return None
    if not all(isinstance(side, tir.Cast) and side.value.dtype == value.dtype for side in sides):
        return None
    return tir.BufferStore(store.buffer, type(wide)(*(side.value for side in sides)), store.indices)


def _by_formula(call: tir.Call) -> tir.PrimExpr | None:
    name = getattr(call.op, "name", "")
    if name == "tir.pow" and str(call.dtype) in _SUFFIXES:
        return power(tir, str(call.dtype), *call.args)
    return call.op.get_attr(_FORMULAS[name])(call) if name in _FORMULAS else None


def _by_library(call: tir.Call) -> tir.PrimExpr | None:
    name, dtype = getattr(call.op, "name", ""), str(call.dtype)
    if name not in _LIBRARY or dtype not in _SUFFIXES:
        return None
    return tir.call_pure_extern(dtype, _LIBRARY[name] + _SUFFIXES[dtype], *call.args)
