"""Which operator of a model file each variable of an imported module is of, noted while TVM's importers run."""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc_hw.frontend.relax.bindings import operands_in


def owned(builder: Any, owners: dict[Any, str], result: Any, name: str) -> Any:
    """What an importer made of an operator, bound to variables.

    In `owners`, every variable that was made for it and has no owner yet is then of the operator.
    """
    if isinstance(result, relax.Tuple):
        return relax.Tuple([owned(builder, owners, field, name) for field in result.fields])
    if isinstance(result, list | tuple):
        return type(result)(owned(builder, owners, one, name) for one in result)
    if isinstance(result, relax.Call):
        result = builder.emit(result)
    waiting = [result]
    while waiting:
        one = waiting.pop()
        value = builder.lookup_binding(one) if isinstance(one, relax.Var) and one not in owners else None
        if value is not None:
            owners[one] = name
            waiting += operands_in(value)
    return result
