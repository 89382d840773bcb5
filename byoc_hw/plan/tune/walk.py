"""The planner's own plan, made better by a few random moves of the tuner.

`nearby.py` changes one thing at a time, where the array waits, and ends where no such change is better. Some plans are
several changes away, the first of which gains nothing: the same layers in other groups, in tiles in place of stripes,
one more band with packed rows. So plans a move or a few from the best ones are laid out, and from the best of these it
goes on. The seed is fixed, and the work is limited by the copies and jobs that are laid out: the outcome is the same
on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from heapq import nsmallest
from random import Random

from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.space import SearchSpace

MOST_WALKED = 3000
"""The copies and jobs that are laid out in all."""

_FEWEST = 20
"""A region is left as it is where the work is not enough for so many plans: fewer moves rarely gain anything."""

_KEPT = 4
"""The best plans, from which it goes on."""

_COPYING = 16
"""Cycles of the DMA that are worth one of the region: copies cost energy, and what gains little is not worth many."""

_OPERATION = 5
"""Cycles of the region that a copy or job more is worth: it is a row of tables in flash, and the core starts it."""

_SLOWER = 1.15
"""Engines that are busy for so many times the cycles of the slowest of these are not worth an order of copies."""

_STUCK = 300
"""After so many attempts in turn that lead to known plans the walk ends."""


def walked(starts: Sequence[Layout], good: float, work: int = MOST_WALKED) -> list[Layout]:
    """The plans that random moves from the best of some plans lead to, until one has at most `good` cycles."""
    kept, random, found = _best(starts), Random(0), list[Layout]()
    first = kept[0]
    if work < _FEWEST * len(first.work.ops):
        return found
    space = SearchSpace(first.mapped.graph, first.mapped.accelerator)
    tried = {space.canonical(one.choices) for one in starts}
    fewest = min(one.cycles for one in starts)
    while fewest > good and work >= len(kept[0].work.ops):
        choices = _moved(space, kept, tried, random)
        if choices is None:
            break
        tried.add(choices)
        work -= len(kept[0].work.ops)
        most, below = 2 * len(first.work.ops) + 100, round(_SLOWER * kept[-1].cycles)
        with suppress(PlanError):
            found.append(lay_out(space.groups_of(choices).mapped, choices, most=most, below=below))
            kept, fewest = _best([found[-1], *kept]), min(fewest, found[-1].cycles)
    return found


def cost(layout: Layout) -> float:
    """Cycles of a plan, and what its copies and jobs are worth."""
    copying = sum(layout.work.ops[index].cycles for index in layout.order.copies)
    return layout.cycles + copying / _COPYING + _OPERATION * len(layout.work.ops)


def _best(plans: Sequence[Layout]) -> list[Layout]:
    """The best plans; of those that cost the same, the first one."""
    distinct = {cost(one): one for one in reversed(plans)}
    return [distinct[least] for least in nsmallest(_KEPT, distinct)]


def _moved(space: SearchSpace, kept: Sequence[Layout], tried: set[Choices], random: Random) -> Choices | None:
    """Choices that were not tried: usually one move from the best of some plans. None where all moves lead to known
    ones."""
    for _ in range(_STUCK):
        choices = kept[min(int(random.expovariate(0.5)), len(kept) - 1)].choices
        for _ in range(1 + min(int(random.expovariate(2.0)), 4)):
            choices = step(space, choices, random)
        if choices not in tried:
            return choices
    return None
