"""Lowers a region, a Relay function of composites, to a `Graph`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tvm import relay

from byoc_hw.accelerator import ROUNDINGS
from byoc_hw.errors import PatternError, Unsupported
from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.sources import (
    calls_in_order,
    calls_outside_composites,
    described,
    operator_name,
    source_names,
)
from byoc_hw.frontend.relay.table import parse_composite
from byoc_hw.graph import Graph, Layer, Reshape, Transpose
from byoc_hw.names import distinct
from byoc_hw.tensor import Quantization, Tensor


@dataclass(frozen=True)
class _Node:
    """A parsed layer with tensors of its own, and the expressions that it reads."""

    expr: relay.Expr
    layer: Layer
    reads: tuple[relay.Expr, ...]


def lower_region(function: relay.Function, symbol: str, numerics: str = "relay") -> Graph:
    """The `Graph` of a region, named by its C symbol. Raises `Unsupported` with operator and reason."""
    body = function.body
    results = tuple(body.fields) if isinstance(body, relay.Tuple) else (body,)
    nodes, same = _without_idle_reshapes([_node(expr) for expr in calls_outside_composites(function)])
    nodes = _unique_names(nodes)
    tensors = _tensors(function, nodes)
    layers: list[Layer] = []
    for node in nodes:
        layers.extend(replace(layer, rounding=ROUNDINGS[numerics]) for layer in _connected(node, tensors))
    results = tuple(same.get(result, result) for result in results)
    for result in results:
        if result not in tensors:
            raise Unsupported(f"{symbol}: output is {_described(result)}, which no layer computes")
    return Graph(
        symbol,
        tuple(tensors[parameter] for parameter in function.params),
        tuple(tensors[result] for result in results),
        tuple(layers),
    )


def layer_values(function: relay.Function) -> dict[str, relay.Expr]:
    """The value that each layer of a region computes, by the name that `lower_region` gives the layer."""
    nodes, _ = _without_idle_reshapes([_node(expr) for expr in calls_outside_composites(function)])
    return {node.layer.name: node.expr for node in _unique_names(nodes)}


def region_layout(function: relay.Function) -> str:
    """NCHW if any operator of a region is in NCHW, else NHWC."""
    return "NCHW" if any(read.layout_of(call) == "NCHW" for call in calls_in_order(function)) else "NHWC"


# ---------------------------------------------------------------- parse


def _node(call: relay.Call) -> _Node:
    if isinstance(call.op, relay.Function):
        return _composite(call)
    if operator_name(call) in ("layout_transform", "transpose"):
        return _transpose(call)
    raise Unsupported(f"{_described(call)} cannot be lowered: no composite of the pattern table holds it")


def _composite(call: relay.Call) -> _Node:
    function = call.op
    name = str(function.attrs["Composite"]).partition(".")[2]
    parsed = parse_composite(name, function.body)
    if parsed is None:
        raise Unsupported(f"composite {name} at {_described(call)} cannot be lowered: no pattern {name!r} reads it")
    layer, match = parsed
    if len(match.inputs) != len(layer.inputs):
        raise PatternError(
            f"pattern {name!r}: each wildcard of a form is an input of the layer, in order: "
            f"got {len(match.inputs)} wildcards for {len(layer.inputs)} inputs"
        )
    if any(read.layout_of(inner) == "NCHW" for inner in match.calls):
        raise Unsupported(f"composite {name} at {layer.name} cannot be lowered: its data layout is NCHW, not NHWC")
    arguments = dict(zip(function.params, call.args, strict=True))
    return _Node(call, layer, tuple(arguments.get(expr, expr) for expr in match.inputs))


def _transpose(call: relay.Call) -> _Node:
    ifm = call.args[0]
    if operator_name(call) == "transpose":
        axes = read.transposed_axes(call)
    else:
        source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
        if sorted(source) != sorted(target):
            raise Unsupported(f"layout_transform from {source} to {target} cannot be lowered: it is no permutation")
        axes = tuple(source.index(letter) for letter in target)
    names = source_names(call.span)
    name = f"{names[0] if names else 'layout'}_transpose"
    before, after = read.activation(ifm, f"{name}_ifm"), read.activation(call, name)
    moved = [axis for axis in axes if before.shape[axis] > 1]
    if moved == sorted(moved):  # only dimensions of 1 move: the bytes keep their order
        return _Node(call, Reshape(name, names, before, after), (ifm,))
    return _Node(call, Transpose(name, names, before, after, axes=axes), (ifm,))


def _described(expr: relay.Expr) -> str:
    return described(expr) if isinstance(expr, relay.Call) else type(expr).__name__


def _without_idle_reshapes(nodes: list[_Node]) -> tuple[list[_Node], dict[relay.Expr, relay.Expr]]:
    """The nodes without reshapes that keep the shape, and the expression that replaces each of those."""
    same: dict[relay.Expr, relay.Expr] = {}
    kept = []
    for node in nodes:
        node = replace(node, reads=tuple(same.get(expr, expr) for expr in node.reads))
        if isinstance(node.layer, Reshape) and node.layer.ifm.shape == node.layer.ofm.shape:
            same[node.expr] = node.reads[0]
        else:
            kept.append(node)
    return kept, same


def _unique_names(nodes: list[_Node]) -> list[_Node]:
    names = distinct(node.layer.name for node in nodes)
    return [replace(node, layer=replace(node.layer, name=name)) for name, node in zip(names, nodes, strict=True)]


# ---------------------------------------------------------------- connect


def _tensors(function: relay.Function, nodes: Iterable[_Node]) -> dict[relay.Expr, Tensor]:
    """One tensor for each value: inputs, constants, results.

    Not every operator states a quantization. A value takes that of its producer, or else of its first
    reader that states one.
    """
    tensors: dict[relay.Expr, Tensor] = {}
    for index, parameter in enumerate(function.params):
        tensors[parameter] = read.activation(parameter, f"in{index}")
    for node in nodes:
        tensors[node.expr] = replace(node.layer.ofm, name=node.layer.name)
        for expr, view in zip(node.reads, node.layer.inputs, strict=True):
            if expr not in tensors:  # a constant operand: a parameter inside the composite
                tensors[expr] = replace(view, data=read.constant(expr))
            elif tensors[expr].quantization is None and view.quantization is not None:
                tensors[expr] = replace(tensors[expr], quantization=view.quantization)
    return tensors


def _connected(node: _Node, tensors: dict[relay.Expr, Tensor]) -> list[Layer]:
    """The layer on the region's tensors, after a `Reshape` for each input that it reads under another shape."""
    layers: list[Layer] = []
    inputs = []
    for index, (expr, view) in enumerate(zip(node.reads, node.layer.inputs, strict=True)):
        tensor = tensors[expr]
        if not _agrees(tensor, view):
            alias = replace(
                tensor, name=f"{node.layer.name}_in{index}", shape=view.shape, quantization=view.quantization
            )
            layers.append(Reshape(name=alias.name, source=node.layer.source, ifm=tensor, ofm=alias))
            tensor = alias
        inputs.append(tensor)
    layers.append(node.layer.on(inputs, tensors[node.expr]))
    return layers


def _agrees(tensor: Tensor, view: Tensor) -> bool:
    wanted: Quantization | None = view.quantization
    return tensor.shape == view.shape and (wanted is None or tensor.quantization == wanted)
