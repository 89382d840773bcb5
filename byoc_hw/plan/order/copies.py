"""The order of the copies: a free DMA takes, of the copies that can start, the one that is needed first. It is compared
with a patient one, which waits for a copy that is needed earlier and can start soon.

Jobs keep the order of the work. A copy may move to an earlier or later place, as long as it passes
no operation that it shares bytes with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.work.ops import LocalBuffer, Op

_NEVER = 1 << 62


@dataclass(frozen=True)
class Order:
    """The order of the DMA and of the array, as indices into the work, and the times of each operation.

    `before` are the operations that each has to wait for; `ready` is the earliest cycle at which it can start.
    """

    before: list[set[int]]
    copies: list[int]
    jobs: list[int]
    start: list[int]
    end: list[int]
    ready: list[int]

    @cached_property
    def cycles(self) -> int:
        """Cycles of all operations. The host takes no time."""
        return max(self.end, default=0)


def order(ops: Sequence[Op], offsets: Mapping[LocalBuffer, int]) -> Order:
    """Order the copies. Jobs keep their order."""
    return in_need(ops, dependencies(ops, offsets))


def in_need(ops: Sequence[Op], before: list[set[int]]) -> Order:
    """As `order`, where it is known which operations each one has to wait for."""
    needed = needed_first(ops, before)
    after: list[list[int]] = [[] for _ in ops]
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    eager = _Ordering(ops, before, after, needed, patient=False)
    found = eager.ordered()
    if not eager.held_up:
        return found
    return min(found, _Ordering(ops, before, after, needed, patient=True).ordered(), key=lambda one: one.cycles)


class _Ordering:
    """Lets both engines do the operations, and notes the times.

    A copy that is begun is in the way of one that can start soon after, and is needed earlier. A `patient` DMA does a
    short copy in the meantime, or waits, where that takes less time than the other one would lose. `held_up` says
    whether there was such a copy.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        before: list[set[int]],
        after: Sequence[Sequence[int]],
        needed: Sequence[int],
        *,
        patient: bool,
    ) -> None:
        self._ops, self._before, self._after = ops, before, after
        self._needed, self._patient = needed, patient
        self._is_copy, self._cycles = [not op.is_job for op in ops], [op.cycles for op in ops]
        self._waiting = list(map(len, before))
        self._start, self._end, self._ready = [0] * len(ops), [0] * len(ops), [0] * len(ops)
        self._free = {True: 0, False: 0}
        self._possible: list[tuple[int, int]] = []  # copies that can start, by need
        self._later: list[tuple[int, int, int]] = []  # copies that can start from a time on
        self.held_up = False

    def ordered(self) -> Order:
        jobs = [index for index in range(len(self._ops)) if not self._is_copy[index]]
        copies: list[int] = []
        following = 0
        for index in range(len(self._ops)):
            if self._is_copy[index] and self._waiting[index] == 0:
                heappush(self._later, (0, self._needed[index], index))
        while True:
            while following < len(jobs) and self._waiting[jobs[following]] == 0:
                self._begin(jobs[following])
                following += 1
            while self._later and self._later[0][0] <= self._free[True]:
                _, need, index = heappop(self._later)
                heappush(self._possible, (need, index))
            if not self._possible and not self._later:
                break
            index = self._next()
            copies.append(index)
            self._begin(index)
        assert len(copies) + following == len(self._ops), "the order of the work is a possible one"
        return Order(self._before, copies, jobs, self._start, self._end, self._ready)

    def _next(self) -> int:
        """The copy that the DMA does next; it is taken out of those that wait."""
        if not self._possible:
            return heappop(self._later)[2]
        if self.held_up and not self._patient:
            return heappop(self._possible)[1]
        need, index = self._possible[0]
        now = self._free[True]
        end = now + self._cycles[index]
        urgent = [one for one in self._later if one[0] < end and one[1] < need]
        if not urgent:
            return heappop(self._possible)[1]
        self.held_up = True
        soon = min(urgent)
        if self._patient:
            short = [one for one in self._possible if now + self._cycles[one[1]] <= soon[0]]
            if short:
                self._possible.remove(min(short))
                heapify(self._possible)
                return min(short)[1]
            if soon[0] - now < end - soon[0]:
                self._later.remove(soon)
                heapify(self._later)
                return soon[2]
        return heappop(self._possible)[1]

    def _begin(self, index: int) -> None:
        engine, is_copy, waiting, ready = self._is_copy[index], self._is_copy, self._waiting, self._ready
        start = self._start[index] = max(self._free[engine], ready[index])
        end = self._free[engine] = self._end[index] = start + self._cycles[index]
        for other in self._after[index]:
            waiting[other] -= 1
            copies = is_copy[other]
            if copies != engine and ready[other] < end:
                ready[other] = end
            if copies and waiting[other] == 0:
                heappush(self._later, (ready[other], self._needed[other], other))


def needed_first(ops: Sequence[Op], before: Sequence[set[int]]) -> list[int]:
    """For each copy the first job or call that waits for it, directly or by way of other copies."""
    is_copy = [not op.is_job for op in ops]
    needed = [_NEVER] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        at = needed[index] if is_copy[index] else index
        for other in before[index]:
            if is_copy[other] and at < needed[other]:
                needed[other] = at
    return needed
