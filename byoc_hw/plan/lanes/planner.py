"""Plans a region on a chip: which accelerator runs which layer, and how each part is cut into stripes."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_hw.graph import Graph
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.array.mapping import components, worth_swapping
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import PlacedPart, chip_plan
from byoc_hw.plan.lanes.cut import Cut, crossing, cuts_of, part_graph, with_reshapes
from byoc_hw.plan.lanes.layouts import layouts
from byoc_hw.soc import Soc


def mapped_parts(graph: Graph, chip: Soc, cuts: Sequence[Cut], swapped: Sequence[bool]) -> list[MappedGraph]:
    """The parts as they are mapped: tensors between them lie in main memory as the arrays have them."""
    component = components(graph)
    between = frozenset(crossing(graph, cuts)) - set(graph.outputs)
    found = []
    for at, cut in enumerate(cuts):
        part = part_graph(graph, cut, f"{graph.name}_{at}")
        own = dict(zip(components(part), cut.layers, strict=True))
        turned = [swapped[component[own[number]]] for number in sorted(own)]
        found.append(map_graph(part, chip.accelerators[cut.lane], turned, as_mapped=between))
    return found


def plan_on_chip(graph: Graph, chip: Soc) -> ChipPlan:
    """The plan of a region on a chip."""
    lanes = []
    for layer in graph.layers:
        able = [at for at, one in enumerate(chip.accelerators) if one in chip.supporting(layer)]
        lanes.append(min(able, key=lambda at: best_cycles(layer, chip.accelerators[at])))
    return plan_on(graph, chip, lanes)


def plan_on(graph: Graph, chip: Soc, lanes: Sequence[int]) -> ChipPlan:
    """The plan of a region whose layers run on these accelerators, by index."""
    lanes = with_reshapes(graph, lanes)
    cuts = cuts_of(graph, lanes)
    swapped = worth_swapping(graph, [chip.accelerators[lane] for lane in lanes])
    tried = [list(layouts(mapped)) for mapped in mapped_parts(graph, chip, cuts, swapped)]
    chosen = [min(some, key=lambda one: one.cycles) for some in tried]
    return chip_plan(graph, chip, [PlacedPart(cut, one) for cut, one in zip(cuts, chosen, strict=True)])
