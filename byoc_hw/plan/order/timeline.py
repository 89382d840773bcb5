"""Replays the steps of a plan and counts accelerator cycles, as the simulator does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import job_cycles
from byoc_hw.plan.steps import Copy, CopyWait, Job, JobWait, RegionPlan, Started, Step, WholeLayer


class Event(NamedTuple):
    """An operation of an engine ("dma" or "array") from cycle `start` to cycle `end`.

    `step` counts through all calls and the tail; `layer` is the one in whose call it is started, None
    in the tail.
    """

    engine: str
    start: int
    end: int
    step: int
    layer: int | None


class Wait(NamedTuple):
    """From `start` to `end` the host waits for a "copy", a "job", or "room" in a queue, in a layer's call."""

    reason: str
    start: int
    end: int
    layer: int | None


@dataclass(frozen=True)
class Timeline:
    """Cycles of a region, and of each layer in order: how far its calls moved the latest end so far.

    That is the end of a job or of a copy to main memory: a copy to local memory may come long before
    the job that it is for. The layers add up to `total` without the copies of the tail. `events` are
    the copies and jobs in the order in which they are started, `waits` the waits of the host.
    """

    total: int
    layers: tuple[int, ...]
    events: tuple[Event, ...] = ()
    waits: tuple[Wait, ...] = ()


def timeline(plan: RegionPlan, accelerator: Accelerator) -> Timeline:
    """Replay the steps: the host takes no time, DMA and array each do their work in order."""
    (found,) = timelines([plan], accelerator)
    return found


def timelines(plans: Sequence[RegionPlan], accelerator: Accelerator) -> list[Timeline]:
    """Replay regions one after the other, each from 0 on. One that begins with copies of the region before it goes on
    with its engines; before others the engines are idle."""
    found: list[Timeline] = []
    clock = AcceleratorClock(accelerator, HostClock())
    for plan in plans:
        if not plan.after:
            clock = AcceleratorClock(accelerator, HostClock())
        found.append(_replayed(plan, clock))
    return found


def _replayed(plan: RegionPlan, clock: AcceleratorClock) -> Timeline:
    """The times of a plan from the current cycle of a clock on."""
    clock.begin()
    begin = clock.host.now
    layers = [0] * len(plan.layers)
    for call in plan.calls:
        before = clock.done
        for step in call.steps:
            clock.run(step, plan.layers[call.index], call.index)
        layers[call.index] += clock.done - before
    for step in plan.tail:
        clock.run(step, None, None)
    total = (clock.host.now if plan.ahead else clock.frontier) - begin  # what it starts ahead may end later
    events = (one._replace(start=one.start - begin, end=one.end - begin) for one in clock.events)
    waits = (one._replace(start=one.start - begin, end=one.end - begin) for one in clock.waits)
    return Timeline(total, tuple(layers), tuple(events), tuple(waits))


@dataclass
class HostClock:
    """The current cycle of the host, which takes no time itself: it only waits."""

    now: int = 0

    def wait(self, until: int) -> None:
        """Go on at a cycle, or at once if that is over."""
        self.now = max(self.now, until)


class AcceleratorClock:
    """The queues of an accelerator's engines: the end of each operation, and the cycle at which each slot is done.

    `frontier` is the latest end of any operation, `done` that of a job or of a copy to main memory. `steps` is the
    number of the next step.
    """

    def __init__(self, accelerator: Accelerator, host: HostClock) -> None:
        self.accelerator, self.host = accelerator, host
        self.frontier = self.done = 0
        self.ends: dict[str, list[int]] = {"dma": [], "array": []}
        self.slots: dict[int, int] = {}
        self.events: list[Event] = []
        self.waits: list[Wait] = []
        self.steps = 0

    def begin(self) -> None:
        """Number steps from 0 on again, for another plan; forget its events and waits."""
        self.events, self.waits, self.steps = [], [], 0

    def run(self, step: Step, layer: Layer | None, index: int | None) -> None:
        """Start an operation, or wait for one. A layer of None is the tail."""
        if isinstance(step, CopyWait | JobWait):
            self._wait("copy" if isinstance(step, CopyWait) else "job", self.slots[step.slot], index)
        elif isinstance(step, Copy):
            end = self._start(step, "dma", copy_cycles(step.nbytes, step.rows, self.accelerator), index)
            if not step.inward:
                self.done = max(self.done, end)
        elif isinstance(step, WholeLayer):
            self.done = max(self.done, self._start(step, "array", step.cycles, index))
        elif not isinstance(step, Job):
            raise PlanError(f"a single accelerator has no events: found {step}")
        elif layer is None:
            raise PlanError("a job belongs to a layer: found one in the tail of a region")
        else:
            cycles = job_cycles(layer, step.ifm_shape, step.ofm_shape, self.accelerator, step.kernel)
            self.done = max(self.done, self._start(step, "array", cycles, index))
        self.steps += 1

    def hold(self, engine: str, until: int, layer: int | None) -> int:
        """Have an engine wait until a cycle, behind what it was given before: the cycle when it goes on."""
        self.steps += 1
        return self._place(engine, until, 0, layer)

    def _place(self, engine: str, ready: int, cycles: int, layer: int | None) -> int:
        """Take a place in the queue of an engine: the end of what is done there, not before it is ready."""
        ends = self.ends[engine]
        if len(ends) >= self.accelerator.queue:
            self._wait("room", ends[-self.accelerator.queue], layer)
        ends.append(max(self.host.now, ready, ends[-1] if ends else 0) + cycles)
        return ends[-1]

    def _wait(self, reason: str, until: int, layer: int | None) -> None:
        if until > self.host.now:
            self.waits.append(Wait(reason, self.host.now, until, layer))
            self.host.wait(until)

    def _start(self, step: Started, engine: str, cycles: int, index: int | None) -> int:
        end = self._place(engine, 0, cycles, index)
        self.slots[step.slot] = end
        self.frontier = max(self.frontier, end)
        self.events.append(Event(engine, end - cycles, end, self.steps, index))
        return end
