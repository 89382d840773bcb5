"""A composite for each of its calls, with the names of the operators that the call is of.

TVM has one function for matches that are equal, as two additions with the same scales, and names of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    operands_in,
    returned_by,
    steps_of,
    unaliased,
    with_steps,
)
from byoc_hw.frontend.relax.regions import composites_in
from byoc_hw.frontend.relax.versions import is_call

_NUMBER = "byoc_hw_call"
"""The attribute that makes composites different: passes of TVM would put equal ones together again."""


def with_own_composites(fused: tvm.IRModule, before: tvm.IRModule) -> tvm.IRModule:
    """The module with an own function for each call of a composite that is new since `before`, and the names there."""
    known = {variable.name_hint for variable in composites_in(before)}
    made = {variable: one for variable, one in composites_in(fused).items() if variable.name_hint not in known}
    spans = _Spans(fused["main"], before["main"], made).found
    functions = {variable: one for variable, one in fused.functions.items() if variable not in made}
    steps: list[Assignment] = []
    for variable, value in steps_of(fused["main"]):
        if is_call(value) and value.op in made:
            number = str(len(functions))
            own = relax.GlobalVar(f"{value.op.name_hint}_{number}")
            relax.expr._update_type(own, value.op.ty)
            functions[own] = _named(made[value.op], spans[variable]).with_attr(_NUMBER, number)
            value = call_on(value, value.args, value.ty, op=own)
        steps.append((variable, value))
    functions[fused.get_global_var("main")] = with_steps(fused["main"], steps)
    return tvm.IRModule(functions, attrs=fused.attrs)


def _named(composite: Any, spans: Mapping[Any, Any]) -> Any:
    """A composite with the spans of its calls, by their variables."""
    steps = [
        (variable, call_on(value, value.args, value.ty, spans.get(variable)) if is_call(value) else value)
        for variable, value in steps_of(composite)
    ]
    return with_steps(composite, steps)


class _Spans:
    """The spans of the calls inside each call of a composite: both forms of main are read from their results on."""

    def __init__(self, fused: Any, before: Any, made: Mapping[Any, Any]) -> None:
        self.found: dict[Any, dict[Any, Any]] = {}
        self._fused, self._before = dict(steps_of(fused)), dict(steps_of(before))
        self._made = made
        self._waiting = list(zip(_results(fused, self._fused), _results(before, self._before), strict=True))
        seen: set[Any] = set()
        while self._waiting:
            one, other = self._waiting.pop()
            one, other = unaliased(one, self._fused), unaliased(other, self._before)
            if one in self._fused and one not in seen:
                seen.add(one)
                self._pair(one, other)

    def _pair(self, variable: Any, other: Any) -> None:
        value = self._fused[variable]
        if is_call(value) and value.op in self._made:
            self.found[variable] = self._inside(self._made[value.op], value, other)
        else:
            self._waiting += zip(operands_in(value), operands_in(self._before[other]), strict=True)

    def _inside(self, composite: Any, call: Any, other: Any) -> dict[Any, Any]:
        """The spans of the calls in a composite. Its operands wait."""
        values, given = dict(steps_of(composite)), dict(zip(composite.params, call.args, strict=True))
        spans: dict[Any, Any] = {}
        waiting = [(composite.body.body, other)]
        while waiting:
            one, plain = waiting.pop()
            plain = unaliased(plain, self._before)
            if one in given:
                self._waiting.append((given[one], plain))
            elif one in values and one not in spans:
                spans[one] = self._before[plain].span
                waiting += zip(operands_in(values[one]), operands_in(self._before[plain]), strict=True)
        return spans


def _results(main: Any, values: Mapping[Any, Any]) -> list[Any]:
    result = values.get(main.body.body)
    return returned_by(result if isinstance(result, relax.Tuple) else main.body.body)
