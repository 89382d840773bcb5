"""Which layers of the regions go back to the host, and on which accelerator of a chip the others are wished.

A region that costs more than its layers on the host goes back; of one that does not, layers at its ends do where that
is cheaper. What a plan costs is the time from call to return, core included, or its energy. On a chip, a plan is also
made with all layers on each accelerator, as the core's work for several at once may cost more than it saves; and for
energy, layers change places one by one.

Costs are of regions and host functions one after the other: what the core does while an accelerator works is not
seen, and neither is what several regions could do at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.host_cost_table import REGIONS
from byoc_hw.host_costs import host_instructions, total_host_instructions
from byoc_hw.objective import HOST, Energy, Objective, wished
from byoc_hw.plan.array.cost import best_cycles, copy_cycles
from byoc_hw.plan.array.kinds import CopiesOnly, geometry
from byoc_hw.plan.core import TiledPlan, region_cycles, region_energy
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Hardware, Soc
from byoc_hw.tensor import Tensor

_MOST_PLANS = 24
"""Plans of a region on a chip that are made to lower its energy."""


@dataclass(frozen=True)
class Placement:
    """The layers that go to the host, with the reason, by region and name; accelerators by name for the others."""

    host: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)


def placement_of(
    graphs: Mapping[str, Graph], hardware: Hardware, place: Mapping[str, str], objective: Objective | None
) -> Placement:
    """What `place` wishes on the host, and what the objective gives to it; `place` has names of accelerators too.

    With an objective, the hardware has no library: the cycles of its calls are not known.
    """
    names = [layer.name for graph in graphs.values() for layer in graph.layers]
    host: dict[str, dict[str, str]] = {}
    found: dict[str, str] = {}
    for symbol, graph in graphs.items():
        gone = {layer.name: _wish_text(layer, place) for layer in graph.layers if wished(layer, place) == HOST}
        left = without(graph, set(gone))
        if objective is not None and left is not None:
            searched = [_Region(one, hardware, place, objective).best() for one in connected_parts(left)]
            for best in searched:
                gone |= best.gone
                found |= {name: engine for name, engine in best.place.items() if names.count(name) == 1}
        if gone:
            host[symbol] = gone
    return Placement(host, {name: one for name, one in {**found, **place}.items() if one != HOST})


def _wish_text(layer: Layer, place: Mapping[str, str]) -> str:
    name = next(name for name in layer.names if name in place)
    return f"on the host by place={{{name!r}: {HOST!r}}}, {host_instructions(layer):,} instructions"


@dataclass(frozen=True)
class _Placed:
    """A region without some layers, what it then costs with those, and where its layers are wished."""

    cost: float
    gone: Mapping[str, str]
    place: Mapping[str, str]


class _Region:
    """The search for what stays of one region."""

    def __init__(self, graph: Graph, hardware: Hardware, place: Mapping[str, str], objective: Objective) -> None:
        self._graph, self._hardware, self._place, self._objective = graph, hardware, place, objective
        self._pinned = {layer.name for layer in graph.layers if wished(layer, place) is not None}
        self._known: dict[tuple[Graph, tuple[tuple[str, str], ...]], float] = {}

    def best(self) -> _Placed:
        """What stays, and where."""
        cost, place = self._planned(self._graph)
        host = self._on_host(self._graph.layers)
        if host < cost and not self._pinned:
            text = f"{self._text(host)}, its region on {self._hardware.label} {self._text(cost)}"
            return _Placed(host, {layer.name: f"on the host: {text}" for layer in self._graph.layers}, {})
        return self._peeled(cost, place)

    def _peeled(self, cost: float, place: Mapping[str, str]) -> _Placed:
        """The region without layers at its ends that cost less on the host, one after the other."""
        graph, gone, host = self._graph, dict[str, str](), 0.0
        tried: set[str] = set()
        while True:
            layer = next((layer for layer in self._worth_trying(graph) if layer.name not in tried), None)
            left = None if layer is None else without(graph, {layer.name})
            if layer is None or left is None:
                return _Placed(cost, gone, place)
            tried.add(layer.name)
            if len(connected_parts(left)) > 1:
                continue
            here = self._on_host([layer])
            there, other = self._planned(left)
            if there + host + here < cost:
                saved = self._text(cost - there - host)
                gone[layer.name] = f"on the host: {self._text(here)}, in its region on {self._hardware.label} {saved}"
                graph, host, cost, place = left, host + here, there + host + here, other

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
        return max(self._most_on(layer, one, core) for one in engines)

    def _most_on(self, layer: Layer, accelerator: Accelerator, core: float) -> float:
        if isinstance(geometry(layer), CopiesOnly):  # of which there may be one for each element
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

    # ------------------------------------------------------------ plans

    def _planned(self, graph: Graph) -> tuple[float, Mapping[str, str]]:
        """The cost of the best plan of a graph, and the wishes that it has beyond those of the user."""
        best: tuple[float, Mapping[str, str]] = self._tried(graph, {}), {}
        if not isinstance(self._hardware, Soc):
            return best
        free = [layer for layer in graph.layers if layer.name not in self._pinned]
        for one in self._hardware.accelerators:
            if all(one in self._hardware.supporting(layer) for layer in free):
                place = {layer.name: one.name for layer in free}
                best = min(best, (self._tried(graph, place), place), key=lambda found: found[0])
        return self._improved(graph, free, best) if isinstance(self._objective, Energy) else best

    def _improved(
        self, graph: Graph, free: list[Layer], best: tuple[float, Mapping[str, str]]
    ) -> tuple[float, Mapping[str, str]]:
        """With each layer where it costs the least by itself, or with single layers elsewhere, if that is better."""
        assert isinstance(self._hardware, Soc)
        engines = {layer.name: self._hardware.supporting(layer) for layer in free}
        alone = {
            layer.name: min(engines[layer.name], key=lambda one, layer=layer: self._array(layer, one)).name  # type: ignore[misc]
            for layer in free
        }
        best = min(best, (self._tried(graph, alone), alone), key=lambda found: found[0])
        plans = 0
        for layer in free:
            for one in engines[layer.name]:
                place = {**alone, **best[1], layer.name: one.name}
                if place != best[1] and not isinstance(layer, Reshape) and plans < _MOST_PLANS:
                    plans += 1
                    best = min(best, (self._tried(graph, place), place), key=lambda found: found[0])
        return best

    def _tried(self, graph: Graph, place: Mapping[str, str]) -> float:
        """The cost of a plan; infinite where there is none."""
        key = graph, tuple(sorted(place.items()))
        if key not in self._known:
            wishes = {**place, **{name: one for name, one in self._place.items() if one != HOST}}
            try:
                plan = plan_region(graph, self._hardware, place=wishes)
            except PlanError:
                self._known[key] = float("inf")
            else:
                assert not isinstance(plan, LibraryPlan), "a library's regions stay"
                self._known[key] = self._cost(plan)
        return self._known[key]


_FEW = {"layer": 1, "copy": 4, "job": 2, "wait": 6}
"""More than a small layer needs of the core."""


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
