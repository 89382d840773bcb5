"""A region on a vendor library: one call for each layer, intermediates in scratch by lifetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from byoc_hw.accelerator import Accelerator, LibraryCall, Operands
from byoc_hw.emit import c
from byoc_hw.emit.numbering import number_region
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.graph import Graph, Layer, Reshape, Tensor
from byoc_hw.plan.memory import Lifetime, RegionMemory, blocks_from_lifetimes, peak, place

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
    `workspaces` are the offsets of the layers' workspaces, by index of the layer. `memory` says what
    is alive when.
    """

    graph: Graph
    layers: tuple[LibraryLayer, ...]
    homes: Mapping[Tensor, Tensor]
    scratch: Mapping[Tensor, int]
    workspaces: Mapping[int, int]
    scratch_bytes: int
    memory: RegionMemory = field(repr=False)

    def placed(self, offsets: Mapping[str, int]) -> LibraryPlan:
        """The same plan with each block of scratch at another offset from the region's base."""
        names = self.memory.blocks
        scratch = {t: offsets[names[t]] for t in sorted(self.scratch, key=lambda t: (offsets[names[t]], names[t]))}
        workspaces = {index: offsets[_workspace(self.graph, index)] for index in self.workspaces}
        ends = (offsets[block.name] + block.nbytes for block in self.memory.scratch)
        return replace(self, scratch=scratch, workspaces=workspaces, scratch_bytes=max(ends, default=0))

    @property
    def flash_bytes(self) -> int:
        """Bytes of constant data: weights, parameters and constant activations."""
        return sum(values.nbytes for values in _arrays(self).values())

    def flash_by_layer(self) -> Iterator[tuple[str, int]]:
        """Each layer with weights or parameters, and their bytes."""
        for prepared in self.layers:
            arrays = [*prepared.parameters.values(), *([] if prepared.weights is None else [prepared.weights])]
            if arrays:
                yield prepared.layer.name, sum(np.asarray(values).nbytes for values in arrays)


def library_plan(graph: Graph, accelerator: Accelerator) -> LibraryPlan:
    """Ask the library for what each layer needs, and place it all by lifetime.

    `Unsupported` for a layer that the library has no call for.
    """
    library = accelerator.library
    if library is None:
        raise InvalidInput(f"library_plan plans for an accelerator with a library: {accelerator.name} has none")
    layers = tuple(_prepare(layer, library.calls) for layer in graph.layers)
    homes = _homes(graph)
    memory = _memory(graph, layers, homes)
    arena = place(blocks_from_lifetimes(memory.scratch, ALIGNMENT), peak(memory.scratch))
    named = {name: tensor for tensor, name in memory.blocks.items()}
    scratch = {named[name]: offset for name, offset in arena.offsets.items() if name in named}
    spaces = {_workspace(graph, index): index for index in range(len(layers))}
    workspaces = {spaces[name]: offset for name, offset in arena.offsets.items() if name in spaces}
    return LibraryPlan(graph, layers, homes, scratch, workspaces, arena.nbytes, memory)


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


def _block(graph: Graph, index: int) -> str:
    return f"{graph.name}: {index:05} {graph.tensors[index].name}"


def _workspace(graph: Graph, index: int) -> str:
    return f"{graph.name}: workspace {index:05} {graph.layers[index].name}"


def _memory(graph: Graph, layers: tuple[LibraryLayer, ...], homes: Mapping[Tensor, Tensor]) -> RegionMemory:
    """The first and last layer during which each block of scratch, and each argument, holds something."""
    spans: dict[Tensor, tuple[int, int]] = {}
    scratch = []
    last = len(layers)  # the step of the copies at the end
    touched = [(index, (*prepared.layer.inputs, prepared.layer.ofm)) for index, prepared in enumerate(layers)]
    for index, tensors in [*touched, (last, graph.outputs)]:
        for tensor in tensors:
            first, _ = spans.get(homes[tensor], (index, index))
            spans[homes[tensor]] = (first, index)
    for index, prepared in enumerate(layers):
        if prepared.workspace_bytes:
            scratch.append(Lifetime(_workspace(graph, index), prepared.workspace_bytes, index, index, graph.name))
    elsewhere = {*graph.inputs, *graph.outputs}
    blocks = {}
    for index, tensor in enumerate(graph.tensors):
        if tensor in spans and tensor.data is None and tensor not in elsewhere:
            blocks[tensor] = _block(graph, index)
            scratch.append(Lifetime(blocks[tensor], tensor.nbytes, *spans[tensor], graph.name))
    arguments = [spans.get(tensor) for tensor in (*graph.inputs, *graph.outputs)]
    moments = (*(prepared.layer.name for prepared in layers), "the copies at its end")
    return RegionMemory(moments, tuple(scratch), tuple(arguments), ALIGNMENT, blocks)


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
