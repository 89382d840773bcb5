"""The live pattern table in TVM's form: entries of (composite name, pattern, check)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as dfp
from tvm.relay.op.contrib.register import get_pattern_table, register_pattern_table

from byoc_hw.arguments import shown
from byoc_hw.errors import InvalidInput, PatternError
from byoc_hw.frontend.accelerators import by_name
from byoc_hw.frontend.connect import with_least_bits
from byoc_hw.frontend.pattern_files import forms_in_order, load_patterns
from byoc_hw.frontend.relay.match import Match, call_patterns, match, pattern_operator, required_operators
from byoc_hw.frontend.relay.read import layout_of
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import operator_names
from byoc_hw.graph import Layer
from byoc_hw.numerics import in_numerics
from byoc_hw.pattern import BrokenRule, Form, NotALayer, Pattern, Rejection, broken_rules, parsed, patterns
from byoc_hw.soc import Hardware

Entry = tuple[str, dfp.DFPattern, Callable[[relay.Expr], bool]]

Planner = Callable[[Layer, Hardware], str | None]
"""Why a layer by itself has no plan on an accelerator, or None."""


def ordered_forms() -> tuple[tuple[Pattern, Form], ...]:
    """Every form of every pattern, the more specific before the more general.

    A form with more operators is more specific. Of two patterns over the same operators, one must
    declare that it is `before` the other; raises `PatternError` if none does.
    """
    load_patterns()
    return _in_order(patterns())


@functools.lru_cache(maxsize=1)
def _in_order(table: tuple[Pattern, ...]) -> tuple[tuple[Pattern, Form], ...]:
    return forms_in_order(table, _operators)


def operators_of_forms() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    """Of each of the `ordered_forms` the operators that it requires, and all that it has."""
    load_patterns()
    return _operators_by_form(patterns())


@functools.lru_cache(maxsize=1)  # to look at a pattern of TVM takes long
def _operators_by_form(table: tuple[Pattern, ...]) -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    return tuple((required_operators(form.pattern), _operators(form)) for _, form in _in_order(table))


def _operators(form: Form) -> tuple[str, ...]:
    if not isinstance(form.pattern, dfp.DFPattern):
        raise PatternError(f"a form is a dataflow pattern of TVM: got {shown(form.pattern)}")
    return tuple(sorted(pattern_operator(call) for call in call_patterns(form.pattern)))


# ---------------------------------------------------------------- entries


def entries(session: Session, function: relay.Function | None = None) -> list[Entry]:
    """The table for one partitioning; its checks report rejections to the session's recorder.

    With a `function`, leaves out forms that cannot match in it: TVM traverses the function once per entry.
    """
    there = None if function is None else operator_names(function)
    return [
        (f"{session.accelerator.name}.{pattern.name}", form.pattern, _check(pattern, form, session))
        for (pattern, form), (required, _) in zip(ordered_forms(), operators_of_forms(), strict=True)
        if there is None or required <= there
    ]


def offloads(session: Session, ifm: relay.Expr, written: Callable[[relay.Expr], relay.Expr]) -> bool:
    """Whether a session takes what a rewriting writes of an input. Why not is reported to its recorder."""
    variable = relay.Var("ifm", ifm.checked_type)
    trial = tvm.IRModule.from_expr(relay.Function([variable], written(variable)))
    body = relay.transform.InferType()(trial)["main"].body
    return any(pattern.match(body) and check(body) for _, pattern, check in entries(session))


def _check(pattern: Pattern, form: Form, session: Session) -> Callable[[relay.Expr], bool]:
    def check(expr: relay.Expr) -> bool:
        found = match(form.pattern, expr)
        if found is None:
            return False
        layer = None
        try:
            layer = _parsed(pattern, found)
        except NotALayer as error:
            rejection: Rejection | None = Rejection(pattern.name, (error.broken,))
        else:
            if layer is None:
                return False
            layer = in_numerics(layer, session.numerics)
            rejection = _rejection(pattern, found, layer, session)
        if rejection is None:
            return True
        session.recorder.reject(found.sources, rejection, layer)
        return False

    return check


def _rejection(pattern: Pattern, found: Match, layer: Layer, session: Session) -> Rejection | None:
    for name in (pattern.name, *found.sources):
        if name in session.deny:
            return Rejection(pattern.name, near_miss=f"kept on the host by deny={name!r}")
    broken = broken_rules(pattern, layer, session.accelerator)
    if session.nchw_problem and any(layout_of(call) == "NCHW" for call in found.calls):
        rule = BrokenRule("data layout is NHWC, or can be brought to it", f"NCHW: {session.nchw_problem}")
        broken = (rule, *broken)
    if not broken:
        problem = session.why_no_plan(layer, session.accelerator)
        return Rejection(pattern.name, near_miss=problem) if problem else None
    return Rejection(pattern.name, broken)


def parse_composite(composite: str, body: relay.Expr) -> tuple[Layer, Match] | None:
    """The layer of a composite function's body and the match it was read from, or None."""
    for pattern, form in ordered_forms():
        if pattern.name != composite:
            continue
        found = match(form.pattern, body)
        layer = _parsed(pattern, found) if found is not None else None
        if found is not None and layer is not None:
            return layer, found
    return None


def _parsed(pattern: Pattern, found: Match) -> Layer | None:
    """The layer of a match, with its weights in the fewest bits that hold them."""
    layer = parsed(pattern, found)
    return None if layer is None else with_least_bits(layer)


# ---------------------------------------------------------------- TVM's registry


class LivePatternTable(Sequence[Entry]):
    """The table of one compiler, evaluated at each use: it includes patterns that are registered later."""

    def __init__(self, compiler: str, why_no_plan: Planner) -> None:
        self.compiler, self.why_no_plan = compiler, why_no_plan

    def __len__(self) -> int:
        return len(ordered_forms())

    def __getitem__(self, index: Any) -> Any:
        return self._entries()[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries())

    def _entries(self) -> list[Entry]:
        return entries(Session(by_name(self.compiler), self.why_no_plan))


def pattern_table(compiler: str = "hwlib") -> LivePatternTable:
    """The live table of a compiler, the same that TVM's `get_pattern_table(compiler)` gives.

    Entries are (composite name, dataflow pattern, check). `InvalidInput` for a compiler that no
    accelerator of this process has.
    """
    by_name(compiler)
    table = get_pattern_table(compiler)
    if not isinstance(table, LivePatternTable):
        raise InvalidInput(f"compiler {compiler!r} has a pattern table that is not byoc_hw's")
    return table


def register_table(compiler: str, why_no_plan: Planner) -> None:
    """Register the table with TVM under a compiler name."""
    if get_pattern_table(compiler) is None:
        register_pattern_table(compiler, lambda: LivePatternTable(compiler, why_no_plan))
