"""Cuts a region's graph into parts, one accelerator each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_hw.graph import Graph, Reshape
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Cut:
    """Layers of a region, by index in order, that one accelerator runs one after the other: `lane` is its index."""

    lane: int
    layers: tuple[int, ...]


def cuts_of(graph: Graph, lanes: Sequence[int]) -> tuple[Cut, ...]:
    """The parts of a graph whose layers run on these lanes: the longest runs of consecutive layers with one lane."""
    found: list[Cut] = []
    for index, lane in enumerate(lanes):
        if found and found[-1].lane == lane:
            found[-1] = Cut(lane, (*found[-1].layers, index))
        else:
            found.append(Cut(lane, (index,)))
    return tuple(found)


def with_reshapes(graph: Graph, lanes: Sequence[int]) -> tuple[int, ...]:
    """The lanes with each reshape on that of the layer which makes its input: there it costs nothing."""
    made = {layer.ofm: index for index, layer in enumerate(graph.layers)}
    found = list(lanes)
    for index, layer in enumerate(graph.layers):
        if isinstance(layer, Reshape):
            before = made.get(layer.ifm)
            behind = next((at for at, other in enumerate(graph.layers) if layer.ofm in other.inputs), None)
            if before is not None:
                found[index] = found[before]
            elif behind is not None:
                found[index] = found[behind]
    return tuple(found)


def part_graph(graph: Graph, cut: Cut, name: str) -> Graph:
    """The graph of a part: its inputs are what others make, its outputs what others read or the region gives."""
    layers = [graph.layers[index] for index in cut.layers]
    made = {layer.ofm for layer in layers}
    inputs = dict.fromkeys(
        tensor for layer in layers for tensor in layer.inputs if tensor not in made and tensor.data is None
    )
    read = set(_read_outside(graph, cut))
    outputs = [layer.ofm for layer in layers if layer.ofm in read or layer.ofm in graph.outputs]
    return Graph(name, tuple(inputs), tuple(outputs), tuple(layers))


def _read_outside(graph: Graph, cut: Cut) -> Iterator[Tensor]:
    inside = set(cut.layers)
    for index, layer in enumerate(graph.layers):
        if index not in inside:
            yield from layer.inputs


def crossing(graph: Graph, cuts: Sequence[Cut]) -> Mapping[Tensor, int]:
    """The tensors that go from one part to another through main memory, with the index of the part that makes each."""
    part = {index: number for number, cut in enumerate(cuts) for index in cut.layers}
    made = {layer.ofm: part[index] for index, layer in enumerate(graph.layers)}
    return {
        tensor: made[tensor]
        for index, layer in enumerate(graph.layers)
        for tensor in layer.inputs
        if tensor in made and made[tensor] != part[index]
    }
