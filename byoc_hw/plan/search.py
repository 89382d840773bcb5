"""The planner's own choices, in well under a second a region."""

from __future__ import annotations

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Reshape
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.mapping import map_layers
from byoc_hw.plan.storage import storages


def choose(graph: Graph, accelerator: Accelerator) -> Choices:
    mapping = map_layers(graph, accelerator)
    found = storages(graph, mapping)
    groups = []
    for i, layer in enumerate(graph.layers):
        whole = frozenset(s.index for s in found.all if (s.maker if s.maker is not None else min(s.readers, default=0)) <= i <= s.last)
        groups.append(Group(1, 1, whole))
    return Choices(mapping.swapped, tuple(groups), (None,) * len(graph.layers))
