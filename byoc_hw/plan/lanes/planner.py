"""Plans a region on a chip."""

from __future__ import annotations

from byoc_hw.graph import Graph
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import chip_plan
from byoc_hw.plan.lanes.search import best_parts
from byoc_hw.soc import Soc


def plan_on_chip(graph: Graph, chip: Soc) -> ChipPlan:
    """The plan of a region on a chip. Raises `PlanError` where a layer fits none of its accelerators."""
    return chip_plan(graph, chip, best_parts(graph, chip))
