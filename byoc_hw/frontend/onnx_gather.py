"""Gather of an ONNX graph at indices from 0 on, and as slices where they are constants.

    y = Gather(x, [-1])          x: 7 elements       y = Slice(x, 6:7)
    y = Gather(x, [5, 6, 1])                         y = Concat(Slice(x, 5:7), Slice(x, 1:2))

TVM's importer takes the first element for indices that count from the end. The second form is for Relax alone, whose
importer makes a function of its own of a gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.installed import HAS_RELAX
from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of, node_text
from byoc_hw.tensor import Array

_WITH_MOD = 10
"""The opset from which on there is Mod, and Slice has inputs."""


def gather(graph: OnnxGraph, node: Any) -> None:
    """Add a gather at indices from 0 on, or the slices that it is."""
    data, indices = node.input
    shape = graph.shapes.get(data)
    if shape is None or graph.opset < _WITH_MOD:
        as_it_is(graph, node)
        return
    axis = attributes_of(node).get("axis", 0) % len(shape)
    if indices in graph.constants:
        _gather_at(graph, node, graph.constants[indices], axis)
    elif indices in graph.types:
        extent = graph.constant(np.asarray(shape[axis], graph.types[indices]))
        counted = graph.node(node, "Mod", [indices, extent])
        graph.node(node, "Gather", [data, counted], node.output[0], axis=axis)
    else:
        as_it_is(graph, node)


def _gather_at(graph: OnnxGraph, node: Any, indices: Array, axis: int) -> None:
    data, shape = node.input[0], graph.shapes[node.input[0]]
    extent = shape[axis]
    outside = indices[(indices < -extent) | (indices >= extent)]
    if outside.size:
        raise InvalidInput(f"{node_text(node)}: indices are from {-extent} to {extent - 1}: got {outside.flat[0]}")
    places = np.asarray(indices % extent)
    if len(shape) < 2 or data in graph.constants or not (places.size == 1 or _is_cut(graph, data, places)):
        graph.node(node, "Gather", [data, graph.constant(places)], node.output[0], axis=axis)
        return
    parts = [graph.cut(node, data, axis, *run) for run in _runs([int(place) for place in places.flat])]
    whole = (*shape[:axis], *places.shape, *shape[axis + 1 :])
    shaped = [graph.joined(node, parts, axis), graph.constant(np.asarray(whole, np.int64))]
    graph.node(node, "Reshape", shaped, node.output[0])


def _is_cut(graph: OnnxGraph, data: str, places: Array) -> bool:
    """Whether several indices are slices: of dequantized values that are computed at run time."""
    computed = graph.dequantize_of(data) is not None and graph.real_constant(data) is None
    return HAS_RELAX and places.size > 1 and computed


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of places that follow each other, each with its end."""
    ends = [at for at, (one, other) in enumerate(pairwise(places), 1) if other != one + 1]
    for start, stop in pairwise([0, *ends, len(places)]):
        yield places[start], places[stop - 1] + 1
