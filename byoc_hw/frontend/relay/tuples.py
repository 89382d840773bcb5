"""Host operators of tuples, as functions of tensors while regions are formed.

TVM's MergeCompilerRegions looks for the region that an operand comes from at the call that gives it, and not through
tuples. It takes an operator of a tuple for independent of the regions in front of it, puts two of them in one region
with the operator between them, and PartitionGraph then recurses without end. So each result of such an operator is a
call of its own, without tuples:

    %0 = split(%x)                       %0 = fn (%x, byoc_hw_tuple="0") { split(%x).0 }(%x)
    nn.relu(%0.0)                        nn.relu(%0)

    %0 = concatenate((%x, %y))           %0 = fn (%x, %y, byoc_hw_tuple="1") { concatenate((%x, %y)) }(%x, %y)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main, rebuild_calls

_NUMBER = "byoc_hw_tuple"
"""The attribute of such a function: the number of its operator."""

_HOST = "host.tuple"
"""The composite that it is for TVM, which then looks at its calls alone: of no accelerator's name."""


class HostTuples:
    """The operators of tuples of one partitioning."""

    def __init__(self) -> None:
        self._calls: list[relay.Call] = []
        self._result_is_whole = False
        """Whether the module gives the tuple of an operator as it is."""

    def hide(self) -> tvm.transform.Pass:
        """A pass that writes calls outside composites as functions of tensors."""

        def hidden(main: relay.Function) -> relay.Function:
            self._result_is_whole = isinstance(main.body, relay.Call) and _is_tuple(main.body)
            return rebuild_calls(main, self._hidden)

        return on_main(hidden, "HideTuples")

    def show(self) -> tvm.transform.Pass:
        """A pass that puts the operators in the place of these functions."""

        def shown(main: relay.Function) -> relay.Function:
            new: dict[int, relay.Call] = {}

            def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
                if not (isinstance(call.op, relay.Function) and call.op.attrs and _NUMBER in call.op.attrs):
                    return called_with(call, arguments)
                number = int(call.op.attrs[_NUMBER])
                original = self._calls[number]
                if number not in new:
                    new[number] = _called(original, iter(arguments))
                body = call.op.body
                if isinstance(body, relay.TupleGetItem):
                    return relay.TupleGetItem(new[number], body.index, original.span)
                return new[number]

            made = rebuild_calls(main, rebuild)
            first = made.body.fields[0] if self._result_is_whole and isinstance(made.body, relay.Tuple) else None
            if not isinstance(first, relay.TupleGetItem):
                return made
            return relay.Function(made.params, first.tuple_value, made.ret_type, made.type_params, made.attrs)

        return on_main(shown, "ShowTuples")

    def _hidden(self, call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        results = call.checked_type
        several = isinstance(results, tvm.ir.TupleType)
        if isinstance(call.op, relay.Function) or not (several or any(map(_is_tuple, call.args))):
            return called_with(call, arguments)
        self._calls.append(call)
        pairs = list(zip(call.args, arguments, strict=True))
        operands = [one for before, after in pairs for one in _fields(before, after)]
        if not several:
            return self._function(call, None)(*operands)
        count = len(results.fields)
        return relay.Tuple([self._function(call, index)(*operands) for index in range(count)], call.span)

    def _function(self, call: relay.Call, index: int | None) -> relay.Function:
        """The function of an operator's result, or of one of its results."""
        types = [of for operand in call.args for of in _types(operand.checked_type)]
        variables = [relay.Var(f"x{place}", of) for place, of in enumerate(types)]
        body: relay.Expr = _called(call, iter(variables))
        if index is not None:
            body = relay.TupleGetItem(body, index)
        result = _types(call.checked_type)[index or 0]
        function = relay.Function(variables, body, result)
        return function.with_attr({"Composite": _HOST, _NUMBER: str(len(self._calls) - 1)})


def _is_tuple(expr: relay.Expr) -> bool:
    return isinstance(expr.checked_type, tvm.ir.TupleType)


def _types(of: tvm.ir.Type) -> Sequence[tvm.ir.Type]:
    return list(of.fields) if isinstance(of, tvm.ir.TupleType) else [of]


def _fields(before: relay.Expr, after: relay.Expr) -> list[relay.Expr]:
    """The tensors of an operand, `before` it was rebuilt and after."""
    if not _is_tuple(before):
        return [after]
    if isinstance(after, relay.Tuple):
        return list(after.fields)
    return [relay.TupleGetItem(after, index) for index in range(len(before.checked_type.fields))]


def _called(call: relay.Call, tensors: Iterator[relay.Expr]) -> relay.Call:
    """The call with these tensors for those of its operands."""
    arguments: list[relay.Expr] = []
    for operand in call.args:
        if _is_tuple(operand):
            arguments.append(relay.Tuple([next(tensors) for _ in operand.checked_type.fields]))
        else:
            arguments.append(next(tensors))
    return relay.Call(call.op, arguments, call.attrs, call.type_args, call.span)
