"""Cuts a region's graph into parts, one accelerator each: runs of layers, or rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from byoc_hw.graph import Conv2d, Dense, DepthwiseConv2d, Graph, Layer, Pool2d, Reshape, Transpose
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Run, Window, geometry
from byoc_hw.plan.array.transfers import dense_strides
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.chip_plan import ElementBox
from byoc_hw.tensor import Quantization, Tensor

Range = tuple[int, int]
"""A half-open range of rows, columns or channels."""


@dataclass(frozen=True)
class Piece:
    """Indices from `start` on of dimension `axis` of a tensor: where a part's input or output lies.

    Of one that is `flat`, dimension 1 has all pixels in the order of the array, and dimension 3 the channels, of any
    tensor.
    """

    tensor: Tensor
    axis: int
    start: int
    flat: bool = False


@dataclass(frozen=True)
class CutGraph:
    """The graph of a part. `views` say where tensors lie that are only a piece of a tensor of the region."""

    graph: Graph
    cut: PartCut
    views: dict[Tensor, Piece]

    def whole(self, tensor: Tensor) -> Tensor:
        """The tensor of the region that an argument is, or is a piece of."""
        return self.views[tensor].tensor if tensor in self.views else tensor


class Region:
    """A region's graph, with who makes and reads each tensor.

    `arguments` are its inputs and outputs. An output that no layer writes there, an input or a constant or one that is
    given twice, has a tensor of its own among them, and is one of the `copies`: from, and to.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = graph.made
        arguments = list(graph.inputs)
        self.copies: list[tuple[Tensor, Tensor]] = []
        for tensor in graph.outputs:
            if tensor not in self.made or tensor in arguments:
                self.copies.append((tensor, replace(tensor, data=None)))
            arguments.append(self.copies[-1][1] if tensor not in self.made or tensor in arguments else tensor)
        self.arguments = tuple(arguments)

    @cached_property
    def readers(self) -> dict[Tensor, tuple[int, ...]]:
        """The layers that read each tensor."""
        found: dict[Tensor, list[int]] = {}
        for index, layer in enumerate(self.graph.layers):
            for tensor in dict.fromkeys(layer.inputs):
                found.setdefault(tensor, []).append(index)
        return {tensor: tuple(readers) for tensor, readers in found.items()}

    def leaves(self, tensor: Tensor, layers: Sequence[int]) -> bool:
        """Whether others than these layers read a tensor, or it is an output of the region."""
        return tensor in self.graph.outputs or any(index not in layers for index in self.readers.get(tensor, ()))

    def part(self, cut: PartCut, name: str) -> CutGraph | None:
        """The graph of a part; None for rows of layers that cannot be cut so."""
        if cut.flat:
            return self._pixels(cut, name) if cut.axis == 1 and cut.rows else self._flat(cut, name)
        if cut.rows is not None:
            return self._rows(cut, name)
        layers = [self.graph.layers[index] for index in cut.layers]
        outputs = [layer.ofm for layer in layers if self.leaves(layer.ofm, cut.layers)]
        return CutGraph(Graph(name, _read(layers), tuple(outputs), tuple(layers)), cut, {})

    def _rows(self, cut: PartCut, name: str) -> CutGraph | None:
        assert cut.rows is not None
        last = self.graph.layers[cut.layers[-1]].ofm
        needed: dict[Tensor, set[Range]] = {}
        pieces: dict[tuple[Tensor, Range], Tensor] = {}
        views: dict[Tensor, Piece] = {}
        layers: list[Layer] = []
        outputs: list[Tensor] = []
        for index in reversed(cut.layers):
            layer = self.graph.layers[index]
            wanted = needed.get(layer.ofm, set())
            if leaves := layer.ofm is last or self.leaves(layer.ofm, cut.layers):
                share = _share(cut.rows, last.shape[cut.axis], layer.ofm, cut.axis)
                if share is None:
                    return None
                wanted = wanted | {share}
            if len(wanted) != 1:
                return None
            found = rows_of(layer, cut.axis, *wanted)
            if found is None:
                return None
            piece, reads = found
            inputs = []
            for tensor, there, span in zip(layer.inputs, piece.inputs, reads, strict=True):
                if span is None or tensor.data is not None:
                    if self.made.get(tensor) in cut.layers:
                        return None  # this part makes a share of it only
                    inputs.append(tensor)
                    continue
                needed.setdefault(tensor, set()).add(span)
                inputs.append(pieces.setdefault((tensor, span), there))
                if self.made.get(tensor) not in cut.layers:
                    views[inputs[-1]] = Piece(tensor, cut.axis, span[0])
            (rows,) = wanted
            ofm = pieces.setdefault((layer.ofm, rows), piece.ofm)
            views[ofm] = Piece(layer.ofm, cut.axis, rows[0])
            layers.insert(0, piece.on(inputs, ofm))
            if leaves:
                outputs.insert(0, ofm)
        return CutGraph(Graph(name, _read(layers), tuple(outputs), tuple(layers)), cut, views)

    def _pixels(self, cut: PartCut, name: str) -> CutGraph:
        """Some pixels of layers that compute each pixel from the same one of their inputs."""
        assert cut.rows is not None
        start, stop = cut.rows
        pieces: dict[Tensor, Tensor] = {}
        layers = []
        for index in cut.layers:
            layer = self.graph.layers[index]
            for tensor in (*layer.inputs, layer.ofm):
                pieces.setdefault(tensor, _pixels_of(tensor, start, stop))
            layers.append(layer.on([pieces[tensor] for tensor in layer.inputs], pieces[layer.ofm]))
        leaving = (self.graph.layers[index].ofm for index in cut.layers)
        outputs = tuple(pieces[ofm] for ofm in leaving if self.leaves(ofm, cut.layers))
        views = {piece: Piece(tensor, 1, start, flat=True) for tensor, piece in pieces.items()}
        return CutGraph(Graph(name, _read(layers), outputs, tuple(layers)), cut, views)

    def _flat(self, cut: PartCut, name: str) -> CutGraph | None:
        """All pixels of a convolution in one row, or some of its channels."""
        layer = self.graph.layers[cut.layers[0]]
        piece = layer.on([_flattened(layer.ifm)], _flattened(layer.ofm))
        if cut.rows is not None:
            found = rows_of(piece, cut.axis, cut.rows)
            if found is None:
                return None
            piece, _ = found
        views = {piece.ifm: Piece(layer.ifm, 1, 0, flat=True)}
        views[piece.ofm] = Piece(layer.ofm, cut.axis, cut.rows[0] if cut.rows else 0, flat=True)
        return CutGraph(Graph(name, (piece.ifm,), (piece.ofm,), (piece,)), cut, views)


def _share(rows: Range, extent: int, tensor: Tensor, axis: int) -> Range | None:
    """The indices of a tensor that are the same share of it as `rows` are of `extent`: those of other parts are its
    other indices. None where that is no range, or the tensor has no such dimension."""
    if len(tensor.shape) <= axis:
        return None
    scaled = [index * tensor.shape[axis] for index in rows]
    if any(index % extent for index in scaled) or scaled[0] == scaled[1]:
        return None
    return scaled[0] // extent, scaled[1] // extent


def _pixels_of(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Some pixels of a tensor of any rank, one behind the other."""
    return _piece(_flattened(tensor), min(len(tensor.shape) - 2, 1), start, stop)


def pixels_in(tensor: Tensor) -> int:
    """The pixels of a tensor of any rank."""
    return prod(tensor.shape[:-1])


def by_pixels(layer: Layer) -> bool:
    """Whether a layer computes each pixel of its output from the same one of its inputs, and can be cut between any two
    of them: convolutions and dense layers of single pixels, reshapes that leave pixels as they are, and element-wise
    layers whose tensors have no rows of pixels."""
    shapes = {tensor.shape for tensor in (*layer.inputs, layer.ofm)}
    if any(tensor.data is not None for tensor in layer.inputs) or min(map(len, shapes)) < 2:
        return False
    if isinstance(layer, Reshape):
        return len({shape[-1] for shape in shapes}) == 1
    form = geometry(layer)
    if isinstance(form, Run):
        return len(shapes) == 1 and len(layer.ofm.shape) != 4 and form.each in (1, layer.ofm.shape[-1])
    return is_pointwise(layer)


def _flattened(tensor: Tensor) -> Tensor:
    """All pixels in dimension 1, or of two dimensions in the first."""
    shape = [1] * len(tensor.shape)
    shape[min(len(shape) - 2, 1)], shape[-1] = pixels_in(tensor), tensor.shape[-1]
    return replace(tensor, shape=tuple(shape))


def rows_of(layer: Layer, axis: int, rows: Range) -> tuple[Layer, tuple[Range | None, ...]] | None:
    """The layer that computes some indices of dimension `axis` of a layer's output, and those that it reads of
    dimension `axis` of each input (None: all of it). None for a layer that cannot be cut so."""
    start, stop = rows
    if isinstance(layer, Dense):
        return _channels_of(layer, start, stop) if axis == 1 and layer.ifm.shape[0] == 1 else None
    if isinstance(layer, Reshape | Transpose):
        return _moved_rows(layer, rows) if axis == 1 else None
    if len(layer.ofm.shape) != 4 or layer.ofm.shape[0] != 1:
        return None
    form = geometry(layer)
    if axis == 3 and isinstance(layer, Conv2d):
        return _channels_of(layer, start, stop) if layer.groups == 1 else None
    if isinstance(form, Run):
        shape = layer.ofm.shape
        if form.each > 1 or any(tensor.data is not None or tensor.shape != shape for tensor in layer.inputs):
            return None
        inputs = {tensor: _piece(tensor, axis, start, stop) for tensor in layer.inputs}
        ofm = _piece(layer.ofm, axis, start, stop)
        return layer.on([inputs[tensor] for tensor in layer.inputs], ofm), (rows,) * len(layer.inputs)
    if not isinstance(layer, Conv2d | DepthwiseConv2d | Pool2d) or not isinstance(form, Window):
        return None
    if axis == 3:
        piece = _channels_of(layer, start, stop)[0] if isinstance(layer, DepthwiseConv2d) else layer
        return piece.on([_piece(layer.ifm, 3, start, stop)], _piece(layer.ofm, 3, start, stop)), (rows,)
    line = form.rows if axis == 1 else form.columns
    extent = line.extent(start, stop - start)
    top, left, bottom, right = layer.padding
    before, after = extent.pad_before, extent.pad_after
    padding = (before, left, after, right) if axis == 1 else (top, before, bottom, after)
    read = extent.ifm_start, extent.ifm_start + extent.ifm_size
    ifm, ofm = _piece(layer.ifm, axis, *read), _piece(layer.ofm, axis, start, stop)
    return replace(layer, ifm=ifm, ofm=ofm, padding=padding), (read,)


def _moved_rows(layer: Reshape | Transpose, rows: Range) -> tuple[Layer, tuple[Range | None, ...]] | None:
    """As `rows_of` dimension 1, of a layer that leaves whole indices of that dimension in their order."""
    ifm, ofm = layer.ifm, layer.ofm
    if min(len(ifm.shape), len(ofm.shape)) < 2 or (ifm.shape[0], ofm.shape[0]) != (1, 1) or ifm.data is not None:
        return None
    if isinstance(layer, Transpose) and layer.axes[:2] != (0, 1):
        return None
    read = _share(rows, ofm.shape[1], ifm, 1)
    if read is None:
        return None
    return layer.on([_piece(ifm, 1, *read)], _piece(ofm, 1, *rows)), (read,)


def _piece(tensor: Tensor, axis: int, start: int, stop: int) -> Tensor:
    shape = (*tensor.shape[:axis], stop - start, *tensor.shape[axis + 1 :])
    return replace(tensor, name=f"{tensor.name}[{start}:{stop}]", shape=shape)


def _channels_of(
    layer: Conv2d | DepthwiseConv2d | Dense, start: int, stop: int
) -> tuple[Layer, tuple[Range | None, ...]]:
    """A layer's output channels `start` to `stop`, from all of its input."""
    weights, bias = layer.weights, layer.bias
    assert weights.data is not None
    quantization = weights.quantization and _part_of(weights.quantization, start, stop)
    shape = (stop - start, *weights.shape[1:])
    cut = replace(weights, shape=shape, data=np.ascontiguousarray(weights.data[start:stop]), quantization=quantization)
    if bias is not None:
        assert bias.data is not None
        bias = replace(bias, shape=(stop - start,), data=bias.data[start:stop])
    accumulator = _part_of(layer.accumulator, start, stop)
    ofm = _piece(layer.ofm, len(layer.ofm.shape) - 1, start, stop)
    return replace(layer, weights=cut, bias=bias, accumulator=accumulator, ofm=ofm), (None,)


def _part_of(quantization: Quantization, start: int, stop: int) -> Quantization:
    if len(quantization.scale) == 1:
        return quantization
    scale, points = quantization.scale[start:stop], quantization.zero_point
    return replace(quantization, scale=scale, zero_point=points[start:stop] if len(points) > 1 else points)


def _read(layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """What layers read that is neither made by one of them nor constant, in the order in which they do."""
    made = {layer.ofm for layer in layers}
    tensors = (tensor for layer in layers for tensor in layer.inputs)
    return tuple(dict.fromkeys(tensor for tensor in tensors if tensor not in made and tensor.data is None))


def place_of(view: Piece, swapped: bool) -> int:
    """The first byte of a view in its tensor, which lies with height and width exchanged if `swapped`."""
    height, _, channels = extents(view.tensor)
    if view.flat:
        return view.tensor.bytes_of(view.start * (1 if view.axis == 3 else channels))
    strides = (0, channels, height * channels, 1) if swapped else dense_strides(view.tensor.shape)
    return view.tensor.bytes_of(view.start * strides[view.axis])


def boxes_of_piece(view: Piece, shape: tuple[int, ...], swapped: bool) -> tuple[ElementBox, ...]:
    """Where a piece of this shape lies in its tensor in the model's order, element after element in boxes."""
    whole = dense_strides(view.tensor.shape)
    if not view.flat:
        return (ElementBox(view.start * whole[view.axis], shape, whole),)
    height, width, channels = extents(view.tensor)
    if len(whole) != 4:
        return (ElementBox(view.start * channels, shape, dense_strides(shape)),)
    _, row, pixel, _ = whole
    length, along, across = (height, row, pixel) if swapped else (width, pixel, row)
    first, channel = (0, view.start) if view.axis == 3 else (view.start, 0)
    stop, found = first + shape[1], []
    while first < stop:
        line, at = divmod(first, length)
        lines = (stop - first) // length if at == 0 else 0
        counts = (lines, length) if lines else (1, min(length - at, stop - first))
        target = line * across + at * along + channel
        found.append(ElementBox(target, (*counts, shape[3]), (across, along, 1)))
        first += prod(counts)
    return tuple(found)
