"""The plan of a stage's program, so that it fits its PE: as it is generated, and as plans have its cycles and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_hw.accelerator import Accelerator
from byoc_hw.mesh.code_size import stage_code_owners
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.stage_program import StageProgram
from byoc_hw.padding import padded
from byoc_hw.plan.fitting import Fitted, Fitting
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.place.arena import ModelMemory, place_model
from byoc_hw.plan.planned import PlannedRegion, flash_bytes, table_bytes
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import RegionPlan
from byoc_hw.program import ALIGNMENT, HostCall, Program, Workspace

_TRIES = 4
"""How often a plan is made smaller because its constants are more than was taken."""

_ANY_FLASH = 1 << 60
"""Bytes of flash that no plan has."""


@dataclass(frozen=True, eq=False)
class StagePlan:
    """A stage, the plans of its regions by name, and its arena. `buffers` is the bytes of its channels' buffers, `host`
    those of the constants of its functions of the host."""

    stage: StageProgram
    program: Program
    regions: Mapping[str, PlannedRegion]
    memory: ModelMemory
    buffers: int
    host: int

    @property
    def constants(self) -> int:
        """Bytes of the constants of its regions."""
        return _constants(self.regions)

    @property
    def nbytes(self) -> int:
        """Bytes of its PE, if it is there alone."""
        return self.constants + self.host + self.memory.ram + self.buffers

    @property
    def arena(self) -> int:
        """Of these, the bytes that the stages of a PE share."""
        return self.memory.arena.nbytes

    @property
    def code(self) -> int:
        """Bytes of its code and tables, but for its ports and for what each PE has."""
        return sum(stage_code_owners(self.program, sum(map(table_bytes, self.regions.values()))).values())

    def cycles(self, accelerator: Accelerator) -> int:
        """Accelerator cycles of a frame, without functions of the host."""
        return sum(timeline(one, accelerator).total for one in self.regions.values() if isinstance(one, RegionPlan))


def plan_stage(
    stage: StageProgram, accelerator: Accelerator, network: MeshNetwork, buffers: int, room: int | None
) -> StagePlan:
    """A stage of a network planned so that it fits `room` bytes, if it can, with `buffers` bytes for its channels;
    without `room`, the fastest plan. Raises `PlanError` as `plan_region`."""
    own, host = workspaces_of(stage.program, network.workspaces), network.constants_of(stage.program)
    program = padded(stage.program, accelerator)

    def placed(plans: Mapping[str, PlannedRegion]) -> ModelMemory:
        return place_model(program, own, {name: plan.memory for name, plan in plans.items()}, ALIGNMENT, False)

    plans: Mapping[str, PlannedRegion] = {
        graph.name: plan_region(graph, accelerator) for graph in stage.program.regions
    }
    memory = placed(plans)
    if room is not None and plans and memory.ram + _constants(plans) + host + buffers > room:
        fitted = _fitted(Fitting(program, plans, accelerator, placed, False, {}), room - host - buffers)
        plans, memory = fitted.plans, fitted.memory
    return StagePlan(stage, program, plans, memory, buffers, host)


def _fitted(fitting: Fitting, room: int) -> Fitted:
    """The fastest plans found whose arena and constants fit together; where none do, those with the smallest arena."""
    constants = _constants(fitting.fastest.plans)
    for _ in range(_TRIES):
        found = fitting.within(room - constants, _ANY_FLASH) if room > constants else None
        if found is None:
            break
        if found.memory.ram + _constants(found.plans) <= room:
            return found
        constants = max(constants + 1, _constants(found.plans))  # slices of weights may be there more than once
    smallest = fitting.smallest()
    constants = _constants(smallest.plans)
    found = fitting.within(room - constants, smallest.flash) if room > constants else None
    if found is not None and found.memory.ram + _constants(found.plans) <= room:
        return found
    return smallest


def _constants(plans: Mapping[str, PlannedRegion]) -> int:
    return sum(map(flash_bytes, plans.values()))


def workspaces_of(program: Program, workspaces: Sequence[Workspace]) -> list[Workspace]:
    """Those of the host functions that a program calls."""
    used = {name for call in program.calls if isinstance(call, HostCall) for moment in call.moments for name in moment}
    return [space for space in workspaces if space.name in used]
