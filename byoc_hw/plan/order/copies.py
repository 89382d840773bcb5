"""The order of the copies: a free DMA takes, of the copies that can start, the one that is needed first.

Jobs keep the order of the work. A copy may move to an earlier or later place, as long as it passes
no operation that it shares bytes with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.steps import Copy
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

    @property
    def cycles(self) -> int:
        """Cycles of all operations. The host takes no time."""
        return max(self.end, default=0)


def order(ops: Sequence[Op], offsets: Mapping[LocalBuffer, int]) -> Order:
    """Order the copies. Jobs keep their order."""
    before = dependencies(ops, offsets)
    is_copy = [not op.is_job for op in ops]
    needed = needed_first(ops, before)
    waiting = [len(before[index]) for index in range(len(ops))]
    after: list[list[int]] = [[] for _ in ops]
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    start, end, ready = [0] * len(ops), [0] * len(ops), [0] * len(ops)
    jobs = [index for index in range(len(ops)) if not is_copy[index]]
    copies: list[int] = []
    free = {True: 0, False: 0}
    possible: list[tuple[int, int]] = []  # copies that can start, by need
    later: list[tuple[int, int, int]] = []  # copies that can start from a time on
    following = 0

    def begin(index: int) -> None:
        engine = is_copy[index]
        start[index] = max(free[engine], ready[index])
        free[engine] = end[index] = start[index] + ops[index].cycles
        for other in after[index]:
            waiting[other] -= 1
            if is_copy[other] != engine:
                ready[other] = max(ready[other], end[index])
            if waiting[other] == 0 and is_copy[other]:
                heappush(later, (ready[other], needed[other], other))

    for index in range(len(ops)):
        if is_copy[index] and waiting[index] == 0:
            heappush(later, (0, needed[index], index))
    while True:
        while following < len(jobs) and waiting[jobs[following]] == 0:
            begin(jobs[following])
            following += 1
        while later and later[0][0] <= free[True]:
            _, need, index = heappop(later)
            heappush(possible, (need, index))
        if possible:
            index = heappop(possible)[1]
        elif later:
            index = heappop(later)[2]
        else:
            break
        copies.append(index)
        begin(index)
    assert len(copies) + following == len(ops), "the order of the work is a possible one"
    return Order(before, copies, jobs, start, end, ready)


def needed_first(ops: Sequence[Op], before: Sequence[set[int]]) -> list[int]:
    """For each copy the first job or call that waits for it, directly or by way of other copies."""
    is_copy = [isinstance(op.step, Copy) for op in ops]
    needed = [_NEVER] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        at = needed[index] if is_copy[index] else index
        for other in before[index]:
            if is_copy[other]:
                needed[other] = min(needed[other], at)
    return needed
