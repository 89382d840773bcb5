"""Plans a region on a chip."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.graph import Graph, Layer
from byoc_hw.objective import Objective, wished
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.bound import chip_bound
from byoc_hw.plan.lanes.compose import chip_plan
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.price import judge, prices
from byoc_hw.plan.lanes.search import best_parts
from byoc_hw.soc import Soc

NO_WISHES: Mapping[str, str] = {}
"""All layers run where they are cheapest."""


def plan_on_chip(
    graph: Graph, chip: Soc, place: Mapping[str, str] = NO_WISHES, objective: Objective | None = None
) -> ChipPlan:
    """The plan of a region on a chip: of the fewest cycles of its engines, or the best for an objective. `place` has
    accelerators by name for layers, model operators and layer kinds.

    Raises `InvalidInput` where an accelerator cannot run a layer that is wished there, `PlanError` where none can.
    """
    costs = tuple(
        {
            lane: best_cycles(layer, one)
            for lane, one in enumerate(chip.accelerators)
            if not any(one.broken_rules(layer))
        }
        for layer in graph.layers
    )
    for layer, cost in zip(graph.layers, costs, strict=True):
        if not cost:
            raise PlanError(f"{layer.name}: an accelerator of {chip.name} can run it: none can")
    wanted = [_wished(layer, cost, chip, place) for layer, cost in zip(graph.layers, costs, strict=True)]
    region = Region(graph)
    bound = chip_bound(graph, chip)
    plans = []
    with _no_garbage():
        for parts in best_parts(region, chip, wanted, prices(objective, chip)):
            plan = chip_plan(region, chip, parts)
            cycles = lanes_timeline(plan).total  # a full queue holds the core, which the search leaves out
            plans.append(replace(plan, cycles=cycles, bound=bound, costs=costs))
    return min(plans, key=judge(objective, chip))


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Switches the search for garbage off: a search for parts makes many small objects, but no circles of them, and
    takes up to a third less time so."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _wished(layer: Layer, costs: Mapping[int, int], chip: Soc, place: Mapping[str, str]) -> Mapping[int, int]:
    """Of the accelerators that can run a layer, with its cycles on each, the one that it is wished on, or all."""
    wish = wished(layer, place)
    if wish is None:
        return costs
    (lane,) = (lane for lane, one in enumerate(chip.accelerators) if one.name == wish)
    if lane not in costs:
        broken = [f"{rule.text}: got {check.found}" for rule, check in chip.accelerators[lane].broken_rules(layer)]
        raise InvalidInput(f"place: {layer.name} cannot run on {wish}: {'; '.join(broken)}")
    return {lane: costs[lane]}
