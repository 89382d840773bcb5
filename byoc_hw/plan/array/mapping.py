"""The mapping of a region's layers to the array: unchanged, with height and width swapped, or with packed rows.

The array computes `array_columns` outputs of one row at a time, so the longer side should lie along
the row. A layer is swapped by exchanging height and width of its geometry and weights, at compile
time; its tensors then lie transposed in local memory. Layers that share a tensor are swapped
together, and the DMA transposes the arguments of the region. Packed rows: see packing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Layer, Transpose, Weighted
from byoc_hw.plan.array.connected import connected
from byoc_hw.plan.array.cost import best_cycles, copy_cycles
from byoc_hw.plan.array.kinds import Alias, Run, Window, geometry
from byoc_hw.plan.array.packing import NOT_PACKED, Packed, Packing, bands, pack_rows, worth_packing
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Mapping:
    """The layers of a graph as mapped to the array.

    `component` is the number of each layer's component, whose layers are swapped together; `swapped` is by component.
    `origin` gives the graph's tensor for each tensor of a mapped layer. `copied` are the transpositions, by
    index of the layer, that the copies of the region's arguments do. `placed` are the concatenations whose inputs
    are written into their output in local memory, and the slices that are read in place; `stored` the concatenations
    whose inputs are stored into their output in main memory, or are put together as they are loaded, the padding that
    is filled in and the rows that are repeated so, the slices that are stored from their input, or loaded from where it
    lies in main memory, and the transpositions that are done by the stores of their input. `packed` are the bands whose
    rows are packed, and `rows` what comes of that. With `jobs_transpose` jobs read swapped inputs of the region as they
    lie in main memory, where they can.
    """

    layers: tuple[Layer, ...]
    component: tuple[int, ...]
    swapped: tuple[bool, ...]
    origin: dict[Tensor, Tensor]
    copied: frozenset[int]
    placed: frozenset[int] = frozenset()
    stored: frozenset[int] = frozenset()
    packed: frozenset[int] = frozenset()
    rows: Packed = NOT_PACKED
    jobs_transpose: bool = False

    def is_swapped(self, tensor: Tensor) -> bool:
        """Whether height and width of a mapped layer's tensor are swapped, which changes the order of its bytes."""
        return tensor is not self.origin[tensor] and not is_line(tensor)

    def packing(self, tensor: Tensor) -> Packing | None:
        """How the rows of a tensor, of the graph or of a mapped layer, are packed; None where they are not."""
        return self.rows.images.get(self.origin.get(tensor, tensor))

    def outputs(self, index: int, rows: int) -> Extents:
        """What a layer's jobs over some rows of its output compute: of packed rows a single one."""
        layer = self.layers[index]
        _, width, channels = extents(layer.ofm)
        packing = self.packing(layer.ofm) if index in self.rows.layers else None
        return (rows, width, channels) if packing is None else (1, packing.pixels(rows, width), channels)

    def works(self, index: int) -> bool:
        """Whether a layer has jobs or copies of its own."""
        free = self.copied | self.placed | self.stored
        return not isinstance(geometry(self.layers[index]), Alias) and index not in free


def is_line(tensor: Tensor) -> bool:
    """Whether height or width is 1 or missing: a swap does not change the order of the bytes."""
    return len(tensor.shape) != 4 or tensor.shape[0] != 1 or 1 in tensor.shape[1:3]


def map_layers(
    graph: Graph,
    accelerator: Accelerator,
    swapped: Sequence[bool] | None = None,
    copies_transpose: bool = True,
    placed: Iterable[int] = (),
    stored: Iterable[int] = (),
    packed: Iterable[int] = (),
    *,
    jobs_transpose: bool = False,
) -> Mapping:
    """Swap each component that takes fewer cycles swapped, or those that `swapped` names, one value a component.

    With `copies_transpose` the copies of arguments do the transpositions at the region's border; without it
    nothing is swapped unless `swapped` says so. `packed` are the bands whose rows are packed.

    Raises `PlanError` where `swapped` names a component that cannot be swapped, or `packed` no band, and for `packed`
    or `jobs_transpose` with an accelerator that does not read rows that overlap.
    """
    component = components(graph)
    members = _members(component)
    if swapped is None:
        swap = copies_transpose and accelerator.tuning.swap
        swapped = _worth(graph, members, [accelerator] * len(graph.layers)) if swap else [False] * len(members)
    if len(swapped) != len(members):
        raise PlanError(f"{graph.name}: {len(members)} groups of layers are swapped or not: got {len(swapped)} values")
    for layers, wanted in zip(members, swapped, strict=True):
        if wanted and not _can_swap([graph.layers[index] for index in layers], graph):
            raise PlanError(f"{graph.layers[layers[0]].name}: its height and width cannot be swapped")
    wide = [_in_width_of(layer, accelerator) for layer in graph.layers]
    turned = [_swap(layer) if swapped[number] else layer for layer, number in zip(wide, component, strict=True)]
    origin = {
        there: tensor
        for layer, other in zip(graph.layers, turned, strict=True)
        for tensor, there in zip((*layer.inputs, layer.ofm), (*other.inputs, other.ofm), strict=True)
    }
    packed, stored, numbers = frozenset(packed), frozenset(stored), bands(graph.layers)
    if (packed or jobs_transpose) and not accelerator.packed_rows:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} has no packed_rows")
    if not packed <= set(numbers):
        raise PlanError(f"{graph.name}: bands whose rows are packed are some of its own: got {sorted(packed)}")
    return Mapping(
        tuple(turned),
        component,
        tuple(swapped),
        origin,
        _transposed_by_copies(graph) if copies_transpose else frozenset(),
        frozenset(placed),
        stored,
        packed,
        pack_rows(graph, turned, numbers, packed, accelerator, stored),
        jobs_transpose,
    )


def bands_worth_packing(
    mapping: Mapping, graph: Graph, accelerator: Accelerator, transposed: Set[int]
) -> frozenset[int]:
    """The bands of a mapped graph that take the array fewer cycles with packed rows. Stores may do the transpositions
    that are `transposed`."""
    return worth_packing(graph, mapping.layers, bands(graph.layers), accelerator, transposed)


def _in_width_of(layer: Layer, accelerator: Accelerator) -> Layer:
    """A layer with its weights in a width that the accelerator has; a library packs them itself."""
    if not isinstance(layer, Weighted) or accelerator.library is not None:
        return layer
    bits = accelerator.weight_width(layer)
    return layer if bits == layer.weights.bits else replace(layer, weights=replace(layer.weights, bits=bits))


def worth_swapping(graph: Graph, accelerators: Sequence[Accelerator]) -> list[bool]:
    """For each component whether it takes fewer cycles swapped, each layer on its accelerator."""
    return _worth(graph, _members(components(graph)), accelerators)


def _worth(graph: Graph, members: Sequence[Sequence[int]], accelerators: Sequence[Accelerator]) -> list[bool]:
    found = []
    for indices in members:
        layers, on = [graph.layers[index] for index in indices], [accelerators[index] for index in indices]
        whole = any(one.library is not None for one in on)  # a library takes tensors as the model has them
        found.append(not whole and _can_swap(layers, graph) and _gains(layers, graph, on))
    return found


def _members(component: Sequence[int]) -> list[list[int]]:
    """The layers of each component, by index."""
    members: list[list[int]] = [[] for _ in range(max(component, default=-1) + 1)]
    for index, number in enumerate(component):
        members[number].append(index)
    return members


def _transposed_by_copies(graph: Graph) -> frozenset[int]:
    """Transpositions of a region's input before its first layer, and of tensors that are only outputs."""
    read = {tensor for layer in graph.layers for tensor in layer.inputs}
    made = {layer.ofm for layer in graph.layers if not isinstance(geometry(layer), Alias)}
    found = set()
    for index, layer in enumerate(graph.layers):
        if not isinstance(layer, Transpose) or len(layer.axes) != 4 or layer.ifm.bytes_of(1) != 1:
            continue
        if layer.ifm.shape[0] != 1 or layer.ofm.shape[0] != 1:
            continue
        first = layer.ifm in graph.inputs and layer.ofm in read
        last = layer.ifm in made and layer.ofm not in read and layer.ofm in graph.outputs
        if first or last:
            found.add(index)
    return frozenset(found)


def components(graph: Graph) -> tuple[int, ...]:
    """The component of each layer, numbered in order. Layers that share a tensor with height and width share it."""
    return connected([[one for one in (*layer.inputs, layer.ofm) if not is_line(one)] for layer in graph.layers])


def _can_swap(layers: Sequence[Layer], graph: Graph) -> bool:
    """Whether all layers have height and width, and treat both alike. Concatenations of inputs of the region may be put
    together swapped as they are loaded; of other ones nothing could lie in its place."""
    forms = [(geometry(layer), layer, _joins(layer, graph)) for layer in layers]
    return all(
        len(layer.ifm.shape) == 4
        and (isinstance(form, Window) or (isinstance(form, Run) and (form.each == 1 or form.repeats)) or joins)
        for form, layer, joins in forms
    )


def _joins(layer: Layer, graph: Graph) -> bool:
    """Whether a layer puts images together of which one is an input of the region, for layers of the region."""
    if not isinstance(layer, Concat) or layer.axis == 0 or layer.ofm in graph.outputs:
        return False
    return any(tensor in graph.inputs for tensor in layer.inputs)


def _gains(layers: Sequence[Layer], graph: Graph, accelerators: Sequence[Accelerator]) -> bool:
    works = list(zip(layers, accelerators, strict=True))
    before = sum(best_cycles(layer, accelerator) for layer, accelerator in works)
    after = sum(best_cycles(_swap(layer, weights=False), accelerator) for layer, accelerator in works)
    outside = {*graph.inputs, *graph.outputs}
    shared = {
        tensor: accelerator
        for layer, accelerator in works
        for tensor in (*layer.inputs, layer.ofm)
        if tensor in outside
    }
    return after + sum(_transposition(tensor, accelerator) for tensor, accelerator in shared.items()) < before


def _transposition(tensor: Tensor, accelerator: Accelerator) -> int:
    """Extra DMA cycles to transpose a tensor, over a plain copy."""
    if is_line(tensor):
        return 0
    height, width, channels = extents(tensor)
    copies, rows = min(height, width), max(height, width)
    return copies * copy_cycles(channels, rows, accelerator) - copy_cycles(tensor.nbytes, 1, accelerator)


def _swap(layer: Layer, weights: bool = True) -> Layer:
    """The layer with height and width of each of its fields exchanged; `weights` with their data."""
    changed: dict[str, Any] = {}
    turned: dict[Tensor, Tensor] = {}  # a tensor that is read twice is swapped once
    for name in (field.name for field in fields(layer)):
        value = getattr(layer, name)
        if name in ("kernel", "strides", "dilation"):
            changed[name] = value[::-1]
        elif name == "padding":
            top, left, bottom, right = value
            changed[name] = (left, top, right, bottom)
        elif isinstance(value, Tensor) and len(value.shape) == 4:
            changed[name] = turned.setdefault(value, _turned(value, weights))
        elif name == "others":
            changed[name] = tuple(turned.setdefault(other, _turned(other, weights)) for other in value)
        elif name == "axis":
            changed[name] = {1: 2, 2: 1}.get(value, value)
    return replace(layer, **changed)


def _turned(tensor: Tensor, data: bool) -> Tensor:
    one, height, width, channels = tensor.shape
    values = tensor.data
    if values is not None and data:
        values = np.ascontiguousarray(values.transpose(0, 2, 1, 3))
    return replace(tensor, shape=(one, width, height, channels), data=values)
