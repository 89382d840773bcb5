"""The schedule of a project as rows of numbers, for its metadata; `report/schedule.py` reads them.

Times are accelerator cycles since the start of the first region. As in `plan/array/cost.py` the core starts
work and waits, and takes no time itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.emit.numbering import number_calls
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.steps import Copy, RegionPlan
from byoc_hw.program import Program, RegionCall

ENGINES = ("in", "out", "array")
"""The engines: DMA to local memory, DMA from local memory, array. Rows hold the index."""

REASONS = ("copy", "job", "room")
"""What the core waits for: a copy, a job, or a free place in an engine's queue. Rows hold the index."""

NO_LAYER = -1
"""The layer number of the steps at the end of a region, which belong to no layer."""


def schedule_rows(program: Program, regions: Mapping[str, PlannedRegion], accelerator: Accelerator) -> dict[str, Any]:
    """Each tiled region, in order. Regions of library calls have no schedule, and are not listed.

    Rows of `work`: engine, start, end, layer, bytes (0 for a job); of `waits`: reason, start, end,
    layer; of `local`: index in `names`, memory, offset, bytes, start, end.
    """
    rows: list[dict[str, Any]] = []
    for call, layers in number_calls(program):
        plan = regions[call.graph.name] if isinstance(call, RegionCall) else None
        if plan is not None and not isinstance(plan, LibraryPlan):
            first = layers[0].id if layers else 0
            rows.append(_Written(plan, first, rows[-1]["end"] if rows else 0, accelerator).region())
    sizes = {"activations": accelerator.activation_memory, "weights": accelerator.weight_memory}
    return {**sizes, "regions": rows}


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
    """One region's timeline as rows. `first` is its first layer's number."""

    def __init__(self, plan: RegionPlan, first: int, start: int, accelerator: Accelerator) -> None:
        self._plan, self._first, self._start = plan, first, start
        self._timeline = timeline(plan, accelerator)
        self._events = {event.step: event for event in self._timeline.events}

    def region(self) -> dict[str, Any]:
        """The region's entry."""
        names = list(dict.fromkeys(buffer.name for buffer in self._plan.local))
        place = {name: at for at, name in enumerate(names)}
        return {
            "name": self._plan.graph.name,
            "start": self._start,
            "end": self._start + self._timeline.total,
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
        for event in self._timeline.events:
            step, engine, nbytes = steps[event.step], event.engine, 0
            if isinstance(step, Copy):
                engine, nbytes = "in" if step.inward else "out", step.nbytes * step.rows
            times = self._start + event.start, self._start + event.end
            yield [ENGINES.index(engine), *times, self._layer(event.layer), nbytes]

    def _waits(self) -> list[list[int]]:
        """The waits; those that follow each other directly, with the same reason and layer, are merged."""
        rows: list[list[int]] = []
        for wait in self._timeline.waits:
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
        return NO_LAYER if index is None else self._first + index
