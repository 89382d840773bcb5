"""Plans a region on a chip: which accelerator runs which layer, and how each part is cut into stripes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.lanes.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import PlacedPart, chip_plan
from byoc_hw.plan.lanes.cut import cuts_of, part_graph, with_reshapes
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.stages import Layout
from byoc_hw.soc import Soc


def plan_on(graph: Graph, chip: Soc, lanes: Sequence[int]) -> ChipPlan:
    """The plan of a region whose layers run on these accelerators, by index."""
    cuts = cuts_of(graph, with_reshapes(graph, lanes))
    parts = [
        PlacedPart(cut, best_layout(part_graph(graph, cut, f"{graph.name}_{at}"), chip.accelerators[cut.lane]))
        for at, cut in enumerate(cuts)
    ]
    return chip_plan(graph, chip, parts)
