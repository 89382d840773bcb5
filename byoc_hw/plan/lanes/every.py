"""All plans of a small region: parts of consecutive layers, on one accelerator or cut over several by their speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from byoc_hw.plan.lanes.profile import Option

FormOfLayers = tuple[Option, ...]
"""Layers as one part, or as a part on each of several accelerators."""

_MOST = 10_000
"""The most plans that are all tried."""

_LAYERS = 12
"""The most layers of a region that may have so few plans."""

_KINDS = ((3, 4), (3, 2), (3, 1), (2, 1), (1, 2), (1, 1))
"""The most layers of a part, and the most layouts of each: of the first of these kinds of plans of which there are few
enough, all are tried."""


def few(form: Sequence[Sequence[Option]]) -> Iterator[FormOfLayers]:
    """The parts of a form with layouts of one kind each: not every combination."""
    for number in range(max(map(len, form))):
        yield tuple(options[min(number, len(options) - 1)] for options in form)


class EveryPlan:
    """The search through all plans. Parts may begin and end at the `borders`; `forms` has the forms of the layers
    between two of them, each with its parts in some layouts. `cost` is what a plan costs, at least `cycle` for a cycle
    of an array; where that is as much as the second argument it may be any number in between. There are as many plans
    as for one of so many searches that `share` their number, and it ends where `more` says that there is no time."""

    def __init__(
        self,
        borders: Sequence[int],
        forms: Callable[[int, int], Iterator[list[list[Option]]]],
        cost: Callable[[list[FormOfLayers], float], float],
        cycle: float,
        lanes: int,
        share: int,
        more: Callable[[], bool],
    ) -> None:
        self._most, self._more = _MOST // share, more
        self._borders, self._forms_of, self._cost, self._cycle, self._lanes = borders, forms, cost, cycle, lanes
        self._known: dict[tuple[int, int], list[list[list[Option]]]] = {}
        self._plan: list[FormOfLayers] | None = None

    def cheaper_than(self, cost: float) -> list[FormOfLayers] | None:
        """The plan that costs the least, if that is less than some cost; None if none does, or there are too many."""
        self._least_cost = cost
        for longest, layouts in _KINDS if len(self._borders) <= _LAYERS + 1 else ():
            if self._found(longest, layouts):
                self._try(0, [], [0] * self._lanes)
                return self._plan
        return None

    def _found(self, longest: int, layouts: int) -> bool:
        """Whether there are plans of a kind, and few enough; with their forms, by the border where they begin."""
        count = len(self._borders)
        self._forms: list[list[tuple[int, FormOfLayers, list[int]]]] = [[] for _ in self._borders]
        plans, self._rest = [0] * count, [0.0] * count  # from each border on: their number, and the least of all loads
        plans[-1] = 1
        for at in reversed(range(count - 1)):
            least = float("inf")
            for stop in range(at + 1, count):
                if stop > at + 1 and self._borders[stop] - self._borders[at] > longest:
                    break
                for parts in self._parts(at, stop):
                    for form in islice(few(parts), layouts):
                        loads = self._loads(form)
                        self._forms[at].append((stop, form, loads))
                        plans[at] += plans[stop]
                        least = min(least, self._rest[stop] + sum(loads))
            self._rest[at] = least
            if plans[at] > self._most:
                return False
        return plans[0] > 0

    def _parts(self, at: int, stop: int) -> list[list[list[Option]]]:
        if (at, stop) not in self._known:
            self._known[at, stop] = list(self._forms_of(self._borders[at], self._borders[stop]))
        return self._known[at, stop]

    def _loads(self, form: FormOfLayers) -> list[int]:
        """Cycles of the jobs of a form on each accelerator."""
        found = [0] * self._lanes
        for option in form:
            found[option.part.cut.lane] += option.profile.load[0]
        return found

    def _try(self, at: int, plan: list[FormOfLayers], loads: list[int]) -> None:
        """Try all plans that begin so. One is passed over where an array alone takes as long as the best so far."""
        least = max(max(loads), (sum(loads) + self._rest[at]) / self._lanes)
        if self._cycle * least >= self._least_cost or not self._more():
            return
        if at == len(self._borders) - 1:
            cost = self._cost(plan, self._least_cost)
            if cost < self._least_cost:
                self._least_cost, self._plan = cost, plan
            return
        for stop, form, more in self._forms[at]:
            self._try(stop, [*plan, form], [one + other for one, other in zip(loads, more, strict=True)])
