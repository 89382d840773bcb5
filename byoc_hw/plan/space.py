"""The choices that a region has, as far as the accelerator's `TuningSpace` goes: all of them, or one step away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, combinations, product
from math import prod
from random import Random

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Conv2d, Dense, Graph, Layer, Transpose
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.cuts import cut, fits
from byoc_hw.plan.flash import in_channels
from byoc_hw.plan.mapping import map_layers
from byoc_hw.plan.storage import Storage, can_tile, storages
from byoc_hw.plan.tiling import Tiling, round_up
from byoc_hw.plan.window import extents

_PARTS = (1, 2, 3, 4)
"""Parts of the local memories that the tile of a layer by itself is made for: with two, the next one has room."""


class Layout:
    """A graph as it lies on the array in one way, and what there is to choose about groups of its layers.

    A group is given by its first layer and the first behind it.
    """

    def __init__(self, graph: Graph, accelerator: Accelerator, swapped: tuple[bool, ...], direct: bool) -> None:
        self.accelerator, self.limits = accelerator, accelerator.tuning
        self.mapping = map_layers(graph, accelerator, swapped, direct)
        self.storages = storages(graph, self.mapping)
        self.layers = self.mapping.layers
        self.live = cache(self._live)
        self.stripes = cache(self._stripes)
        self.tilings = cache(self._tilings)

    def work(self, first: int, stop: int) -> list[int]:
        """The layers of a group that have something to do."""
        return [index for index in range(first, stop) if self.mapping.works(index)]

    def may_group(self, first: int, stop: int) -> bool:
        """Whether these layers can be a group."""
        work = self.work(first, stop)
        return len(work) <= (1 if self._transposes(work) else self.limits.longest_group)

    def alone(self, group: Group, first: int, stop: int) -> bool:
        """Whether a group goes from main memory to main memory."""
        return group.tiling is not None or self._transposes(self.work(first, stop))

    def touched(self, first: int, stop: int) -> frozenset[int]:
        """Storages that a group reads or makes."""
        return frozenset(one.index for index in self.work(first, stop) for one in self._storages(index))

    def _live(self, first: int, stop: int) -> frozenset[int]:
        """Storages that have bytes which a group, or one behind it, reads or makes."""
        return frozenset(
            one.index
            for one in self.storages.all
            if (-1 if one.maker is None else one.maker) < stop and one.last >= first
        )

    def _stripes(self, first: int, stop: int) -> tuple[int, ...]:
        """The numbers of stripes that a group can have."""
        work = self.work(first, stop)
        height = extents(self.layers[work[-1]].ofm)[0] if work else 1
        return tuple(sorted({-(-height // -(-height // count)) for count in self.limits.stripes}))

    def _tilings(self, first: int, stop: int) -> tuple[Tiling, ...]:
        """The tilings of a group; none where it may have none, or is not of one layer as the model has it."""
        work = self.work(first, stop)
        if not self.limits.tile or len(work) != 1:
            return ()
        layer = self.layers[work[0]]
        return tuple(dict.fromkeys(self._tiled(layer))) if can_tile(layer, self.storages.of) else ()

    def _tiled(self, layer: Layer) -> Iterator[Tiling]:
        for activations, weights in product(_PARTS, _PARTS):
            part = replace(
                self.accelerator,
                activation_memory=self.accelerator.activation_memory // activations,
                weight_memory=self.accelerator.weight_memory // weights,
            )
            try:
                tiling = single_tiling(layer, part)
            except PlanError:
                continue
            if tiling is not None:
                yield tiling

    def _transposes(self, work: Sequence[int]) -> bool:
        return any(isinstance(self.layers[index], Transpose) for index in work)

    def _storages(self, index: int) -> list[Storage]:
        layer = self.layers[index]
        return [self.storages.of[tensor] for tensor in (*layer.inputs, layer.ofm)]


class Space:
    """What can be chosen for one region.

    Choices that differ in what has no effect are the same: `canonical` gives the one that stands for them.
    """

    def __init__(self, graph: Graph, accelerator: Accelerator) -> None:
        self.graph, self.accelerator, self.limits = graph, accelerator, accelerator.tuning
        self._layouts: dict[tuple[tuple[bool, ...], bool], Layout] = {}
        self._blocks: dict[Layer, tuple[Blocks | None, ...]] = {}
        mapping = map_layers(graph, accelerator)
        count = len(mapping.swapped)
        self.swappable = [number for number in range(count) if self.limits.swap and self._can_swap(number, count)]
        self.unswapped = (False,) * count
        self.has_borders = bool(mapping.moved)

    def layout(self, choices: Choices) -> Layout:
        """How the region lies on the array."""
        return self._layout(choices.swapped, choices.direct)

    def _layout(self, swapped: tuple[bool, ...], direct: bool) -> Layout:
        if (swapped, direct) not in self._layouts:
            self._layouts[swapped, direct] = Layout(self.graph, self.accelerator, swapped, direct)
        return self._layouts[swapped, direct]

    def _can_swap(self, number: int, count: int) -> bool:
        try:
            map_layers(self.graph, self.accelerator, [other == number for other in range(count)])
        except PlanError:
            return False
        return True

    # ------------------------------------------------------------ what there is

    def at_least(self) -> int:
        """A number of choices that there are, and mostly many more: quickly counted."""
        layout = self._layout(self.unswapped, True)
        blocks: int = prod(len(self.blocks(layer)) for layer in layout.layers)
        longest = min(len(self.graph.layers), self.limits.longest_group)
        groups = 1 << longest - 1 if layout.may_group(0, longest) else 1
        return (1 << len(self.swappable)) * blocks * groups

    def everything(self) -> Iterator[Choices]:
        """All choices, some of them more than once."""
        for values in product((False, True), repeat=len(self.swappable)):
            chosen = dict(zip(self.swappable, values, strict=True))
            swapped = tuple(chosen.get(number, False) for number in range(len(self.unswapped)))
            for direct in (True, False) if self.has_borders else (True,):
                layout = self._layout(swapped, direct)
                for blocks in product(*map(self.blocks, layout.layers)):
                    for groups in self._sequences(layout, 0):
                        yield self.canonical(Choices(swapped, groups, blocks, direct))

    def _sequences(self, layout: Layout, first: int) -> Iterator[tuple[Group, ...]]:
        if first == len(layout.layers):
            yield ()
        for stop in range(first + 1, len(layout.layers) + 1):
            if not layout.may_group(first, stop):
                return
            for group in self._groups(layout, first, stop):
                for rest in self._sequences(layout, stop):
                    yield (group, *rest)

    def _groups(self, layout: Layout, first: int, stop: int) -> Iterator[Group]:
        """All forms of a group of layers `first` to before `stop`."""
        count = stop - first
        live = sorted(layout.live(first, stop))
        flags = (True, False)
        for held in chain.from_iterable(combinations(live, size) for size in range(len(live) + 1)):
            whole = frozenset(held)
            for stripes, overlap, resident in product(layout.stripes(first, stop), flags, flags):
                yield Group(count, stripes, whole, overlap, resident)
            for tiling, overlap, resident in product(layout.tilings(first, stop), flags, flags):
                yield Group(count, 1, whole, overlap, resident, tiling)

    def blocks(self, layer: Layer) -> tuple[Blocks | None, ...]:
        """How a layer's weights can be cut: for each share what costs least, and the most channels in full depth."""
        if layer not in self._blocks:
            self._blocks[layer] = tuple(dict.fromkeys(self._cuts(layer))) or (None,)
        return self._blocks[layer]

    def _cuts(self, layer: Layer) -> Iterator[Blocks | None]:
        if not isinstance(layer, Conv2d | Dense):
            return
        rows, total = self.accelerator.array_rows, in_channels(layer)
        for share in self.limits.weight_shares:
            cheapest = cut(layer, self.accelerator, share)
            if fits(layer, cheapest or Blocks(layer.out_channels, total), share, self.accelerator):
                yield cheapest
            for channels in range(round_up(layer.out_channels, rows) - rows, 0, -rows):
                if fits(layer, Blocks(channels, total), share, self.accelerator):
                    yield Blocks(channels, total)
                    break

    # ------------------------------------------------------------ one for all that are the same

    def canonical(self, choices: Choices) -> Choices:
        """The same choices, within the space, without what has no effect."""
        choices = replace(choices, direct=choices.direct or not self.has_borders)
        layout = self.layout(choices)
        found: list[Group] = []
        first = 0
        for group in choices.groups:
            for part in _parts(layout, group, first):
                stop = first + part.layers
                found.append(self._plain(layout, part, first, stop, found[-1] if found else None))
                first = stop
        return replace(choices, groups=tuple(found))

    def _plain(self, layout: Layout, group: Group, first: int, stop: int, before: Group | None) -> Group:
        whole = group.whole & layout.live(first, stop)
        if not self.limits.hold and before is not None:
            whole -= before.whole
        if layout.alone(group, first, stop):
            group = replace(group, stripes=1, whole=whole - layout.touched(first, stop))
        else:
            options = layout.stripes(first, stop)
            group = replace(group, stripes=min(options, key=lambda count: abs(count - group.stripes)), whole=whole)
        once = group.stripes == 1 and group.tiling is None
        overlap = once or (group.overlap and self.limits.overlap)
        return replace(group, overlap=overlap, resident=once or (group.resident and self.limits.resident))

    # ------------------------------------------------------------ one step away

    def step(self, choices: Choices, random: Random) -> Choices:
        """Other choices nearby, or the same where the step that was drawn leads nowhere."""
        move = random.choices(_MOVES, _WEIGHTS)[0]
        return self.canonical(move(self, choices, random) or choices)


def _parts(layout: Layout, group: Group, first: int) -> Iterator[Group]:
    """A group, or groups of as many layers as a group may have."""
    last = first + group.layers
    while first < last:
        stop = max((end for end in range(first + 1, last + 1) if layout.may_group(first, end)), default=last)
        yield replace(group, layers=stop - first)
        first = stop


Move = Callable[[Space, Choices, Random], "Choices | None"]


def _spans(choices: Choices) -> list[tuple[int, int]]:
    """The first layer of each group, and the first behind it."""
    spans, first = [], 0
    for group in choices.groups:
        spans.append((first, first + group.layers))
        first += group.layers
    return spans


def _merge(space: Space, choices: Choices, random: Random) -> Choices | None:
    """Two neighbours become one group."""
    if len(choices.groups) < 2:
        return None
    at = random.randrange(len(choices.groups) - 1)
    spans, (one, other) = _spans(choices), choices.groups[at : at + 2]
    first, stop = spans[at][0], spans[at + 1][1]
    layout = space.layout(choices)
    if not layout.may_group(first, stop):
        return None
    held = random.choice((one.whole | other.whole, one.whole & other.whole, one.whole, other.whole))
    stripes = random.choice((one.stripes, other.stripes, *layout.stripes(first, stop)))
    merged = Group(one.layers + other.layers, stripes, held, other.overlap, other.resident)
    return replace(choices, groups=(*choices.groups[:at], merged, *choices.groups[at + 2 :]))


def _split(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A group becomes two, one of them in other stripes perhaps; what passes between them is held, or not."""
    at = random.randrange(len(choices.groups))
    group, (first, stop) = choices.groups[at], _spans(choices)[at]
    if group.layers < 2:
        return None
    middle = random.randrange(first + 1, stop)
    layout = space.layout(choices)
    passing = layout.touched(first, middle) & layout.live(middle, stop)
    whole = group.whole | passing if space.limits.hold and random.random() < 0.7 else group.whole - passing
    one = Group(middle - first, _other(layout.stripes(first, middle), group.stripes, random), whole)
    other = Group(stop - middle, group.stripes, whole, group.overlap, group.resident)
    return choices.with_group(at, one, other)


def _shift(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A layer goes from a group to its neighbour."""
    if len(choices.groups) < 2:
        return None
    at = random.randrange(len(choices.groups) - 1)
    by = random.choice((-1, 1))
    one, other = choices.groups[at : at + 2]
    moved = replace(one, layers=one.layers + by, tiling=None), replace(other, layers=other.layers - by, tiling=None)
    first, middle, stop = _spans(choices)[at][0], _spans(choices)[at][1] + by, _spans(choices)[at + 1][1]
    layout = space.layout(choices)
    if first == middle or middle == stop or not (layout.may_group(first, middle) and layout.may_group(middle, stop)):
        return None
    return replace(choices, groups=(*choices.groups[:at], *moved, *choices.groups[at + 2 :]))


def _restripe(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A group has more stripes, or fewer."""
    at = random.randrange(len(choices.groups))
    options = space.layout(choices).stripes(*_spans(choices)[at])
    stripes = _other(options, choices.groups[at].stripes, random)
    return choices.with_group(at, replace(choices.groups[at], stripes=stripes, tiling=None))


def _hold(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A storage is in local memory in full in one group more, or one less."""
    at = random.randrange(len(choices.groups))
    live = sorted(space.layout(choices).live(*_spans(choices)[at]))
    if not live:
        return None
    group = choices.groups[at]
    return choices.with_group(at, replace(group, whole=group.whole ^ {random.choice(live)}))


def _hold_long(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A storage is in local memory in full from its first group to its last, or nowhere."""
    layout = space.layout(choices)
    storage = random.choice(layout.storages.all).index
    everywhere = random.random() < 0.6
    groups = []
    for group, span in zip(choices.groups, _spans(choices), strict=True):
        held = everywhere and storage in layout.live(*span)
        groups.append(replace(group, whole=group.whole | {storage} if held else group.whole - {storage}))
    return replace(choices, groups=tuple(groups))


def _flag(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A group overlaps its stripes or does not, keeps its weights or does not."""
    at = random.randrange(len(choices.groups))
    group = choices.groups[at]
    changed = random.choice((replace(group, overlap=not group.overlap), replace(group, resident=not group.resident)))
    return choices.with_group(at, changed)


def _recut(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A layer's weights are loaded in other blocks."""
    index = random.randrange(len(choices.blocks))
    options = space.blocks(space.layout(choices).layers[index])
    blocks = (*choices.blocks[:index], random.choice(options), *choices.blocks[index + 1 :])
    return replace(choices, blocks=blocks)


def _retile(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A layer by itself is cut along every axis, or in stripes."""
    at = random.randrange(len(choices.groups))
    options = space.layout(choices).tilings(*_spans(choices)[at])
    return choices.with_group(at, replace(choices.groups[at], tiling=random.choice(options))) if options else None


def _swap(space: Space, choices: Choices, random: Random) -> Choices | None:
    """A component is swapped, or no longer; or transpositions at the border are layers of their own, or no longer."""
    if space.has_borders and random.random() < 0.5:
        return replace(choices, direct=not choices.direct)
    if not space.swappable:
        return None
    number = random.choice(space.swappable)
    swapped = tuple(value != (other == number) for other, value in enumerate(choices.swapped))
    groups = tuple(replace(group, tiling=None) for group in choices.groups)
    return replace(choices, swapped=swapped, groups=groups)


def _other(options: Sequence[int], value: int, random: Random) -> int:
    """Mostly a neighbour of a value among the options, else any of them."""
    if random.random() < 0.3:
        return random.choice(options)
    at = min(range(len(options)), key=lambda index: abs(options[index] - value))
    return options[min(max(at + random.choice((-1, 1)), 0), len(options) - 1)]


_MOVES: tuple[Move, ...] = (_merge, _split, _shift, _restripe, _hold, _hold_long, _flag, _recut, _retile, _swap)
_WEIGHTS = (3, 3, 3, 4, 4, 2, 2, 4, 1, 1)
