"""The planner's own choices: the cheapest groupings by estimate, laid out in full and timed; the fastest is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import chain, product
from math import inf

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Layer, Pad, Resize, Slice, Transpose
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import Window
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.array.mapping import bands_worth_packing
from byoc_hw.plan.array.permuting import transposing_cycles
from byoc_hw.plan.array.spread import stored_cycles
from byoc_hw.plan.array.storage import NOWHERE_ELSE, Lies, NotInPlace, can_tile
from byoc_hw.plan.array.tiling import Tiler, tile_geometry
from byoc_hw.plan.array.weight_blocks import all_bytes
from byoc_hw.plan.choices import PIECES, Choices, Group, Tiling
from byoc_hw.plan.search.alike import Known
from byoc_hw.plan.search.all_held import all_fit, all_held
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.single_layer import single_tiling, tilings
from byoc_hw.plan.stages import Layout, lay_out

ROOM = (1.0, 0.94, 0.86, 0.75)
"""Parts of the local activation memory that are tried as its size: estimates ignore gaps between addresses."""

_KEEPING = 1.01
"""How much faster a plan that keeps halos has to be than the fastest of the others."""

ENOUGH = 3000
"""Number of copies and jobs beyond which the first plan that fits is taken, to limit the planning time."""

_ENOUGH_ALONE = 12000
"""The same for a layer by itself, of which tilings differ most where it takes many tiles."""


def best_layout(graph: Graph, accelerator: Accelerator, near: float = 0, far: float = 0) -> Layout:
    """A region with the planner's own choices. Raises `PlanError` naming a layer that does not fit.

    A plan of at most `near` cycles is taken at once. Patches and slices of channels are tried where none has at most
    `far` cycles.
    """
    return min(laid_out(graph, accelerator, near, far), key=promise)


def laid_out(
    graph: Graph, accelerator: Accelerator, near: float = 0, far: float = 0, enough: float = 0
) -> list[Layout]:
    """The plans of which `best_layout` takes the first of the fastest. Where one takes at most `enough` cycles, or has
    many copies and jobs, a mapping whose jobs alone take no fewer cycles is not tried."""
    plain = map_graph(graph, accelerator, copies_transpose=False)
    if plain.whole:
        return [whole_layout(plain)]
    known: dict[Choices, Layout] = {}
    for mapped, groupings, forms in candidates(graph, accelerator):
        found: list[Layout] = []
        for grouping, choices in zip(groupings, forms, strict=True):
            if not _ends(found, grouping.mapped.array_cycles, enough):
                found += _tried(mapped, choices, near, known)
        if found and min(one.cycles for one in found) > far and len(graph.layers) > 1:
            for one in groupings:
                for other in (one.further(), one.further(halos=True), one.further(fine=True)):
                    if not _ends(found, one.mapped.array_cycles, enough):
                        found += _tried(one.mapped, _in_parts([other]), near, known)
        if found:
            return found
    return [layer_by_layer(graph, accelerator)]


def _ends(found: Sequence[Layout], least: int, enough: float) -> bool:
    """Whether a plan is good enough where no other one takes fewer cycles than `least`."""
    fastest = min(found, key=lambda one: one.cycles, default=None)
    if fastest is None or fastest.cycles > least:
        return False
    return fastest.cycles <= enough or len(fastest.work.ops) > ENOUGH


def promise(layout: Layout) -> float:
    """Cycles of a plan; those that keep halos have less near them that is better."""
    return layout.cycles * (_KEEPING if any(group.kept for group in layout.choices.groups) else 1)


def _tried(mapped: MappedGraph, choices: Iterable[Choices], near: float, known: dict[Choices, Layout]) -> list[Layout]:
    """The plans of some choices, until one has at most `near` cycles, without those that cannot be carried out. Those
    that are `known` are not made again."""
    found: list[Layout] = []
    seen: set[Choices] = set()
    for candidate in choices:
        if candidate in seen:
            continue
        seen.add(candidate)
        least = min((one.cycles for one in found), default=inf)
        try:
            if candidate not in known:
                known[candidate] = lay_out(mapped_as(mapped, candidate), candidate, below=least)
        except PlanError:
            continue  # the estimate was too bold: another candidate is more careful
        if known[candidate].work.busy.cycles >= least:
            continue
        found.append(known[candidate])
        fastest = min(found, key=lambda one: one.cycles)
        enough = ENOUGH if len(mapped.graph.layers) > 1 else _ENOUGH_ALONE
        if fastest.cycles <= near or len(fastest.work.ops) > enough:
            break
    return found


def whole_layout(mapped: MappedGraph) -> Layout:
    """Layers as a whole: there is nothing to choose. Raises `PlanError` as `whole_layers`."""
    layers = len(mapped.graph.layers)
    return lay_out(mapped, Choices(mapped.mapping.swapped, (Group(layers),), (None,) * layers, False))


def layer_by_layer(graph: Graph, accelerator: Accelerator, *, most: float = inf) -> Layout:
    """Every layer by itself, from main memory to main memory: possible whenever any plan is.

    Raises `PlanError` naming a layer that does not fit, and where it takes more than `most` jobs and copies.
    """
    plain = map_graph(graph, accelerator, copies_transpose=False)
    return lay_out(plain, one_by_one(plain), most=most)


def one_by_one(plain: MappedGraph) -> Choices:
    """Choices of each layer by itself. Raises `PlanError` naming a layer that does not fit."""
    layers = plain.graph.layers
    tilings = (single_tiling(layer, plain.accelerator) for layer in layers)
    groups = tuple(Group(1, overlap=False, resident=False, tiling=tiling) for tiling in tilings)
    return Choices(plain.mapping.swapped, groups, (None,) * len(layers), copies_transpose=False)


def mapped_as(mapped: MappedGraph, choices: Choices) -> MappedGraph:
    """The graph as choices map it; often equal to the mapping at hand."""
    mapping = mapped.mapping
    one, other = ((by.swapped, by.placed, by.stored, by.packed, by.jobs_transpose) for by in (choices, mapping))
    if one == other and choices.copies_transpose == mapped.copies_transpose:
        return mapped
    return map_choices(mapped.graph, mapped.accelerator, choices, mapped.lies)


def map_choices(graph: Graph, accelerator: Accelerator, choices: Choices, lies: Lies = NOWHERE_ELSE) -> MappedGraph:
    """The graph as choices map it. Raises `PlanError` where they do not fit it."""
    placing = choices.placed, choices.stored, choices.packed, lies
    by_jobs = choices.jobs_transpose
    return map_graph(graph, accelerator, choices.swapped, choices.copies_transpose, *placing, jobs_transpose=by_jobs)


def candidates(
    graph: Graph, accelerator: Accelerator
) -> Iterator[tuple[MappedGraph, list[Grouping], list[Iterator[Choices]]]]:
    """Choices to try, the best ones first; each kind only if the kind before gave none. Those of a kind are by form:
    with packed rows, and without; there is a grouping for each form. Where none gives any, layers are by themselves in
    tiles, whatever the tuning space allows."""
    plain, known = map_graph(graph, accelerator, copies_transpose=False), Known()
    for one in mappings(graph, accelerator):
        forms = [[Grouping(variant, known=known) for variant in placements(form)] for form in forms_of(one)]
        whole = [[all_held(each.mapped) for each in groupings if all_fit(each.mapped)] for groupings in forms]
        plainest = [groupings[-1] for groupings in forms]  # no tensor lies in another one
        held: list[Iterator[Choices]] = [chain.from_iterable(found) for found in whole]
        tiles = [_by_themselves(plain), in_tiles(plain)] if accelerator.tuning.tile else []
        parts = [*map(_in_parts, forms[:-1]), chain(_in_parts(forms[-1]), *tiles)]
        if any(one.mapped.mapping.stored for groupings in forms for one in groupings):
            parts = list(map(chain, held, parts))  # something is not held in any case
        elif any(whole):
            yield one, plainest, held
        yield one, plainest, parts


def mappings(graph: Graph, accelerator: Accelerator) -> tuple[MappedGraph, ...]:
    """The graph with transpositions at its border done by copies, and, where that differs, by layers."""
    mapped = map_graph(graph, accelerator)
    if any(mapped.mapping.swapped) or mapped.mapping.copied:
        return mapped, map_graph(graph, accelerator, copies_transpose=False)
    return (mapped,)


def _in_parts(groupings: Sequence[Grouping]) -> Iterator[Choices]:
    """The best grouping for each part of local memory."""
    for grouping in groupings:
        yield from (choices for room in ROOM if (choices := grouping.best(room)) is not None)


def _by_themselves(plain: MappedGraph) -> Iterator[Choices]:
    """Each layer by itself, which is as good in a tiny memory."""
    with suppress(PlanError):  # then nothing is lost
        yield one_by_one(plain)


_TILES = ((1, 1), (2, 2), (2, 1), (1, 2), (3, 2))
"""Tiles, and blocks of weights, that have room at a time."""

_MOST_TILINGS = 3
"""The most tilings of one layer that are laid out: of those with the fewest cycles if the array computes while the DMA
copies, also of those alone that have room for it, and of those with the fewest one after the other."""


def in_tiles(plain: MappedGraph) -> Iterator[Choices]:
    """A region of one layer in tiles that are computed while others are copied, or piece by piece, where the tuning
    space allows it."""
    layers, allowed = plain.mapping.layers, plain.accelerator.tuning
    if len(layers) != 1 or not (allowed.tile and allowed.overlap) or not can_tile(layers[0], plain.storages.of):
        return
    stays = all_bytes(layers[0], None, plain.accelerator) <= plain.accelerator.weight_memory
    found: dict[Tiling, bool] = {}
    for room in _TILES:
        for tiling in tilings(layers[0], plain.accelerator, (room,)):
            found[tiling] = found.get(tiling, False) or room[0] > 1
    for tiling in _promising(layers[0], found, plain.accelerator):
        for pieces in (1,) if found[tiling] else PIECES:
            group = Group(1, 1, frozenset(), found[tiling], allowed.resident and stays, tiling, pieces=pieces)
            yield Choices(plain.mapping.swapped, (group,), (None,), copies_transpose=False)


def _promising(layer: Layer, found: Mapping[Tiling, bool], accelerator: Accelerator) -> Iterable[Tiling]:
    """The tilings that are laid out, of those `found`: with whether two tiles have room at a time."""
    form, most = tile_geometry(layer), _MOST_TILINGS
    if not isinstance(form, Window):
        return list(found)[:most]
    tiler = Tiler(layer, form, accelerator)
    costs = {tiling: tiler.cost(tiling) for tiling in found}
    ranked = sorted(found, key=lambda tiling: costs[tiling].rank(2, 2))
    roomy = [tiling for tiling in ranked if found[tiling]]
    return dict.fromkeys((*ranked[:most], *roomy[:most], *nsmallest(most, found, lambda one: costs[one].cycles())))


def packings(mapped: MappedGraph) -> Iterator[MappedGraph]:
    """The region with packed rows, where the array takes fewer cycles for them, and last without."""
    every, *_ = mapped.shared(_stored_transposed)
    packed = bands_worth_packing(mapped.mapping, mapped.graph, mapped.accelerator, every)
    if packed:
        swapped, copies_transpose = mapped.mapping.swapped, mapped.copies_transpose
        yield map_graph(mapped.graph, mapped.accelerator, swapped, copies_transpose, packed=packed, lies=mapped.lies)
    yield mapped


def forms_of(mapped: MappedGraph) -> Iterator[MappedGraph]:
    """The region with packed rows, and without; each with swapped inputs as they lie in main memory, where they can lie
    so, and last as copies transpose them."""
    for form in packings(mapped):
        if any(mapped.mapping.swapped) and mapped.accelerator.packed_rows:
            mapping = form.mapping
            fixed = form.graph, form.accelerator, mapping.swapped, form.copies_transpose
            turned = map_graph(*fixed, packed=mapping.packed, lies=form.lies, jobs_transpose=True)
            if turned.turns:
                yield turned
        yield form


_SHARES = (1.0, 0.5, 0.25, 0.0)
"""Parts of local activation memory: a concatenation that takes more is not put together there."""


def placements(mapped: MappedGraph) -> Iterator[MappedGraph]:
    """The region with its concatenations put together in local memory if they are small, or in main memory, its slices
    read in place, or loaded from where their inputs lie in main memory, and those that are outputs stored from there,
    what is padded or repeated put together as it is loaded, its transpositions stored by what makes their inputs; and
    with copies for all of them."""
    layers, memory = mapped.graph.layers, mapped.accelerator.activation_memory
    moved = {index: layer for index, layer in enumerate(layers) if isinstance(layer, Concat | Pad | Resize | Slice)}
    joins = frozenset(index for index, layer in moved.items() if isinstance(layer, Concat))
    loaded = frozenset(index for index, layer in moved.items() if isinstance(layer, Pad | Resize))
    exits = frozenset(index for index in moved.keys() - joins - loaded if layers[index].ofm in mapped.graph.outputs)
    turns = mapped.shared(_stored_transposed)
    seen: set[tuple[frozenset[int], frozenset[int]]] = {(frozenset(), frozenset())}
    slices = frozenset(moved.keys() - joins - loaded - exits)
    for turned, read, share in product(turns, dict.fromkeys((slices, frozenset[int]())), _SHARES):
        if not mapped.accelerator.tuning.hold or not (moved or turned):
            continue
        small = frozenset(index for index in joins if layers[index].ofm.nbytes <= share * memory)
        one = _placed(mapped, small | read, (joins - small) | loaded | exits | (slices - read) | turned)
        found = one.mapping.placed, one.mapping.stored
        if found not in seen:
            seen.add(found)
            yield one
    yield mapped


def _placed(mapped: MappedGraph, placed: frozenset[int], stored: frozenset[int]) -> MappedGraph:
    """The region with as many of these layers placed as can be, and as many of the others stored."""
    mapping, lies = mapped.mapping, mapped.lies
    fixed = mapped.graph, mapped.accelerator, mapping.swapped, mapped.copies_transpose
    while True:
        try:
            return map_graph(*fixed, placed, stored, mapping.packed, lies, jobs_transpose=mapping.jobs_transpose)
        except NotInPlace as error:
            failed = error.layers & (placed | stored) or placed | stored
            placed, stored = placed - failed, stored - failed | failed & placed


def _stored_transposed(mapped: MappedGraph) -> tuple[frozenset[int], ...]:
    """The transpositions that take the DMA fewer cycles where what makes their inputs stores them: than stores of their
    own that do all, and of these, where they are others, than loads and stores that do a part each."""
    layers, of, accelerator = mapped.graph.layers, mapped.storages.of, mapped.accelerator
    every, fewer = set[int](), set[int]()
    for index, layer in enumerate(layers):
        if isinstance(layer, Transpose) and index not in mapped.mapping.copied:
            stored = stored_cycles(layer, of[layer.ifm].extents, accelerator)
            if stored < transposing_cycles(layer, accelerator, parted=False):
                every.add(index)
                plain = copy_cycles(layer.ifm.nbytes, 1, accelerator)
                if stored < plain + transposing_cycles(layer, accelerator, parted=True):
                    fewer.add(index)
    return tuple(dict.fromkeys(map(frozenset, (every, fewer))))


def stored_as_well(mapped: MappedGraph, some: frozenset[int]) -> frozenset[int]:
    """The layers that are stored by what makes their inputs, and as many of `some` as can be beside them."""
    mapping = mapped.mapping
    return _placed(mapped, mapping.placed, mapping.stored | some).mapping.stored
