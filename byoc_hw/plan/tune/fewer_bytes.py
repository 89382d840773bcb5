"""Plans that move fewer bytes and take hardly more cycles: copies that hide behind jobs cost energy.

Where the array has more to do than the DMA, estimates do not tell which groups move fewer bytes. With a slower DMA they
do. Groups that keep their halos are among them: these are not looked for where a plan is near its bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import ceil

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.weight_blocks import all_bytes
from byoc_hw.plan.order.finer import MOST_ORDERED
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import ROOM, map_choices
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.steps import Copy
from byoc_hw.plan.tune.fast_plans import cut_plan
from byoc_hw.plan.tune.near_choices import NearbyChoices, choices_by_kind
from byoc_hw.plan.tune.nearby import MOST_WORK, NEAR, Nearby

_FEW_BYTES = 1.2
"""How many times the weights, inputs and outputs of a region a plan moves for which no other one is looked for."""


_SAVED = 8
"""Cycles of the DMA that a cycle more of the region has to save: copies cost energy."""


def with_fewer_bytes(found: Layout, bound: int) -> Layout:
    """A plan, or one whose DMA has less to do, if it takes at most 1 % more cycles."""
    mapped, most = found.mapped, NEAR * found.cycles
    graph, one = mapped.graph, mapped.accelerator
    if found.choices.apart or mapped.whole or 2 * len(found.work.ops) > MOST_WORK:
        return found
    needed = sum(all_bytes(layer, None, one) for layer in mapped.mapping.layers)
    needed += sum(tensor.nbytes for tensor in (*graph.inputs, *graph.outputs))
    if _moved(found) <= _FEW_BYTES * needed:
        return found
    tried = list[Layout]()
    for layout in layouts_of_slower_dma(found, MOST_WORK // 2):
        tried.append(layout)
        if layout.cycles <= most:
            break
    if not tried:
        return found
    start = min(tried, key=_lean)
    if 2 * len(start.work.ops) <= MOST_WORK:
        search = _FewerBytes(start, bound, MOST_WORK)
        search.improve()
        tried += search.seen
    best = min(tried, key=_lean)
    if best.cycles > NEAR * bound and 2 * len(best.work.ops) <= MOST_ORDERED:
        tried.append(cut_plan(best))
    return min([found, *(plan for plan in tried if plan.cycles <= most)], key=_lean)


class _FewerBytes(Nearby):
    """Goes through choices near a plan whose DMA has little to do: a better one may take more cycles."""

    def _kinds(self) -> Iterator[NearbyChoices]:
        return choices_by_kind(self.best, bands=False)

    @property
    def _below(self) -> int:
        return ceil(_lean(self.best))

    def _is_less(self, other: Layout) -> bool:
        return _lean(other) < _lean(self.best)

    @property
    def _ended(self) -> bool:
        return self._left < 0


def _moved(layout: Layout) -> int:
    """The bytes that the DMA moves."""
    return sum(op.step.bytes_moved for op in layout.work.ops if isinstance(op.step, Copy))


def _lean(layout: Layout) -> float:
    """The cycles of a plan, and those of its copies as far as they count."""
    return layout.cycles + layout.work.busy.copies / _SAVED


_SLOWER = (2, 4)
"""How many times slower the DMA is."""


def layouts_of_slower_dma(found: Layout, most: int) -> Iterator[Layout]:
    """Plans of a region whose images lie as in the one that was found, of at most so many copies and jobs: for each
    DMA, the slowest first, the first one that can be carried out."""
    mapped, one = found.mapped, found.mapped.accelerator
    for width in sorted({max(one.dma_width // slower, 1) for slower in _SLOWER} - {one.dma_width}):
        slow = map_choices(mapped.graph, replace(one, dma_width=width), found.choices, mapped.lies)
        grouping = Grouping(slow).keeping_halos()
        for choices in filter(None, map(grouping.best, ROOM)):
            with suppress(PlanError):  # the estimate was too bold
                yield lay_out(mapped, choices, most=most)
                break
