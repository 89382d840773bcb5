"""A region's graph mapped to the array of an accelerator: the input of every choice of groups and stripes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph
from byoc_hw.graph_text import shape_text, value_names
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.in_place import storages
from byoc_hw.plan.array.mapping import Mapping, map_layers
from byoc_hw.plan.array.packing import packed_cycles
from byoc_hw.plan.array.storage import NOWHERE_ELSE, Lies, Storage, Storages
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import Blocks, Choices, Group

_Found = TypeVar("_Found")


@dataclass(frozen=True, eq=False)
class MappedGraph:
    """A graph, its layers as mapped to the array, and the storages of its tensors.

    With `copies_transpose` the copies of the region's arguments do the transpositions at its border. `lies` has the
    arguments that lie otherwise than the tensors of the model.
    """

    graph: Graph
    accelerator: Accelerator
    mapping: Mapping
    storages: Storages
    copies_transpose: bool
    lies: Lies = field(default_factory=dict, repr=False)
    _shared: dict[Callable[[MappedGraph], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def shared(self, make: Callable[[MappedGraph], _Found]) -> _Found:
        """What `make` gives for this region, made once: all that is tried of the region shares it."""
        if make not in self._shared:
            self._shared[make] = make(self)
        found: _Found = self._shared[make]
        return found

    def choices(self, groups: Iterable[Group], blocks: Iterable[Blocks | None]) -> Choices:
        """Groups and blocks as choices of the region as it is mapped."""
        one = self.mapping
        layers, transposed = (one.placed, one.stored, one.packed), one.jobs_transpose
        return Choices(
            one.swapped, tuple(groups), tuple(blocks), self.copies_transpose, *layers, jobs_transpose=transposed
        )

    @property
    def whole(self) -> bool:
        """Whether the accelerator takes its layers as a whole: on a library, or if one has no tiles."""
        return any(map(self.accelerator.runs_whole, self.graph.layers)) or self.accelerator.library is not None

    @property
    def turns(self) -> bool:
        """Whether jobs read an input with height and width swapped as it lies in main memory."""
        return any(one.interleaved for one in self.storages.all)

    def __str__(self) -> str:
        """The mapping, one line a layer; then the storages `s0`, `s1` ..., one line each."""
        return "\n".join([*self._layers(), *self._storages()])

    def _layers(self) -> Iterator[str]:
        mapping = self.mapping
        for index, layer in enumerate(mapping.layers):
            lies = "swapped" if mapping.swapped[mapping.component[index]] else "as it stands"
            lies += ", packed" if index in mapping.rows.layers else ""
            work = f"{self.cycles_of(index)} cycles" if mapping.works(index) else "no work"
            if index in mapping.copied:
                work = "done by copies"
            elif index in mapping.placed:
                work = "done by addresses"
            elif index in mapping.stored:
                work = "done by copies of others"
            shapes = f"{shape_text(extents(layer.ifm))} -> {shape_text(extents(layer.ofm))}"
            yield f"%{index:<4} component {mapping.component[index]:<3} {lies:<13} {layer.kind} {shapes}, {work}"

    @property
    def array_cycles(self) -> int:
        """Cycles of all jobs, at best."""
        return sum(map(self.cycles_of, range(len(self.mapping.layers))))

    def cycles_of(self, index: int) -> int:
        """Cycles of the jobs of a layer, as few as there can be in this mapping."""
        layer, packing = self.mapping.layers[index], self.mapping.packing(self.mapping.layers[index].ofm)
        if packing is None or index not in self.mapping.rows.layers:
            return best_cycles(layer, self.accelerator)
        return packed_cycles(layer, packing.pitch, self.accelerator)

    def _storages(self) -> Iterator[str]:
        names = value_names(self.graph)
        for storage in self.storages.all:
            values = [names[t] for t in self.graph.tensors if self.storages.of[t] is storage]
            arguments = [*([] if storage.source is None else [storage.source]), *storage.sinks]
            made = f"of {_values(storage.makers)}"
            origin = "constant" if storage.constant else "input" if storage.maker is None else made
            parts = [f"{storage.nbytes} bytes", origin, f"read by {_values(storage.readers) or 'nobody'}"]
            parts += [f"argument {one.index}{_order(storage) if one.strides else ''}" for one in arguments]
            yield f"s{storage.index:<4} {' = '.join(values)}: {', '.join(parts)}"


def _order(storage: Storage) -> str:
    return " in other rows" if storage.packing is not None and not storage.swapped else " in another order"


def _values(layers: Sequence[int]) -> str:
    return ", ".join(f"%{index}" for index in layers)


def map_graph(
    graph: Graph,
    accelerator: Accelerator,
    swapped: Sequence[bool] | None = None,
    copies_transpose: bool = True,
    placed: Iterable[int] = (),
    stored: Iterable[int] = (),
    packed: Iterable[int] = (),
    lies: Lies = NOWHERE_ELSE,
    *,
    jobs_transpose: bool = False,
) -> MappedGraph:
    """The graph as `map_layers` maps it. Raises `PlanError` for a component in `swapped` that cannot be swapped, for
    bands in `packed` that cannot be packed, and for a layer in `placed` or `stored` whose tensors cannot lie inside one
    another."""
    parts = placed, stored, packed
    mapping = map_layers(graph, accelerator, swapped, copies_transpose, *parts, jobs_transpose=jobs_transpose)
    return MappedGraph(graph, accelerator, mapping, storages(graph, mapping, lies), copies_transpose, lies)
