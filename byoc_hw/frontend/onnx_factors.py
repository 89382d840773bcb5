"""Operators of an ONNX graph with constants by channel, as the front end of Relax has layers for them.

PRelu(x, 0.2)                           LeakyRelu(x), alpha = 0.2
BatchNormalization(x, constants)        Add(Mul(x, factors), terms)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of


def _prelu(graph: OnnxGraph, node: Any) -> None:
    """A PRelu of one slope."""
    slope = graph.real_constant(node.input[1])
    if slope is None or slope.size != 1:
        as_it_is(graph, node)
        return
    graph.node(node, "LeakyRelu", node.input[:1], node.output[0], alpha=float(slope.item()))


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
    graph.shapes[product] = shape
    graph.node(node, "Add", [product, graph.constant(by_channel[1])], node.output[0])


FACTORS: dict[str, Callable[[OnnxGraph, Any], None]] = {"PRelu": _prelu, "BatchNormalization": _normalization}
"""The forms of these operators."""
