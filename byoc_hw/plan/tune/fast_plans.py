"""The fastest plans of a region by estimates and by choices near them, and their copies and jobs cut finely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import chain

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph
from byoc_hw.plan.order.finer import MOST_ORDERED
from byoc_hw.plan.search.planner import laid_out, promise
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.steps import SCRATCH
from byoc_hw.plan.tune.nearby import MOST_WORK, NEAR, tried_nearby

_WORK_ALONE = 1000
"""The copies and jobs that are laid out in all for a single layer, of which a region may have many."""


FAR = 1.1
"""How far from the bound a plan is for which patches and slices of channels are tried."""


def by_estimates(graph: Graph, accelerator: Accelerator, bound: int) -> list[Layout]:
    """Plans by estimates, and those that were tried near some of them, the best of which is the last one: near the best
    one with rows of each kind, if it is fast. A region may have many single layers: of one, plans near its best in
    tiles and near its best without are tried, but fewer."""
    if len(graph.layers) > 1:
        found = laid_out(graph, accelerator, far=FAR * bound, enough=NEAR * bound)
        starts = [min(some, key=promise) for some in reversed(_of_each(found, _rows))]
        fast = _AS_FAST * min(promise(start) for start in starts)
        starts, work = [start for start in starts if promise(start) <= fast], MOST_WORK
    else:
        found = laid_out(graph, accelerator, near=NEAR * bound)
        fastest = min(found, key=promise)
        if fastest.cycles <= NEAR * bound:
            return [*found, fastest]
        starts, work = [min(some, key=promise) for some in _of_each(found, _has_tiles)], _WORK_ALONE
    tried = sorted((tried_nearby(start, bound, work) for start in starts), key=lambda some: -some[-1].cycles)
    return [*found, *chain.from_iterable(tried)]


_AS_FAST = 1.1
"""How much slower a plan may be for which others near it are tried beside those near the fastest one."""


def _of_each(found: Sequence[Layout], kind: Callable[[Layout], int]) -> list[list[Layout]]:
    """The plans of each kind that there is."""
    return [[one for one in found if kind(one) == which] for which in sorted(set(map(kind, found)))]


def _has_tiles(layout: Layout) -> bool:
    return any(group.tiling is not None for group in layout.choices.groups)


def _rows(layout: Layout) -> int:
    """How rows lie: packed or not, and among the pixels of others or not."""
    return 2 * bool(layout.choices.packed) + layout.choices.jobs_transpose


def differs(layout: Layout) -> bool:
    """Whether anything lies otherwise than in the model."""
    mapping = layout.mapped.mapping
    return any((*mapping.swapped, mapping.copied, mapping.packed, mapping.placed, mapping.stored))


_FAST = 3
"""The fastest plans in which operations are cut."""


_BUSY = 2
"""The same for plans with few cycles that have little to do, whose engines may wait less for each other then."""


def cut_finely(found: Layout, tried: Sequence[Layout]) -> Layout:
    """The best of a plan and of those that were tried, with copies and jobs cut where engines wait."""
    return fastest_of([*map(cut_plan, reversed(worth_cutting(found, tried))), found])


def cut_plan(plan: Layout) -> Layout:
    """A plan with its copies and jobs cut."""
    return lay_out(plan.mapped, replace(plan.choices, fine=True))


def worth_cutting(found: Layout, tried: Sequence[Layout]) -> list[Layout]:
    """A plan and those that were tried of which the fastest may come with copies and jobs cut. Where groups are apart
    runs are cut one by one: only of the plan itself."""
    plans = [found]
    for some in (each for lying in _of_each(_each_once(tried), _rows) for each in _of_each(lying, differs)):
        if min(map(cycles_of, some)) <= _AS_FAST * found.cycles:
            whole = [one for one in some if all(group.pieces == 1 for group in one.choices.groups)]  # can be cut more
            plans += nsmallest(_FAST, some, cycles_of) + nsmallest(_FAST, whole, cycles_of)
            plans += nsmallest(_BUSY, some, _least)
    return [
        one
        for one in _each_once(plans)
        if one.order.jobs
        and (one.choices == found.choices if one.choices.apart else 2 * len(one.work.ops) <= MOST_ORDERED)
    ]


def _each_once(plans: Sequence[Layout]) -> list[Layout]:
    """Plans without those that come again."""
    return list({plan.choices: plan for plan in plans}.values())


def cycles_of(layout: Layout) -> int:
    """The cycles of a plan, as a key."""
    return layout.cycles


def fastest_of(tried: Sequence[Layout]) -> Layout:
    """The last one of those with the fewest cycles. One that stores nothing between layers is taken within 1 %."""
    most = NEAR * min(map(cycles_of, tried))
    staying = [one for one in tried if one.cycles <= most and not _spills(one)]
    return min(reversed(staying or tried), key=cycles_of)


def _spills(layout: Layout) -> bool:
    """Whether a plan stores tensors in main memory from layer to layer."""
    return any(home.address.space == SCRATCH for home in layout.work.homes.values())


def _least(layout: Layout) -> int:
    """The cycles of a plan, and those that its busier engine is busy."""
    return layout.cycles + layout.work.busy.cycles
