"""The planner's interface: the plan of one region."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph, Layer
from byoc_hw.objective import Objective
from byoc_hw.plan.array.alike_layer import AlikeLayer
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.chip_plan import CHIP_STAGES, ChipPlan
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.lanes.planner import NO_WISHES, plan_as_chosen
from byoc_hw.plan.library import library_plan
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.search.planner import best_layout, layer_by_layer, map_choices
from byoc_hw.plan.search.single_layer import MOST_STEPS
from byoc_hw.plan.stages import STAGES, Layout, lay_out, written
from byoc_hw.plan.steps import RegionPlan
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.soc import Hardware, Soc


def plan_region(
    graph: Graph,
    accelerator: Hardware,
    choices: Choices | ChipChoices | None = None,
    place: Mapping[str, str] = NO_WISHES,
    objective: Objective | None = None,
) -> PlannedRegion:
    """Plan one region, on a library, on a HAL, or on several. `choices` replace the planner's own, on one HAL or on a
    chip. There, `place` has accelerators by name for layers, model operators and layer kinds, and the plan is for
    `objective`, both where there are no choices.

    Raises `GraphError` for a graph that breaks its own rules, `PlanError` where a layer does not fit the
    accelerator, or the choices do not fit graph or accelerator, `Unsupported` for a layer that the library has
    no call for.
    """
    if choices is not None and isinstance(choices, ChipChoices) != isinstance(accelerator, Soc):
        raise PlanError(f"{graph.name}: choices are for {accelerator.label}: got others")
    if isinstance(accelerator, Soc):
        graph.verify()
        if isinstance(choices, ChipChoices):
            return plan_as_chosen(graph, accelerator, choices)
        return known_plan(graph, accelerator, place, objective)
    if accelerator.library is None:
        assert not isinstance(choices, ChipChoices), "it is no chip"
        return plan_tiles(graph, accelerator, choices)
    if choices is not None:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} is driven by whole-layer calls: nothing to tile")
    return library_plan(graph, accelerator)


def plan_tiles(graph: Graph, accelerator: Accelerator, choices: Choices | None = None) -> RegionPlan:
    """As `plan_region`, for an accelerator with a HAL.

    The region's arguments, its scratch and its flash start at a multiple of 4 bytes
    and of the DMA's alignment. Scratch is placed by lifetime for this region alone; `placed` of
    the plan moves it among the tensors of a whole model. Arguments may share bytes where `memory`
    of the plan says that they are never live together.
    """
    return written(lay_out_region(graph, accelerator, choices))


@seldom_collected()
def lay_out_region(graph: Graph, accelerator: Accelerator, choices: Choices | None = None) -> Layout:
    """The stages before the steps are written, for inspection. As `plan_tiles`."""
    if accelerator.library is not None:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} is driven by whole-layer calls: nothing to tile")
    graph.verify()  # first: every stage below trusts shapes and order
    for layer in graph.layers:
        if accelerator.runs_whole(layer):
            raise PlanError(f"{layer.name}: {_NO_LANES.format(kind=layer.kind, accelerator=accelerator.name)}")
    if choices is None:
        return known_layout(graph, accelerator)
    return lay_out(map_choices(graph, accelerator, choices), choices, exact=True)


def stage_of(name: str, graph: Graph, hardware: Hardware, choices: Choices | ChipChoices | None = None) -> object:
    """A region at one of the `STAGES` of planning, or of the `CHIP_STAGES`, as `plan_region`: its text shows it."""
    if isinstance(hardware, Soc):
        plan = plan_region(graph, hardware, choices)
        assert isinstance(plan, ChipPlan)
        return CHIP_STAGES[name](plan)
    assert not isinstance(choices, ChipChoices), "it is no chip"
    return STAGES[name](lay_out_region(graph, hardware, choices))


_NO_LANES = "a layer of kind {kind} runs beside the host on a chip, as of Soc(({accelerator},)): got one accelerator"


def why_no_plan(layer: Layer, accelerator: Hardware) -> str | None:
    """Why a layer cannot be planned by itself, or None. A region of layers without such a reason has a plan."""
    if isinstance(accelerator, Soc):
        reasons = [_why_not_alone(layer, one) for one in accelerator.supporting(layer)]
        return None if None in reasons else "; ".join(filter(None, reasons))
    if accelerator.library is None and accelerator.runs_whole(layer):
        return _NO_LANES.format(kind=layer.kind, accelerator=accelerator.name)
    return _why_not_alone(layer, accelerator)


def _why_not_alone(layer: Layer, accelerator: Accelerator) -> str | None:
    try:
        if accelerator.library is not None:
            library_plan(Graph.of_layer(layer), accelerator)
        elif accelerator.runs_whole(layer):
            best_layout(Graph.of_layer(layer), accelerator)
        else:
            _check_tiles(AlikeLayer.of(layer), accelerator)
    except PlanError as error:
        return str(error)
    return None


@lru_cache(maxsize=1024)
def _check_tiles(alike: AlikeLayer, accelerator: Accelerator) -> None:
    """Raise `PlanError` for a layer that cannot be planned by itself. That one can is known for all that are alike."""
    layer_by_layer(Graph.of_layer(alike.layer), accelerator, most=MOST_STEPS)
