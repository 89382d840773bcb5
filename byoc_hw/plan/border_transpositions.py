"""Tensors that one region makes and only others read, in an order of dimensions that both sides have: those of a model
in NCHW lie in NHWC, and neither region transposes them.

    region 0                                  region 1
    %4 = transpose(%3)   to (1, C, H, W)      %0 = transpose(%in0)   to (1, H, W, C)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Transpose
from byoc_hw.names import distinct
from byoc_hw.plan.array.permuting import transposing_cycles
from byoc_hw.plan.element_orders import Axes
from byoc_hw.program import RegionEnd
from byoc_hw.tensor import Tensor


def with_borders_in_order(
    graphs: Mapping[str, Graph],
    readers: Mapping[RegionEnd, Sequence[RegionEnd]],
    tidied: Callable[[Graph], Graph],
    accelerator: Accelerator,
) -> dict[str, Graph]:
    """The graphs as they are `tidied`, with the outputs that only regions read, and the inputs that these are, in the
    order of dimensions for which the DMA of an accelerator takes the fewest cycles in all of them."""
    plain = dict(graphs)
    found = {name: tidied(graph) for name, graph in plain.items()}
    for border, read in readers.items():
        sides = [border, *read]
        names = [name for name, _ in sides]
        if len(set(names)) < len(names) or not _is_made_once(plain[border[0]], border[1]):
            continue
        for axes in dict.fromkeys(_candidates(found, border, read)):
            changed = {border[0]: _with_output(plain[border[0]], border[1], axes)}
            changed |= {name: _with_input(plain[name], index, axes) for name, index in read}
            other = {name: tidied(graph) for name, graph in changed.items()}
            before, after = (sum(_cycles(some[name], accelerator) for name in names) for some in (found, other))
            if after < before:
                plain |= changed
                found |= other
    return found


def _is_made_once(graph: Graph, output: int) -> bool:
    tensor = graph.outputs[output]
    return tensor in graph.made and graph.outputs.count(tensor) == 1


def _candidates(graphs: Mapping[str, Graph], border: RegionEnd, read: Sequence[RegionEnd]) -> Iterator[Axes]:
    """Orders of the dimensions of a border in which a region has it inside, by its transpositions."""
    name, output = border
    for layer in graphs[name].layers:
        if isinstance(layer, Transpose) and layer.ofm is graphs[name].outputs[output]:
            yield _inverse(layer.axes)
    for name, index in read:
        for layer in graphs[name].layers:
            if isinstance(layer, Transpose) and layer.ifm is graphs[name].inputs[index]:
                yield layer.axes


def _with_output(graph: Graph, output: int, axes: Axes) -> Graph:
    """The graph with an output's dimensions in another order."""
    tensor = graph.outputs[output]
    turned = _turned(tensor, axes)
    layer = Transpose(_name(graph, tensor), (), tensor, turned, axes=axes)
    outputs = (*graph.outputs[:output], turned, *graph.outputs[output + 1 :])
    return replace(graph, outputs=outputs, layers=(*graph.layers, layer))


def _with_input(graph: Graph, index: int, axes: Axes) -> Graph:
    """The graph with an input's dimensions in another order."""
    tensor = graph.inputs[index]
    turned = _turned(tensor, axes)
    layer = Transpose(_name(graph, tensor), (), turned, tensor, axes=_inverse(axes))
    inputs = (*graph.inputs[:index], turned, *graph.inputs[index + 1 :])
    return replace(graph, inputs=inputs, layers=(layer, *graph.layers))


def _turned(tensor: Tensor, axes: Axes) -> Tensor:
    return replace(tensor, name=f"{tensor.name}_turned", shape=tuple(tensor.shape[axis] for axis in axes))


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(axis) for axis in range(len(axes)))


def _name(graph: Graph, tensor: Tensor) -> str:
    *_, name = distinct([*(layer.name for layer in graph.layers), f"{tensor.name}_turned"])
    return name


def _cycles(graph: Graph, accelerator: Accelerator) -> int:
    """Cycles of the DMA for the transpositions of a graph."""
    turned = (layer for layer in graph.layers if isinstance(layer, Transpose))
    return sum(transposing_cycles(layer, accelerator, parted=True) for layer in turned)
