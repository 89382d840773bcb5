"""Transpositions one after the other that are one: an attention's values in heads and turned for the product, windows
of an image by row and by column.

    %1 = transpose(%0)           (4, 36, 2, 16) to (4, 2, 36, 16)
    %2 = reshape(%1)             to (8, 36, 16)
    %3 = transpose(%2)           to (8, 16, 36)

%1 and %2 are nowhere if nothing else reads them: bytes are copied once, by way of the dimensions that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import is_

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Reshape, Transpose
from byoc_hw.names import distinct
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.permuting import transposing_cycles
from byoc_hw.plan.array.spread import stored_cycles
from byoc_hw.plan.array.transfers import Permutation
from byoc_hw.plan.array.window import extents
from byoc_hw.tensor import Tensor


def with_merged_transpositions(graph: Graph, accelerator: Accelerator) -> Graph:
    """The graph with transpositions merged where that takes the DMA of an accelerator fewer cycles, by copies or by
    stores of what makes their input; the same graph where there are none."""
    while (merged := next(_merged(graph, accelerator), None)) is not None:
        graph = merged
    return _with_single_reshapes(graph) if any(isinstance(layer, Transpose) for layer in graph.layers) else graph


def _with_single_reshapes(graph: Graph) -> Graph:
    """The graph with one reshape in place of several, one after the other, that nothing else reads."""
    layers, readers = list(graph.layers), _readers(graph)
    for index, layer in enumerate(layers):
        before = graph.made.get(layer.ifm)
        while isinstance(layer, Reshape) and before is not None and isinstance(layers[before], Reshape):
            if readers[layer.ifm] > 1 or layer.ifm in graph.outputs:
                break
            readers[layer.ifm] = 0
            layer = replace(layer, ifm=layers[before].ifm)
            before = graph.made.get(layer.ifm)
        layers[index] = layer
    if all(map(is_, layers, graph.layers)):
        return graph
    gone = {tensor for tensor, count in readers.items() if not count}
    return replace(graph, layers=tuple(layer for layer in layers if layer.ofm not in gone))


def _readers(graph: Graph) -> dict[Tensor, int]:
    """How many layers read each tensor."""
    return dict(Counter(tensor for layer in graph.layers for tensor in layer.inputs))


def _merged(graph: Graph, accelerator: Accelerator) -> Iterator[Graph]:
    """The graph with two transpositions as one, for each two."""
    readers = _readers(graph)
    for index, last in enumerate(graph.layers):
        if not isinstance(last, Transpose):
            continue
        passed, tensor = {index}, last.ifm
        while readers[tensor] == 1 and tensor in graph.made and tensor not in graph.outputs:
            at = graph.made[tensor]
            first = graph.layers[at]
            passed.add(at)
            if isinstance(first, Transpose):
                found = list(_as_one(graph, first, last, accelerator))
                if found:
                    yield replace(graph, layers=tuple(_replaced(graph, passed, found)))
                break
            if not isinstance(first, Reshape):
                break
            tensor = first.ifm


def _replaced(graph: Graph, passed: set[int], found: list[Layer]) -> Iterator[Layer]:
    """The layers with some that are found in the place of the last of those that are passed."""
    for index, layer in enumerate(graph.layers):
        if index == max(passed):
            yield from found
        elif index not in passed:
            yield layer


def _as_one(graph: Graph, first: Transpose, last: Transpose, accelerator: Accelerator) -> Iterator[Layer]:
    """Two transpositions as one, between reshapes; nothing where they have no dimensions in common, or take no more
    cycles as two."""
    both = Permutation(first.ifm.shape, first.axes).then(Permutation(last.ifm.shape, last.axes))
    if both is None or first.ifm.bytes_of(1) != 1:
        return
    made = tuple(both.shape[axis] for axis in both.axes)
    names = distinct(
        [*(layer.name for layer in graph.layers), *(f"{last.name}_{what}" for what in ("apart", "turned"))]
    )
    apart, turned = (
        replace(last.ofm, name=name, shape=shape) for name, shape in zip(names[-2:], (both.shape, made), strict=True)
    )
    one = Transpose(turned.name, (), apart, turned, axes=both.axes)
    root = first.ifm
    while root in graph.made and isinstance(graph.layers[graph.made[root]], Reshape):
        root = graph.layers[graph.made[root]].ifm
    alone = transposing_cycles(last, accelerator, parted=True)
    if _cycles(one, root, graph, accelerator) >= _cycles(first, root, graph, accelerator) + alone:
        return
    yield Reshape(apart.name, (), first.ifm, apart)
    yield one
    yield Reshape(last.name, last.source, turned, last.ofm)


def _cycles(layer: Transpose, root: Tensor, graph: Graph, accelerator: Accelerator) -> float:
    """Cycles of the DMA for a transposition of an input, or of what a layer makes as `root`: from its store on."""
    if root in graph.inputs:
        return transposing_cycles(layer, accelerator, parted=True)
    plain = copy_cycles(root.nbytes, 1, accelerator)
    return min(
        plain + transposing_cycles(layer, accelerator, parted=True), stored_cycles(layer, extents(root), accelerator)
    )
