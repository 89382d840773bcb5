"""A region on a vendor library: one call for each layer, intermediates in scratch by lifetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from byoc_hw.accelerator import Accelerator, LibraryCall, Operands
from byoc_hw.emit import c
from byoc_hw.emit.numbering import number_region
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.graph import Graph, Layer, Reshape, Tensor
from byoc_hw.plan.memory import Lifetime, blocks_from_lifetimes, peak, place

ALIGNMENT = 16
"""Of intermediates and workspaces, in bytes: enough for any element type of C."""


@dataclass(frozen=True)
class LibraryLayer:
    """A layer with what its library made of it at compile time. `call` is None for a reshape."""

    layer: Layer
    call: LibraryCall | None
    weights: c.Array | None
    parameters: Mapping[str, c.Array]
    workspace_bytes: int


@dataclass(frozen=True)
class LibraryPlan:
    """A region for a vendor library.

    `homes` says which tensor's bytes a tensor has (a reshape's output has its input's), `scratch`
    at what offset of the region's scratch a home lies; inputs, outputs and constants have none.
    `workspaces` are the offsets of the layers' workspaces, by index of the layer.
    """

    graph: Graph
    layers: tuple[LibraryLayer, ...]
    homes: Mapping[Tensor, Tensor]
    scratch: Mapping[Tensor, int]
    workspaces: Mapping[int, int]
    scratch_bytes: int

    @property
    def flash_bytes(self) -> int:
        """Bytes of constant data: weights, parameters and constant activations."""
        return sum(values.nbytes for values in _arrays(self).values())


def library_plan(graph: Graph, accelerator: Accelerator) -> LibraryPlan:
    """Ask the library for what each layer needs, and place it all by lifetime.

    `Unsupported` for a layer that the library has no call for.
    """
    library = accelerator.library
    if library is None:
        raise InvalidInput(f"library_plan plans for an accelerator with a library: {accelerator.name} has none")
    layers = tuple(_prepare(layer, library.calls) for layer in graph.layers)
    homes = _homes(graph)
    lifetimes = list(_lifetimes(graph, layers, homes))
    arena = place(blocks_from_lifetimes(lifetimes, ALIGNMENT), peak(lifetimes))
    named = {_block(index): tensor for index, tensor in enumerate(graph.tensors)}
    scratch = {named[name]: offset for name, offset in arena.offsets.items() if name in named}
    workspaces = {
        index: arena.offsets[_workspace(index)] for index in range(len(layers)) if _workspace(index) in arena.offsets
    }
    return LibraryPlan(graph, layers, homes, scratch, workspaces, arena.nbytes)


def _prepare(layer: Layer, calls: Mapping[str, LibraryCall]) -> LibraryLayer:
    call = calls.get(layer.kind)
    if call is None and isinstance(layer, Reshape):
        return LibraryLayer(layer, None, None, {}, 0)
    if call is None:
        raise Unsupported(f"{layer.name}: the library has a call for each layer kind: none for {layer.kind}")
    weights = getattr(layer, "weights", None)
    packed = call.pack(layer) if call.pack is not None else weights and weights.data
    return LibraryLayer(layer, call, packed, dict(call.parameters(layer)), call.workspace(layer))


def _homes(graph: Graph) -> dict[Tensor, Tensor]:
    """Whose bytes each tensor has. An output of the region has its own, so a reshape to it copies."""
    homes = {tensor: tensor for tensor in graph.tensors}
    for layer in graph.layers:
        if isinstance(layer, Reshape) and layer.ofm not in graph.outputs:
            homes[layer.ofm] = homes[layer.ifm]
    return homes


def _block(index: int) -> str:
    return f"tensor {index}"


def _workspace(index: int) -> str:
    return f"workspace {index}"


def _lifetimes(graph: Graph, layers: tuple[LibraryLayer, ...], homes: Mapping[Tensor, Tensor]) -> Iterator[Lifetime]:
    """The first and last layer during which each block of scratch holds something."""
    spans: dict[Tensor, tuple[int, int]] = {}
    for index, prepared in enumerate(layers):
        for tensor in (*prepared.layer.inputs, prepared.layer.ofm):
            first, _ = spans.get(homes[tensor], (index, index))
            spans[homes[tensor]] = (first, index)
        if prepared.workspace_bytes:
            yield Lifetime(_workspace(index), prepared.workspace_bytes, index, index, prepared.layer.name)
    elsewhere = {*graph.inputs, *graph.outputs}
    for index, tensor in enumerate(graph.tensors):
        if tensor in spans and tensor.data is None and tensor not in elsewhere:
            yield Lifetime(_block(index), tensor.nbytes, *spans[tensor], tensor.name)


# ---------------------------------------------------------------- C


def library_arrays(plan: LibraryPlan, alignment: int) -> str:
    """Definitions of the constant arrays of a region."""
    return "\n".join(c.array(name, values, alignment) for name, values in _arrays(plan).items())


def library_body(plan: LibraryPlan, first_layer: int) -> str:
    """The region's function: typed names for the intermediates, then one checked call a layer."""
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
    """The C name under which each tensor's bytes are at hand."""
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
    """Outputs whose tensor lies elsewhere: an input handed through, or one output given twice."""
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


def _arrays(plan: LibraryPlan) -> dict[str, c.Array]:
    """All constant arrays of a region by C name."""
    found: dict[str, c.Array] = {}
    for index, prepared in enumerate(plan.layers):
        if prepared.weights is not None:
            found[_weights_name(plan, index)] = prepared.weights
        for name, identifier in _parameter_names(plan, index).items():
            found[identifier] = np.asarray(prepared.parameters[name])
    for name, tensor in _constant_activations(plan).items():
        assert tensor.data is not None
        found[name] = tensor.data
    return found
