"""Storages: the tensors of a region that share bytes, with the layers that write and read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from byoc_hw.graph import Graph, Layer, Transpose
from byoc_hw.plan.array.kinds import Alias, Run, geometry
from byoc_hw.plan.array.mapping import Mapping
from byoc_hw.plan.array.transfers import dense_strides
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Argument:
    """An argument of the region. `strides` are its bytes from one row, column and channel of the storage
    to the next where it lies in another order, None where it does not."""

    index: int
    strides: tuple[int, int, int] | None = None


@dataclass(eq=False)
class Storage:
    """The bytes of one activation tensor and of its reshapes.

    `maker` is the layer that writes it (None for inputs and constants), `readers` are the layers that read it
    (without reshapes). `source` is the region's argument that it is loaded from, `sinks`
    those that it is stored to. `swapped` says that height and width, and `extents` with them, are
    exchanged against the model. `block` is its name in the arena.
    """

    index: int
    block: str
    tensor: Tensor
    extents: Extents
    swapped: bool
    maker: int | None = None
    readers: list[int] = field(default_factory=list)
    source: Argument | None = None
    sinks: list[Argument] = field(default_factory=list)

    @cached_property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def reordered(self) -> bool:
        """Whether an argument has the bytes in another order."""
        arguments = self.sinks if self.source is None else (self.source, *self.sinks)
        return any(argument.strides is not None for argument in arguments)

    @property
    def constant(self) -> bool:
        return self.maker is None and self.source is None

    @property
    def last(self) -> int:
        """The last layer that reads or writes it, -1 if none does."""
        return max((*self.readers, -1 if self.maker is None else self.maker), default=-1)


@dataclass(frozen=True)
class Storages:
    """All storages of a region in order of their first use, and the storage of each tensor (mapped or not)."""

    all: tuple[Storage, ...]
    of: dict[Tensor, Storage]


def can_tile(layer: Layer, of: dict[Tensor, Storage]) -> bool:
    """Whether a layer can be tiled: not if an argument is reordered, nor for runs over swapped tensors."""
    touched = [of[tensor] for tensor in (*layer.inputs, layer.ofm)]
    return not any(one.reordered or (one.swapped and isinstance(geometry(layer), Run)) for one in touched)


def storages(graph: Graph, mapping: Mapping) -> Storages:
    """The storages of a mapped graph."""
    found: list[Storage] = []
    of: dict[Tensor, Storage] = {}

    def storage(tensor: Tensor, mapped: Tensor) -> Storage:
        if tensor not in of:
            block = f"{graph.name}: {len(found):05} {tensor.name}"
            swapped = mapped in mapping.origin and mapping.is_swapped(mapped)
            of[tensor] = Storage(len(found), block, mapped, extents(mapped), swapped)
            found.append(of[tensor])
        of[mapped] = of[tensor]
        return of[tensor]

    first = {mapping.origin[there]: there for there in reversed(list(mapping.origin))}
    for index, tensor in enumerate(graph.inputs):
        one = storage(tensor, first.get(tensor, tensor))
        one.source = one.source or Argument(index, _swapped_strides(one))
    outputs: dict[Tensor, tuple[int, int, int]] = {}
    for index, (layer, mapped) in enumerate(zip(graph.layers, mapping.layers, strict=True)):
        if isinstance(geometry(layer), Alias):
            of[layer.ofm] = of[mapped.ofm] = storage(layer.ifm, mapped.ifm)
        elif index in mapping.copied and isinstance(layer, Transpose):
            if layer.ifm in graph.inputs:
                source = of[layer.ifm].source
                assert source is not None, "it is a transposition of an input"
                storage(layer.ofm, mapped.ofm).source = Argument(source.index, _read_strides(layer))
            else:
                of[layer.ofm] = of[mapped.ofm] = of[layer.ifm]
                outputs[layer.ofm] = _written_strides(layer, of[layer.ifm])
        else:
            for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
                one = storage(tensor, there)
                if index not in one.readers[-1:]:
                    one.readers.append(index)
            storage(layer.ofm, mapped.ofm).maker = index
    for index, tensor in enumerate(graph.outputs):
        strides = outputs[tensor] if tensor in outputs else _swapped_strides(of[tensor])
        of[tensor].sinks.append(Argument(len(graph.inputs) + index, strides))
    return Storages(tuple(found), of)


def _swapped_strides(storage: Storage) -> tuple[int, int, int] | None:
    """The strides of an argument whose height and width are not swapped."""
    height, _, channels = storage.extents
    return (channels, height * channels, 1) if storage.swapped else None


def _read_strides(layer: Transpose) -> tuple[int, int, int]:
    """The strides of a transposition's input, by the dimensions of its output."""
    strides = dense_strides(layer.ifm.shape)
    _, height, width, channels = (strides[axis] for axis in layer.axes)
    return height, width, channels


def _written_strides(layer: Transpose, storage: Storage) -> tuple[int, int, int]:
    """The strides of a transposition's output, by the dimensions of its mapped input."""
    strides = dense_strides(layer.ofm.shape)
    _, height, width, channels = (strides[layer.axes.index(axis)] for axis in range(4))
    if storage.extents != extents(layer.ifm):  # a line whose height and width are swapped
        height, width = width, height
    return height, width, channels
