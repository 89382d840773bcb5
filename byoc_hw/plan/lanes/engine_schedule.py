"""List scheduling: of all engines of a chip, the one that can start first starts its next action.

Each lane has two engines. An array does its jobs in their order. A free DMA takes, of its copies that can start, the
one that is needed first.

A long copy may so begin a moment before one that is needed earlier. A patient DMA knows from a schedule that was found
before when each copy could start: it does a short one meanwhile, or waits, where that takes less time than the urgent
one would lose.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

NEVER = 1 << 62
"""Later than any cycle."""


@dataclass(frozen=True)
class EngineActions:
    """Copies and jobs as lists, one for each field.

    `engine` is twice the lane, and one more for a copy; `waits` counts the actions that each waits for; `after` are
    distances to those that wait for it; `needed` is the distance to the first job that waits for a copy; `jobs` are
    those of each lane; `first` has the copies that may wait for nothing; `loads` are the cycles of each engine.
    """

    cycles: list[int]
    engine: list[int]
    waits: list[int]
    after: list[tuple[int, ...]]
    needed: list[int]
    jobs: list[list[int]]
    first: list[int]
    loads: list[int]


class EngineSchedule:
    """The schedule of some actions: those that were `begun`, in their order, and when each can start and ends.

    With the times at which each is `expected` to be ready, DMAs are patient. `total` is the end of the last one. As
    soon as that is known to be `limit` or later, the rest is left out, and `total` is what is known of it.
    """

    def __init__(self, actions: EngineActions, limit: int = NEVER, expected: Sequence[int] = ()) -> None:
        self._actions = actions
        count = len(actions.cycles)
        self.begun: list[int] = []
        self.ready, self.end = [0] * count, [NEVER] * count
        self._possible: list[list[tuple[int, int]]] = [[] for _ in range(2 * len(actions.jobs))]  # copies by need
        self._soon: list[tuple[list[int], list[int]]] = []
        if expected:
            self._soon = [self._by_time(on, expected) for on in range(2 * len(actions.jobs))]
        self.total = self._run(limit)

    def _by_time(self, on: int, expected: Sequence[int]) -> tuple[list[int], list[int]]:
        """The times at which the copies of a DMA are expected, and the copies."""
        engine = self._actions.engine
        copies = sorted((at, index) for index, at in enumerate(expected) if engine[index] == on and on & 1)
        return [at for at, _ in copies], [index for _, index in copies]

    def _run(self, limit: int) -> int:
        actions, ready, ends, begun = self._actions, self.ready, self.end, self.begun
        cost, engine, after, needed = actions.cycles, actions.engine, actions.after, actions.needed
        waits, count, possible, patient = list(actions.waits), len(self._possible), self._possible, bool(self._soon)
        free, rest = [0] * count, list(actions.loads)
        later: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]  # copies by time
        jobs = [[-1, *reversed(actions.jobs[on >> 1])] for on in range(count)]  # to come; the next is the last
        can = [NEVER] * count  # when each engine can start its next action
        for index in actions.first:
            if not waits[index]:
                later[engine[index]].append((0, index + needed[index], index))
                can[engine[index]] = 0
        for on in range(0, count, 2):
            if jobs[on][-1] >= 0 and not waits[jobs[on][-1]]:
                can[on] = 0
        for heap in later:
            heapify(heap)
        while True:
            now = min(can, default=NEVER)
            if now == NEVER:
                return max(free, default=0)
            on = can.index(now)
            if on & 1:
                waiting, open_ = later[on], possible[on]
                while waiting and waiting[0][0] <= now:
                    _, need, index = heappop(waiting)
                    heappush(open_, (need, index))
                soon = self._urgent(on, now) if patient else NEVER
                index = heappop(open_)[1] if soon == NEVER else self._meanwhile(on, now, soon)
                if index < 0:
                    can[on] = free[on] = soon
                    continue
            else:
                index = jobs[on].pop()
            begun.append(index)
            cycles = cost[index]
            free[on] = ends[index] = end = now + cycles
            rest[on] -= cycles
            if end + rest[on] >= limit:
                return end + rest[on]
            for far in after[index]:
                other = index + far
                waits[other] -= 1
                its = engine[other]
                if its != on and end > ready[other]:
                    ready[other] = end
                if waits[other]:
                    continue
                if its & 1:
                    at = ready[other]
                    if at <= free[its]:  # it can start when the DMA is free
                        heappush(possible[its], (other + needed[other], other))
                        can[its] = free[its]
                    else:
                        heappush(later[its], (at, other + needed[other], other))
                        if not possible[its] and at < can[its]:
                            can[its] = at
                elif jobs[its][-1] == other:
                    at = ready[other]
                    can[its] = at if at > free[its] else free[its]
            if on & 1:
                can[on] = end if open_ else max(end, waiting[0][0]) if waiting else NEVER
            else:
                index = jobs[on][-1]
                can[on] = max(end, ready[index]) if index >= 0 and not waits[index] else NEVER

    def _urgent(self, on: int, now: int) -> int:
        """When the first of a DMA's copies is expected to be ready that is needed before the next possible one, and
        could begin while that one is under way."""
        need, index = self._possible[on][0]
        times, copies = self._soon[on]
        for at in range(bisect_right(times, now), bisect_left(times, now + self._actions.cycles[index])):
            if self.end[copies[at]] == NEVER and copies[at] + self._actions.needed[copies[at]] < need:
                return times[at]
        return NEVER

    def _meanwhile(self, on: int, now: int, soon: int) -> int:
        """The copy that a patient DMA begins before an urgent one; -1 where it waits for that one."""
        possible, cycles = self._possible[on], self._actions.cycles
        short = [one for one in possible if now + cycles[one[1]] <= soon]
        if short:
            possible.remove(min(short))
            heapify(possible)
            return min(short)[1]
        if soon - now < now + cycles[possible[0][1]] - soon:
            return -1
        return heappop(possible)[1]
