"""Operators of an ONNX graph on images: those of one spatial dimension as of height 1, with pads in numbers.

    (1, C, L) -> Conv -> Relu -> (1, C', L')      (1, C, 1, L) -> Conv -> Relu -> (1, C', 1, L')

What follows a windowed operator element by element stays with the image, also a concatenation or a reduction. A PRelu
of one slope is a leaky ReLU, and a batch normalization a product and a sum for each channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of

_OF_ONE_TEXT = "Clip Elu Erf Exp HardSigmoid HardSwish LeakyRelu Relu Sigmoid Softplus Tanh"
_OF_TWO_TEXT = "Add Div Max Min Mul Sub"
_WINDOWED_TEXT = "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool"


# ---------------------------------------------------------------- windows


def _windowed(graph: OnnxGraph, node: Any) -> None:
    """A convolution or a pooling."""
    attributes, shape = _with_pads(graph, node), graph.shapes.get(node.input[0])
    weights = [_weights(graph, node, name, place) for place, name in enumerate(node.input[1:], 1)]
    line = shape is not None and len(shape) == 3 and node.output[0] in graph.shapes and all(weights)
    if not line or len(node.output) > 1:
        as_it_is(graph, helper.make_node(node.op_type, node.input, node.output, node.name, **attributes))
        return
    for name in ("kernel_shape", "strides", "dilations"):
        if name in attributes:
            attributes[name] = [1, *attributes[name]]
    if "pads" in attributes:
        first, last = attributes["pads"]
        attributes["pads"] = [0, first, 0, last]
    _as_line(graph, node, graph.node(node, node.op_type, [_image(graph, node, 0), *weights], **attributes))


def _with_pads(graph: OnnxGraph, node: Any) -> dict[str, Any]:
    """The attributes of a windowed operator, with pads in place of a rule for them, where the shapes are known."""
    attributes = attributes_of(node)
    rule = attributes.pop("auto_pad", b"NOTSET").decode()
    rounded_up = node.op_type == "MaxPool" and attributes.get("ceil_mode", 0) == 1
    shape, of = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    kernel = attributes.get("kernel_shape", graph.shapes.get(node.input[-1], ())[2:])
    if not (rounded_up or rule != "NOTSET") or shape is None or of is None or len(kernel) != len(shape) - 2:
        return attributes_of(node)
    ones = [1] * len(kernel)
    steps, apart = attributes.get("strides", ones), attributes.get("dilations", ones)
    sizes = zip(shape[2:], of[2:], kernel, steps, apart, strict=True)
    totals = [max((windows - 1) * s + (k - 1) * d + 1 - n, 0) for n, windows, k, s, d in sizes]
    first = attributes.get("pads", [0] * (2 * len(kernel)))[: len(kernel)]
    if rule == "SAME_UPPER":
        first = [total // 2 for total in totals]
    elif rule == "SAME_LOWER":
        first = [total - total // 2 for total in totals]
    last = [max(total - before, 0) for total, before in zip(totals, first, strict=True)]
    return attributes | {"pads": [*first, *last]} | ({"ceil_mode": 0} if rounded_up else {})


def _weights(graph: OnnxGraph, node: Any, name: str, place: int) -> str:
    """The weights of a convolution for images, or its bias as it is; "" for weights that are no constant."""
    if place == 2 or not name:
        return name
    made = graph.maker(name)
    stored = name if made is None else made.input[0]
    if stored not in graph.constants or (made is not None and made.op_type != "DequantizeLinear"):
        return ""
    wide = graph.constant(np.expand_dims(graph.constants[stored], 2))
    if made is None:
        return wide
    attributes = attributes_of(made)
    axis = attributes.get("axis", 1) % 3
    return graph.node(made, "DequantizeLinear", [wide, *made.input[1:]], axis=axis + (axis == 2))


# ---------------------------------------------------------------- lines as images


def _image(graph: OnnxGraph, node: Any, place: int) -> str:
    """An input of three dimensions as an image."""
    name = node.input[place]
    if name not in graph.images:
        batch, channels, length = graph.shapes[name]
        shape = graph.constant(np.asarray([batch, channels, 1, length], np.int64))
        graph.images[name] = graph.node(node, "Reshape", [name, shape])
    return graph.images[name]


def _as_line(graph: OnnxGraph, node: Any, image: str) -> None:
    """Let an image be the output of a node, in three dimensions for those that read it so."""
    shape = graph.shapes[node.output[0]]
    if len(shape) == 3:
        graph.images[node.output[0]] = image
    graph.node(node, "Reshape", [image, graph.constant(np.asarray(shape, np.int64))], node.output[0])


def _follows(graph: OnnxGraph, node: Any) -> bool:
    """Whether a node reads images of lines, and constants with them, and its shape is known."""
    read = [name for name in node.input if name and graph.real_constant(name) is None]
    known = graph.shapes.get(node.output[0])
    return bool(read) and all(name in graph.images for name in read) and known is not None


def _of_one(graph: OnnxGraph, node: Any) -> None:
    """An operator of each value; other inputs, as the bounds of a clip or a scale, are the same for all."""
    if not _follows(graph, node) or any(graph.constants[one].size != 1 for one in node.input[1:] if one):
        as_it_is(graph, node)
        return
    operands = [_image(graph, node, 0), *node.input[1:]]
    _as_line(graph, node, graph.node(node, node.op_type, operands, **attributes_of(node)))


def _of_two(graph: OnnxGraph, node: Any) -> None:
    """An operator of values at the same places, or of those and a constant."""
    operands = [_operand(graph, node, place) for place in range(len(node.input))] if _follows(graph, node) else []
    if not operands or not all(operands):
        as_it_is(graph, node)
        return
    _as_line(graph, node, graph.node(node, node.op_type, operands, **attributes_of(node)))


def _operand(graph: OnnxGraph, node: Any, place: int) -> str:
    """An operand as an image; "" for constants of a shape that images have none for."""
    name = node.input[place]
    if name in graph.images:
        return graph.images[name]
    made = graph.maker(name)
    stored = graph.constants[name if made is None else made.input[0]]
    if stored.size == 1:
        return str(name)
    if made is not None and graph.dequantize_of(name) is None:
        return ""
    shape = [1] * (3 - stored.ndim) + list(stored.shape)
    wide = graph.constant(stored.reshape(*shape[:2], 1, shape[2]))
    return wide if made is None else graph.node(made, "DequantizeLinear", [wide, *made.input[1:]])


def _concatenation(graph: OnnxGraph, node: Any) -> None:
    axis = attributes_of(node)["axis"] % 3
    if axis == 0 or not all(name in graph.images for name in node.input) or node.output[0] not in graph.shapes:
        as_it_is(graph, node)
        return
    operands = [graph.images[name] for name in node.input]
    _as_line(graph, node, graph.node(node, "Concat", operands, axis=3 if axis == 2 else 1))


def _reduction(graph: OnnxGraph, node: Any) -> None:
    """A reduction over the length of lines: over height and width."""
    axes = attributes_of(node).get("axes")
    if not _follows(graph, node) or axes is None or [axis % 3 for axis in axes] != [2]:
        as_it_is(graph, node)
        return
    operands = [graph.images[node.input[0]]]
    _as_line(graph, node, graph.node(node, node.op_type, operands, axes=[2, 3], keepdims=1))


# ---------------------------------------------------------------- constants by channel


def _prelu(graph: OnnxGraph, node: Any) -> None:
    slope = graph.real_constant(node.input[1])
    if slope is None or slope.size != 1:
        as_it_is(graph, node)
        return
    alpha = float(slope.item())
    _of_one(graph, helper.make_node("LeakyRelu", node.input[:1], node.output, node.name, alpha=alpha))


def _normalization(graph: OnnxGraph, node: Any) -> None:
    """A batch normalization of constants."""
    attributes, shape = attributes_of(node), graph.shapes.get(node.input[0])
    given = [graph.real_constant(name) for name in node.input[1:]]
    scale, bias, mean, variance = given
    if scale is None or bias is None or mean is None or variance is None or shape is None or len(node.output) > 1:
        as_it_is(graph, node)
        return
    factor = scale / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
    ones = [1] * (len(shape) - 2)
    by_channel = [one.astype(np.float32).reshape(-1, *ones) for one in (factor, bias - mean * factor)]
    product = graph.node(node, "Mul", [node.input[0], graph.constant(by_channel[0])])
    graph.node(node, "Add", [product, graph.constant(by_channel[1])], node.output[0])


IMAGES: dict[str, Callable[[OnnxGraph, Any], None]] = {
    **dict.fromkeys(_WINDOWED_TEXT.split(), _windowed),
    **dict.fromkeys([*_OF_ONE_TEXT.split(), "QuantizeLinear", "DequantizeLinear"], _of_one),
    **dict.fromkeys(_OF_TWO_TEXT.split(), _of_two),
    **dict.fromkeys(("ReduceMax", "ReduceMean"), _reduction),
    "Concat": _concatenation,
    "PRelu": _prelu,
    "BatchNormalization": _normalization,
}
"""The forms of these operators."""
