"""The planner's own plan, made better by a few choices near it: first where the array waits the longest.

What the planner estimates leaves out when exactly a copy has to be there. Here the plan is laid out, and for the
layers at which the array waits other blocks of weights, numbers of stripes, neighbours in a group and tensors that
stay are tried, those first that promise the most for what the array waits for. Choices that take fewer cycles are
where the next ones start. The work is limited by the copies and jobs that are laid out, so that the outcome is the same
on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import chain, pairwise
from math import ceil, inf
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Layer, Slice, Weighted, Whole
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.array.storage import can_tile
from byoc_hw.plan.array.weight_blocks import SHARES, all_bytes, cut
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.choices import PIECES, Blocks, Choices, Group
from byoc_hw.plan.order.finer import MOST_ORDERED
from byoc_hw.plan.search.alike import Known, layer_sizes
from byoc_hw.plan.search.fewer_bytes import layouts_of_slower_dma
from byoc_hw.plan.search.measured import MeasuredRuns, Near, least_by_itself, least_jobs, least_one_by_one
from byoc_hw.plan.search.planner import ENOUGH, laid_out, map_choices, mappings, packings, promise
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.stages import Layout, laid_out_both_ways, lay_out
from byoc_hw.plan.steps import SCRATCH, Copy
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.plan.work.merges import loads_weights

MOST_WORK = 3000
"""The copies and jobs that are laid out in all."""

_WORK_ALONE = 1000
"""The same for a single layer, of which a region may have many."""

NEAR = 1.01
"""How near the bound a plan is good enough."""


_FAR = 1.1
"""How far from the bound a plan is for which patches and slices of channels are tried."""


def own_layout(graph: Graph, accelerator: Accelerator) -> Layout:
    """A region with the choices that it has by default. Raises `PlanError` naming a layer that does not fit."""
    alone = LayersAlone(accelerator)
    bound = known_bound(graph, accelerator)
    found = _long_layout(graph, accelerator, alone, NEAR * bound)
    if found is not None:
        if found.cycles <= NEAR * bound:
            return found
        return _or_one_by_one(min([found, *in_runs(found, alone, known=found.mapped)], key=_cycles), alone)
    found = _own_layout(graph, accelerator, bound, alone)
    plainer = _plainer(accelerator)
    if len(graph.layers) == 1 and found.cycles > NEAR * bound and plainer != accelerator:
        other = _own_layout(graph, plainer, bound, alone)
        if other.cycles < found.cycles:
            return lay_out(map_choices(graph, accelerator, other.choices), other.choices)
    return found


def _own_layout(graph: Graph, accelerator: Accelerator, bound: int, alone: LayersAlone) -> Layout:
    """The plan of a region that does not take long to make."""
    tried = _by_estimates(graph, accelerator, bound)
    found = _fastest(tried)
    if found.cycles > NEAR * bound and len(graph.layers) > 1:
        runs = in_runs(found, alone, far=_FAR * bound)
        found, tried = _fastest([*runs, found]), [*tried, *runs]
    if found.cycles > NEAR * bound:
        found = cut_finely(found, tried)
    if len(graph.layers) > 1:
        found = _with_fewer_bytes(found, bound)
        if found.cycles > NEAR * bound:
            found = _or_one_by_one(found, alone)
    return found


_FEW_BYTES = 1.2
"""How many times the weights, inputs and outputs of a region a plan moves for which no other one is looked for."""

_SAVED = 8
"""Cycles of the DMA that a cycle more of the region has to save: copies cost energy."""


def _with_fewer_bytes(found: Layout, bound: int) -> Layout:
    """A plan, or one whose DMA has less to do, if it takes at most 1 % more cycles."""
    mapped, most = found.mapped, NEAR * found.cycles
    graph, one = mapped.graph, mapped.accelerator
    if found.choices.apart or mapped.whole or 2 * len(found.work.ops) > MOST_WORK:
        return found
    needed = sum(all_bytes(layer, None, one) for layer in mapped.mapping.layers)
    needed += sum(tensor.nbytes for tensor in (*graph.inputs, *graph.outputs))
    if _moved(found) <= _FEW_BYTES * needed:
        return found
    tried = list(layouts_of_slower_dma(found, MOST_WORK // 2))
    if not tried:
        return found
    start = min(tried, key=_lean)
    if 2 * len(start.work.ops) <= MOST_WORK:
        search = _FewerBytes(start, bound, MOST_WORK)
        search.improve()
        tried += search.seen
    best = min(tried, key=_lean)
    tried += [_cut(best)] if 2 * len(best.work.ops) <= MOST_ORDERED else []
    return min([found, *(plan for plan in tried if plan.cycles <= most)], key=_lean)


def _moved(layout: Layout) -> int:
    """The bytes that the DMA moves."""
    return sum(op.step.nbytes * op.step.rows for op in layout.work.ops if isinstance(op.step, Copy))


def _lean(layout: Layout) -> float:
    """The cycles of a plan, and those of its copies as far as they count."""
    return layout.cycles + sum(layout.work.ops[index].cycles for index in layout.order.copies) / _SAVED


def _by_estimates(graph: Graph, accelerator: Accelerator, bound: int) -> list[Layout]:
    """Plans by estimates, and those that were tried near some of them, the best of which is the last one: near the best
    one with packed rows and without, if both are fast. A region may have many single layers: of one, plans near its
    best in tiles and near its best without are tried, but fewer."""
    if len(graph.layers) > 1:
        found = laid_out(graph, accelerator, far=_FAR * bound)
        starts = [min(some, key=promise) for some in reversed(_of_each(found, _is_packed))]
        fast = _AS_FAST * min(promise(start) for start in starts)
        starts, work = [start for start in starts if promise(start) <= fast], MOST_WORK
    else:
        found = laid_out(graph, accelerator, near=NEAR * bound)
        fastest = min(found, key=promise)
        if fastest.cycles <= NEAR * bound:
            return [*found, fastest]
        starts, work = [min(some, key=promise) for some in _of_each(found, _has_tiles)], _WORK_ALONE
    tried = sorted((_nearby(start, bound, work) for start in starts), key=lambda some: -some[-1].cycles)
    return [*found, *chain.from_iterable(tried)]


_AS_FAST = 1.1
"""How much slower a plan may be for which others near it are tried beside those near the fastest one."""


def _of_each(found: Sequence[Layout], kind: Callable[[Layout], bool]) -> list[list[Layout]]:
    """The plans that are not of a kind, and those that are: one list or two."""
    both = ([one for one in found if kind(one) is which] for which in (False, True))
    return [some for some in both if some]


def _has_tiles(layout: Layout) -> bool:
    return any(group.tiling is not None for group in layout.choices.groups)


def _is_packed(layout: Layout) -> bool:
    return bool(layout.choices.packed)


_FAST = 3
"""The fastest plans in which operations are cut."""

_BUSY = 2
"""The same for plans with few cycles that have little to do, whose engines may wait less for each other then."""


def cut_finely(found: Layout, tried: Sequence[Layout]) -> Layout:
    """The best of a plan and of those that were tried, with copies and jobs cut where engines wait."""
    return _fastest([*map(_cut, reversed(_worth_cutting(found, tried))), found])


def _cut(plan: Layout) -> Layout:
    return lay_out(plan.mapped, replace(plan.choices, fine=True))


def _worth_cutting(found: Layout, tried: Sequence[Layout]) -> list[Layout]:
    """A plan and those that were tried of which the fastest may come with copies and jobs cut. Where groups are apart
    runs are cut one by one: only of the plan itself."""
    plans = [found]
    for some in (each for lying in _of_each(tried, _is_packed) for each in _of_each(lying, _differs)):
        if min(map(_cycles, some)) <= _AS_FAST * found.cycles:
            whole = [one for one in some if all(group.pieces == 1 for group in one.choices.groups)]  # can be cut more
            plans += nsmallest(_FAST, some, _cycles) + nsmallest(_FAST, whole, _cycles) + nsmallest(_BUSY, some, _least)
    return [
        one
        for one in {plan.choices: plan for plan in plans}.values()
        if one.order.jobs
        and (one.choices == found.choices if one.choices.apart else 2 * len(one.work.ops) <= MOST_ORDERED)
    ]


def _cycles(layout: Layout) -> int:
    return layout.cycles


def _fastest(tried: Sequence[Layout]) -> Layout:
    """The last one of those with the fewest cycles. One that stores nothing between layers is taken within 1 %."""
    most = NEAR * min(map(_cycles, tried))
    staying = [one for one in tried if one.cycles <= most and not _spills(one)]
    return min(reversed(staying or tried), key=_cycles)


def _spills(layout: Layout) -> bool:
    """Whether a plan stores tensors in main memory from layer to layer."""
    return any(home.address.space == SCRATCH for home in layout.work.homes.values())


def _least(layout: Layout) -> int:
    """The cycles of a plan, and those that its busier engine is busy."""
    ops, known = layout.work.ops, layout.order
    return known.cycles + max(sum(ops[index].cycles for index in engine) for engine in (known.copies, known.jobs))


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
    near, known = _near(SearchSpace(graph, accelerator)), Known()
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
    return next(filter(None, (_joined(one.mapped, found, enough) for one, found in ranked)), None)


def in_runs(found: Layout, alone: LayersAlone, known: MappedGraph | None = None, far: float = inf) -> list[Layout]:
    """Plans of runs of groups that are measured, one for each mapping but one that is `known`. The best of them and of
    the one that was found is not slower than each layer alone, with height and width as in the model, and no band
    packed. Where that is so without them, only those of the same mapping are measured, of a plan of more than `far`
    cycles."""
    mapped, plans = found.mapped, list[Layout]()
    if mapped.whole:
        return plans
    others = []
    if _differs(found):
        others = [map_graph(mapped.graph, mapped.accelerator, copies_transpose=False)]
    if mapped.mapping.packed and any(mapped.mapping.swapped):
        others.append(map_graph(mapped.graph, mapped.accelerator, mapped.mapping.swapped, mapped.copies_transpose))
    near, measured = _near(SearchSpace(mapped.graph, mapped.accelerator)), Known()
    for one in (mapped, *others):
        fastest = min(map(_cycles, [found, *plans]))
        if one is known or (fastest <= least_one_by_one(one) and (one is not mapped or fastest <= far)):
            continue
        start = found.choices if one is mapped else None
        other = _joined(one, MeasuredRuns(one, alone, near, measured).best(start))
        plans += [] if other is None else [other]
    return plans


def _differs(layout: Layout) -> bool:
    """Whether anything lies otherwise than in the model."""
    mapping = layout.mapped.mapping
    return any((*mapping.swapped, mapping.copied, mapping.packed, mapping.placed, mapping.stored))


def _joined(mapped: MappedGraph, runs: Sequence[Choices], enough: float = 0) -> Layout | None:
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


def _plainer(accelerator: Accelerator) -> Accelerator:
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
        self._plainer = _plainer(accelerator)
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
            plans = [_cut(lay_out(map_choices(graph, self._plainer, one), one)) for one in planned.worth]
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
            tried = _by_estimates(graph, self._plainer, bound)
        except PlanError:
            return None
        fastest = _fastest(tried)
        best = tried[-1] if tried[-1].cycles <= NEAR * fastest.cycles else fastest  # it copies less
        worth = _worth_cutting(fastest, tried) if fastest.cycles > NEAR * bound else []
        return _PlannedAlone(LayerAlone.of(best), LayerAlone.of(fastest), [one.choices for one in worth], bound)


def _or_one_by_one(found: Layout, alone: LayersAlone) -> Layout:
    """A plan, or the one of its layers one after the other as each is planned by itself, where that takes fewer
    cycles."""
    plain = found.mapped
    if not plain.whole and _differs(found):
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
        found = min(found, lay_out(plain, choices), key=_cycles)
    return found


def _near(space: SearchSpace) -> Near:
    """Choices near some, with another form of a group, or other blocks of its weights."""

    def near(choices: Choices, at: int) -> Iterator[Choices]:
        span = choices.spans[at]
        yield from map(space.canonical, _stripes(space, choices, at, *span))
        yield from map(space.canonical, _cuts(space, choices, at, *span))

    return near


def better_nearby(found: Layout, bound: int) -> Layout:
    """The best plan near one that was found, or that one, after `MOST_WORK` copies and jobs. No plan takes fewer cycles
    than `bound`."""
    return _nearby(found, bound, MOST_WORK)[-1]


def _nearby(found: Layout, bound: int, work: int) -> list[Layout]:
    """The plans that were tried near one that was found, after so many copies and jobs. The best one is the last."""
    if not found.order.jobs or found.cycles <= NEAR * bound or 2 * len(found.work.ops) > work:
        return [found]
    search = _Nearby(found, bound, work)
    search.improve()
    return [*search.seen, search.best]


class _Nearby:
    """Goes through choices near the best plan so far again and again, until none of them is better, or after so much
    `work`. What is better is the best plan for those that follow."""

    def __init__(self, start: Layout, bound: int, work: int) -> None:
        self.best, self.seen = start, [start]
        self._space = SearchSpace(start.mapped.graph, start.mapped.accelerator)
        self._enough, self._left = NEAR * bound, work
        self._tried = {self._space.canonical(start.choices)}
        self._too_large: list[Choices] = []

    def improve(self) -> None:
        before = None
        while self.best is not before and not self._ended:
            before = self.best
            for moves in (*choices_by_kind(self.best), self._in_turn):
                while self._is_better(moves):
                    pass

    @property
    def _ended(self) -> bool:
        return self._left < 0 or self.best.cycles <= self._enough

    def _is_better(self, moves: NearbyChoices) -> bool:
        """Whether one of some choices near the best plan is better: the first one is the best then."""
        for choices in moves(self._space, self.best):
            if self._ended or self._takes(choices):
                return not self._ended
        return False

    def _takes(self, moved: Choices) -> bool:
        choices, best = self._space.canonical(moved), self.best
        if choices in self._tried:
            return False
        self._tried.add(choices)
        self._left -= len(best.work.ops)
        if self._left < 0:
            return False
        try:
            mapped = self._space.groups_of(choices).mapped
            other = lay_out(mapped, choices, most=2 * len(best.work.ops) + 100, below=self._below)
        except PlanError:
            self._too_large.append(choices)
            return False
        self.seen.append(other)
        if not self._is_less(other):
            return False
        self.best, self._too_large = other, []
        return True

    @property
    def _below(self) -> int:
        """Cycles that either engine of a better plan is busy at most."""
        return self.best.cycles

    def _is_less(self, other: Layout) -> bool:
        """Whether another plan is better than the best one."""
        return other.cycles < self.best.cycles and _cost(other) < _cost(self.best)

    def _in_turn(self, space: SearchSpace, found: Layout) -> Iterator[Choices]:
        """Choices that did not fit, with new groups whose stripes are copied and computed in turn, as a whole or in
        pieces: these take less local memory."""
        known = found.choices.groups
        for choices in list(self._too_large):
            for pieces in PIECES:
                groups = (one if one in known else replace(one, overlap=False, pieces=pieces) for one in choices.groups)
                yield replace(choices, groups=tuple(groups))


class _FewerBytes(_Nearby):
    """The same for a plan whose DMA has little to do: a better one may take more cycles."""

    @property
    def _below(self) -> int:
        return ceil(_lean(self.best))

    def _is_less(self, other: Layout) -> bool:
        return _lean(other) < _lean(self.best)

    @property
    def _ended(self) -> bool:
        return self._left < 0


_COPYING = 16
"""Cycles of the DMA that are worth one of the region: copies cost energy, and what gains little is not worth many."""


_OPERATION = 5
"""Cycles of the region that a copy or job more is worth: it is a row of tables in flash, and the core starts it."""


def _cost(layout: Layout) -> float:
    copying = sum(layout.work.ops[index].cycles for index in layout.order.copies)
    return layout.cycles + copying / _COPYING + _OPERATION * len(layout.work.ops)


NearbyChoices = Callable[[SearchSpace, Layout], Iterator[Choices]]
"""Choices of one kind near those of a plan."""

GroupChoices = Callable[[SearchSpace, Choices, int, int, int], Iterator[Choices]]
"""Such choices for a group: its number, its first layer, and the first one behind it."""


def choices_nearby(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """Choices near those of a plan."""
    for choices in choices_by_kind(found):
        yield from choices(space, found)


def choices_by_kind(found: Layout) -> Iterator[NearbyChoices]:
    """Choices near those of a plan, or of one like it: all weights in smaller blocks, layers in tiles and bands of rows
    that take the array fewer cycles, then those of groups, by what they promise. Other bands come last."""
    yield from (_all_cuts, _in_tiles, partial(_bands, faster=True))
    of_weights, waits = waits_of(found, weights=True), waits_of(found)
    ranked: list[tuple[float, int, GroupChoices]] = []
    for first, stop in found.choices.spans:
        all_waits, for_weights = sum(waits[first:stop]), sum(of_weights[first:stop])
        for kind, (one, other) in _WORTH.items():
            ranked.append((one * for_weights + other * (all_waits - for_weights), first, kind))
    for worth, first, kind in sorted(ranked, key=lambda one: -one[0]):
        if worth:
            yield partial(_at, first, kind)
    yield partial(_bands, faster=False)


def _at(layer: int, changes: GroupChoices, space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """Other choices for the group of a layer."""
    spans = found.choices.spans
    at = next(number for number, (_, stop) in enumerate(spans) if layer < stop)
    yield from changes(space, found.choices, at, *spans[at])


def waits_of(found: Layout, *, weights: bool = False) -> list[int]:
    """Cycles in which the array has nothing to do, by the layer of the job before which, or behind which, it has. Of
    `weights` those alone before jobs that a copy of weights ends before."""
    waits = [0] * len(found.mapped.mapping.layers)
    ops, order = found.work.ops, found.order
    now = 0
    for index in order.jobs:
        start = order.start[index]
        if not weights or any(order.end[one] == start and loads_weights(ops[one]) for one in order.before[index]):
            waits[ops[index].layer] += start - now
        now = order.end[index]
    if order.copies and not weights:
        waits[min(ops[order.copies[-1]].layer, len(waits) - 1)] += order.cycles - now  # also one behind all layers
    return waits


def _all_cuts(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """The weights of all layers in smaller blocks: where the DMA is busy for long, more of them have room ahead of the
    array, though it waits for the last ones alone."""
    layers, accelerator = found.mapped.mapping.layers, found.mapped.accelerator
    if sum(isinstance(layer, Weighted) for layer in layers) > 1:
        for share in sorted((one for one in accelerator.tuning.weight_shares if one > SHARES[0]), reverse=True):
            yield replace(found.choices, blocks=tuple(cut(layer, accelerator, share) for layer in layers))


def _bands(space: SearchSpace, found: Layout, *, faster: bool) -> Iterator[Choices]:
    """One of several bands packed, or not packed: where that takes the array fewer cycles, or where it does not. A
    single band was tried in both ways."""
    options = [replace(found.choices, packed=found.choices.packed ^ {band}) for band in space.packable]
    cycles = {one: space.groups_of(one).mapped.array_cycles for one in (options if len(options) > 1 else ())}
    now = found.mapped.array_cycles
    yield from (one for one in sorted(cycles, key=cycles.__getitem__) if (cycles[one] < now) == faster)


_TILE_SHARES = (2, 1)
"""Tiles that have room at a time, and blocks of weights."""


def _in_tiles(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """A layer by itself in tiles, where that saves more cycles of jobs than its copies take: rows of a band may be
    packed for other layers. The one that saves the most comes first."""
    mapped, choices = found.mapped, found.choices
    able = [index for index, layer in enumerate(mapped.mapping.layers) if can_tile(layer, mapped.storages.of)]
    saved = {index: _saved_in_tiles(mapped, index) for index in (able if mapped.accelerator.tuning.tile else ())}
    for index in sorted((one for one, cycles in saved.items() if cycles > 0), key=lambda one: -saved[one]):
        at = next(number for number, (_, stop) in enumerate(choices.spans) if index < stop)
        group, (first, stop) = choices.groups[at], choices.spans[at]
        around = (replace(group, layers=count) for count in (index - first, stop - index - 1))
        before, behind = ([one] if one.layers else [] for one in around)
        for alone in _tiled(mapped, index, group.held) if group.tiling is None else ():
            yield choices.with_group(at, *before, alone, *behind)


def _tiled(mapped: MappedGraph, index: int, held: frozenset[int]) -> Iterator[Group]:
    """A layer in tiles, beside what is `held` in local memory and not the layer's."""
    layer, accelerator = mapped.mapping.layers[index], mapped.accelerator
    allowed, of = accelerator.tuning, mapped.storages.of
    passing = held - {of[tensor].index for tensor in (*layer.inputs, layer.ofm)}
    stays = allowed.resident and all_bytes(layer, None, accelerator) <= accelerator.weight_memory
    for share in _TILE_SHARES:
        for tiling in tilings(layer, accelerator, ((share, share),), even=False):
            yield Group(1, 1, passing, share > 1 and allowed.overlap, stays, tiling)


def _saved_in_tiles(mapped: MappedGraph, index: int) -> float:
    """Cycles of the array that a layer in tiles takes less than in a plan of this mapping, less those of its copies."""
    layer, accelerator = mapped.mapping.layers[index], mapped.accelerator
    copied = sum(copy_cycles(tensor.nbytes, 1, accelerator) for tensor in dict.fromkeys((*layer.inputs, layer.ofm)))
    return mapped.cycles_of(index) - least_jobs(index, mapped) - copied


def _cuts(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """Other blocks of weights for a layer of a group: the next larger and smaller ones. A tile has its own."""
    for index in range(first, stop) if choices.groups[at].tiling is None else ():
        layer = space.groups_of(choices).layers[index]
        options = sorted({*space.blocks(layer), choices.blocks[index]}, key=_size)
        here = options.index(choices.blocks[index])
        for other in (here - 1, here + 1, here - 2):
            if 0 <= other < len(options):
                blocks = (*choices.blocks[:index], options[other], *choices.blocks[index + 1 :])
                yield replace(choices, blocks=blocks)


def _size(blocks: Blocks | None) -> float:
    return float("inf") if blocks is None else blocks.channels * blocks.depth


def _stripes(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """A group in a few more or fewer stripes, and with its copies beside its jobs, or not."""
    group, options = choices.groups[at], space.groups_of(choices).stripes(first, stop)
    here = min(range(len(options)), key=lambda one: abs(options[one] - group.stripes))
    for other in (here + 1, here - 1, here + 2, here + 4):
        if 0 <= other < len(options):
            yield choices.with_group(at, replace(group, stripes=options[other], tiling=None))
    if group.patched:
        within = space.groups_of(choices)
        for count in _next_to(within.columns(first, stop), group.columns):
            yield choices.with_group(at, replace(group, columns=count))
        for count in _next_to(within.slices(first, stop), group.slices):
            yield choices.with_group(at, replace(group, slices=count))
        yield choices.with_group(at, replace(group, summed=not group.summed))
        yield choices.with_group(at, replace(group, slices_outer=not group.slices_outer, resident=True))
    for one in sorted(group.kept):
        yield choices.with_group(at, replace(group, kept=group.kept - {one}))
    if group.stripes > 1 or group.patched or group.tiling is not None:
        yield choices.with_group(at, replace(group, overlap=not group.overlap))
        yield choices.with_group(at, replace(group, resident=not group.resident))
        if not group.resident:
            yield choices.with_group(at, replace(group, alternating=not group.alternating))
        for count in _next_to(PIECES, group.pieces) if not group.overlap else ():
            yield choices.with_group(at, replace(group, pieces=count))


def _next_to(options: Sequence[int], value: int) -> list[int]:
    """The neighbours among growing options of the one that is nearest to a value."""
    here = min(range(len(options)), key=lambda at: abs(options[at] - value))
    return [options[at] for at in (here + 1, here - 1) if 0 <= at < len(options)]


def _pairs(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """A group together with the one before it, or the one behind it, in stripes, and with all that stays for one of
    them."""
    within = space.groups_of(choices)
    for one in (at - 1, at):
        pair = choices.groups[one : one + 2] if one >= 0 else ()
        if len(pair) < 2:
            continue
        begin, end = choices.spans[one][0], choices.spans[one + 1][1]
        least = max(2, *(group.stripes for group in pair))
        options = [count for count in within.stripes(begin, end) if count >= least]
        if within.may_group(begin, end) and options:
            joined = Group(end - begin, options[0], pair[0].held | pair[1].held)
            yield replace(choices, groups=(*choices.groups[:one], joined, *choices.groups[one + 2 :]))


def _joins(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """A group together with some of its neighbours, or in two."""
    spans, within = choices.spans, space.groups_of(choices)
    for one, other in _around(at, len(spans), space.limits.longest_group):
        begin, end = spans[one][0], spans[other][1]
        groups = choices.groups[one : other + 1]
        if not within.may_group(begin, end):
            continue
        least = max(2, *(group.stripes for group in groups))
        passing = frozenset.intersection(*(group.held for group in groups))
        for stripes in [count for count in within.stripes(begin, end) if count >= least][:3]:
            for held in (passing, frozenset().union(*(group.held for group in groups))):
                joined = Group(end - begin, stripes, held, overlap=True, resident=True)
                yield replace(choices, groups=(*choices.groups[:one], joined, *choices.groups[other + 1 :]))
        between = frozenset(within.storages.of[layer.ofm].index for layer in within.layers[begin : end - 1])
        held = frozenset().union(*(group.held for group in groups)) - between
        for slices in reversed(within.row_slices(begin, end)) if least == 2 else ():  # weights come in turn, too
            joined = Group(end - begin, 1, held, overlap=True, resident=True, slices=slices)
            yield replace(choices, groups=(*choices.groups[:one], joined, *choices.groups[other + 1 :]))
    group = choices.groups[at]
    for middle in range(first + 1, stop):
        passing = within.touched(first, middle) & within.live(middle, stop)
        held = group.held | passing if space.limits.hold else group.held
        pieces = (replace(group, layers=middle - first, held=held), replace(group, layers=stop - middle, held=held))
        yield choices.with_group(at, *pieces)


def _around(at: int, groups: int, most: int) -> Iterator[tuple[int, int]]:
    """The first and last of some groups with one of them among them: the fewest groups first."""
    for count in range(2, min(most, groups) + 1):
        for first in range(max(at - count + 1, 0), min(at, groups - count) + 1):
            yield first, first + count - 1


def _holds(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """A group with one tensor more or less that stays in local memory."""
    group = choices.groups[at]
    for storage in sorted(space.groups_of(choices).live(first, stop)) if space.limits.hold else ():
        yield choices.with_group(at, replace(group, held=group.held ^ {storage}))


_WORTH: dict[GroupChoices, tuple[float, float]] = {
    _cuts: (1, 0.5),
    _pairs: (0.5, 1),
    _stripes: (0.5, 1),
    _joins: (0.02, 0.05),
    _holds: (0.02, 0.05),
}
"""What kinds of choices promise for a group: parts of the cycles for which the array waits for weights, and others."""
