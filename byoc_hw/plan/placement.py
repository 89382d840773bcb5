"""Which layers of the regions go back to the host.

A region that costs more than its layers on the host goes back; of one that does not, layers at its ends do where that
is cheaper. What a plan costs is the time from call to return, core included, or its energy.

Costs are of regions and host functions one after the other: what the core does while an accelerator works is not
seen, and neither is what several regions could do at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.host_cost_table import REGIONS
from byoc_hw.host_costs import host_instructions, total_host_instructions
from byoc_hw.objective import HOST, Energy, Objective, on_accelerators, wished
from byoc_hw.plan.array.cost import best_cycles, copy_cycles
from byoc_hw.plan.array.kinds import copies_only
from byoc_hw.plan.core import TiledPlan, region_cycles, region_energy
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Hardware, Soc
from byoc_hw.tensor import Tensor


def sent_to_host(
    graphs: Mapping[str, Graph], hardware: Hardware, place: Mapping[str, str], objective: Objective | None
) -> dict[str, dict[str, str]]:
    """The layers that `place` wishes on the host, and those that the objective gives to it: the reason by region and
    name. `place` has names of accelerators too.

    With an objective, the hardware has no library: the cycles of its calls are not known.
    """
    host: dict[str, dict[str, str]] = {}
    for symbol, graph in graphs.items():
        gone = {layer.name: _wish_text(layer, place) for layer in graph.layers if wished(layer, place) == HOST}
        left = without(graph, set(gone))
        if objective is not None and left is not None:
            for one in connected_parts(left):
                gone |= _Region(one, hardware, place, objective).gone()
        if gone:
            host[symbol] = gone
    return host


def _wish_text(layer: Layer, place: Mapping[str, str]) -> str:
    name = next(name for name in layer.names if name in place)
    return f"on the host by place={{{name!r}: {HOST!r}}}, {host_instructions(layer):,} instructions"


class _Region:
    """The search for what stays of one region."""

    def __init__(self, graph: Graph, hardware: Hardware, place: Mapping[str, str], objective: Objective) -> None:
        self._graph, self._hardware, self._place, self._objective = graph, hardware, place, objective
        self._pinned = {layer.name for layer in graph.layers if wished(layer, place) is not None}
        self._wishes = on_accelerators(place)

    def gone(self) -> dict[str, str]:
        """The layers that do not stay, with the reason."""
        cost = self._planned(self._graph)
        host = self._on_host(self._graph.layers)
        if host < cost and not self._pinned:
            text = f"{self._text(host)}, its region on {self._hardware.label} {self._text(cost)}"
            return {layer.name: f"on the host: {text}" for layer in self._graph.layers}
        return self._peeled(cost)

    def _peeled(self, cost: float) -> dict[str, str]:
        """Layers at the region's ends that cost less on the host, taken off one after the other."""
        graph, gone, host = self._graph, dict[str, str](), 0.0
        tried: set[str] = set()
        while True:
            layer = next((layer for layer in self._worth_trying(graph) if layer.name not in tried), None)
            left = None if layer is None else without(graph, {layer.name})
            if layer is None or left is None:
                return gone
            tried.add(layer.name)
            if len(connected_parts(left)) > 1:
                continue
            here = self._on_host([layer])
            there = self._planned(left)
            if there + host + here < cost:
                saved = self._text(cost - there - host)
                gone[layer.name] = f"on the host: {self._text(here)}, in its region on {self._hardware.label} {saved}"
                graph, host, cost = left, host + here, there + host + here

    def _worth_trying(self, graph: Graph) -> Iterator[Layer]:
        """Layers at the ends of a region that take less on the host than they could ever take in it."""
        read = {tensor for layer in graph.layers for tensor in layer.inputs}
        for layer in graph.layers:
            first = all(tensor in graph.inputs or tensor.data is not None for tensor in layer.inputs)
            if layer.name in self._pinned or isinstance(layer, Reshape) or not (first or layer.ofm not in read):
                continue
            if self._on_host([layer]) < self._most(layer):
                yield layer

    def _most(self, layer: Layer) -> float:
        """More than a layer costs in a region if it has few jobs: one with many is not for the host."""
        costs = REGIONS["chip" if isinstance(self._hardware, Soc) else "accelerator"]
        core = sum(amount * costs.get(unit, 0.0) for unit, amount in _FEW.items())
        engines = self._hardware.supporting(layer) if isinstance(self._hardware, Soc) else (self._hardware,)
        return max(self._most_on(layer, one, core + _few_in_the_hal(one)) for one in engines)

    def _most_on(self, layer: Layer, accelerator: Accelerator, core: float) -> float:
        if copies_only(layer):  # of which there may be one for each element
            core = float("inf")
        moved = [tensor.nbytes for tensor in (*layer.inputs, layer.ofm)]
        moved += [prod(layer.weights.shape) + 12 * layer.out_channels] if isinstance(layer, Weighted) else []
        if isinstance(self._objective, Energy):
            return self._array(layer, accelerator) + sum(moved) * self._objective.copied + core * self._objective.host
        copies = sum(copy_cycles(nbytes, 1, accelerator) for nbytes in moved)
        return best_cycles(layer, accelerator) + copies + core * self._hardware.host_cycles_per_instruction

    def _array(self, layer: Layer, accelerator: Accelerator) -> float:
        """The energy of the array in a layer's jobs."""
        assert isinstance(self._objective, Energy)
        return best_cycles(layer, accelerator) * self._objective.array[accelerator.name]

    # ------------------------------------------------------------ costs

    def _on_host(self, layers: list[Layer] | tuple[Layer, ...]) -> float:
        instructions = total_host_instructions(layers)
        if isinstance(self._objective, Energy):
            return instructions * self._objective.host
        return instructions * self._hardware.host_cycles_per_instruction

    def _cost(self, plan: TiledPlan) -> float:
        if isinstance(self._objective, Energy):
            return region_energy(plan, self._hardware, self._objective).total
        return region_cycles(plan, self._hardware)

    def _text(self, cost: float) -> str:
        return f"{cost:,.0f} {'of energy' if isinstance(self._objective, Energy) else 'cycles'}"

    def _planned(self, graph: Graph) -> float:
        """The cost of the plan of a graph; infinite where there is none."""
        try:
            plan = plan_region(graph, self._hardware, place=self._wishes, objective=self._objective)
        except PlanError:
            return float("inf")
        assert not isinstance(plan, LibraryPlan), "a library's regions stay"
        return self._cost(plan)


_FEW = {"layer": 1, "copy": 4, "job": 2, "wait": 6}
"""More than a small layer needs of the core."""


def _few_in_the_hal(accelerator: Accelerator) -> int:
    each = accelerator.hal_instructions
    return _FEW["copy"] * (each.copy + each.rows) + _FEW["job"] * each.job + _FEW["wait"] * each.wait


def without(graph: Graph, gone: set[str]) -> Graph | None:
    """A region's graph without some layers; None if nothing but reshapes is left."""
    layers = tuple(layer for layer in graph.layers if layer.name not in gone)
    if all(isinstance(layer, Reshape) for layer in layers):
        return None
    if len(layers) == len(graph.layers):
        return graph
    made = {layer.ofm for layer in layers}
    inputs = dict.fromkeys(t for layer in layers for t in layer.inputs if t.data is None and t not in made)
    read = {tensor for layer in graph.layers if layer.name in gone for tensor in layer.inputs}
    outputs = tuple(layer.ofm for layer in layers if layer.ofm in graph.outputs or layer.ofm in read)
    return replace(graph, inputs=tuple(inputs), outputs=outputs, layers=layers)


def connected_parts(graph: Graph) -> list[Graph]:
    """The parts of a graph that no value of a layer joins: TVM makes a region of each."""
    groups: list[set[Tensor]] = []
    for layer in graph.layers:
        own = {layer.ofm, *(t for t in layer.inputs if t.data is None and t not in graph.inputs)}
        joined = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own] + [own.union(*joined)]
    names = [{layer.name for layer in graph.layers if layer.ofm not in group} for group in groups]
    return [part for gone in names if (part := without(graph, gone)) is not None]
