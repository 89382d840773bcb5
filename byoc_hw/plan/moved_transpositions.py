"""Transpositions that go through what computes each element by itself, as those around an image in NCHW do.

    %1 = transpose(%0)           (1, H, W, C) to (1, C, H, W)
    %2 = lookup(%1)
    %3 = concat(%2, %9), axis 1  of which %9 is a transposition as well
    %4 = transpose(%3)           to (1, H, W, K)
    %5 = conv2d(%4)

The table and the concatenation may as well be of tensors in NHWC, and no byte is reordered. A tensor's form says in
which order its elements lie: a permutation of those of the model's tensor. Element-wise layers take any form, layers
along dimensions those that keep dimensions whole. All layers that hang together get the forms in which the fewest
cycles go into transpositions between them, and between them and the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import BasePairwise, Concat, Graph, Layer, Lookup, Pad, Reshape, Slice, Softmax, Transpose
from byoc_hw.names import distinct
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.permuting import permuting_copies
from byoc_hw.plan.array.spread import stored_cycles
from byoc_hw.plan.array.transfers import Permutation, canonical
from byoc_hw.plan.array.window import extents
from byoc_hw.tensor import Quantization, Tensor

Axes = tuple[int, ...]
"""By dimension of a tensor as it lies: the dimension of the model's tensor that it is."""


class Read(NamedTuple):
    """Which tensor a layer reads, by way of transpositions and reshapes, and the elements that these reorder."""

    root: Tensor
    path: Permutation
    moves: tuple[int, ...]  # the layers of the way, by index


class Reordered(NamedTuple):
    """A tensor that has the elements of another one, reordered."""

    root: Tensor
    reordered: Permutation


class Operand(NamedTuple):
    """A tensor that a layer reads: whose elements it has, and what the layer takes them for."""

    moved: Reordered
    shape: tuple[int, ...]
    quantization: Quantization | None


def with_moved_transpositions(
    graph: Graph, accelerator: Accelerator, plannable: Callable[[Layer], bool] = lambda _: True
) -> Graph:
    """The graph with its transpositions where they take the DMA of an accelerator the fewest cycles, and equal tables
    of one tensor once; the same graph where none is saved. Of its layers each has to be `plannable`.

    Tensors that are inputs or outputs of the graph are as they were. A layer whose output lies in another order than
    the model's has it in `axes_of_model`.
    """
    if not any(isinstance(layer, Transpose) for layer in graph.layers):
        return graph
    forms = Forms(graph, accelerator)
    chosen = forms.best()
    if not chosen and not forms.has_idle_ways():
        return graph
    found = Rewritten(forms, chosen).graph()
    known = {id(layer) for layer in graph.layers}
    return found if all(plannable(layer) for layer in found.layers if id(layer) not in known) else graph


# ---------------------------------------------------------------- permutations of elements


def _same(shape: Sequence[int]) -> Permutation:
    return Permutation((prod(shape),), (0,))


@lru_cache(maxsize=4096)
def _then(one: Permutation, other: Permutation) -> Permutation | None:
    """Both, one after the other, in the fewest dimensions; None where they have none in common."""
    both = one.then(other)
    return None if both is None else canonical(both.shape, both.axes)


@lru_cache(maxsize=4096)
def _inverse(one: Permutation) -> Permutation:
    return Permutation(
        tuple(one.shape[axis] for axis in one.axes), tuple(one.axes.index(axis) for axis in range(len(one.axes)))
    )


def _is_same(one: Permutation) -> bool:
    return one.axes == tuple(range(len(one.axes)))


def _permuted(shape: Sequence[int], axes: Axes) -> Permutation:
    """The form of a tensor of this shape with its dimensions in an order."""
    return canonical(tuple(shape), axes)


@lru_cache(maxsize=4096)
def _axes(form: Permutation, shape: tuple[int, ...]) -> Axes | None:
    """The dimensions of a tensor of this shape in the order of a form; None where it cuts dimensions apart.

    Dimensions of one element, which may be anywhere, go before the dimension that they were in front of; the first
    ones stay.
    """
    whole = Permutation(shape, tuple(range(len(shape)))).then(form)
    if whole is None:
        return None
    real = [axis for axis, size in enumerate(shape) if size > 1]
    if whole.shape != tuple(shape[axis] for axis in real):
        return None
    order: list[int] = [real[axis] for axis in whole.axes]
    first = real[0] if real else len(shape)
    for axis in reversed(range(first, len(shape))):
        if shape[axis] == 1:
            behind = [one for one in range(axis + 1, len(shape)) if one in order]
            order.insert(order.index(behind[0]) if behind else order.index(max(order)) + 1, axis)
    return (*range(first), *order)


# ---------------------------------------------------------------- forms


class Forms:
    """The forms that the layers of a graph may have, and what their transpositions cost.

    A choice has the form of the output of some layers, by index; the others are as in the model.
    """

    def __init__(self, graph: Graph, accelerator: Accelerator) -> None:
        self.graph, self._accelerator = graph, accelerator
        self._reads: dict[Tensor, Read] = {}
        for index, layer in enumerate(graph.layers):
            if isinstance(layer, Reshape | Transpose):
                self._reads[layer.ofm] = self._moved(index, layer)
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
        return self._reads.get(tensor) or Read(tensor, _same(tensor.shape), ())

    def is_idle(self, one: Read) -> bool:
        """Whether the transpositions of a way leave all elements where they are."""
        moves = any(isinstance(self.graph.layers[index], Transpose) for index in one.moves)
        return moves and _is_same(one.path)

    def has_idle_ways(self) -> bool:
        return any(map(self.is_idle, self._reads.values()))

    def inputs(self, index: int) -> list[Read]:
        """What a layer reads; nothing for one that is part of a way."""
        layer = self.graph.layers[index]
        return [] if layer.ofm in self._reads else [self.read(tensor) for tensor in layer.inputs]

    def form(self, tensor: Tensor, chosen: Mapping[int, Permutation]) -> Permutation:
        """How a tensor that is no transposition of another lies."""
        return chosen.get(self.graph.made.get(tensor, -1)) or _same(tensor.shape)

    def need(self, index: int, number: int, chosen: Mapping[int, Permutation]) -> Reordered | None:
        """What a layer reads as an input, of a tensor as it lies; None where that is no permutation of one."""
        layer, one = self.graph.layers[index], self.inputs(index)[number]
        form = _form_of_input(layer, number, chosen[index]) if index in chosen else _same(layer.inputs[number].shape)
        return None if form is None else self.needed(one, form, chosen)

    def needed(self, one: Read, form: Permutation, chosen: Mapping[int, Permutation]) -> Reordered | None:
        """How a tensor as it lies has to be reordered for what reads it in a form."""
        wanted = _then(one.path, form)
        reordered = None if wanted is None else _then(_inverse(self.form(one.root, chosen)), wanted)
        return None if reordered is None else Reordered(one.root, reordered)

    def best(self) -> dict[int, Permutation]:
        """The choice with the fewest cycles near those where all layers that hang together agree."""
        best: dict[int, Permutation] = {}
        for index in self._free:
            tried = list[dict[int, Permutation]]()
            for form in self._candidates(index, best):
                if form == self.form(self.graph.layers[index].ofm, best):
                    continue
                state = {**best, **self._spread(index, form)}
                if state not in tried:
                    tried.append(state)
                    best = self._fewer(best, self._improved(state))
        return {index: form for index, form in best.items() if not _is_same(form)}

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
        read = {self.need(index, number, chosen) for index, number in self._readers.get(root, ())}
        ends = {self.needed(self.read(tensor), _same(tensor.shape), chosen) for tensor in self._outputs.get(root, ())}
        inside = sum(self._transposing(moved, root in self.graph.inputs) for moved in read)
        return inside + sum(self._transposing(moved, True) for moved in ends - read)

    def _moved(self, index: int, layer: Reshape | Transpose) -> Read:
        before = self.read(layer.ifm)
        own = _permuted(layer.ifm.shape, layer.axes) if isinstance(layer, Transpose) else _same(layer.ofm.shape)
        both = _then(before.path, own)
        if both is None or layer.ofm.bytes_of(1) != 1:
            return Read(layer.ofm, _same(layer.ofm.shape), ())
        return Read(before.root, both, (*before.moves, index))

    def _candidates(self, index: int, chosen: Mapping[int, Permutation]) -> Iterator[Permutation]:
        """The forms of a layer in which one of its inputs, or one of those that read it, takes no transposition."""
        layer = self.graph.layers[index]
        yield _same(layer.ofm.shape)
        for number, one in enumerate(self.inputs(index)):
            yield from self._taken(index, number, self.form(one.root, chosen))
        for reader, number in self._readers.get(layer.ofm, ()):
            tensor = self.graph.layers[reader].inputs[number]
            form = _form_of_input(self.graph.layers[reader], number, chosen[reader]) if reader in chosen else None
            yield from self._given(index, tensor, form or _same(tensor.shape))

    def _taken(self, index: int, number: int, form: Permutation) -> Iterator[Permutation]:
        """The form in which a layer takes a tensor in some form without a transposition, if there is one."""
        there = _then(_inverse(self.inputs(index)[number].path), form)
        found = None if there is None else _form_for_input(self.graph.layers[index], number, there)
        if found is not None:
            yield found

    def _given(self, index: int, tensor: Tensor, form: Permutation) -> Iterator[Permutation]:
        """The form in which a layer makes a tensor that is read in some form without a transposition, if there is
        one."""
        found = _then(self.read(tensor).path, form)
        if found is not None and _allows(self.graph.layers[index], found):
            yield found

    def _spread(self, index: int, form: Permutation) -> dict[int, Permutation]:
        """The forms of a layer, and of all that hang together with it so that nothing is transposed between them."""
        found, left = {index: form}, [index]
        while left:
            one = left.pop()
            layer = self.graph.layers[one]
            near = list[tuple[int, Iterator[Permutation]]]()
            for reader, number in self._readers.get(layer.ofm, ()):
                near.append((reader, self._taken(reader, number, found[one])))
            for number, read in enumerate(self.inputs(one)):
                wanted = _form_of_input(layer, number, found[one])
                if wanted is not None:
                    made = self.graph.made.get(read.root, -1)
                    near.append((made, self._given(made, layer.inputs[number], wanted)))
            for other, forms in near:
                if other in self._free and other not in found:
                    for taken in forms:
                        found[other] = taken
                        left.append(other)
        return found

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
        if _is_same(permutation) or root.data is not None:
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
    kinds = isinstance(layer, Lookup | BasePairwise | Softmax | Concat | Slice | Pad)
    return kinds and all(tensor.bytes_of(1) == 1 for tensor in (*layer.inputs, layer.ofm))


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
    if isinstance(layer, Concat | Slice | Pad):
        return _axes(form, layer.ofm.shape) is not None
    if not _is_of_rows(layer) or layer.ofm.shape[-1] == 1:
        return True
    axes = _axes(form, layer.ofm.shape)
    return axes is not None and axes[-1] == len(axes) - 1


def _form_of_input(layer: Layer, number: int, form: Permutation) -> Permutation | None:
    """The form of an input for an output in some form; None where a layer cannot make that."""
    if not _allows(layer, form):
        return None
    tensor = layer.inputs[number]
    if isinstance(layer, Concat | Slice | Pad):
        axes = _axes(form, layer.ofm.shape)
        return None if axes is None else _permuted(tensor.shape, axes)
    return form if tensor.elements == layer.ofm.elements else _same(tensor.shape)


def _form_for_input(layer: Layer, number: int, form: Permutation) -> Permutation | None:
    """The form of the output for an input in some form; None where a layer cannot take that."""
    tensor = layer.inputs[number]
    if isinstance(layer, Concat | Slice | Pad):
        axes = _axes(form, tensor.shape)
        return None if axes is None else _permuted(layer.ofm.shape, axes)
    return form if tensor.elements == layer.ofm.elements and _allows(layer, form) else None


# ---------------------------------------------------------------- the graph of a choice


class Rewritten:
    """The layers of a graph in some forms."""

    def __init__(self, forms: Forms, chosen: Mapping[int, Permutation]) -> None:
        self._forms, self._old, self._chosen = forms, forms.graph, chosen
        self._names = [layer.name for layer in self._old.layers]
        self._layers: list[Layer] = []
        self._changed = {self._old.layers[index].ofm for index in chosen}
        self._made: dict[Tensor, Tensor] = {}
        """By tensor that a layer of the model makes: the one that has its elements as they lie."""
        self._moved: dict[Operand, Tensor] = {}
        self._tables: dict[tuple[object, ...], Tensor] = {}
        self._scales = self._quantizations()
        self._outputs = {self._way(tensor): tensor for tensor in reversed(self._old.outputs) if not self._stays(tensor)}

    def graph(self) -> Graph:
        kept = self._kept()
        for index, layer in enumerate(self._old.layers):
            if index in kept:
                self._append(layer.on([self._made.get(layer.ifm, layer.ifm)], layer.ofm))
            elif self._forms.inputs(index):
                self._add(index, layer)
        for tensor in self._old.outputs:
            if all(layer.ofm is not tensor for layer in self._layers) and tensor not in self._old.inputs:
                moved = self._way(tensor).moved
                self._layers.extend(self._moves(self._made.get(moved.root, moved.root), moved.reordered, tensor))
        return replace(self._old, layers=tuple(self._layers))

    def _stays(self, tensor: Tensor) -> bool:
        """Whether a tensor is made of what it is made of in the model, on the same way."""
        read = self._forms.read(tensor)
        return read.root not in self._changed and not self._forms.is_idle(read)

    def _way(self, tensor: Tensor) -> Operand:
        """How a tensor is made, as it is in the model."""
        moved = self._forms.needed(self._forms.read(tensor), _same(tensor.shape), self._chosen)
        assert moved is not None, "a choice has forms that layers can have"
        return Operand(moved, tensor.shape, tensor.quantization)

    def _quantizations(self) -> dict[Tensor, Quantization | None]:
        """That of each tensor; of one that has none, and is only moved, that of the first one which it becomes."""
        found = {tensor: tensor.quantization for tensor in self._old.tensors}
        for layer in self._old.layers:
            for tensor in layer.inputs:
                root = self._forms.read(tensor).root
                found[root] = found[root] or tensor.quantization
        return found

    def _kept(self) -> set[int]:
        """The layers of ways that are as in the model."""
        read = list(self._old.outputs)
        for index, layer in enumerate(self._old.layers):
            if index not in self._chosen and self._forms.inputs(index):
                read.extend(layer.inputs)
        return {index for tensor in read if self._stays(tensor) for index in self._forms.read(tensor).moves}

    def _add(self, index: int, layer: Layer) -> None:
        """A layer of the model, on what it reads in its form."""
        form = self._chosen.get(index)
        if form is None:
            inputs = [
                self._made.get(one, one) if self._stays(one) else self._reordered(self._way(one))
                for one in layer.inputs
            ]
            same = all(found is one for found, one in zip(inputs, layer.inputs, strict=True))
            self._append(layer if same else layer.on(inputs, layer.ofm))
            return
        axes = _axes(form, layer.ofm.shape)
        shape = tuple(form.shape[axis] for axis in form.axes)
        if axes is not None:
            shape = tuple(layer.ofm.shape[axis] for axis in axes)
        inputs = list[Tensor]()
        for number, one in enumerate(layer.inputs):
            moved = self._forms.need(index, number, self._chosen)
            assert moved is not None, "a choice has forms that layers can have"
            taken = one.shape
            if axes is not None and len(axes) == len(one.shape):
                taken = tuple(one.shape[axis] for axis in axes)
            elif one.elements == layer.ofm.elements:
                taken = shape
            inputs.append(self._reordered(Operand(moved, taken, one.quantization)))
        ofm = replace(layer.ofm, name=self._name(layer.ofm.name), shape=shape, quantization=self._scales[layer.ofm])
        self._append(_turned(layer, axes).on(inputs, ofm), layer.ofm)

    def _append(self, layer: Layer, of_model: Tensor | None = None) -> None:
        """A layer, or what an equal table has made of the same tensor."""
        of_model = of_model or layer.ofm
        if isinstance(layer, Lookup) and layer.ofm not in self._old.outputs:
            key = (layer.ifm, layer.ofm.dtype, layer.ofm.quantization, layer.tables.tobytes())
            if key in self._tables:
                self._made[of_model] = self._tables[key]
                return
            self._tables[key] = layer.ofm
        self._layers.append(layer)
        self._made[of_model] = layer.ofm

    def _reordered(self, wanted: Operand) -> Tensor:
        moved, shape, quantization = wanted
        root = self._made.get(moved.root, moved.root)
        if root.data is not None:
            reordered = root.data.reshape(moved.reordered.shape).transpose(moved.reordered.axes)
            return replace(root, shape=shape, data=np.ascontiguousarray(reordered).reshape(shape))
        if quantization is None:
            wanted = wanted._replace(quantization=root.quantization)
        if _is_same(moved.reordered) and (root.shape, root.quantization) == wanted[1:]:
            return root
        if wanted not in self._moved:
            made = self._outputs.get(wanted)
            if made is None:
                made = replace(root, name=self._name(root.name), shape=shape, quantization=wanted.quantization)
            self._layers.extend(self._moves(root, moved.reordered, made))
            self._moved[wanted] = made
        return self._moved[wanted]

    def _moves(self, root: Tensor, reordered: Permutation, made: Tensor) -> Iterator[Layer]:
        """The layers that reorder the elements of a tensor: a single one, or a transposition between reshapes."""
        name = self._name(made.name) if made in self._old.outputs else made.name
        if _is_same(reordered):
            yield Reshape(name, (), root, made)
            return
        axes = _axes(reordered, root.shape)
        if axes is not None and made.shape == tuple(root.shape[axis] for axis in axes):
            yield Transpose(name, (), root, made, axes=axes)
            return
        shapes = {"apart": reordered.shape, "turned": tuple(reordered.shape[axis] for axis in reordered.axes)}
        apart, turned = (
            replace(made, name=self._name(f"{made.name}_{what}", ""), shape=shape) for what, shape in shapes.items()
        )
        yield Reshape(apart.name, (), root, apart)
        yield Transpose(turned.name, (), apart, turned, axes=reordered.axes)
        yield Reshape(name, (), turned, made)

    def _name(self, name: str, suffix: str = "_moved") -> str:
        """Another name than those of the layers so far."""
        *_, found = distinct([*self._names, name + suffix])
        self._names.append(found)
        return found


def _turned(layer: Layer, axes: Axes | None) -> Layer:
    """A layer with what it says of dimensions in another order."""
    if axes is None:  # no operator of the model has such an output
        return replace(layer, name=f"{layer.name}_moved", source=())
    layer = replace(layer, axes_of_model=axes)
    match layer:
        case Concat():
            return replace(layer, axis=axes.index(layer.axis))
        case Slice():
            return replace(
                layer, begin=tuple(layer.begin[axis] for axis in axes), steps=tuple(layer.steps[axis] for axis in axes)
            )
        case Pad():
            return replace(layer, before=tuple(layer.before[axis] for axis in axes))
        case _:
            return layer
