"""A matcher that records which call of the model each operator of a pattern matched.

TVM's matcher only says yes or no. This one gives parsers the matched calls by operator name, and
explains near misses: what differed from the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as dfp

from byoc_hw.errors import PatternError
from byoc_hw.frontend.relay.sources import operator_name, source_names
from byoc_hw.pattern import Form


@dataclass
class Match:
    """A matched expression: `calls` from the innermost to the outermost, `inputs` what the wildcards matched."""

    root: relay.Expr
    calls: list[relay.Call] = field(default_factory=list)
    inputs: list[relay.Expr] = field(default_factory=list)

    def __getitem__(self, operator: str) -> relay.Call:
        """The matched call of an operator; `KeyError` if the form has none."""
        call = self.get(operator)
        if call is None:
            raise KeyError(operator)
        return call

    def get(self, operator: str) -> relay.Call | None:
        """The matched call of an operator, or None for an optional one that is absent."""
        for call in self.calls:
            if operator_name(call) == operator:
                return call
        return None

    @property
    def sources(self) -> tuple[str, ...]:
        """Source operators of the matched calls, each once."""
        return tuple(dict.fromkeys(name for call in self.calls for name in source_names(call.span)))


def match(pattern: dfp.DFPattern, expr: relay.Expr) -> Match | None:
    """Match `expr` against a pattern, or None."""
    found = Match(expr)
    return found if _matches(pattern, expr, found) else None


def _matches(pattern: dfp.DFPattern, expr: relay.Expr, found: Match) -> bool:
    if isinstance(pattern, dfp.AltPattern):
        return _either(pattern, expr, found)
    if isinstance(pattern, dfp.CallPattern):
        return _matches_call(pattern, expr, found)
    if isinstance(pattern, dfp.ConstantPattern):
        return isinstance(expr, relay.Constant)
    if isinstance(pattern, dfp.WildcardPattern):
        found.inputs.append(expr)
        return True
    if isinstance(pattern, dfp.AttrPattern):
        return _has_attributes(pattern, expr) and _matches(pattern.pattern, expr, found)
    if isinstance(pattern, dfp.DataTypePattern):
        return _dtype(expr) == pattern.dtype and _matches(pattern.pattern, expr, found)
    if isinstance(pattern, dfp.ExprPattern):
        return bool(pattern.match(expr))
    if isinstance(pattern, dfp.TuplePattern):
        return _matches_tuple(pattern, expr, found)
    if isinstance(pattern, dfp.TupleGetItemPattern):
        taken = isinstance(expr, relay.TupleGetItem) and pattern.index in (-1, expr.index)
        return taken and _matches(pattern.tuple, expr.tuple_value, found)
    raise PatternError(
        "a form is built from is_op, wildcard, is_constant, is_tuple, is_tuple_get_item, has_attr, has_dtype, optional "
        f"and |: got {type(pattern).__name__}"
    )


def _either(pattern: dfp.AltPattern, expr: relay.Expr, found: Match) -> bool:
    calls, inputs = list(found.calls), list(found.inputs)
    if _matches(pattern.left, expr, found):
        return True
    found.calls[:], found.inputs[:] = calls, inputs  # discard what the left alternative matched
    return _matches(pattern.right, expr, found)


def _matches_call(pattern: dfp.CallPattern, expr: relay.Expr, found: Match) -> bool:
    if not isinstance(expr, relay.Call):
        return False
    operator, wanted = expr.op, pattern.args  # each look at a field is a call of TVM
    if not _matches(pattern.op, operator, Match(operator)):
        return False
    if wanted is not None:
        arguments = expr.args
        if len(wanted) != len(arguments):
            return False
        if not all(_matches(sub, argument, found) for sub, argument in zip(wanted, arguments, strict=True)):
            return False
    found.calls.append(expr)
    return True


def _matches_tuple(pattern: dfp.TuplePattern, expr: relay.Expr, found: Match) -> bool:
    """A tuple of the pattern's fields; without any, a tuple of any number, each an input."""
    if not isinstance(expr, relay.Tuple):
        return False
    if pattern.fields is None:
        found.inputs.extend(expr.fields)
        return True
    return len(pattern.fields) == len(expr.fields) and all(
        _matches(sub, field, found) for sub, field in zip(pattern.fields, expr.fields, strict=True)
    )


def _has_attributes(pattern: dfp.AttrPattern, expr: relay.Expr) -> bool:
    # Operator attributes live on a call's `attrs`; read them as Python values to compare.
    if not isinstance(expr, relay.Call) or expr.attrs is None:
        return False
    keys = set(expr.attrs.keys())
    return all(name in keys and _plain(expr.attrs[name]) == _plain(value) for name, value in pattern.attrs.items())


def _plain(value: object) -> object:
    if isinstance(value, (tvm.tir.IntImm, tvm.tir.FloatImm)):
        return value.value
    if isinstance(value, tvm.ir.Array):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, tvm.runtime.String) else value


def _dtype(expr: relay.Expr) -> str | None:
    return getattr(expr.checked_type, "dtype", None)


# ---------------------------------------------------------------- structure of a pattern


def call_patterns(pattern: dfp.DFPattern) -> Iterator[dfp.CallPattern]:
    """Every call of a pattern, optional ones too, the outermost first."""
    if isinstance(pattern, dfp.CallPattern):
        yield pattern
    for part in _parts(pattern):
        yield from call_patterns(part)


def _parts(pattern: dfp.DFPattern) -> Iterable[dfp.DFPattern]:
    if isinstance(pattern, dfp.AltPattern):
        return (pattern.left, pattern.right)
    if isinstance(pattern, dfp.CallPattern):
        return tuple(pattern.args or ())
    if isinstance(pattern, dfp.TuplePattern):
        return tuple(pattern.fields or ())
    if isinstance(pattern, dfp.TupleGetItemPattern):
        return (pattern.tuple,)
    if isinstance(pattern, (dfp.AttrPattern, dfp.DataTypePattern)):
        return (pattern.pattern,)
    return ()


def outer_calls(pattern: dfp.DFPattern) -> tuple[dfp.CallPattern, ...]:
    """The calls that can be the root of what a pattern matches."""
    if isinstance(pattern, dfp.CallPattern):
        return (pattern,)
    if isinstance(pattern, dfp.AltPattern):
        return (*outer_calls(pattern.left), *outer_calls(pattern.right))
    if isinstance(pattern, (dfp.AttrPattern, dfp.DataTypePattern)):
        return outer_calls(pattern.pattern)
    return outer_calls(pattern.tuple) if isinstance(pattern, dfp.TupleGetItemPattern) else ()


def required_operators(pattern: dfp.DFPattern) -> frozenset[str]:
    """The operators without which a pattern cannot match: those in every alternative."""
    if isinstance(pattern, dfp.AltPattern):
        return required_operators(pattern.left) & required_operators(pattern.right)
    required = frozenset[str]().union(*map(required_operators, _parts(pattern)))
    return required | {pattern_operator(pattern)} if isinstance(pattern, dfp.CallPattern) else required


def anchor_of(form: Form) -> str:
    """The anchor operator of a form: the one that it names, or its innermost."""
    return form.anchor or [pattern_operator(call) for call in call_patterns(form.pattern)][-1]


def pattern_operator(pattern: dfp.CallPattern) -> str:
    """The name of the operator that a call pattern matches."""
    op = pattern.op
    known = isinstance(op, dfp.ExprPattern) and isinstance(op.expr, tvm.ir.Op)
    return str(op.expr.name) if known else "an operator"


# ---------------------------------------------------------------- near misses


def near_miss(form: Form, call: relay.Call, users: Mapping[relay.Expr, list[relay.Expr]]) -> str:
    """How far a form matches around `call`, a call of its anchor, and where the match fails.

    "" if the form matches: then a limit declined it.
    """
    pattern, anchor = form.pattern, anchor_of(form)
    spine = [sub for sub in call_patterns(pattern) if pattern_operator(sub) == anchor]
    for sub in spine:
        asked = _as_asked(pattern, sub)
        found = match(asked, call)
        if found is None:
            return f"{anchor}: {_difference(asked, call)}"
        for inner in found.calls[:-1]:  # the last one is `call` itself
            if len(users.get(inner, ())) > 1:
                return f"matched to {anchor}; the result of {operator_name(inner)} is used elsewhere too"
        return _climb(pattern, sub, call, users)
    return f"the pattern has no {anchor}"


def _climb(
    pattern: dfp.DFPattern, at: dfp.CallPattern, call: relay.Call, users: Mapping[relay.Expr, list[relay.Expr]]
) -> str:
    tops = outer_calls(pattern)
    while True:
        parents = [sub for sub in call_patterns(pattern) if any(at.same_as(arg) for arg in _operands(sub))]
        above = [user for user in users.get(call, []) if isinstance(user, relay.Call)]
        step = next(
            ((sub, user) for sub in parents for user in above if match(_as_asked(pattern, sub), user) is not None), None
        )
        if step is None:
            break
        if len(users[call]) > 1:
            return f"matched to {operator_name(step[1])}; the result of {operator_name(call)} is used elsewhere too"
        at, call = step
    if any(at.same_as(top) for top in tops):
        return ""
    return f"matched to {operator_name(call)}; {_obstacle([_as_asked(pattern, sub) for sub in parents], above)}"


def _operands(pattern: dfp.CallPattern) -> Iterator[dfp.CallPattern]:
    for argument in pattern.args or ():
        yield from outer_calls(argument)


def _as_asked(pattern: dfp.DFPattern, sub: dfp.CallPattern) -> dfp.DFPattern:
    """The call pattern `sub` together with the attribute and type patterns that `pattern` puts around it."""
    if isinstance(pattern, (dfp.AttrPattern, dfp.DataTypePattern)) and any(map(sub.same_as, outer_calls(pattern))):
        return pattern
    for part in _parts(pattern):
        asked = _as_asked(part, sub)
        if not asked.same_as(sub):
            return asked
    return sub


def _obstacle(parents: list[dfp.DFPattern], above: list[relay.Call]) -> str:
    for asked in parents:
        for user in above:
            if operator_name(user) in map(pattern_operator, outer_calls(asked)):
                return f"{operator_name(user)}: {_difference(asked, user)}"
    expected = " or ".join(dict.fromkeys(pattern_operator(sub) for asked in parents for sub in outer_calls(asked)))
    found = ", ".join(dict.fromkeys(operator_name(user) for user in above)) or "the model's output"
    return f"expected {expected}, found {found}"


def _difference(pattern: dfp.DFPattern, call: relay.Call) -> str:
    """The first argument of `call`, or else the first attribute, that does not match its pattern."""
    if isinstance(pattern, dfp.AttrPattern) and match(pattern.pattern, call) is not None:
        for name, value in pattern.attrs.items():
            found = _plain(call.attrs[name]) if call.attrs and name in call.attrs.keys() else "not there"  # noqa: SIM118
            if found != _plain(value):
                return f"{name} is {found}, not {_plain(value)}"
    if isinstance(pattern, dfp.DataTypePattern) and match(pattern.pattern, call) is not None:
        return f"the result is {_dtype(call)}, not {pattern.dtype}"
    if isinstance(pattern, (dfp.AttrPattern, dfp.DataTypePattern)):
        return _difference(pattern.pattern, call)
    if not isinstance(pattern, dfp.CallPattern):
        return "it differs from the pattern"
    names = [str(info.name) for info in call.op.arguments] if isinstance(call.op, tvm.ir.Op) else []
    if pattern.args is not None and len(pattern.args) != len(call.args):
        return f"has {len(call.args)} arguments, not {len(pattern.args)}"
    for index, (sub, argument) in enumerate(zip(pattern.args or (), call.args, strict=True)):
        if _matches(sub, argument, Match(argument)):
            continue
        name = names[index] if index < len(names) else f"argument {index}"
        return f"{name} is {_describe(argument)}, not {_wanted(sub)}"
    return "its attributes differ"


def _describe(expr: relay.Expr) -> str:
    if isinstance(expr, relay.Call):
        return f"the result of {operator_name(expr)}"
    if isinstance(expr, relay.Var):
        return f"the input {expr.name_hint}"
    return "a constant" if isinstance(expr, relay.Constant) else "a tuple"


def _wanted(pattern: dfp.DFPattern) -> str:
    if isinstance(pattern, dfp.ConstantPattern):
        return "a constant"
    operators = dict.fromkeys(pattern_operator(sub) for sub in outer_calls(pattern))
    return f"the result of {' or '.join(operators)}" if operators else "as the pattern asks"


def users_of(function: relay.Function) -> dict[relay.Expr, list[relay.Expr]]:
    """For each expression of a function, the calls and tuples that read it."""
    users: dict[relay.Expr, list[relay.Expr]] = {}

    def visit(node: relay.Expr) -> None:
        for operand in _read_by(node):
            users.setdefault(operand, []).append(node)

    relay.analysis.post_order_visit(function, visit)
    return users


def _read_by(node: relay.Expr) -> Any:
    if isinstance(node, relay.Call):
        return node.args
    if isinstance(node, relay.Tuple):
        return node.fields
    if isinstance(node, relay.TupleGetItem):
        return (node.tuple_value,)
    return (node.body,) if isinstance(node, relay.Function) else ()
