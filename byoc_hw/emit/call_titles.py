"""What generated code says of each call of a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from byoc_hw.emit import c
from byoc_hw.emit.numbering import number_region
from byoc_hw.graph import Graph, Layer
from byoc_hw.tensor import Tensor


def call_titles(graph: Graph, called: Sequence[int], first_layer: int) -> Iterator[str]:
    """The comment above each call: the layer, its inputs and output, and which of its calls this is.

    `called` has the place of each call's layer in the region's graph.
    """
    layers = number_region(graph, first_layer)
    names = _tensor_names(graph, first_layer)
    calls_of = Counter(called)
    seen: Counter[int] = Counter()
    for index in called:
        seen[index] += 1
        title, *source = layers[index].title
        if calls_of[index] > 1:
            title += f", part {seen[index]} of {calls_of[index]}"
        flow = _flow(graph.layers[index], names)
        yield c.comment([title, *source, flow] if seen[index] == 1 else [title], indent=2)


def _tensor_names(graph: Graph, first_layer: int) -> dict[Tensor, str]:
    """The name of each tensor in comments: its argument, or the layer that computes it."""
    return {
        **dict.fromkeys(graph.tensors, "a constant"),
        **{layer.ofm: f"layer {first_layer + index}" for index, layer in enumerate(graph.layers)},
        **{tensor: f"in{index}" for index, tensor in enumerate(graph.inputs)},
    }


def _flow(layer: Layer, names: Mapping[Tensor, str]) -> str:
    """A layer's inputs and output with their shapes: "layer 3 [1x8x8x16], in1 [1x8x8x16] -> [1x8x8x16]"."""
    inputs = (f"{names[tensor]} {_extents(tensor)}" for tensor in layer.inputs)
    return f"{', '.join(inputs)} -> {_extents(layer.ofm)}"


def _extents(tensor: Tensor) -> str:
    return f"[{'x'.join(map(str, tensor.shape))}]"
