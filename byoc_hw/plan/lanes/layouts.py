"""Layouts of a part: as fast as it can be by itself, and in stripes, so that another accelerator can begin early."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import ROOM, mapped_as, one_by_one, placements
from byoc_hw.plan.stages import Layout, lay_out

STRIPES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
"""The numbers of stripes that are tried."""


def layouts(mapped: MappedGraph) -> Iterator[Layout]:
    """Layouts of a mapped part: the planner's own, then stripes of each number, all that can be carried out."""
    for choices in _choices(mapped):
        try:
            yield lay_out(mapped_as(mapped, choices), choices)
        except PlanError:
            continue  # another one fits


def _choices(mapped: MappedGraph) -> Iterator[Choices]:
    for placed in placements(mapped):
        grouping = Grouping(placed)
        if grouping.fits_whole():
            yield from grouping.resident()
        yield from (choices for room in ROOM if (choices := grouping.best(room)) is not None)
    blocks = Grouping(mapped).blocks
    for stripes in STRIPES:
        for resident in (True, False):
            groups = tuple(Group(1, stripes, resident=resident) for _ in mapped.graph.layers)
            yield Choices(mapped.mapping.swapped, groups, blocks, mapped.copies_transpose)
    yield one_by_one(mapped)
