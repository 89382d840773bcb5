"""Rewriting functions call by call, and inlining composites and regions.

Uses loops over TVM's post-order visit, not recursion: a network of thousands of layers would exceed
Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import relay

from byoc_hw.errors import Unsupported

Rebuild = Callable[[relay.Call, list[relay.Expr]], relay.Expr]
"""Makes the new expression of a call, from the original call and its new arguments."""


def rebuild_calls(function: relay.Function, rebuild: Rebuild) -> relay.Function:
    """The function with each of its calls rebuilt in order, except those inside nested functions."""
    body = rebuilt_values(function, function.params, rebuild)[function.body]
    if body.same_as(function.body):
        return function
    return relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs, function.span)


def rebuilt_values(
    function: relay.Function, arguments: Sequence[relay.Expr], rebuild: Rebuild
) -> dict[relay.Expr, relay.Expr]:
    """Every expression of a function's body, rebuilt with these arguments for its parameters."""
    new: dict[relay.Expr, relay.Expr] = dict(zip(function.params, arguments, strict=True))
    unchanged = _same(list(arguments), function.params)

    def visit(node: relay.Expr) -> None:
        nonlocal unchanged
        if node not in new:
            new[node] = _rebuilt(node, new, rebuild, unchanged)
            unchanged = unchanged and new[node] is node

    relay.analysis.post_order_visit(function.body, visit)
    return new


class _OwnArguments(list[relay.Expr]):
    """The arguments of a call as they were: most passes change few calls, and comparing takes most of their time."""

    def __init__(self, call: relay.Call) -> None:
        super().__init__(call.args)
        self.call = call


def _rebuilt(node: relay.Expr, new: dict[relay.Expr, relay.Expr], rebuild: Rebuild, unchanged: bool) -> relay.Expr:
    """The new form of an expression whose parts are in `new`; `unchanged` if they all are as they were."""
    if unchanged and not isinstance(node, relay.Call | relay.TupleGetItem):
        return _checked(node)
    if isinstance(node, relay.Call):
        return rebuild(node, _OwnArguments(node) if unchanged else [new[argument] for argument in node.args])
    if isinstance(node, relay.Tuple):
        fields = [new[field] for field in node.fields]
        return node if _same(fields, node.fields) else relay.Tuple(fields, node.span)
    if isinstance(node, relay.TupleGetItem):
        value = new[node.tuple_value]
        if isinstance(value, relay.Tuple) and not isinstance(node.tuple_value, relay.Tuple):
            return value.fields[node.index]
        return node if value.same_as(node.tuple_value) else relay.TupleGetItem(value, node.index, node.span)
    return _checked(node)


def _checked(node: relay.Expr) -> relay.Expr:
    if isinstance(node, relay.Var | relay.Constant | relay.GlobalVar | relay.Function | relay.Tuple | tvm.ir.Op):
        return node
    raise Unsupported(f"a model is a dataflow graph of calls and tuples: got {type(node).__name__}")


def with_main(mod: tvm.IRModule, main: relay.Function) -> tvm.IRModule:
    """The module with another `main`, type-checked; the module itself for its own."""
    if main.same_as(mod["main"]):
        return mod
    functions = {**mod.functions, mod.get_global_var("main"): main}
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, attrs=mod.attrs))


def on_main(rewrite: Callable[[relay.Function], relay.Function], name: str) -> tvm.transform.Pass:
    """A pass that rewrites `main` of a type-checked module, and type-checks it if it has changed.

    TVM's function passes type-check in any case, which takes longer than most rewriting.
    """

    @tvm.transform.module_pass(opt_level=0, name=f"byoc_hw.{name}")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        return with_main(mod, rewrite(mod["main"]))

    return apply


def each_call(rebuild: Rebuild, name: str) -> tvm.transform.Pass:
    """A pass that rebuilds each call of `main`."""
    return on_main(lambda main: rebuild_calls(main, rebuild), name)


def called_with(call: relay.Call, arguments: list[relay.Expr]) -> relay.Call:
    """The call with these arguments; the call itself if they are unchanged."""
    if (isinstance(arguments, _OwnArguments) and arguments.call is call) or _same(arguments, call.args):
        return call
    return relay.Call(call.op, arguments, call.attrs, call.type_args, call.span)


def _same(left: list[relay.Expr], right: list[relay.Expr]) -> bool:
    return all(a.same_as(b) for a, b in zip(left, right, strict=True))


def without_composite(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """The inlined body of a called composite; any other call with its new arguments."""
    if isinstance(call.op, relay.Function) and "Composite" in (call.op.attrs or {}):
        return applied(call.op, arguments)
    return called_with(call, arguments)


def inline_composites(function: relay.Function) -> relay.Function:
    """Replace each call of a composite function by its body."""
    return rebuild_calls(function, without_composite)


def inline_regions(mod: tvm.IRModule, gone: Mapping[relay.GlobalVar, relay.Function]) -> tvm.IRModule:
    """The module with these regions and their composites inlined in `main`."""
    bodies = {variable.name_hint: inline_composites(function) for variable, function in gone.items()}

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if isinstance(call.op, relay.GlobalVar) and call.op.name_hint in bodies:
            return applied(bodies[call.op.name_hint], arguments)
        return called_with(call, arguments)

    kept = {variable: function for variable, function in mod.functions.items() if variable not in gone}
    kept[mod.get_global_var("main")] = rebuild_calls(mod["main"], rebuild)
    return tvm.IRModule(kept, mod.type_definitions, attrs=mod.attrs)


def applied(function: relay.Function, arguments: Sequence[relay.Expr]) -> relay.Expr:
    """The body of a function, with arguments for its parameters."""
    return rebuilt_values(function, arguments, called_with)[function.body]
