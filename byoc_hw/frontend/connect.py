"""Connects the layers of a region to a `Graph`: the last step of lowering, the same for every front end.

A front end reads each composite as a layer with tensors of its own, and says which values of its module the layer
reads and computes. Values are what the front end has for them: anything that can be a key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from byoc_hw.errors import PatternError, Unsupported
from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.names import distinct
from byoc_hw.numerics import in_numerics
from byoc_hw.tensor import Array, Quantization, Tensor, least_bits

Value: TypeAlias = Hashable


@dataclass(frozen=True)
class LayerNode:
    """A parsed layer with tensors of its own, the value that it computes, and the values that it reads, in order."""

    value: Value
    layer: Layer
    reads: tuple[Value, ...]


def check_wildcards(pattern: str, layer: Layer, wildcards: int) -> None:
    """Raise `PatternError` unless a form of a pattern has as many wildcards as the layer that it reads has inputs."""
    if wildcards != len(layer.inputs):
        raise PatternError(
            f"pattern {pattern!r}: each wildcard of a form is an input of the layer, in order: "
            f"got {wildcards} wildcards for {len(layer.inputs)} inputs"
        )


@dataclass(frozen=True)
class RegionValues:
    """What a front end knows of a region's values: inputs as tensors, results, constants, and how to call a value."""

    inputs: Mapping[Value, Tensor]
    results: Sequence[Value]
    constant: Callable[[Value], Array]
    described: Callable[[Value], str]


def connected_graph(symbol: str, nodes: Iterable[LayerNode], values: RegionValues, numerics: str) -> Graph:
    """The `Graph` of a region, named by its C symbol, from its nodes in order. `Unsupported` for a result that no
    layer computes."""
    kept, same = without_idle_reshapes(nodes)
    named = with_unique_names(kept)
    tensors = _tensors(values, named)
    layers: list[Layer] = []
    for node in named:
        layers.extend(in_numerics(layer, numerics) for layer in _connected(node, tensors))
    results = tuple(same.get(result, result) for result in values.results)
    for result in results:
        if result not in tensors:
            raise Unsupported(f"{symbol}: output is {values.described(result)}, which no layer computes")
    return Graph(
        symbol,
        tuple(tensors[value] for value in values.inputs),
        tuple(tensors[result] for result in results),
        tuple(layers),
    )


def with_least_bits(layer: Layer) -> Layer:
    """The layer with its weights in the fewest bits that hold them: an accelerator may have that width."""
    if not isinstance(layer, Weighted) or layer.weights.data is None or layer.weights.dtype != "int8":
        return layer
    return replace(layer, weights=replace(layer.weights, bits=least_bits(layer.weights.data)))


def without_idle_reshapes(nodes: Iterable[LayerNode]) -> tuple[list[LayerNode], dict[Value, Value]]:
    """The nodes without reshapes that keep the shape, and the value that replaces each of those. A region of nothing
    else keeps them: it has layers."""
    same: dict[Value, Value] = {}
    given, kept = list(nodes), []
    for node in given:
        node = replace(node, reads=tuple(same.get(value, value) for value in node.reads))
        if isinstance(node.layer, Reshape) and node.layer.ifm.shape == node.layer.ofm.shape:
            same[node.value] = node.reads[0]
        else:
            kept.append(node)
    return (kept, same) if kept else (given, {})


def with_unique_names(nodes: Sequence[LayerNode]) -> list[LayerNode]:
    """The nodes with a name of its own for each layer."""
    names = distinct(node.layer.name for node in nodes)
    return [replace(node, layer=replace(node.layer, name=name)) for name, node in zip(names, nodes, strict=True)]


def _tensors(values: RegionValues, nodes: Iterable[LayerNode]) -> dict[Value, Tensor]:
    """One tensor for each value: inputs, constants, results.

    Not every operator states a quantization. A value takes that of its producer, or else of its first
    reader that states one.
    """
    tensors = dict(values.inputs)
    for node in nodes:
        tensors[node.value] = replace(node.layer.ofm, name=node.layer.name)
        for value, view in zip(node.reads, node.layer.inputs, strict=True):
            if value not in tensors:  # a constant operand: a parameter inside the composite
                tensors[value] = replace(view, data=values.constant(value).reshape(view.shape))
            elif tensors[value].quantization is None and view.quantization is not None:
                tensors[value] = replace(tensors[value], quantization=view.quantization)
    return tensors


def _connected(node: LayerNode, tensors: Mapping[Value, Tensor]) -> list[Layer]:
    """The layer on the region's tensors, after a `Reshape` for each input that it reads under another shape."""
    layers: list[Layer] = []
    inputs = []
    for index, (value, view) in enumerate(zip(node.reads, node.layer.inputs, strict=True)):
        tensor = tensors[value]
        if not _agrees(tensor, view):
            name, data = f"{node.layer.name}_in{index}", tensor.data
            data = None if data is None else data.reshape(view.shape)
            alias = replace(tensor, name=name, shape=view.shape, quantization=view.quantization, data=data)
            layers.append(Reshape(name=alias.name, source=node.layer.source, ifm=tensor, ofm=alias))
            tensor = alias
        inputs.append(tensor)
    layers.append(node.layer.on(inputs, tensors[node.value]))
    return layers


def _agrees(tensor: Tensor, view: Tensor) -> bool:
    wanted: Quantization | None = view.quantization
    return tensor.shape == view.shape and (wanted is None or tensor.quantization == wanted)
