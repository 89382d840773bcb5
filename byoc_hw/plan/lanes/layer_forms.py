"""The forms of layers: as one part of an accelerator, or as a part on each of several, with layouts of each part."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise, starmap, zip_longest
from math import inf, prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Reshape
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.mapping import worth_swapping
from byoc_hw.plan.bound.ways import weight_bytes
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.every import FormOfLayers
from byoc_hw.plan.lanes.handover import as_handed_over
from byoc_hw.plan.lanes.joint import PlacedPart
from byoc_hw.plan.lanes.layouts import layouts
from byoc_hw.plan.lanes.oriented import Oriented, OrientedPart, part_structure
from byoc_hw.plan.lanes.parts_in_runs import PartsInRuns
from byoc_hw.plan.lanes.profile import Option, Profile, profile_of
from byoc_hw.plan.lanes.sharing import LayerCosts, Sharing
from byoc_hw.plan.search.planner import packings
from byoc_hw.soc import Soc

_LONGEST = 3
_LONGEST_OF_FEW = 6
"""The most layers of a part that is tried at first; in regions of up to `_FEW` layers it may be longer."""

_FEW = 8

_SMALL = 16
"""The most layers of a region whose beam has parts of several layers, too. In larger ones the improvement joins
them."""

_FIRST = 4
_FIRST_OF_MANY = 3
"""The layouts of a part that are tried everywhere, in small regions and in larger ones, whose many parts take long to
lay out: the others are tried for parts of the best plan so far."""

_LAID_OUT = 1_000
"""No further layout of a part is tried when those so far have so many copies and jobs."""

_SLOW = 3
"""Layers are not as a whole where they take more than so many times the cycles of the fastest accelerator, unless they
fit nowhere else."""

Style = tuple[tuple[int, ...], int]
"""The accelerators that share layers, and the dimension that is cut; 0 for layers that are whole."""


def style_of(form: FormOfLayers) -> Style:
    """The accelerators of a form, and the dimension that is cut."""
    cut = form[0].part.cut
    return tuple(one.part.cut.lane for one in form), cut.axis if cut.rows is not None else 0


@dataclass(frozen=True)
class Several:
    """So many searches on one chip that share the time of one, for plans that take fewer cycles than are `known`, and
    the layouts that they know, by accelerator: `kinds` has those that differ in more than their names, `in_runs` the
    measured runs of their parts."""

    count: int = 1
    known: float = inf
    profiles: dict[object, tuple[list[Profile], Iterator[Profile]]] = field(default_factory=dict)
    kinds: list[Accelerator] = field(default_factory=list)
    in_runs: list[PartsInRuns] = field(default_factory=list)

    def kind(self, accelerator: Accelerator) -> int:
        """The number of an accelerator among those that differ."""
        one = replace(accelerator, name="any", label="any")
        if one not in self.kinds:
            self.kinds.append(one)
            self.in_runs.append(PartsInRuns(one))
        return self.kinds.index(one)


@dataclass
class _Known:
    """A part, and its layouts that were asked for: by form, without packed rows and with them, and as they were asked
    for, so many of each form, with packed rows or not, measured or not. `least` has the cycles that it takes at least,
    with packed rows or not."""

    part: OrientedPart | None
    options: tuple[list[Option], list[Option]] = field(default_factory=lambda: ([], []))
    asked: dict[tuple[int | None, bool, bool], list[Option]] = field(default_factory=dict)
    least: dict[bool, tuple[int, float]] = field(default_factory=dict)

    @cached_property
    def packed(self) -> list[MappedGraph]:
        """The part with packed rows, where these are worth it."""
        return [] if self.part is None else list(packings(self.part.mapped))[:-1]


class LayerForms:
    """The forms of the layers of a region.

    Without `swap` no component is swapped; `oriented` says otherwise which are. With `in_place` it is as if parts
    handed over all that they can in local memory that accelerators share. Rows are packed, where that is worth it, only
    if it `packs`; parts that local memory has no room for are in measured runs as well if it `measures`. `several`
    searches know the same layouts.
    """

    def __init__(
        self,
        region: Region,
        chip: Soc,
        costs: LayerCosts,
        swap: bool = True,
        in_place: bool = False,
        several: Several | None = None,
        oriented: Oriented | None = None,
    ) -> None:
        several = several or Several()
        self._region, self._chip, self._layers = region, chip, region.graph.layers
        self._cost, self._in_place = costs, in_place
        fastest = [chip.accelerators[min(cost, key=cost.__getitem__)] for cost in costs]
        swapped = [swap and one for one in worth_swapping(region.graph, fastest)]
        self.oriented = oriented or Oriented(region, chip, swapped, swap)
        self._sharing = Sharing(region.graph, chip, self.oriented, costs)
        self._kinds, self._several = list(map(several.kind, chip.accelerators)), several
        self._known: dict[PartCut, _Known] = {}
        self.packs = self.measures = False
        count = len(self._layers)
        self.borders = [0, *(stop for stop in range(1, count + 1) if self.may_stop(stop))]
        self.lanes, self.small = len(self._chip.accelerators), count <= _SMALL
        self.longest = _LONGEST_OF_FEW if count <= _FEW else _LONGEST
        self.first = _FIRST if self.small else _FIRST_OF_MANY

    def may_stop(self, stop: int) -> bool:
        """Whether a part may end before a layer: a reshape of several pixels stays with the layer before it, unless
        that is a library's and others read its output, too."""
        if stop == len(self._layers) or not isinstance(self._layers[stop], Reshape):
            return True
        ifm = self._layers[stop].ifm
        if ifm is not self._layers[stop - 1].ofm or prod(ifm.shape) == ifm.shape[-1]:
            return True
        whole = any(self._chip.accelerators[lane].library for lane in self._cost[stop - 1])
        return whole and self._region.leaves(ifm, (stop,))

    def of(
        self,
        at: int,
        stop: int,
        *,
        more: bool = False,
        styles: Container[Style] | None = None,
        useless: Callable[[PartCut], bool] | None = None,
        whole: bool = False,
        most: int | None = None,
    ) -> Iterator[list[list[Option]]]:
        """The layers as parts, with a few layouts of each, or at most `most` of each form of it: on one accelerator, or
        cut over several. With `useless` without forms of such parts."""
        cuts, slow = self._cuts(at, stop, more=more, styles=styles, whole=whole)
        found = False
        for form in cuts:
            if found and len(form) == 1 and form[0].lane in slow:
                continue  # a share of the layers at most
            if useless is not None and any(map(useless, form)):
                found = True
                continue
            parts = [self.options(cut, most or self.first) for cut in form]
            if all(parts):
                found = True
                yield parts if useless is not None or more or styles else [one[: self.first] for one in parts]

    def cuts(self, at: int, stop: int) -> list[list[PartCut]]:
        """The layers as parts: on one accelerator, or cut over several, in all ways that are tried."""
        return self._cuts(at, stop, more=True, styles=None, whole=False)[0]

    def _cuts(
        self, at: int, stop: int, *, more: bool, styles: Container[Style] | None, whole: bool
    ) -> tuple[list[list[PartCut]], list[int]]:
        """The layers as parts, and the accelerators that are slow for all of them."""
        indices = tuple(range(at, stop))
        lanes = [lane for lane in range(self.lanes) if all(lane in self._cost[one] for one in indices)]
        plain, flat = PartCut(0, indices), PartCut(0, indices, flat=True)
        way = flat if stop - at == 1 and self.oriented.can_be_flat(at) else plain
        cut = flat if way is flat or self.oriented.has_pixels_alone(indices) else plain
        cycles = {lane: sum(self._cost[one][lane] for one in indices) for lane in lanes}
        slow = [lane for lane in lanes if cycles[lane] > _SLOW * min(cycles.values())]
        cuts: list[list[PartCut]] = []
        for lane in (*(one for one in lanes if one not in slow), *slow):
            if styles is None or ((lane,), 0) in styles:
                cuts.append([replace(plain if self._chip.accelerators[lane].library else way, lane=lane)])
        for count in range(2, len(lanes) + 1) if not whole else ():
            for chosen in combinations(lanes, count):
                for axis in self.oriented.axes(cut):
                    if styles is None or (chosen, axis) in styles:
                        cuts += self._sharing.shares(replace(cut, axis=axis), chosen, more=more)
        return cuts, slow

    def shifted(self, form: FormOfLayers) -> Iterator[list[list[Option]]]:
        """A form whose shares are larger or smaller where they meet."""
        for cuts in self.shifted_cuts([one.part.cut for one in form]):
            parts = [self.options(cut, self.first) for cut in cuts]
            if all(parts):
                yield parts

    def shifted_cuts(self, cuts: Sequence[PartCut]) -> Iterator[list[PartCut]]:
        """Shares of layers of which two are larger or smaller where they meet."""
        for border, (one, other) in enumerate(pairwise(cuts)):
            assert one.rows is not None
            assert other.rows is not None
            for shift in self._sharing.steps(one, other):
                middle = one.rows[1] + shift
                halves = [replace(one, rows=(one.rows[0], middle)), replace(other, rows=(middle, other.rows[1]))]
                yield [*cuts[:border], *halves, *cuts[border + 2 :]]

    def options(self, cut: PartCut, most: int | None) -> list[Option]:
        """A part in its layouts, or in the first ones of each form: one of each form in turn, the faster form first."""
        known, found = self._known_of(cut), []
        key = most, self.packs, self.measures
        if key in known.asked:
            return known.asked[key]
        for form, options in zip(self._forms(cut), known.options, strict=False):
            assert known.part is not None, "it has forms"
            options += [Option(known.part, one) for one in self._profiles_of(known.part, form, most)[len(options) :]]
            found.append(options[:most])
        found.sort(key=lambda options: options[0].profile.cycles if options else 0)
        options = [option for several in zip_longest(*found) for option in several if option is not None]
        if self.measures and options and not self._in_place:
            options = [*self._several.in_runs[self._kinds[cut.lane]].faster(options), *options]
        known.asked[key] = options
        return options

    def least(self, cut: PartCut) -> tuple[int, float]:
        """Cycles that the jobs and the copies of weights of a part take at least, in any layout."""
        known = self._known_of(cut)
        if self.packs not in known.least:
            jobs, copies = min((form.array_cycles for form in self._forms(cut)), default=0), 0.0
            if known.part is not None and not known.part.mapped.whole:
                weights = sum(map(weight_bytes, known.part.mapped.graph.layers))
                copies = weights / self._chip.accelerators[cut.lane].dma_width
            known.least[self.packs] = jobs, copies
        return known.least[self.packs]

    def _known_of(self, cut: PartCut) -> _Known:
        if cut not in self._known:
            self._known[cut] = _Known(self.oriented.part(cut))
        return self._known[cut]

    def _forms(self, cut: PartCut) -> Iterator[MappedGraph]:
        """A part as it is mapped, and with packed rows if these are tried."""
        known = self._known_of(cut)
        if known.part is not None:
            yield known.part.mapped
            if self.packs:
                yield from known.packed

    def _profiles_of(self, part: OrientedPart, form: MappedGraph, most: int | None) -> list[Profile]:
        outside = self._region.arguments
        in_place = self._in_place and bool(self._chip.group_of(part.cut.lane))
        border = tuple(tensor in outside for tensor, _ in part.arguments) if in_place else ()
        key = self._kinds[part.cut.lane], part_structure(form), form.mapping.packed, border
        if key not in self._several.profiles:
            found = layouts(form)
            if in_place:
                found = ((as_handed_over(PlacedPart(part, one), outside), pieces) for one, pieces in found)
            self._several.profiles[key] = [], starmap(profile_of, found)
        known, others = self._several.profiles[key]
        while most is None or len(known) < most:
            left = _LAID_OUT - sum(len(one.actions) for one in known)
            following = next(others, None) if left > 0 else None
            if following is None:
                break
            known.append(following)
        return known
