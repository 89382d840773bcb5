"""Plans of all regions of a model that together fit RAM and flash: the fastest ones, or the smallest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_hw.integers import round_up
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.planner import NO_WISHES
from byoc_hw.plan.lanes.within import SizedChipPlan, SizedChipPlans
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.place.arena import ModelMemory, block_name
from byoc_hw.plan.planned import PlannedRegion, flash_bytes, most_table_bytes, table_bytes
from byoc_hw.plan.region_memory import UNIT
from byoc_hw.plan.search.within import Border, Room, Sized, SizedPlans
from byoc_hw.program import Buffer, CopyCall, Program, RegionCall
from byoc_hw.soc import Hardware, Soc

_TRIES = 4
"""How often plans are made smaller for the gaps that a placement leaves between blocks."""

AnySized = Sized | SizedChipPlan

PlaceModel = Callable[[Mapping[str, PlannedRegion]], ModelMemory]
"""The arena of the model with these plans of its regions, by symbol."""


@dataclass(frozen=True)
class Fitted:
    """Plans of all regions, by symbol, the arena with them, and the choices of those that are not the fastest."""

    plans: Mapping[str, PlannedRegion]
    memory: ModelMemory
    choices: Mapping[str, Choices | ChipChoices | None] = field(default_factory=dict)

    @property
    def flash(self) -> int:
        """Bytes of flash of all regions: constant data and tables."""
        return self._constants + sum(map(table_bytes, self.plans.values()))

    @property
    def _constants(self) -> int:
        return sum(map(flash_bytes, self.plans.values()))

    def within_flash(self, limit: int) -> bool:
        """Whether all regions have at most so many bytes of flash."""
        return self._constants + sum(map(most_table_bytes, self.plans.values())) <= limit or self.flash <= limit


class Fitting:
    """The search for plans of a program's regions that fit. `place` places a model; `plans` are the fastest plans.

    With `interface` the model's inputs and outputs are in the arena. `wishes` are those for the layers of a chip.
    """

    def __init__(
        self,
        program: Program,
        plans: Mapping[str, PlannedRegion],
        hardware: Hardware,
        place: PlaceModel,
        interface: bool,
        wishes: Mapping[str, str] = NO_WISHES,
    ) -> None:
        self._hardware, self._place, self._wishes = hardware, place, wishes
        self.fastest = Fitted(plans, place(plans))
        tiled = {name for name, plan in plans.items() if not isinstance(plan, LibraryPlan)}
        calls = [call for call in program.calls if isinstance(call, RegionCall) and call.graph.name in tiled]
        self._graphs = {call.graph.name: call.graph for call in calls}
        self._borders = {call.graph.name: _border(program, call, interface) for call in calls}
        self._around = {call.graph.name: _around(self.fastest, call, self._borders[call.graph.name]) for call in calls}
        self._known: dict[str, SizedPlans | SizedChipPlans] = {}

    def within(self, ram: int, flash: int) -> Fitted | None:
        """The fastest plans found that fit `ram` bytes with all else in the arena, and `flash` bytes together."""
        fitted, room = self.fastest, ram
        for _ in range(_TRIES):
            if fitted.memory.ram <= ram:
                break
            found = self._planned_within(room)
            if found is None:
                return None
            fitted = self._made(found)
            room -= fitted.memory.ram - ram
        if fitted.memory.ram > ram:
            return None
        if fitted.flash > flash:
            smaller = self._with_flash(ram, flash)
            return smaller if smaller is not None and smaller.flash <= flash else None
        return fitted

    def smallest(self) -> Fitted:
        """The plans with the smallest arena; of several the one with the least flash, then the fastest."""
        smallest = {name: self._sized(name).smallest() for name in self._graphs}
        made = self._made({name: one for name, one in smallest.items() if one.ram < self._peak(name)})
        fitted = min(made, self.fastest, key=lambda one: one.memory.ram)
        ram = fitted.memory.ram
        return min(fitted, self.with_least_flash(ram) or fitted, key=lambda one: one.flash)

    def with_least_flash(self, ram: int) -> Fitted | None:
        """The plans with the least flash that fit `ram` bytes with all else in the arena; None where none is found."""
        return self._with_flash(ram, 0)

    def rooms(self, fitted: Fitted, ram: int, flash: int) -> dict[str, Room]:
        """What each region may use if the plans of the others stay. `flash` is shared out in equal parts."""
        spare = max(flash - fitted.flash, 0) // max(len(self._graphs), 1)
        return {
            name: Room(
                self._borders[name],
                ram - self._around[name],
                flash_bytes(fitted.plans[name]) + table_bytes(fitted.plans[name]) + spare,
                fitted.choices.get(name),
            )
            for name in self._graphs
        }

    def _planned_within(self, room: int) -> dict[str, AnySized] | None:
        """The fastest plans with which no moment of a region has more bytes in the arena than `room`, if that has
        to be another plan; None where none is found."""
        plans: dict[str, AnySized] = {}
        for name in self._borders:
            own = room - self._around[name]
            if self._peak(name) > own:
                found = self._sized(name).within(own)
                if found is None:
                    return None
                plans[name] = found
        return plans

    def _peak(self, name: str) -> int:
        """The bytes of main memory of a region's fastest plan."""
        border = self._borders[name]
        return self.fastest.plans[name].memory.peak(border.inputs, border.outputs)

    def _with_flash(self, ram: int, flash: int) -> Fitted | None:
        """Plans that fit `ram` bytes, and `flash` bytes or else the least: cycles are lost where they save the most."""
        rows: dict[str, Sequence[AnySized]] = {
            name: self._sized(name).with_less_flash(ram - self._around[name]) for name in self._graphs
        }
        if not all(rows.values()):
            return None
        while sum(row[0].flash for row in rows.values()) > flash:
            longer = [name for name, row in rows.items() if len(row) > 1]
            if not longer:
                break
            name = min(longer, key=lambda name: _price(*rows[name][:2]))
            rows[name] = rows[name][1:]
        fitted = self._made({name: row[0] for name, row in rows.items()})
        return fitted if fitted.memory.ram <= ram else None

    def _made(self, found: Mapping[str, AnySized]) -> Fitted:
        """The model with these plans, and the fastest ones of other regions."""
        plans = dict(self.fastest.plans) | {name: one.plan for name, one in found.items()}
        return Fitted(plans, self._place(plans), {name: one.choices for name, one in found.items()})

    def _sized(self, name: str) -> SizedPlans | SizedChipPlans:
        if name not in self._known:
            graph, hardware, border = self._graphs[name], self._hardware, self._borders[name]
            if isinstance(hardware, Soc):
                self._known[name] = SizedChipPlans(graph, hardware, border, self._wishes)
            else:
                self._known[name] = SizedPlans(graph, hardware, border)
        return self._known[name]


def _price(fast: AnySized, small: AnySized) -> float:
    """Cycles for a byte of flash."""
    return (small.cycles - fast.cycles) / (fast.flash - small.flash)


def _border(program: Program, call: RegionCall, interface: bool) -> Border:
    """The arguments of a call that are in the arena only while it uses them."""
    at = program.calls.index(call)
    earlier = {buffer for other in program.calls[:at] for buffer in _buffers(other)}
    later = {buffer for other in program.calls[at + 1 :] for buffer in _buffers(other)}
    counted = {
        index: buffer.nbytes
        for index, buffer in enumerate(call.arguments)
        if (interface or buffer.role == "intermediate")
        and call.arguments.count(buffer) == 1
        and buffer not in (later if index < len(call.graph.inputs) else earlier)
    }
    inputs = {index: nbytes for index, nbytes in counted.items() if index < len(call.graph.inputs)}
    return Border(inputs, {index: nbytes for index, nbytes in counted.items() if index not in inputs})


def _around(fitted: Fitted, call: RegionCall, border: Border) -> int:
    """The most bytes of RAM while a region runs that no plan of the region changes."""
    name = call.graph.name
    own = set(fitted.memory.scratch[name][1])
    own |= {block_name(call.arguments[index]) for index in (*border.inputs, *border.outputs)}
    sizes = {block.name: round_up(block.nbytes, UNIT) for block in fitted.memory.blocks}
    moments = (fitted.memory.moments[moment][1] for moment in fitted.memory.during[name])
    constants = fitted.memory.constants - fitted.plans[name].memory.constants
    return constants + max(sum(sizes[block] for block in alive - own) for alive in moments)


def _buffers(call: object) -> tuple[Buffer, ...]:
    return (call.source, call.target) if isinstance(call, CopyCall) else call.arguments  # type: ignore[attr-defined]
