"""The planner's own choices, in well under a second a region.

A way through the layers is a sequence of groups and what lies in local memory between them. The
cheapest ways by estimate are laid out in full and timed; the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.groups import region_work
from byoc_hw.plan.local import place_local
from byoc_hw.plan.mapping import Mapping, map_layers
from byoc_hw.plan.schedule import cycles
from byoc_hw.plan.storage import storages
from byoc_hw.plan.ways import Ways
from byoc_hw.plan.work import Region

ROOM = (1.0, 0.94, 0.86, 0.75)
"""Parts of the local activations that are planned with: places may leave gaps that the estimate does not see."""


def choose(graph: Graph, accelerator: Accelerator) -> Choices:
    """Choices for a region that can be carried out. Raises `PlanError` naming a layer that does not fit."""
    for candidates in _candidates(graph, accelerator):
        found: tuple[int, Choices] | None = None
        for candidate in candidates:
            try:
                taken = evaluate(graph, candidate, accelerator)
            except PlanError:
                continue  # the estimate was too bold: another candidate is more careful
            if found is None or taken < found[0]:
                found = taken, candidate
        if found is not None:
            return found[1]
    return layer_by_layer(graph, accelerator)


def evaluate(graph: Graph, choices: Choices, accelerator: Accelerator, mapping: Mapping | None = None) -> int:
    """The cycles of a region with these choices. Raises `PlanError` where they cannot be carried out."""
    mapping = mapping or map_layers(graph, accelerator, choices.swapped, choices.direct)
    work = region_work(Region(graph, mapping, storages(graph, mapping), choices, accelerator))
    return cycles(work.ops, place_local(work.ops, accelerator))


def layer_by_layer(graph: Graph, accelerator: Accelerator) -> Choices:
    """Every layer by itself, from main memory to main memory: what is always possible, if anything is.

    Raises `PlanError` naming a layer that does not fit.
    """
    tilings = (single_tiling(layer, accelerator) for layer in graph.layers)
    groups = tuple(Group(1, overlap=False, resident=False, tiling=tiling) for tiling in tilings)
    plain = map_layers(graph, accelerator, direct=False)
    choices = Choices(plain.swapped, groups, (None,) * len(graph.layers), direct=False)
    evaluate(graph, choices, accelerator, plain)
    return choices


def _candidates(graph: Graph, accelerator: Accelerator) -> Iterator[Iterator[Choices]]:
    """Choices to try, the best ones first; each kind only if there was none of the kind before."""
    mapping = map_layers(graph, accelerator)
    plain = map_layers(graph, accelerator, direct=False)
    for one in (mapping, plain) if any(mapping.swapped) or mapping.moved else (mapping,):
        ways = Ways(graph, one, accelerator, one is mapping)
        if ways.fits_whole():
            yield ways.resident()
        yield (choices for room in ROOM if (choices := ways.best(room)) is not None)
