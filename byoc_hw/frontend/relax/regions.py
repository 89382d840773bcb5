"""Regions: functions of composites that `MergeCompositeFunctions` made. Their symbols, and their graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.base_record import BaseRecord, fields_in
from byoc_hw.frontend.connect import (
    LayerNode,
    RegionValues,
    check_wildcards,
    connected_graph,
    with_unique_names,
    without_idle_reshapes,
)
from byoc_hw.frontend.relax.bindings import (
    call_on,
    in_order_of_use,
    returned_by,
    steps_of,
    unaliased,
    with_steps,
)
from byoc_hw.frontend.relax.forms import composite_layer
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of
from byoc_hw.graph import Graph
from byoc_hw.tensor import Array, Tensor

_RECORD = "byoc_hw"
"""The module's attribute with its record."""

ACCELERATOR_MARK, NUMERICS_MARK = "byoc_hw_accelerator", "byoc_hw_numerics"
"""Attributes of a region, for TVM's own code generation: the digest of its accelerator, and its numerics."""


@dataclass(frozen=True)
class QdqRecord(BaseRecord):
    """The record of a Relax module, with the names of inputs and outputs, and what was denied."""

    names: tuple[str, ...]
    deny: tuple[str, ...] = ()

    def attached(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with this record."""
        return mod.with_attr(_RECORD, self.text)

    @classmethod
    def of(cls, mod: tvm.IRModule) -> QdqRecord | None:
        """The record of a module; None for one that is not partitioned."""
        if not mod.attrs or _RECORD not in mod.attrs:
            return None
        plain = fields_in(str(mod.attrs[_RECORD]))
        plain["names"], plain["deny"] = tuple(plain["names"]), tuple(plain["deny"])
        return cls(**plain)


def external(mod: tvm.IRModule, compiler: str | None = None) -> dict[Any, Any]:
    """The functions of a module that a code generator compiles, by global variable; of one compiler, or of all."""
    return {
        variable: function
        for variable, function in mod.functions.items()
        if isinstance(function, relax.Function)
        and function.attrs
        and "Codegen" in function.attrs
        and compiler in (None, str(function.attrs["Codegen"]))
    }


def with_symbols(mod: tvm.IRModule, prefix: str, marks: Mapping[str, str]) -> tvm.IRModule:
    """The module with an external function for each call of one, in their order, named by the prefix and a number.

    TVM's symbols can have 1,001 characters, and it has one function for equal ones. Each has the `marks` as attributes.
    """
    there, main = external(mod), mod["main"]
    functions: dict[Any, Any] = {}
    steps = []
    for variable, value in steps_of(main):
        if isinstance(value, relax.Call) and value.op in there:
            symbol = f"{prefix}{len(functions)}"
            fresh = relax.GlobalVar(symbol)
            relax.expr._update_type(fresh, value.op.ty)
            functions[fresh] = mod[value.op].with_attrs({"global_symbol": symbol, **marks})
            value = call_on(value, value.args, value.ty, op=fresh)
        steps.append((variable, value))
    return tvm.IRModule({mod.get_global_var("main"): with_steps(main, steps), **functions}, attrs=mod.attrs)


def calls_of_regions(mod: tvm.IRModule) -> list[Any]:
    """The global variables of the external functions that main calls, in order."""
    there = external(mod)
    return [value.op for _, value in steps_of(mod["main"]) if isinstance(value, relax.Call) and value.op in there]


def composites_of(function: Any) -> dict[Any, Any]:
    """The composites of a region, by the variable that each is bound to."""
    return {
        variable: value
        for variable, value in steps_of(function)
        if isinstance(value, relax.Function) and value.attrs and "Composite" in value.attrs
    }


def composites_in(mod: tvm.IRModule) -> dict[Any, Any]:
    """The composites of a module whose regions are not made, by global variable."""
    return {
        variable: function
        for variable, function in mod.functions.items()
        if isinstance(function, relax.Function) and function.attrs and "Composite" in function.attrs
    }


def composite_name(composite: Any) -> str:
    """The name of a composite, without its compiler's."""
    return str(composite.attrs["Composite"]).partition(".")[2]


# ---------------------------------------------------------------- lowering


def region_graph(function: Any, symbol: str, numerics: str) -> Graph:
    """The verified `Graph` of a region, named by its C symbol. Raises `Unsupported` with operator and reason."""
    nodes, results = _nodes(function)
    inputs = {
        parameter: Tensor(f"in{index}", extents_of(parameter), dtype_of(parameter))
        for index, parameter in enumerate(function.params)
    }
    graph = connected_graph(symbol, nodes, RegionValues(inputs, results, _constant, str), numerics)
    graph.verify()
    return graph


def layer_variables(function: Any) -> dict[str, Any]:
    """The variable of a region's function that each layer computes, by the name that `region_graph` gives the layer."""
    nodes, _ = without_idle_reshapes(_nodes(function)[0])
    return {node.layer.name: node.value for node in with_unique_names(nodes)}


def _nodes(function: Any) -> tuple[list[LayerNode], list[Any]]:
    """The layers of a region, in order, and the variables that are its results."""
    composites = composites_of(function)
    values = {variable: value for variable, value in steps_of(function) if variable not in composites}
    result = values.get(function.body.body)
    tuple_of = result if isinstance(result, relax.Tuple) else function.body.body
    results = [unaliased(one, values) for one in returned_by(tuple_of)]
    return [_node(variable, values[variable], composites) for variable in in_order_of_use(values, results)], results


def _constant(value: Any) -> Array:
    assert isinstance(value, Literal), "a composite holds its constants"
    return array_of(value)


def _node(variable: Any, call: Any, composites: Mapping[Any, Any]) -> LayerNode:
    """The layer that a call of a composite computes."""
    if not isinstance(call, relax.Call) or call.op not in composites:
        raise Unsupported(f"{call} cannot be lowered: no composite of the pattern table holds it")
    composite = composites[call.op]
    name, inner = composite_name(composite), dict(steps_of(composite))
    parsed = composite_layer(name, inner[composite.body.body], inner)
    if parsed is None:
        raise Unsupported(f"composite {name} at {variable.name} cannot be lowered: no pattern {name!r} reads it")
    layer, match = parsed
    check_wildcards(name, layer, len(match.inputs))
    arguments = dict(zip(composite.params, call.args, strict=True))
    return LayerNode(variable, layer, tuple(arguments.get(read, read) for read in match.inputs))
