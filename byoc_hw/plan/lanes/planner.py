"""Plans a region on a chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph, Layer
from byoc_hw.objective import Energy, Objective, wished
from byoc_hw.plan.bound.prices import cycles_bound, known_bound
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.carried_out import CarriedOut, plan_of, with_layers_of
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.finer_parts import parts_cut_finely
from byoc_hw.plan.lanes.finishing import part_of_all
from byoc_hw.plan.lanes.joint import OrderedParts, ordered_parts, side_by_side
from byoc_hw.plan.lanes.kept_shares import with_kept_shares
from byoc_hw.plan.lanes.layer_forms import Several
from byoc_hw.plan.lanes.nearby_parts import parts_nearby
from byoc_hw.plan.lanes.price import LEAST, Price, judge, prices
from byoc_hw.plan.lanes.search import best_parts, parts_on
from byoc_hw.plan.lanes.sharing import layer_costs
from byoc_hw.plan.layer_orders import LayerOrder, graph_in_order, orders, own_order
from byoc_hw.plan.stages import Layout
from byoc_hw.soc import Soc

NO_WISHES: Mapping[str, str] = {}
"""All layers run where they are cheapest."""


_ORDERED = 12
"""The most layers of a region of which several orders are tried: each takes as long to plan as the first."""

_SMALL_CHIP = 3
"""The most accelerators of a chip that is held against each chip without some of them."""

_FAR = 1.1
"""How far from the bound a plan is for which choices near those of its parts are tried."""

_NEARBY = 2
"""The plans for which they are: the best ones, in different orders of the layers, of the chip and of each choice of
accelerators."""

_LESS = (0.06, 0.1, 0.25, 0.5, 1.0, 4.0)
"""Cycles that a copied byte is charged in plans that are to copy less, and so keep less in main memory."""

_FEW = 8
"""The most layers of a region whose plans with a little less to copy are tried, too: where shares of tensors stay, and
copies and jobs are cut, one of them is often faster."""


def plan_on_chip(
    graph: Graph, chip: Soc, place: Mapping[str, str] = NO_WISHES, objective: Objective | None = None
) -> ChipPlan:
    """The plan of a region on a chip: of the fewest cycles of its engines, or the best for an objective. `place` has
    accelerators by name for layers, model operators and layer kinds.

    Raises `InvalidInput` where an accelerator cannot run a layer that is wished there, `PlanError` where none can.
    """
    planner, cost = ChipPlanner(graph, chip, place), judge(objective, chip)

    def cost_of(one: _Found) -> float:
        return cost(one.plan)

    with seldom_collected():
        several_orders = len(chip.accelerators) > 1 and len(graph.layers) <= _ORDERED
        tried = list(orders(graph)) if several_orders else [own_order(graph)]
        several = Several(len(tried))
        found = sorted(_in_orders(planner, objective, range(len(chip.accelerators)), tried, several), key=cost_of)
        best, near = found[0], found[:_NEARBY]
        for lanes in planner.fewer():
            if isinstance(objective, Energy) or planner.may_take_less(lanes, cost_of(best)):
                faster = several if isinstance(objective, Energy) else replace(several, known=cost_of(best))
                fewer = sorted(_in_orders(planner, objective, lanes, tried, faster), key=cost_of)
                best, near = min([best, *fewer], key=cost_of), [*near, *fewer[:_NEARBY]]
        return min(best.plan, *(one.nearby(chip) for one in near), key=cost)


def plan_as_chosen(graph: Graph, chip: Soc, choices: ChipChoices) -> ChipPlan:
    """The plan of a region on a chip that follows from choices. Raises `PlanError` where they do not fit these."""
    carried_out, costs = CarriedOut(graph, chip), layer_costs(graph, chip)
    for lane, index in carried_out.placed(choices):
        if lane not in costs[index]:
            rule = f"accelerator {chip.accelerators[lane].name} runs its layers"
            raise PlanError(f"{graph.name}: {rule}: got {graph.layers[index].name}")
    return replace(carried_out.plan(choices), bound=cycles_bound(graph, chip), costs=tuple(costs))


@dataclass(frozen=True)
class _Found:
    """A plan of a region, and the parts that it was made of, by the planner of the layers in some order."""

    plan: ChipPlan
    parts: OrderedParts
    planner: ChipPlanner
    order: LayerOrder
    graph: Graph
    lanes: Sequence[int]

    def nearby(self, chip: Soc) -> ChipPlan:
        """The plan with choices near those of its parts."""
        near = self.plan.cycles <= _FAR * self.plan.bound
        if near or chip.shared or len({part.lane for part in self.parts.parts}) == 1:
            return self.plan
        uncut = self.parts.uncut or self.parts.parts
        parts = parts_nearby(uncut, chip)
        if all(one is other for one, other in zip(parts.parts, uncut, strict=True)):
            return self.plan
        kept = with_kept_shares(parts, chip, Region(self.graph).arguments, LEAST)
        finished = parts_cut_finely(kept, chip, LEAST)
        return with_layers_of(self.graph, self.order, self.planner.planned(finished, self.lanes))


def _in_orders(
    planner: ChipPlanner,
    objective: Objective | None,
    lanes: Sequence[int],
    tried: Sequence[LayerOrder],
    several: Several,
) -> Iterator[_Found]:
    """The plans on some accelerators with the layers in a few orders, one for each."""
    graph = planner.graph
    for order in tried:
        ordered = planner.in_order(order)
        for plan, parts in ordered.on(lanes, objective, several):
            yield _Found(with_layers_of(graph, order, plan), parts, ordered, order, graph, lanes)


class ChipPlanner:
    """Plans a region on a chip, whose layers stay in their order. As `plan_on_chip`; `bound` is worked out if None."""

    def __init__(self, graph: Graph, chip: Soc, place: Mapping[str, str], bound: int | None = None) -> None:
        self.graph, self._place = graph, place
        self._costs = tuple(layer_costs(graph, chip))
        for layer, cost in zip(graph.layers, self._costs, strict=True):
            if not cost:
                raise PlanError(f"{layer.name}: an accelerator of {chip.name} can run it: none can")
        rows = zip(graph.layers, self._costs, strict=True)
        self._wanted = [_wished(layer, cost, chip, place) for layer, cost in rows]
        self._chip, self._region = chip, Region(graph)
        self._bound = cycles_bound(graph, chip) if bound is None else bound

    def in_order(self, order: LayerOrder) -> ChipPlanner:
        """The planner of the same layers in another order."""
        return ChipPlanner(graph_in_order(self.graph, order), self._chip, self._place, self._bound)

    def on(
        self, lanes: Sequence[int], objective: Objective | None, several: Several
    ) -> list[tuple[ChipPlan, OrderedParts]]:
        """The best plan on some of the accelerators that was found, and its parts; none where a layer has none there.
        The search is one of `several`."""
        priced = prices(objective, self._chip.only(lanes))
        if objective is None and len(self.graph.layers) <= _FEW:
            priced = [*priced, Price(copied=_LESS[0])]
        found = self._priced(priced, lanes, several)
        cost = judge(objective, self._chip)
        return sorted(((self.planned(parts, lanes), parts) for parts in found), key=lambda one: cost(one[0]))[:1]

    def fewer(self) -> Iterator[tuple[int, ...]]:
        """Accelerators that have all of the layers without the others: of a small chip each choice, of others each by
        itself. Of choices that are alike, the first one."""
        count = len(self._chip.accelerators)
        seen = set()
        for size in range(count - 1, 0, -1) if count <= _SMALL_CHIP else (1,):
            for lanes in combinations(range(count), size):
                key = tuple(self._alike(lane) for lane in lanes)
                if key not in seen and all(any(lane in cost for lane in lanes) for cost in self._wanted):
                    seen.add(key)
                    yield lanes

    def _alike(self, lane: int) -> int:
        """The first accelerator that may take the place of one."""
        chip, alike = self._chip, range(lane + 1)
        if chip.shared or chip.with_events:
            return lane
        kinds = [replace(chip.accelerators[one], name="any", label="any") for one in alike]
        costs = [[cost.get(one) for cost in self._wanted] for one in alike]
        return next(one for one in alike if (kinds[one], costs[one]) == (kinds[lane], costs[lane]))

    def may_take_less(self, lanes: Sequence[int], cycles: float) -> bool:
        """Whether a plan on some accelerators may take fewer cycles: by those of their arrays, which share each layer
        by their speed, and by the bound of a single one."""
        total = 0.0
        for layer, cost in zip(self.graph.layers, self._wanted, strict=True):
            each = [least_alone([layer], self._chip.accelerators[lane]) for lane in lanes if lane in cost]
            total += 1 / sum(1 / one for one in each) if all(each) else 0
        if total >= cycles:
            return False
        return len(lanes) > 1 or known_bound(self.graph, self._chip.accelerators[lanes[0]]) < cycles

    def with_fewer_copies(self) -> list[ChipPlan]:
        """Plans with fewer and fewer bytes that go through main memory."""
        with seldom_collected():
            every, several = range(len(self._chip.accelerators)), Several()
            found = (self._priced([Price(copied=weight)], every, several) for weight in _LESS)
            return [self.planned(parts, every) for some in found for parts in some]

    def able(self) -> list[int]:
        """The accelerators that may run every layer."""
        return [lane for lane in range(len(self._chip.accelerators)) if all(lane in cost for cost in self._wanted)]

    def alone(self, lane: int, layout: Layout) -> ChipPlan:
        """The plan with all layers on one accelerator, as they are laid out for it."""
        parts = ordered_parts(side_by_side([part_of_all(self._region, lane, layout)]), self._chip)
        return self.planned(parts, [lane])

    def _priced(self, prices: Sequence[Price], lanes: Sequence[int], several: Several) -> list[OrderedParts]:
        if len(lanes) == len(self._chip.accelerators):
            return best_parts(self._region, self._chip, self._wanted, prices, several)
        return parts_on(self._region, self._chip, lanes, self._wanted, prices, several)

    def planned(self, parts: OrderedParts, lanes: Sequence[int]) -> ChipPlan:
        """The plan of parts in a possible order, which were cut for some of the accelerators."""
        return replace(plan_of(self._region, self._chip, parts, lanes), bound=self._bound, costs=self._costs)


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
