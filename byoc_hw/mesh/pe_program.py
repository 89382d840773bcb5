"""The program of a PE: that of its stage, or of several stages, which are one project with one arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from byoc_hw.mesh.pe_stages import bytes_of_pe, stage_label
from byoc_hw.mesh.stage_plan import StagePlan
from byoc_hw.plan.place.arena import ModelMemory
from byoc_hw.plan.place.by_lifetime import Arena
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.program import Program, ProgramStage


@dataclass(frozen=True, eq=False)
class PePlan:
    """The program of a PE, and the plans of its stages by their numbers."""

    name: str
    stages: Mapping[int, StagePlan]

    @property
    def plans(self) -> tuple[StagePlan, ...]:
        """The plans of its stages, in order."""
        return tuple(self.stages.values())

    @cached_property
    def program(self) -> Program:
        """The program of its stage; of several, one with what all of them read and write, and a function for each."""
        programs = [one.program for one in self.plans]
        if len(programs) == 1:
            return programs[0]
        inputs = tuple(buffer for one in programs for buffer in one.inputs)
        outputs = tuple(buffer for one in programs for buffer in one.outputs)
        calls = tuple(call for one in programs for call in one.calls)
        parts = [
            ProgramStage(stage_label(number), len(one.calls)) for number, one in zip(self.stages, programs, strict=True)
        ]
        return Program(self.name, inputs, outputs, calls, tuple(parts))

    @property
    def regions(self) -> dict[str, PlannedRegion]:
        """The plans of all its regions, by name."""
        return {name: region for one in self.plans for name, region in one.regions.items()}

    @cached_property
    def memory(self) -> ModelMemory:
        """Its arena: the stages' own ones, one over the other."""
        return shared_memory([one.memory for one in self.plans])

    @property
    def nbytes(self) -> int:
        """Its bytes for data."""
        return bytes_of_pe((one.nbytes, one.arena) for one in self.plans)


def shared_memory(memories: Sequence[ModelMemory]) -> ModelMemory:
    """The arena of some programs of which one runs at a time: each has its blocks where it has them alone."""
    largest = max(memories, key=lambda one: one.arena.nbytes)
    if len(memories) == 1:
        return largest
    arena = Arena(
        {name: offset for one in memories for name, offset in one.arena.offsets.items()},
        largest.arena.nbytes,
        largest.arena.lower_bound,
        largest.arena.proven,
    )
    during, moments = dict[str, range](), list[tuple[str, frozenset[str]]]()
    for one in memories:
        first = len(moments)
        during |= {name: range(first + at.start, first + at.stop) for name, at in one.during.items()}
        moments += one.moments
    return replace(
        largest,
        arena=arena,
        blocks=tuple(block for one in memories for block in one.blocks),
        scratch={name: place for one in memories for name, place in one.scratch.items()},
        moments=tuple(moments),
        during=during,
        constants=sum(one.constants for one in memories),
    )
