"""The schedule of a project as rows of numbers, for its metadata; `report/schedule.py` reads them.

Times are accelerator cycles since the first region started. As in `plan/cost.py` the core takes no
time of its own: it starts work, and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.emit.library import LibraryPlan
from byoc_hw.emit.numbering import number_calls
from byoc_hw.emit.region import Region
from byoc_hw.plan.cost import timeline
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS, Copy, CopyWait, Job, RegionPlan
from byoc_hw.program import Program, RegionCall

ENGINES = ("in", "out", "array")
"""What works: the DMA towards local memory, the DMA out of it, the array. A row has the place in here."""

REASONS = ("copy", "job", "room")
"""What the core waits for: a copy, a job, or room in the queue of an engine."""

NO_LAYER = -1
"""In place of a layer's number: the steps at the end of a region."""


def schedule(program: Program, regions: Mapping[str, Region], accelerator: Accelerator) -> dict[str, Any]:
    """Each tiled region, in order. One of library calls has no plan of its own, and is not listed.

    Rows of `work`: engine, start, end, layer, bytes (0 for a job); of `waits`: reason, start, end,
    layer; of `local`: place in `names`, memory, offset, bytes, start, end.
    """
    rows: list[dict[str, Any]] = []
    for call, layers in number_calls(program):
        plan = regions[call.graph.name] if isinstance(call, RegionCall) else None
        if plan is not None and not isinstance(plan, LibraryPlan):
            first = layers[0].id if layers else 0
            rows.append(_Replay(plan, first, rows[-1]["end"] if rows else 0, accelerator).region())
    sizes = {"activations": accelerator.activation_memory, "weights": accelerator.weight_memory}
    return {**sizes, "regions": rows}


def spans(places: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as runs of consecutive ones: the first and the last of each."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return runs


class _Replay:
    """One region's plan with the time of each step. `first` is its first layer's number."""

    def __init__(self, plan: RegionPlan, first: int, start: int, accelerator: Accelerator) -> None:
        self._plan, self._start = plan, start
        self._timeline = timeline(plan, accelerator)
        self._layers = [first + call.index for call in plan.calls for _ in call.steps] + [NO_LAYER] * len(plan.tail)
        self._events = {event.step: event for event in self._timeline.events}
        self._waits: list[list[int]] = []
        self._times: list[tuple[int, int]] = []
        self._replay(accelerator.queue)

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
            "waits": self._waits,
            "names": names,
            "local": [
                [place[held.name], held.space, held.offset, held.nbytes, *self._between(held.first, held.last)]
                for held in self._plan.local
            ],
        }

    def _replay(self, queue: int) -> None:
        """Walk the steps as the core does: `_times` of each, and the `_waits`."""
        now = self._start
        ends: dict[str, list[int]] = {"dma": [], "array": []}
        done: dict[int, int] = {}
        for at, step in enumerate(self._plan.steps):
            event = self._events.get(at)
            if event is None:
                until, reason = done[step.slot], "copy" if isinstance(step, CopyWait) else "job"
                self._times.append((now, max(now, until)))
            else:
                full = ends[event.engine][-queue:]
                until, reason = full[0] if len(full) == queue else now, "room"
                start, end = self._start + event.start, self._start + event.end
                ends[event.engine].append(end)
                done[step.slot] = end
                self._times.append((start, end))
            if until > now:
                self._wait(REASONS.index(reason), now, until, self._layers[at])
                now = until

    def _wait(self, reason: int, start: int, end: int, layer: int) -> None:
        """One more wait, or more of the one before."""
        if self._waits and self._waits[-1][0] == reason and self._waits[-1][2:] == [start, layer]:
            self._waits[-1][2] = end
        else:
            self._waits.append([reason, start, end, layer])

    def _work(self) -> Iterator[list[int]]:
        for at, step in enumerate(self._plan.steps):
            if isinstance(step, Copy):
                engine = "in" if step.target.space in (ACTIVATIONS, WEIGHTS) else "out"
                yield [ENGINES.index(engine), *self._times[at], self._layers[at], step.nbytes * step.rows]
            elif isinstance(step, Job):
                yield [ENGINES.index("array"), *self._times[at], self._layers[at], 0]

    def _between(self, first: int, last: int) -> tuple[int, int]:
        """From the start of one step to the end of another."""
        return self._times[first][0], self._times[last][1]
