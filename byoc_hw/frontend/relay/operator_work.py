"""What each source operator of a model has to do: multiplications with additions, and bytes read and written."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import tvm
from tvm import relay

from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.sources import calls_in_order, operands_of, operator_name, source_names
from byoc_hw.frontend.source_operators import OperatorWork
from byoc_hw.integers import ceil_div


def operator_work(main: relay.Function) -> dict[str, OperatorWork]:
    """The work of each source operator of a typed function, by name. A call of several belongs to the first."""
    named = {call: source_names(call.span) for call in calls_in_order(main)}
    owners = {call: names[0] for call, names in named.items() if names}
    users, found = users_of(main), {name: OperatorWork() for names in named.values() for name in names}
    read: set[tuple[str, relay.Expr]] = set()
    for call, name in owners.items():
        found[name].macs += multiplications(call)
        before = [owners.get(one) for operand in operands_of(call) for one in _producers(operand)]
        others = (one for one in before if one is not None and one != name)
        found[name].reads = tuple(dict.fromkeys((*found[name].reads, *others)))
        for operand in operands_of(call):
            if owners.get(operand) != name and (name, operand) not in read:
                read.add((name, operand))
                found[name].nbytes += _nbytes(operand)
        readers = [owners.get(user) for user in _calls_that_read(call, users)]
        if not readers or any(reader != name for reader in readers):
            found[name].nbytes += _nbytes(call)
    return found


def multiplications(call: relay.Call) -> int:
    """The multiply-accumulates of a call: those of convolutions and matrix products; 0 for other operators."""
    name = operator_name(call).removeprefix("qnn.").removeprefix("nn.")
    if name in ("conv1d", "conv2d", "conv3d"):
        layout = call.attrs.out_layout or call.attrs.data_layout
        channels = _shape(call)[str(layout).index("C")]
        return prod(_shape(call)) * prod(_shape(call.args[1])) // max(channels, 1)
    if name in ("conv1d_transpose", "conv2d_transpose", "conv3d_transpose"):
        channels = _shape(call.args[0])[str(call.attrs.data_layout).index("C")]
        return prod(_shape(call.args[0])) * prod(_shape(call.args[1])) // max(channels, 1)
    if name in ("dense", "matmul", "batch_matmul"):
        summed = -2 if name != "dense" and call.attrs.transpose_a else -1
        return prod(_shape(call)) * _shape(call.args[0])[summed]
    return 0


def _shape(expr: relay.Expr) -> tuple[int, ...]:
    return _extents(expr.checked_type)


def _extents(of: tvm.ir.Type) -> tuple[int, ...]:
    """The extents of a tensor; 1 for one that is not known."""
    return tuple(int(extent) if isinstance(extent, tvm.tir.IntImm) else 1 for extent in of.shape)


def _calls_that_read(expr: relay.Expr, users: dict[relay.Expr, list[relay.Expr]]) -> Iterator[relay.Expr]:
    """The calls that read a value, also through tuples; the function itself where it returns it."""
    for user in users.get(expr, ()):
        if isinstance(user, relay.Tuple | relay.TupleGetItem):
            readers = list(_calls_that_read(user, users))
            yield from readers or [user]
        else:
            yield user


def _producers(expr: relay.Expr) -> Iterator[relay.Expr]:
    """The calls that compute a value, also through tuples."""
    if isinstance(expr, relay.TupleGetItem):
        yield from _producers(expr.tuple_value)
    elif isinstance(expr, relay.Tuple):
        for field in expr.fields:
            yield from _producers(field)
    else:
        yield expr


def _nbytes(expr: relay.Expr) -> int:
    """The bytes of a value; of a constant only if it has dimensions."""
    if isinstance(expr, relay.Constant) and not expr.data.shape:
        return 0
    types = [expr.checked_type]
    while any(isinstance(one, relay.TupleType) for one in types):
        types = [inner for one in types for inner in (one.fields if isinstance(one, relay.TupleType) else [one])]
    tensors = [one for one in types if isinstance(one, relay.TensorType)]
    return sum(prod(_extents(one)) * ceil_div(tvm.DataType(str(one.dtype)).bits, 8) for one in tensors)
