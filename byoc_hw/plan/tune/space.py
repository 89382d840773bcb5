"""The choices of a region, within the accelerator's `TuningSpace`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain, combinations, product
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.plan.array.kinds import copies_only
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.array.mapping import map_layers
from byoc_hw.plan.array.packing import bands
from byoc_hw.plan.array.permuting import outermost_kept
from byoc_hw.plan.array.storage import Storage, can_tile
from byoc_hw.plan.array.weight_blocks import cut, fits
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import PIECES, Blocks, Choices, Group, Tiling
from byoc_hw.plan.search.patch_counts import column_counts, slice_counts
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.work.halo import keepable
from byoc_hw.plan.work.patch_boxes import check_slices_outer, runs_of_channels

_MOST_SLABS = 8
"""The most stripes of a transposition: with each its copies are more."""

_PARTS = (1, 2, 3, 4)
"""Fractions of the local memories that a single layer's tiles are sized for: with one half, the next tile has room."""


class GroupSpace:
    """The choices of groups for the layers of a mapped graph.

    A group is given by its first layer and the first after it.
    """

    def __init__(self, mapped: MappedGraph) -> None:
        self.mapped, self.accelerator, self.limits = mapped, mapped.accelerator, mapped.accelerator.tuning
        self.mapping, self.storages, self.layers = mapped.mapping, mapped.storages, mapped.mapping.layers
        self.live = cache(self._live)
        self.stripes = cache(self._stripes)
        self.tilings = cache(self._tilings)
        self.columns = cache(self._columns)
        self.slices = cache(self._slices)
        self.plain = cache(self._plain)

    def work(self, first: int, stop: int) -> list[int]:
        """The layers of a group with jobs or copies."""
        return [index for index in range(first, stop) if self.mapping.works(index)]

    def may_group(self, first: int, stop: int) -> bool:
        """Whether these layers can be a group."""
        work = self.work(first, stop)
        return len(work) <= (1 if self._transposes(work) else self.limits.longest_group)

    def alone(self, group: Group, first: int, stop: int) -> bool:
        """Whether a group goes from main memory to main memory."""
        return group.tiling is not None or self._transposes(self.work(first, stop))

    def touched(self, first: int, stop: int) -> frozenset[int]:
        """Storages that a group reads or writes."""
        return frozenset(one.index for index in self.work(first, stop) for one in self._storages(index))

    def _live(self, first: int, stop: int) -> frozenset[int]:
        """Storages that are written before the end of a group, and that it or a later group uses."""
        return frozenset(
            one.index for one in self.storages.all if min(one.makers, default=-1) < stop and one.last >= first
        )

    def _stripes(self, first: int, stop: int) -> tuple[int, ...]:
        """The numbers of stripes that a group can have. A transposition has them of what is outermost on both sides."""
        work, counts = self.work(first, stop), self.limits.stripes
        height = extents(self.layers[work[-1]].ofm)[0] if work else 1
        if self._transposes(work):
            height, counts = outermost_kept(self.layers[work[-1]]), (1, *(one for one in counts if one <= _MOST_SLABS))
        return tuple(sorted({ceil_div(height, ceil_div(height, count)) for count in counts}))

    def _tilings(self, first: int, stop: int) -> tuple[Tiling, ...]:
        """The tilings of a group; none where tilings are ruled out, or for a group that is not one unswapped layer."""
        work = self.work(first, stop)
        if not self.limits.tile or len(work) != 1:
            return ()
        layer = self.layers[work[0]]
        if not can_tile(layer, self.storages.of):
            return ()
        return tuple(tilings(layer, self.accelerator, product(_PARTS, _PARTS)))

    def _columns(self, first: int, stop: int) -> tuple[int, ...]:
        """The numbers of patches side by side that a group can have."""
        work = self.work(first, stop)
        return (1, *(column_counts(self.layers[work[-1]], self.accelerator) if self._patched(work) else ()))

    def _slices(self, first: int, stop: int) -> tuple[int, ...]:
        """The numbers of slices of channels that a group can have."""
        return (1, *self._several_slices(first, stop, fine=True))

    def row_slices(self, first: int, stop: int) -> Sequence[int]:
        """The numbers of slices of channels, more than one, that are whole rows of the array, in growing order."""
        return self._several_slices(first, stop, fine=False)

    def _several_slices(self, first: int, stop: int, *, fine: bool) -> Sequence[int]:
        work = self.work(first, stop)
        if not self._patched(work):
            return ()
        return slice_counts(self.layers, self.storages.of, work, frozenset(), self.accelerator, fine=fine)

    def sums(self, first: int, stop: int, held: frozenset[int]) -> bool:
        """Whether a layer of a group can add up slices of channels as they are made, where some storages are `held`."""
        work = self.work(first, stop)
        if not self._patched(work):
            return False
        runs = runs_of_channels(self.layers, self.storages.of, work, 2, held, summed=True)
        return any(run.adds is not None for run in runs)

    def outer(self, first: int, stop: int, held: frozenset[int]) -> bool:
        """Whether a group can compute all patches of a slice before those of the next one, where some storages are
        `held`."""
        work, of = self.work(first, stop), self.storages.of
        if not self._patched(work):
            return False
        with suppress(PlanError):
            check_slices_outer(runs_of_channels(self.layers, of, work, 2, held), self.layers, of, held)
            return True
        return False

    def _patched(self, work: Sequence[int]) -> bool:
        return self.limits.patches and len(work) > 1

    def keepable(self, first: int, stop: int, held: frozenset[int]) -> frozenset[int]:
        """The storages of which a group can keep what its stripes share, where `held` stay in local memory."""
        work = self.work(first, stop)
        return keepable(self.layers, self.storages.of, work, held) if work and self.limits.halos else frozenset()

    def _transposes(self, work: Sequence[int]) -> bool:
        return any(copies_only(self.layers[index]) for index in work)

    def _storages(self, index: int) -> list[Storage]:
        layer = self.layers[index]
        return [self.storages.of[tensor] for tensor in (*layer.inputs, layer.ofm)]

    def _plain(self, group: Group, first: int, stop: int, gone: frozenset[int]) -> Group:
        """The equivalent group without settings that have no effect; storages that are `gone` are not held."""
        held = (group.held & self.live(first, stop)) - gone
        alone = self.alone(group, first, stop)
        copies = alone and group.tiling is None
        if alone:
            held -= self.touched(first, stop)
            stripes = _nearest(self.stripes(first, stop), group.stripes) if copies else 1
            group = replace(group, stripes=stripes, columns=1, slices=1, held=held, kept=frozenset())
        else:
            group = replace(
                group,
                stripes=_nearest(self.stripes(first, stop), group.stripes),
                columns=_nearest(self.columns(first, stop), group.columns),
                slices=_nearest(self.slices(first, stop), group.slices),
                held=held,
            )
        once = copies or (group.stripes == 1 and group.tiling is None and not group.patched)
        kept = frozenset() if once or group.patched else group.kept & self.keepable(first, stop, held)
        summed = group.summed and group.slices > 1 and self.sums(first, stop, held)
        outer = group.slices_outer and not summed and group.slices > 1 and group.stripes * group.columns > 1
        outer = outer and self.outer(first, stop, held)
        group = replace(group, kept=kept, summed=summed, slices_outer=outer)
        overlap = once or (group.overlap and self.limits.overlap)
        resident = once or (group.resident and self.limits.resident)
        alternating = group.alternating and self.limits.resident and not (resident or outer or group.tiling)
        pieces = _nearest(PIECES, group.pieces) if self.limits.overlap and not once else 1
        return replace(group, overlap=overlap, resident=resident, alternating=alternating, pieces=pieces)


_WEIGHTS = ((True, False), (False, False), (False, True))
"""Whether the weights of a group stay, and whether its blocks of weights come in alternating order."""


class SearchSpace:
    """The space of choices for one region.

    Choices with the same effect are equivalent: `canonical` gives one of them.
    """

    def __init__(self, graph: Graph, accelerator: Accelerator) -> None:
        self.graph, self.accelerator, self.limits = graph, accelerator, accelerator.tuning
        self._mapped: dict[tuple[object, ...], GroupSpace] = {}
        self._blocks: dict[Layer, tuple[Blocks | None, ...]] = {}
        self._packable: dict[frozenset[int], list[int]] = {}
        mapping = map_layers(graph, accelerator)
        self.unswapped = (False,) * len(mapping.swapped)
        self.has_borders = bool(mapping.copied)

    @cached_property
    def swappable(self) -> list[int]:
        """The parts of the region whose height and width can be swapped."""
        count = len(self.unswapped)
        return [number for number in range(count) if self.limits.swap and self._can_swap(number, count)]

    def packable(self, stored: frozenset[int] = frozenset()) -> list[int]:
        """The bands of which jobs take many rows as one, where copies of other layers do those that are `stored`."""
        if stored not in self._packable:
            numbers = bands(self.graph.layers) if self.accelerator.packed_rows and self.limits.pack else ()
            every = {number for number in numbers if number is not None}
            together = map_layers(self.graph, self.accelerator, packed=every, stored=stored).rows.layers
            self._packable[stored] = sorted({number for index in together if (number := numbers[index]) is not None})
        return self._packable[stored]

    def groups_of(self, choices: Choices) -> GroupSpace:
        """The choices of groups, for the region as these choices map it."""
        placing = choices.placed, choices.stored, choices.packed, choices.jobs_transpose
        return self._groups_of(choices.swapped, choices.copies_transpose, *placing)

    def _groups_of(
        self,
        swapped: tuple[bool, ...],
        copies_transpose: bool,
        placed: frozenset[int] = frozenset(),
        stored: frozenset[int] = frozenset(),
        packed: frozenset[int] = frozenset(),
        jobs_transpose: bool = False,
    ) -> GroupSpace:
        given = swapped, copies_transpose, placed, stored, packed
        key = *given, jobs_transpose
        if key not in self._mapped:
            mapped = map_graph(self.graph, self.accelerator, *given, jobs_transpose=jobs_transpose)
            self._mapped[key] = GroupSpace(mapped)
        return self._mapped[key]

    def _can_swap(self, number: int, count: int) -> bool:
        try:
            map_layers(self.graph, self.accelerator, [other == number for other in range(count)])
        except PlanError:
            return False
        return True

    # ------------------------------------------------------------ what there is

    def at_least(self) -> int:
        """A cheap lower bound on the number of choices."""
        within = self._groups_of(self.unswapped, True)
        blocks: int = prod(len(self.blocks(layer)) for layer in within.layers)
        longest = min(len(self.graph.layers), self.limits.longest_group)
        groups = 1 << longest - 1 if within.may_group(0, longest) else 1
        return (1 << len(self.swappable) + len(self.packable())) * blocks * groups

    def everything(self) -> Iterator[Choices]:
        """All choices, some of them several times; operations are cut finely where that gains."""
        for values in product((False, True), repeat=len(self.swappable)):
            chosen = dict(zip(self.swappable, values, strict=True))
            swapped = tuple(chosen.get(number, False) for number in range(len(self.unswapped)))
            for copies_transpose in (True, False) if self.has_borders else (True,):
                for packed in map(frozenset, _subsets(self.packable())):
                    within = self._groups_of(swapped, copies_transpose, packed=packed)
                    for blocks in product(*map(self.blocks, within.layers)):
                        for groups in self._sequences(within, 0):
                            one = Choices(swapped, groups, blocks, copies_transpose, packed=packed, fine=True)
                            yield self.canonical(one)
                            if self.turns(one):
                                yield self.canonical(replace(one, jobs_transpose=True))

    def turns(self, choices: Choices) -> bool:
        """Whether jobs can read an input with height and width swapped as it lies in main memory."""
        swaps = any(choices.swapped) and self.accelerator.packed_rows
        return swaps and self.groups_of(replace(choices, jobs_transpose=True)).mapped.turns

    def _sequences(self, within: GroupSpace, first: int) -> Iterator[tuple[Group, ...]]:
        if first == len(within.layers):
            yield ()
        for stop in range(first + 1, len(within.layers) + 1):
            if not within.may_group(first, stop):
                return
            for group in self._groups(within, first, stop):
                for rest in self._sequences(within, stop):
                    yield (group, *rest)

    def _groups(self, within: GroupSpace, first: int, stop: int) -> Iterator[Group]:
        """All forms of a group of the layers `first` to `stop - 1`."""
        count = stop - first
        live = sorted(within.live(first, stop))
        flags = (True, False)
        for held in _subsets(live):
            full = frozenset(held)
            patches = product(within.stripes(first, stop), within.columns(first, stop), within.slices(first, stop))
            sums, outer = within.sums(first, stop, full), within.outer(first, stop, full)
            for (stripes, columns, slices), overlap, weights in product(patches, flags, _WEIGHTS):
                resident, alternating = weights
                group = Group(count, stripes, full, overlap, resident, None, columns, slices, alternating=alternating)
                yield group
                if sums and slices > 1:
                    yield replace(group, summed=True)
                if outer and not alternating and slices > 1 and stripes * columns > 1:
                    yield replace(group, slices_outer=True)
            for halos in _subsets(sorted(within.keepable(first, stop, full))):
                for stripes, overlap, weights in product(within.stripes(first, stop), flags, _WEIGHTS):
                    resident, alternating = weights
                    kept = frozenset(halos)
                    yield Group(count, stripes, full, overlap, resident, kept=kept, alternating=alternating)
            for tiling, overlap, resident in product(within.tilings(first, stop), flags, flags):
                yield Group(count, 1, full, overlap, resident, tiling)

    def blocks(self, layer: Layer) -> tuple[Blocks | None, ...]:
        """The cuts of a layer's weights: the cheapest for each share, and the most channels in full depth."""
        if layer not in self._blocks:
            self._blocks[layer] = tuple(dict.fromkeys(self._cuts(layer))) or (None,)
        return self._blocks[layer]

    def _cuts(self, layer: Layer) -> Iterator[Blocks | None]:
        if not isinstance(layer, Weighted):
            return
        rows, total = self.accelerator.array_rows, layer.in_channels
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
        """The equivalent choices without settings that have no effect, limited to the space."""
        if not (choices.copies_transpose or self.has_borders):
            choices = replace(choices, copies_transpose=True)
        if choices.jobs_transpose and not self.turns(choices):
            choices = replace(choices, jobs_transpose=False)
        within = self.groups_of(choices)
        found: list[Group] = []
        first = 0
        for group in choices.groups:
            for part in _parts(within, group, first):
                stop = first + part.layers
                gone = found[-1].held if found and not self.limits.hold else frozenset[int]()
                found.append(within.plain(part, first, stop, gone))
                first = stop
        return replace(choices, groups=tuple(found))


def _nearest(options: Sequence[int], value: int) -> int:
    return min(options, key=lambda count: abs(count - value))


def _subsets(members: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(members, size) for size in range(len(members) + 1))


def _parts(within: GroupSpace, group: Group, first: int) -> Iterator[Group]:
    """A group, or its split into groups of the most layers allowed."""
    last = first + group.layers
    while first < last:
        stop = max((end for end in range(first + 1, last + 1) if within.may_group(first, end)), default=last)
        yield group if stop - first == group.layers else replace(group, layers=stop - first)
        first = stop
