"""The plan of a region on a chip, searched once in a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byoc_hw.graph import Graph
from byoc_hw.graph_digest import graph_digest
from byoc_hw.objective import Objective
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.planner import NO_WISHES, plan_on_chip
from byoc_hw.remembered import Remembered
from byoc_hw.soc import Soc

_REMEMBERED = 8
"""The most plans that are remembered: each has the weights of its region."""

_plans: Remembered[ChipPlan] = Remembered(_REMEMBERED)


def known_plan(
    graph: Graph, chip: Soc, place: Mapping[str, str] = NO_WISHES, objective: Objective | None = None
) -> ChipPlan:
    """As `plan_on_chip`, searched once for graphs that are equal with their names: a program asks for a region's plan
    to explain it, to place its layers for an objective, and to build it, more than once with other options."""
    key = graph_digest(graph, names=True), chip, tuple(sorted(place.items())), repr(objective)
    known = _plans.get(key)
    if known is None:
        known = _plans.keep(key, plan_on_chip(graph, chip, place, objective))
    return known if known.graph is graph else replace(known, graph=graph)
