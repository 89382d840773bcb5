"""What each operator of a model file has to do: multiplications with additions, and bytes read and written."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import names_in, operands_in, steps_of, users_of_values
from byoc_hw.frontend.relax.versions import Literal, dtype_of, extents_of, name_of, type_of
from byoc_hw.frontend.source_operators import OperatorWork


def work_of(main: Any) -> dict[str, OperatorWork]:
    """The work of each operator of the model file, by name. A call of several belongs to the first."""
    steps = [(variable, value) for variable, value in steps_of(main) if isinstance(value, relax.Call)]
    owners = {variable: names_in(value.span)[0] for variable, value in steps}
    users = users_of_values(main)
    found = {name: OperatorWork() for _, value in steps for name in names_in(value.span)}
    read: set[tuple[str, Any]] = set()
    for variable, value in steps:
        name = owners[variable]
        found[name].macs += _macs(value)
        operands = [operand for operand in operands_in(value) if dtype_of(operand)]
        others = (owners[operand] for operand in operands if owners.get(operand, name) != name)
        found[name].reads = tuple(dict.fromkeys((*found[name].reads, *others)))
        for operand in operands:
            if owners.get(operand) != name and (name, operand) not in read:
                read.add((name, operand))
                found[name].nbytes += _nbytes(operand)
        readers = [owners.get(user) for user in users.get(variable, ())]
        if not readers or any(reader != name for reader in readers):
            found[name].nbytes += _nbytes(variable)
    return found


def _macs(call: Any) -> int:
    """The multiply-accumulates of a call: those of convolutions and matrix products; 0 for other operators."""
    name = name_of(call)
    if name == "nn.conv2d":
        channels = extents_of(call)[str(call.attrs.out_layout or call.attrs.data_layout).index("C")]
        return prod(extents_of(call)) * prod(extents_of(call.args[1])) // max(channels, 1)
    return prod(extents_of(call)) * extents_of(call.args[0])[-1] if name == "matmul" else 0


def _nbytes(expr: Any) -> int:
    """The bytes of a tensor, or of several; of a constant only if it has dimensions."""
    of = type_of(expr)
    if isinstance(of, relax.TupleType):
        return sum(_nbytes(relax.Var("part", field)) for field in of.fields)
    if isinstance(expr, Literal) and not extents_of(expr):
        return 0
    dtype = dtype_of(expr)
    return prod(extents_of(expr)) * (1 if dtype == "bool" else np.dtype(dtype).itemsize)
