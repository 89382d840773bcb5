"""The inputs and outputs of a model: inputs with names of their own, outputs in one flat tuple.

Names in Relay are hints: two inputs may have the same one, or none. TVM's AoT executor makes C identifiers of them,
which can be equal where the names are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuilt_values, with_main
from byoc_hw.names import distinct

OUTPUT_NAMES = "output_tensor_names"
"""An attribute of `main`: a name for each output, which TVM's executor counts."""


def plain_interface(mod: tvm.IRModule) -> tvm.IRModule:
    """A type-checked module whose inputs have different names, and whose outputs are in one tuple, not in nested ones.

    An input without a name is `input_<index>`. Where names repeat the first is kept, later ones get `_2`, `_3` ...
    """
    main = mod["main"]
    names = [variable.name_hint for variable in main.params]
    own = distinct(name or f"input_{index}" for index, name in enumerate(names))
    outputs = list(_flat(main.body, main.body.checked_type)) if _nested(main.body.checked_type) else None
    if own == names and outputs is None:
        return mod
    if outputs is not None:
        outputs_only = relay.Tuple(outputs, main.body.span)
        main = relay.Function(main.params, outputs_only, None, main.type_params, main.attrs, main.span)
    return with_main(mod, _renamed(main, own))


def with_numbered_ends(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with inputs called `input_0`, `input_1` ..., which no name of TVM's own can equal, and outputs that
    have names `output_0`, `output_1` ..."""
    main = mod["main"]
    stated = stated_names(main)
    main = _renamed(main, [f"input_{index}" for index in range(len(main.params))])
    if stated is not None:
        main = main.with_attr(OUTPUT_NAMES, [f"output_{index}" for index in range(len(stated))])
    return with_main(mod, main)


def output_names(main: relay.Function) -> list[str] | None:
    """The names that main states for its outputs, as C has them, all different; None where it states none."""
    stated = stated_names(main)
    return None if stated is None else distinct(re.sub(rb"\W", b"_", name.encode()).decode() for name in stated)


def stated_names(main: relay.Function) -> list[str] | None:
    """The names that main states for its outputs; None where it states none."""
    return list(map(str, main.attrs[OUTPUT_NAMES])) if main.attrs and OUTPUT_NAMES in main.attrs else None


def output_values(body: relay.Expr) -> list[relay.Expr]:
    """The expressions of the outputs; one for a body that is no tuple."""
    return list(body.fields) if isinstance(body, relay.Tuple) else [body]


def _renamed(main: relay.Function, names: Sequence[str]) -> relay.Function:
    pairs = zip(names, main.params, strict=True)
    new = [relay.Var(name, variable.type_annotation, variable.span) for name, variable in pairs]
    body = rebuilt_values(main, new, called_with)[main.body]
    return relay.Function(new, body, None, main.type_params, main.attrs, main.span)


def _nested(type_: tvm.ir.Type) -> bool:
    return isinstance(type_, tvm.ir.TupleType) and any(isinstance(field, tvm.ir.TupleType) for field in type_.fields)


def _flat(expr: relay.Expr, type_: tvm.ir.Type) -> Iterator[relay.Expr]:
    """The tensors of a value in order, through all levels of tuples."""
    if not isinstance(type_, tvm.ir.TupleType):
        yield expr
        return
    for index, field in enumerate(type_.fields):
        yield from _flat(
            expr.fields[index] if isinstance(expr, relay.Tuple) else relay.TupleGetItem(expr, index), field
        )
