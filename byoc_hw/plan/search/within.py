"""The plans of a region under a bound: on its bytes of main memory, of flash, or of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.planned import table_bytes
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import (
    ENOUGH,
    ROOM,
    candidates,
    layer_by_layer,
    mapped_as,
    mappings,
    packings,
    placements,
)
from byoc_hw.plan.stages import Layout, lay_out, without_constants, written
from byoc_hw.plan.steps import RegionPlan

_STEP_PRICES = (50.0, 1000.0)
"""Cycles that a layer in a stripe is charged where plans with fewer copies and jobs are searched, for less flash."""

_TRIES = 4
"""How often the bound is lowered where plans turn out larger than their estimates."""


@dataclass(frozen=True)
class Border:
    """The arguments of a region that lie in the arena only while it uses them: bytes by index of the argument.

    An input is one that nothing reads later, an output one that nothing has written before.
    """

    inputs: Mapping[int, int]
    outputs: Mapping[int, int]


@dataclass(frozen=True)
class Sized:
    """A region that is laid out, with its bytes of main memory at the peak, and of flash."""

    layout: Layout
    ram: int
    flash: int

    @property
    def cycles(self) -> int:
        """Accelerator cycles of the region."""
        return self.layout.cycles

    @property
    def choices(self) -> Choices:
        """What the plan follows from."""
        return self.layout.choices

    @cached_property
    def plan(self) -> RegionPlan:
        """The plan as it is written down."""
        return written(self.layout)


def sized(layout: Layout, border: Border) -> Sized:
    """The sizes of a region that is laid out."""
    plan = without_constants(layout)
    return Sized(layout, plan.memory.peak(border.inputs, border.outputs), layout.flash.nbytes + table_bytes(plan))


@dataclass(frozen=True)
class Room:
    """The limits of one region: bytes of main memory, with the arguments of its border, and of flash.

    `choices` are those of a plan that fits, None for the planner's own.
    """

    border: Border
    ram: int
    flash: int
    choices: Choices | ChipChoices | None = None

    def holds(self, size: _Sizes) -> bool:
        """Whether a plan keeps to the limits."""
        return size.ram <= self.ram and size.flash <= self.flash


class _Sizes(Protocol):
    @property
    def ram(self) -> int: ...

    @property
    def flash(self) -> int: ...


class _Measured(Protocol):
    @property
    def cycles(self) -> int: ...

    @property
    def flash(self) -> int: ...


_SizedPlan = TypeVar("_SizedPlan", bound=_Measured)


def with_less_and_less_flash(plans: Iterable[_SizedPlan]) -> list[_SizedPlan]:
    """The fastest of some plans, and slower ones, each with less flash than all that are faster."""
    found: list[_SizedPlan] = []
    for one in sorted(plans, key=lambda one: (one.cycles, one.flash)):
        if not found or one.flash < found[-1].flash:
            found.append(one)
    return found


class SizedPlans:
    """The plans of a region that a search has found so far, by their sizes, and the search for further ones."""

    def __init__(self, graph: Graph, accelerator: Accelerator, border: Border) -> None:
        self._graph, self._accelerator, self._border = graph, accelerator, border
        counted = {*border.inputs, *border.outputs}
        self._groupings = [
            Grouping(placed, counted)
            for mapped in mappings(graph, accelerator)
            for form in packings(mapped)
            for placed in placements(form)
        ]
        self._found: dict[Choices, Sized | None] = {}
        for mapped, _, forms in candidates(graph, accelerator):
            for tried in forms:
                for choices in tried:
                    made = self._try(mapped, choices)
                    if made is not None and len(made.layout.work.ops) > ENOUGH:
                        break

    def within(self, ram: int) -> Sized | None:
        """The fastest plan with at most so many bytes of main memory; None where none is found."""
        bound = ram
        for _ in range(_TRIES):
            made = list(self._searched(lambda grouping, room: grouping.best(room, bound)))  # noqa: B023
            if not made or any(one.ram <= ram for one in made):
                break
            bound -= min(one.ram for one in made) - ram
        return min(self._fitting(ram), key=lambda one: (one.cycles, one.ram, one.flash), default=None)

    def smallest(self) -> Sized:
        """The plan with the fewest bytes of main memory; of several the one with the least flash, then the fastest.

        Raises `PlanError` naming a layer that does not fit the accelerator.
        """

        def least(grouping: Grouping, room: float) -> Choices | None:
            bound = grouping.least(room)
            return None if bound is None else grouping.best(room, bound)

        list(self._searched(least))
        found = list(self._sized()) or [sized(layer_by_layer(self._graph, self._accelerator), self._border)]
        return min(found, key=lambda one: (one.ram, one.flash, one.cycles))

    def with_less_flash(self, ram: int) -> list[Sized]:
        """Plans with at most so many bytes of main memory: the fastest, and slower ones with less and less flash."""
        for price in _STEP_PRICES:
            list(self._searched(lambda grouping, room: grouping.priced(price).best(room, ram)))  # noqa: B023
        return with_less_and_less_flash(self._fitting(ram))

    def _fitting(self, ram: int) -> Iterator[Sized]:
        return (one for one in self._sized() if one.ram <= ram)

    def _sized(self) -> Iterator[Sized]:
        return (one for one in self._found.values() if one is not None)

    def _searched(self, search: Callable[[Grouping, float], Choices | None]) -> Iterator[Sized]:
        """Search with each part of local memory; the plans that come of it."""
        for grouping in self._groupings:
            for room in ROOM:
                choices = search(grouping, room)
                made = None if choices is None else self._try(grouping.mapped, choices)
                if made is not None:
                    yield made
                    if len(made.layout.work.ops) > ENOUGH:
                        break

    def _try(self, mapped: MappedGraph, choices: Choices) -> Sized | None:
        if choices not in self._found:
            try:
                self._found[choices] = sized(lay_out(mapped_as(mapped, choices), choices), self._border)
            except PlanError:
                self._found[choices] = None  # the estimate was too bold
        return self._found[choices]
