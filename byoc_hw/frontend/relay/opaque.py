"""Composites whose bodies are hidden from TVM's passes, which look at calls alone.

Each pass of TVM type-checks all functions of a module, and a convolution takes it half a millisecond every time. So the
bodies of composites are zeros of the same type while regions are formed.

    %0 = fn (%x, Composite="hwlib.qnn_conv2d") { ... }(%x)
    %0 = fn (%x, Composite="hwlib.qnn_conv2d", byoc_hw_body="3") { zeros(...) }(%x)
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls, with_main

_BODY = "byoc_hw_body"
"""The attribute of a composite with a hidden body: its number."""


class Bodies:
    """The composites of one partitioning whose bodies are hidden."""

    def __init__(self) -> None:
        self._composites: list[relay.Function] = []

    def hidden(self, function: relay.Function) -> relay.Function:
        """A type-checked function with the bodies of its composites hidden."""

        def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
            if not is_composite(call) or _BODY in call.op.attrs:
                return called_with(call, arguments)
            self._composites.append(call.op)
            empty = without_body(call.op).with_attr(_BODY, str(len(self._composites) - 1))
            return relay.Call(empty, arguments, call.attrs, call.type_args, call.span)

        return rebuild_calls(function, rebuild)

    def shown(self, function: relay.Function) -> relay.Function:
        """The function with the bodies of its composites, its own calls not type-checked."""
        return rebuild_calls(function, self.shown_call)

    def shown_call(self, call: relay.Call, arguments: Sequence[relay.Expr]) -> relay.Call:
        """A call with these arguments, of the composite with its body if it calls one that is hidden."""
        if not is_composite(call) or _BODY not in call.op.attrs:
            return called_with(call, list(arguments))
        composite = self._composites[int(call.op.attrs[_BODY])]
        return relay.Call(composite, arguments, call.attrs, call.type_args, call.span)


def is_composite(call: relay.Call) -> bool:
    """Whether a call is of a composite."""
    return isinstance(call.op, relay.Function) and bool(call.op.attrs) and "Composite" in call.op.attrs


def without_body(function: relay.Function) -> relay.Function:
    """A type-checked function of the same type whose result is zeros."""
    result = function.checked_type.ret_type
    return relay.Function(function.params, _zeros(result), result, function.type_params, function.attrs, function.span)


def is_type_checked(function: relay.Function) -> bool:
    """Whether TVM has type-checked a function: the types of all its expressions are known then."""
    return function._checked_type_ is not None


def _zeros(of: tvm.ir.Type) -> relay.Expr:
    if isinstance(of, tvm.ir.TupleType):
        return relay.Tuple([_zeros(field) for field in of.fields])
    return relay.zeros(of.shape, of.dtype)


_Entry = tuple[str, relay.dataflow_pattern.DFPattern, object]


def merge_composites(table: Sequence[_Entry], bodies: Bodies) -> tvm.transform.Pass:
    """As TVM's MergeComposite on `main` of a type-checked module; the bodies of all composites are hidden then."""

    @tvm.transform.module_pass(opt_level=0, name="byoc_hw.MergeComposites")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        mod = with_main(mod, bodies.hidden(mod["main"]))
        for name, pattern, check in table:
            main = pattern.partition(mod["main"], {"Composite": name}, check)
            if not main.same_as(mod["main"]):
                mod = with_main(mod, main)
                mod = with_main(mod, bodies.hidden(mod["main"]))
        return mod

    return apply


def show_bodies(bodies: Bodies) -> tvm.transform.Pass:
    """Show the hidden bodies in all functions of a module, and type-check them."""

    @tvm.transform.module_pass(opt_level=0, name="byoc_hw.ShowBodies")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        functions = {variable: bodies.shown(function) for variable, function in mod.functions.items()}
        return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, attrs=mod.attrs))

    return apply
