"""Cuts the units of a network again, by the cycles of stages that are planned.

The cycles of jobs leave out the copies that jobs do not hide: they differ from stage to stage. What a stage takes
beyond its jobs is learned from the stages that are planned, and taken to hold for stages that share most units with
them. So the units are cut again, until that finds nothing better. Then the longest stage gives units to those beside
it, and these to theirs, as long as that makes the longest one shorter.

Stages are planned quickly first. The longest ones, which the others wait for, are then planned as they are built.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import Patch
from byoc_hw.mesh.stage_cycles import StageCycles, StageFigures, sharpened
from byoc_hw.mesh.stages import StageCutter

StageCuts = tuple[tuple[int, int], ...]
"""The first unit of each stage, and the one behind its last."""

_ROUNDS = 8
"""The most times that the units are cut again."""

_NEAR = 1.004
"""The longest stage over the mean of all at which no unit is moved any more."""

_REACH = 16
"""The most stages over which units are handed on."""

_LOOKED_AT = 6
"""The planned stages before and behind one that are looked at for what it takes beyond its jobs."""

NO_PLAN = 1 << 60
"""The cycles of a stage that does not fit."""


@dataclass(frozen=True)
class BalancedCuts:
    """Stages, and the figures of each."""

    cuts: StageCuts
    figures: tuple[StageFigures, ...]

    @property
    def cycles(self) -> tuple[int, ...]:
        """The cycles of each stage."""
        return tuple(one.cycles for one in self.figures)

    @property
    def longest(self) -> int:
        """The cycles of the longest stage."""
        return max(self.cycles)


PlanStage = Callable[[Sequence[NodePiece], Callable[[str, Patch], Patch | None], int], StageFigures | None]
"""What plans the stage of some pieces."""


class Balance:
    """The cuts of one order of units. `planned` has the cycles of stages, and how many more may be planned."""

    def __init__(self, cutter: StageCutter, mesh: Mesh, planned: StageCycles) -> None:
        self.cutter, self._mesh, self._planned = cutter, mesh, planned
        self._quick: dict[tuple[int, int], StageFigures] = {}
        self._built: dict[tuple[int, int], StageFigures] = {}
        self._sorted: list[tuple[int, int]] = []

    def of(self, cuts: StageCuts, enough: int = NO_PLAN) -> BalancedCuts:
        """The cuts with their figures as planned quickly, of the longest stages as they are built: until one of them
        has `enough` cycles."""
        quick = [self._figures(*cut) for cut in cuts]
        return BalancedCuts(cuts, sharpened(quick, lambda at: self._figures_built(*cuts[at]), enough))

    def quickly(self, cuts: StageCuts) -> BalancedCuts:
        """The cuts with their figures as planned quickly."""
        return BalancedCuts(cuts, tuple(self._figures(*cut) for cut in cuts))

    def cycles(self, first: int, stop: int, limit: int) -> int:
        """The cycles of a stage as it is planned quickly; if these are `limit` or more, as it is built. Of a stage that
        does not fit they are more than any has."""
        found = self._figures(first, stop)
        if found.cycles >= limit:
            found = self._figures_built(first, stop) or found
        return found.cycles

    def _figures(self, first: int, stop: int) -> StageFigures:
        key = first, stop
        if key not in self._quick:
            self._quick[key] = self._planned_by(self._planned.of, key)
            insort(self._sorted, key)
        return self._quick[key]

    def _figures_built(self, first: int, stop: int) -> StageFigures | None:
        """The figures of a stage as it is built; None if no more stages are planned."""
        key = first, stop
        if key not in self._built and self._planned.left > 0:
            self._built[key] = self._planned_by(self._planned.built, key)
        return self._built.get(key)

    def _planned_by(self, plan: PlanStage, key: tuple[int, int]) -> StageFigures:
        first, stop = key
        slots = self.cutter.slots
        found = plan(self.cutter.pieces(first, stop), self.cutter.leaving_at(stop), slots)
        if found is None:
            return StageFigures(NO_PLAN, 0, 0)
        fits = found.nbytes(slots) <= self._mesh.data and found.code_alone <= self._mesh.code
        return found if fits else replace(found, cycles=NO_PLAN)

    def better(self, found: BalancedCuts, most: int) -> BalancedCuts:
        """The best cuts into at most `most` stages that are found from some cuts on; these, if there are none."""
        best = self.of(found.cuts)
        for _ in range(_ROUNDS):
            ended = self._planned.left <= 0 or self._is_even(best)
            if ended and best.longest < NO_PLAN:
                break
            cuts = self.cutter.with_extra(self._extra, self._further).best(most)
            if cuts is None or all(cut in self._quick for cut in cuts):
                break
            best = min(best, self.of(cuts, best.longest), key=lambda one: one.longest)
        return self._evened(best)

    def misfit(self, found: BalancedCuts) -> tuple[int, StageFigures] | None:
        """The first stage that does not fit, and its figures; None if all fit."""
        figures = [self._known(cut) for cut in found.cuts]
        return next(((number, one) for number, one in enumerate(figures) if one.cycles >= NO_PLAN), None)

    def _extra(self, first: int, stop: int) -> int:
        """What a stage takes beyond its jobs: as much as the planned one that shares most units with it."""
        near = self._near(first, stop)
        found = self._known(near).cycles
        return 0 if found >= NO_PLAN else found - self.cutter.jobs(*near)

    def _further(self, first: int, stop: int) -> int:
        """The bytes of a stage beyond those that are worked out, in the same way. Code that has no room counts as data:
        a shorter stage has less of it."""
        near = self._near(first, stop)
        found, slots = self._known(near), self.cutter.slots
        code = max(0, found.code_alone - self._mesh.code)
        return code + found.nbytes(slots) - self.cutter.nbytes(*near).total(slots) if found.fixed else 0

    def _known(self, key: tuple[int, int]) -> StageFigures:
        return self._built.get(key, self._quick[key])

    def _near(self, first: int, stop: int) -> tuple[int, int]:
        """The planned stage that shares most units with another one."""
        near = first, stop
        if near in self._quick:
            return near
        at = bisect_left(self._sorted, near)
        around = self._sorted[max(0, at - _LOOKED_AT) : at + _LOOKED_AT]
        return max(around, key=lambda one: (_shared(one, near), -abs(one[0] - first), one))

    # ------------------------------------------------------------ from stage to stage

    def _evened(self, found: BalancedCuts) -> BalancedCuts:
        """Cuts from which no unit can be handed on from the longest stage so that the longest one is shorter."""
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
        limit, cuts = found.longest, list(found.cuts)
        at, cycles = worst, found.longest
        while 0 <= at + way < len(cuts) and abs(at - worst) < _REACH:
            while cycles >= limit:
                if not self._hand(cuts, at, way) or self._planned.left <= 0:
                    return None
                cycles = self.cycles(*cuts[at], limit)
            at += way
            cycles = self.cycles(*cuts[at], limit)
            if cycles < limit:
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
