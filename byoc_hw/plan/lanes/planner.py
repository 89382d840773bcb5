"""Plans a region on a chip: which accelerator runs which layer, and how each part is cut into stripes."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_hw.graph import Graph
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.mapping import worth_swapping
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import chip_plan
from byoc_hw.plan.lanes.cut import Cut, Region
from byoc_hw.plan.lanes.joint import PlacedPart
from byoc_hw.plan.lanes.layouts import layouts
from byoc_hw.plan.lanes.oriented import Oriented
from byoc_hw.soc import Soc


def plan_on_chip(graph: Graph, chip: Soc) -> ChipPlan:
    """The plan of a region on a chip."""
    lanes = []
    for layer in graph.layers:
        able = [at for at, one in enumerate(chip.accelerators) if one in chip.supporting(layer)]
        lanes.append(min(able, key=lambda at: best_cycles(layer, chip.accelerators[at])))
    cuts: list[Cut] = []
    for index, lane in enumerate(lanes):
        if cuts and cuts[-1].lane == lane:
            cuts[-1] = Cut(lane, (*cuts[-1].layers, index))
        else:
            cuts.append(Cut(lane, (index,)))
    return plan_of(graph, chip, cuts)


def plan_of(graph: Graph, chip: Soc, cuts: Sequence[Cut]) -> ChipPlan:
    """The plan of a region in these parts, in a possible order."""
    lanes = {index: cut.lane for cut in cuts for index in cut.layers}
    accelerators = [chip.accelerators[lanes[index]] for index in range(len(graph.layers))]
    oriented = Oriented(Region(graph), chip, worth_swapping(graph, accelerators))
    parts = []
    for cut in cuts:
        part = oriented.part(cut)
        assert part is not None
        parts.append(PlacedPart(part, min(layouts(part.mapped), key=lambda one: one.cycles)))
    return chip_plan(graph, chip, parts)
