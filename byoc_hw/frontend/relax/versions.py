"""What differs between versions of TVM, and how values of Relax are read.

Written for `TESTED`. Names that TVM has moved from one version to the next are imported here alone.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import tvm
from tvm import relax, s_tir, tirx
from tvm.support import cc

from byoc_hw.errors import Unsupported
from byoc_hw.tensor import Array

TESTED = ("0.27.0.post1",)
"""The versions of apache-tvm that the tests run with."""

tir = tirx
"""Low-level functions: `tvm.tir` in older versions."""

blocks = s_tir
"""The form of low-level functions in which they are scheduled, with its passes."""

create_shared = cc.create_shared
"""Links a library: in `tvm.contrib` of older versions."""

Literal = tvm.ir.GenericConst
"""A tensor that is a constant of a module: `relax.Constant` in older versions."""


def array_of(constant: Any) -> Array:
    """The values of a constant."""
    return np.asarray(constant.value.numpy())


def number_of(argument: Any) -> float:
    """The number that an operator has as an argument, as clip its bounds."""
    return float(argument.value)


def numbers_of(arguments: Any) -> list[int]:
    """The whole numbers that an operator has as a tuple, as a slice its axes."""
    return [int(number_of(one)) for one in arguments.fields]


def type_of(expr: Any) -> Any:
    """The type of an expression: `struct_info` in older versions."""
    return expr.ty


def dtype_of(expr: Any) -> str:
    """The type of a tensor's elements, "" for what is no tensor."""
    of = type_of(expr)
    return str(of.dtype) if isinstance(of, relax.TensorType) else ""


def extents_of(expr: Any) -> tuple[int, ...]:
    """The static shape of a tensor. `Unsupported` for one that is known at run time only."""
    shape = getattr(type_of(expr), "shape", None)
    extents = getattr(shape, "values", shape)
    if extents is None or not all(hasattr(extent, "value") or isinstance(extent, int) for extent in extents):
        raise Unsupported(f"shapes are static: got {type_of(expr)}")
    return tuple(int(extent) for extent in extents)


def name_of(call: Any) -> str:
    """The name of a call's operator without "relax."; of other callees their own name."""
    if isinstance(call.op, tvm.ir.Op):
        return str(call.op.name).removeprefix("relax.")
    return str(getattr(call.op, "name_hint", getattr(call.op, "global_symbol", "function")))


def is_call(value: Any, *names: str) -> TypeGuard[Any]:
    """Whether a value is a call of one of these operators, or without names a call of any."""
    return isinstance(value, relax.Call) and (not names or name_of(value) in names)
