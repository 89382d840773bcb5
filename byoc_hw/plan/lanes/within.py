"""The plans of a region on a chip under a bound on its bytes of main memory, of flash, or of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.carried_out import CarriedOut, plan_of, with_layers_of
from byoc_hw.plan.lanes.joint import OrderedParts
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.lanes.planner import ChipPlanner
from byoc_hw.plan.lanes.shared_blocks import SharedBlocks
from byoc_hw.plan.planned import flash_bytes, table_bytes
from byoc_hw.plan.search.within import Border, Sized, SizedPlans, with_less_and_less_flash
from byoc_hw.soc import Soc


@dataclass(frozen=True)
class SizedChipPlan:
    """A plan of a region on a chip, with its bytes of main memory at the peak, and of flash."""

    plan: ChipPlan
    ram: int
    flash: int

    @property
    def cycles(self) -> int:
        """Cycles of the region."""
        return self.plan.cycles

    @property
    def choices(self) -> ChipChoices | None:
        """What the plan follows from."""
        return self.plan.choices


def sized_on_chip(plan: ChipPlan, border: Border) -> SizedChipPlan:
    """The sizes of a plan."""
    return SizedChipPlan(plan, plan.memory.peak(border.inputs, border.outputs), flash_bytes(plan) + table_bytes(plan))


_NEAR = 1.02
"""How many times the cycles of the fastest plan it takes at most with shared blocks, where no others are searched."""


class SizedChipPlans:
    """The plans of a region on a chip that a search has found so far, and the search for further ones.

    There are the fastest plan, those on several accelerators with less and less that goes through main memory, these
    with tensors that share blocks of it, and plans on one of the accelerators.
    """

    def __init__(self, graph: Graph, chip: Soc, border: Border, place: Mapping[str, str]) -> None:
        self._planner, self._border = ChipPlanner(graph, chip, place), border
        self._carried_out = CarriedOut(graph, chip)
        self._alone = {lane: SizedPlans(graph, chip.accelerators[lane], border) for lane in self._planner.able()}
        self._known_alone: set[tuple[int, Choices]] = set()
        self._found: dict[ChipChoices, SizedChipPlan] = {}
        self._fastest = _WithSharedBlocks(known_plan(graph, chip, place), self._carried_out, border)

    def within(self, ram: int) -> SizedChipPlan | None:
        """The fastest plan with at most so many bytes of main memory; None where none is found."""
        near = self._add(self._fastest.within(ram))
        if near is not None and near.cycles <= _NEAR * self._fastest.plan.cycles:
            return near
        self._search_within(ram)
        self._search_alone(lambda plans: [plans.within(ram)])
        return min(self._fitting(ram), key=lambda one: (one.cycles, one.ram, one.flash), default=None)

    def smallest(self) -> SizedChipPlan:
        """The plan with the fewest bytes of main memory; of several the one with the least flash, then the fastest."""
        for one in (self._fastest, *self._with_fewer_copies):
            self._add(one.smallest())
        self._search_alone(lambda plans: [plans.smallest()])
        return min(self._found.values(), key=lambda one: (one.ram, one.flash, one.cycles))

    def with_less_flash(self, ram: int) -> list[SizedChipPlan]:
        """Plans with at most so many bytes of main memory: the fastest, and slower ones with less and less flash."""
        self._search_within(ram)
        self._search_alone(lambda plans: plans.with_less_flash(ram))
        return with_less_and_less_flash(self._fitting(ram))

    @cached_property
    def _with_fewer_copies(self) -> list[_WithSharedBlocks]:
        plans = self._planner.with_fewer_copies()
        return [_WithSharedBlocks(plan, self._carried_out, self._border) for plan in plans]

    def _search_within(self, ram: int) -> None:
        """Add plans on several accelerators."""
        for one in (self._fastest, *self._with_fewer_copies):
            self._add(one.within(ram))

    def _search_alone(self, plans_of: Callable[[SizedPlans], list[Sized | None] | list[Sized]]) -> None:
        """Add plans on one accelerator."""
        for lane, plans in self._alone.items():
            with suppress(PlanError):  # a layer does not fit this accelerator
                for one in plans_of(plans):
                    if one is not None and (lane, one.layout.choices) not in self._known_alone:
                        self._known_alone.add((lane, one.layout.choices))
                        self._add(sized_on_chip(self._planner.alone(lane, one.layout), self._border))

    def _add(self, plan: SizedChipPlan | None) -> SizedChipPlan | None:
        if plan is not None:
            assert plan.choices is not None, "the planner's plans follow from choices"
            self._found.setdefault(plan.choices, plan)
        return plan

    def _fitting(self, ram: int) -> list[SizedChipPlan]:
        return [one for one in self._found.values() if one.ram <= ram]


class _WithSharedBlocks:
    """A plan, and the same with more and more tensors that share blocks of main memory."""

    def __init__(self, plan: ChipPlan, carried_out: CarriedOut, border: Border) -> None:
        assert plan.choices is not None, "the planner's plans follow from choices"
        self.plan, self._choices, self._border = plan, plan.choices, border
        self._region, ordered = carried_out.parts(plan.choices)
        self._blocks = SharedBlocks(self._region, plan.chip, ordered, border)

    def within(self, ram: int) -> SizedChipPlan | None:
        """The fastest that has at most so many bytes of main memory; None where none has."""
        found = self._blocks.within(ram)
        return None if found is None else self._sized(found)

    def smallest(self) -> SizedChipPlan:
        """The one with the fewest bytes of main memory."""
        return self._sized(self._blocks.smallest())

    def _sized(self, found: OrderedParts) -> SizedChipPlan:
        plan, choices = self.plan, self._choices
        if found.blocks:
            made = plan_of(self._region, plan.chip, found, choices.lanes)
            made = with_layers_of(plan.graph, choices.order, made)
            plan = replace(made, bound=plan.bound, costs=plan.costs)
        return sized_on_chip(plan, self._border)
