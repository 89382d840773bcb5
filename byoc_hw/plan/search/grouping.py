"""Dynamic programming: the cheapest split of the layers into groups, and what stays in local memory between them.

After each layer, the cheapest groups so far are kept for each set of storages in local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from typing import Any

from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import copies_only
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.alike import AlikeLayers, GroupForm, Known
from byoc_hw.plan.search.all_held import tight_layers
from byoc_hw.plan.search.estimate import Estimates, EstimatesWithoutSums, HeldSet
from byoc_hw.plan.search.group_forms import LONGEST, GroupForms, GroupSpan, Wanted
from byoc_hw.plan.search.main_memory import MainMemoryUse

_LONGEST_KEEPING = 7
"""The most layers of a group where halos may be kept: such groups compute no more however long they are."""

_KEPT = 12
"""The number of sets of storages that are kept after each layer: the cheapest ones."""

_KEPT_WITHIN = 48
"""The same under a bound on main memory: few of the cheapest sets may go on within it."""


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


_Rank = Callable[[float, float, int], float | None]
"""The rank of groups with a further one, from the rank before, the group's cycles, and its bytes of main memory; None
forbids the group."""

_NOTHING: HeldSet = frozenset()


class Grouping:
    """Groups for the layers of a mapped region. `counted` are the arguments that count as main memory.

    The groups of layers that are alike have one estimate, which may be `known` from another mapping.
    """

    def __init__(self, mapped: MappedGraph, counted: Set[int] = frozenset(), known: Known | None = None) -> None:
        known = known or Known()
        self.mapped, self._accelerator, self._allowed = mapped, mapped.accelerator, mapped.accelerator.tuning
        self.alike, self.estimates = AlikeLayers(mapped, known), mapped.shared(Estimates)
        self.blocks, self.order = self.estimates.blocks, self.estimates.order
        self._all, self._tight = mapped.storages.all, mapped.shared(tight_layers)
        self._forms = GroupForms(mapped, self.estimates, self.alike, known.forms)
        self._main = MainMemoryUse(mapped, self.order, counted)
        self.wanted, self._longest = Wanted(mapped.accelerator.activation_memory), self._most(LONGEST)
        self._found: dict[Hashable, GroupForm | None] = {}
        self._corrected: set[Hashable] = set()
        self._doubt = 1.0

    def _most(self, layers: int) -> int:
        return min(self._allowed.longest_group, layers)

    def _wanting(self, **wanted: Any) -> Grouping:
        """The same with other forms of groups wanted."""
        other = copy(self)
        other.wanted, other._found, other._corrected = replace(self.wanted, **wanted), {}, set()
        return other

    def further(self, *, halos: bool = False, fine: bool = False) -> Grouping:
        """The same, with groups in patches and slices of channels among them, and with blocks of weights of stripes in
        alternating order. With `halos` also groups in stripes that keep the rows that two of them share, with `fine`
        patches in which the array has less to do at a time, or with blocks in alternating order, and slices that are
        summed."""
        allowed = self._allowed
        halos, fine = halos and allowed.halos, fine and allowed.patches
        patches = {"patches": allowed.patches, "fine": fine, "alternating_patches": fine and allowed.resident}
        other = self._wanting(halos=halos, alternating=allowed.resident, **patches)
        other._longest = self._most(_LONGEST_KEEPING if halos else LONGEST)
        return other

    def keeping_halos(self) -> Grouping:
        """The same, with groups in stripes that keep the rows that two of them share, and without any in patches."""
        other = self.further(halos=True)
        other.wanted = replace(other.wanted, patches=False, alternating=False)
        return other

    def longer(self) -> Grouping:
        """The same with groups as long as there may be. What is known of groups is known of both."""
        other = copy(self)
        other._longest = self._allowed.longest_group
        return other

    def priced(self, step_price: float) -> Grouping:
        """The same with so many cycles for each layer in each stripe: its copies and jobs are rows of tables."""
        return self._wanting(step_price=step_price)

    def without_sums(self) -> Grouping:
        """The same with weights in blocks of all input channels, where these fit."""
        other = self._wanting()
        other.estimates = self.mapped.shared(EstimatesWithoutSums)
        other.blocks = other.estimates.blocks
        other._forms = GroupForms(self.mapped, other.estimates, self.alike, {})
        return other

    def best(self, room: float, most: int | None = None) -> Choices | None:
        """The cheapest groups whose storages and tiles fit this part of local memory, if there are any.

        With `most`, of those with at most so many bytes in main memory at any time.
        """

        def within(before: float, cost: float, nbytes: int) -> float | None:
            return before + cost if most is None or nbytes <= most else None

        found = self._search(room, None if most is None else within)
        if found is None:
            return None
        return self.mapped.choices(found.groups() or (Group(len(self.mapped.mapping.layers)),), self.blocks)

    def path(self, doubt: float = 1.0) -> list[Estimated]:
        """The groups of `best` in all of local memory, with their estimates; none where nothing fits. With `doubt`
        those that were corrected are taken for so many times slower: others may take less than is estimated."""
        self._doubt = doubt
        found = self._search(1.0)
        self._doubt = 1.0
        splits = [] if found is None else found.splits()
        return [
            Estimated(split.group, split.key, self._found[split.key][0])  # type: ignore[index]
            for split in splits
            if split.group is not None
        ]

    def correct(self, key: Hashable, cycles: float, group: Group) -> None:
        """Take a group, with these cycles, for the cheapest one that an estimate is for."""
        self._found[key] = cycles, group
        self._corrected.add(key)

    def key_alone(self, at: int) -> Hashable | None:
        """What the estimate is for of a layer by itself, from main memory to main memory. None where that cannot be."""
        span = self._forms.span(at, at + 1, _NOTHING, _NOTHING)
        return None if span.full else span.estimated

    def least(self, room: float) -> int | None:
        """The fewest bytes that groups in this part of local memory have in main memory at their peak."""
        found = self._search(room, lambda before, cost, nbytes: max(before, nbytes))
        return None if found is None else int(found.rank)

    def _search(self, room: float, rank: _Rank | None = None) -> _Split | None:
        """The cheapest groups, or with bytes of main memory those of the lowest `rank`."""
        kept, longest = (_KEPT, self._longest) if rank is None else (_KEPT_WITHIN, self._allowed.longest_group)
        nbytes = int(self._accelerator.activation_memory * room)
        wanted = replace(self.wanted, room=nbytes, single_rows=rank is not None)
        if wanted != self.wanted:
            self.wanted = wanted
            self._found.clear()
        splits: list[dict[HeldSet, _Split]] = [{} for _ in range(len(self.order) + 1)]
        splits[0][_NOTHING] = _Split(0)
        for at in range(len(self.order)):
            for held, split in sorted(splits[at].items(), key=lambda item: item[1].rank)[:kept]:
                for span, cost, group in self._following(at, held, longest):
                    ranked: float | None = split.rank + cost
                    if rank is not None:
                        main = self._main.nbytes(at, span.stop, held, span.after)
                        ranked = None if main is None else rank(split.rank, cost, main)
                    other = splits[span.stop].get(span.after)
                    if ranked is not None and (other is None or ranked < other.rank):
                        splits[span.stop][span.after] = _Split(ranked, group, split, span.estimated)
        return min(splits[-1].values(), key=lambda split: split.rank, default=None)

    def _following(self, at: int, held: HeldSet, longest: int) -> Iterator[tuple[GroupSpan, float, Group]]:
        """The groups that can follow, and their cycles."""
        layers = [self.mapped.mapping.layers[index] for index in self.order[at : at + longest]]
        for stop in range(at + 1, min(at + longest, len(self.order)) + 1):
            if stop > at + 1 and (copies_only(layers[0]) or copies_only(layers[stop - at - 1])):
                return
            if stop > at + 1 and not any(self._tight[at:stop]):
                continue  # where everything can stay in local memory there is nothing to gain
            possible = False
            for after in self._held_after(at, stop, held):
                span = self._forms.span(at, stop, held, after)
                found = self._estimate(span)
                if found is not None:
                    possible = True
                    cost, group = found
                    yield span, cost + self._dropped(held, after, stop), group
            if stop > at + 1 and not possible:
                return

    def _held_after(self, at: int, stop: int, held: HeldSet) -> Iterator[HeldSet]:
        """Sets of storages that may be in local memory after a group."""
        if not self._allowed.hold:
            yield frozenset()
            return
        live = [one for one in sorted(self.estimates.touched(at, stop) | held) if self.estimates.ends[one] >= stop]
        bound = frozenset(one for one in live if self._all[one].joined)
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
        return min(index for index in self._all[storage].readers if index >= self.order[stop])

    def _dropped(self, held: HeldSet, after: HeldSet, stop: int) -> float:
        """Half the cycles to store a held storage that is dropped though later layers need it."""
        gone = [self._all[one] for one in held - after]
        return sum(
            copy_cycles(one.nbytes, 1, self._accelerator) / 2
            for one in gone
            if one.maker is not None and not one.sinks and self.estimates.ends[one.index] >= stop
        )

    def _estimate(self, span: GroupSpan) -> GroupForm | None:
        """The cheapest form of a group and its cycles; None where nothing fits."""
        key = span.estimated
        if key not in self._found:
            self._found[key] = self._forms.cheapest(span, self.wanted, self._in_two)
        found = self._found[key]
        if found is None:
            return None
        cycles, group = found
        cycles *= self._doubt if key in self._corrected else 1.0
        return cycles, group if group.held == span.full else replace(group, held=span.full)

    def _in_two(self, span: GroupSpan) -> float:
        """Cycles of the layers of a group in two groups, between which nothing stays in local memory."""
        least = inf
        for middle in range(span.at + 1, span.stop):
            if span.after <= self.estimates.touched(middle, span.stop):
                one = self._estimate(self._forms.span(span.at, middle, span.held, _NOTHING))
                behind = self._forms.span(middle, span.stop, _NOTHING, span.after)
                other = None if one is None else self._estimate(behind)
                if one is not None and other is not None:
                    least = min(least, one[0] + other[0])
        return least
