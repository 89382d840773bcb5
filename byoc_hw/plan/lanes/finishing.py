"""Plans with addresses: parts in the best order, shares that stay in local memory, some copies and jobs cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.every import FormOfLayers
from byoc_hw.plan.lanes.finer_parts import parts_cut_finely
from byoc_hw.plan.lanes.handover import arranged
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, in_shares, ordered_parts
from byoc_hw.plan.lanes.kept_shares import with_kept_shares
from byoc_hw.plan.lanes.lane_places import best_placed
from byoc_hw.plan.lanes.oriented import Oriented, OrientedPart
from byoc_hw.plan.lanes.part_order import parts_in_better_order
from byoc_hw.plan.lanes.price import PlanCosts, actions_of
from byoc_hw.plan.lanes.profile import Option, profile_of
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.soc import Soc

_ORDERED = 40_000
"""The most copies and jobs that are scheduled in other orders of the parts."""

_CUT_SAVES = 1.08
"""Copies and jobs are cut of plans that cost less than so many times as much as the best one, both before they are cut:
what cuts save hardly ever differs by more."""


@dataclass(frozen=True)
class FinishedPlan:
    """Parts that are laid out, and what they cost together."""

    ordered: OrderedParts
    cost: float


def part_of_all(region: Region, lane: int, layout: Layout) -> PlacedPart:
    """All layers of a region as one part, as they are laid out for an accelerator."""
    every = tuple(range(len(region.graph.layers)))
    ends = tuple((tensor, 0) for tensor in region.arguments)
    return PlacedPart(OrientedPart(PartCut(lane, every), layout.mapped, ends, (None,) * len(every)), layout)


class Finishing:
    """Gives the parts of plans addresses on a chip; they are as those of `oriented`, which may be cut for the chip with
    its shared memories divided."""

    def __init__(self, oriented: Oriented, chip: Soc, costs: PlanCosts) -> None:
        self._oriented, self._costs = oriented, costs
        self._region, self._chip = oriented.region, chip

    def finished(self, plans: Iterable[Sequence[FormOfLayers]], least: float) -> list[FinishedPlan]:
        """Plans with their parts in the best order, their addresses, and some copies and jobs cut of those that are
        near the best one of them, or `least`, which is known."""
        arranged = [self._arranged(self._in_better_order(plan)) for plan in plans]
        least = min([least, *(one.cost for one in arranged)])
        return [self._cut_finely(one) if one.cost < _CUT_SAVES * least else one for one in arranged]

    def of_parts(self, parts: Sequence[PlacedPart], near: float = inf) -> FinishedPlan:
        """Parts in a possible order, as other plans are finished; cut where they cost less than `near` before."""
        found = self._arranged(parts)
        return self._cut_finely(found) if found.cost < near else found

    def _in_better_order(self, plan: Sequence[FormOfLayers]) -> list[PlacedPart]:
        """The parts of a plan, then those that copy inputs to outputs."""
        most = _ORDERED // max(actions_of(plan), 1)
        moved = parts_in_better_order([option for form in plan for option in form], self._costs.together.cycles, most)
        return [*(option.placed for option in moved), *self.copies()]

    def copies(self) -> list[PlacedPart]:
        """The parts that copy inputs to outputs."""
        return [PlacedPart(one, lay_out(one.mapped, Choices((), (), ()))) for one in self._oriented.copies()]

    def _cut_finely(self, plan: FinishedPlan) -> FinishedPlan:
        """A plan with some copies and jobs cut."""
        price = self._costs.price
        finer = parts_cut_finely(plan.ordered, self._chip, price.action / price.cycle)
        return plan if finer is plan.ordered else self._priced(finer)

    def _priced(self, ordered: OrderedParts) -> FinishedPlan:
        """Parts, and what they cost together."""
        price = self._costs.price
        profiles = (Option(one.part, profile_of(one.layout, pieces=False)) for one in ordered.parts)
        return FinishedPlan(ordered, sum(map(price.of, profiles)) + price.cycle * ordered.order.cycles)

    def _arranged(self, parts: Sequence[PlacedPart]) -> FinishedPlan:
        """Parts with their addresses, and tensors or shares of them that stay in local memory."""
        found, outside = [], self._region.arguments
        sharing = any(self._chip.group_of(part.lane) for part in parts)
        if sharing:
            found.append(self._priced(ordered_parts(arranged(parts, self._chip, outside), self._chip)))
        if not (sharing and self._oriented.chip.shared):
            found.append(self._apart(parts))
        return min(found, key=lambda one: one.cost)

    def _apart(self, parts: Sequence[PlacedPart]) -> FinishedPlan:
        """Parts with their addresses in memories, or shares of them, that no other accelerator touches."""
        own, price = self._oriented.chip, self._costs.price
        placed = best_placed(parts, own)
        kept = with_kept_shares(placed, own, self._region.arguments, price.action / price.cycle)
        return self._priced(in_shares(kept, self._chip) if own is not self._chip else kept)
