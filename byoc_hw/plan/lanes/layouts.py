"""Layouts of a part: as fast as it can be by itself, and in stripes, so that another accelerator can begin early."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import ROOM, mapped_as, one_by_one, placements
from byoc_hw.plan.stages import Layout, lay_out

STRIPES = (1, 2, 4, 8)
"""The numbers of stripes that are tried."""


def layouts(mapped: MappedGraph) -> list[Layout]:
    """Layouts of a mapped part: the planner's own, and in stripes of each number, all that can be carried out."""
    found: dict[tuple[int, int], Layout] = {}
    for choices in _choices(mapped):
        try:
            layout = lay_out(mapped_as(mapped, choices), choices)
        except PlanError:
            continue  # another one fits
        found.setdefault((layout.cycles, len(layout.work.ops)), layout)
    return sorted(found.values(), key=lambda one: one.cycles)


def _choices(mapped: MappedGraph) -> Iterator[Choices]:
    grouping = Grouping(mapped)
    if grouping.fits_whole():
        yield from (one for one in grouping.resident() if one.groups[0].stripes in STRIPES)
        return
    for placed in placements(mapped):
        grouping = Grouping(placed)
        yield from (choices for room in ROOM[:2] if (choices := grouping.best(room)) is not None)
    if len(mapped.graph.layers) == 1:
        for stripes in STRIPES:
            yield Choices(mapped.mapping.swapped, (Group(1, stripes),), grouping.blocks, mapped.copies_transpose)
    yield one_by_one(mapped)
