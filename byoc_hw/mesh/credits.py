"""How many messages each channel must have room for: so that nothing hangs, and so that nothing waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from byoc_hw.errors import PlanError
from byoc_hw.mesh.flow import Flow
from byoc_hw.mesh.routes import credit_cycles


def check_credits(flow: Flow) -> None:
    """Raise `PlanError` if the steps can come to a stop, with those that wait for each other."""
    blocked = blocking_cycle(flow)
    if blocked:
        raise PlanError(f"channels have too few credits: {'; '.join(blocked)}")


def blocking_cycle(flow: Flow) -> tuple[str, ...]:
    """The steps that wait for each other in a circle, each with what it waits for; empty if nothing ever blocks.

    The steps are run without time: a PE takes its next one only when all messages are there, and goes on only when each
    of its own has had a credit. As what a step takes and gives is the same for each frame, the order in which PEs are
    looked at does not matter, and frames up to the largest lag and the most credits show all that can happen.
    """
    return tuple(text for text, _ in _Run(flow).circle())


def least_credits(flow: Flow) -> tuple[int, ...]:
    """The fewest credits of each lane with which nothing blocks: with one less on any lane, it does.

    Credits of the flow itself do not count. `PlanError` if steps block whatever the credits are.
    """
    credits = [1] * len(flow.lanes)
    while circle := _Run(flow.with_credits(credits)).circle():
        waiting = [lane for _, lane in circle if lane is not None]
        if not waiting:
            raise PlanError(f"no number of credits helps: {'; '.join(text for text, _ in circle)}")
        credits[min(waiting, key=lambda lane: (flow.lanes[lane].nbytes, lane))] += 1
    for lane in range(len(credits)):
        while credits[lane] > 1 and not _blocks(flow, _one_less(credits, lane)):
            credits[lane] -= 1
    return tuple(credits)


def _blocks(flow: Flow, credits: Sequence[int]) -> bool:
    return bool(_Run(flow.with_credits(credits)).circle())


def _one_less(credits: Sequence[int], lane: int) -> list[int]:
    return [count - (number == lane) for number, count in enumerate(credits)]


def held_cycles(flow: Flow, starts: Sequence[int]) -> tuple[int, ...]:
    """The cycles for which a credit of each lane is away for one frame.

    `starts` has the cycle in which each step starts the first frame. A credit is gone from the moment that the source
    sends to the one in which the target, which is then done, has given it back. So with a frame every `period` cycles,
    a lane needs one credit for each period that begins in this time.
    """
    found = []
    for lane in flow.lanes:
        source, target = flow.steps[lane.source], flow.steps[lane.target]
        sent = starts[lane.source] + source.cycles
        back = starts[lane.target] + target.cycles + credit_cycles(flow.mesh, source.pe, target.pe)
        found.append(back - sent)
    return tuple(found)


class _Run:
    """One run of a flow without time, until a number of frames is through or all PEs wait."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._arrived = [0] * len(flow.lanes)
        self._credits = [lane.credits for lane in flow.lanes]
        self._unsent: dict[int, deque[int]] = {}  # by step: the lanes that it has yet to send to
        self._turn = {place: [0, 0] for place in flow.turns}  # by PE: number of its turn, place in it
        lag = max((step.lag for step in flow.steps), default=0)
        self._frames = 2 * (lag + max(self._credits, default=0)) + 2
        # Every step runs as many frames: a PE has more turns, the larger the lags of its steps are.
        lags = {place: max(flow.steps[index].lag for index in indices) for place, indices in flow.turns.items()}
        self._turns = {place: self._frames + most for place, most in lags.items()}

    def circle(self) -> list[tuple[str, int | None]]:
        """Those that wait for each other, each with the lane whose credit it waits for, or None: for a message."""
        ready = deque(self._flow.turns)
        queued = set(ready)
        while ready:
            place = ready.popleft()
            queued.discard(place)
            for other in self._advance(place):
                if other not in queued:
                    queued.add(other)
                    ready.append(other)
        waiting = {place for place, (turn, _) in self._turn.items() if turn < self._turns[place]}
        return self._waits(min(waiting)) if waiting else []

    def _advance(self, place: tuple[int, int]) -> list[tuple[int, int]]:
        """Run a PE until it waits; the PEs that this may wake."""
        flow, woken = self._flow, []
        indices, at = flow.turns[place], self._turn[place]
        while at[0] < self._turns[place]:
            index = indices[at[1]]
            if index not in self._unsent and 0 <= at[0] - flow.steps[index].lag < self._frames:
                if any(not self._arrived[lane] for lane in flow.incoming[index]):
                    break
                for lane in flow.incoming[index]:
                    self._arrived[lane] -= 1
                    self._credits[lane] += 1
                    woken.append(flow.steps[flow.lanes[lane].source].pe)
                self._unsent[index] = deque(flow.outgoing[index])
            unsent = self._unsent.get(index, deque())
            while unsent and self._credits[unsent[0]]:
                lane = unsent.popleft()
                self._credits[lane] -= 1
                self._arrived[lane] += 1
                woken.append(flow.steps[flow.lanes[lane].target].pe)
            if unsent:
                break
            self._unsent.pop(index, None)
            at[1] += 1
            if at[1] == len(indices):
                at[0], at[1] = at[0] + 1, 0
        return [other for other in woken if other != place]

    def _waits(self, first: tuple[int, int]) -> list[tuple[str, int | None]]:
        seen: dict[tuple[int, int], tuple[str, int | None]] = {}
        place = first
        while place not in seen:
            seen[place], place = self._wait(place)
        order = list(seen)
        return [seen[one] for one in order[order.index(place) :]]

    def _wait(self, place: tuple[int, int]) -> tuple[tuple[str, int | None], tuple[int, int]]:
        """What a PE waits for, and the PE that it waits for."""
        flow = self._flow
        index = flow.turns[place][self._turn[place][1]]
        name = flow.steps[index].name
        if index in self._unsent:
            lane = self._unsent[index][0]
            target = flow.steps[flow.lanes[lane].target]
            text = f"{name} waits for a credit of {flow.name(lane)}, which has {flow.lanes[lane].credits}"
            return (text, lane), target.pe
        lane = next(lane for lane in flow.incoming[index] if not self._arrived[lane])
        source = flow.steps[flow.lanes[lane].source]
        return (f"{name} waits for a message of {source.name}", None), source.pe
