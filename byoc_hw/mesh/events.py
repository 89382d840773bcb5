"""Runs a flow on a mesh event by event: when each step starts, when messages arrive, and what waits."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from byoc_hw.arguments import check_whole
from byoc_hw.errors import PlanError
from byoc_hw.mesh.credits import blocking_cycle
from byoc_hw.mesh.flow import OUTPUT_BUFFERS, Flow
from byoc_hw.mesh.routes import MeshLink, beats, credit_cycles, delay, route


@dataclass(frozen=True)
class Simulation:
    """What a run of some frames through a flow showed, in cycles.

    `starts` and `ends` have for each step the cycle in which it starts and ends each frame. `busy` has the cycles that
    each link was busy, ports among them; `queues` the most messages that lay at the end of each lane.
    """

    flow: Flow
    frames: int
    starts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]
    busy: dict[MeshLink, int]
    queues: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """The cycle in which the last step ends its last frame."""
        return max((ends[-1] for ends in self.ends), default=0)

    def latency(self, group: int = 0) -> int:
        """The cycles from the start of the first frame to its end, of one pipeline."""
        return max(ends[0] for step, ends in zip(self.flow.steps, self.ends, strict=True) if step.group == group)

    def period(self, group: int = 0) -> float:
        """The cycles between two frames, of one pipeline: over the third quarter of its frames. The first ones find
        free buffers, and beside the last ones there is less and less to do."""
        first, last = self.frames // 2, 3 * self.frames // 4
        found = zip(self.flow.steps, self.ends, strict=True)
        done = [max(ends) for ends in zip(*(ends for step, ends in found if step.group == group), strict=True)]
        return float(done[last] - done[first]) / max(1, last - first)

    @property
    def rate(self) -> float:
        """Frames a cycle of all pipelines together."""
        groups = sorted({step.group for step in self.flow.steps})
        return sum(1 / max(1.0, self.period(group)) for group in groups)

    def utilisation(self, step: int) -> float:
        """The share of the time between its first start and its last end in which a step computes."""
        span = self.ends[step][-1] - self.starts[step][0]
        return self.flow.steps[step].cycles * self.frames / max(1, span)


@dataclass
class _StepState:
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class _LaneState:
    credits: int
    arrived: int = 0
    waiting: int = 0
    sent: int = 0
    most: int = 0


def simulate(flow: Flow, frames: int = 32) -> Simulation:
    """Run `frames` frames through a flow, whose inputs are there from the start.

    A step can start when all its messages are there, and one of its two output buffers is free. A PE that is free takes
    the one of its steps that can, of the earliest turn, and of several the first, as `hwlib_pe_step` does. When it
    ends, credits go back, and its messages leave in order, each as soon as it has a credit. A message takes the links
    of its route one after the other, each when those that came earlier are through; its bytes follow without a gap.
    `PlanError` for a flow that blocks.
    """
    check_whole("frames", frames, 1)
    blocked = blocking_cycle(flow)
    if blocked:
        raise PlanError(f"the steps block each other: {'; '.join(blocked)}")
    return _Simulator(flow, frames).run()


class _Simulator:
    def __init__(self, flow: Flow, frames: int) -> None:
        self._flow, self._frames = flow, frames
        self._steps = [_StepState() for _ in flow.steps]
        self._lanes = [_LaneState(lane.credits) for lane in flow.lanes]
        self._computing = dict.fromkeys(flow.turns, False)
        self._free: dict[MeshLink, int] = {}
        self._busy: dict[MeshLink, int] = {}
        self._events: list[tuple[int, int, int, int]] = []  # cycle, number, kind, index
        self._number = 0
        places = [(flow.steps[lane.source].pe, flow.steps[lane.target].pe) for lane in flow.lanes]
        self._back = [credit_cycles(flow.mesh, *ends) for ends in places]
        self._routes = [
            tuple((way, beats(flow.mesh, way, lane.nbytes), delay(flow.mesh, way)) for way in route(*ends))
            for lane, ends in zip(flow.lanes, places, strict=True)
        ]

    def run(self) -> Simulation:
        for place in self._flow.turns:
            self._start(place, 0)
        handlers = (self._end, self._arrive, self._credit, self._sent)
        while self._events:
            cycle, _, kind, index = heapq.heappop(self._events)
            handlers[kind](index, cycle)
        starts, ends = (tuple(tuple(getattr(one, what)) for one in self._steps) for what in ("starts", "ends"))
        assert all(len(each) == self._frames for each in ends), "a flow that does not block runs to its end"
        return Simulation(self._flow, self._frames, starts, ends, self._busy, tuple(one.most for one in self._lanes))

    def _at(self, cycle: int, kind: int, index: int) -> None:
        heapq.heappush(self._events, (cycle, self._number, kind, index))
        self._number += 1

    def _start(self, place: tuple[int, int], cycle: int) -> None:
        """Start a step of a PE that is free, if one can start."""
        if self._computing[place]:
            return
        steps = self._flow.steps
        turns = [
            (len(self._steps[index].starts) + steps[index].lag, at, index)
            for at, index in enumerate(self._flow.turns[place])
            if self._ready(index)
        ]
        if turns:
            *_, index = min(turns)
            self._steps[index].starts.append(cycle)
            self._computing[place] = True
            self._at(cycle + steps[index].cycles, 0, index)

    def _ready(self, index: int) -> bool:
        """Whether a step has frames left, all its messages are there, and a buffer for its outputs."""
        if len(self._steps[index].starts) == self._frames:
            return False
        sent = min((self._lanes[lane].sent for lane in self._flow.outgoing[index]), default=0)
        unsent = len(self._steps[index].starts) - sent
        if self._flow.outgoing[index] and unsent >= OUTPUT_BUFFERS:
            return False
        return all(self._lanes[lane].arrived for lane in self._flow.incoming[index])

    def _end(self, index: int, cycle: int) -> None:
        flow, state = self._flow, self._steps[index]
        state.ends.append(cycle)
        self._computing[flow.steps[index].pe] = False
        for lane in flow.incoming[index]:
            self._lanes[lane].arrived -= 1
            self._at(cycle + self._back[lane], 2, lane)
        for lane in flow.outgoing[index]:
            self._lanes[lane].waiting += 1
            self._send(lane, cycle)
        self._start(flow.steps[index].pe, cycle)

    def _send(self, lane: int, cycle: int) -> None:
        state = self._lanes[lane]
        while state.waiting and state.credits:
            state.waiting -= 1
            state.credits -= 1
            head = tail = left = cycle
            for number, (way, busy, onward) in enumerate(self._routes[lane]):
                head = max(head, self._free.get(way, 0))
                self._free[way] = head + busy
                self._busy[way] = self._busy.get(way, 0) + busy
                left = head + busy if number == 0 else left
                tail = max(tail, head + busy) + onward
                head += onward
            self._at(left, 3, lane)
            self._at(tail, 1, lane)

    def _arrive(self, lane: int, cycle: int) -> None:
        state = self._lanes[lane]
        state.arrived += 1
        state.most = max(state.most, state.arrived)
        self._start(self._flow.steps[self._flow.lanes[lane].target].pe, cycle)

    def _credit(self, lane: int, cycle: int) -> None:
        self._lanes[lane].credits += 1
        self._send(lane, cycle)

    def _sent(self, lane: int, cycle: int) -> None:
        self._lanes[lane].sent += 1
        self._start(self._flow.steps[self._flow.lanes[lane].source].pe, cycle)
