"""The schedule of a project as rows of numbers, for its metadata; `report/schedule.py` reads them.

Times are accelerator cycles since the start of the first region. As in `plan/array/cost.py` the core starts
work and waits, and takes no time itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.emit.numbering import number_calls
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.bound.begun import bound_of_begun
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.order.timeline import Event, Timeline, Wait, timelines
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, Copy, RegionPlan
from byoc_hw.program import Program, RegionCall
from byoc_hw.soc import Hardware, Soc

ENGINES = ("in", "out", "array")
"""The engines: DMA to local memory, DMA from local memory, array. Rows hold the index."""

REASONS_OF_ONE = ("copy", "job", "room")
"""What the core waits for: a copy, a job, or a free place in an engine's queue."""

REASONS = (*REASONS_OF_ONE, "event")
"""On a chip an accelerator waits, also for an event of another one. Rows hold the index."""

NO_LAYER = -1
"""The layer number of the steps at the end of a region, which belong to no layer."""


def schedule_rows(program: Program, regions: Mapping[str, PlannedRegion], hardware: Hardware) -> dict[str, Any]:
    """Each tiled region, in order. Regions of library calls have no schedule, and are not listed.

    Rows of `work`: engine, start, end, layer, bytes (0 for a job); of `waits`: reason, start, end,
    layer; of `local`: index in `names`, memory, offset, bytes, start, end. `bound` are cycles that no plan of the
    region goes below. On a chip a region has an entry for each of its parts, with the name of its `accelerator`; all of
    them start and end with the region.
    """
    rows: list[dict[str, Any]] = []
    times = _times(program, regions, hardware)
    for call, layers in number_calls(program):
        plan = regions[call.graph.name] if isinstance(call, RegionCall) else None
        first = layers[0].id if layers else 0
        start = rows[-1]["end"] if rows else 0
        if isinstance(plan, ChipPlan):
            rows += _chip_rows(plan, first, start)
        elif isinstance(plan, RegionPlan):
            assert not isinstance(hardware, Soc)
            timed = times[plan.graph.name]
            numbers = range(first, first + len(layers))
            entry = _Written(plan, numbers, start, timed.events, timed.waits).region(timed.total)
            rows.append({**entry, "bound": _bound(plan, regions, hardware)})
    if isinstance(hardware, Soc):
        sizes = [(one.activation_memory, one.weight_memory) for one in hardware.accelerators if one.library is None]
    else:
        sizes = [(hardware.activation_memory, hardware.weight_memory)]
    activations, weights = (max(memory) for memory in zip(*(sizes or [(0, 0)]), strict=True))
    return {"activations": activations, "weights": weights, "regions": rows}


def _times(program: Program, regions: Mapping[str, PlannedRegion], hardware: Hardware) -> dict[str, Timeline]:
    """The times of each region on a single accelerator: of all in order, as one may start copies for the next."""
    plans = [plan for graph in program.regions if isinstance(plan := regions[graph.name], RegionPlan)]
    if isinstance(hardware, Soc):
        return {}
    return {plan.graph.name: timed for plan, timed in zip(plans, timelines(plans, hardware), strict=True)}


def _bound(plan: RegionPlan, regions: Mapping[str, PlannedRegion], one: Accelerator) -> int:
    """Cycles that no plan of a region goes below, if it begins with what the region in front copies for it."""
    before = regions[plan.after] if plan.after else None
    if not isinstance(before, RegionPlan):
        return known_bound(plan.graph, one)
    return bound_of_begun(plan.graph, one, [copy_cycles(step.nbytes, step.rows, one) for step in before.copied_ahead])


def _chip_rows(plan: ChipPlan, first: int, start: int) -> Iterator[dict[str, Any]]:
    timed = lanes_timeline(plan)
    for one in timed.parts:
        part, on = one.part, plan.chip.accelerators[one.part.lane]
        numbers = [first + place for place in part.layers]
        between = [space for space, address in enumerate(part.arguments, ARGUMENT) if address.space == SCRATCH]
        entry = _Written(part.plan, numbers, start, one.events, one.waits).region(timed.total)
        moved = part.plan.moved_in(between)
        yield {**entry, "name": plan.graph.name, "accelerator": on.name, "moved": moved, "bound": plan.bound}


def spans(places: Iterable[int]) -> list[list[int]]:
    """The runs of consecutive numbers in an ascending sequence: first and last of each."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return runs


class _Written:
    """The timeline of a plan as rows. `numbers` are its layers' in the model."""

    def __init__(
        self, plan: RegionPlan, numbers: Sequence[int], start: int, events: Sequence[Event], waits: Sequence[Wait]
    ) -> None:
        self._plan, self._numbers, self._start = plan, numbers, start
        self._started, self._waited = events, waits
        self._events = {event.step: event for event in events}

    def region(self, total: int) -> dict[str, Any]:
        """The entry of a region that takes so many cycles."""
        names = list(dict.fromkeys(buffer.name for buffer in self._plan.local))
        place = {name: at for at, name in enumerate(names)}
        return {
            "name": self._plan.graph.name,
            "start": self._start,
            "end": self._start + total,
            "work": list(self._work()),
            "moved": self._plan.moved,
            "waits": self._waits(),
            "names": names,
            "local": [
                [place[held.name], held.space, held.offset, held.nbytes, *self._between(held.first, held.last)]
                for held in self._plan.local
            ],
        }

    def _work(self) -> Iterator[list[int]]:
        steps = self._plan.steps
        for event in self._started:
            step, engine, nbytes = steps[event.step], event.engine, 0
            if isinstance(step, Copy):
                engine, nbytes = "in" if step.inward else "out", step.bytes_moved
            times = self._start + event.start, self._start + event.end
            yield [ENGINES.index(engine), *times, self._layer(event.layer), nbytes]

    def _waits(self) -> list[list[int]]:
        """The waits; those that follow each other directly, with the same reason and layer, are merged."""
        rows: list[list[int]] = []
        for wait in self._waited:
            reason, layer = REASONS.index(wait.reason), self._layer(wait.layer)
            start, end = self._start + wait.start, self._start + wait.end
            if rows and rows[-1][0] == reason and rows[-1][2:] == [start, layer]:
                rows[-1][2] = end
            else:
                rows.append([reason, start, end, layer])
        return rows

    def _between(self, first: int, last: int) -> tuple[int, int]:
        """From the start of one copy or job to the end of another."""
        return self._start + self._events[first].start, self._start + self._events[last].end

    def _layer(self, index: int | None) -> int:
        return NO_LAYER if index is None else self._numbers[index]
