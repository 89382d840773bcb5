"""Padding of an ONNX graph as the front end of Relax reads it: in numbers and zeros.

    Conv(x), auto_pad = SAME_UPPER          Conv(x), pads = [0, 0, 1, 1]
    Pad(x), mode = reflect                  Concat(x[2:3], x[1:2], x, ...)

Its importer refuses, or makes functions of its own of, the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of


def _window(graph: OnnxGraph, node: Any) -> None:
    """A convolution or a pooling, with pads in place of a rule for them, where the shapes are known."""
    attributes = attributes_of(node)
    rule = attributes.pop("auto_pad", b"NOTSET").decode()
    rounded_up = node.op_type == "MaxPool" and attributes.pop("ceil_mode", 0) == 1
    shape, of = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    kernel = attributes.get("kernel_shape", graph.shapes.get(node.input[-1], ())[2:])
    if not (rounded_up or rule != "NOTSET") or shape is None or of is None or len(kernel) != len(shape) - 2:
        as_it_is(graph, node)
        return
    ones = [1] * len(kernel)
    steps, apart = attributes.get("strides", ones), attributes.get("dilations", ones)
    sizes = zip(shape[2:], of[2:], kernel, steps, apart, strict=True)
    totals = [max((windows - 1) * s + (k - 1) * d + 1 - n, 0) for n, windows, k, s, d in sizes]
    first = attributes.get("pads", [0] * (2 * len(kernel)))[: len(kernel)]
    if rule == "SAME_UPPER":
        first = [total // 2 for total in totals]
    elif rule == "SAME_LOWER":
        first = [total - total // 2 for total in totals]
    attributes["pads"] = [*first, *(max(total - before, 0) for total, before in zip(totals, first, strict=True))]
    graph.nodes.append(helper.make_node(node.op_type, node.input, node.output, node.name, **attributes))


WINDOWS: dict[str, Callable[[OnnxGraph, Any], None]] = dict.fromkeys(("AveragePool", "Conv", "MaxPool"), _window)
"""The forms of operators with a window that pads may be in."""


def pad(graph: OnnxGraph, node: Any) -> None:
    """Add a pad, or one with values of the tensor itself as what it puts together."""
    attributes, shape = attributes_of(node), graph.shapes.get(node.input[0])
    widths = graph.constants.get(node.input[1]) if len(node.input) > 1 else np.asarray(attributes.get("pads", []))
    mode = attributes.get("mode", b"constant").decode()
    if shape is None or widths is None or mode not in ("reflect", "edge") or (widths < 0).any():
        as_it_is(graph, node)
        return
    data, around = node.input[0], [int(width) for width in widths]
    for axis, extent in enumerate(shape):
        before, behind = around[axis], around[axis + len(shape)]
        if mode == "edge":
            first, last = [0] * before, [extent - 1] * behind
        else:
            first, last = list(range(before, 0, -1)), [extent - 2 - place for place in range(behind)]
        if first or last:
            ends = [[graph.cut(node, data, axis, one, one + 1) for one in places] for places in (first, last)]
            data = _quantized(graph, node, graph.joined(node, [*ends[0], data, *ends[1]], axis))
    graph.node(node, "Identity", [data], node.output[0])


def _quantized(graph: OnnxGraph, node: Any, value: str) -> str:
    """A value once more behind QuantizeLinear and DequantizeLinear of what a node reads, which change nothing."""
    made = graph.dequantize_of(node.input[0])
    if made is None:
        return value
    stored = graph.node(node, "QuantizeLinear", [value, *made.input[1:]])
    again = graph.node(node, "DequantizeLinear", [stored, *made.input[1:]])
    graph.shapes[stored] = graph.shapes[again] = graph.shapes[value]
    return again
