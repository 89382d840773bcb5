"""StageCuts the units of a network again, by the cycles of stages that are planned in full.

The cycles of jobs leave out the copies that jobs do not hide: they differ from stage to stage. What a stage takes
beyond its jobs is learned from the stages that are planned, and taken to hold for stages that share most units with
them. So the units are cut again, until that finds nothing better. Then the longest stage gives units to those beside
it, and these to theirs, as long as that makes the longest one shorter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from byoc_hw.mesh.stage_cycles import StageCycles, StageFigures
from byoc_hw.mesh.stages import StageCutter

StageCuts = tuple[tuple[int, int], ...]
"""The first unit of each stage, and the one behind its last."""

_ROUNDS = 8
"""The most times that the units are cut again."""

_NEAR = 1.004
"""The longest stage over the mean of all at which no unit is moved any more."""

_REACH = 6
"""The most stages over which units are handed on."""

_LOOKED_AT = 6
"""The planned stages before and behind one that are looked at for what it takes beyond its jobs."""

NO_PLAN = 1 << 60
"""The cycles of a stage that does not fit."""


@dataclass(frozen=True)
class BalancedCuts:
    """Stages, the cycles of each, and the bytes of its PE without what it receives."""

    cuts: StageCuts
    cycles: tuple[int, ...]
    fixed: tuple[int, ...]

    @property
    def longest(self) -> int:
        """The cycles of the longest stage."""
        return max(self.cycles)


class Balance:
    """The cuts of one order of units. `planned` has the cycles of stages, and how many more may be planned."""

    def __init__(self, cutter: StageCutter, room: int, planned: StageCycles) -> None:
        self.cutter, self._room, self._planned = cutter, room, planned
        self._known: dict[tuple[int, int], StageFigures] = {}
        self._sorted: list[tuple[int, int]] = []

    def of(self, cuts: StageCuts) -> BalancedCuts:
        """The cuts with their figures as planned."""
        cycles = tuple(self.cycles(*cut) for cut in cuts)
        return BalancedCuts(cuts, cycles, tuple(self._known[cut].fixed for cut in cuts))

    def cycles(self, first: int, stop: int) -> int:
        """The cycles of a stage as it is planned; of one that does not fit, more than any has."""
        key = first, stop
        if key not in self._known:
            cutter = self.cutter
            found = self._planned.of(cutter.pieces(first, stop), cutter.leaving_at(stop), cutter.slots)
            self._known[key] = StageFigures(NO_PLAN, 0, 0) if found is None else found
            insort(self._sorted, key)
        found = self._known[key]
        return found.cycles if found.nbytes(self.cutter.slots) <= self._room else NO_PLAN

    def better(self, found: BalancedCuts, most: int) -> BalancedCuts:
        """The best cuts into at most `most` stages that are found from some cuts on; these, if there are none."""
        best = found
        for _ in range(_ROUNDS):
            if self._planned.left <= 0 or self._is_even(best):
                break
            cuts = self.cutter.with_extra(self._extra, self._further).best(most)
            if cuts is None or all(cut in self._known for cut in cuts):
                break
            again = self.of(cuts)
            best = min(best, again, key=lambda one: one.longest)
        return self._evened(best)

    def _extra(self, first: int, stop: int) -> int:
        """What a stage takes beyond its jobs: as much as the planned one that shares most units with it."""
        near = self._near(first, stop)
        found = self._known[near].cycles
        return 0 if found >= NO_PLAN else found - self.cutter.jobs(*near)

    def _further(self, first: int, stop: int) -> int:
        """The bytes of a stage beyond those that are worked out, in the same way."""
        near = self._near(first, stop)
        found, slots = self._known[near], self.cutter.slots
        return 0 if found.cycles >= NO_PLAN else found.nbytes(slots) - self.cutter.nbytes(*near).total(slots)

    def _near(self, first: int, stop: int) -> tuple[int, int]:
        """The planned stage that shares most units with another one."""
        near = first, stop
        if near in self._known:
            return near
        at = bisect_left(self._sorted, near)
        around = self._sorted[max(0, at - _LOOKED_AT) : at + _LOOKED_AT]
        return max(around, key=lambda one: (_shared(one, near), -abs(one[0] - first), one))

    # ------------------------------------------------------------ from stage to stage

    def _evened(self, found: BalancedCuts) -> BalancedCuts:
        """StageCuts from which no unit can be handed on from the longest stage so that the longest one is shorter."""
        while self._planned.left > 0 and not self._is_even(found):
            worst = found.cycles.index(found.longest)
            moved = self._handed(found, worst, 1) or self._handed(found, worst, -1)
            if moved is None:
                break
            found = moved
        return found

    def _handed(self, found: BalancedCuts, worst: int, way: int) -> BalancedCuts | None:
        """The longest stage gives as few units as do to the next one, and that one, if it is too long then, to the one
        behind; None if that does not make the longest one shorter."""
        limit, cuts, cycles = found.longest, list(found.cuts), list(found.cycles)
        at = worst
        while 0 <= at + way < len(cuts) and abs(at - worst) < _REACH:
            while cycles[at] >= limit:
                if not self._hand(cuts, at, way) or self._planned.left <= 0:
                    return None
                cycles[at] = self.cycles(*cuts[at])
            at += way
            cycles[at] = self.cycles(*cuts[at])
            if cycles[at] < limit:
                return self.of(tuple(cuts))
        return None

    @staticmethod
    def _hand(cuts: list[tuple[int, int]], at: int, way: int) -> bool:
        """Move one unit of a stage to the one beside it; False if it has no other."""
        (first, stop), (other, end) = cuts[at], cuts[at + way]
        if stop - first < 2:
            return False
        if way > 0:
            cuts[at], cuts[at + way] = (first, stop - 1), (other - 1, end)
        else:
            cuts[at], cuts[at + way] = (first + 1, stop), (other, end + 1)
        return True

    @staticmethod
    def _is_even(found: BalancedCuts) -> bool:
        return found.longest <= _NEAR * sum(found.cycles) / len(found.cycles)


def _shared(one: tuple[int, int], other: tuple[int, int]) -> int:
    """The units of both stages."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))
