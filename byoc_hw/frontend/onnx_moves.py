"""Operators of an ONNX graph that move values, as slices and concatenations.

Gather of constant indices        the runs of indices that follow each other
Pad of mode reflect or edge       the values at the borders, one by one, around all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of


def _gather(graph: OnnxGraph, node: Any) -> None:
    """A gather of constant indices out of dequantized values."""
    indices, shape = graph.constants.get(node.input[1]), graph.shapes.get(node.input[0])
    quantized = graph.dequantize_of(node.input[0]) is not None and graph.real_constant(node.input[0]) is None
    if not quantized or indices is None or shape is None or indices.ndim > 1:
        as_it_is(graph, node)
        return
    axis = attributes_of(node).get("axis", 0) % len(shape)
    places = [int(index) % shape[axis] for index in indices.reshape(-1)]
    parts = [_part(graph, node, node.input[0], axis, *run) for run in _runs(places)]
    rest = [*shape[:axis], *([len(places)] if indices.ndim else []), *shape[axis + 1 :]]
    joined = _joined(graph, node, parts, axis)
    graph.node(node, "Reshape", [joined, graph.constant(np.asarray(rest, np.int64))], node.output[0])


def _pad(graph: OnnxGraph, node: Any) -> None:
    """A pad with values of the tensor itself."""
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
            ends = [[_part(graph, node, data, axis, one, one + 1) for one in places] for places in (first, last)]
            data = _quantized(graph, node, _joined(graph, node, [*ends[0], data, *ends[1]], axis))
    graph.node(node, "Identity", [data], node.output[0])


def _quantized(graph: OnnxGraph, node: Any, value: str) -> str:
    """A value once more behind QuantizeLinear and DequantizeLinear of what a node reads, which change nothing."""
    made = graph.dequantize_of(node.input[0])
    if made is None:
        return value
    stored = graph.node(node, "QuantizeLinear", [value, *made.input[1:]])
    return graph.node(node, "DequantizeLinear", [stored, *made.input[1:]])


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of places that follow each other, each with its end."""
    ends = [at for at, (one, other) in enumerate(pairwise(places), 1) if other != one + 1]
    for start, stop in pairwise([0, *ends, len(places)]):
        yield places[start], places[stop - 1] + 1


def _part(graph: OnnxGraph, node: Any, data: str, axis: int, first: int, stop: int) -> str:
    bounds = [graph.constant(np.asarray([number], np.int64)) for number in (first, stop, axis)]
    return graph.node(node, "Slice", [data, *bounds])


def _joined(graph: OnnxGraph, node: Any, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else graph.node(node, "Concat", parts, axis=axis)


MOVES: dict[str, Callable[[OnnxGraph, Any], None]] = {"Gather": _gather, "Pad": _pad}
"""The forms of these operators."""
