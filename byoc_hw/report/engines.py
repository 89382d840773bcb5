"""Which accelerators of a chip run each operator, and what it takes on each of them by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from byoc_hw.graph import Layer
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.soc import Soc


def engines_of(plans: Mapping[str, ChipPlan]) -> dict[str, str]:
    """A line for each source operator of the regions: its accelerators, and its cycles on each that could run it."""
    found: dict[str, list[str]] = {}
    for plan in plans.values():
        for index, layer in enumerate(plan.graph.layers):
            if plan.costs[index] and max(plan.costs[index].values()):  # a reshape takes nothing anywhere
                text = f"on {_shares(plan, index)}; alone {', '.join(_candidates(plan, index))}"
                for name in layer.source or (layer.name,):
                    found.setdefault(name, []).append(text)
    return {name: " | ".join(texts) for name, texts in found.items()}


def _shares(plan: ChipPlan, index: int) -> str:
    """The accelerators that compute a layer, and how much of its output each, if several do."""
    elements: dict[int, int] = {}
    for part in plan.parts:
        for place, there in enumerate(part.layers):
            if there == index:
                piece = part.plan.graph.layers[place].ofm.elements
                elements[part.lane] = elements.get(part.lane, 0) + piece
    names = {plan.chip.accelerators[lane].name: count for lane, count in sorted(elements.items())}
    if len(names) == 1:
        return next(iter(names))
    whole = plan.graph.layers[index].ofm.elements
    return " and ".join(f"{name} ({count / whole:.0%})" for name, count in names.items())


def _candidates(plan: ChipPlan, index: int) -> Iterator[str]:
    """What the layer's jobs take on each accelerator, or the first rule of the accelerator that it breaks."""
    layer, costs = plan.graph.layers[index], plan.costs[index]
    for lane, accelerator in enumerate(plan.chip.accelerators):
        if lane in costs:
            yield f"{accelerator.name} {costs[lane]:,} cycles"
        else:
            yield f"{accelerator.name} not: {_reason(layer, plan.chip, lane)}"


def _reason(layer: Layer, chip: Soc, lane: int) -> str:
    rule, check = next(iter(chip.accelerators[lane].broken_rules(layer)))
    return f"{rule.text}: got {check.found}"
