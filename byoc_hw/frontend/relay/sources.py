"""Source operators: the names from the model file, kept in Relay spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls


@dataclass(frozen=True)
class SourceOperator:
    """One operator of the model file and the Relay operators that it was imported as, in order."""

    name: str
    relay: tuple[str, ...]


_SEPARATOR = "\N{SYMBOL FOR UNIT SEPARATOR}"
"""Between the names of one span."""


def source_names(span: object) -> tuple[str, ...]:
    """The source operators that a span names, each once."""
    if span is None:
        return ()
    if isinstance(span, tvm.ir.SequentialSpan):  # where passes merged several
        return tuple(dict.fromkeys(name for part in span.spans for name in source_names(part)))
    return tuple(dict.fromkeys(str(span.source_name.name).split(_SEPARATOR)))  # type: ignore[attr-defined]


def span_of_all(spans: Iterable[object]) -> tvm.ir.Span | None:
    """One span with the names of several. TVM has its SequentialSpan for this, which its printer crashes on."""
    names = dict.fromkeys(name for span in spans for name in source_names(span))
    return span_of(_SEPARATOR.join(names)) if names else None


def operator_name(call: relay.Call) -> str:
    """The name of a call's operator; for other callees the region's symbol, or `function`."""
    operator = call.op  # each look at it is a call of TVM
    if isinstance(operator, tvm.ir.Op):
        return str(operator.name)
    if isinstance(operator, relay.GlobalVar):
        return str(operator.name_hint)
    return "function"


def operands_of(call: relay.Call) -> list[relay.Expr]:
    """The operands of a call, with those in its tuples."""
    fields = (argument.fields if isinstance(argument, relay.Tuple) else [argument] for argument in call.args)
    return [field for several in fields for field in several]


def described(call: relay.Call) -> str:
    """A call in messages: its operator, and the names that the model has for it."""
    names = source_names(call.span)
    return f"{operator_name(call)} ({', '.join(names)})" if names else operator_name(call)


def span_of(name: str) -> tvm.ir.Span:
    """The span of a source operator."""
    return tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)


def with_span(call: relay.Call, span: object) -> relay.Call:
    """The call with the source names of a span."""
    return relay.Call(call.op, call.args, call.attrs, call.type_args, span)


def with_source_names(function: relay.Function) -> relay.Function:
    """The function with a source name for every operator without a span. Models built by hand have no spans."""
    count: Counter[str] = Counter()

    def named(call: relay.Call, arguments: list[relay.Expr]) -> relay.Call:
        if source_names(call.span):
            return called_with(call, arguments)
        name = operator_name(call)
        count[name] += 1
        return relay.Call(call.op, arguments, call.attrs, call.type_args, span_of(f"{name}_{count[name]}"))

    return rebuild_calls(function, named)


def calls_in_order(expr: relay.Expr) -> list[relay.Call]:
    """Every call below `expr`, operands first."""
    calls: list[relay.Call] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            calls.append(node)

    relay.analysis.post_order_visit(expr, visit)
    return calls


def operator_names(function: relay.Function) -> set[str]:
    """The operators that a function calls."""
    return {operator_name(call) for call in calls_in_order(function)}


def calls_outside_composites(function: relay.Function) -> list[relay.Call]:
    """The calls of a function in order, without those inside composites."""
    inside: set[relay.Expr] = set()
    calls = calls_in_order(function.body)
    for call in calls:
        if isinstance(call.op, relay.Function):
            inside.update(calls_in_order(call.op.body))
    return [call for call in calls if call not in inside]


def source_operators(function: relay.Function) -> list[SourceOperator]:
    """The source operators of a model, in the order in which they are first computed."""
    operators: dict[str, list[str]] = {}
    for call in calls_in_order(function):
        for name in source_names(call.span):
            operators.setdefault(name, []).append(operator_name(call))
    return [SourceOperator(name, tuple(ops)) for name, ops in operators.items()]
