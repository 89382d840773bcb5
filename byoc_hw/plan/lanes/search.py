"""The search for parts: which accelerator runs which layers, which layers are cut over several, in how many stripes.

A beam goes through the layers, one by one. Each state has parts for the layers so far and the times of the engines
after them; of states at the same layer the most promising are kept. The best of the plans that it finds is improved
step by step: other accelerators and cuts for a layer, other stripes, layers in one part with the next. What is compared
are the cycles of all parts together, and what a `Price` adds to them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, groupby, pairwise, product, starmap, zip_longest
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Reshape
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.mapping import worth_swapping
from byoc_hw.plan.bound.ways import least_alone, weight_bytes
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.cut import PartCut, Region
from byoc_hw.plan.lanes.every import EveryPlan, FormOfLayers, few
from byoc_hw.plan.lanes.finer_parts import parts_cut_finely
from byoc_hw.plan.lanes.handover import arranged, as_handed_over
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, ordered_parts
from byoc_hw.plan.lanes.kept_shares import with_kept_shares
from byoc_hw.plan.lanes.lane_places import best_placed
from byoc_hw.plan.lanes.layouts import layouts
from byoc_hw.plan.lanes.oriented import Oriented, OrientedPart, part_structure
from byoc_hw.plan.lanes.part_order import parts_in_better_order
from byoc_hw.plan.lanes.price import Price
from byoc_hw.plan.lanes.profile import Engines, Option, Profile, profile_of
from byoc_hw.plan.lanes.sharing import Sharing
from byoc_hw.plan.lanes.together import Together
from byoc_hw.plan.search.planner import packings
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.tune.own_plan import own_layout
from byoc_hw.soc import Soc

_BEAM = 6
_LONGEST = 3
_LONGEST_OF_FEW = 6
"""The most layers of a part that is tried at first; in regions of up to `_FEW` layers it may be longer."""

_FEW = 8

_JOINED = 8
"""The most layers of a part that two are joined to."""

_SMALL = 16
"""The most layers of a region whose beam has parts of several layers, too. In larger ones the improvement joins
them."""

_PACKED_FIRST = 12
"""The most layers of a region whose rows are packed from the start. In larger ones the best plan without gets them: the
search ends before it has tried as much with them."""

_KEPT = 4
_FIRST = 4
_FIRST_OF_MANY = 3
"""The layouts of a part that are tried everywhere, in small regions and in larger ones, whose many parts take long to
lay out: the others are tried for parts of the best plan so far."""

_LAID_OUT = 1_000
"""No further layout of a part is tried when those so far have so many copies and jobs."""

_SLOW = 3
"""Layers are not as a whole where they take more than so many times the cycles of the fastest accelerator, unless they
fit nowhere else."""

_NEAR = 3
"""The forms before and behind a change with which it is tried first."""

_WORK = 90_000
_EACH = 500
_MORE = 40_000
_STARTS = 70_000
"""The most copies and jobs that the improvement schedules, over all that it tries; more for each layer, and more for
small regions, which have more starts. So many as in the second step are those of other orders of the parts."""

_TRIES = 600
"""At least so many plans of a small region are scheduled, those with many copies and jobs, too."""

_FINISHED = 400
"""The copies and jobs, about, of the plans that get addresses, for all prices: the best, and those that cost little
more."""

_FINISHED_WITHIN = 1.2
"""What such a plan costs at most, of the best one."""

INFINITE = float("inf")

_Style = tuple[tuple[int, ...], int]
"""The accelerators that share layers, and the dimension that is cut; 0 for layers that are whole."""


_Changes = Callable[["_Search", Sequence[FormOfLayers], int], Iterator[tuple[Sequence[FormOfLayers], "_Near"]]]


@dataclass(frozen=True, eq=False)
class _State:
    """Parts so far: the engines after them, what they cost beside cycles, and two estimates of the whole cost."""

    engines: Engines
    parts: tuple[Option, ...]
    spent: float
    shared: float
    chained: float


@dataclass(frozen=True)
class _Near:
    """So many forms of a plan with those before and behind them: what all of these cost, and without the forms
    themselves the loads of the arrays and of the DMAs, and what is spent beside cycles."""

    count: int
    before: Sequence[FormOfLayers]
    behind: Sequence[FormOfLayers]
    loads: Sequence[int]
    copies: Sequence[int]
    spent: float
    cost: float


@dataclass(frozen=True)
class Several:
    """So many searches on one chip that share the time of one, and the layouts that they know, by accelerator: `kinds`
    has those that differ in more than their names."""

    count: int = 1
    profiles: dict[object, tuple[list[Profile], Iterator[Profile]]] = field(default_factory=dict)
    kinds: list[Accelerator] = field(default_factory=list)

    def kind(self, accelerator: Accelerator) -> int:
        """The number of an accelerator among those that differ."""
        one = replace(accelerator, name="any", label="any")
        if one not in self.kinds:
            self.kinds.append(one)
        return self.kinds.index(one)


def best_parts(
    region: Region,
    chip: Soc,
    costs: Sequence[Mapping[int, int]],
    prices: Sequence[Price],
    several: Several | None = None,
) -> list[OrderedParts]:
    """The parts of the best plan that was found for each price, in a possible order. `costs` has each layer's
    accelerators, by index, and its cycles on each. The search is one of `several`."""
    whole = any(one.library for one in chip.accelerators)  # libraries take tensors as the model has them
    for swap in (False,) if whole else (True, False):
        ways = (False, True) if chip.shared else (False,)
        searches = [_Search(region, chip, costs, swap, in_place, several) for in_place in ways]
        most = _FINISHED // len(prices)
        found = [_best([plan for one in searches if (plan := one.best(price, most))]) for price in prices]
        if any(found):
            return [plan.ordered for plan in found if plan is not None]
    if all(one.library for one in chip.accelerators):  # nothing else can stop them
        rule = "an output that is a reshape of an input, or of what others read, is copied by a DMA"
        raise PlanError(f"{region.graph.name}: {rule}: libraries alone have none")
    names = ", ".join(one.name for one in chip.accelerators)
    raise PlanError(f"{region.graph.name}: each layer has a plan on one of {names}: one has none")


def parts_on(
    region: Region,
    chip: Soc,
    lanes: Sequence[int],
    costs: Sequence[Mapping[int, int]],
    prices: Sequence[Price],
    several: Several | None = None,
) -> list[OrderedParts]:
    """As `best_parts`, on some accelerators as if the chip had no other; none where a layer has no plan there."""
    mine = [{at: cost[lane] for at, lane in enumerate(lanes) if lane in cost} for cost in costs]
    with suppress(PlanError):
        found = best_parts(region, chip.only(lanes), mine, prices, several)
        moved = ([[part.on(lanes[part.lane]) for part in some] for some in (one.parts, one.uncut)] for one in found)
        return [replace(ordered_parts(parts, chip), uncut=uncut) for parts, uncut in moved]
    return []


def part_of_all(region: Region, lane: int, layout: Layout) -> PlacedPart:
    """All layers of a region as one part, as they are laid out for an accelerator."""
    every = tuple(range(len(region.graph.layers)))
    ends = tuple((tensor, 0) for tensor in region.arguments)
    return PlacedPart(OrientedPart(PartCut(lane, every), layout.mapped, ends, (None,) * len(every)), layout)


@dataclass(frozen=True)
class _Found:
    """Parts that are laid out, and what they cost together."""

    ordered: OrderedParts
    cost: float


def _best(plans: Sequence[_Found]) -> _Found | None:
    return min(plans, key=lambda one: one.cost, default=None)


@dataclass
class _Known:
    """A part, and its layouts that were asked for: by form, without packed rows and with them, and as they were asked
    for, so many of each form."""

    part: OrientedPart | None
    options: tuple[list[Option], list[Option]] = field(default_factory=lambda: ([], []))
    asked: dict[tuple[int | None, bool], list[Option]] = field(default_factory=dict)

    @cached_property
    def packed(self) -> list[MappedGraph]:
        """The part with packed rows, where these are worth it."""
        return [] if self.part is None else list(packings(self.part.mapped))[:-1]


class _Search:
    """With `in_place` it is as if parts handed over all that they can in local memory that accelerators share."""

    def __init__(
        self,
        region: Region,
        chip: Soc,
        costs: Sequence[Mapping[int, int]],
        swap: bool = True,
        in_place: bool = False,
        several: Several | None = None,
    ) -> None:
        graph, several = region.graph, several or Several()
        self._share = several.count
        self._graph, self._chip, self._region, self._cost, self._in_place = graph, chip, region, costs, in_place
        fastest = [min(cost, key=cost.__getitem__) for cost in costs]
        accelerators = [chip.accelerators[lane] for lane in fastest]
        swapped = worth_swapping(graph, accelerators)
        self._oriented = Oriented(region, chip, [swap and one for one in swapped], swap)
        self._sharing = Sharing(graph, chip, self._oriented, costs)
        rate = [sum(1 / max(cycles, 1) for cycles in cost.values()) for cost in self._cost]
        self._rest = [0.0] * (len(graph.layers) + 1)  # cycles of all lanes together for the layers from here on
        for index in reversed(range(len(graph.layers))):
            self._rest[index] = self._rest[index + 1] + (1 / rate[index] if max(self._cost[index].values()) else 0)
        self._kinds = list(map(several.kind, chip.accelerators))
        self.borders = [0, *(stop for stop in range(1, len(graph.layers) + 1) if self.may_stop(stop))]
        self._alone = {((lane,), 0) for lane in range(len(chip.accelerators))}
        self._small = len(graph.layers) <= _SMALL
        self._longest = _LONGEST_OF_FEW if len(graph.layers) <= _FEW else _LONGEST
        self._first = _FIRST if self._small else _FIRST_OF_MANY
        often = 2 if self._small else 1
        self._often, self._seldom = _KINDS[:often], _KINDS[often:]
        self._together = Together()
        self.price = Price()
        self._known: dict[PartCut, _Known] = {}
        self._packs = False
        self._tried: dict[float, list[FormOfLayers]] = {}  # plans on the way, by what they cost
        self._profiles = several.profiles

    def best(self, price: Price, most: int) -> _Found | None:
        """The parts of the best plan that was found: one of a few that were improved step by step, or all layers as one
        part of the only accelerator. None if there is none. Plans of at most so many copies and jobs, and the best one,
        get addresses."""
        self.price, self._tried = price, {}
        found = self._searched()
        plans = [self._finished(plan) for plan in self._promising_plans(found, most)] if found else []
        if len(self._chip.accelerators) == 1:
            least = min((one.cost for one in plans), default=INFINITE)
            plans += map(self._cut_finely, chain.from_iterable(map(self._arranged, self._as_one_part(least))))
        return _best(plans)

    def _promising_plans(self, best: list[FormOfLayers], most: int) -> list[list[FormOfLayers]]:
        """The best plan, and others that cost little more, with about so many copies and jobs in all: with addresses,
        and some of these cut, one of them may be faster."""
        cost, count = self.cost(best), most // max(_actions_of(best), 1)
        near = sorted(one for one in self._tried if cost < one <= _FINISHED_WITHIN * cost)
        return [best, *(self._tried[one] for one in near[: max(count - 1, 0)])]

    def _finished(self, plan: list[FormOfLayers]) -> _Found:
        """A plan with its parts in the best order, their addresses, and some copies and jobs cut."""
        most = _MORE // max(_actions_of(plan), 1)
        moved = parts_in_better_order([option for form in plan for option in form], self._together.cycles, most)
        parts = [option.placed for option in moved]
        copies = (PlacedPart(one, lay_out(one.mapped, Choices((), (), ()))) for one in self._oriented.copies())
        return min(map(self._cut_finely, self._arranged([*parts, *copies])), key=lambda one: one.cost)

    def _cut_finely(self, ordered: OrderedParts) -> _Found:
        """Parts with some copies and jobs cut, and what they cost together."""
        finer = parts_cut_finely(ordered, self._chip, self.price.action / self.price.cycle)
        profiles = (Option(one.part, profile_of(one.layout, pieces=False)) for one in finer.parts)
        return _Found(finer, sum(map(self.price.of, profiles)) + self.price.cycle * finer.order.cycles)

    def _arranged(self, parts: Sequence[PlacedPart]) -> list[OrderedParts]:
        """Parts with their addresses, and shares that stay in local memory if any do; of few copies and jobs also
        without these."""
        outside = self._region.arguments
        if self._chip.shared:
            return [ordered_parts(arranged(parts, self._chip, outside), self._chip)]
        placed = best_placed(parts, self._chip)
        kept = with_kept_shares(placed, self._chip, outside, self.price.action / self.price.cycle)
        return [kept] if kept is placed or len(placed.work.ops) > _FINISHED // 2 else [kept, placed]

    def _searched(self) -> list[FormOfLayers]:
        """The best of a few plans that were improved step by step, and of what is put together of two of them; empty
        if there is none."""
        packs = any(one.packed_rows for one in self._chip.accelerators)
        self._packs = packs and len(self._graph.layers) <= _PACKED_FIRST
        starts = {self.cost(plan): plan for plan in [*self.found(), *self._plain()]}
        layers = len(self._graph.layers)
        work = _WORK + _EACH * layers
        if self._small and starts:
            work = max(work + _STARTS, _TRIES * _actions_of(starts[min(starts)]))
        most = self._budget(work // 2 if packs and not self._packs else work)
        best: list[FormOfLayers] = []
        for _, start in sorted(starts.items(), key=lambda item: item[0]):
            if best and self._together.work > most:
                break
            other = self._changed(start, most, self._often)
            best = self._spliced(best, other) if best else other
        if not best:
            return best
        best = self._improved(best, most)
        every = EveryPlan(
            self.borders, self.forms, self.cost, self.price.cycle, len(self._chip.accelerators), self._share
        )
        found = every.cheaper_than(self.cost(best))
        best = self._improved(found, self._budget(_MORE)) if found else best
        self._packs = packs
        return self._improved(best, self._budget(_MORE + _EACH * layers)) if packs else best

    def _budget(self, work: int) -> int:
        """The copies and jobs that are scheduled at most, with those so far and this search's share of so many."""
        return self._together.work + work // self._share

    def _spliced(self, one: list[FormOfLayers], other: list[FormOfLayers]) -> list[FormOfLayers]:
        """The best of two plans, and of one with the beginning or the end of the other; in small regions also with some
        layers between as in the other."""
        best = min(one, other, key=self.cost)
        least = self.cost(best)
        ends = [[0, *(form[0].span[1] for form in plan)] for plan in (one, other)]
        common = sorted(set(ends[0]) & set(ends[1]))
        for first, stop in combinations(common, 2):
            if self._small or first == 0 or stop == common[-1]:
                (a, b), (c, d) = ((end.index(first), end.index(stop)) for end in ends)
                for plan in ([*one[:a], *other[c:d], *one[b:]], [*other[:c], *one[a:b], *other[d:]]):
                    cost = self.cost(plan, least)
                    if cost < least:
                        best, least = plan, cost
        return best

    def cost(self, forms: Sequence[FormOfLayers], limit: float = INFINITE) -> float:
        """What some parts cost. Where this is `limit` or more, it may be any number in between."""
        options = [option for form in forms for option in form]
        spent = sum(map(self.price.of, options))
        cycles = self._together.cycles(options, self.price.cycles(limit - spent))
        return spent + self.price.cycle * cycles

    def _plain(self) -> Iterator[list[FormOfLayers]]:
        """Every layer where it is fastest, and every layer cut over all accelerators that can run it, along each axis;
        each with layouts of one kind. And small regions as a whole, in all forms."""
        if self._small:
            yield from ([next(few(options))] for options in self.forms(0, len(self._graph.layers), most=1))
        forms = [list(self.forms(*span)) for span in pairwise(self.borders)]
        alone = [[form[0] for form in some if len(form) == 1] for some in forms]
        if not all(alone):
            return
        cut = [[form for form in some if len(form) > 1] for some in forms]
        fastest = [[min(some, key=lambda options: min(map(_by_itself, options)))] for some in alone]
        chosen = [fastest]
        for which in (0, -1):
            chosen.append([some[which] if some else best for some, best in zip(cut, fastest, strict=True)])
        for plan in chosen:
            for number in range(self._first):
                yield [tuple(options[min(number, len(options) - 1)] for options in form) for form in plan]

    # ------------------------------------------------------------ improvement

    def _improved(self, plan: list[FormOfLayers], most: int) -> list[FormOfLayers]:
        """A plan with what is changed often, and where that no longer helps, with what is changed seldom."""
        before: list[FormOfLayers] = []
        while plan != before and self._together.work <= most:
            before = plan
            plan = self._changed(plan, most, self._seldom)
            plan = self._changed(plan, most, self._often)
        return plan

    def _changed(self, plan: list[FormOfLayers], most: int, kinds: Sequence[_Changes]) -> list[FormOfLayers]:
        """A plan changed step by step, each time where that costs less, until `most` actions were scheduled."""
        best = self.cost(plan)
        better = True
        while better:
            better = False
            at = 0
            while at < len(plan):
                for forms, near in chain.from_iterable(changes(self, plan, at) for changes in kinds):
                    if self._together.work > most:
                        return plan
                    if self.cost([*near.before, *forms, *near.behind], near.cost) >= near.cost:
                        continue
                    other = [*plan[:at], *forms, *plan[at + near.count :]]
                    cost = self.cost(other, best)
                    if cost < best:
                        best, better, plan = cost, True, other
                        self._tried.setdefault(cost, other)
                        break
                else:
                    at += 1
        return plan

    def _changes(self, plan: Sequence[FormOfLayers], at: int) -> Iterator[tuple[Sequence[FormOfLayers], _Near]]:
        """What may take the place of some forms from one on, and which forms these are."""
        form = plan[at]
        first, stop = form[0].span
        near, style = self._near(plan, at, 1), {_style(form)}
        for options in self.forms(first, stop, more=True, near=near):
            yield from (([one], near) for one in few(options))
        if at + 1 < len(plan):
            last, following = plan[at + 1][0].span[1], {_style(plan[at + 1])}
            both = self._near(plan, at, 2)
            if last - first <= self._longest:
                for options in self.forms(first, last, styles=style | following, near=both):
                    yield from (([one], both) for one in few(options))
            for middle in range(first + 1, last):
                if middle != stop:
                    yield from ((halves, both) for halves in self._halves(first, middle, last, style, following))
        for middle in range(first + 1, stop):
            for one, other in ((style, style | self._alone), (self._alone - style, style)):
                yield from ((halves, near) for halves in self._halves(first, middle, stop, one, other))
        yield from (([one], near) for one in few([self._options(one.part.cut, None) for one in form]))

    def _pairs(self, plan: Sequence[FormOfLayers], at: int) -> Iterator[tuple[Sequence[FormOfLayers], _Near]]:
        """As `_changes`: two forms that become a long part, or both go to other accelerators."""
        if at + 1 < len(plan):
            (first, stop), (_, last) = plan[at][0].span, plan[at + 1][0].span
            near = self._near(plan, at, 2)
            if self._longest < last - first <= _JOINED:
                for options in self.forms(first, last, styles={_style(plan[at]), _style(plan[at + 1])}, near=near):
                    yield from (([one], near) for one in few(options))
            yield from ((halves, near) for halves in self._halves(first, stop, last, self._alone, self._alone))

    def _splits(self, plan: Sequence[FormOfLayers], at: int) -> Iterator[tuple[Sequence[FormOfLayers], _Near]]:
        """As `_changes`: halves of any kinds, and a layer that is taken out of a part of one accelerator."""
        first, stop = plan[at][0].span
        style = {_style(plan[at])} & self._alone
        near = self._near(plan, at, 1)
        for middle in range(first + 1, stop):
            yield from ((halves, near) for halves in self._halves(first, middle, stop, None, None))
        for middle in range(first, stop) if style and stop - first > 1 else ():
            spans = [span for span in pairwise((first, middle, middle + 1, stop)) if span[0] < span[1]]
            if all(self.may_stop(one) for one, _ in spans[1:]):
                styles = [None if span == (middle, middle + 1) else style for span in spans]
                found = (self.forms(*span, styles=one, most=1) for span, one in zip(spans, styles, strict=True))
                yield from (([next(few(one)) for one in forms], near) for forms in product(*found))

    def _shifts(self, plan: Sequence[FormOfLayers], at: int) -> Iterator[tuple[Sequence[FormOfLayers], _Near]]:
        """As `_changes`: shares of layers that become larger or smaller where they meet."""
        near = self._near(plan, at, 1)
        cuts = [one.part.cut for one in plan[at]]
        for border, (one, other) in enumerate(pairwise(cuts)):
            assert one.rows is not None
            assert other.rows is not None
            for shift in self._sharing.steps(one, other):
                middle = one.rows[1] + shift
                halves = [replace(one, rows=(one.rows[0], middle)), replace(other, rows=(middle, other.rows[1]))]
                changed = [*cuts[:border], *halves, *cuts[border + 2 :]]
                parts = [self._options(cut, self._first) for cut in changed]
                if all(parts):
                    yield from (([form], near) for form in few(parts))

    def _halves(
        self, first: int, middle: int, stop: int, styles: Container[_Style] | None, others: Container[_Style] | None
    ) -> Iterator[list[FormOfLayers]]:
        """Layers as two forms that meet before the layer `middle`."""
        if self.may_stop(middle) and max(middle - first, stop - middle) <= self._longest:
            halves = (first, middle, styles), (middle, stop, others)
            for one, other in product(*(self.forms(at, end, styles=some, most=1) for at, end, some in halves)):
                yield [next(few(one)), next(few(other))]

    def _near(self, plan: Sequence[FormOfLayers], at: int, count: int) -> _Near:
        """Some forms of a plan from one on, and those around them."""
        before, behind = plan[max(at - _NEAR, 0) : at], plan[at + count : at + count + _NEAR]
        loads, copies = ([0] * len(self._chip.accelerators) for _ in range(2))
        spent = 0.0
        for option in chain.from_iterable((*before, *behind)):
            jobs, copied = option.profile.load
            loads[option.part.cut.lane] += jobs
            copies[option.part.cut.lane] += copied
            spent += self.price.of(option)
        cost = self.cost([*before, *plan[at : at + count], *behind])
        return _Near(count, before, behind, loads, copies, spent, cost)

    # ------------------------------------------------------------ beam

    def found(self) -> Iterator[list[FormOfLayers]]:
        """A few plans that promise to be fast."""
        zero = (0,) * len(self._chip.accelerators)
        kept = {0: [_State(Engines(zero, zero, zero, {}), (), 0, 0, 0)]}
        for stop in range(1, len(self._graph.layers) + 1):
            if self.may_stop(stop):
                states: list[_State] = []
                last = max(kept)
                for at in kept:
                    if at == last or (self._small and stop - at <= self._longest):
                        for parts in self.forms(at, stop, whole=at < last):
                            for state in kept[at]:
                                self._extend(states, state, parts, stop)
                kept[stop] = self._promising(states)
        for state in sorted(states, key=lambda state: state.engines.end)[:_KEPT]:
            yield [tuple(form) for _, form in groupby(state.parts, key=lambda one: one.span)]

    def _extend(self, states: list[_State], state: _State, parts: Sequence[Sequence[Option]], stop: int) -> None:
        """The states behind some layers: each part in the form that is best then."""
        found = [state]
        for options in parts:
            found = [self._then(one, option, stop) for one in found for option in options]
            found = sorted(found, key=lambda one: one.chained)[:2] + sorted(found, key=lambda one: one.shared)[:2]
        states += found

    def _then(self, state: _State, option: Option, stop: int) -> _State:
        engines = state.engines.then(option)
        spent = state.spent + self.price.of(option)
        ranks = (self.price.cycle * cycles + spent for cycles in self._ranks(engines, stop))
        return _State(engines, (*state.parts, option), spent, *ranks)

    @staticmethod
    def _promising(states: Sequence[_State]) -> list[_State]:
        """The states to go on with: those where the engines are evenly busy, and those that are through first."""
        ordered = sorted(states, key=lambda state: (state.shared, state.chained))[: _BEAM // 2]
        others = sorted(states, key=lambda state: (state.chained, state.shared))
        return ordered + [state for state in others if state not in ordered][: _BEAM // 2]

    def _ranks(self, engines: Engines, stop: int) -> tuple[float, float]:
        """Two estimates of the end: the engines share the rest evenly from now on, or from the latest end on."""
        count = len(engines.array)
        shared = max(sum(engines.array) / count, (sum(engines.dma) - sum(engines.idle)) / count) + self._rest[stop]
        return shared + 0.02 * engines.end, engines.end + self._rest[stop]

    def may_stop(self, stop: int) -> bool:
        """Whether a part may end before a layer: a reshape of several pixels stays with the layer before it, unless
        that is a library's and others read its output, too."""
        layers = self._graph.layers
        if stop == len(layers) or not isinstance(layers[stop], Reshape):
            return True
        ifm = layers[stop].ifm
        if ifm is not layers[stop - 1].ofm or prod(ifm.shape) == ifm.shape[-1]:
            return True
        whole = any(self._chip.accelerators[lane].library for lane in self._cost[stop - 1])
        return whole and self._region.leaves(ifm, (stop,))

    def forms(
        self,
        at: int,
        stop: int,
        *,
        more: bool = False,
        styles: Container[_Style] | None = None,
        near: _Near | None = None,
        whole: bool = False,
        most: int | None = None,
    ) -> Iterator[list[list[Option]]]:
        """The layers as parts, with a few layouts of each, or at most `most` of each form of it: on one accelerator, or
        cut over several. With `near` those alone that may take fewer cycles there."""
        indices = tuple(range(at, stop))
        lanes = [
            lane for lane in range(len(self._chip.accelerators)) if all(lane in self._cost[one] for one in indices)
        ]
        plain, flat = PartCut(0, indices), PartCut(0, indices, flat=True)
        way = flat if stop - at == 1 and self._oriented.can_be_flat(at) else plain
        cycles = {lane: sum(self._cost[one][lane] for one in indices) for lane in lanes}
        slow = [lane for lane in lanes if cycles[lane] > _SLOW * min(cycles.values())]
        cuts: list[list[PartCut]] = []
        for lane in (*(one for one in lanes if one not in slow), *slow):
            if styles is None or ((lane,), 0) in styles:
                cuts.append([replace(plain if self._chip.accelerators[lane].library else way, lane=lane)])
        for count in range(2, len(lanes) + 1) if not whole else ():
            for chosen in combinations(lanes, count):
                for axis in self._sharing.axes(way):
                    if styles is None or (chosen, axis) in styles:
                        cuts += self._sharing.shares(replace(way, axis=axis), chosen, more=more)
        found = False
        for form in cuts:
            if found and len(form) == 1 and form[0].lane in slow:
                continue  # a share of the layers at most
            if near is not None and any(self._cannot_win(cut, near) for cut in form):
                found = True
                continue
            parts = [self._options(cut, most or self._first) for cut in form]
            if all(parts):
                found = True
                yield parts if near is not None or more or styles else [one[: self._first] for one in parts]

    def _cannot_win(self, cut: PartCut, near: _Near) -> bool:
        """Whether the array or the DMA of a part alone would have so much to do that nothing is saved."""
        jobs, copies = self._least(cut)
        busy = max(near.loads[cut.lane] + jobs, near.copies[cut.lane] + copies)
        return near.spent + self.price.cycle * busy >= near.cost

    def _least(self, cut: PartCut) -> tuple[int, float]:
        """Cycles that the jobs and the copies of weights of a part take at least, in any layout."""
        jobs = min((form.array_cycles for form in self._forms(cut)), default=0)
        part, accelerator = self._known_of(cut).part, self._chip.accelerators[cut.lane]
        if part is None or part.mapped.whole:
            return jobs, 0
        return jobs, sum(map(weight_bytes, part.mapped.graph.layers)) / accelerator.dma_width

    def _known_of(self, cut: PartCut) -> _Known:
        if cut not in self._known:
            self._known[cut] = _Known(self._oriented.part(cut))
        return self._known[cut]

    def _forms(self, cut: PartCut) -> Iterator[MappedGraph]:
        """A part as it is mapped, and with packed rows if these are tried."""
        known = self._known_of(cut)
        if known.part is not None:
            yield known.part.mapped
            if self._packs:
                yield from known.packed

    def _options(self, cut: PartCut, most: int | None) -> list[Option]:
        """A part in its layouts, or in the first ones of each form: one of each form in turn, the faster form first."""
        known, found = self._known_of(cut), []
        if (most, self._packs) in known.asked:
            return known.asked[most, self._packs]
        for form, options in zip(self._forms(cut), known.options, strict=False):
            assert known.part is not None, "it has forms"
            options += [Option(known.part, one) for one in self._profiles_of(known.part, form, most)[len(options) :]]
            found.append(options[:most])
        found.sort(key=lambda options: _by_itself(options[0]) if options else 0)
        options = [option for several in zip_longest(*found) for option in several if option is not None]
        known.asked[most, self._packs] = options
        return options

    def _profiles_of(self, part: OrientedPart, form: MappedGraph, most: int | None) -> list[Profile]:
        outside = self._region.arguments
        in_place = self._in_place and bool(self._chip.group_of(part.cut.lane))
        border = tuple(tensor in outside for tensor, _ in part.arguments) if in_place else ()
        key = self._kinds[part.cut.lane], part_structure(form), form.mapping.packed, border
        if key not in self._profiles:
            found = layouts(form)
            if in_place:
                found = ((as_handed_over(PlacedPart(part, one), outside), pieces) for one, pieces in found)
            self._profiles[key] = [], starmap(profile_of, found)
        known, others = self._profiles[key]
        while most is None or len(known) < most:
            left = _LAID_OUT - sum(len(one.actions) for one in known)
            following = next(others, None) if left > 0 else None
            if following is None:
                break
            known.append(following)
        return known

    def _as_one_part(self, most: float) -> Iterator[list[PlacedPart]]:
        """Everything as one part of the only accelerator, as it is planned there, where that may cost less than
        `most`."""
        (accelerator,) = self._chip.accelerators
        if self.price.cycle * least_alone(self._graph.layers, accelerator) < most:
            with suppress(PlanError):  # then the layers fit one by one
                yield [part_of_all(self._region, 0, own_layout(self._graph, accelerator))]


_KINDS: Sequence[_Changes] = (_Search._changes, _Search._pairs, _Search._shifts, _Search._splits)
"""What a plan is changed by, in the order in which it is tried. No search has them: it would refer to itself."""


def _actions_of(plan: Sequence[FormOfLayers]) -> int:
    """The copies and jobs of a plan."""
    return sum(len(option.profile.actions) for form in plan for option in form)


def _by_itself(option: Option) -> int:
    """Cycles of a part by itself."""
    return option.profile.cycles


def _style(form: FormOfLayers) -> _Style:
    """The accelerators of a form, and the dimension that is cut."""
    cut = form[0].part.cut
    return tuple(one.part.cut.lane for one in form), cut.axis if cut.rows is not None else 0
