"""The plan that a region has by default: by estimates, or of measured runs, whichever takes fewer cycles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Slice, Whole
from byoc_hw.graph_digest import graph_digest
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.search.alike import Known
from byoc_hw.plan.search.measured import MeasuredRuns, least_one_by_one
from byoc_hw.plan.search.planner import ENOUGH, map_choices, mappings, packings
from byoc_hw.plan.stages import Layout, laid_out_both_ways, lay_out
from byoc_hw.plan.tune.fast_plans import FAR, by_estimates, cut_finely, cycles_of, differs, fastest_of
from byoc_hw.plan.tune.fewer_bytes import with_fewer_bytes
from byoc_hw.plan.tune.layers_alone import LayersAlone, or_one_by_one, plainer_accelerator
from byoc_hw.plan.tune.near_choices import near_groups
from byoc_hw.plan.tune.nearby import NEAR
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.remembered import Remembered

_REMEMBERED = 256
"""The most regions of which choices are remembered."""

_choices: Remembered[Choices] = Remembered(_REMEMBERED)

_PLANS = 4
"""The most plans that are remembered: each has its copies and jobs."""

_layouts: Remembered[Layout] = Remembered(_PLANS)


def known_layout(graph: Graph, accelerator: Accelerator) -> Layout:
    """As `own_layout`, searched once for regions that are equal but for their names: a program asks for a region's
    plan to choose the order of its layers, to build, to explain and to tune it."""
    key = graph_digest(graph), accelerator
    layout = _layouts.get(key)
    if layout is not None and layout.mapped.graph is graph:
        return layout
    if known := _choices.get(key):
        found = lay_out(map_choices(graph, accelerator, known), known)
    else:
        found = own_layout(graph, accelerator)
        _choices.keep(key, found.choices)
    return _layouts.keep(key, replace(found, mapped=replace(found.mapped)))  # without what its search shared


def own_layout(graph: Graph, accelerator: Accelerator) -> Layout:
    """A region with the choices that it has by default. Raises `PlanError` naming a layer that does not fit."""
    alone = LayersAlone(accelerator)
    bound = known_bound(graph, accelerator)
    found = _long_layout(graph, accelerator, alone, NEAR * bound)
    if found is not None:
        if found.cycles <= NEAR * bound:
            return found
        return or_one_by_one(min([found, *in_runs(found, alone, known=found.mapped)], key=cycles_of), alone)
    found = _own_layout(graph, accelerator, bound, alone)
    plainer = plainer_accelerator(accelerator)
    if len(graph.layers) == 1 and found.cycles > NEAR * bound and plainer != accelerator:
        other = _own_layout(graph, plainer, bound, alone)
        if other.cycles < found.cycles:
            return lay_out(map_choices(graph, accelerator, other.choices), other.choices)
    return found


def _own_layout(graph: Graph, accelerator: Accelerator, bound: int, alone: LayersAlone) -> Layout:
    """The plan of a region that does not take long to make."""
    tried = by_estimates(graph, accelerator, bound)
    found = fastest_of(tried)
    if found.cycles > NEAR * bound and len(graph.layers) > 1:
        runs = in_runs(found, alone, far=FAR * bound)
        found, tried = fastest_of([*runs, found]), [*tried, *runs]
    if found.cycles > NEAR * bound:
        found = cut_finely(found, tried)
    if len(graph.layers) > 1:
        found = with_fewer_bytes(found, bound)
        if found.cycles > NEAR * bound:
            found = or_one_by_one(found, alone)
    return found


_LONG = 150
"""How many times local memory is written by the tensors that the layers of a region read and write, beyond which its
plan as a whole takes long to make."""


def _long_layout(graph: Graph, accelerator: Accelerator, alone: LayersAlone, enough: float) -> Layout | None:
    """The plan of a region whose plan as a whole takes long to make: of measured runs. None for another region, or
    where it does not fit. One of `enough` cycles is good enough."""
    nbytes = sum(tensor.nbytes for layer in graph.layers for tensor in (*layer.inputs, layer.ofm))
    if accelerator.library is not None or nbytes <= _LONG * accelerator.activation_memory or len(graph.layers) == 1:
        return None
    if any(isinstance(layer, Concat | Slice | Whole) for layer in graph.layers):
        return None
    near, known = near_groups(SearchSpace(graph, accelerator)), Known()
    choices: list[tuple[MeasuredRuns, list[Choices]]] = []
    for one in packings(mappings(graph, accelerator)[0]):
        if any(runs.cycles <= one.array_cycles for runs, _ in choices):
            continue  # no plan of this mapping takes fewer cycles
        if any(runs.cycles <= enough for runs, _ in choices):
            break
        runs = MeasuredRuns(one, alone, near, known, enough)
        if runs.estimated and (found := runs.best(None)):
            choices.append((runs, found))
    ranked = sorted(choices, key=lambda one: one[0].cycles)
    return next(filter(None, (runs_joined(one.mapped, found, enough) for one, found in ranked)), None)


def in_runs(found: Layout, alone: LayersAlone, known: MappedGraph | None = None, far: float = inf) -> list[Layout]:
    """Plans of runs of groups that are measured, one for each mapping but one that is `known`. The best of them and of
    the one that was found is not slower than each layer alone, with height and width as in the model, and no band
    packed. Where that is so without them, only those of the same mapping are measured, of a plan of more than `far`
    cycles."""
    mapped, plans = found.mapped, list[Layout]()
    if mapped.whole:
        return plans
    others = []
    if differs(found):
        others = [map_graph(mapped.graph, mapped.accelerator, copies_transpose=False)]
    if mapped.mapping.packed and any(mapped.mapping.swapped):
        others.append(map_graph(mapped.graph, mapped.accelerator, mapped.mapping.swapped, mapped.copies_transpose))
    near, measured = near_groups(SearchSpace(mapped.graph, mapped.accelerator)), Known()
    for one in (mapped, *others):
        fastest = min(map(cycles_of, [found, *plans]))
        if one is known or (fastest <= least_one_by_one(one) and (one is not mapped or fastest <= far)):
            continue
        start = found.choices if one is mapped else None
        other = runs_joined(one, MeasuredRuns(one, alone, near, measured).best(start))
        plans += [] if other is None else [other]
    return plans


def runs_joined(mapped: MappedGraph, runs: Sequence[Choices], enough: float = 0) -> Layout | None:
    """Measured runs as one plan, the best of some: placed and ordered together, or apart, where that takes fewer
    cycles. Of many copies and jobs, the first one that fits; one of `enough` cycles is taken at once."""
    found: list[Layout] = []
    for choices in runs:
        with suppress(PlanError):
            for one in laid_out_both_ways(mapped, choices):
                found.append(one)
                if one.cycles <= enough:
                    return one
        if found and len(found[0].work.ops) > ENOUGH:
            break
    return min(found, key=lambda layout: layout.cycles, default=None)
