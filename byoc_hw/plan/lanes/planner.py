"""Plans a region on a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.bound import chip_bound
from byoc_hw.plan.lanes.compose import chip_plan
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.search import best_parts
from byoc_hw.soc import Soc

NO_WISHES: Mapping[str, str] = {}
"""All layers run where they are cheapest."""


def plan_on_chip(graph: Graph, chip: Soc, place: Mapping[str, str] = NO_WISHES) -> ChipPlan:
    """The plan of a region on a chip. `place` has accelerators by name for layers, model operators and layer kinds.

    Raises `InvalidInput` where an accelerator cannot run a layer that is wished there.
    """
    able = [_able(layer, chip, place) for layer in graph.layers]
    costs = tuple(
        {lane: best_cycles(layer, one) for lane, one in enumerate(chip.accelerators) if one in chip.supporting(layer)}
        for layer in graph.layers
    )
    region = Region(graph)
    plan = chip_plan(region, chip, best_parts(region, chip, able))
    return replace(plan, bound=chip_bound(graph, chip), costs=costs)


def _able(layer: Layer, chip: Soc, place: Mapping[str, str]) -> list[int]:
    """The accelerators that may run a layer, by index."""
    wished = [place[name] for name in (layer.name, *layer.source, layer.kind) if name in place][:1]
    if not wished:
        able = chip.supporting(layer)
        return [lane for lane, one in enumerate(chip.accelerators) if one in able]
    (lane,) = (lane for lane, one in enumerate(chip.accelerators) if one.name == wished[0])
    broken = [f"{rule.text}: got {check.found}" for rule, check in chip.accelerators[lane].broken_rules(layer)]
    if broken:
        raise InvalidInput(f"place: {layer.name} cannot run on {wished[0]}: {'; '.join(broken)}")
    return [lane]
