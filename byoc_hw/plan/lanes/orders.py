"""Orders of a region's layers: parts are consecutive layers, so each order has parts that another one has not."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.graph import Graph

LayerOrder = tuple[int, ...]
"""The layers of a graph, by index, each behind those that it reads from."""


_LAYERS = 12
"""The most layers of a region of which several orders are tried: each takes as long to plan as the first."""


def orders(graph: Graph) -> Iterator[LayerOrder]:
    """A few orders that differ, the graph's own first. In the others of a small region a layer is followed by the first
    or the last of those that read it, as long as one can follow, and then by what reads the latest of all others."""
    seen: set[LayerOrder] = set()
    own = tuple(range(len(graph.layers)))
    for order in (own, _deep(graph, 1), _deep(graph, -1)) if len(own) <= _LAYERS else (own,):
        if order not in seen:
            seen.add(order)
            yield order


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
