"""Transpositions that go through what computes each element by itself, as those around an image in NCHW do.

    %1 = transpose(%0)           (1, H, W, C) to (1, C, H, W)
    %2 = lookup(%1)
    %3 = concat(%2, %9), axis 1  of which %9 is a transposition as well
    %4 = transpose(%3)           to (1, H, W, K)
    %5 = conv2d(%4)

The table and the concatenation may as well be of tensors in NHWC, and no byte is reordered. A tensor's form says in
which order its elements lie: a permutation of those of the model's tensor. Element-wise layers take any form, layers
along dimensions those that keep dimensions whole. All layers that hang together get the forms in which the fewest
cycles go into transpositions between them, and between them and the others. What reorders the channels of each pixel
by itself, as a flattening in front of a dense layer does those of its only one, is taken up by the weights of the
layer that reads or makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Conv2d, Dense, Graph, Layer, Lookup, Pad, Reshape, Slice, Transpose
from byoc_hw.names import distinct
from byoc_hw.plan.array.transfers import Permutation
from byoc_hw.plan.channel_orders import making_in_order, reading_in_order
from byoc_hw.plan.element_forms import Forms, Reordered
from byoc_hw.plan.element_orders import Axes, axes_of_order, is_same_order, order_of_channels, same_order
from byoc_hw.tensor import Quantization, Tensor


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
    if not chosen and not forms.saves_ways():
        return graph
    found = Rewritten(forms, chosen).graph()
    known = {id(layer) for layer in graph.layers}
    return found if all(plannable(layer) for layer in found.layers if id(layer) not in known) else graph


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
        self._kept = self._ways_as_in_model()
        self._outputs = {
            self._way(tensor): tensor
            for tensor in reversed(self._old.outputs)
            if not self._stays(tensor) and self._old.made.get(tensor) not in self._kept
        }

    def graph(self) -> Graph:
        for index, layer in enumerate(self._old.layers):
            if index in self._kept:
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
        moved = self._forms.needed(self._forms.read(tensor), same_order(tensor.shape), self._chosen)
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

    def _ways_as_in_model(self) -> set[int]:
        """The layers of ways that are as in the model."""
        read = list(self._old.outputs)
        for index, layer in enumerate(self._old.layers):
            if index not in self._chosen and self._forms.inputs(index):
                orders = (
                    self._forms.order_taken_up(index, number, self._chosen) for number in range(len(layer.inputs))
                )
                read += [tensor for tensor, order in zip(layer.inputs, orders, strict=True) if order is None]
        return {index for tensor in read if self._stays(tensor) for index in self._forms.read(tensor).moves}

    def _add(self, index: int, layer: Layer) -> None:
        """A layer of the model, on what it reads in its form."""
        form = self._chosen.get(index)
        if isinstance(layer, Conv2d | Dense):
            self._add_weighted(index, layer)
            return
        if form is None:
            inputs = [
                self._made.get(one, one) if self._stays(one) else self._reordered(self._way(one))
                for one in layer.inputs
            ]
            same = all(found is one for found, one in zip(inputs, layer.inputs, strict=True))
            self._append(layer if same else layer.on(inputs, layer.ofm))
            return
        axes = axes_of_order(form, layer.ofm.shape)
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

    def _add_weighted(self, index: int, layer: Conv2d | Dense) -> None:
        """A layer whose weights may take up orders of channels."""
        order, changed = self._forms.order_taken_up(index, 0, self._chosen), layer
        if order is not None:
            changed = reading_in_order(changed, np.argsort(order))
            as_it_lies = Reordered(self._forms.read(layer.ifm).root, same_order(layer.ifm.shape))
            ifm = self._reordered(Operand(as_it_lies, layer.ifm.shape, layer.ifm.quantization))
        elif self._stays(layer.ifm):
            ifm = self._made.get(layer.ifm, layer.ifm)
        else:
            ifm = self._reordered(self._way(layer.ifm))
        ofm = layer.ofm
        if index in self._chosen:
            made = order_of_channels(self._chosen[index], layer.out_channels)
            assert made is not None, "a choice has forms that layers can have"
            ofm = replace(ofm, name=self._name(ofm.name))
            changed = replace(making_in_order(changed, made), name=f"{layer.name}_moved", source=())
        same = changed is layer and ifm is layer.ifm
        self._append(layer if same else changed.on([ifm], ofm), layer.ofm)

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
        if is_same_order(moved.reordered) and (root.shape, root.quantization) == wanted[1:]:
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
        if is_same_order(reordered):
            yield Reshape(name, (), root, made)
            return
        axes = axes_of_order(reordered, root.shape)
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
