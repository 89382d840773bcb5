"""Functions of what is put together, as functions of each part.

    %2 = concat(%0, %1)                              %2 = nn.relu(%0)
    %3 = nn.relu(%2)                                 %3 = nn.relu(%1)
    %4 = quantize(%3)                                %4 = quantize(concat(%2, %3))

Parts are real values of stored ones, perhaps on other scales: each is then one table, also with constants by channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    operands_in,
    returned_by,
    steps_of,
    users_of_values,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.real_functions import REAL_FUNCTIONS
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of


def with_functions_of_parts(function: Any) -> Any:
    """The function with element-wise operators of one value, between concat and quantize, in front of the concat."""
    values, users = dict(steps_of(function)), users_of_values(function)
    steps: list[Assignment] = []
    for variable, value in values.items():
        calls = _functions_before(value, values, users) if is_call(value, "quantize") else []
        parts = _parts(calls[0].args[_place(calls[0])], values) if calls else None
        if parts is not None:
            value = call_on(value, [_of_parts(calls, parts, steps), *value.args[1:]], value.ty)
        steps.append((variable, value))
    return with_steps(function, without_unused(steps, returned_by(function.body.body)))


def _functions_before(quantize: Any, values: Mapping[Any, Any], users: Mapping[Any, list[Any]]) -> list[Any]:
    """The element-wise calls of one value whose result a quantize reads, in order; each result has one reader."""
    calls: list[Any] = []
    real = quantize.args[0]
    while len(users.get(real, ())) == 1 and _is_of_one(values.get(real)):
        calls.insert(0, values[real])
        real = calls[0].args[_place(calls[0])]
    return calls


def _is_of_one(call: Any) -> bool:
    """Whether a call is element-wise, of one computed value, and constants that are one or along the last dimension."""
    if not is_call(call, *REAL_FUNCTIONS):
        return False
    constants = [one for one in operands_in(call) if isinstance(one, Literal)]
    computed = [one for one in operands_in(call) if isinstance(one, relax.Var)]
    if len(computed) != 1 or extents_of(computed[0]) != extents_of(call):
        return False
    return all(array_of(one).size == 1 or array_of(one).size == array_of(one).shape[-1] for one in constants)


def _place(call: Any) -> int:
    """The place of the computed value among a call's operands."""
    return next(place for place, one in enumerate(call.args) if isinstance(one, relax.Var))


def _parts(real: Any, values: Mapping[Any, Any]) -> tuple[int, list[Any]] | None:
    """The axis along which a value is put together, and the parts; None if they are not stored."""
    call = values.get(real)
    if not is_call(call, "concat"):
        return None
    axis = int(call.attrs.axis) % len(extents_of(real))
    found = []
    for operand in call.args[0].fields:
        inner = _parts(operand, values)
        if inner is not None and inner[0] == axis:
            found += inner[1]
        elif is_call(values.get(operand), "dequantize"):
            found.append(operand)
        else:
            return None
    return axis, found


def _of_parts(calls: list[Any], whole: tuple[int, list[Any]], steps: list[Assignment]) -> Any:
    """The calls on each part, and the variable of the results put together, which are added to the steps."""
    axis, parts = whole
    results, begin = [], 0
    last = calls[-1]
    for part in parts:
        shape = extents_of(part)
        end = begin + shape[-1]
        result = part
        for call in calls:
            operands = list(call.args)
            for place, one in enumerate(operands):
                if isinstance(one, Literal) and array_of(one).size > 1 and axis == len(shape) - 1:
                    operands[place] = relax.const(np.ascontiguousarray(array_of(one)[..., begin:end]))
            operands[_place(call)] = result
            name = f"{part.name}_{name_of(call).removeprefix('nn.')}"
            result = relax.DataflowVar(name, relax.TensorType(shape, dtype_of(call)))
            steps.append((result, call_on(call, operands, result.ty)))
        results.append(result)
        begin = end
    made = relax.op.concat(results, axis)
    joined = relax.DataflowVar(f"{parts[0].name}_joined", relax.TensorType(extents_of(last), dtype_of(last)))
    steps.append((joined, call_on(made, made.args, joined.ty, last.span)))
    return joined
