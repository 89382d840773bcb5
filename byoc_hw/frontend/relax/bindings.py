"""The calls of a Relax function in order, the operators of the model file that they are of, and rewriting of both.

The names of the operators are in spans of the calls, as in the Relay front end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relax.versions import Literal, array_of, is_call, name_of
from byoc_hw.tensor import Array

Assignment = tuple[Any, Any]
"""A variable, and the expression that it is bound to."""

_SEPARATOR = "\N{SYMBOL FOR UNIT SEPARATOR}"


@dataclass(frozen=True)
class FileSource:
    """One operator of the model file and the Relax operators that it was imported as, in order."""

    name: str
    operators: tuple[str, ...]


def steps_of(function: Any) -> list[Assignment]:
    """The bindings of a function without control flow, in order."""
    steps = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
                raise Unsupported(f"a function is a list of calls: got {type(binding.value).__name__}")
            steps.append((binding.var, binding.value))
    return steps


def with_steps(function: Any, steps: Sequence[Assignment], result: Any = None) -> Any:
    """The function with these bindings, in one dataflow block, and perhaps another result."""
    result = function.body.body if result is None else result
    outputs = set(returned_by(result))
    bindings = []
    renamed: dict[Any, Any] = {}
    for variable, value in steps:
        value = with_operands(value, renamed)
        if isinstance(variable, relax.DataflowVar) and variable in outputs:
            outer = relax.Var(variable.name, variable.ty)
            renamed[variable] = outer
            variable = outer
        bindings.append(relax.VarBinding(variable, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], with_operands(result, renamed))
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span)


def without_unused(steps: Iterable[Assignment], results: Iterable[Any]) -> list[Assignment]:
    """The bindings that some results depend on, in their order."""
    steps = list(steps)
    needed = {variable for result in results for variable in operands_in(result)}
    kept = []
    for variable, value in reversed(steps):
        if variable in needed:
            kept.append((variable, value))
            needed.update(operands_in(value))
    return kept[::-1]


def returned_by(result: Any) -> list[Any]:
    """The values that a function returns, out of its tuple."""
    return list(result.fields) if isinstance(result, relax.Tuple) else [result]


def unaliased(variable: Any, values: Mapping[Any, Any]) -> Any:
    """What a variable is another name for."""
    while isinstance(variable, relax.Var) and isinstance(values.get(variable), relax.Var):
        variable = values[variable]
    return variable


def with_operands(value: Any, by: dict[Any, Any]) -> Any:
    """An expression whose operands are variables and constants, with some of them replaced."""
    if isinstance(value, relax.Var | Literal):
        return by.get(value, value)
    if isinstance(value, relax.Tuple):
        fields = [with_operands(field, by) for field in value.fields]
        return relax.Tuple(fields, value.span) if _differ(fields, value.fields) else value
    if isinstance(value, relax.TupleGetItem):
        inner = with_operands(value.tuple_value, by)
        return value if inner is value.tuple_value else relax.TupleGetItem(inner, value.index)
    if isinstance(value, relax.Call):
        operands = [with_operands(argument, by) for argument in value.args]
        if _differ(operands, value.args):
            return call_on(value, operands, value.ty)
    return value


def _differ(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return any(not one.same_as(other) for one, other in zip(new, old, strict=True))


def users_of_values(function: Any) -> dict[Any, list[Any]]:
    """The variables whose values read each variable of a function; the function itself for its results."""
    users: dict[Any, list[Any]] = {}
    for variable, value in steps_of(function):
        for operand in operands_in(value):
            users.setdefault(operand, []).append(variable)
    for result in returned_by(function.body.body):
        users.setdefault(result, []).append(function)
    return users


def operands_in(value: Any) -> Iterator[Any]:
    """The variables and constants that an expression reads, also in tuples."""
    if isinstance(value, relax.Call):
        for argument in value.args:
            yield from operands_in(argument)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from operands_in(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from operands_in(value.tuple_value)
    else:
        yield value


def folded(call: Any) -> Array:
    """What TVM computes of a call of constants."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    passes = [relax.transform.LegalizeOps(), relax.transform.FoldConstant()]
    folded_main = tvm.transform.Sequential(passes)(tvm.IRModule({"main": builder.get()["main"]}))["main"]
    return array_of(folded_main.body.body)


# ---------------------------------------------------------------- names


def names_in(span: Any) -> tuple[str, ...]:
    """The operators of the model file that a span names, each once."""
    if span is None:
        return ()
    if isinstance(span, tvm.ir.SequentialSpan):  # where passes merged several
        return tuple(dict.fromkeys(name for part in span.spans for name in names_in(part)))
    return tuple(dict.fromkeys(str(span.source_name.name).split(_SEPARATOR)))


def named_call(call: Any, *names: str) -> Any:
    """The call with the names of operators of the model file."""
    span = tvm.ir.Span(tvm.ir.SourceName(_SEPARATOR.join(names)), 0, 0, 0, 0)
    return relax.Call(call.op, call.args, call.attrs, call.ty_args, span)


def call_on(call: Any, operands: Iterable[Any], of: Any, span: Any = None, *, op: Any = None) -> Any:
    """The call on other operands, with the type of its result; perhaps with another span, or of another function."""
    made = relax.Call(op or call.op, list(operands), call.attrs, call.ty_args, span or call.span)
    if isinstance(of, relax.TensorType | relax.TupleType):
        relax.expr._update_type(made, of)
    return made


def with_names(function: Any, name_for: Callable[[Any], str | None] = lambda variable: None) -> Any:
    """The function with a name for every call: that of `name_for` its variable, its own, or one by its operator."""
    count: Counter[str] = Counter()
    steps = []
    for variable, value in steps_of(function):
        name = name_for(variable)
        if isinstance(value, relax.Call) and (name is not None or not names_in(value.span)):
            operator = name_of(value)
            if name is None:
                count[operator] += 1
                name = f"{operator}_{count[operator]}"
            value = typed_as(named_call(value, name), value.ty)
        steps.append((variable, value))
    return with_steps(function, steps)


def typed_as(call: Any, of: Any) -> Any:
    """The call again, with a type."""
    return call_on(call, call.args, of)


def file_sources(function: Any) -> list[FileSource]:
    """The operators of the model file, in the order in which they are done: one may begin long before, with the
    dequantize of its first operand."""
    operators: dict[str, list[str]] = {}
    for _, value in steps_of(function):
        if isinstance(value, relax.Call):
            for name in names_in(value.span):
                operators[name] = [*operators.pop(name, []), name_of(value)]
    return [FileSource(name, tuple(each)) for name, each in operators.items()]


# ---------------------------------------------------------------- forms of a module


def each_its_own_dequantize(function: Any) -> Any:
    """The function with a dequantize for each of its readers, so that each reader can be one layer with its own."""
    values = dict(steps_of(function))
    users = users_of_values(function)
    shared = {
        variable
        for variable, value in values.items()
        if is_call(value, "dequantize") and len(users.get(variable, ())) > 1
    }
    taken: set[Any] = set()
    steps: list[Assignment] = []
    for variable, value in steps_of(function):
        copies = {}
        for operand in dict.fromkeys(operands_in(value)):
            if isinstance(operand, relax.Var) and operand in shared:
                if operand in taken:
                    copies[operand] = relax.DataflowVar(f"{operand.name}_again", operand.ty)
                    steps.append((copies[operand], values[operand]))
                taken.add(operand)
        steps.append((variable, with_operands(value, copies)))
    return with_steps(function, steps)


def in_order_of_use(values: dict[Any, Any], results: Iterable[Any]) -> list[Any]:
    """The variables that some results depend on: operands first, in the order of the arguments, each once."""
    ordered: dict[Any, None] = {}
    stack = [(variable, False) for variable in reversed(list(results))]
    while stack:
        variable, ready = stack.pop()
        if variable in ordered or variable not in values:
            continue
        if ready:
            ordered[variable] = None
            continue
        stack.append((variable, True))
        stack.extend((operand, False) for operand in reversed(list(operands_in(values[variable]))))
    return list(ordered)
