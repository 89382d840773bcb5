"""C for a region on a vendor library: constant arrays, and a function with one checked call per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from byoc_hw.accelerator import Operands
from byoc_hw.emit import c
from byoc_hw.emit.numbering import number_region
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.tensor import Array, Tensor


def library_arrays(plan: LibraryPlan, alignment: int) -> str:
    """Definitions of the constant arrays of a region."""
    return "\n".join(c.array(name, values, alignment) for name, values in _arrays(plan).items())


def library_body(plan: LibraryPlan, first_layer: int) -> str:
    """The body of the region's function: pointers to intermediates, then one checked call per layer."""
    places = _places(plan)
    lines = [
        f"  {c.c_type(tensor.dtype)} *const {places[tensor]} = ({c.c_type(tensor.dtype)} *)(scratch + {offset});"
        for tensor, offset in plan.scratch.items()
    ]
    if any(prepared.call for prepared in plan.layers):
        lines += ["  int32_t status;", ""]
    for index, (numbered, prepared) in enumerate(zip(number_region(plan.graph, first_layer), plan.layers, strict=True)):
        layer = prepared.layer
        target = places[layer.ofm]
        aliased = prepared.call is None and places[layer.ifm] == target
        lines.append(c.comment([*numbered.title, *(["The same bytes: nothing to do."] if aliased else [])], indent=2))
        if aliased:
            lines.append("")
            continue
        if prepared.call is not None:
            values = prepared.call.arguments(layer, _operands(plan, index, places))
            lines += [
                f"  REGION_COUNT({numbered.id});",
                c.wrapped(f"status = {prepared.call.function}", values, ";", indent=2),
                "  if (status != 0) {",
                f"    return REGION_RESULT(status, {numbered.id});",
                "  }",
            ]
        else:
            lines.append(f"  memcpy({target}, {places[layer.ifm]}, {layer.ofm.nbytes});")
        lines += [f"  REGION_TRACE({numbered.id}, {target}, {layer.ofm.nbytes});", ""]
    lines += [f"  memcpy({name}, {places[tensor]}, {tensor.nbytes});" for name, tensor in _left_over(plan, places)]
    return "\n".join([*lines, "  return 0;", ""])


def _places(plan: LibraryPlan) -> dict[Tensor, str]:
    """The C name of the buffer that holds each tensor."""
    graph = plan.graph
    places = {tensor: f"in{index}" for index, tensor in enumerate(graph.inputs)}
    for index, tensor in enumerate(graph.outputs):
        places.setdefault(tensor, f"out{index}")
    functions = {prepared.call.function for prepared in plan.layers if prepared.call is not None}
    reserved = {"scratch", "status", "memcpy", *functions, *places.values()}
    constant = {tensor: name for name, tensor in _constant_activations(plan).items()}
    named = dict(zip(plan.scratch, c.unique((tensor.name for tensor in plan.scratch), reserved), strict=True))
    for tensor in graph.tensors:
        home = plan.homes[tensor]
        places.setdefault(tensor, places.get(home) or constant.get(home) or named[home])
    return places


def _left_over(plan: LibraryPlan, places: Mapping[Tensor, str]) -> Iterator[tuple[str, Tensor]]:
    """Outputs that need a copy: an input passed through, or the same tensor given twice."""
    for index, tensor in enumerate(plan.graph.outputs):
        if places[tensor] != f"out{index}":
            yield f"out{index}", tensor


def _operands(plan: LibraryPlan, index: int, places: Mapping[Tensor, str]) -> Operands:
    prepared = plan.layers[index]
    layer = prepared.layer
    workspace = plan.workspaces.get(index)
    return Operands(
        inputs=tuple(places[tensor] for tensor in layer.inputs),
        output=places[layer.ofm],
        weights=None if prepared.weights is None else _weights_name(plan, index),
        parameters=_parameter_names(plan, index),
        workspace=None if workspace is None else f"(scratch + {workspace})",
    )


def _weights_name(plan: LibraryPlan, index: int) -> str:
    return f"{plan.graph.name}_{index}_weights"


def _parameter_names(plan: LibraryPlan, index: int) -> dict[str, str]:
    names = plan.layers[index].parameters
    spelt = c.unique(names, taken=["weights"])
    return {name: f"{plan.graph.name}_{index}_{identifier}" for name, identifier in zip(names, spelt, strict=True)}


def _constant_activations(plan: LibraryPlan) -> dict[str, Tensor]:
    constants = (tensor for tensor in plan.graph.tensors if tensor.data is not None)
    return {f"{plan.graph.name}_constant_{index}": tensor for index, tensor in enumerate(constants)}


def _arrays(plan: LibraryPlan) -> dict[str, Array]:
    """All constant arrays of a region by C name."""
    found: dict[str, Array] = {}
    for index, prepared in enumerate(plan.layers):
        if prepared.weights is not None:
            found[_weights_name(plan, index)] = prepared.weights
        for name, identifier in _parameter_names(plan, index).items():
            found[identifier] = np.asarray(prepared.parameters[name])
    for name, tensor in _constant_activations(plan).items():
        assert tensor.data is not None
        found[name] = tensor.data
    return found
