"""The search for parts: which accelerator runs which layers, which layers are cut over several, in how many stripes.

A beam goes through the layers in order. Each state has parts for the layers so far and the times of the engines after
them; of states at the same layer the most promising are kept. The best few are then scheduled together, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, pairwise

from byoc_hw.errors import PlanError
from byoc_hw.graph import Dense, Reshape
from byoc_hw.plan.array.mapping import worth_swapping
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.cut import PartCut, Region
from byoc_hw.plan.lanes.joint import PlacedPart, joint_order, joint_work
from byoc_hw.plan.lanes.layouts import layouts
from byoc_hw.plan.lanes.oriented import Oriented, OrientedPart, part_structure
from byoc_hw.plan.lanes.profile import Engines, Option, Profile, profile_of
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.stages import lay_out
from byoc_hw.soc import Soc

_BEAM = 10
_LONGEST = 3
_KEPT = 5
_WORK = 40_000
"""The most copies and jobs that the improvement schedules, over all that it tries."""


@dataclass(frozen=True, eq=False)
class _State:
    engines: Engines
    parts: tuple[Option, ...]
    shared: float
    chained: float


def best_parts(region: Region, chip: Soc, costs: Sequence[Mapping[int, int]]) -> list[PlacedPart]:
    """The parts of the fastest plan that was found, in a possible order. `costs` has each layer's accelerators, by
    index, and its cycles on each."""
    whole = any(one.library for one in chip.accelerators)  # libraries take tensors as the model has them
    for swap in (False,) if whole else (True, False):
        found = _Search(region, chip, costs, swap).best()
        if found:
            return found
    names = ", ".join(one.name for one in chip.accelerators)
    raise PlanError(f"{region.graph.name}: each layer has a plan on one of {names}: one has none")


class _Search:
    def __init__(self, region: Region, chip: Soc, costs: Sequence[Mapping[int, int]], swap: bool = True) -> None:
        graph = region.graph
        self._graph, self._chip, self._region, self._cost = graph, chip, region, costs
        fastest = [min(cost, key=cost.__getitem__) for cost in costs]
        accelerators = [chip.accelerators[lane] for lane in fastest]
        swapped = worth_swapping(graph, accelerators)
        self._oriented = Oriented(region, chip, [swap and one for one in swapped], swap)
        rate = [sum(1 / max(cycles, 1) for cycles in cost.values()) for cost in self._cost]
        self._rest = [0.0] * (len(graph.layers) + 1)  # cycles of all lanes together for the layers from here on
        for index in reversed(range(len(graph.layers))):
            self._rest[index] = self._rest[index + 1] + (1 / rate[index] if max(self._cost[index].values()) else 0)
        self._known: dict[PartCut, list[Option]] = {}
        self._profiles: dict[object, list[Profile]] = {}

    def best(self) -> list[PlacedPart]:
        """The parts of the fastest plan that was found: one of a few, improved form by form, or all on one accelerator.
        None if there is none."""
        found = [*self._plain(), *self.found()]
        plans = list(self._alone())
        if found:
            parts = [option.placed for option in self._improved(min(found, key=self.cycles))]
            copies = (PlacedPart(one, lay_out(one.mapped, Choices((), (), ()))) for one in self._oriented.copies())
            plans.append([*parts, *copies])
        return min(plans, key=lambda parts: joint_order(joint_work(parts)).cycles, default=[])

    def _plain(self) -> Iterator[list[Option]]:
        """Every layer where it is fastest; every layer cut over all accelerators that can run it, along each axis."""
        stops = [stop for stop in range(1, len(self._graph.layers) + 1) if self._may_stop(stop)]
        spans = list(zip([0, *stops], stops, strict=False))
        alone = [[form for form in self._forms(*span) if len(form) == 1] for span in spans]
        if not all(alone):
            return
        fastest = [min(forms, key=lambda form: form[0][0].placed.layout.cycles) for forms in alone]
        yield [form[0][0] for form in fastest]
        cut = [[form for form in self._forms(*span) if len(form) > 1] for span in spans]
        for which in (0, -1):
            chosen = (forms[which] if forms else best for forms, best in zip(cut, fastest, strict=True))
            yield [options[0] for form in chosen for options in form]

    @staticmethod
    def cycles(parts: Sequence[Option]) -> int:
        """Cycles of some parts together, to the cycle."""
        return joint_order(joint_work([one.placed for one in parts])).cycles

    def _improved(self, parts: list[Option]) -> list[Option]:
        """Parts with other forms of their layers, one after the other, where that takes fewer cycles."""
        best = self.cycles(parts)
        tries = _WORK // max(sum(len(one.profile.actions) for one in parts), 1)
        better = True
        while better:
            better = False
            for span in dict.fromkeys(one.span for one in parts):
                own = [one for one in parts if one.span == span]
                if not own:
                    continue
                first = parts.index(own[0])
                for form in [*self._forms(*span, shifts=(0, -1, 1))] if span[1] - span[0] <= _LONGEST else []:
                    for some in _few(form):
                        if tries == 0:
                            return parts
                        tries -= 1
                        other = [*parts[:first], *some, *parts[first + len(own) :]]
                        cycles = self.cycles(other)
                        if cycles < best:
                            best, better = cycles, True
                            parts, own = other, list(some)
        return parts

    def found(self) -> Iterator[list[Option]]:
        """Parts of a few plans that promise to be fast."""
        count = len(self._chip.accelerators)
        zero = (0,) * count
        states: list[list[_State]] = [[] for _ in range(len(self._graph.layers) + 1)]
        states[0] = [_State(Engines(zero, zero, zero, {}), (), 0, 0)]
        for at in range(len(self._graph.layers)):
            kept = self._promising(states[at])
            for stop in self._stops(at):
                for parts in self._forms(at, stop):
                    for state in kept:
                        self._extend(states[stop], state, parts, stop)
        for state in sorted(states[-1], key=lambda state: state.engines.end)[:_KEPT]:
            yield list(state.parts)

    def _extend(self, states: list[_State], state: _State, parts: Sequence[Sequence[Option]], stop: int) -> None:
        """The states behind some layers: each part in the form that is best then."""
        found = [state]
        for options in parts:
            found = [self._then(one, option, stop) for one in found for option in options]
            found = sorted(found, key=lambda one: one.chained)[:2] + sorted(found, key=lambda one: one.shared)[:2]
        states += found

    def _then(self, state: _State, option: Option, stop: int) -> _State:
        engines = state.engines.then(option)
        return _State(engines, (*state.parts, option), *self._ranks(engines, stop))

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

    def _stops(self, at: int) -> Iterator[int]:
        layers = self._graph.layers
        for length in range(1, _LONGEST + 1):
            stop = at + length
            if stop > len(layers):
                return
            if self._may_stop(stop):
                yield stop

    def _may_stop(self, stop: int) -> bool:
        """Whether a part may end before a layer: a reshape stays with the layer before it, unless that is a library's
        and others read its output, too."""
        layers = self._graph.layers
        if stop == len(layers) or not (isinstance(layers[stop], Reshape) and layers[stop].ifm is layers[stop - 1].ofm):
            return True
        whole = any(self._chip.accelerators[lane].library for lane in self._cost[stop - 1])
        return whole and self._region.leaves(layers[stop].ifm, (stop,))

    def _forms(self, at: int, stop: int, shifts: Sequence[int] = (0,)) -> Iterator[list[list[Option]]]:
        """The layers as parts: on one accelerator, or cut over several."""
        indices = tuple(range(at, stop))
        lanes = [
            lane for lane in range(len(self._chip.accelerators)) if all(lane in self._cost[one] for one in indices)
        ]
        for lane in lanes:
            options = self._options(PartCut(lane, indices))
            if options:
                yield [options]
        for count in range(2, len(lanes) + 1):
            for chosen in combinations(lanes, count):
                for axis in self._axes(stop - 1):
                    for cuts in self._shares(chosen, indices, axis, shifts):
                        parts = [self._options(cut) for cut in cuts]
                        if all(parts):
                            yield parts

    def _axes(self, index: int) -> tuple[int, ...]:
        layer = self._graph.layers[index]
        if isinstance(layer, Dense):
            return (1,)
        if len(layer.ofm.shape) != 4:
            return ()
        return self._oriented.axis(index), 3

    def _shares(
        self, lanes: Sequence[int], indices: tuple[int, ...], axis: int, shifts: Sequence[int]
    ) -> Iterator[list[PartCut]]:
        extent = self._graph.layers[indices[-1]].ofm.shape[axis]
        speeds = [1 / max(sum(self._cost[index][lane] for index in indices), 1) for lane in lanes]
        unit = 1
        if axis == 3 or isinstance(self._graph.layers[indices[-1]], Dense):
            unit = min(self._chip.accelerators[lane].array_rows for lane in lanes)
        if extent < len(lanes) * unit:
            return
        seen = set()
        for shift in shifts:
            bounds, total, part = [0], sum(speeds), 0.0
            for speed in speeds[:-1]:
                part += speed
                bounds.append(min(max(round(extent * part / total / unit + shift) * unit, unit), extent - unit))
            bounds.append(extent)
            if tuple(bounds) in seen or sorted(set(bounds)) != bounds:
                continue
            seen.add(tuple(bounds))
            yield [PartCut(lane, indices, axis, rows) for lane, rows in zip(lanes, pairwise(bounds), strict=True)]

    def _options(self, cut: PartCut) -> list[Option]:
        """A part in each of its layouts, the fastest by itself first."""
        if cut not in self._known:
            part = self._oriented.part(cut)
            self._known[cut] = [] if part is None else [Option(part, one) for one in self._profiles_of(part)]
        return self._known[cut]

    def _profiles_of(self, part: OrientedPart) -> list[Profile]:
        key = part.cut.lane, part_structure(part.mapped)
        if key not in self._profiles:
            self._profiles[key] = [profile_of(layout, pieces) for layout, pieces in layouts(part.mapped)]
        return self._profiles[key]

    def _alone(self) -> Iterator[list[PlacedPart]]:
        """Everything on one accelerator, as it is planned there."""
        every = tuple(range(len(self._graph.layers)))
        for lane, accelerator in enumerate(self._chip.accelerators):
            if all(lane in cost for cost in self._cost):
                with suppress(PlanError):  # then a layer fits another one only
                    layout = best_layout(self._graph, accelerator)
                    ends = tuple((tensor, 0) for tensor in self._region.arguments)
                    yield [PlacedPart(OrientedPart(PartCut(lane, every), layout.mapped, ends, {}), layout)]


def _few(form: Sequence[Sequence[Option]]) -> Iterator[tuple[Option, ...]]:
    """The parts of a form with layouts of one kind each: not every combination."""
    for number in range(max(map(len, form))):
        yield tuple(options[min(number, len(options) - 1)] for options in form)
