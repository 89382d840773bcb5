"""Replays the lanes of a chip and counts cycles, as HWlib over the simulators does.

The core takes no time. It goes round the lanes, and in each it carries out steps up to one that has to wait for
something that is not done, or to the end of its turn. When no lane can go on, it is idle until an operation ends that
a lane waits for. A start into a full queue holds the core, and so all lanes. An engine waits for events by itself; it
is told to when all their signals are in queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.plan.chip_plan import ChipPlan, Part
from byoc_hw.plan.order.timeline import AcceleratorClock, Event, HostClock, Wait
from byoc_hw.plan.steps import Await, CopyWait, EngineAwait, EngineSignal, JobWait, Signal, Step, Turn, engine_of


@dataclass(frozen=True)
class PartTimeline:
    """A part's copies and jobs in the order in which they are started, and the waits of its lane.

    Steps are numbered in the part's plan, layers are places in its graph. A lane waits for a "copy", a "job", an
    "event" of another lane, or "room" in a queue.
    """

    part: Part
    events: tuple[Event, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True)
class LanesTimeline:
    """Cycles of a region on a chip, from its start to its last end, and its parts in the order of the plan's.

    `idle` are the spans of cycles in which the core has nothing to do.
    """

    total: int
    parts: tuple[PartTimeline, ...]
    idle: tuple[tuple[int, int], ...]


def lanes_timeline(plan: ChipPlan) -> LanesTimeline:
    """Replay all lanes of a region. Raises `PlanError` where one awaits an event that never comes."""
    host = HostClock()
    signalled: dict[int, int] = {}
    counts: dict[int, list[int]] = defaultdict(list)
    lanes = [_Lane(plan, lane, host, signalled, counts) for lane in sorted({part.lane for part in plan.parts})]
    idle: list[tuple[int, int]] = []
    while _go_round(lanes):
        following = [lane.until for lane in lanes if lane.until is not None]
        if not following:
            stuck = ", ".join(str(lane.waiting) for lane in lanes if lane.waiting)
            raise PlanError(f"{plan.graph.name}: each event that a lane awaits is signalled: not so {stuck}")
        idle.append((host.now, min(following)))
        host.wait(min(following))
    found = {id(timed.part): timed for lane in lanes for timed in lane.timelines()}
    total = max((lane.clock.frontier for lane in lanes), default=0)
    return LanesTimeline(total, tuple(found[id(part)] for part in plan.parts), tuple(idle))


def _go_round(lanes: Sequence[_Lane]) -> bool:
    """Run the lanes in turn until all of them in a row cannot go on; whether any has not ended."""
    still = at = 0
    while still < len(lanes):
        still = lanes[at].go_on(still)
        at = (at + 1) % len(lanes)
    return any(lane.waiting for lane in lanes)


@dataclass(frozen=True)
class _Placed:
    """A step of a lane: its part, its number in the part's plan, and its layer with the layer's place."""

    step: Step
    part: int
    number: int
    layer: Layer | None
    index: int | None


class _Lane:
    """A lane on its way. `until` is the end of the operation that it waits for, if it has begun. `counts` has the
    cycles of the signals of each event of the hardware."""

    def __init__(
        self, plan: ChipPlan, lane: int, host: HostClock, signalled: dict[int, int], counts: dict[int, list[int]]
    ) -> None:
        self.clock = AcceleratorClock(plan.chip.accelerators[lane], host)
        self._parts = plan.of_lane(lane)
        self._host, self._signalled, self._counts = host, signalled, counts
        self._steps = list(_placed_steps(self._parts))
        self._at = 0
        self.until: int | None = None
        self._since: int | None = None  # the cycle when it began to wait
        self._waits: list[tuple[int, Wait]] = []

    @property
    def waiting(self) -> Step | None:
        """The step that it waits at, None at its end."""
        return self._steps[self._at].step if self._at < len(self._steps) else None

    def go_on(self, still: int) -> int:
        """Carry out steps up to one that has to wait, or to the end of the turn: the number of lanes in a row that
        cannot go on, of which there were `still`."""
        before = self._at
        while self._at < len(self._steps) and self._may_go_on(self._steps[self._at]):
            self._run(self._steps[self._at])
            self._at += 1
            if isinstance(self._steps[self._at - 1].step, Turn):
                return 0
        return 1 if self._at > before else still + 1

    def timelines(self) -> Iterator[PartTimeline]:
        """Its parts, at the end."""
        for at, part in enumerate(self._parts):
            events = [event for event in self.clock.events if self._steps[event.step].part == at]
            numbered = (event._replace(step=self._steps[event.step].number) for event in events)
            yield PartTimeline(part, tuple(numbered), tuple(wait for number, wait in self._waits if number == at))

    def _may_go_on(self, placed: _Placed) -> bool:
        step, now = placed.step, self._host.now
        if isinstance(step, EngineAwait):
            until, reason = (now if step.value <= len(self._counts[step.event]) else None), "event"
        elif isinstance(step, Await):
            until, reason = self._signalled.get(step.event), "event"
        elif isinstance(step, CopyWait | JobWait):
            until, reason = self.clock.slots[step.slot], "copy" if isinstance(step, CopyWait) else "job"
        else:
            return True
        if until is None or until > now:
            self.until = until
            self._since = now if self._since is None else self._since
            return False
        self.until = None
        if self._since is not None:
            self._waits.append((placed.part, Wait(reason, self._since, now, placed.index)))
            self._since = None
        return True

    def _run(self, placed: _Placed) -> None:
        clock, step = self.clock, placed.step
        if isinstance(step, Signal):
            if step.event in self._signalled:
                raise PlanError(f"an event is signalled once: event {step.event} is signalled again")
            self._signalled[step.event] = clock.slots[step.slot]
        if isinstance(step, Signal | Await | Turn):
            clock.steps += 1
            return
        known = len(clock.waits)
        if isinstance(step, EngineAwait):
            clock.hold(engine_of(step), self._counts[step.event][step.value - 1], placed.index)
        elif isinstance(step, EngineSignal):
            self._counts[step.event].append(clock.hold(engine_of(step), 0, placed.index))
        else:
            clock.run(step, placed.layer, placed.index)
        self._waits += [(placed.part, wait) for wait in clock.waits[known:]]


def _placed_steps(parts: tuple[Part, ...]) -> Iterator[_Placed]:
    for at, part in enumerate(parts):
        plan, number = part.plan, 0
        for call in plan.calls:
            for step in call.steps:
                yield _Placed(step, at, number, plan.layers[call.index], call.index)
                number += 1
        for step in plan.tail:
            yield _Placed(step, at, number, None, None)
            number += 1
