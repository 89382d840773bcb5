"""Choices near those of a plan: for the layers at which the array waits other blocks of weights, numbers of stripes,
neighbours in a group and tensors that stay are tried, those first that promise the most for what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from byoc_hw.graph import Concat, Pad, Resize, Slice, Transpose, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import NotInPlace, can_tile
from byoc_hw.plan.array.weight_blocks import SHARES, all_bytes, cut, fits_often
from byoc_hw.plan.choices import PIECES, Blocks, Choices, Group
from byoc_hw.plan.search.measured import Near, least_jobs
from byoc_hw.plan.search.planner import stored_as_well
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.plan.work.merges import loads_weights

NearbyChoices = Callable[[SearchSpace, Layout], Iterator[Choices]]
"""Choices of one kind near those of a plan."""


GroupChoices = Callable[[SearchSpace, Choices, int, int, int], Iterator[Choices]]
"""Such choices for a group: its number, its first layer, and the first one behind it."""


def choices_nearby(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """Choices near those of a plan."""
    for choices in choices_by_kind(found):
        yield from choices(space, found)


def choices_by_kind(found: Layout, *, bands: bool = True) -> Iterator[NearbyChoices]:
    """Choices near those of a plan, or of one like it: all weights in smaller blocks, concatenations, slices and
    transpositions that copies of other layers do, layers in tiles and `bands` of rows that take the array
    fewer cycles, then those of groups, by what they promise. Other bands come last."""
    yield from (_all_cuts, _stored, _in_tiles)
    if bands:
        yield partial(_bands, faster=True)
    of_weights, waits = waits_of(found, weights=True), waits_of(found)
    ranked: list[tuple[float, int, GroupChoices]] = []
    for first, stop in found.choices.spans:
        all_waits, for_weights = sum(waits[first:stop]), sum(of_weights[first:stop])
        for kind, (one, other) in _WORTH.items():
            ranked.append((one * for_weights + other * (all_waits - for_weights), first, kind))
    for worth, first, kind in sorted(ranked, key=lambda one: -one[0]):
        if worth:
            yield partial(_at, first, kind)
    if bands:
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
    choices = found.choices
    options = [replace(choices, packed=choices.packed ^ {band}) for band in space.packable(choices.stored)]
    cycles: dict[Choices, int] = {}
    for one in options if len(options) > 1 else ():
        with suppress(NotInPlace):  # nothing is stored from packed rows
            cycles[one] = space.groups_of(one).mapped.array_cycles
    now = found.mapped.array_cycles
    yield from (one for one in sorted(cycles, key=cycles.__getitem__) if (cycles[one] < now) == faster)


def _stored(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """Layers without jobs that are copied, done by copies of other layers: all that can be, then one by one, the
    largest one first."""
    choices, layers = found.choices, found.mapped.graph.layers
    able = Concat | Pad | Resize | Slice | Transpose
    movable = frozenset(index for index, layer in enumerate(layers) if isinstance(layer, able))
    moved = movable - choices.placed - choices.stored - found.mapped.mapping.copied
    copied = sorted(moved, key=lambda one: (-layers[one].ofm.nbytes, one)) if space.limits.hold else []
    together = [stored_as_well(found.mapped, frozenset(copied))] if len(copied) > 1 else []
    for some in (*together, *(choices.stored | {index} for index in copied)):
        other = replace(choices, stored=some)
        try:
            space.groups_of(other)
        except NotInPlace:
            continue  # an input is in another one already, or lies otherwise
        yield other


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


def near_groups(space: SearchSpace) -> Near:
    """Choices near some, with another form of a group, or other blocks of its weights."""

    def near(choices: Choices, at: int) -> Iterator[Choices]:
        span = choices.spans[at]
        yield from map(space.canonical, _stripes(space, choices, at, *span))
        yield from map(space.canonical, _cuts(space, choices, at, *span))

    return near


def _cuts(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """Other blocks of weights for a layer of a group: the next larger and smaller ones. A tile has its own."""
    for index in range(first, stop) if choices.groups[at].tiling is None else ():
        layer = space.groups_of(choices).layers[index]
        options = sorted({*space.blocks(layer), choices.blocks[index]}, key=_size)
        here = options.index(choices.blocks[index])
        for other in (here - 1, here + 1, here - 2):
            if 0 <= other < len(options):
                yield _with_blocks(choices, index, options[other])


def halved_blocks(space: SearchSpace, found: Layout) -> Iterator[Choices]:
    """Blocks of half the output channels for one layer, and of half the input channels where its weights are not small:
    first for layers for whose weights the array waits the longest. A tile has its own."""
    choices, waits = found.choices, waits_of(found, weights=True)
    spans = [span for group, span in zip(choices.groups, choices.spans, strict=True) if group.tiling is None]
    for index in sorted((at for span in spans for at in range(*span)), key=lambda at: -waits[at]):
        layer, blocks = space.groups_of(choices).layers[index], choices.blocks[index]
        if not isinstance(layer, Weighted):
            continue
        whole = blocks or Blocks(layer.out_channels, layer.in_channels)
        if whole.channels > 1:
            yield _with_blocks(choices, index, replace(whole, channels=ceil_div(whole.channels, 2)))
        if whole.depth > 1 and not fits_often(layer, space.accelerator):
            yield _with_blocks(choices, index, replace(whole, depth=ceil_div(whole.depth, 2)))


def _with_blocks(choices: Choices, index: int, blocks: Blocks | None) -> Choices:
    return replace(choices, blocks=(*choices.blocks[:index], blocks, *choices.blocks[index + 1 :]))


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


def _stripes_before(space: SearchSpace, choices: Choices, at: int, first: int, stop: int) -> Iterator[Choices]:
    """A transposition before a group in more or fewer stripes: the group waits for the first of them alone."""
    before = choices.groups[at - 1] if at else None
    if before is not None and before.tiling is None and space.groups_of(choices).alone(before, *choices.spans[at - 1]):
        yield from _stripes(space, choices, at - 1, *choices.spans[at - 1])


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
    _stripes_before: (0.5, 1),
    _joins: (0.02, 0.05),
    _holds: (0.02, 0.05),
}
"""What kinds of choices promise for a group: parts of the cycles for which the array waits for weights, and others."""
