"""Plans a region on a chip."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.graph import Graph, Layer
from byoc_hw.objective import Energy, Objective, wished
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import chip_plan
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.joint import PlacedPart, side_by_side
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.orders import LayerOrder, orders
from byoc_hw.plan.lanes.price import Price, judge, prices
from byoc_hw.plan.lanes.search import Several, best_parts, part_of_all, parts_alone
from byoc_hw.plan.stages import Layout
from byoc_hw.soc import Soc

NO_WISHES: Mapping[str, str] = {}
"""All layers run where they are cheapest."""


_LESS = (0.25, 1.0, 4.0)
"""Cycles that a copied byte is charged in plans that are to copy less, and so keep less in main memory."""


def plan_on_chip(
    graph: Graph, chip: Soc, place: Mapping[str, str] = NO_WISHES, objective: Objective | None = None
) -> ChipPlan:
    """The plan of a region on a chip: of the fewest cycles of its engines, or the best for an objective. `place` has
    accelerators by name for layers, model operators and layer kinds.

    Raises `InvalidInput` where an accelerator cannot run a layer that is wished there, `PlanError` where none can.
    """
    bound = cycles_bound(graph, chip)
    tried = list(orders(graph)) if len(chip.accelerators) > 1 else [tuple(range(len(graph.layers)))]
    plans, several = [], Several(len(tried))
    for order in tried:
        ordered = replace(graph, layers=tuple(graph.layers[index] for index in order))
        plan = ChipPlanner(ordered, chip, place, bound, several).together(objective)
        plans.append(_with_layers_of(graph, order, plan))
    best = min(plans, key=judge(objective, chip))
    return ChipPlanner(graph, chip, place, bound).no_worse_alone(best, objective)


def _with_layers_of(graph: Graph, order: LayerOrder, plan: ChipPlan) -> ChipPlan:
    """A plan of the layers of a graph in some order, as one of the graph."""
    parts = tuple(replace(part, layers=tuple(order[index] for index in part.layers)) for part in plan.parts)
    costs = dict(zip(order, plan.costs, strict=True))
    return replace(plan, graph=graph, parts=parts, costs=tuple(costs[index] for index in sorted(costs)))


class ChipPlanner:
    """Plans a region on a chip, whose layers stay in their order. As `plan_on_chip`; `bound` is worked out if None.

    The search is one of `several`.
    """

    def __init__(
        self,
        graph: Graph,
        chip: Soc,
        place: Mapping[str, str],
        bound: int | None = None,
        several: Several | None = None,
    ) -> None:
        self._costs = tuple(
            {
                lane: best_cycles(layer, one)
                for lane, one in enumerate(chip.accelerators)
                if not any(one.broken_rules(layer))
            }
            for layer in graph.layers
        )
        for layer, cost in zip(graph.layers, self._costs, strict=True):
            if not cost:
                raise PlanError(f"{layer.name}: an accelerator of {chip.name} can run it: none can")
        rows = zip(graph.layers, self._costs, strict=True)
        self._wanted = [_wished(layer, cost, chip, place) for layer, cost in rows]
        self._chip, self._region = chip, Region(graph)
        self._bound, self._several = cycles_bound(graph, chip) if bound is None else bound, several

    def together(self, objective: Objective | None) -> ChipPlan:
        """The best plan on all accelerators that was found."""
        return min(self._priced(prices(objective, self._chip)), key=judge(objective, self._chip))

    def no_worse_alone(self, best: ChipPlan, objective: Objective | None) -> ChipPlan:
        """The best of a plan and of those on each of the accelerators by itself."""
        cost = judge(objective, self._chip)
        for lane in self.able() if len(self._chip.accelerators) > 1 else ():
            one = self._chip.accelerators[lane]
            if isinstance(objective, Energy) or least_alone(self._region.graph.layers, one) < cost(best):
                with _no_garbage():
                    found = parts_alone(self._region, one, lane, self._wanted, prices(objective, Soc((one,))))
                    best = min([best, *map(self._planned, found)], key=cost)
        return best

    def with_fewer_copies(self) -> list[ChipPlan]:
        """Plans with fewer and fewer bytes that go through main memory."""
        return self._priced([Price(copied=weight) for weight in _LESS])

    def able(self) -> list[int]:
        """The accelerators that may run every layer."""
        return [lane for lane in range(len(self._chip.accelerators)) if all(lane in cost for cost in self._wanted)]

    def alone(self, lane: int, layout: Layout) -> ChipPlan:
        """The plan with all layers on one accelerator, as they are laid out for it."""
        return self._planned(side_by_side([part_of_all(self._region, lane, layout)]))

    def _priced(self, prices: Sequence[Price]) -> list[ChipPlan]:
        with _no_garbage():
            found = best_parts(self._region, self._chip, self._wanted, prices, self._several)
            return [self._planned(parts) for parts in found]

    def _planned(self, parts: Sequence[PlacedPart]) -> ChipPlan:
        plan = chip_plan(self._region, self._chip, parts)
        cycles = lanes_timeline(plan).total  # as the core goes round, which the search leaves out
        return replace(plan, cycles=cycles, bound=self._bound, costs=self._costs)


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
