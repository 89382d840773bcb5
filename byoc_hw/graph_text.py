"""A graph as text, one line a layer, and the names that values have in the texts of all stages.

graph tvmgen_net_hwlib_main_0(%in0: 1x8x8x16) -> (%1)
%0 = conv2d(%in0) kernel 3x3, padding 1x1x1x1 -> 1x8x8x16  # net/conv
%1 = add(%0, %in0) -> 1x8x8x16  # net/add
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from byoc_hw.graph import Graph, Layer

_USUAL = {
    "strides": (1, 1),
    "padding": (0, 0, 0, 0),
    "dilation": (1, 1),
    "act_min": -128,
    "act_max": 127,
    "subtract": "",
}
_SHOWN = (
    *("mode", "kernel", "strides", "padding", "dilation", "axes", "axis", "begin", "steps", "before", "value"),
    *("subtract", "act_min", "act_max", "descending", "most", "threshold", "top_k"),
)


def value_names(graph: Graph) -> dict[Tensor, str]:
    """Each tensor of a graph by name: `%in0` an input, `%7` the output of layer 7, `%c0` a constant."""
    names = {tensor: f"%in{index}" for index, tensor in enumerate(graph.inputs)}
    names |= {layer.ofm: f"%{index}" for index, layer in enumerate(graph.layers)}
    constants = (tensor for tensor in graph.tensors if tensor not in names)
    return names | {tensor: f"%c{index}" for index, tensor in enumerate(constants)}


def graph_text(graph: Graph) -> str:
    """One line for the interface, then one a layer."""
    names = value_names(graph)
    inputs = ", ".join(f"{names[tensor]}: {shape_text(tensor.shape)}" for tensor in graph.inputs)
    outputs = ", ".join(names[tensor] for tensor in graph.outputs)
    lines = [f"graph {graph.name}({inputs}) -> ({outputs})"]
    for layer in graph.layers:
        operands = ", ".join(names[tensor] for tensor in layer.inputs)
        details = ", ".join(_details(layer))
        shape = shape_text(layer.ofm.shape)
        name = layer.name.split(";")[0]  # of fused operators the first
        lines.append(f"{names[layer.ofm]} = {layer.kind}({operands}){details and ' '}{details} -> {shape}  # {name}")
    return "\n".join(lines)


def shape_text(shape: tuple[int, ...]) -> str:
    """The extents with an x between them."""
    return "x".join(map(str, shape)) or "scalar"


def _details(layer: Layer) -> Iterator[str]:
    """What a layer has besides operands, as far as it is not what most layers have."""
    for name in _SHOWN:
        value = getattr(layer, name, None)
        if value is None or value == _USUAL.get(name) or (name == "kernel" and value == (1, 1)):
            continue
        yield f"{name} {shape_text(value) if isinstance(value, tuple) else value}"
    tables = getattr(layer, "tables", None)
    if tables is not None and len(tables) > 1:
        yield f"{len(tables)} tables"
    weights = getattr(layer, "weights", None)
    if weights is not None and weights.bits != 8:
        yield f"weights of {weights.bits} bits"
