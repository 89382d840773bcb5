"""Which tensors of a region are the same bytes, who makes and reads them, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from byoc_hw.graph import Graph, Reshape, Tensor
from byoc_hw.plan.mapping import Mapping
from byoc_hw.plan.window import extents


@dataclass(eq=False)
class Storage:
    """The bytes of one activation tensor, and of those that reshapes make of it.

    `maker` is the layer that writes it (None for inputs and constants), `readers` those that read it
    (reshapes are not among either). `source` is the region's argument that it comes from, `sinks`
    those that it goes to. Where `transposed`, arguments have height and width the other way round
    than `extents`, in which it lies everywhere else. `block` names it in the arena.
    """

    index: int
    block: str
    tensor: Tensor
    extents: tuple[int, int, int]
    transposed: bool
    maker: int | None = None
    readers: list[int] = field(default_factory=list)
    source: int | None = None
    sinks: list[int] = field(default_factory=list)

    @cached_property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def constant(self) -> bool:
        return self.maker is None and self.source is None

    @property
    def last(self) -> int:
        """The last layer that reads or makes it, -1 if none does."""
        return max((*self.readers, -1 if self.maker is None else self.maker), default=-1)


@dataclass(frozen=True)
class Storages:
    """All storages of a region in order of their first use, and the storage of each tensor (mapped or not)."""

    all: tuple[Storage, ...]
    of: dict[Tensor, Storage]


def storages(graph: Graph, mapping: Mapping) -> Storages:
    """The storages of a mapped graph."""
    found: list[Storage] = []
    of: dict[Tensor, Storage] = {}

    def storage(tensor: Tensor, mapped: Tensor) -> Storage:
        if tensor not in of:
            transposed = mapped in mapping.origin and mapping.transposed(mapped)
            block = f"{graph.name}: {len(found):05} {tensor.name}"
            of[tensor] = Storage(len(found), block, mapped, extents(mapped), transposed)
            found.append(of[tensor])
        of[mapped] = of[tensor]
        return of[tensor]

    first = {mapping.origin[there]: there for there in reversed(list(mapping.origin))}
    for index, tensor in enumerate(graph.inputs):
        one = storage(tensor, first.get(tensor, tensor))
        one.source = index if one.source is None else one.source
    for index, (layer, mapped) in enumerate(zip(graph.layers, mapping.layers, strict=True)):
        for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
            one = storage(tensor, there)
            if not isinstance(layer, Reshape) and index not in one.readers[-1:]:
                one.readers.append(index)
        if isinstance(layer, Reshape):
            of[layer.ofm] = of[mapped.ofm] = of[layer.ifm]
        else:
            storage(layer.ofm, mapped.ofm).maker = index
    for index, tensor in enumerate(graph.outputs):
        of[tensor].sinks.append(len(graph.inputs) + index)
    return Storages(tuple(found), of)
