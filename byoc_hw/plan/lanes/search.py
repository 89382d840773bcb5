"""The search for parts: which accelerator runs which layers, which layers are cut over several, in how many stripes.

The best of a few plans, those of a beam among them, is improved step by step. What is compared are the cycles of all
parts together, and what a `Price` adds to them. The best plans get addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from math import inf

from byoc_hw.errors import PlanError
from byoc_hw.plan.lanes.beam import Beam, plain_plans
from byoc_hw.plan.lanes.changes import Improvement
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.every import EveryPlan, FormOfLayers
from byoc_hw.plan.lanes.finishing import FinishedPlan, Finishing, part_of_all
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, on_chip
from byoc_hw.plan.lanes.layer_forms import LayerForms, Several
from byoc_hw.plan.lanes.parts_in_runs import is_tight
from byoc_hw.plan.lanes.price import PlanCosts, Price, actions_of
from byoc_hw.plan.lanes.sharing import LayerCosts
from byoc_hw.plan.lanes.together import Together
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.soc import Soc

_PACKED_FIRST = 12
"""The most layers of a region whose rows are packed from the start. In larger ones the best plan without gets them: the
search ends before it has tried as much with them."""

_WORK = 90_000
_EACH = 500
_MORE = 40_000
_STARTS = 70_000
"""The most copies and jobs that the improvement schedules, over all that it tries; more for each layer, in the second
step, and for small regions, which have more starts."""

_MANY = 30
_EACH_OF_MANY = 8_000
_MOST_OF_LAYERS = 800_000
"""More for each layer of regions with more layers than so many, up to so many copies and jobs for all layers: a look at
all changes of a layer and its neighbours takes about so many."""

_EVERY = 400_000
"""The most copies and jobs that are scheduled to try all plans of a kind."""

_TRIES = 600
"""At least so many plans of a small region are scheduled, those with many copies and jobs, too."""

_FINISHED = 400
"""The copies and jobs, about, of the plans that get addresses: the best, and those that cost little more. For each of
up to two prices, or for all of more."""

_FINISHED_WITHIN = 1.2
"""What a plan that gets addresses costs at most, of the best one."""

_FAR = 1.1
"""Parts of a single accelerator are searched where everything as one part takes less than so many times the cycles that
are to be beaten."""


def best_parts(
    region: Region, chip: Soc, costs: LayerCosts, prices: Sequence[Price], several: Several
) -> list[OrderedParts]:
    """The parts of the best plan that was found for each price, in a possible order. The search is one of `several`."""
    whole = any(one.library for one in chip.accelerators)  # libraries take tensors as the model has them
    for swap in (False,) if whole else (True, False):
        found = _found(region, chip, costs, swap, prices, several)
        if any(found):
            return [min(plans, key=lambda one: one.cost).ordered for plans in found if plans]
    if all(one.library for one in chip.accelerators):  # nothing else can stop them
        rule = "an output that is a reshape of an input, or of what others read, is copied by a DMA"
        raise PlanError(f"{region.graph.name}: {rule}: libraries alone have none")
    names = ", ".join(one.name for one in chip.accelerators)
    raise PlanError(f"{region.graph.name}: each layer has a plan on one of {names}: one has none")


def _found(
    region: Region, chip: Soc, costs: LayerCosts, swap: bool, prices: Sequence[Price], several: Several
) -> list[list[FinishedPlan]]:
    """For each price the best plans that were found. Where memory is shared, parts are laid out for a share of it, or
    for all of it where none fit a share; and for all of it as if they handed over all that they can."""

    def searched(own: Soc, *, in_place: bool = False) -> list[list[FinishedPlan]]:
        search = _Search(LayerForms(region, own, costs, swap, in_place, several), chip, costs, several)
        most = _FINISHED if len(prices) <= 2 else _FINISHED // len(prices)
        return [search.finished(price, most) for price in prices]

    if not chip.shared:
        return searched(chip)
    divided = chip.divided()
    found = [] if divided is None else searched(divided)
    if not any(found):
        found = searched(chip)
    return [[*some, *others] for some, others in zip(found, searched(chip, in_place=True), strict=True)]


def parts_on(
    region: Region, chip: Soc, lanes: Sequence[int], costs: LayerCosts, prices: Sequence[Price], several: Several
) -> list[OrderedParts]:
    """As `best_parts`, on some accelerators as if the chip had no other; none where a layer has no plan there."""
    mine = [{at: cost[lane] for at, lane in enumerate(lanes) if lane in cost} for cost in costs]
    with suppress(PlanError):
        return [on_chip(one, chip, lanes) for one in best_parts(region, chip.only(lanes), mine, prices, several)]
    return []


class _Search:
    """A search among forms of layers, one of several."""

    def __init__(self, forms: LayerForms, chip: Soc, costs: LayerCosts, several: Several) -> None:
        self._forms, self._chip, self._cost, self._several, self._together = forms, chip, costs, several, Together()

    def finished(self, price: Price, most: int) -> list[FinishedPlan]:
        """The best plan that was found, others with at most so many copies and jobs that cost little more, and all
        layers as one part of the only accelerator, or this one alone where it is far from the cycles that are known.
        None if there is none."""
        costs = PlanCosts(price, self._together)
        finishing = Finishing(self._forms.oriented, self._chip, costs)
        plans = [finishing.of_parts([part]) for part in self._whole]
        if any(one.ordered.order.cycles >= _FAR * self._several.known for one in plans):
            return plans
        least = min((one.cost for one in plans), default=inf)
        return [*plans, *finishing.finished(self._promising_plans(costs, most), least)]

    @cached_property
    def _whole(self) -> list[PlacedPart]:
        """All layers as one part of the only accelerator, as they are planned there, if they can be."""
        region, accelerators = self._forms.oriented.region, self._forms.oriented.chip.accelerators
        if len(accelerators) == 1:
            with suppress(PlanError):  # then the layers fit one by one
                return [part_of_all(region, 0, known_layout(region.graph, *accelerators))]
        return []

    def _promising_plans(self, costs: PlanCosts, most: int) -> list[list[FormOfLayers]]:
        """The best plan, and others on the way to it that cost little more, with about so many copies and jobs in all:
        with addresses, and some of these cut, one of them may be faster."""
        improvement = Improvement(self._forms, costs)
        best = self._searched(costs, improvement)
        if not best:
            return []
        cost, count = costs.of(best), most // max(actions_of(best), 1)
        near = sorted(one for one in improvement.tried if cost < one <= _FINISHED_WITHIN * cost)
        return [best, *(improvement.tried[one] for one in near[: max(count - 1, 0)])]

    def _searched(self, costs: PlanCosts, improvement: Improvement) -> list[FormOfLayers]:
        """The best of a few plans that were improved step by step, and of what is put together of two of them; empty
        if there is none."""
        forms, layers = self._forms, len(self._cost)
        packs = any(one.packed_rows for one in forms.oriented.chip.accelerators)
        forms.packs, forms.measures = packs and layers <= _PACKED_FIRST, False
        plans = [*Beam(forms, self._cost, costs.price).plans(), *plain_plans(forms)]
        starts = {costs.of(plan): plan for plan in plans}
        work = _WORK + _of_layers(layers)
        if forms.small and starts:
            work = max(work + _STARTS, _TRIES * actions_of(starts[min(starts)]))
        most = self._budget(work // 2 if packs and not forms.packs else work)
        best: list[FormOfLayers] = []
        for _, start in sorted(starts.items(), key=lambda item: item[0]):
            if best and self._together.work > most:
                break
            other = improvement.changed(start, most)
            best = improvement.spliced(best, other) if best else other
        if not best:
            return best
        best = improvement.improved(best, most)
        last = self._budget(_EVERY)

        def more() -> bool:
            return self._together.work <= last

        every = EveryPlan(forms.borders, forms.of, costs.of, costs.price.cycle, forms.lanes, self._several.count, more)
        found = every.cheaper_than(costs.of(best))
        best = improvement.improved(found, self._budget(_MORE)) if found else best
        forms.packs = packs
        best = improvement.improved(best, self._more()) if packs else best
        tight = any(is_tight(option) for form in best for option in form)
        return self._measured(best, starts[min(starts)], improvement) if tight else best

    def _measured(
        self, plan: list[FormOfLayers], first: list[FormOfLayers], improvement: Improvement
    ) -> list[FormOfLayers]:
        """A plan improved with parts in measured runs. In large regions the first plan is, too, whose layers were moved
        for no estimate: the best of both is put together."""
        self._forms.measures = True
        most = self._more()
        plan = improvement.joined(plan, most)
        if len(self._cost) > _MANY:
            other = improvement.joined(first, self._more())
            plan = improvement.joined(improvement.spliced(plan, other), self._more())
            most = self._more()
        return improvement.improved(plan, most)

    def _more(self) -> int:
        """The copies and jobs that are scheduled at most when another step ends, with those so far."""
        return self._budget(_MORE + _of_layers(len(self._cost)))

    def _budget(self, work: int) -> int:
        """The copies and jobs that are scheduled at most, with those so far and this search's share of so many."""
        return self._together.work + work // self._several.count


def _of_layers(layers: int) -> int:
    """The copies and jobs that are scheduled at most for the sake of so many layers."""
    return _EACH * layers if layers <= _MANY else min(_EACH_OF_MANY * layers, _MOST_OF_LAYERS)
