"""A-normal form and calls of functions become one dataflow graph of operators.

    let %y = nn.relu(%x);
    let %z = add(%y, %y);            add(nn.relu(%x), nn.relu(%x)), with one nn.relu
    %z

A function that is called is put in the place of the call: one of the module, one bound by `let`, and a composite.
What is no dataflow stays as it is, for the checks to refuse: recursion, branches, references, functions as values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import tvm
from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.compose import called_with

MOST_CALLS = 10_000
"""Calls of functions that are replaced: where each function calls another twice, every one doubles them."""

_DEEPEST = 50
"""Functions that call one another in a chain."""


def in_normal_form(mod: tvm.IRModule) -> relay.Function:
    """`main` as one dataflow graph; the same function if it is one, or none can be made of it."""
    main = mod["main"]
    if not _needs_it(main):
        return main
    body = _Inlined(mod).value(main.body, _Scope(None), 0)
    return relay.Function(main.params, body, main.ret_type, main.type_params, main.attrs, main.span)


def _needs_it(main: relay.Function) -> bool:
    """Whether there is anything to replace. A loop, not TVM's visitors: those recurse."""
    seen: set[relay.Expr] = set()
    left = [main.body]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, relay.Let) or (isinstance(node, relay.Call) and not isinstance(node.op, tvm.ir.Op)):
            return True
        left += _operands(node)
    return False


def _operands(node: relay.Expr) -> Sequence[relay.Expr]:
    if isinstance(node, relay.Call):
        return list(node.args)
    if isinstance(node, relay.Tuple):
        return list(node.fields)
    return [node.tuple_value] if isinstance(node, relay.TupleGetItem) else []


class _Scope:
    """What the expressions of a function became; variables may be of the function around it."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.new: dict[relay.Expr, relay.Expr] = {}

    def variable(self, name: relay.Var) -> relay.Expr:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.new:
                return scope.new[name]
            scope = scope.outer
        return name


class _Inlined:
    def __init__(self, mod: tvm.IRModule) -> None:
        self._functions: Mapping[relay.GlobalVar, relay.Function] = {
            variable: function
            for variable, function in mod.functions.items()
            if isinstance(function, relay.Function) and not (function.attrs and "Compiler" in function.attrs)
        }
        self._scopes: dict[relay.Function, _Scope] = {}
        self._open: list[relay.Function] = []
        self._calls = 0

    def value(self, expr: relay.Expr, scope: _Scope, depth: int) -> relay.Expr:
        """An expression without `let` and calls of functions. A loop: programs are chains of thousands of lets."""
        left = [expr]
        while left:
            node = left[-1]
            missing = [one for one in self._before(node, scope) if one not in scope.new]
            if missing:
                left.append(missing[0])
                continue
            left.pop()
            if node not in scope.new:
                scope.new[node] = self._rebuilt(node, scope, depth)
        return scope.new[expr]

    def _before(self, node: relay.Expr, scope: _Scope) -> Iterator[relay.Expr]:
        """What has to be there before a node: of a `let` the value, then the body."""
        if not isinstance(node, relay.Let):
            yield from _operands(node)
            return
        yield node.value
        if node.value in scope.new:
            scope.new[node.var] = scope.new[node.value]
            yield node.body

    def _rebuilt(self, node: relay.Expr, scope: _Scope, depth: int) -> relay.Expr:
        if isinstance(node, relay.Let):
            return scope.new[node.body]
        if isinstance(node, relay.Var):
            return scope.variable(node)
        if isinstance(node, relay.Function):  # another one each time that the function around it is called
            closure = relay.Function(node.params, node.body, node.ret_type, node.type_params, node.attrs, node.span)
            self._scopes[closure] = scope
            return closure
        if isinstance(node, relay.Call):
            return self._called(node, [scope.new[argument] for argument in node.args], scope, depth)
        if isinstance(node, relay.Tuple):
            return relay.Tuple([scope.new[field] for field in node.fields], node.span)
        if isinstance(node, relay.TupleGetItem):
            return relay.TupleGetItem(scope.new[node.tuple_value], node.index, node.span)
        return node

    def _called(self, call: relay.Call, arguments: list[relay.Expr], scope: _Scope, depth: int) -> relay.Expr:
        callee = scope.variable(call.op) if isinstance(call.op, relay.Var) else call.op
        function = self._functions.get(callee) if isinstance(callee, relay.GlobalVar) else callee
        if not isinstance(function, relay.Function) or len(function.params) != len(arguments):
            return called_with(call, arguments)
        if function in self._open or depth >= _DEEPEST:
            return called_with(call, arguments)
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise Unsupported(f"functions are called at most {MOST_CALLS} times: got more")
        outer = None if isinstance(callee, relay.GlobalVar) else self._scopes.get(function, scope)
        inner = _Scope(outer)
        inner.new.update(zip(function.params, arguments, strict=True))
        self._open.append(function)
        try:
            return self.value(function.body, inner, depth + 1)
        finally:
            self._open.pop()
