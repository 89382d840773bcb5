"""Jobs in another order than that of the layers: what the array waits for may come while it does something else.

Jobs of a layer that follow each other are moved together: as far to the front or to the back as what they need allows,
or past their neighbours. Copies go with them, and addresses are found anew. What takes fewer cycles is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import groupby
from operator import or_

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.order.joined_copies import OrderedWork
from byoc_hw.plan.place.local import place_local
from byoc_hw.plan.steps import Copy
from byoc_hw.plan.work.ops import LocalBuffer, Op

MOST_MOVED = 2500
"""The copies and jobs that are ordered in all: those of a plan with more stay in their order."""

Runs = tuple[int, ...]
"""Runs of jobs of one layer, by number, in the order in which the array does them."""


def in_better_order(work: OrderedWork, accelerator: Accelerator) -> OrderedWork:
    """The work with its jobs in the order that takes the fewest cycles of those tried, and its order."""
    if len(work.ops) > MOST_MOVED:
        return work
    jobs = Reordering(work.ops)
    runs, left = tuple(range(len(jobs.runs))), MOST_MOVED
    best, tried = work, {runs}
    improved = True
    while improved:
        improved = False
        for other in jobs.moves(runs):
            if other in tried:
                continue
            tried.add(other)
            left -= len(work.ops)
            if left < 0:
                return best
            with suppress(PlanError):  # more may be in local memory at once
                ops = jobs.ops(other)
                places = place_local(ops, accelerator)
                found = replace(work, ops=ops, places=places, order=order(ops, places))
                if found.order.cycles < best.order.cycles:
                    best, runs, improved = found, other, True
                    break
    return best


class Reordering:
    """What orders of jobs are possible. `runs` are the jobs of a layer that follow each other, by index."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        jobs = [index for index, op in enumerate(ops) if op.is_job]
        self.runs = [list(some) for _, some in groupby(jobs, key=lambda index: ops[index].layer)]
        self._before = dependencies(ops, _nowhere_together(ops), range(len(ops)))
        self._jobs: list[int] = []  # the jobs that an operation needs, and itself: a bit each
        for index, before in enumerate(self._before):
            self._jobs.append(reduce(or_, (self._jobs[other] for other in before), ops[index].is_job << index))
        needed = [reduce(or_, (self._jobs[index] for index in run)) for run in self.runs]
        bits = [sum(1 << index for index in run) for run in self.runs]
        self._needs = [
            {other for other, own in enumerate(bits) if other != number and own & before}
            for number, before in enumerate(needed)
        ]
        self._with: dict[int, list[int]] = {}  # the copies to local memory before each job
        self._others: list[int] = []  # the other copies
        waiting: list[int] = []
        for index, op in enumerate(ops):
            if op.is_job:
                self._with[index], waiting = waiting, []
            elif isinstance(op.step, Copy) and op.step.inward:
                waiting.append(index)
            else:
                self._others.append(index)

    def moves(self, runs: Runs) -> Iterator[Runs]:
        """Orders with a run as early as can be, as late as can be, or behind the next one."""
        for at, run in enumerate(runs):
            others = runs[:at] + runs[at + 1 :]
            low = max((others.index(one) + 1 for one in self._needs[run]), default=0)
            high = min((there for there, one in enumerate(others) if run in self._needs[one]), default=len(others))
            for place in dict.fromkeys((low, high, min(at + 1, high), max(at - 1, low))):
                if place != at:
                    yield (*others[:place], run, *others[place:])

    def ops(self, runs: Runs) -> tuple[Op, ...]:
        """The work in an order of runs."""
        found: dict[int, None] = {}
        done, left = 0, self._others  # the jobs so far

        def take(index: int) -> None:
            for other in sorted(self._before[index]):
                if other not in found:
                    take(other)
            found[index] = None

        for job in (job for run in runs for job in self.runs[run]):
            for index in self._with[job]:
                if index not in found and not self._jobs[index] & ~done:
                    take(index)
            take(job)
            done |= self._jobs[job]
            for index in left:
                if index not in found and found.keys() >= self._before[index]:
                    take(index)
            left = [index for index in left if index not in found]
        for index, op in enumerate(self._ops):
            if not op.is_job and index not in found:
                take(index)
        return tuple(self._ops[index] for index in found)


def _nowhere_together(ops: Sequence[Op]) -> dict[LocalBuffer, int]:
    """Addresses at which no two buffers share bytes."""
    found: dict[LocalBuffer, int] = {}
    free = 0
    for buffer in (access.place for op in ops for access in op.accesses):
        if isinstance(buffer, LocalBuffer) and buffer not in found:
            found[buffer], free = free, free + buffer.nbytes
    return found
