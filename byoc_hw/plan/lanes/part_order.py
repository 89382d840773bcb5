"""The order of the parts of each lane.

The search goes through the layers in a few orders, and an array does its parts in that of the layers. Where a network
has branches, a part may as well come before others of its lane, or behind them: its output is there earlier, or the
array need not wait for what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from byoc_hw.plan.lanes.profile import Option


def parts_in_better_order(
    parts: Sequence[Option], cycles: Callable[[Sequence[Option]], int], most: int
) -> list[Option]:
    """Parts in a possible order, one after the other moved past others of its lane while that takes fewer cycles.
    `cycles` counts those of parts in some order, of which at most so many are tried."""
    best, least = list(parts), cycles(parts)
    improved = True
    while improved:
        improved = False
        for other in _moves(best):
            if most <= 0:
                return best
            most -= 1
            count = cycles(other)
            if count < least:
                best, least, improved = other, count, True
                break
    return best


def _moves(parts: Sequence[Option]) -> Iterator[list[Option]]:
    """The parts with one of them moved to the front of another one of its lane, or behind it."""
    for at, part in enumerate(parts):
        for to, other in enumerate(parts[:at]):
            if other.part.cut.lane == part.part.cut.lane:
                between = parts[to + 1 : at]
                if not any(_reads(part, one) for one in (other, *between)):
                    yield [*parts[:to], part, other, *between, *parts[at + 1 :]]
                elif not any(_reads(one, other) for one in (*between, part)):
                    yield [*parts[:to], *between, part, other, *parts[at + 1 :]]


def _reads(part: Option, other: Option) -> bool:
    """Whether a part reads something that another one makes."""
    return not part.part.reads.isdisjoint(other.part.makes)
