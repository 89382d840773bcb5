"""Lowers a region, a Relay function of composites, to a `Graph`."""

from __future__ import annotations

from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.connect import (
    LayerNode,
    RegionValues,
    check_wildcards,
    connected_graph,
    with_unique_names,
    without_idle_reshapes,
)
from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.sources import (
    calls_in_order,
    calls_outside_composites,
    described,
    operator_name,
    source_names,
)
from byoc_hw.frontend.relay.table import parse_composite
from byoc_hw.graph import Graph, Reshape, Transpose


def lower_region(function: relay.Function, symbol: str, numerics: str = "relay") -> Graph:
    """The `Graph` of a region, named by its C symbol. Raises `Unsupported` with operator and reason."""
    body = function.body
    values = RegionValues(
        {parameter: read.activation(parameter, f"in{index}") for index, parameter in enumerate(function.params)},
        tuple(body.fields) if isinstance(body, relay.Tuple) else (body,),
        read.constant,
        _described,
    )
    nodes = [_node(expr) for expr in calls_outside_composites(function)]
    return connected_graph(symbol, nodes, values, numerics)


def layer_values(function: relay.Function) -> dict[str, relay.Expr]:
    """The value that each layer of a region computes, by the name that `lower_region` gives the layer."""
    nodes, _ = without_idle_reshapes(_node(expr) for expr in calls_outside_composites(function))
    return {node.layer.name: node.value for node in with_unique_names(nodes)}


def region_layout(function: relay.Function) -> str:
    """NCHW if any operator of a region is in NCHW, else NHWC."""
    return "NCHW" if any(read.layout_of(call) == "NCHW" for call in calls_in_order(function)) else "NHWC"


# ---------------------------------------------------------------- parse


def _node(call: relay.Call) -> LayerNode:
    if isinstance(call.op, relay.Function):
        return _composite(call)
    if operator_name(call) in ("layout_transform", "transpose"):
        return _transpose(call)
    raise Unsupported(f"{_described(call)} cannot be lowered: no composite of the pattern table holds it")


def _composite(call: relay.Call) -> LayerNode:
    function = call.op
    name = str(function.attrs["Composite"]).partition(".")[2]
    parsed = parse_composite(name, function.body)
    if parsed is None:
        raise Unsupported(f"composite {name} at {_described(call)} cannot be lowered: no pattern {name!r} reads it")
    layer, match = parsed
    check_wildcards(name, layer, len(match.inputs))
    if any(read.layout_of(inner) == "NCHW" for inner in match.calls):
        raise Unsupported(f"composite {name} at {layer.name} cannot be lowered: its data layout is NCHW, not NHWC")
    arguments = dict(zip(function.params, call.args, strict=True))
    return LayerNode(call, layer, tuple(arguments.get(expr, expr) for expr in match.inputs))


def _transpose(call: relay.Call) -> LayerNode:
    ifm = call.args[0]
    axes = read.transposed_axes(call) if operator_name(call) == "transpose" else read.layout_axes(call)
    if axes is None:
        source, target = call.attrs.src_layout, call.attrs.dst_layout
        raise Unsupported(f"layout_transform from {source} to {target} cannot be lowered: it is no permutation")
    names = source_names(call.span)
    name = f"{names[0] if names else 'layout'}_transpose"
    before, after = read.activation(ifm, f"{name}_ifm"), read.activation(call, name)
    moved = [axis for axis in axes if before.shape[axis] > 1]
    if moved == sorted(moved):  # only dimensions of 1 move: the bytes keep their order
        return LayerNode(call, Reshape(name, names, before, after), (ifm,))
    return LayerNode(call, Transpose(name, names, before, after, axes=axes), (ifm,))


def _described(expr: relay.Expr) -> str:
    return described(expr) if isinstance(expr, relay.Call) else type(expr).__name__
