"""Plans to begin with. A beam goes through the layers, one by one: each state has parts for the layers so far and the
times of the engines after them, and of states at the same layer the most promising are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from byoc_hw.plan.lanes.every import FormOfLayers, few
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.plan.lanes.price import Price
from byoc_hw.plan.lanes.profile import Engines, Option
from byoc_hw.plan.lanes.sharing import LayerCosts

_WIDTH = 6
_KEPT = 4
"""The states at a layer that are kept, and the plans."""


@dataclass(frozen=True, eq=False)
class _State:
    """Parts so far: the engines after them, what they cost beside cycles, and two estimates of the whole cost."""

    engines: Engines
    parts: tuple[Option, ...]
    spent: float
    shared: float
    chained: float


class Beam:
    """A beam through the forms of layers."""

    def __init__(self, forms: LayerForms, costs: LayerCosts, price: Price) -> None:
        self._forms, self._price = forms, price
        self._rest = [0.0]  # cycles of all lanes together for the layers from here on
        for cost in reversed(costs):
            rate = sum(1 / max(cycles, 1) for cycles in cost.values())
            self._rest.insert(0, self._rest[0] + (1 / rate if max(cost.values()) else 0))

    def plans(self) -> Iterator[list[FormOfLayers]]:
        """A few plans that promise to be fast."""
        forms, zero = self._forms, (0,) * self._forms.lanes
        kept = {0: [_State(Engines(zero, zero, zero, {}), (), 0, 0, 0)]}
        for stop in forms.borders[1:]:
            states: list[_State] = []
            last = max(kept)
            for at in kept:
                if at == last or (forms.small and stop - at <= forms.longest):
                    for parts in forms.of(at, stop, whole=at < last):
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
        spent = state.spent + self._price.of(option)
        ranks = (self._price.cycle * cycles + spent for cycles in self._ranks(engines, stop))
        return _State(engines, (*state.parts, option), spent, *ranks)

    @staticmethod
    def _promising(states: Sequence[_State]) -> list[_State]:
        """The states to go on with: those where the engines are evenly busy, and those that are through first."""
        ordered = sorted(states, key=lambda state: (state.shared, state.chained))[: _WIDTH // 2]
        others = sorted(states, key=lambda state: (state.chained, state.shared))
        return ordered + [state for state in others if state not in ordered][: _WIDTH // 2]

    def _ranks(self, engines: Engines, stop: int) -> tuple[float, float]:
        """Two estimates of the end: the engines share the rest evenly from now on, or from the latest end on."""
        count = len(engines.array)
        shared = max(sum(engines.array) / count, (sum(engines.dma) - sum(engines.idle)) / count) + self._rest[stop]
        return shared + 0.02 * engines.end, engines.end + self._rest[stop]


def plain_plans(forms: LayerForms) -> Iterator[list[FormOfLayers]]:
    """Every layer where it is fastest, and every layer cut over all accelerators that can run it, along each axis; each
    with layouts of one kind. And small regions as a whole, in all forms."""
    if forms.small:
        yield from ([next(few(options))] for options in forms.of(0, forms.borders[-1], most=1))
    found = [list(forms.of(*span)) for span in pairwise(forms.borders)]
    alone = [[form[0] for form in some if len(form) == 1] for some in found]
    if not all(alone):
        return
    cut = [[form for form in some if len(form) > 1] for some in found]
    fastest = [[min(some, key=lambda options: min(one.profile.cycles for one in options))] for some in alone]
    chosen = [fastest]
    for which in (0, -1):
        chosen.append([some[which] if some else best for some, best in zip(cut, fastest, strict=True)])
    for plan in chosen:
        for number in range(forms.first):
            yield [tuple(options[min(number, len(options) - 1)] for options in form) for form in plan]
