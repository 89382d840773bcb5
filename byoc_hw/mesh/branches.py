"""The exact division of a small graph into stages: over all orders of its units, not of one order alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_hw.errors import PlanError

MOST_CLOSED_SETS = 4096
"""Graphs with more sets of units that hold all that they need are not small."""

UnitSet = int
"""Some units, as bits."""


def closed_sets(before: Sequence[Sequence[int]], most: int = MOST_CLOSED_SETS) -> list[UnitSet] | None:
    """The sets of units that hold, with each unit, all that must come before it, smaller ones first; None if there are
    more than `most`. `before` has for each unit those that it reads, all of which have lower numbers."""
    needed = [sum(1 << other for other in set(others)) for others in before]
    found, edge = [0], {0}
    while edge:
        edge = {
            one | 1 << unit
            for one in edge
            for unit, need in enumerate(needed)
            if not one & 1 << unit and one & need == need
        }
        found += sorted(edge)
        if len(found) > most:
            return None
    return found


def exact_stages(
    before: Sequence[Sequence[int]],
    stages: int,
    cycles: Callable[[UnitSet], int],
    fits: Callable[[UnitSet], bool],
) -> tuple[UnitSet, ...] | None:
    """At most `stages` stages, each a set of units that reads only itself and earlier ones, the longest as short as can
    be; None if no such stages fit. Raises `PlanError` for a graph that is not small.

    Each stage takes the units between two closed sets, so all divisions are paths through these sets.
    """
    sets = closed_sets(before)
    if sets is None:
        raise PlanError(f"an exact division is of a graph with at most {MOST_CLOSED_SETS} closed sets: it has more")
    longest: dict[UnitSet, tuple[int, tuple[UnitSet, ...]]] = {0: (0, ())}
    best: tuple[int, tuple[UnitSet, ...]] | None = None
    known: dict[UnitSet, int | None] = {}
    for _ in range(stages):
        reached: dict[UnitSet, tuple[int, tuple[UnitSet, ...]]] = {}
        for start in sets:
            if start not in longest:
                continue
            so_far, path = longest[start]
            for stop in sets:
                units = stop & ~start
                if not units or start & ~stop:
                    continue
                if units not in known:
                    known[units] = cycles(units) if fits(units) else None
                cost = known[units]
                if cost is None or (best is not None and cost >= best[0]):
                    continue
                worst = max(so_far, cost)
                if stop not in reached or worst < reached[stop][0]:
                    reached[stop] = worst, (*path, units)
        longest = reached
        done = longest.get(sets[-1])
        if done is not None and (best is None or done[0] < best[0]):
            best = done
    return None if best is None else best[1]
