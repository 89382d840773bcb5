"""Improvement of a plan step by step: other accelerators and cuts for a layer, other stripes, layers in one part with
the next."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product

from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.lanes.every import FormOfLayers, few
from byoc_hw.plan.lanes.layer_forms import LayerForms, Style, style_of
from byoc_hw.plan.lanes.price import PlanCosts

_JOINED = 8
"""The most layers of a part that two are joined to."""

_AT_ONCE = 3
"""The most forms whose layers are joined in one change."""

_NEAR = 3
"""The forms before and behind a change with which it is tried first."""


@dataclass(frozen=True)
class _Near:
    """So many forms of a plan with those before and behind them: what all of these cost, and whether the array or the
    DMA of a part alone would have so much to do among them that nothing is saved."""

    count: int
    before: Sequence[FormOfLayers]
    behind: Sequence[FormOfLayers]
    cost: float
    useless: Callable[[PartCut], bool]


_Changes = Iterator[tuple[Sequence[FormOfLayers], _Near]]
"""What may take the place of some forms of a plan, and which forms these are."""


class Improvement:
    """Improves plans by changes. Those on the way are `tried`, by what they cost."""

    def __init__(self, forms: LayerForms, costs: PlanCosts) -> None:
        self._forms, self._costs = forms, costs
        self._alone = {((lane,), 0) for lane in range(forms.lanes)}
        self.tried: dict[float, list[FormOfLayers]] = {}

    def improved(self, plan: list[FormOfLayers], most: int) -> list[FormOfLayers]:
        """A plan with what is changed often, and where that no longer helps, with what is changed seldom."""
        before: list[FormOfLayers] = []
        while plan != before and self._costs.together.work <= most:
            before = plan
            plan = self.changed(plan, most, seldom=True)
            plan = self.changed(plan, most)
        return plan

    def changed(self, plan: list[FormOfLayers], most: int, *, seldom: bool = False) -> list[FormOfLayers]:
        """A plan changed step by step by what is changed often, or seldom, each time where that costs less, until
        `most` actions were scheduled."""
        return self._changed(plan, most, self._seldom if seldom else self._often)

    def joined(self, plan: list[FormOfLayers], most: int) -> list[FormOfLayers]:
        """A plan changed in the same way by the layers of several forms in one."""
        return self._changed(plan, most, self._joins)

    def _changed(
        self, plan: list[FormOfLayers], most: int, changes: Callable[[Sequence[FormOfLayers], int], _Changes]
    ) -> list[FormOfLayers]:
        together = self._costs.together
        best = self._costs.of(plan)
        better = True
        while better:
            better = False
            at = 0
            while at < len(plan):
                for forms, near in changes(plan, at):
                    if together.work > most:
                        return plan
                    if self._costs.of([*near.before, *forms, *near.behind], near.cost) >= near.cost:
                        continue
                    other = [*plan[:at], *forms, *plan[at + near.count :]]
                    cost = self._costs.of(other, best)
                    if cost < best:
                        best, better, plan = cost, True, other
                        self.tried.setdefault(cost, other)
                        break
                else:
                    at += 1
        return plan

    def spliced(self, one: list[FormOfLayers], other: list[FormOfLayers]) -> list[FormOfLayers]:
        """The best of two plans, and of one with the beginning or the end of the other; in small regions also with some
        layers between as in the other."""
        best = min(one, other, key=self._costs.of)
        least = self._costs.of(best)
        ends = [[0, *(form[0].span[1] for form in plan)] for plan in (one, other)]
        common = sorted(set(ends[0]) & set(ends[1]))
        for first, stop in combinations(common, 2):
            if self._forms.small or first == 0 or stop == common[-1]:
                (a, b), (c, d) = ((end.index(first), end.index(stop)) for end in ends)
                for plan in ([*one[:a], *other[c:d], *one[b:]], [*other[:c], *one[a:b], *other[d:]]):
                    cost = self._costs.of(plan, least)
                    if cost < least:
                        best, least = plan, cost
        return best

    # ------------------------------------------------------------ changes of the forms of a plan from one on

    def _often(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        yield from self._nearby(plan, at)
        if self._forms.small:
            yield from self._pairs(plan, at)

    def _seldom(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        if not self._forms.small:
            yield from self._pairs(plan, at)
        yield from self._shifts(plan, at)
        yield from self._splits(plan, at)

    def _nearby(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        """Other forms, also together with the next layers, or as two; layers that go from one form to the next."""
        form = plan[at]
        first, stop = form[0].span
        near, style = self._near(plan, at, 1), {style_of(form)}
        for options in self._forms.of(first, stop, more=True, useless=near.useless):
            yield from (([one], near) for one in few(options))
        if at + 1 < len(plan):
            last, following = plan[at + 1][0].span[1], {style_of(plan[at + 1])}
            both = self._near(plan, at, 2)
            if last - first <= self._forms.longest:
                for options in self._forms.of(first, last, styles=style | following, useless=both.useless):
                    yield from (([one], both) for one in few(options))
            for middle in range(first + 1, last):
                if middle != stop:
                    yield from ((halves, both) for halves in self._halves(first, middle, last, style, following))
        for middle in range(first + 1, stop):
            for one, other in ((style, style | self._alone), (self._alone - style, style)):
                yield from ((halves, near) for halves in self._halves(first, middle, stop, one, other))
        yield from (([one], near) for one in few([self._forms.options(one.part.cut, None) for one in form]))

    def _pairs(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        """Two forms that become a long part, or both go to other accelerators."""
        if at + 1 < len(plan):
            (first, stop), (_, last) = plan[at][0].span, plan[at + 1][0].span
            near, styles = self._near(plan, at, 2), {style_of(plan[at]), style_of(plan[at + 1])}
            if self._forms.longest < last - first <= _JOINED:
                for options in self._forms.of(first, last, styles=styles, useless=near.useless):
                    yield from (([one], near) for one in few(options))
            yield from ((halves, near) for halves in self._halves(first, stop, last, self._alone, self._alone))

    def _joins(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        """The layers of a few forms in one, in the first layout of each part."""
        first = plan[at][0].span[0]
        for count in range(2, min(_AT_ONCE, len(plan) - at) + 1):
            last, near = plan[at + count - 1][0].span[1], self._near(plan, at, count)
            if last - first > _JOINED:
                return
            styles = {style_of(form) for form in plan[at : at + count]}
            for options in self._forms.of(first, last, styles=styles, useless=near.useless):
                yield [next(few(options))], near

    def _splits(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        """Halves of any kinds, and a layer that is taken out of a part of one accelerator."""
        first, stop = plan[at][0].span
        style = {style_of(plan[at])} & self._alone
        near = self._near(plan, at, 1)
        for middle in range(first + 1, stop):
            yield from ((halves, near) for halves in self._halves(first, middle, stop, None, None))
        for middle in range(first, stop) if style and stop - first > 1 else ():
            spans = [span for span in pairwise((first, middle, middle + 1, stop)) if span[0] < span[1]]
            if all(self._forms.may_stop(one) for one, _ in spans[1:]):
                styles = [None if span == (middle, middle + 1) else style for span in spans]
                found = (self._forms.of(*span, styles=one, most=1) for span, one in zip(spans, styles, strict=True))
                yield from (([next(few(one)) for one in forms], near) for forms in product(*found))

    def _shifts(self, plan: Sequence[FormOfLayers], at: int) -> _Changes:
        """Shares of layers that become larger or smaller where they meet."""
        near = self._near(plan, at, 1)
        for parts in self._forms.shifted(plan[at]):
            yield from (([form], near) for form in few(parts))

    def _halves(
        self, first: int, middle: int, stop: int, styles: Container[Style] | None, others: Container[Style] | None
    ) -> Iterator[list[FormOfLayers]]:
        """Layers as two forms that meet before the layer `middle`."""
        if self._forms.may_stop(middle) and max(middle - first, stop - middle) <= self._forms.longest:
            halves = (first, middle, styles), (middle, stop, others)
            for one, other in product(*(self._forms.of(at, end, styles=some, most=1) for at, end, some in halves)):
                yield [next(few(one)), next(few(other))]

    def _near(self, plan: Sequence[FormOfLayers], at: int, count: int) -> _Near:
        """Some forms of a plan from one on, and those around them."""
        before, behind = plan[max(at - _NEAR, 0) : at], plan[at + count : at + count + _NEAR]
        cost, price = self._costs.of([*before, *plan[at : at + count], *behind]), self._costs.price
        loads, copies = ([0] * self._forms.lanes for _ in range(2))
        spent = 0.0
        for option in chain.from_iterable((*before, *behind)):
            jobs, copied = option.profile.load
            loads[option.part.cut.lane] += jobs
            copies[option.part.cut.lane] += copied
            spent += price.of(option)

        def useless(cut: PartCut) -> bool:
            jobs, copied = self._forms.least(cut)
            return spent + price.cycle * max(loads[cut.lane] + jobs, copies[cut.lane] + copied) >= cost

        return _Near(count, before, behind, cost, useless)
