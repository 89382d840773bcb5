"""What a planned region costs with the core that drives it: the core's instructions, the time of both, energy.

The core's instructions for each step are counted under QEMU, as those of the layers on the host, and fitted by
`benchmarks/host_costs.py`. Those in the HAL are the accelerator's `hal_instructions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from byoc_hw.accelerator import Accelerator, HalInstructions
from byoc_hw.host_cost_table import REGIONS
from byoc_hw.objective import Energy
from byoc_hw.plan.array.kinds import job_cycles
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.steps import (
    Await,
    Copy,
    CopyWait,
    EngineAwait,
    EngineSignal,
    Job,
    JobWait,
    RegionPlan,
    Turn,
    WholeLayer,
)
from byoc_hw.soc import Hardware, Soc, accelerators_of

TiledPlan = RegionPlan | ChipPlan
"""A plan whose cycles are known: on a HAL, or on several."""


def core_driver(plan: TiledPlan) -> str:
    """The row of the table of the code that drives a region: of one accelerator at work, of several at once, or of
    engines with events."""
    if isinstance(plan, ChipPlan) and plan.counters:
        return "chip with events"
    several = isinstance(plan, ChipPlan) and len({part.lane for part in plan.parts}) > 1
    return "chip" if several else "accelerator"


def core_work(plan: TiledPlan) -> Mapping[str, int]:
    """What the core does for a region, by name: it is called, calls layers, starts copies and jobs, waits, has engines
    signal and await events, and goes from lane to lane."""
    parts = [plan] if isinstance(plan, RegionPlan) else [part.plan for part in plan.parts]
    steps = Counter(type(step) for part in parts for step in part.steps)
    work = {"call": 1, "layer": sum(len(part.calls) for part in parts)}
    work |= {"copy": steps[Copy] + steps[WholeLayer], "job": steps[Job], "wait": steps[CopyWait] + steps[JobWait]}
    return work | {"event": steps[EngineSignal] + steps[EngineAwait], "turn": steps[Turn]}


def core_instructions(plan: TiledPlan, hardware: Hardware) -> int:
    """About how many instructions the core takes to drive a region, with those in the HAL."""
    costs = REGIONS[core_driver(plan)]
    driving = sum(costs.get(unit, 0.0) * amount for unit, amount in core_work(plan).items())
    engines = accelerators_of(hardware)
    return round(driving) + sum(_in_the_hal(part, one.hal_instructions) for part, one in _parts(plan, engines))


def _in_the_hal(plan: RegionPlan, each: HalInstructions) -> int:
    """The core's instructions in the HAL: each start, and each wait or await once."""
    steps = Counter(type(step) for step in plan.steps)
    rows = sum(isinstance(step, Copy) and step.rows > 1 for step in plan.steps)
    return (
        each.copy * steps[Copy]
        + each.rows * rows
        + each.job * (steps[Job] + steps[WholeLayer])
        + each.wait * (steps[CopyWait] + steps[JobWait] + steps[Await])
        + each.event * (steps[EngineSignal] + steps[EngineAwait])
    )


_EVENTS_OF_AN_ACTION = 1.3
"""The signals and awaits of a copy or a job, on average."""


def instructions_of_an_action(chip: Soc) -> float:
    """About how many instructions the core of a chip takes to start a copy or a job and to wait for it, or to have the
    engines wait."""
    costs = REGIONS["chip with events" if chip.events else "chip"]
    hals = [one.hal_instructions for one in chip.accelerators]
    events = _EVENTS_OF_AN_ACTION * (costs.get("event", 0.0) + sum(hal.event for hal in hals) / len(hals))
    waits = costs.get("wait", 0.0) + sum(hal.wait for hal in hals) / len(hals)
    started = sum(hal.copy + hal.job for hal in hals) / len(hals)
    return (sum(costs.get(unit, 0.0) for unit in ("copy", "job")) + started) / 2 + (events if chip.events else waits)


def plan_cycles(plan: TiledPlan, hardware: Hardware) -> int:
    """The cycles of the engines, as if the core took no time."""
    if isinstance(plan, ChipPlan):
        return plan.cycles
    assert isinstance(hardware, Accelerator), "only a chip has a plan on several"
    return timeline(plan, hardware).total


def region_cycles(plan: TiledPlan, hardware: Hardware) -> int:
    """About how many cycles a region takes from call to return: those of the engines and a part of the core's, as these
    wait for each other now and then, or the core's if these are more."""
    costs = REGIONS[core_driver(plan)]
    core = core_instructions(plan, hardware)
    beyond = costs.get("alone", 0.0) + costs.get("shared", 0.0) * core
    rate = hardware.host_cycles_per_instruction
    return round(max(plan_cycles(plan, hardware) + beyond * rate, core * rate))


# ---------------------------------------------------------------- energy


@dataclass(frozen=True)
class Spent:
    """The energy of something: of each accelerator's array by name, of copies, of the core; in the user's unit."""

    array: Mapping[str, float]
    copies: float
    core: float

    @property
    def total(self) -> float:
        return sum(self.array.values()) + self.copies + self.core

    def __str__(self) -> str:
        arrays = "".join(f"{name} {spent:,.0f}, " for name, spent in self.array.items())
        return f"{self.total:,.0f} ({arrays}copies {self.copies:,.0f}, core {self.core:,.0f})"

    def __add__(self, other: Spent) -> Spent:
        names = dict.fromkeys((*self.array, *other.array))
        array = {name: self.array.get(name, 0.0) + other.array.get(name, 0.0) for name in names}
        return Spent(array, self.copies + other.copies, self.core + other.core)


NO_ENERGY = Spent({}, 0.0, 0.0)


def region_energy(plan: TiledPlan, hardware: Hardware, energy: Energy) -> Spent:
    """The energy of a region."""
    engines = accelerators_of(hardware)
    array = {one.name: 0.0 for one in engines}
    copied = 0
    for part, accelerator in _parts(plan, engines):
        array[accelerator.name] += array_cycles(part, accelerator) * energy.array[accelerator.name]
        copied += sum(step.bytes_moved for step in part.steps if isinstance(step, Copy))
    return Spent(array, copied * energy.copied, core_instructions(plan, hardware) * energy.host)


def array_cycles(plan: RegionPlan, accelerator: Accelerator) -> int:
    """Cycles in which the array works, or a library's engine."""
    jobs = (
        job_cycles(plan.layers[call.index], step.ifm_shape, step.ofm_shape, accelerator, step.kernel)
        for call in plan.calls
        for step in call.steps
        if isinstance(step, Job)
    )
    return sum(jobs) + sum(step.cycles for step in plan.steps if isinstance(step, WholeLayer))


def _parts(plan: TiledPlan, engines: tuple[Accelerator, ...]) -> Iterator[tuple[RegionPlan, Accelerator]]:
    if isinstance(plan, RegionPlan):
        yield plan, engines[0]
    else:
        for part in plan.parts:
            yield part.plan, engines[part.lane]
