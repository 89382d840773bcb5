"""Tunes one region on a chip: in rounds, choices near the best, as on one accelerator (`tune/rounds.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf
from random import Random

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.bound.needs import all_keep_sums_whole
from byoc_hw.plan.chip_choices import ChipChoices, PartChoices, PartCut
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.carried_out import CarriedOut
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.lanes.layer_forms import LayerForms, Several
from byoc_hw.plan.lanes.oriented import Oriented
from byoc_hw.plan.lanes.sharing import layer_costs
from byoc_hw.plan.lanes.within import sized_on_chip
from byoc_hw.plan.layer_orders import LayerOrder, graph_in_order
from byoc_hw.plan.search.within import Room
from byoc_hw.plan.steps import Started
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.rounds import Search
from byoc_hw.plan.tune.scores import Score
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.soc import Soc

_LONGEST = 8
"""The most layers of a part that two are joined to."""

_OTHER_BLOCKS = 0.1
"""How often, where tensors share blocks of main memory, these are changed."""


def chip_search(graph: Graph, chip: Soc, room: Room | None = None) -> Search[ChipChoices]:
    """The search for a region on a chip, as `region_search` on one accelerator."""
    fitting = None if room is None else room.choices
    own = fitting if isinstance(fitting, ChipChoices) else known_plan(graph, chip).choices
    assert own is not None, "the planner's plans follow from choices"
    return Search(graph, chip, ChipScores, ChipSpace(graph, chip), own, room)


class ChipScores:
    """The scores of choices of a region on a chip, whose plans `room` limits, or else RAM."""

    def __init__(self, graph: Graph, chip: Soc, room: Room | None = None) -> None:
        self._carried_out, self._ram, self._room = CarriedOut(graph, chip), chip.ram, room

    def __call__(self, choices: ChipChoices, most: float = inf, near: float | None = None) -> Score | None:
        """As `RegionScores`."""
        try:
            plan = self._carried_out.plan(choices, most, inf if near is None else near, values=False)
        except PlanError:
            return None
        steps = chain.from_iterable(part.plan.steps for part in plan.parts)
        operations = sum(isinstance(one, Started) for one in steps)
        room = self._room
        small = plan.scratch_bytes + plan.memory.constants <= self._ram
        fits = small if room is None else room.holds(sized_on_chip(plan, room.border))
        return Score(plan.cycles, operations, plan.scratch_bytes) if fits else None


_CutAs = tuple[LayerOrder, tuple[bool, ...], tuple[int, ...]]
"""What the forms of layers depend on: the order of the layers, what is swapped, and the accelerators, by index, among
which shared memories are divided, if they are."""


def _cut_as(choices: ChipChoices) -> _CutAs:
    return choices.order, choices.swapped, choices.lanes if choices.divided else ()


_Move = Callable[["ChipSpace", ChipChoices, Random], "list[PartChoices] | None"]


class ChipSpace:
    """The choices of a region on a chip: of each part those of its layers, how layers are cut, on which accelerators,
    and the order of the parts; which tensors share blocks, where any do, as they do where RAM is short. The order of
    the layers stays, and what is swapped."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        self._graph, self._chip, self._several = graph, chip, Several()
        self.graph_in, self._known_forms = cache(self._graph_in), cache(self._forms_of)
        self._known_parts, self.alone = cache(self._of_part), cache(self._alone)

    def start(self, own: ChipChoices) -> ChipChoices:
        """The planner's own."""
        return own

    def at_least(self) -> float:
        """All choices are never tried."""
        return inf

    def everything(self) -> Iterator[ChipChoices]:
        """All choices are never tried."""
        yield from ()

    def moved(self, choices: ChipChoices, random: Random) -> ChipChoices:
        """Choices after one random move; the same ones where it is impossible."""
        if choices.alone:
            (part,) = choices.parts
            moved = step(self.alone(choices.order, part.cut.lane), part.choices, random)
            return replace(choices, parts=(replace(part, choices=moved),))
        if choices.blocks and random.random() < _OTHER_BLOCKS:
            return replace(choices, blocks=self._other_blocks(choices, random))
        (move,) = random.choices(_MOVES, _WEIGHTS)
        found = move(self, choices, random) if choices.parts else None
        if found is None:
            return choices
        parts = _in_possible_order(found, self.graph_in(choices.order))
        lanes = {*choices.lanes, *(part.cut.lane for part in parts)}
        return replace(choices, lanes=tuple(sorted(lanes)), parts=tuple(parts))

    def _graph_in(self, order: LayerOrder) -> Graph:
        return graph_in_order(self._graph, order)

    def forms(self, choices: ChipChoices) -> LayerForms:
        """The forms of layers, in the order of choices and on the memories that they give."""
        return self._known_forms(*_cut_as(choices))

    def _forms_of(self, order: LayerOrder, swapped: tuple[bool, ...], sharing: tuple[int, ...]) -> LayerForms:
        region, divided = Region(self.graph_in(order)), self._chip.divided(sharing) if sharing else None
        chip = divided or self._chip
        oriented = Oriented(region, chip, swapped)
        forms = LayerForms(region, chip, layer_costs(region.graph, chip), several=self._several, oriented=oriented)
        forms.packs = any(one.packed_rows for one in chip.accelerators)
        return forms

    def of_part(self, choices: ChipChoices, cut: PartCut) -> SearchSpace | None:
        """The choices of a part; None of layers that run as a whole, or are not cut so."""
        return self._known_parts(_cut_as(choices), cut)

    def _of_part(self, cut_as: _CutAs, cut: PartCut) -> SearchSpace | None:
        part = self._known_forms(*cut_as).oriented.part(cut)
        if part is None or part.mapped.whole:
            return None
        accelerator = part.mapped.accelerator
        tuning = replace(accelerator.tuning, swap=False)
        return SearchSpace(part.mapped.graph, replace(accelerator, tuning=tuning))

    def _alone(self, order: LayerOrder, lane: int) -> SearchSpace:
        return SearchSpace(self.graph_in(order), self._chip.accelerators[lane])

    def _other_blocks(self, choices: ChipChoices, random: Random) -> tuple[tuple[int, ...], ...]:
        """The blocks with a tensor in another one, or in its own."""
        graph = self.graph_in(choices.order)
        moved = random.choice([index for index, layer in enumerate(graph.layers) if layer.ofm not in graph.outputs])
        among = [[index for index in block if index != moved] for block in choices.blocks]
        random.choice([*among, []]).append(moved)
        return tuple(sorted(tuple(sorted(block)) for block in among if len(block) > 1))

    # ------------------------------------------------------------ what moves have in common

    def laid_out(self, choices: ChipChoices, cut: PartCut, random: Random) -> PartChoices | None:
        """A new part in one of the layouts that the planner tries; None where it has none."""
        forms = self.forms(choices)
        options = forms.options(cut, forms.first)
        if not options:
            return None
        profile = options[min(int(random.expovariate(1.0)), len(options) - 1)].profile
        return PartChoices(cut, profile.choices, profile.pieces)

    def like(self, choices: ChipChoices, part: PartChoices, cut: PartCut, random: Random) -> PartChoices | None:
        """A part with another share of its layers: with the choices that it has, or in another layout."""
        space = self.of_part(choices, cut)
        if space is None or random.random() < 0.3:
            return self.laid_out(choices, cut, random)
        found = part_with(space, part, part.choices)
        return None if found is None else replace(found, cut=cut)

    def cut_otherwise(
        self, choices: ChipChoices, spans: Sequence[tuple[int, int]], random: Random
    ) -> list[PartChoices] | None:
        """The parts with layers of each span, which are those of some parts together, cut in a random way."""
        forms, found = self.forms(choices), list[PartChoices]()
        for first, stop in spans:
            cuts = forms.cuts(first, stop)
            if not cuts:
                return None
            made = [self.laid_out(choices, cut, random) for cut in random.choice(cuts)]
            if None in made:
                return None
            found += [part for part in made if part is not None]
        return _with_parts(choices.parts, found)


def part_with(space: SearchSpace, part: PartChoices, choices: Choices) -> PartChoices | None:
    """A part with other choices for its layers, as far as it may have them; None where it may not."""
    fixed = {name: getattr(part.choices, name) for name in ("swapped", "copies_transpose", "jobs_transpose")}
    try:
        found = replace(space.canonical(replace(choices, **fixed)), **fixed)
        mapped = space.groups_of(found).mapped
    except PlanError:
        return None
    return replace(part, choices=found) if all_keep_sums_whole(mapped, found) else None


# ---------------------------------------------------------------- moves


def _step(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Change the choices of a part's layers a little, or whether its copies and jobs are cut, or its inputs loaded in
    pieces."""
    at = random.randrange(len(choices.parts))
    part = choices.parts[at]
    inner = space.of_part(choices, part.cut)
    if inner is None:
        return None
    found: PartChoices | None = None
    kind = random.random()
    if kind < 0.1:
        found = replace(part, pieces=not part.pieces)
    elif kind < 0.2:
        found = replace(part, choices=replace(part.choices, fine=not part.choices.fine))
    else:
        with suppress(PlanError):
            found = part_with(inner, part, step(inner, part.choices, random))
    return None if found is None else [*choices.parts[:at], found, *choices.parts[at + 1 :]]


def _lay_out(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Give a part another layout."""
    at = random.randrange(len(choices.parts))
    found = space.laid_out(choices, choices.parts[at].cut, random)
    return None if found is None else [*choices.parts[:at], found, *choices.parts[at + 1 :]]


def _share(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Move the border of two shares of layers."""
    form = random.choice(_forms_of(choices))
    by_rows = sorted((part for part in form if part.cut.rows is not None), key=lambda part: part.cut.rows or (0, 0))
    forms = space.forms(choices)
    shifted = list(forms.shifted_cuts([part.cut for part in by_rows]))
    if not shifted:
        return None
    found = list[PartChoices]()
    for part, cut in zip(by_rows, random.choice(shifted), strict=True):
        changed = part if cut == part.cut else space.like(choices, part, cut, random)
        if changed is None:
            return None
        found.append(changed)
    return _with_parts(choices.parts, found)


def _cut(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Cut layers in another way, or run them elsewhere."""
    return space.cut_otherwise(choices, [random.choice(_spans(choices))], random)


def _join(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Join the layers of parts that follow each other."""
    spans = _spans(choices)
    at = random.randrange(len(spans))
    if at + 1 == len(spans) or spans[at + 1][1] - spans[at][0] > _LONGEST:
        return None
    return space.cut_otherwise(choices, [(spans[at][0], spans[at + 1][1])], random)


def _split(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Split the layers of a part in two, or move a layer from parts to those behind."""
    spans = _spans(choices)
    at = random.randrange(len(spans))
    first, last = spans[at][0], spans[min(at + random.randrange(2), len(spans) - 1)][1]
    forms = space.forms(choices)
    middles = [middle for middle in range(first + 1, last) if forms.may_stop(middle)]
    if not middles or last - first > _LONGEST:
        return None
    middle = random.choice(middles)
    return space.cut_otherwise(choices, [(first, middle), (middle, last)], random)


def _move(space: ChipSpace, choices: ChipChoices, random: Random) -> list[PartChoices] | None:
    """Have an accelerator do a part before another one of its own, or behind it."""
    graph = space.graph_in(choices.order)
    places = range(len(choices.parts))
    lanes = [part.cut.lane for part in choices.parts]
    pairs = [(at, to) for at in places for to in places if at != to and lanes[at] == lanes[to]]
    for at, to in random.sample(pairs, len(pairs)):
        parts = list(choices.parts)
        parts.insert(to, parts.pop(at))
        found = _in_possible_order(parts, graph)
        if [part for part in found if part.cut.lane == lanes[at]] != [
            part for part in choices.parts if part.cut.lane == lanes[at]
        ]:
            return found
    return None


_MOVES: tuple[_Move, ...] = _step, _lay_out, _share, _cut, _join, _split, _move
_WEIGHTS = 8, 2, 3, 2, 1, 1, 1


def _forms_of(choices: ChipChoices) -> list[list[PartChoices]]:
    """The parts that share the same layers."""
    found: dict[tuple[int, ...], list[PartChoices]] = {}
    for part in choices.parts:
        found.setdefault(part.cut.layers, []).append(part)
    return [found[layers] for layers in sorted(found)]


def _spans(choices: ChipChoices) -> list[tuple[int, int]]:
    """The first layer of each form, and the first behind it."""
    return [(form[0].cut.layers[0], form[0].cut.layers[-1] + 1) for form in _forms_of(choices)]


def _with_parts(parts: Sequence[PartChoices], made: Sequence[PartChoices]) -> list[PartChoices]:
    """Parts with others in place of those that have the same layers, where the first of these was."""
    layers = {layer for part in made for layer in part.cut.layers}
    gone = [at for at, part in enumerate(parts) if layers.intersection(part.cut.layers)]
    left = [part for part in parts if not layers.intersection(part.cut.layers)]
    return [*left[: gone[0]], *made, *left[gone[0] :]]


def _in_possible_order(parts: Sequence[PartChoices], graph: Graph) -> list[PartChoices]:
    """Parts in their order, but for those that read what parts behind them make: they come as early as they can."""
    made = graph.made
    reads = {
        part.cut.layers: {
            made[tensor]
            for index in part.cut.layers
            for tensor in graph.layers[index].inputs
            if tensor in made and made[tensor] not in part.cut.layers
        }
        for part in parts
    }
    left, found = list(parts), list[PartChoices]()
    while left:
        open_ = {layer for part in left for layer in part.cut.layers}
        part = next(part for part in left if not reads[part.cut.layers] & open_)
        left.remove(part)
        found.append(part)
    return found
