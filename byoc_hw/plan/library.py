"""The plan of a region on a vendor library: the arguments of each layer's call, and scratch placed by lifetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Graph, Reshape
from byoc_hw.plan.library_layer import LibraryLayer, library_layer
from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.region_memory import Lifetime, RegionMemory
from byoc_hw.program import ALIGNMENT
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class LibraryPlan:
    """A region for a vendor library.

    `homes` maps a tensor to the tensor whose bytes it shares (a reshape's output to its input), `scratch`
    each such tensor to its offset in the region's scratch; inputs, outputs and constants have none.
    `workspaces` are the offsets of the layers' workspaces, by index of the layer. `memory` says what
    is live when. `wait` is the library's C function that waits for a call, if its calls only start.
    """

    graph: Graph
    layers: tuple[LibraryLayer, ...]
    homes: Mapping[Tensor, Tensor]
    scratch: Mapping[Tensor, int]
    workspaces: Mapping[int, int]
    scratch_bytes: int
    memory: RegionMemory = field(repr=False)
    wait: str | None = None

    def __repr__(self) -> str:
        return f"<LibraryPlan {self.graph.name}: {len(self.layers)} layers, {self.flash_bytes} bytes of flash>"

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
        constants = (tensor.data for tensor in self.graph.tensors if tensor.data is not None)
        return sum(nbytes for _, nbytes in self.flash_by_layer()) + sum(data.nbytes for data in constants)

    def flash_by_layer(self) -> Iterator[tuple[str, int]]:
        """Each layer with weights or parameters, and their bytes."""
        for prepared in self.layers:
            if prepared.flash_bytes:
                yield prepared.layer.name, prepared.flash_bytes


def library_plan(graph: Graph, accelerator: Accelerator) -> LibraryPlan:
    """Ask the library for the call, constants and workspace of each layer, and place scratch by lifetime.

    Raises `Unsupported` for a layer that the library has no call for.
    """
    library = accelerator.library
    if library is None:
        raise InvalidInput(f"library_plan plans for an accelerator with a library: {accelerator.name} has none")
    layers = tuple(library_layer(layer, library.calls) for layer in graph.layers)
    homes = _homes(graph)
    memory = _memory(graph, layers, homes)
    arena = place(blocks_from_lifetimes(memory.scratch, ALIGNMENT), largest_sum(memory.scratch))
    named = {name: tensor for tensor, name in memory.blocks.items()}
    scratch = {named[name]: offset for name, offset in arena.offsets.items() if name in named}
    spaces = {_workspace(graph, index): index for index in range(len(layers))}
    workspaces = {spaces[name]: offset for name, offset in arena.offsets.items() if name in spaces}
    return LibraryPlan(graph, layers, homes, scratch, workspaces, arena.nbytes, memory, library.wait)


def _homes(graph: Graph) -> dict[Tensor, Tensor]:
    """The tensor whose bytes each tensor shares. An output of the region has its own, so a reshape to it copies."""
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
    """The lifetime of each block of scratch and of each argument, as first and last layer."""
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
