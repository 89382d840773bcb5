"""Groups that move fewer bytes: those that are the cheapest by estimate if the DMA is slower than it is.

Where the array has more to do than the DMA, it hides copies that other groups do not need, and estimates do not tell
which of them move fewer bytes. With a slower DMA they do. Groups that keep their halos are among them: these are not
looked for where a plan is near its bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from byoc_hw.errors import PlanError
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import ROOM, map_choices
from byoc_hw.plan.stages import Layout, lay_out

_SLOWER = (2, 4)
"""How many times slower the DMA is."""


def layouts_of_slower_dma(found: Layout, most: int) -> Iterator[Layout]:
    """Plans of a region whose images lie as in the one that was found, of at most so many copies and jobs: for each
    DMA the first one that can be carried out."""
    mapped, one = found.mapped, found.mapped.accelerator
    for width in sorted({max(one.dma_width // slower, 1) for slower in _SLOWER} - {one.dma_width}):
        slow = map_choices(mapped.graph, replace(one, dma_width=width), found.choices, mapped.lies)
        grouping = Grouping(slow).keeping_halos()
        for choices in filter(None, map(grouping.best, ROOM)):
            with suppress(PlanError):  # the estimate was too bold
                yield lay_out(mapped, choices, most=most)
                break
