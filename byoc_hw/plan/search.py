"""The planner's own choices, in well under a second a region.

A way through the layers is a sequence of groups and what lies in local memory between them. The
cheapest ways by estimate are laid out in full and timed; the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.groups import region_work
from byoc_hw.plan.local import place_local
from byoc_hw.plan.mapping import map_layers
from byoc_hw.plan.ops import Buffer
from byoc_hw.plan.schedule import Order, order
from byoc_hw.plan.storage import storages
from byoc_hw.plan.ways import Ways
from byoc_hw.plan.work import Region, Work

ROOM = (1.0, 0.94, 0.86, 0.75)
"""Parts of the local activations that are planned with: places may leave gaps that the estimate does not see."""


_ENOUGH = 3000
"""Copies and jobs of a plan beyond which the first that fits is taken: to lay out more would take too long."""


@dataclass(frozen=True)
class LaidOut:
    """A region laid out by its choices: all that is left is to write it down."""

    region: Region
    work: Work
    offsets: dict[Buffer, int]
    order: Order

    @property
    def cycles(self) -> int:
        """The accelerator cycles of the region."""
        return self.order.cycles


def lay_out(graph: Graph, choices: Choices, accelerator: Accelerator, *, exact: bool = False) -> LaidOut:
    """A region with these choices. Raises `PlanError` where they cannot be carried out.

    With `exact` places in local memory are searched for where the fast ways find none.
    """
    mapping = map_layers(graph, accelerator, choices.swapped, choices.direct)  # before storages: it says how they lie
    return laid_out(Region(graph, mapping, storages(graph, mapping), choices, accelerator), exact=exact)


def laid_out(region: Region, *, exact: bool = False, most: int | None = None) -> LaidOut:
    """As `lay_out`, of a region that is mapped. `PlanError` also where there are more than `most` copies and jobs."""
    work = region_work(region)  # copies and jobs in a possible order
    if most is not None and len(work.ops) > most:
        raise PlanError(f"at most {most} copies and jobs are wanted: got {len(work.ops)}")
    offsets = place_local(work.ops, region.accelerator, exact=exact)  # by lifetime in that order
    return LaidOut(region, work, offsets, order(work.ops, offsets))  # copies earlier or later, as places allow


def evaluate(graph: Graph, choices: Choices, accelerator: Accelerator) -> int:
    """The cycles of a region with these choices. Raises `PlanError` where they cannot be carried out."""
    return lay_out(graph, choices, accelerator).cycles


def choose(graph: Graph, accelerator: Accelerator) -> Choices:
    """The planner's own choices. Raises `PlanError` naming a layer that does not fit."""
    return best(graph, accelerator).region.choices


def best(graph: Graph, accelerator: Accelerator) -> LaidOut:
    """A region with the planner's own choices. Raises `PlanError` naming a layer that does not fit."""
    for candidates in _candidates(graph, accelerator):
        found: LaidOut | None = None
        for candidate in candidates:
            try:
                tried = lay_out(graph, candidate, accelerator)
            except PlanError:
                continue  # the estimate was too bold: another candidate is more careful
            if found is None or tried.cycles < found.cycles:
                found = tried
            if len(found.work.ops) > _ENOUGH:
                break
        if found is not None:
            return found
    return lay_out(graph, layer_by_layer(graph, accelerator), accelerator)


def layer_by_layer(graph: Graph, accelerator: Accelerator) -> Choices:
    """Every layer by itself, from main memory to main memory: what is always possible, if anything is.

    Raises `PlanError` naming a layer that does not fit.
    """
    choices = _one_by_one(graph, accelerator)
    evaluate(graph, choices, accelerator)
    return choices


def _one_by_one(graph: Graph, accelerator: Accelerator) -> Choices:
    tilings = (single_tiling(layer, accelerator) for layer in graph.layers)
    groups = tuple(Group(1, overlap=False, resident=False, tiling=tiling) for tiling in tilings)
    plain = map_layers(graph, accelerator, direct=False)
    return Choices(plain.swapped, groups, (None,) * len(graph.layers), direct=False)


def _candidates(graph: Graph, accelerator: Accelerator) -> Iterator[Iterator[Choices]]:
    """Choices to try, the best ones first; each kind only if there was none of the kind before."""
    mapping = map_layers(graph, accelerator)
    plain = map_layers(graph, accelerator, direct=False)
    for one in (mapping, plain) if any(mapping.swapped) or mapping.moved else (mapping,):
        ways = Ways(graph, one, accelerator, one is mapping)
        if ways.fits_whole():
            yield ways.resident()
        yield _in_parts(graph, ways, accelerator)


def _in_parts(graph: Graph, ways: Ways, accelerator: Accelerator) -> Iterator[Choices]:
    """The best way for each part of local memory, and each layer by itself: as good where memory is tiny."""
    yield from (choices for room in ROOM if (choices := ways.best(room)) is not None)
    with suppress(PlanError):  # then nothing is lost
        yield _one_by_one(graph, accelerator)
