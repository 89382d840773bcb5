"""The forms in which layers can make their outputs: orders of elements (`element_orders.py`), and what they cost.

Element-wise layers take any form, layers along dimensions those that keep dimensions whole, layers with weights those
that reorder the channels of each pixel alike. The others have all their tensors as in the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple, TypeGuard

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import (
    BasePairwise,
    Concat,
    Conv2d,
    Dense,
    Graph,
    Layer,
    Lookup,
    Pad,
    Reshape,
    Slice,
    Softmax,
    Transpose,
)
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.permuting import permuting_copies
from byoc_hw.plan.array.spread import stored_cycles
from byoc_hw.plan.array.transfers import Permutation
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.element_orders import (
    axes_of_order,
    inverse_order,
    is_same_order,
    one_after_the_other,
    order_by_axes,
    order_of_channels,
    same_order,
)
from byoc_hw.tensor import Array, Tensor


class Read(NamedTuple):
    """Which tensor a layer reads, by way of transpositions and reshapes, and the elements that these reorder."""

    root: Tensor
    path: Permutation
    moves: tuple[int, ...]  # the layers of the way, by index


class Reordered(NamedTuple):
    """A tensor that has the elements of another one, reordered."""

    root: Tensor
    reordered: Permutation


class Forms:
    """The forms that the layers of a graph may have, and what their transpositions cost.

    A choice has the form of the output of some layers, by index; the others are as in the model.
    """

    def __init__(self, graph: Graph, accelerator: Accelerator) -> None:
        self.graph, self._accelerator = graph, accelerator
        self._reads: dict[Tensor, Read] = {}
        for index, layer in enumerate(graph.layers):
            read = self._moved(index, layer) if isinstance(layer, Reshape | Transpose) else None
            if read is not None:
                self._reads[layer.ofm] = read
        self._inputs = [
            [] if layer.ofm in self._reads else [self.read(tensor) for tensor in layer.inputs] for layer in graph.layers
        ]
        self._free = {index: None for index, layer in enumerate(graph.layers) if _is_free(layer)}
        self._readers: dict[Tensor, list[tuple[int, int]]] = {}
        """By tensor that is no transposition of another: the layers that read it, and the number of their input."""
        for index in range(len(graph.layers)):
            for number, one in enumerate(self.inputs(index)):
                self._readers.setdefault(one.root, []).append((index, number))
        self._outputs: dict[Tensor, list[Tensor]] = {}
        for tensor in graph.outputs:
            self._outputs.setdefault(self.read(tensor).root, []).append(tensor)

    def read(self, tensor: Tensor) -> Read:
        return self._reads.get(tensor) or Read(tensor, same_order(tensor.shape), ())

    def is_idle(self, one: Read) -> bool:
        """Whether the transpositions of a way leave all elements where they are."""
        moves = any(isinstance(self.graph.layers[index], Transpose) for index in one.moves)
        return moves and is_same_order(one.path)

    def saves_ways(self) -> bool:
        """Whether ways of the model are none: all elements stay where they are, or weights take up their order."""
        readers = [one for readers in self._readers.values() for one in readers]
        orders = (self.order_taken_up(*one, {}) for one in readers)
        return any(map(self.is_idle, self._reads.values())) or any(order is not None for order in orders)

    def inputs(self, index: int) -> list[Read]:
        """What a layer reads; nothing for one that is part of a way."""
        return self._inputs[index]

    def form(self, tensor: Tensor, chosen: Mapping[int, Permutation]) -> Permutation:
        """How a tensor that is no transposition of another lies."""
        return chosen.get(self.graph.made.get(tensor, -1)) or same_order(tensor.shape)

    def need(self, index: int, number: int, chosen: Mapping[int, Permutation]) -> Reordered | None:
        """What a layer reads as an input, of a tensor as it lies; None where that is no permutation of one."""
        form = self._wanted(index, number, chosen)
        return None if form is None else self.needed(self.inputs(index)[number], form, chosen)

    def _wanted(self, index: int, number: int, chosen: Mapping[int, Permutation]) -> Permutation | None:
        """The form in which a layer takes an input; None where it cannot have its own."""
        layer = self.graph.layers[index]
        return (
            _form_of_input(layer, number, chosen[index]) if index in chosen else same_order(layer.inputs[number].shape)
        )

    def order_taken_up(self, index: int, number: int, chosen: Mapping[int, Permutation]) -> Array | None:
        """The order of input channels that the weights of a layer can take up in place of a transposition: that of
        those it needs among those it reads; None where it cannot, or nothing is transposed."""
        layer, moved = self.graph.layers[index], self.need(index, number, chosen)
        if not _has_weights(layer) or moved is None or is_same_order(moved.reordered):
            return None
        return order_of_channels(moved.reordered, layer.ifm.shape[-1])

    def needed(self, one: Read, form: Permutation, chosen: Mapping[int, Permutation]) -> Reordered | None:
        """How a tensor as it lies has to be reordered for what reads it in a form."""
        wanted = one_after_the_other(one.path, form)
        reordered = None if wanted is None else one_after_the_other(inverse_order(self.form(one.root, chosen)), wanted)
        return None if reordered is None else Reordered(one.root, reordered)

    def best(self) -> dict[int, Permutation]:
        """The choice with the fewest cycles near those where all layers that hang together agree."""
        best: dict[int, Permutation] = {}
        for index in self._free:
            tried = list[dict[int, Permutation]]()
            for form in self._candidates(index, best):
                if form == self.form(self.graph.layers[index].ofm, best):
                    continue
                for beside in (False, True):
                    state = {**best, **self._spread(index, form, beside)}
                    if state not in tried:
                        tried.append(state)
                        best = self._fewer(best, self._improved(state))
        return {index: form for index, form in best.items() if not is_same_order(form)}

    def _fewer(self, one: dict[int, Permutation], other: dict[int, Permutation]) -> dict[int, Permutation]:
        """Of two choices the other one, if it takes fewer cycles."""
        changed = [index for index in {**one, **other} if one.get(index) != other.get(index)]
        return other if self._cycles(changed, other) < self._cycles(changed, one) else one

    def _cycles(self, indices: Sequence[int], chosen: Mapping[int, Permutation]) -> float:
        """Of the DMA, for all transpositions that the forms of some layers concern; infinite where a layer cannot
        have its form."""
        roots = {self.graph.layers[index].ofm for index in indices}
        roots.update(one.root for index in indices for one in self.inputs(index))
        return sum(self._cycles_from(root, chosen) for root in roots)

    def _cycles_from(self, root: Tensor, chosen: Mapping[int, Permutation]) -> float:
        """Of the DMA, for the transpositions of one tensor."""
        readers = self._readers.get(root, ())
        read = {self.need(*one, chosen) for one in readers if self.order_taken_up(*one, chosen) is None}
        ends = {
            self.needed(self.read(tensor), same_order(tensor.shape), chosen) for tensor in self._outputs.get(root, ())
        }
        inside = sum(self._transposing(moved, root in self.graph.inputs) for moved in read)
        return inside + sum(self._transposing(moved, True) for moved in ends - read)

    def _moved(self, index: int, layer: Reshape | Transpose) -> Read | None:
        """What a layer moves, with what is moved before it; None where that is no permutation of bytes."""
        before, axes = self.read(layer.ifm), layer.axes if isinstance(layer, Transpose) else None
        own = same_order(layer.ofm.shape) if axes is None else order_by_axes(layer.ifm.shape, axes)
        both = one_after_the_other(before.path, own)
        if both is None or layer.ofm.bytes_of(1) != 1:
            return None
        return Read(before.root, both, (*before.moves, index))

    def _candidates(self, index: int, chosen: Mapping[int, Permutation]) -> Iterator[Permutation]:
        """The forms of a layer in which one of its inputs, or one of those that read it, takes no transposition."""
        layer = self.graph.layers[index]
        yield same_order(layer.ofm.shape)
        for number, one in enumerate(self.inputs(index)):
            taken = self._taken(index, number, self.form(one.root, chosen))
            if taken is not None:
                yield taken
        for reader, number in self._readers.get(layer.ofm, ()):
            form = self._wanted(reader, number, chosen)
            given = None if form is None else self._given(index, self.graph.layers[reader].inputs[number], form)
            if given is not None:
                yield given

    def _taken(self, index: int, number: int, form: Permutation) -> Permutation | None:
        """The form in which a layer takes a tensor in some form without a transposition, if there is one."""
        there = one_after_the_other(inverse_order(self.inputs(index)[number].path), form)
        return None if there is None else _form_for_input(self.graph.layers[index], number, there)

    def _given(self, index: int, tensor: Tensor, form: Permutation) -> Permutation | None:
        """The form in which a layer makes a tensor that is read in some form without a transposition, if there is
        one."""
        found = one_after_the_other(self.read(tensor).path, form)
        return found if found is not None and _allows(self.graph.layers[index], found) else None

    def _spread(self, index: int, form: Permutation, beside: bool) -> dict[int, Permutation]:
        """The forms of a layer, and of all that hang together with it so that nothing is transposed between them; with
        `beside` also of those that read the same, so that it is transposed once for all."""
        found, left = {index: form}, [index]
        while left:
            one = left.pop()
            for other, near in self._near(one, found[one], beside):
                if near is not None and other not in found:
                    found[other] = near
                    left.append(other)
        return found

    def _near(self, index: int, form: Permutation, beside: bool) -> Iterator[tuple[int, Permutation | None]]:
        """The free layers that read what a layer makes, make what it reads, or read the same, with their forms."""
        layer = self.graph.layers[index]
        for reader, number in self._readers.get(layer.ofm, ()):
            if reader in self._free:
                yield reader, self._taken(reader, number, form)
        for number, read in enumerate(self.inputs(index)):
            wanted = _form_of_input(layer, number, form)
            if wanted is None:
                continue
            made = self.graph.made.get(read.root, -1)
            if made in self._free:
                yield made, self._given(made, layer.inputs[number], wanted)
            for other, place in self._readers[read.root] if beside else ():
                if other in self._free and self.inputs(other)[place].path == read.path:
                    yield other, _form_for_input(self.graph.layers[other], place, wanted)

    def _improved(self, chosen: dict[int, Permutation]) -> dict[int, Permutation]:
        """A choice, as long as another form of a single layer takes fewer cycles."""
        better = True
        while better:
            better = False
            for index in list(chosen):
                for form in self._candidates(index, chosen):
                    other = self._fewer(chosen, {**chosen, index: form})
                    chosen, better = other, better or other is not chosen
        return chosen

    def _transposing(self, moved: Reordered | None, at_border: bool) -> float:
        """Cycles of the DMA for a transposition, infinite for none; at the border of the graph, where elements are
        copied in any case, those that it adds."""
        if moved is None:
            return inf
        root, permutation = moved
        if is_same_order(permutation) or root.data is not None:
            return 0
        accelerator = self._accelerator
        plain = copy_cycles(root.nbytes, 1, accelerator)
        copies = permuting_copies(permutation, permutation.shape, accelerator).cycles(accelerator)
        if at_border:
            return max(copies - plain, 1)
        flat = replace(root, shape=permutation.shape)
        made = replace(root, shape=tuple(permutation.shape[axis] for axis in permutation.axes))
        layer = Transpose(root.name, (), flat, made, axes=permutation.axes)
        return plain + min(plain + copies, stored_cycles(layer, extents(root), accelerator))


# ---------------------------------------------------------------- which layer takes which form


def _is_free(layer: Layer) -> bool:
    kinds = isinstance(layer, Lookup | BasePairwise | Softmax | Concat | Slice | Pad) or _has_weights(layer)
    return kinds and all(tensor.bytes_of(1) == 1 for tensor in (*layer.inputs, layer.ofm))


def _has_weights(layer: Layer) -> TypeGuard[Conv2d | Dense]:
    """Whether a layer sums over all its input channels: its weights can be in any order of them."""
    return isinstance(layer, Dense) or (isinstance(layer, Conv2d) and layer.groups == 1)


def _is_of_rows(layer: Layer) -> bool:
    """Whether a layer needs the last dimension as a whole, and innermost."""
    match layer:
        case Lookup():
            return layer.by_channel
        case Softmax():
            return True
        case BasePairwise():
            return layer.broadcast and layer.ifm2.elements > 1
        case _:
            return False


def _allows(layer: Layer, form: Permutation) -> bool:
    """Whether a layer can make its output in a form."""
    if _has_weights(layer):
        return order_of_channels(form, layer.out_channels) is not None
    if isinstance(layer, Concat | Slice | Pad):
        return axes_of_order(form, layer.ofm.shape) is not None
    if not _is_of_rows(layer) or layer.ofm.shape[-1] == 1:
        return True
    axes = axes_of_order(form, layer.ofm.shape)
    return axes is not None and axes[-1] == len(axes) - 1


def _form_of_input(layer: Layer, number: int, form: Permutation) -> Permutation | None:
    """The form of an input for an output in some form; None where a layer cannot make that."""
    if not _allows(layer, form):
        return None
    tensor = layer.inputs[number]
    if _has_weights(layer):
        return same_order(tensor.shape)
    if isinstance(layer, Concat | Slice | Pad):
        axes = axes_of_order(form, layer.ofm.shape)
        return None if axes is None else order_by_axes(tensor.shape, axes)
    return form if tensor.elements == layer.ofm.elements else same_order(tensor.shape)


def _form_for_input(layer: Layer, number: int, form: Permutation) -> Permutation | None:
    """The form of the output for an input in some form; None where a layer cannot take that."""
    tensor = layer.inputs[number]
    if _has_weights(layer):
        return None
    if isinstance(layer, Concat | Slice | Pad):
        axes = axes_of_order(form, tensor.shape)
        return None if axes is None else order_by_axes(layer.ofm.shape, axes)
    return form if tensor.elements == layer.ofm.elements and _allows(layer, form) else None
