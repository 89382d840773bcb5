"""Transpositions one after the other that are one: an attention's values in heads and turned for the product, windows
of an image by row and by column.

    %1 = transpose(%0)           (4, 36, 2, 16) to (4, 2, 36, 16)
    %2 = reshape(%1)             to (8, 36, 16)
    %3 = transpose(%2)           to (8, 16, 36)

%1 and %2 are nowhere if nothing else reads them: bytes are copied once, by way of the dimensions that both have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
    return graph


def _merged(graph: Graph, accelerator: Accelerator) -> Iterator[Graph]:
    """The graph with two transpositions as one, for each two."""
    readers: dict[Tensor, int] = {}
    for layer in graph.layers:
        for tensor in layer.inputs:
            readers[tensor] = readers.get(tensor, 0) + 1
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
