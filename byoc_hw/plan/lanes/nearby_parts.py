"""Parts of a chip's plan are made better by choices near theirs, measured together.

The search lays each part out in a few ways, each as if it were alone. Here the plan is there, and with it the times at
which arrays wait: for the layers where they do, other blocks of weights, numbers of stripes, groups and tensors that
stay are tried, as on one accelerator (`tune/near_choices.py`), and copies joined and operations cut as for the part
alone (`Choices.fine`). What makes the plan of all parts shorter is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from byoc_hw.errors import PlanError
from byoc_hw.plan.bound.needs import all_keep_sums_whole
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.finer_parts import order_of_part
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, ordered_parts
from byoc_hw.plan.lanes.lane_places import best_placed
from byoc_hw.plan.order.finer import CUT_SAVES
from byoc_hw.plan.search.planner import mapped_as
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.tune.near_choices import choices_nearby, waits_of
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.soc import Soc

_MOST_WORK = 5_000
"""The copies and jobs that are ordered in all."""

_ORDERED = 2
"""How many times all copies and jobs are ordered, about: with parts side by side, and placed at once."""

_TRIES = 10
"""Parts of which fewer choices could be tried stay."""

_FINE = 4
"""How many times the copies and jobs of a part are ordered, about, where they are joined and cut."""


def parts_nearby(parts: Sequence[PlacedPart], chip: Soc) -> OrderedParts:
    """Parts, in a possible order, with other choices where these take fewer cycles together: each copy or job more has
    to save some. The chip has no shared memory: what parts hand over there has its place. Plans of many copies and jobs
    stay."""
    best = ordered_parts(parts, chip)
    left, improved = _MOST_WORK, _TRIES * len(best.work.ops) <= _MOST_WORK
    tried: set[tuple[int, Choices]] = set()
    while improved:
        improved = False
        for at, choices in _changes(best):
            if (at, choices) in tried:
                continue
            tried.add((at, choices))
            left -= _ORDERED * len(best.work.ops) + _FINE * choices.fine * len(best.parts[at].layout.work.ops)
            if left < 0:
                return best
            other = _with_choices(best, at, choices, chip)
            if other is not None and _saved(best, other) > 0:
                best, improved = other, True
                break
    return best


def _saved(known: OrderedParts, other: OrderedParts) -> int:
    """The cycles that other parts save, less what each copy or job more has to save."""
    more = len(other.work.ops) - len(known.work.ops)
    return known.order.cycles - other.order.cycles - max(CUT_SAVES * more, 0)


def _changes(known: OrderedParts) -> Iterator[tuple[int, Choices]]:
    """A part's number and other choices for it: first of the parts whose arrays wait the longest, and last those whose
    copies are joined, and whose copies and jobs are cut."""
    layouts = {at: _at_its_times(known, at) for at, part in enumerate(known.parts) if part.layout.order.jobs}
    longest = sorted(layouts, key=lambda at: (-sum(waits_of(layouts[at])), at))
    for at in longest:
        layout = layouts[at]
        if not (layout.mapped.whole or layout.choices.fine):
            space = SearchSpace(layout.mapped.graph, layout.mapped.accelerator)
            with suppress(PlanError):  # no choices are near those
                for choices in choices_nearby(space, layout):
                    if all_keep_sums_whole(layout.mapped, choices):
                        yield at, replace(space.canonical(choices), copies_transpose=choices.copies_transpose)
    for at in longest:
        layout = layouts[at]
        if not (layout.mapped.whole or layout.choices.apart):
            yield at, replace(layout.choices, fine=True)


def _at_its_times(known: OrderedParts, at: int) -> Layout:
    """The layout of a part at the times that it has beside the others."""
    layout = known.parts[at].layout
    return replace(layout, order=order_of_part(known.order, known.work.parts.index(at), len(layout.work.ops)))


def _with_choices(known: OrderedParts, at: int, choices: Choices, chip: Soc) -> OrderedParts | None:
    """The parts with other choices for one of them; None where that has no plan, or one whose copies and
    jobs take as long."""
    before = known.parts[at].layout
    most = 2 * len(before.work.ops) + 100
    try:
        layout = lay_out(mapped_as(before.mapped, choices), choices, most=most, below=known.order.cycles)
    except PlanError:
        return None
    if [op.cycles for op in layout.work.ops] == [op.cycles for op in before.work.ops]:
        return None
    parts = [_at_the_start(part) for part in known.parts]
    parts[at] = replace(parts[at], layout=layout, pieces=False)
    return best_placed(parts, chip)


def _at_the_start(part: PlacedPart) -> PlacedPart:
    """A part whose buffers lie at the start of both local memories."""
    places = part.layout.places
    first: dict[int, int] = {}
    for buffer, at in places.items():
        first[buffer.space] = min(first.get(buffer.space, at), at)
    moved = {buffer: at - first[buffer.space] for buffer, at in places.items()}
    return replace(part, layout=replace(part.layout, places=moved))
