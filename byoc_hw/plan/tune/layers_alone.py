"""Layers that are planned one by one: no plan of a region is slower than these, one after the other."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.array.alike_layer import layer_sizes
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.search.measured import least_by_itself
from byoc_hw.plan.search.planner import map_choices
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.tune.fast_plans import (
    by_estimates,
    cut_plan,
    cycles_of,
    differs,
    fastest_of,
    worth_cutting,
)
from byoc_hw.plan.tune.nearby import NEAR


def plainer_accelerator(accelerator: Accelerator) -> Accelerator:
    """The same, for plans that leave nothing in local memory and have all as it lies in the model."""
    return replace(accelerator, tuning=replace(accelerator.tuning, swap=False, hold=False, pack=False))


class LayerAlone(NamedTuple):
    """A layer by itself: its group, the blocks of its weights, and its cycles."""

    group: Group
    blocks: Blocks | None
    cycles: int

    @classmethod
    def of(cls, found: Layout) -> LayerAlone:
        return cls(found.choices.groups[0], found.choices.blocks[0], found.cycles)


class _PlannedAlone(NamedTuple):
    """Of a layer by itself the plan that is best beside others, the fastest one, those that are worth cutting, and
    cycles that none goes below."""

    best: LayerAlone
    fastest: LayerAlone
    worth: list[Choices]
    bound: int


class LayersAlone:
    """The plans of layers by themselves: nothing is left in local memory, or lies otherwise than in the model. Of
    layers of the same sizes one is planned."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._plainer = plainer_accelerator(accelerator)
        self._planned: dict[Hashable, _PlannedAlone | None] = {}
        self._fine: dict[Hashable, LayerAlone] = {}

    def __call__(self, layer: Layer) -> tuple[Group, Blocks | None] | None:
        """The best group of a layer, before copies and jobs are cut, and the blocks of its weights; None where it
        cannot be planned so."""
        planned = self._plans(layer)
        return None if planned is None else planned.best[:2]

    def cut_finely(self, layer: Layer) -> LayerAlone | None:
        """A layer with copies and jobs cut where engines wait; None where it cannot be planned so."""
        sizes, planned = layer_sizes(layer), self._plans(layer)
        if planned is not None and sizes not in self._fine:
            graph = Graph.of_layer(layer)
            plans = [cut_plan(lay_out(map_choices(graph, self._plainer, one), one)) for one in planned.worth]
            self._fine[sizes] = min([planned.fastest, *map(LayerAlone.of, plans)], key=lambda one: one.cycles)
        return self._fine.get(sizes)

    def at_least(self, index: int, mapped: MappedGraph) -> float:
        """Cycles that no plan of a layer by itself goes below: with what is known of its plans."""
        sizes = layer_sizes(mapped.mapping.layers[index])
        if sizes in self._fine:
            return self._fine[sizes].cycles
        planned = self._planned.get(sizes)
        if planned is None:
            return least_by_itself(index, mapped)
        return planned.bound if planned.worth else planned.fastest.cycles

    def _plans(self, layer: Layer) -> _PlannedAlone | None:
        sizes = layer_sizes(layer)
        if sizes not in self._planned:
            self._planned[sizes] = self._plan(layer)
        return self._planned[sizes]

    def _plan(self, layer: Layer) -> _PlannedAlone | None:
        graph = Graph.of_layer(layer)
        bound = known_bound(graph, self._plainer)
        try:
            tried = by_estimates(graph, self._plainer, bound)
        except PlanError:
            return None
        fastest = fastest_of(tried)
        best = tried[-1] if tried[-1].cycles <= NEAR * fastest.cycles else fastest  # it copies less
        worth = worth_cutting(fastest, tried) if fastest.cycles > NEAR * bound else []
        return _PlannedAlone(LayerAlone.of(best), LayerAlone.of(fastest), [one.choices for one in worth], bound)


def or_one_by_one(found: Layout, alone: LayersAlone) -> Layout:
    """A plan, or the one of its layers one after the other as each is planned by itself, where that takes fewer
    cycles."""
    plain = found.mapped
    if not plain.whole and differs(found):
        plain = map_graph(plain.graph, plain.accelerator, copies_transpose=False)
    layers = plain.mapping.layers
    worked = [at for at in range(len(layers)) if plain.mapping.works(at)]
    if plain.whole or not worked:
        return found
    least, each = {at: alone.at_least(at, plain) for at in worked}, dict[int, LayerAlone]()
    for at in sorted(worked, key=least.__getitem__, reverse=True):
        if sum(least.values()) * NEAR >= found.cycles or (one := alone.cut_finely(layers[at])) is None:
            return found
        each[at], least[at] = one, one.cycles
    if sum(least.values()) * NEAR >= found.cycles:
        return found
    spans = pairwise([0, *worked[1:], len(layers)])
    groups = [replace(each[at].group, layers=stop - start) for at, (start, stop) in zip(worked, spans, strict=True)]
    blocks = tuple(each[at].blocks if at in each else None for at in range(len(layers)))
    choices = Choices(plain.mapping.swapped, tuple(groups), blocks, copies_transpose=False, apart=True, fine=True)
    with suppress(PlanError):
        found = min(found, lay_out(plain, choices), key=cycles_of)
    return found
