"""What a flow will do, worked out without running it: when each step starts, and how often a frame can come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from byoc_hw.integers import ceil_div
from byoc_hw.mesh.flow import OUTPUT_BUFFERS, Flow
from byoc_hw.mesh.routes import MeshLink, Traffic, beats, credit_cycles, flight_cycles, link_loads, route


def first_starts(flow: Flow) -> tuple[int, ...]:
    """The cycle in which each step starts the first frame, if no message is in the way of another step's."""
    starts = [0] * len(flow.steps)
    flights = flights_of(flow)
    free: dict[tuple[int, int], int] = {}
    for index in dependency_order(flow):
        step = flow.steps[index]
        arrived = [
            starts[flow.lanes[lane].source] + flow.steps[flow.lanes[lane].source].cycles + flights[lane]
            for lane in flow.incoming[index]
        ]
        starts[index] = max([free.get(step.pe, 0), *arrived])
        free[step.pe] = starts[index] + step.cycles
    return tuple(starts)


def flights_of(flow: Flow) -> tuple[int, ...]:
    """The cycles from a step's end to the arrival of each of its messages, which leave one after the other."""
    flights = [0] * len(flow.lanes)
    for lanes in flow.outgoing:
        left = 0
        for lane in lanes:
            source, target = (flow.steps[end].pe for end in (flow.lanes[lane].source, flow.lanes[lane].target))
            flights[lane] = left + flight_cycles(flow.mesh, source, target, flow.lanes[lane].nbytes)
            left += port_cycles(flow, lane)
    return tuple(flights)


def port_cycles(flow: Flow, lane: int) -> int:
    """The cycles that a message keeps its source's port busy; 0 for one that stays on its PE."""
    one = flow.lanes[lane]
    ways = route(flow.steps[one.source].pe, flow.steps[one.target].pe)
    return beats(flow.mesh, ways[0], one.nbytes) if ways else 0


def dependency_order(flow: Flow) -> tuple[int, ...]:
    """The steps in an order in which those that send, and those before on the same PE, come first."""
    before: list[set[int]] = [{flow.lanes[lane].source for lane in lanes} for lanes in flow.incoming]
    for indices in flow.turns.values():
        for one, other in pairwise(indices):
            before[other].add(one)
    after: list[list[int]] = [[] for _ in flow.steps]
    for index, sources in enumerate(before):
        for source in sources:
            after[source].append(index)
    missing = [len(sources) for sources in before]
    ready = [index for index, count in enumerate(missing) if not count]
    found = []
    while ready:
        index = ready.pop()
        found.append(index)
        for other in after[index]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    assert len(found) == len(flow.steps), "steps that wait for each other are refused before"
    return tuple(found)


def busiest_pe(flow: Flow) -> int:
    """The most cycles that a PE computes for a frame."""
    return max((sum(flow.steps[index].cycles for index in indices) for indices in flow.turns.values()), default=0)


def loads(flow: Flow) -> dict[MeshLink, int]:
    """The cycles that each link and port is busy for a frame of all pipelines."""
    transfers = (Traffic(flow.steps[lane.source].pe, flow.steps[lane.target].pe, lane.nbytes) for lane in flow.lanes)
    return link_loads(flow.mesh, transfers)


def busiest_link(flow: Flow) -> int:
    """The most cycles that a link or port is busy for a frame of all pipelines."""
    return max(loads(flow).values(), default=0)


def period_of(flow: Flow) -> int:
    """The cycles between two frames, of the slowest pipeline: of PEs, links, and steps that wait for credits."""
    least = max(busiest_pe(flow), busiest_link(flow), 1)
    waits = list(_waits(flow))
    if not waits or _is_possible(waits, len(flow.steps), least):
        return least
    low, high = least, sum(step.cycles for step in flow.steps) + sum(flights_of(flow)) + least
    while not _is_possible(waits, len(flow.steps), high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_possible(waits, len(flow.steps), middle) else (middle, high)
    return high


_Wait = tuple[int, int, int, int]
"""A step starts at least so many cycles after another one started the frame so many frames before: other, step, cycles,
frames."""


def _waits(flow: Flow) -> Iterator[_Wait]:
    flights = flights_of(flow)
    for index, lanes in enumerate(flow.outgoing):
        out = flow.steps[index].cycles + sum(port_cycles(flow, lane) for lane in lanes)
        if lanes:
            yield index, index, out, OUTPUT_BUFFERS
    for number, lane in enumerate(flow.lanes):
        source, target = flow.steps[lane.source], flow.steps[lane.target]
        yield lane.source, lane.target, source.cycles + flights[number], 0
        back = target.cycles + credit_cycles(flow.mesh, source.pe, target.pe)
        yield lane.target, lane.target, back + flights[number], lane.credits
        yield lane.target, lane.source, back + port_cycles(flow, number), lane.credits + OUTPUT_BUFFERS
    for indices in flow.turns.values():
        for one, other in pairwise(indices):
            yield one, other, flow.steps[one].cycles, flow.steps[other].lag - flow.steps[one].lag
        last, first = flow.steps[indices[-1]], flow.steps[indices[0]]
        yield indices[-1], indices[0], last.cycles, 1 + first.lag - last.lag


def _is_possible(waits: list[_Wait], count: int, period: int) -> bool:
    """Whether all waits can be kept with a frame every `period` cycles: whether no circle of them takes longer."""
    others, steps, cycles, frames = np.array(waits, dtype=np.int64).T
    least = cycles - period * frames
    starts = np.zeros(count, dtype=np.int64)
    for _ in range(count + 1):
        later = starts.copy()
        np.maximum.at(later, steps, starts[others] + least)
        if np.array_equal(later, starts):
            return True
        starts = later
    return False


def frames_to_fill(latency: int, period: int) -> int:
    """The frames that are in a pipeline at once."""
    return ceil_div(latency, max(1, period))
