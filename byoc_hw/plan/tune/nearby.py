"""A plan made better by a few choices near it (`near_choices.py`): first where the array waits the longest.

What the planner estimates leaves out when exactly a copy has to be there. Here the plan is laid out, and choices that
take fewer cycles are where the next ones start. The work is limited by the copies and jobs that are laid out, so that
the outcome is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import PIECES, Choices
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.tune.near_choices import NearbyChoices, choices_by_kind, halved_blocks
from byoc_hw.plan.tune.space import SearchSpace

MOST_WORK = 3000
"""The copies and jobs that are laid out in all."""

NEAR = 1.01
"""How near the bound a plan is good enough."""


def better_nearby(found: Layout, bound: int) -> Layout:
    """The best plan near one that was found, or that one, after `MOST_WORK` copies and jobs. No plan takes fewer cycles
    than `bound`."""
    return tried_nearby(found, bound, MOST_WORK)[-1]


def tried_nearby(found: Layout, bound: int, work: int) -> list[Layout]:
    """The plans that were tried near one that was found, after so many copies and jobs. The best one is the last."""
    if not found.order.jobs or found.cycles <= NEAR * bound or 2 * len(found.work.ops) > work:
        return [found]
    search = Nearby(found, bound, work)
    search.improve()
    return [*search.seen, search.best]


class Nearby:
    """Goes through choices near the best plan so far again and again, until none of them is better, or after so much
    `work`. What is better is the best plan for those that follow."""

    def __init__(self, start: Layout, bound: int, work: int) -> None:
        self.best, self.seen = start, [start]
        self._space = SearchSpace(start.mapped.graph, start.mapped.accelerator)
        self._enough, self._left = NEAR * bound, work
        self._tried = {self._space.canonical(start.choices)}
        self._too_large: list[Choices] = []

    def improve(self) -> None:
        before = None
        while self.best is not before and not self._ended:
            before = self.best
            for moves in self._kinds():
                while self._is_better(moves):
                    pass

    def _kinds(self) -> Iterator[NearbyChoices]:
        """The kinds of choices near the best plan, or one like it."""
        yield from choices_by_kind(self.best)
        yield self._in_turn
        yield halved_blocks

    @property
    def _ended(self) -> bool:
        return self._left < 0 or self.best.cycles <= self._enough

    def _is_better(self, moves: NearbyChoices) -> bool:
        """Whether one of some choices near the best plan is better: the first one is the best then."""
        for choices in moves(self._space, self.best):
            if self._ended or self._takes(choices):
                return not self._ended
        return False

    def _takes(self, moved: Choices) -> bool:
        choices, best = self._space.canonical(moved), self.best
        if choices in self._tried:
            return False
        self._tried.add(choices)
        self._left -= len(best.work.ops)
        if self._left < 0:
            return False
        try:
            mapped = self._space.groups_of(choices).mapped
            other = lay_out(mapped, choices, most=2 * len(best.work.ops) + 100, below=self._below)
        except PlanError:
            self._too_large.append(choices)
            return False
        self.seen.append(other)
        if not self._is_less(other):
            return False
        self.best, self._too_large = other, []
        return True

    @property
    def _below(self) -> int:
        """Cycles that either engine of a better plan is busy at most."""
        return self.best.cycles

    def _is_less(self, other: Layout) -> bool:
        """Whether another plan is better than the best one."""
        return other.cycles < self.best.cycles and _cost(other) < _cost(self.best)

    def _in_turn(self, space: SearchSpace, found: Layout) -> Iterator[Choices]:
        """Choices that did not fit, with new groups whose stripes are copied and computed in turn, as a whole or in
        pieces: these take less local memory."""
        known = found.choices.groups
        for choices in list(self._too_large):
            for pieces in PIECES:
                groups = (one if one in known else replace(one, overlap=False, pieces=pieces) for one in choices.groups)
                yield replace(choices, groups=tuple(groups))


_COPYING = 16
"""Cycles of the DMA that are worth one of the region: copies cost energy, and what gains little is not worth many."""


_OPERATION = 5
"""Cycles of the region that a copy or job more is worth: it is a row of tables in flash, and the core starts it."""


def _cost(layout: Layout) -> float:
    return layout.cycles + layout.work.busy.copies / _COPYING + _OPERATION * len(layout.work.ops)
