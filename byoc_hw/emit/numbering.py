"""Layer numbers of a whole model, which errors, traces and profiles refer to."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_hw.errors import GraphError
from byoc_hw.graph import Graph
from byoc_hw.program import Call, HostCall, Program, RegionCall


@dataclass(frozen=True)
class NumberedLayer:
    """A layer of the whole model. `kind` is "host" and `region` None for a host function."""

    id: int
    name: str
    kind: str
    source: tuple[str, ...]
    region: str | None = None

    @property
    def title(self) -> tuple[str, ...]:
        """Lines that introduce the layer in generated code: number, kind, name, source operators."""
        named = self.name in ("".join(self.source), ";".join(self.source))
        return (f"{self.id}: {self.kind} {self.name}", *(() if named else self.source))


def number_region(graph: Graph, first: int) -> tuple[NumberedLayer, ...]:
    """The layers of one region, numbered from `first`."""
    return tuple(
        NumberedLayer(first + index, layer.name, layer.kind, layer.source, graph.name)
        for index, layer in enumerate(graph.layers)
    )


def number_calls(program: Program, first: int = 0) -> list[tuple[Call, tuple[NumberedLayer, ...]]]:
    """Each call with its layers, numbered from `first` in the order in which they start. A copy or a wait has none."""
    numbered: list[tuple[Call, tuple[NumberedLayer, ...]]] = []
    seen: set[str] = set()
    following = first
    for call in program.calls:
        layers: tuple[NumberedLayer, ...] = ()
        if isinstance(call, HostCall):
            layers = (NumberedLayer(following, call.symbol, "host", call.source),)
        elif isinstance(call, RegionCall):
            region = call.graph.name
            if region in seen:
                raise GraphError(f"{program.name}: a region is called once: {region} is called again")
            seen.add(region)
            layers = number_region(call.graph, following)
        following += len(layers)
        numbered.append((call, layers))
    return numbered


def number_layers(program: Program) -> tuple[NumberedLayer, ...]:
    """All layers of the model; the number of each is its index."""
    return tuple(layer for _, layers in number_calls(program) for layer in layers)
