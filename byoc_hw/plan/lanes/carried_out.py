"""Choices of a region on a chip, carried out: those of a plan that was searched, of the tuner, or of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import NoReturn

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.array.mapping import components
from byoc_hw.plan.bound.needs import all_keep_sums_whole
from byoc_hw.plan.chip_choices import ChipChoices, PartChoices, PartCut
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.compose import chip_plan, read_when_made, shares_make_all
from byoc_hw.plan.lanes.cut import Region, pixels_in
from byoc_hw.plan.lanes.finishing import Finishing, part_of_all
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, on_chip
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.layouts import in_pieces
from byoc_hw.plan.lanes.oriented import Oriented
from byoc_hw.plan.lanes.price import PlanCosts, prices
from byoc_hw.plan.lanes.shared_blocks import layers_of_blocks, tensors_of_blocks, with_shared_blocks
from byoc_hw.plan.lanes.together import Together
from byoc_hw.plan.layer_orders import LayerOrder, graph_in_order, own_order
from byoc_hw.plan.search.planner import map_choices, mapped_as
from byoc_hw.plan.stages import lay_out
from byoc_hw.remembered import Remembered
from byoc_hw.soc import Soc

_PARTS = 1000
"""The most parts that are remembered as they are laid out."""

_CUTS = 8
"""The most orders of layers, and choices of accelerators, whose cuts are remembered."""


def plan_of(region: Region, chip: Soc, parts: OrderedParts, lanes: Sequence[int], *, values: bool = True) -> ChipPlan:
    """The plan of parts in a possible order, with the choices that it follows from: parts that were cut for some
    accelerators of the chip. With the values of constants, or quicker without, as `chip_plan` says."""
    plan = chip_plan(region, chip, parts, values=values)
    cycles = lanes_timeline(plan).total  # as the core goes round, which the search leaves out
    return replace(plan, cycles=cycles, choices=_choices_of(parts, region, chip, lanes))


def _choices_of(ordered: OrderedParts, region: Region, chip: Soc, lanes: Sequence[int]) -> ChipChoices:
    parts = ordered.uncut or ordered.parts
    own = [part for part in parts if part.part.cut.layers]
    made = tuple(PartChoices(part.part.cut, part.layout.choices, part.pieces) for part in own)
    swapped = next((part.part.swapped for part in own), ())  # what was cut for a chip says so, if nothing else
    divided = any(part.has_a_share_of(chip) for part in parts)
    alone = bool(own) and not swapped
    blocks = layers_of_blocks(ordered.blocks, region)
    return ChipChoices(own_order(region.graph), tuple(lanes), swapped, made, alone, divided, blocks)


def with_layers_of(graph: Graph, order: LayerOrder, plan: ChipPlan) -> ChipPlan:
    """A plan of the layers of a graph in some order, as one of the graph."""
    parts = tuple(replace(part, layers=tuple(order[index] for index in part.layers)) for part in plan.parts)
    costs = dict(zip(order, plan.costs, strict=True)) if plan.costs else {}
    choices = None if plan.choices is None else replace(plan.choices, order=order)
    return replace(plan, graph=graph, parts=parts, costs=tuple(costs[at] for at in sorted(costs)), choices=choices)


@dataclass(frozen=True)
class _Cuts:
    """A region with its layers in some order as it is cut for some accelerators of a chip, by index, and how its parts
    are finished."""

    lanes: tuple[int, ...]
    oriented: Oriented
    finishing: Finishing


class CarriedOut:
    """Carries out choices on a region, whose layers are on accelerators that can run them. What it works out for some
    choices is there for others."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        self._graph, self._chip = graph, chip
        self._cuts, self._parts = Remembered[_Cuts](_CUTS), Remembered[PlacedPart](_PARTS)

    def placed(self, choices: ChipChoices) -> Iterator[tuple[int, int]]:
        """The accelerators and the layers of the region, by index, that they run. Raises `PlanError` where the choices
        do not fit the region or the chip."""
        self._cuts_of(choices)
        for part in choices.parts:
            yield from ((part.cut.lane, choices.order[index]) for index in part.cut.layers)

    def plan(self, choices: ChipChoices, most: float = inf, near: float = inf, *, values: bool = True) -> ChipPlan:
        """The plan that follows from choices, without its bound, and maybe without `values`; copies and jobs are cut
        where it takes fewer than `near` cycles otherwise.

        Raises `PlanError` where the choices do not fit the region or the chip, and beyond `most` copies and jobs.
        """
        cuts = self._cuts_of(choices)
        region, parts = cuts.oriented.region, self._ordered(choices, cuts, most, near)
        plan = plan_of(region, self._chip, parts, cuts.lanes, values=values)
        return with_layers_of(self._graph, choices.order, plan)

    def parts(self, choices: ChipChoices) -> tuple[Region, OrderedParts]:
        """The parts that choices make of the region, whose layers are in their order. As `plan`."""
        cuts = self._cuts_of(choices)
        return cuts.oriented.region, self._ordered(choices, cuts, inf, inf)

    def _ordered(self, choices: ChipChoices, cuts: _Cuts, most: float, near: float) -> OrderedParts:
        parts = [self._placed(choices, part, cuts) for part in choices.parts]
        parts += [] if choices.alone else cuts.finishing.copies()
        if sum(len(one.layout.work.ops) for one in parts) > most:
            self._refuse(f"at most {most} copies and jobs", "more")
        found = [one.part for one in parts]
        if not (read_when_made(found) and shares_make_all(found)):
            self._refuse("parts make all of what others read, and before", "parts that do not")
        finished = on_chip(cuts.finishing.of_parts(parts, near).ordered, self._chip, cuts.lanes)
        return with_shared_blocks(finished, self._chip, tensors_of_blocks(choices.blocks, cuts.oriented.region))

    def _refuse(self, rule: str, found: object) -> NoReturn:
        raise PlanError(f"{self._graph.name}: {rule}: got {found}")

    def _cuts_of(self, choices: ChipChoices) -> _Cuts:
        key = choices.order, choices.swapped, choices.lanes, choices.alone, choices.divided
        cuts = self._cuts.get(key) or self._cuts.keep(key, self._checked_cuts(choices))
        parts = [part.cut for part in choices.parts]
        self._check_parts(parts, cuts.oriented, cuts.lanes, alone=choices.alone)
        return cuts

    def _checked_cuts(self, choices: ChipChoices) -> _Cuts:
        graph, order, lanes = self._graph, choices.order, choices.lanes
        if not lanes or list(lanes) != [one for one in range(len(self._chip.accelerators)) if one in lanes]:
            self._refuse(f"regions are cut for accelerators of {self._chip.name}, by index", lanes)
        place = {layer: at for at, layer in enumerate(order)}
        reads = [{graph.made[one] for one in layer.inputs if one in graph.made} for layer in graph.layers]
        if sorted(order) != [*range(len(reads))] or any(place[one] > place[at] for at in order for one in reads[at]):
            self._refuse("the order has each layer once, behind what it reads", order)
        chip, region = self._chip.only(lanes), Region(graph_in_order(graph, order))
        count = max(components(region.graph), default=-1) + 1
        swapped = (False,) * count if choices.alone else choices.swapped
        if len(swapped) != count:
            self._refuse(f"{count} components of layers are swapped or not", swapped)
        own = chip.divided() if choices.divided else chip
        if own is None:
            self._refuse(f"accelerators {lanes} of {self._chip.name} share local memory that is divided", "none")
        oriented = Oriented(region, own, swapped)
        (price,) = prices(None, chip)
        return _Cuts(lanes, oriented, Finishing(oriented, chip, PlanCosts(price, Together())))

    def _check_parts(self, cuts: Sequence[PartCut], oriented: Oriented, lanes: Sequence[int], *, alone: bool) -> None:
        """Raise `PlanError` where parts do not have each layer once, as a whole or in shares."""
        layers = oriented.region.graph.layers
        forms: dict[tuple[int, ...], list[PartCut]] = {}
        for cut in cuts:
            forms.setdefault(cut.layers, []).append(cut)
        if [index for some in sorted(forms) for index in some] != [*range(len(layers))]:
            self._refuse("parts have consecutive layers, and all of them", sorted(forms))
        if any(cut.lane not in lanes for cut in cuts):
            self._refuse(f"parts are on accelerators {lanes}", cuts)
        for some, form in forms.items():
            first, *others = form
            if alone and (others or first.flat or first.rows):
                self._refuse("a part alone has all layers", form)
            row = len(some) == 1 and oriented.can_be_flat(some[0])
            if first.flat and not (row or (first.rows and oriented.has_pixels_alone(some))):
                self._refuse("pixels in one row are of layers that compute each by itself", first)
            if first.rows is None and not others:
                continue
            if any((one.axis, one.flat) != (first.axis, first.flat) or one.rows is None for one in form):
                self._refuse("shares of layers are along one axis", form)
            if len({one.lane for one in form}) < len(form) or first.axis not in oriented.axes(first):
                self._refuse("an accelerator has one share of layers, along an axis on which they can be cut", form)
            ofm = layers[some[-1]].ofm
            extent = pixels_in(ofm) if first.flat and first.axis == 1 else ofm.shape[first.axis]
            rows = sorted(one.rows for one in form if one.rows is not None)
            borders = [0, *(stop for _, stop in rows)]
            if rows != [*pairwise(borders)] or borders != sorted({*borders}) or borders[-1] != extent:
                self._refuse(f"shares of layers make {extent} together", form)

    def _placed(self, choices: ChipChoices, part: PartChoices, cuts: _Cuts) -> PlacedPart:
        key = choices.order, choices.swapped, cuts.lanes, choices.alone, choices.divided, part
        return self._parts.get(key) or self._parts.keep(key, self._laid_out(part, cuts, alone=choices.alone))

    def _laid_out(self, part: PartChoices, cuts: _Cuts, *, alone: bool) -> PlacedPart:
        region, choices = cuts.oriented.region, part.choices
        cut = replace(part.cut, lane=cuts.lanes.index(part.cut.lane))
        if alone:
            mapped = map_choices(region.graph, cuts.oriented.chip.accelerators[cut.lane], choices)
            return part_of_all(region, cut.lane, lay_out(mapped, choices))
        found = cuts.oriented.part(cut)
        if found is None:
            self._refuse("parts can be cut as they are", part.cut)
        if choices.swapped != found.mapped.mapping.swapped:
            self._refuse("components of a part are swapped as those of the region", choices.swapped)
        mapped = mapped_as(found.mapped, choices)
        if not all_keep_sums_whole(mapped, choices):
            self._refuse("layers whose sums are whole are in no slices of channels", part)
        layout = lay_out(mapped, choices)
        return PlacedPart(found, in_pieces(layout) if part.pieces else layout, part.pieces)
