"""What each operator takes on each accelerator by itself and on the host, and which of them run it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.host_costs import host_instructions
from byoc_hw.objective import HOST
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.soc import Hardware, Soc
from byoc_hw.tensor import bits_of


def engines_of(plans: Mapping[str, PlannedRegion], hardware: Hardware) -> dict[str, str]:
    """A line for each source operator of the regions: its accelerators, and its cycles on each candidate."""
    if not isinstance(hardware, Soc):
        return costs_of({name: plan.graph for name, plan in plans.items()}, hardware)
    lines: list[tuple[Layer, str]] = []
    for plan in plans.values():
        for index, layer in enumerate(plan.graph.layers):
            if isinstance(plan, ChipPlan) and plan.costs[index] and max(plan.costs[index].values()):
                costs = ", ".join([*_candidates(plan, index), _on_host(layer, hardware)])
                used = [plan.chip.accelerators[part.lane] for part in plan.parts if index in part.layers]
                stays = ", handed over in local memory" if layer.ofm.name in plan.handed_over else ""
                lines.append((layer, f"on {_shares(plan, index)}{stays}; alone {costs}{_weights(layer, used)}"))
    return _by_operator(lines)


def costs_of(graphs: Mapping[str, Graph], accelerator: Accelerator) -> dict[str, str]:
    """A line for each source operator of the regions: its cycles on the accelerator, and on the host.

    The cycles of a library's calls are not known.
    """
    lines: list[tuple[Layer, str]] = []
    for graph in graphs.values():
        for layer in graph.layers:
            if not isinstance(layer, Reshape):
                there = (
                    [] if accelerator.library else [f"{accelerator.name} {best_cycles(layer, accelerator):,} cycles"]
                )
                costs = ", ".join([*there, _on_host(layer, accelerator)])
                lines.append((layer, f"alone {costs}{_weights(layer, [accelerator])}"))
    return _by_operator(lines)


def _by_operator(lines: Iterable[tuple[Layer, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for layer, text in lines:
        for name in layer.source or (layer.name,):
            found.setdefault(name, []).append(text)
    return {name: " | ".join(texts) for name, texts in found.items()}


def _on_host(layer: Layer, hardware: Hardware) -> str:
    return f"{HOST} {round(host_instructions(layer) * hardware.host_cycles_per_instruction):,} cycles"


_NEARLY = 0.01
"""The share of a layer's weights beyond a narrower width that is worth a word."""


def _weights(layer: Layer, used: Iterable[Accelerator]) -> str:
    """The width in which accelerators read the weights of a layer, if it is a narrow one; and what keeps these from a
    narrower one that an accelerator has, if that is little."""
    tiled = [one for one in used if one.library is None]
    if not isinstance(layer, Weighted) or layer.weights.data is None or not tiled:
        return ""
    width = max(one.weight_width(layer) for one in tiled)
    text = f"; weights of {width} bits" if width < 8 else ""
    narrower = [bits for one in tiled for bits in one.limits[layer.kind].weight_bits or () if bits < layer.weights.bits]
    if narrower:
        values, limit = layer.weights.data.ravel(), 1 << (max(narrower) - 1)
        beyond = values[(values < -limit) | (values >= limit)]
        if beyond.size <= _NEARLY * values.size:
            most = bits_of(beyond).max()
            text += f"; {beyond.size:,} of {values.size:,} weights need {most} bits, the others {max(narrower)}"
    return text


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
