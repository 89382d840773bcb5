"""The arena of a build: where everything in RAM lies, and the plans that fit RAM and flash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_hw.accelerator import REFERENCE
from byoc_hw.overlap import overlapped
from byoc_hw.padding import padded
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.fitting import Fitted, Fitting
from byoc_hw.plan.place.arena import ModelMemory, place_model
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.search.within import Room
from byoc_hw.program import ALIGNMENT, Program, Workspace
from byoc_hw.soc import Hardware, accelerators_of

_UNLIMITED = 1 << 62


def is_tiled(hardware: Hardware | None) -> bool:
    """Whether plans are tiled, so that there are others with less RAM or flash: not those of a library."""
    return hardware is not None and all(one.library is None for one in accelerators_of(hardware))


class BuildArena:
    """The arena of a build, with the model's inputs and outputs if `with_io`, and the plans that fit it.

    `plans` are the fastest plans at first; `place` replaces them where `optimize` or a limit of the accelerator
    asks for others, and sets `memory`. `overlaps` says whether host functions and regions run in parallel: only if
    the larger arena fits RAM.
    """

    def __init__(
        self,
        plans: Mapping[str, PlannedRegion],
        accelerator: Hardware | None,
        with_io: bool,
        optimize: str,
        place: Mapping[str, str],
    ) -> None:
        self.plans, self.with_io, self.optimize = plans, with_io, optimize
        self.hardware = accelerator or REFERENCE
        self._place = place
        self._tiled = accelerator if is_tiled(accelerator) else None
        self._flash = _UNLIMITED
        self._choices: Mapping[str, Choices | ChipChoices | None] = {}
        self._workspaces: Sequence[Workspace] = ()
        self.overlaps = False
        self.memory: ModelMemory | None = None

    def place(self, program: Program, workspaces: Sequence[Workspace]) -> Mapping[str, int]:
        """Offsets for host tensors and workspaces, placed together with the intermediates of regions."""
        program = self.program(program)
        ram = self.hardware.ram
        self._workspaces = workspaces
        memory = self._arranged(program, workspaces, ram)
        fits = memory.ram <= ram and Fitted(self.plans, memory).within_flash(self._flash)
        if self._tiled and self.plans and (self.optimize == "size" or not fits):
            fitted = self._fitted(program, workspaces)
            self.plans, self._choices = fitted.plans, {**self._choices, **fitted.choices}
            most = ram if self.optimize == "speed" else fitted.memory.ram
            memory = self._arranged(program, workspaces, most)
        self.memory = memory
        return memory.arena.offsets

    def program(self, program: Program) -> Program:
        """The program with the model's inputs and outputs as regions can take them: in the arena, or padded copies."""
        return program if self.with_io else padded(program, self.hardware)

    def overlapping(self, program: Program) -> Program:
        """The program with host functions and regions in parallel, if they are."""
        return overlapped(program) if self.overlaps else program

    def wants_less_flash(self, host: int) -> bool:
        """Whether to place again, as the model with `host` bytes of the host does not fit flash."""
        assert self.memory is not None
        limits, self._flash = self.hardware, max(self.hardware.flash - host, 0)
        fits = Fitted(self.plans, self.memory).within_flash(self._flash)
        return self._tiled is not None and bool(self.plans) and not fits and self.memory.ram <= limits.ram

    def rooms(self, program: Program) -> dict[str, Room]:
        """What each region may use of RAM and flash; nothing is said beside libraries, as there are no other plans."""
        if self._tiled is None:
            return {}
        fitting = self._fitting(self.program(program), self._workspaces)
        return fitting.rooms(replace(fitting.fastest, choices=self._choices), self.hardware.ram, self._flash)

    def _fitted(self, program: Program, workspaces: Sequence[Workspace]) -> Fitted:
        """The plans that are wanted; where none fit, the smallest."""
        fitting = self._fitting(program, workspaces)
        ram = self.hardware.ram
        found = fitting.within(ram, self._flash) if self.optimize == "speed" else fitting.smallest()
        if found is not None and found.flash <= self._flash:
            return found
        return fitting.with_least_flash(ram) or fitting.smallest()

    def _fitting(self, program: Program, workspaces: Sequence[Workspace]) -> Fitting:
        def placed(plans: Mapping[str, PlannedRegion]) -> ModelMemory:
            return self._placed(program, workspaces, plans)

        assert self._tiled is not None, "plans are searched for one HAL"
        return Fitting(program, self.plans, self._tiled, placed, self.with_io, self._place)

    def _arranged(self, program: Program, workspaces: Sequence[Workspace], most: int) -> ModelMemory:
        """The arena with host functions and regions in parallel if it has at most so many bytes, else without."""
        library = self.hardware.library
        self.overlaps = library is None or library.wait is not None
        if self.overlaps:
            memory = self._placed(overlapped(program), workspaces, self.plans)
            self.overlaps = memory.ram <= most
        return memory if self.overlaps else self._placed(program, workspaces, self.plans)

    def _placed(
        self, program: Program, workspaces: Sequence[Workspace], plans: Mapping[str, PlannedRegion]
    ) -> ModelMemory:
        regions = {name: region.memory for name, region in plans.items()}
        return place_model(program, workspaces, regions, ALIGNMENT, self.with_io)
