"""A region's graph on the array of an accelerator: what every choice of groups and stripes starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph
from byoc_hw.plan.array.mapping import Mapping, map_layers
from byoc_hw.plan.array.storage import Storages, storages


@dataclass(frozen=True)
class MappedGraph:
    """A graph, its layers as they lie on the array, and the storages of its tensors.

    `copies_transpose` tells that copies of the region's arguments do the transpositions at its border.
    """

    graph: Graph
    accelerator: Accelerator
    mapping: Mapping
    storages: Storages
    copies_transpose: bool


def map_graph(
    graph: Graph, accelerator: Accelerator, swapped: Sequence[bool] | None = None, copies_transpose: bool = True
) -> MappedGraph:
    """The graph as `map_layers` maps it. Raises `PlanError` where `swapped` asks for what cannot be."""
    mapping = map_layers(graph, accelerator, swapped, copies_transpose)
    return MappedGraph(graph, accelerator, mapping, storages(graph, mapping), copies_transpose)
