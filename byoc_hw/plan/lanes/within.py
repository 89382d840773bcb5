"""The plans of a region on a chip under a bound on its bytes of main memory, of flash, or of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.planner import ChipPlanner
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


class SizedChipPlans:
    """The plans of a region on a chip that a search has found so far, by their sizes, and the search for further ones.

    There are those on several accelerators with less and less that goes through main memory, and those on one of them.
    """

    def __init__(self, graph: Graph, chip: Soc, border: Border, place: Mapping[str, str]) -> None:
        self._planner, self._border = ChipPlanner(graph, chip, place), border
        self._alone = {lane: SizedPlans(graph, chip.accelerators[lane], border) for lane in self._planner.able()}
        self._found: dict[tuple[int, Choices | None], SizedChipPlan] = {
            (number, None): sized_on_chip(plan, border) for number, plan in enumerate(self._planner.with_fewer_copies())
        }

    def within(self, ram: int) -> SizedChipPlan | None:
        """The fastest plan with at most so many bytes of main memory; None where none is found."""
        self._search(lambda plans: [plans.within(ram)])
        return min(self._fitting(ram), key=lambda one: (one.cycles, one.ram, one.flash), default=None)

    def smallest(self) -> SizedChipPlan:
        """The plan with the fewest bytes of main memory; of several the one with the least flash, then the fastest."""
        self._search(lambda plans: [plans.smallest()])
        return min(self._found.values(), key=lambda one: (one.ram, one.flash, one.cycles))

    def with_less_flash(self, ram: int) -> list[SizedChipPlan]:
        """Plans with at most so many bytes of main memory: the fastest, and slower ones with less and less flash."""
        self._search(lambda plans: plans.with_less_flash(ram))
        return with_less_and_less_flash(self._fitting(ram))

    def _search(self, plans_of: Callable[[SizedPlans], list[Sized | None] | list[Sized]]) -> None:
        """Add plans on one accelerator."""
        for lane, plans in self._alone.items():
            with suppress(PlanError):  # a layer does not fit this accelerator
                for one in plans_of(plans):
                    if one is not None and (lane, one.layout.choices) not in self._found:
                        plan = self._planner.alone(lane, one.layout)
                        self._found[lane, one.layout.choices] = sized_on_chip(plan, self._border)

    def _fitting(self, ram: int) -> list[SizedChipPlan]:
        return [one for one in self._found.values() if one.ram <= ram]
