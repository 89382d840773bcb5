"""Orders of channels that weights take up: what shuffles channels is no work then.

    %2 = concat(%0, %1)          (1, H, W, 2 K)
    %3 = shuffled(%2)            reshape to (1, H, W, 2, K), transpose to (1, H, W, K, 2), reshape to (1, H, W, 2 K)
    %4 = slice(%3), the last K channels
    %5 = conv2d(%4)

A convolution sums over its input channels in any order, if its weights have the same one. So %5 may read the last
halves of %0 and %1, one behind the other, and neither %2 nor %3 is there. What concatenates, slices and shuffles
channels is followed as runs of channels of other tensors until a layer reads them, which gets its weights in their
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from byoc_hw.graph import (
    BaseWeighted,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Graph,
    Layer,
    Lookup,
    Pool2d,
    Reshape,
    Slice,
    Transpose,
)
from byoc_hw.names import distinct
from byoc_hw.tensor import Array, Quantization, Tensor

_Made = TypeVar("_Made", bound=BaseWeighted)

MOST_READ = 16
"""The most runs of channels of other tensors that a layer reads: each is a copy of its own."""


def with_orders_in_weights(graph: Graph, plannable: Callable[[Layer], bool]) -> Graph:
    """The graph without the shuffles of channels whose order the weights of later layers can take up; the same graph
    where there are none. Of its new concatenations and slices each has to be `plannable`.

    Tensors that are inputs or outputs of the graph are as they were, and so is what convolutions make. A layer that
    makes channels in another order has another name, and no source: no operator of the model has such an output.
    """
    shuffles = dict(_shuffles(graph))
    while shuffles:
        made = _Rewritten(graph, shuffles)
        try:
            found = made.graph()
        except _NeedsOrder as error:
            shuffles = {index: one for index, one in shuffles.items() if index not in error.shuffles}
            continue
        known = {layer.kind for layer in graph.layers}
        if all(layer.kind in known and plannable(layer) for layer in made.new):
            return found
        break
    return graph


class _NeedsOrder(Exception):
    """A layer needs channels in the order of the model, which these shuffles, by index, have changed."""

    def __init__(self, shuffles: frozenset[int]) -> None:
        super().__init__(shuffles)
        self.shuffles = shuffles


class _Shuffle(NamedTuple):
    """A reshape, a transposition and a reshape, by index: channel i of what they make is channel `order[i]` of what
    they read."""

    layers: tuple[int, int, int]
    order: Array


def _shuffles(graph: Graph) -> Iterator[tuple[int, _Shuffle]]:
    """The shuffles of channels, by index of their transposition."""
    readers: dict[Tensor, list[int]] = {}
    for index, layer in enumerate(graph.layers):
        for tensor in layer.inputs:
            readers.setdefault(tensor, []).append(index)
    for index, layer in enumerate(graph.layers):
        before, behind = graph.made.get(layer.ifm), readers.get(layer.ofm, [])
        if not isinstance(layer, Transpose) or before is None or len(behind) != 1 or readers[layer.ifm] != [index]:
            continue
        first, last = graph.layers[before], graph.layers[behind[0]]
        inside = {layer.ifm, layer.ofm}.isdisjoint(graph.outputs)
        if not (inside and isinstance(first, Reshape) and isinstance(last, Reshape)):
            continue
        order = _order(first.ifm.shape, layer, last.ofm.shape)
        if order is not None:
            yield index, _Shuffle((before, index, behind[0]), order)


def _order(shape: tuple[int, ...], turned: Transpose, made: tuple[int, ...]) -> Array | None:
    """The channels that a transposition gives those of an image; None where it moves anything else."""
    channels, inner = shape[-1], turned.ifm.shape
    if shape != made:
        return None
    for split in range(len(inner)):
        if prod(inner[split:]) == channels and turned.axes[:split] == tuple(range(split)):
            axes = [axis - split for axis in turned.axes[split:]]
            return np.arange(channels).reshape(inner[split:]).transpose(axes).reshape(-1)
    return None


class _Run(NamedTuple):
    """Channels of a tensor: so many from the first one on."""

    tensor: Tensor
    first: int
    channels: int


@dataclass(frozen=True)
class _Arranged:
    """A tensor of the model as runs of channels of others: channel i of them all is channel `order[i]` of the tensor.
    `shuffles` are those that the order comes of, and `joined` the concatenation that makes it, if one does."""

    tensor: Tensor
    runs: tuple[_Run, ...]
    order: Array
    shuffles: frozenset[int] = frozenset()
    joined: Concat | None = None

    @property
    def in_order(self) -> bool:
        return bool((self.order == np.arange(len(self.order))).all())


@dataclass
class _Rewritten:
    """The layers of a graph without some shuffles. `new` are those that are not in the graph."""

    old: Graph
    shuffles: dict[int, _Shuffle]
    new: list[Layer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._layers: list[Layer] = []
        self._values: dict[Tensor, _Arranged] = {}
        self._known: dict[tuple[_Run, ...], Tensor] = {}
        self._names = [layer.name for layer in self.old.layers]

    def graph(self) -> Graph:
        """Raises `_NeedsOrder` where a layer cannot take up the order of what it reads."""
        passed = {index for one in self.shuffles.values() for index in one.layers}
        for index, layer in enumerate(self.old.layers):
            if index in self.shuffles:
                self._shuffle(index)
            elif index not in passed:
                self._add(layer)
        outputs = tuple(self._plain(self._value(tensor)) for tensor in self.old.outputs)
        return replace(self.old, outputs=outputs, layers=tuple(self._layers))

    def _value(self, tensor: Tensor) -> _Arranged:
        if tensor in self._values:
            return self._values[tensor]
        channels = tensor.shape[-1] if tensor.shape else 1
        return _Arranged(tensor, (_Run(tensor, 0, channels),), np.arange(channels))

    def _shuffle(self, index: int) -> None:
        """Channel c of what a shuffle makes is channel `order[c]` of what it reads."""
        one = self.shuffles[index]
        before, _, behind = (self.old.layers[layer] for layer in one.layers)
        read, places = self._value(before.ifm), np.argsort(one.order)
        order, shuffles = places[read.order], read.shuffles | {index}
        self._values[behind.ofm] = _Arranged(behind.ofm, read.runs, order, shuffles)

    def _add(self, layer: Layer) -> None:
        read = [self._value(tensor) for tensor in layer.inputs]
        if isinstance(layer, Concat) and layer.axis == len(layer.ofm.shape) - 1:
            self._join(layer, read)
            return
        if all(one.in_order for one in read):
            self._append(layer, [self._plain(one) for one in read], layer.ofm)
            return
        one = read[0]
        match layer:
            case Slice() if _is_of_channels(layer):
                self._cut(layer, one)
            case Conv2d() if layer.groups == 1:
                self._append(reading_in_order(layer, one.order), [self._together(one)], layer.ofm)
            case Dense():
                self._append(reading_in_order(layer, one.order), [self._together(one)], layer.ofm)
            case DepthwiseConv2d() | Pool2d() | Lookup():
                self._by_channel(layer, one)
            case Reshape() if layer.ofm.shape[-1] == layer.ifm.shape[-1]:
                self._by_channel(layer, one)
            case _:
                raise _NeedsOrder(frozenset().union(*(each.shuffles for each in read if not each.in_order)))

    def _join(self, layer: Concat, read: Sequence[_Arranged]) -> None:
        offsets = np.cumsum([0, *(len(one.order) for one in read)])
        order = np.concatenate([one.order + offset for one, offset in zip(read, offsets, strict=False)])
        runs = tuple(run for one in read for run in one.runs)
        shuffles = frozenset().union(*(one.shuffles for one in read))
        self._values[layer.ofm] = _Arranged(layer.ofm, runs, order, shuffles, layer)

    def _cut(self, layer: Slice, read: _Arranged) -> None:
        """The runs of the channels that a slice takes."""
        first, count = layer.begin[-1], layer.ofm.shape[-1]
        runs, orders, start = list[_Run](), list[Array](), 0
        for run in read.runs:
            order = read.order[start : start + run.channels]
            taken = np.flatnonzero((first <= order) & (order < first + count))
            for some in np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1) if len(taken) else ():
                runs.append(_Run(run.tensor, run.first + int(some[0]), len(some)))
                orders.append(order[some] - first)
            start += run.channels
        self._values[layer.ofm] = _Arranged(layer.ofm, tuple(runs), np.concatenate(orders), read.shuffles)

    def _by_channel(self, layer: DepthwiseConv2d | Pool2d | Lookup | Reshape, read: _Arranged) -> None:
        """A layer that makes each channel of the same channel: they stay as they are arranged."""
        ifm = self._together(read)
        name = self._name(layer.name)
        ofm = replace(layer.ofm, name=name)
        if isinstance(layer, DepthwiseConv2d):
            changed: Layer = making_in_order(layer, read.order)
        elif isinstance(layer, Lookup) and layer.by_channel:
            changed = replace(layer, tables=layer.tables[read.order])
        else:
            changed = layer
        self._append(replace(changed, name=name, source=()), [ifm], ofm)
        self._values[layer.ofm] = _Arranged(layer.ofm, (_Run(ofm, 0, len(read.order)),), read.order, read.shuffles)

    def _append(self, layer: Layer, inputs: Sequence[Tensor], ofm: Tensor) -> None:
        same = ofm is layer.ofm and all(map(_is, inputs, layer.inputs))
        self._layers.append(layer if same else layer.on(inputs, ofm))

    def _plain(self, one: _Arranged) -> Tensor:
        """A tensor with its channels in the order of the model."""
        if not one.in_order:
            raise _NeedsOrder(one.shuffles)
        return self._together(one)

    def _together(self, one: _Arranged) -> Tensor:
        """The tensor that has some runs, which a concatenation of slices makes where none is there."""
        if one.runs not in self._known:
            if len(one.runs) > MOST_READ:
                raise _NeedsOrder(one.shuffles)
            self._known[one.runs] = self._made(one)
        return self._known[one.runs]

    def _made(self, one: _Arranged) -> Tensor:
        if one.joined is not None and not one.shuffles:  # as in the model
            inputs = [self._plain(self._value(tensor)) for tensor in one.joined.inputs]
            self._append(one.joined, inputs, one.joined.ofm)
            return one.joined.ofm
        parts = [self._part(run) for run in one.runs]
        if len(parts) == 1 and parts[0].quantization == one.tensor.quantization:
            return parts[0]
        name = self._name(one.tensor.name)
        ofm = replace(one.tensor, name=name)
        if len(parts) == 1:
            self._new(Reshape(name, (), parts[0], ofm))
        else:
            self._new(Concat(name, (), parts[0], ofm, others=tuple(parts[1:]), axis=len(ofm.shape) - 1))
        return ofm

    def _part(self, run: _Run) -> Tensor:
        """The tensor that has the channels of a run."""
        tensor, first, channels = run
        if channels == tensor.shape[-1]:
            return tensor
        if (run,) not in self._known:
            name, outer = self._name(f"{tensor.name}_channels"), len(tensor.shape) - 1
            ofm = replace(tensor, name=name, shape=(*tensor.shape[:-1], channels))
            self._new(Slice(name, (), tensor, ofm, begin=(0,) * outer + (first,), steps=(1,) * (outer + 1)))
            self._known[(run,)] = ofm
        return self._known[(run,)]

    def _new(self, layer: Layer) -> None:
        self._layers.append(layer)
        self.new.append(layer)

    def _name(self, name: str) -> str:
        """Another name than that of the model's tensor, whose channels lie in another order."""
        *_, found = distinct([*self._names, f"{name}_arranged"])
        self._names.append(found)
        return found


def _is(one: Tensor, other: Tensor) -> bool:
    return one is other


def _is_of_channels(layer: Slice) -> bool:
    """Whether a slice takes some channels of all pixels, all of a run."""
    same = layer.ofm.shape[:-1] == layer.ifm.shape[:-1]
    return same and not any(layer.begin[:-1]) and set(layer.steps) == {1}


def reading_in_order(layer: Conv2d | Dense, order: Array) -> Conv2d | Dense:
    """A layer that sums over its input channels in another order: the first one is the model's `order[0]`."""
    weights = layer.weights
    assert weights.data is not None, "weights are constant"
    return replace(layer, weights=replace(weights, data=np.ascontiguousarray(weights.data[..., order])))


def making_in_order(layer: _Made, order: Array) -> _Made:
    """A layer that makes its output channels in another order: the first one is the model's `order[0]`. A depthwise one
    reads them so as well."""
    return replace(
        layer,
        weights=_reordered(layer.weights, order),
        bias=None if layer.bias is None else _reordered(layer.bias, order),
        accumulator=_quantization(layer.accumulator, order),
    )


def _reordered(tensor: Tensor, order: Array) -> Tensor:
    """A constant with a value or filter for each channel."""
    assert tensor.data is not None, "weights and biases are constant"
    quantization = None if tensor.quantization is None else _quantization(tensor.quantization, order)
    return replace(tensor, data=np.ascontiguousarray(tensor.data[order]), quantization=quantization)


def _quantization(one: Quantization, order: Array) -> Quantization:
    scale, zero_point = (
        values if len(values) == 1 else tuple(values[channel] for channel in order)
        for values in (one.scale, one.zero_point)
    )
    return replace(one, scale=scale, zero_point=zero_point)
