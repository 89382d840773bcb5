"""Operators of the host that change nothing, left out: what TVM's SimplifyExpr does of it for every network."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls
from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.sources import operator_name, with_span

_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}
"""The second operand with which an operator changes nothing. TVM takes x for x + 0 too, where x may be -0."""


def without_neutral(main: relay.Function) -> relay.Function:
    """A type-checked function without sums with 0, products with 1, clips to what a type has, and casts and reshapes of
    others or of nothing."""
    types = {parameter: parameter.checked_type for parameter in main.params}
    users, shared = users_of(main), set[relay.Expr]()

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        for before, now in zip(call.args, arguments, strict=True):
            types[now] = before.checked_type
            if len(users[before]) > 1:
                shared.add(now)
        return _simpler(called_with(call, arguments), call.checked_type, types, shared)

    return rebuild_calls(main, rebuild)


def neutral_operand(call: relay.Call) -> int | None:
    """The place of the operand with which a call changes no number of the other one, if there is one."""
    name = operator_name(call)
    for place in (0, 1) if name in ("add", "multiply") else (1,) if name in _NEUTRAL else ():
        if isinstance(call.args[place], relay.Constant):
            values = call.args[place].data.numpy()
            if values.size == 1 and values.item() == _NEUTRAL[name]:
                return place
    return None


def _simpler(
    call: relay.Call, of: tvm.ir.Type, types: dict[relay.Expr, tvm.ir.Type], shared: Collection[relay.Expr]
) -> relay.Expr:
    """A call of this type, whose arguments are of these, or what it leaves unchanged. Several read what is `shared`."""
    name = operator_name(call)
    if name in ("cast", "reshape"):
        return _of_source(call, name, of, types, shared)
    if name == "clip" and "int" in of.dtype:
        limits = np.iinfo(of.dtype)
        return call.args[0] if call.attrs.a_min <= limits.min and limits.max <= call.attrs.a_max else call
    place = neutral_operand(call)
    return call if place is None or types[call.args[1 - place]] != of else call.args[1 - place]


def _of_source(
    call: relay.Call, name: str, of: tvm.ir.Type, types: dict[relay.Expr, tvm.ir.Type], shared: Collection[relay.Expr]
) -> relay.Expr:
    """A cast or reshape of what is in front of those before it. A value that several read stays what they read where it
    takes fewer bytes so: it may be kept in memory for them."""
    value = call.args[0]
    while isinstance(value, relay.Call) and operator_name(value) == name:
        source = value.args[0]
        if name == "cast":
            before, through = types[source].dtype, types[value].dtype
            if not _keeps(source, before, through, of.dtype) or (value in shared and _bytes(through) < _bytes(before)):
                break
        value = source
    if types[value] == of:
        return value
    if value.same_as(call.args[0]) or not of.shape:
        return call
    return called_with(call, [value]) if name == "cast" else with_span(relay.reshape(value, of.shape), call.span)


def _bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def _keeps(value: relay.Expr, source: str, through: str, to: str) -> bool:
    """Whether a value of a type, cast to another one by way of a third, is that which it is without."""
    if source == "bool":
        return False
    if isinstance(value, relay.Call) and operator_name(value) == "clip" and "int" in through:
        limits = np.iinfo(through)
        within = limits.min <= value.attrs.a_min and value.attrs.a_max <= limits.max
        if within and ("int" in source or "int" in to):
            return True
    return bool(np.can_cast(np.dtype(source), np.dtype(through), "safe"))
