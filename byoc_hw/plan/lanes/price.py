"""What the search for parts compares: the cycles of all together, and what its objective adds for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from byoc_hw.objective import Energy, Objective
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.core import instructions_of_an_action, region_cycles, region_energy
from byoc_hw.plan.lanes.engine_schedule import NEVER
from byoc_hw.plan.lanes.every import FormOfLayers
from byoc_hw.plan.lanes.profile import Option
from byoc_hw.plan.lanes.together import Together
from byoc_hw.soc import Soc

LEAST = 2
"""Cycles that one more copy or job has to save where only cycles count: of plans that are about as fast, the one that
asks less of the core is better."""

_SHARES = (0.0, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Shares of the core's work for a copy or job that the engines are taken to wait for it."""

_TIE = 1e-6
"""The weight of a cycle where only energy counts."""


@dataclass(frozen=True)
class Price:
    """The weights of a cycle of all parts together, of one of an array by lane, of a copied byte, and of a copy or job,
    which the core starts."""

    cycle: float = 1
    array: tuple[float, ...] | None = None
    copied: float = 0
    action: float = 0

    def of(self, part: Option) -> float:
        """What a part costs beside the cycles of all together."""
        profile = part.profile
        array = 0 if self.array is None else self.array[part.part.cut.lane] * profile.load[0]
        return array + self.copied * profile.copied + self.action * len(profile.actions)

    def cycles(self, cost: float) -> int:
        """The least cycles that cost so much."""
        return ceil(cost / self.cycle) if cost < NEVER * self.cycle else NEVER


@dataclass(frozen=True)
class PlanCosts:
    """What plans cost at a price, with all that is known of parts `together`."""

    price: Price
    together: Together

    def of(self, plan: Sequence[FormOfLayers], limit: float = inf) -> float:
        """What some parts cost. Where this is `limit` or more, it may be any number in between."""
        options = [option for form in plan for option in form]
        spent = sum(map(self.price.of, options))
        cycles = self.together.cycles(options, self.price.cycles(limit - spent))
        return spent + self.price.cycle * cycles


def actions_of(plan: Sequence[FormOfLayers]) -> int:
    """The copies and jobs of a plan."""
    return sum(len(option.profile.actions) for form in plan for option in form)


def prices(objective: Objective | None, chip: Soc) -> Sequence[Price]:
    """What parts cost for an objective: with several answers, the best plan of any of them is the one."""
    action = instructions_of_an_action(chip)
    if objective is None:
        return [Price(action=LEAST)]
    if isinstance(objective, Energy):
        array = tuple(objective.array[one.name] for one in chip.accelerators)
        return [Price(_TIE, array, objective.copied, action * objective.host)]
    return [Price(action=max(share * action * chip.host_cycles_per_instruction, LEAST)) for share in _SHARES]


def judge(objective: Objective | None, chip: Soc) -> Callable[[ChipPlan], float]:
    """What a plan costs for an objective: its cycles, those from call to return, or its energy."""
    if objective is None:
        return lambda plan: plan.cycles
    if isinstance(objective, Energy):
        return lambda plan: region_energy(plan, chip, objective).total
    return lambda plan: region_cycles(plan, chip)
