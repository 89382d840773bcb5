"""A lower bound on the cycles of a region: the larger of its array cycles and its DMA cycles.

The array runs each layer in its cheapest mapping: unchanged, a 1x1 convolution of stride 1 over
flattened pixels, or with height and width swapped. The DMA moves all weights and parameters, inputs
and outputs once, in as few transfers as local memories allow. Array and DMA overlap completely. Layers
that are connected by images are swapped together, and the DMA then transposes the inputs and outputs of
the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Conv2d, Convolution, Graph, Layer, Reshape, Transpose, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import job_cycles
from byoc_hw.plan.array.window import Extents
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Floor:
    """The fewest cycles of the array and of the DMA, each by itself."""

    array: int
    dma: int

    @property
    def cycles(self) -> int:
        return max(self.array, self.dma)


def floor(graph: Graph, accelerator: Accelerator) -> Floor:
    """The floor of one region."""
    groups = [_group_floor(layers, images, graph, accelerator) for layers, images in _oriented_together(graph)]
    copies = sum(group.dma for group in groups) + _dma_cycles(graph, accelerator)
    return Floor(sum(group.array for group in groups), copies)


def extents(tensor: Tensor) -> Extents:
    """Height, width and channels; 1 for a missing dimension."""
    *outer, width, channels = (1, 1, *tensor.shape)
    return prod(outer), width, channels


def flash_bytes(layer: Layer) -> int:
    """Bytes of the weights and parameters of a layer."""
    if not isinstance(layer, Weighted):
        return 0
    channels, *filter_shape = layer.weights.shape
    return channels * (PARAMS_BYTES + packed_channel_bytes(prod(filter_shape), layer.weights.bits))


# ---------------------------------------------------------------- orientation


def _oriented_together(graph: Graph) -> list[tuple[list[Layer], set[Tensor]]]:
    """Groups of layers that are connected by images, with the images.

    A tensor of height or width 1 does not connect layers: its bytes are the same in both orientations.
    """
    groups: list[tuple[list[Layer], set[Tensor]]] = []
    for layer in graph.layers:
        images = {tensor for tensor in (*layer.inputs, layer.ofm) if min(extents(tensor)[:2]) > 1}
        joined = [group for group in groups if group[1] & images]
        groups = [group for group in groups if not group[1] & images]
        layers = [one for members, _ in joined for one in members]
        groups.append(([*layers, layer], images.union(*(tensors for _, tensors in joined))))
    return groups


def _group_floor(layers: Sequence[Layer], images: set[Tensor], graph: Graph, accelerator: Accelerator) -> Floor:
    """The cheaper of the group unswapped and swapped; `dma` is the extra cost of transposing copies over plain ones."""
    upright = Floor(sum(_layer_cycles(layer, accelerator) for layer in layers), 0)
    if images and any(isinstance(layer, Reshape | Transpose) for layer in layers):  # these fix the order of the bytes
        return upright
    borders = [tensor for tensor in (*graph.inputs, *graph.outputs) if tensor in images]
    swapped = Floor(
        sum(_layer_cycles(_swapped(layer), accelerator, swapped=True) for layer in layers),
        sum(_transposition_cycles(image, accelerator) - _activation_cycles(image, accelerator) for image in borders),
    )
    return min(upright, swapped, key=lambda group: group.array + group.dma)


# ---------------------------------------------------------------- the array


def _layer_cycles(layer: Layer, accelerator: Accelerator, *, swapped: bool = False) -> int:
    """Cycles of a layer as one job; with `swapped`, for its tensors with height and width swapped."""
    if isinstance(layer, Reshape | Transpose):
        return 0
    ifm, ofm = extents(layer.ifm), extents(layer.ofm)
    if swapped:
        ifm, ofm = _transposed(ifm), _transposed(ofm)
    mappings = [(ifm, ofm), (_flat(ifm), _flat(ofm))] if _flattens(layer) else [(ifm, ofm)]
    return min(job_cycles(layer, *mapping, accelerator) for mapping in mappings)


def _swapped(layer: Layer) -> Layer:
    """The layer with its window transposed. Its tensors are not: `_layer_cycles` swaps their extents."""
    if not isinstance(layer, Convolution):
        return layer
    filters, height, width, channels = layer.weights.shape
    weights = replace(layer.weights, shape=(filters, width, height, channels), data=None)
    top, left, bottom, right = layer.padding
    return replace(layer, weights=weights, strides=layer.strides[::-1], padding=(left, top, right, bottom))


def _flattens(layer: Layer) -> bool:
    if not isinstance(layer, Conv2d):
        return False
    return layer.kernel == (1, 1) and layer.strides == (1, 1) and not any(layer.padding)


def _flat(shape: Extents) -> Extents:
    return 1, shape[0] * shape[1], shape[2]


def _transposed(shape: Extents) -> Extents:
    return shape[1], shape[0], shape[2]


# ---------------------------------------------------------------- the DMA


def _dma_cycles(graph: Graph, accelerator: Accelerator) -> int:
    """Cycles of the copies that every plan needs, as plain copies."""
    read = dict.fromkeys(tensor for layer in graph.layers for tensor in layer.inputs)
    ifms = [tensor for tensor in read if tensor in graph.inputs or tensor.data is not None]
    weights = _fewest_transfers(sum(map(flash_bytes, graph.layers)), accelerator.weight_memory, accelerator)
    return weights + sum(_activation_cycles(tensor, accelerator) for tensor in (*ifms, *graph.outputs))


def _activation_cycles(tensor: Tensor, accelerator: Accelerator) -> int:
    return _fewest_transfers(tensor.nbytes, accelerator.activation_memory, accelerator)


def _transposition_cycles(image: Tensor, accelerator: Accelerator) -> int:
    """Cycles of a transposing copy, by rows or by columns of pixels, whichever is cheaper."""
    height, width, _ = extents(image)
    pixel = image.nbytes // (height * width)
    return min(
        height * copy_cycles(pixel, width, accelerator),
        width * copy_cycles(pixel, height, accelerator),
    )


def _fewest_transfers(nbytes: int, memory: int, accelerator: Accelerator) -> int:
    return ceil_div(nbytes, memory) * accelerator.dma_setup + ceil_div(nbytes, accelerator.dma_width)
