"""uint8 values between quantize and dequantize as int8: every value is 128 less, and so is its zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import Assignment, call_on, steps_of, users_of_values, with_steps
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call

_SHIFT = 128
"""What an int8 value is less than the uint8 value that it stands for."""


def with_signed_values(function: Any) -> Any:
    """The function with uint8 values that only dequantize reads as int8, also constants; inputs keep their type."""
    values, users = dict(steps_of(function)), users_of_values(function)
    signed: dict[Any, Any] = {}
    steps: list[Assignment] = []
    for variable, value in values.items():
        if is_call(value, "quantize") and _is_inside(variable, values, users):
            made = relax.op.quantize(value.args[0], *_signed_grid(value), axis=int(value.attrs.axis), out_dtype="int8")
            of = relax.TensorType(extents_of(variable), "int8")
            signed[variable] = relax.DataflowVar(f"{variable.name}_signed", of)
            steps.append((signed[variable], call_on(made, made.args, of, value.span)))
            continue
        if is_call(value, "dequantize") and (value.args[0] in signed or _is_unsigned_constant(value.args[0])):
            source = value.args[0]
            stored = signed[source] if source in signed else _less(source, "int8")
            value = call_on(value, [stored, *_signed_grid(value)], value.ty)
        steps.append((variable, value))
    return with_steps(function, steps)


def _is_inside(variable: Any, values: dict[Any, Any], users: dict[Any, list[Any]]) -> bool:
    """Whether a value is uint8 and read by dequantize alone."""
    readers = users.get(variable, [])
    return dtype_of(variable) == "uint8" and all(is_call(values.get(one), "dequantize") for one in readers)


def _is_unsigned_constant(value: Any) -> bool:
    return isinstance(value, Literal) and dtype_of(value) == "uint8"


def _signed_grid(call: Any) -> tuple[Any, Any]:
    """The scale of a quantize or dequantize, and its zero point for int8."""
    return call.args[1], _less(call.args[2], "int32")


def _less(constant: Any, dtype: str) -> Any:
    return relax.const((array_of(constant).astype(np.int32) - _SHIFT).astype(dtype))
