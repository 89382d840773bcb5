"""Orders of a region's layers: groups and parts are consecutive layers, so each order has some that another one has
not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from byoc_hw.graph import Graph

LayerOrder = tuple[int, ...]
"""The layers of a graph, by index, each behind those that it reads from."""


def graph_in_order(graph: Graph, order: LayerOrder) -> Graph:
    """The same layers in another order."""
    return replace(graph, layers=tuple(graph.layers[index] for index in order))


def orders(graph: Graph) -> Iterator[LayerOrder]:
    """A few orders that differ, the graph's own first. In the others a layer is followed by the first or the last of
    those that read it, as long as one can follow, and then by what reads the latest of all others."""
    yield from dict.fromkeys((own_order(graph), _deep(graph, 1), _deep(graph, -1)))


def own_order(graph: Graph) -> LayerOrder:
    """The order in which the layers are."""
    return tuple(range(len(graph.layers)))


def _deep(graph: Graph, sign: int) -> LayerOrder:
    """The order in which what reads the latest output comes next; of several the first one, or the last."""
    made = graph.made
    reads = [{made[tensor] for tensor in layer.inputs if tensor in made} for layer in graph.layers]
    places: dict[int, int] = {}
    while len(places) < len(reads):
        ready = [index for index, some in enumerate(reads) if index not in places and some <= places.keys()]
        latest = {index: max((places[one] for one in reads[index]), default=-1) for index in ready}
        places[min(ready, key=lambda index: (-latest[index], sign * index))] = len(places)
    return tuple(places)
