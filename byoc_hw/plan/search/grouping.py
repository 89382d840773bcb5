"""Dynamic programming: the cheapest split of the layers into groups, and what stays in local memory between them.

After each layer, the cheapest groups so far are kept for each set of storages in local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, combinations
from math import inf

from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import CopiesOnly, Window, geometry
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Storage, can_tile, needs_all_of
from byoc_hw.plan.array.tiling import Tiler, tile_geometry
from byoc_hw.plan.array.weight_blocks import cut, psum_bytes, tile_cycles
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
from byoc_hw.plan.search.alike import AlikeLayers, Known
from byoc_hw.plan.search.estimate import Estimates, EstimatesWithoutSums, HeldSet
from byoc_hw.plan.search.halo_estimate import KeptHalos
from byoc_hw.plan.search.main_memory import MainMemoryUse
from byoc_hw.plan.search.patch_estimate import PatchedGroup
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.work.halo import keepable

_LONGEST = 4
"""The most layers of a group in the planner; the tuner's limit is in the accelerator's `TuningSpace`."""

_LONGEST_KEEPING = 7
"""The same for groups that keep what their stripes share: they compute no more however long they are."""

_BORDER_STRIPES = (1, 2, 4, 6, 8, 16, 24)
"""Numbers of stripes that are tried for the first and last layer where everything else stays in local memory."""

_FIRST_SHARES = (6, 12)
"""Numbers of blocks that share the weight memory in the first layer."""

_KEPT = 12
"""The number of sets of storages that are kept after each layer: the cheapest ones."""

_KEPT_WITHIN = 48
"""The same under a bound on main memory: few of the cheapest sets may go on within it."""

_FURTHER = 3
"""How many numbers of stripes are tried beyond the smallest that fits."""


_TILE_SHARES = ((2, 2), (1, 2), (1, 1))
"""Tiles, and blocks of weights, that have room at a time: both are copied beside the jobs, weights alone, or none."""

_NEAR = 1.02
"""How near the busier engine's cycles a group in stripes is for which no patches are tried."""

_SLOW = 1.25
"""The same for patches in which the array has less to do at a time, and for slices that are summed, or outer."""


@dataclass(frozen=True)
class _Split:
    """Groups so far, and their rank: the lowest is the best. It is their estimated cycles, or bytes of main memory.

    `key` says what the estimate of the last group is for.
    """

    rank: float
    group: Group | None = None
    before: _Split | None = None
    key: Hashable = None

    def groups(self) -> tuple[Group, ...]:
        """All groups in order."""
        return tuple(split.group for split in self.splits() if split.group is not None)

    def splits(self) -> list[_Split]:
        """One for each group, in order."""
        found: list[_Split] = []
        split: _Split | None = self
        while split is not None and split.group is not None:
            found.append(split)
            split = split.before
        return found[::-1]


@dataclass(frozen=True)
class Estimated:
    """A group, its estimated cycles, and what the estimate is for."""

    group: Group
    key: Hashable
    cycles: float


def _cycles(found: tuple[float, Group]) -> float:
    return found[0]


class Grouping:
    """Groups for the layers of a mapped region. `counted` are the arguments that count as main memory.

    `step_price` are cycles that are added for each layer in each stripe: its copies and jobs are rows of tables.
    The groups of layers that are alike have one estimate, which may be `known` from another mapping.
    """

    def __init__(self, mapped: MappedGraph, counted: Set[int] = frozenset(), known: Known | None = None) -> None:
        accelerator, self.mapped = mapped.accelerator, mapped
        self.mapping, self.accelerator, self.copies_transpose = mapped.mapping, accelerator, mapped.copies_transpose
        self.layers, self.allowed = mapped.mapping.layers, accelerator.tuning
        self.all, self.of = mapped.storages.all, mapped.storages.of
        self.estimates = mapped.shared(Estimates)
        self.blocks = self.estimates.blocks
        self.order = self.estimates.order
        self._put_together = [one for one in self.all if one.parts]
        alive = self._alive()
        self.tight = [alive[index] > accelerator.activation_memory for index in self.order]
        self.room = accelerator.activation_memory
        self.groups: dict[Hashable, tuple[float, Group] | None] = {}
        self._corrected: set[Hashable] = set()
        self._doubt = 1.0
        known = known or Known()
        self.alike, self._forms = AlikeLayers(mapped, known), known.forms
        self._in_turns: dict[tuple[int, int, HeldSet, HeldSet, HeldSet], list[PatchedGroup]] = {}
        self._kept: dict[tuple[int, int, HeldSet, HeldSet, HeldSet], KeptHalos | None] = {}
        self._used: dict[tuple[int, int], tuple[HeldSet, HeldSet]] = {}
        self._keys: dict[tuple[int, int, HeldSet, HeldSet], tuple[Hashable, HeldSet]] = {}
        self.step_price, self.patches, self.halos, self.alternating, self.fine = 0.0, False, False, False, False
        self._longest = min(self.allowed.longest_group, _LONGEST)
        self.known = (self.room, self.step_price, False)
        self.main = MainMemoryUse(mapped, self.order, counted)

    def further(self, *, halos: bool = False, fine: bool = False) -> Grouping:
        """The same, with groups in patches and slices of channels among them, and with blocks of weights of stripes in
        alternating order. With `halos` also groups in stripes that keep the rows that two of them share, with `fine`
        patches in which the array has less to do at a time, or with blocks in alternating order, and slices that are
        summed."""
        other = copy(self)
        other.alternating, other.fine = self.allowed.resident, fine and self.allowed.patches
        other.patches, other.halos = self.allowed.patches, halos and self.allowed.halos
        other._longest = min(self.allowed.longest_group, _LONGEST_KEEPING if other.halos else _LONGEST)
        other.groups, other._corrected = {}, set()
        return other

    def keeping_halos(self) -> Grouping:
        """The same, with groups in stripes that keep the rows that two of them share, and without any in patches."""
        other = self.further(halos=True)
        other.patches = other.alternating = False
        return other

    def longer(self) -> Grouping:
        """The same with groups as long as there may be. What is known of groups is known of both."""
        other = copy(self)
        other._longest = self.allowed.longest_group
        return other

    def without_sums(self) -> Grouping:
        """The same with weights in blocks of all input channels, where these fit."""
        other = copy(self)
        other.estimates = self.mapped.shared(EstimatesWithoutSums)
        other.blocks = other.estimates.blocks
        other.groups, other._forms, other._in_turns, other._kept, other._corrected = {}, {}, {}, {}, set()
        return other

    # ------------------------------------------------------------ everything stays

    def fits_whole(self) -> bool:
        """Whether all storages fit local memory, each from its first layer to its last."""
        if not self.allowed.hold or any(map(self._copies_only, self.order)):
            return False
        return max(self._alive(), default=0) <= self.accelerator.activation_memory

    def _copies_only(self, index: int) -> bool:
        """Whether a layer has copies but no jobs: it has a group of its own, from main memory to main memory."""
        return isinstance(geometry(self.layers[index]), CopiesOnly)

    def _alive(self) -> list[int]:
        """Bytes of storages and partial sums that are live in each layer if all storages are held in full."""
        changes = [0] * (len(self.layers) + 1)
        for storage in self.all:
            first, last = self._span(storage)
            changes[first] += self.estimates.size[storage.index]
            changes[last + 1] -= self.estimates.size[storage.index]
        outputs = (self.mapping.outputs(index, extents(layer.ofm)[0]) for index, layer in enumerate(self.layers))
        return [
            alive + psum_bytes(layer, blocks, height * width, self.accelerator)
            for alive, layer, blocks, (height, width, _) in zip(
                accumulate(changes), self.layers, self.blocks, outputs, strict=False
            )
        ]

    def _span(self, storage: Storage) -> tuple[int, int]:
        first = storage.makers[0] if storage.makers else min(storage.readers, default=0)
        return first, max(storage.last, first)

    def resident(self) -> Iterator[Choices]:
        """All storages held in full, and a few numbers of stripes for the first layer (loads) and last (stores)."""
        starts: dict[int, list[int]] = {}
        for storage in self.all:
            starts.setdefault(self._span(storage)[0], []).append(storage.index)
        groups = []
        held: set[int] = set()
        for index in range(len(self.layers)):
            held |= set(starts.get(index, ()))
            held = {one for one in held if self._span(self.all[one])[1] >= index}
            groups.append(Group(1, 1, frozenset(held), self.allowed.overlap, self.allowed.resident))
        border = [index for index in self.order if self._at_border(index)]
        for blocks in self._first_blocks():
            for stripes in self._border_stripes(border):
                striped = [replace(group, stripes=stripes) if i in border else group for i, group in enumerate(groups)]
                yield self.choices(tuple(striped), blocks)

    def _border_stripes(self, border: Sequence[int]) -> Iterable[int]:
        """Numbers of stripes that cut the layers at the border differently."""
        heights = [extents(self.layers[index].ofm)[0] for index in border]
        found: dict[tuple[int, ...], int] = {}
        for count in _BORDER_STRIPES if border else (1,):
            if count in self.allowed.stripes:
                found.setdefault(tuple(ceil_div(height, count) for height in heights), count)
        return found.values()

    def _first_blocks(self) -> Iterator[tuple[Blocks | None, ...]]:
        """The blocks, also with smaller ones for a first layer with large weights: no job hides its first load."""
        yield self.blocks
        index = next((index for index in self.order if self.estimates.load[index]), None)
        if index is not None and self.estimates.load[index] > 8 * self.accelerator.dma_setup:
            for share in [share for share in _FIRST_SHARES if share in self.allowed.weight_shares]:
                smaller = cut(self.layers[index], self.accelerator, share)
                yield (*self.blocks[:index], smaller, *self.blocks[index + 1 :])

    def _at_border(self, index: int) -> bool:
        layer = self.layers[index]
        touched = [self.of[tensor] for tensor in (*layer.inputs, layer.ofm)]
        return (
            any(
                (one.maker is None or (one.sinks and one.maker == index))
                and one.nbytes > 8 * self.accelerator.dma_width
                for one in touched
            )
            and extents(layer.ofm)[0] > 1
        )

    # ------------------------------------------------------------ groups one after the other

    def best(self, room: float, most: int | None = None) -> Choices | None:
        """The cheapest groups whose storages and tiles fit this part of local memory, if there are any.

        With `most`, of those with at most so many bytes in main memory at any time.
        """
        if most is None:
            return self._choices_of(self._search(room, _KEPT, lambda before, cost, nbytes: before + cost))
        longest = self.allowed.longest_group

        def within(before: float, cost: float, nbytes: int) -> float | None:
            return before + cost if nbytes <= most else None

        return self._choices_of(self._search(room, _KEPT_WITHIN, within, longest))

    def path(self, doubt: float = 1.0) -> list[Estimated]:
        """The groups of `best` in all of local memory, with their estimates; none where nothing fits. With `doubt`
        those that were corrected are taken for so many times slower: others may take less than is estimated."""
        self._doubt = doubt
        found = self._search(1.0, _KEPT, lambda before, cost, nbytes: before + cost)
        self._doubt = 1.0
        splits = [] if found is None else found.splits()
        return [
            Estimated(split.group, split.key, self.groups[split.key][0])  # type: ignore[index]
            for split in splits
            if split.group is not None
        ]

    def correct(self, key: Hashable, cycles: float, group: Group) -> None:
        """Take a group, with these cycles, for the cheapest one that an estimate is for."""
        self.groups[key] = cycles, group
        self._corrected.add(key)

    def key_alone(self, at: int) -> Hashable | None:
        """What the estimate is for of a layer by itself, from main memory to main memory. None where that cannot be."""
        nothing: HeldSet = frozenset()
        key, full = self._key(at, at + 1, nothing, nothing)
        return None if full else key

    def least(self, room: float) -> int | None:
        """The fewest bytes that groups in this part of local memory have in main memory at their peak."""

        def peak(before: float, cost: float, nbytes: int) -> float:
            return max(before, nbytes)

        found = self._search(room, _KEPT_WITHIN, peak, self.allowed.longest_group)
        return None if found is None else int(found.rank)

    def _choices_of(self, split: _Split | None) -> Choices | None:
        if split is None:
            return None
        return self.choices(split.groups() or (Group(len(self.layers)),), self.blocks)

    def choices(self, groups: tuple[Group, ...], blocks: tuple[Blocks | None, ...]) -> Choices:
        """Groups and blocks as choices of the mapped region."""
        return Choices(
            self.mapping.swapped,
            groups,
            blocks,
            self.copies_transpose,
            self.mapping.placed,
            self.mapping.stored,
            self.mapping.packed,
            jobs_transpose=self.mapping.jobs_transpose,
        )

    def _search(
        self, room: float, kept: int, rank: Callable[[float, float, int], float | None], longest: int = 0
    ) -> _Split | None:
        """The groups of the lowest rank: `rank` gives it with a further group, from the rank before, the group's
        cycles, and its bytes of main memory; None forbids the group. These are counted with `longest` alone."""
        nbytes = int(self.accelerator.activation_memory * room)
        counts = longest > 0
        if (nbytes, self.step_price, counts) != self.known:
            self.room, self.known = nbytes, (nbytes, self.step_price, counts)
            self.groups.clear()
        longest = longest or self._longest
        splits: list[dict[HeldSet, _Split]] = [{} for _ in range(len(self.order) + 1)]
        splits[0][frozenset()] = _Split(0)
        for at in range(len(self.order)):
            for held, split in sorted(splits[at].items(), key=lambda item: item[1].rank)[:kept]:
                for stop, after, cost, group in self._following(at, held, longest):
                    main = self.main.nbytes(at, stop, held, after) if counts else 0
                    ranked = None if main is None else rank(split.rank, cost, main)
                    other = splits[stop].get(after)
                    if ranked is not None and (other is None or ranked < other.rank):
                        splits[stop][after] = _Split(ranked, group, split, self._key(at, stop, held, after)[0])
        return min(splits[-1].values(), key=lambda split: split.rank, default=None)

    def _following(self, at: int, held: HeldSet, longest: int) -> Iterator[tuple[int, HeldSet, float, Group]]:
        """The groups that can follow: their end, the storages held then, their cycles."""
        for stop in range(at + 1, min(at + longest, len(self.order)) + 1):
            indices = self.order[at:stop]
            if stop > at + 1 and (self._copies_only(indices[0]) or self._copies_only(indices[-1])):
                return
            if stop > at + 1 and not any(self.tight[at:stop]):
                continue  # where everything can stay in local memory there is nothing to gain
            possible = False
            for after in self._held_after(at, stop, held):
                found = self._estimate(at, stop, held, after)
                if found is not None:
                    possible = True
                    cost, group = found
                    yield stop, after, cost + self._dropped(held, after, stop), group
            if stop > at + 1 and not possible:
                return

    def _held_after(self, at: int, stop: int, held: HeldSet) -> Iterator[HeldSet]:
        """Sets of storages that may be in local memory after a group."""
        if not self.allowed.hold:
            yield frozenset()
            return
        live = [one for one in sorted(self.estimates.touched(at, stop) | held) if self.estimates.ends[one] >= stop]
        bound = frozenset(one for one in live if self.all[one].joined)
        if bound:
            yield from (held | bound for held in self._sets([one for one in live if one not in bound], stop))
            return
        yield from self._sets(live, stop)

    def _sets(self, live: Sequence[int], stop: int) -> Iterator[HeldSet]:
        if len(live) > 3:  # the storages that are needed soonest, in growing sets
            soonest = sorted(live, key=lambda one: self._next(one, stop))
            yield from (frozenset(soonest[:count]) for count in range(len(soonest) + 1))
            return
        for count in range(len(live), -1, -1):
            yield from map(frozenset, combinations(live, count))

    def _next(self, storage: int, stop: int) -> int:
        return min(index for index in self.all[storage].readers if index >= self.order[stop])

    def _dropped(self, held: HeldSet, after: HeldSet, stop: int) -> float:
        """Half the cycles to store a held storage that is dropped though later layers need it."""
        gone = [self.all[one] for one in held - after]
        return sum(
            copy_cycles(one.nbytes, 1, self.accelerator) / 2
            for one in gone
            if one.maker is not None and not one.sinks and self.estimates.ends[one.index] >= stop
        )

    # ------------------------------------------------------------ one group

    def _estimate(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> tuple[float, Group] | None:
        """The cheapest form of a group and its cycles; None where nothing fits."""
        key, full = self._key(at, stop, held, after)
        if key not in self.groups:
            self.groups[key] = self._form(at, stop, held, after, full, self.halos, self.fine)
        found = self.groups[key]
        if found is None:
            return None
        cycles, group = found
        cycles *= self._doubt if key in self._corrected else 1.0
        return cycles, group if group.held == full else replace(group, held=full)

    def _form(
        self, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet, halos: bool, fine: bool
    ) -> tuple[float, Group] | None:
        """The cheapest form of a group, which all groups of layers that are alike have."""
        first, end = self._layers_of(at, stop)
        alike = self.alike.span(first, end)
        passing = self.estimates.bytes_of(full - self.estimates.touched(at, stop))
        kinds = self.patches, self.alternating, self.fine, halos, fine, any(self.tight[at:stop])
        key = alike.number, *map(alike.plain, (held, after, full)), passing, self.known, kinds
        if key not in self._forms:
            span = at, stop, held, after
            found = self._beyond(halos, fine, *span, full) if halos or fine else self._cheapest(*span, full)
            self._forms[key] = None if found is None else (found[0], alike.plain_group(found[1]))
        form = self._forms[key]
        if form is None:
            return None
        cycles, group = form
        return cycles, replace(group, layers=end - first, held=full, kept=alike.named(group.kept))

    def _layers_of(self, at: int, stop: int) -> tuple[int, int]:
        """The first layer of a group, and the first behind it, with those that have no work."""
        return self.order[at] if at else 0, self.order[stop] if stop < len(self.order) else len(self.layers)

    def _full(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> HeldSet:
        """The storages that are in local memory in full during a group."""
        if (at, stop) not in self._used:
            layers = [self.layers[index] for index in self.order[at:stop]]
            read = frozenset(self.of[tensor].index for layer in layers for tensor in layer.inputs)
            touched = self.estimates.touched(at, stop)
            always = frozenset(one for one in touched if self.all[one].joined or self.all[one].interleaved)
            self._used[at, stop] = read, always
        read, always = self._used[at, stop]
        return (held & read) | after | always

    def _key(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> tuple[Hashable, HeldSet]:
        """What the cycles of a group depend on, and what is in local memory in full during it."""
        span = at, stop, held, after
        if span not in self._keys:
            full, touched = self._full(*span), self.estimates.touched(at, stop)
            passing = self.estimates.bytes_of(full - touched)
            self._keys[span] = (at, stop, full & touched, held & touched, after & touched, passing), full
        return self._keys[span]

    def _cheapest(self, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet) -> tuple[float, Group] | None:
        """The cheapest form of a group that keeps no halos, and is in no fine patches."""
        indices = self.order[at:stop]
        touched = self.estimates.touched(at, stop)
        if any(needs_all_of(one, indices) for one in self._put_together if one.index in touched):
            return None
        count = self._count(at, stop)
        if self._copies_only(indices[0]):
            return self._transposed(at, count, full)
        best = self._in_stripes(at, stop, held, after, full, count)
        if best is None and len(indices) == 1 and not full & touched:
            return self._tiled(indices[0], count, full)
        if self.patches and len(indices) > 1 and any(self.tight[at:stop]):
            for patched in self._patched(at, stop, held, after, full):
                near = _SLOW if patched.outer else _NEAR
                if not patched.summed and (best is None or best[0] > near * patched.least):
                    best = self._patches_of(patched, False, at, stop, full, count, best)
        return best

    def _beyond(
        self, halos: bool, fine: bool, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet
    ) -> tuple[float, Group] | None:
        """As `_cheapest`, with groups that keep `halos`, or in `fine` patches and slices that are summed."""
        best = None
        if stop - at <= _LONGEST:
            best = self._form(at, stop, held, after, full, halos=False, fine=False)
        indices, touched = self.order[at:stop], self.estimates.touched(at, stop)
        if len(indices) == 1 or not any(self.tight[at:stop]) or self._copies_only(indices[0]):
            return best
        if any(needs_all_of(one, indices) for one in self._put_together if one.index in touched):
            return None
        count = self._count(at, stop)
        if halos:
            once = self._with_halos(at, stop, held, after, full, count, best, self._in_two(at, stop, held, after))
            best = min(filter(None, (best, once)), key=_cycles, default=None)
        if fine:
            for patched in self._patched(at, stop, held, after, full):
                if best is None or best[0] > _SLOW * patched.least:
                    best = self._patches_of(patched, not patched.summed, at, stop, full, count, best)
        return best

    def _in_two(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> float:
        """Cycles of the layers of a group in two groups, between which nothing stays in local memory."""
        least, nothing = inf, frozenset[int]()
        for middle in range(at + 1, stop):
            if after <= self.estimates.touched(middle, stop):
                one = self._estimate(at, middle, held, nothing)
                other = None if one is None else self._estimate(middle, stop, nothing, after)
                if one is not None and other is not None:
                    least = min(least, one[0] + other[0])
        return least

    def _turns(self, at: int, stop: int) -> bool:
        """Whether blocks of weights of a group can come in alternating order, which saves loads."""
        return self.alternating and self.estimates.alternates(at, stop)

    @staticmethod
    def _in_better_order(cycles: Callable[[bool], float | None], turns: bool) -> tuple[float, bool] | None:
        """The fewest cycles, with blocks of weights in alternating order or not, and whether they are; None where
        nothing fits. Where that saves nothing, more of them can come ahead in the same order."""
        plain, turned = cycles(False), cycles(True) if turns else None
        if plain is None or turned is None or plain <= turned:
            return None if plain is None else (plain, False)
        return turned, True

    def _count(self, at: int, stop: int) -> int:
        """The layers of a group, with those that have no work."""
        first, end = self._layers_of(at, stop)
        return end - first

    def _in_stripes(
        self,
        at: int,
        stop: int,
        held: HeldSet,
        after: HeldSet,
        full: HeldSet,
        count: int,
    ) -> tuple[float, Group] | None:
        """The cheapest stripes of a group of `count` layers; None where nothing fits."""
        indices = self.order[at:stop]
        best: tuple[float, Group] | None = None
        fitting = before = 0
        height = extents(self.layers[indices[-1]].ofm)[0]
        most = self.estimates.largest_tiles(at, stop, full)
        for stripes in sorted(self.allowed.stripes):
            # Under a bound on main memory also stripes of single rows: one number beyond the height.
            if (before if self.known[2] else stripes - 1) >= height or fitting > _FURTHER:
                break
            before = stripes
            if most > stripes * self.room:
                continue
            actual = ceil_div(height, ceil_div(height, stripes))
            turns = stripes > 1 and self._turns(at, stop)
            if best is not None and self.estimates.weights(at, stop, actual, turns) >= best[0]:
                break  # more stripes load the weights more often
            for overlap in (True, False) if stripes > 1 and self.allowed.overlap else (False,):
                form = at, stop, held, after, full, stripes, overlap, self.room
                found = self._in_better_order(partial(self.estimates.striped, *form), turns)
                if found is None:
                    continue
                cost, alternating = found[0] + self.step_price * stripes * len(indices), found[1]
                fitting += 1
                resident = stripes > 1 and self.allowed.resident and self.estimates.weights_stay(at, stop)
                if best is None or cost < best[0]:
                    best = cost, Group(count, stripes, full, overlap, resident, alternating=alternating)
                break
        return best

    def _with_halos(
        self,
        at: int,
        stop: int,
        held: HeldSet,
        after: HeldSet,
        full: HeldSet,
        count: int,
        known: tuple[float, Group] | None,
        apart: float,
    ) -> tuple[float, Group] | None:
        """The cheapest stripes of a group of `count` layers that keep what two of them share; None where none fit, or
        where those that are `known` are near all that the array has to do."""
        kept = self._keeping(at, stop, held, after, full)
        if kept is None or (known is not None and known[0] <= _NEAR * kept.least):
            return None
        room = self.room - self.estimates.bytes_of(full)
        most = self.estimates.largest_tiles(at, stop, full)
        resident = self.allowed.resident and self.estimates.weights_stay(at, stop)
        height = extents(self.layers[self.order[stop - 1]].ofm)[0]
        best: tuple[float, Group] | None = None
        turns, fitting, least = self._turns(at, stop), 0, min(apart, inf if known is None else known[0])
        for stripes in sorted({ceil_div(height, ceil_div(height, one)) for one in self.allowed.stripes} - {1}):
            if most > stripes * room:
                continue
            if fitting > _FURTHER or self.estimates.weights(at, stop, stripes, turns) >= least:
                break  # more stripes load the weights more often
            if fitting and kept.jobs(stripes) >= least:
                fitting += 1
                continue
            found = self._in_better_order(partial(kept.cycles, stripes, room), turns)
            if found is None:
                continue
            cost, alternating = found[0] + self.step_price * stripes * (stop - at), found[1]
            fitting += 1
            if best is None or cost < best[0]:
                form = Group(count, stripes, full, overlap=False, resident=resident, kept=kept.halos)
                best = cost, replace(form, alternating=alternating)
                least = min(least, cost)
        return best

    def _keeping(self, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet) -> KeptHalos | None:
        """The estimates for a group that keeps what stripes share; None where it has nothing that could be kept."""
        touched = self.estimates.touched(at, stop)
        key = at, stop, held & touched, after & touched, full & touched
        if key not in self._kept:
            halos = keepable(self.layers, self.of, self.order[at:stop], full)
            self._kept[key] = KeptHalos(self.estimates, *key, halos) if halos else None
        return self._kept[key]

    def _patches_of(
        self,
        patched: PatchedGroup,
        fine: bool,
        at: int,
        stop: int,
        full: HeldSet,
        count: int,
        best: tuple[float, Group] | None,
    ) -> tuple[float, Group] | None:
        """The cheapest patches and slices of a group, or the `best` form that is known; None where nothing fits."""
        kept = self.estimates.bytes_of(full - self.estimates.touched(at, stop))
        height = extents(self.layers[self.order[stop - 1]].ofm)[0]
        counts = {1} if patched.packs else self.allowed.stripes
        options = sorted({ceil_div(height, ceil_div(height, one)) for one in counts})
        for columns, slices in patched.forms(fine):
            fitting, alternating = 0, self.alternating and self.fine
            for stripes in options[patched.first_fitting(options, columns, slices, self.room - kept) :]:
                if fitting > _FURTHER:
                    break
                for overlap in (True, False) if self.allowed.overlap else (False,):
                    least = inf if best is None else best[0]
                    form = stripes, columns, slices, overlap, self.room - kept
                    cycles = patched.cycles(*form, least, alternating=alternating)
                    if cycles is None:
                        continue
                    cost = cycles + self.step_price * stripes * columns * slices * (stop - at)
                    fitting += 1
                    if best is None or cost < best[0]:
                        resident = self.allowed.resident and (patched.outer or self.estimates.weights_stay(at, stop))
                        group = Group(count, stripes, full, overlap, resident, columns=columns, slices=slices)
                        group = replace(group, summed=patched.summed and slices > 1, slices_outer=patched.outer)
                        saves = alternating and (patched.cycles(*form) or inf) > cycles
                        best = cost, replace(group, alternating=saves)
                    break
        return best

    def _patched(self, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet) -> list[PatchedGroup]:
        """The estimates for patches of a group, for those whose slices are summed, and for those in outer slices; none
        where it cannot be computed so."""
        touched = self.estimates.touched(at, stop)
        key = at, stop, held & touched, after & touched, full & touched
        if key not in self._in_turns:
            kinds = (False, False), (True, False), (False, True)
            found = (PatchedGroup(self.estimates, *key, summed, outer) for summed, outer in kinds)
            self._in_turns[key] = [patched for patched in found if patched.possible()]
        return self._in_turns[key]

    def _transposed(self, at: int, count: int, full: HeldSet) -> tuple[float, Group] | None:
        layer = self.layers[self.order[at]]
        if full & self.estimates.touched(at, at + 1):
            return None
        return copy_cycles(layer.ifm.nbytes, 1, self.accelerator) + layer.ofm.nbytes, Group(count, held=full)

    def _tiled(self, index: int, count: int, full: HeldSet) -> tuple[float, Group] | None:
        """The cheapest tiles of a layer by itself; None where nothing fits, or where it has none."""
        layer = self.layers[index]
        if not can_tile(layer, self.of):
            return None
        room = max(self.room - self.estimates.bytes_of(full), 1)
        best: tuple[float, Group] | None = None
        for share in _TILE_SHARES if self.allowed.overlap else _TILE_SHARES[1:]:
            for tiling in tilings(layer, replace(self.accelerator, activation_memory=room), (share,), even=False):
                overlap = share == _TILE_SHARES[0]
                cost = self._tile_costs(index, tiling, share)
                if best is None or cost < best[0]:
                    best = cost, Group(count, held=full, overlap=overlap, resident=False, tiling=tiling)
        return best

    def _tile_costs(self, index: int, tiling: Tiling, share: tuple[int, int]) -> float:
        """Cycles of a layer in tiles, where local memory has room for so many tiles and blocks of weights."""
        layer, form = self.layers[index], tile_geometry(self.layers[index])
        if isinstance(form, Window):
            return Tiler(layer, form, self.accelerator).cycles(tiling, *share)
        extent = extents(layer.ofm)
        jobs = tile_cycles(layer, None, extent, self.accelerator)
        copied = sum(copy_cycles(tensor.nbytes, extent[0], self.accelerator) for tensor in (*layer.inputs, layer.ofm))
        return (1.5 if share == _TILE_SHARES[0] else 2.0) * (jobs + copied)
