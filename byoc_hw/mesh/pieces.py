"""Pieces of a layer: some of its output's rows or channels, and what they need of its inputs.

A piece computes exactly the bytes that the whole layer computes there. The cuts of layers with weights and windows
are those of `plan/lanes/cut.py`; layers that work element by element or only move bytes are cut here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from byoc_hw.errors import PlanError
from byoc_hw.graph import (
    Add,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Layer,
    Lookup,
    MatMul,
    Mul,
    Pad,
    Reshape,
    Resize,
    Slice,
    Softmax,
)
from byoc_hw.mesh.network import Node
from byoc_hw.plan.lanes.cut import Range, rows_of
from byoc_hw.tensor import Tensor

CutAxis = Literal["rows", "channels"]
"""Dimension 1 of an NHWC tensor, or the last dimension."""

PARAMETER_BYTES = 12
"""Bytes of parameters for each output channel of a layer with weights."""


class PieceBox(NamedTuple):
    """A range of rows or channels of a tensor; with "all" all of it, and start and stop are 0."""

    axis: Literal["rows", "channels", "all"]
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        if self.axis == "all":
            return "all"
        last = self.stop - 1
        return f"{self.axis[:-1]} {last}" if self.start == last else f"{self.axis} {self.start} to {last}"


ALL = PieceBox("all")
"""All of a tensor."""


class NodePiece(NamedTuple):
    """A box of the output of node `node` of a network: its number in `MeshNetwork.nodes`."""

    node: int
    box: PieceBox = ALL


@dataclass(frozen=True)
class PieceBytes:
    """Bytes of a piece: constants (weights, and parameters of each channel), what it reads, what it writes."""

    weights: int
    inputs: int
    outputs: int


Cuts = tuple[Layer, tuple[Range | None, ...]]


def axes_of(node: Node) -> tuple[CutAxis, ...]:
    """The axes along which a node's output can be cut at any index; none for functions of the host."""
    if node.layer is None:
        return ()
    layer = node.layer
    found: list[CutAxis] = []
    for axis in ("rows", "channels"):
        extent = _extent(layer.ofm, axis)
        ends = {(0, 1), (extent - 1, extent)}
        if extent > 1 and all(_cut(layer, axis, span) is not None for span in sorted(ends)):
            found.append(axis)
    return tuple(found)


def input_boxes(node: Node, box: PieceBox) -> tuple[PieceBox, ...]:
    """What a piece reads of each of `node.inputs`: halo rows included, clipped to the image.

    Raises `PlanError` for a box that the node cannot be cut into.
    """
    if box.axis == "all" or node.layer is None:
        _whole(node, box)
        return (ALL,) * len(node.inputs)
    layer, span = node.layer, (box.start, box.stop)
    _check_box(node, box)
    if box.axis == "channels" and _reads_all_channels(layer):
        return (ALL,) * len(node.inputs)
    _, reads = _found(node, box, _cut(layer, box.axis, span))
    pairs = zip(layer.inputs, reads, strict=True)
    return tuple(_box(tensor, box.axis, read) for tensor, read in pairs if tensor.data is None)


def piece_layer(node: Node, box: PieceBox) -> Layer:
    """The layer that computes a box of the node's output from exactly its `input_boxes`, bit for bit.

    Weights, scales and tables are sliced, and padding is left at the border of the image only. Raises `PlanError` for
    a box that the node cannot be cut into, and for functions of the host.
    """
    if node.layer is None:
        raise PlanError(f"{node.name}: a function of the host has no layer")
    if box.axis == "all":
        return node.layer
    _check_box(node, box)
    piece, _ = _found(node, box, _cut(node.layer, box.axis, (box.start, box.stop)))
    return replace(piece, name=f"{node.name} {box}")


def piece_bytes(node: Node, box: PieceBox) -> PieceBytes:
    """Bytes of constants, inputs and outputs of a piece."""
    if node.layer is None:
        assert node.call is not None
        written = sum(buffer.nbytes for buffer in node.call.written)
        return PieceBytes(0, sum(buffer.nbytes for buffer in node.call.arguments) - written, written)
    layer = node.layer
    activations = [tensor for tensor in layer.inputs if tensor.data is None]
    boxes = input_boxes(node, box)
    inputs = {(id(tensor), part): box_bytes(tensor, part) for tensor, part in zip(activations, boxes, strict=True)}
    return PieceBytes(_constant_bytes(layer, box), sum(inputs.values()), box_bytes(layer.ofm, box))


def box_bytes(tensor: Tensor, box: PieceBox) -> int:
    """Bytes of a box of a tensor."""
    if box.axis == "all":
        return tensor.nbytes
    return tensor.nbytes // _extent(tensor, box.axis) * (box.stop - box.start)


def _constant_bytes(layer: Layer, box: PieceBox) -> int:
    if isinstance(layer, Conv2d | DepthwiseConv2d | Dense):
        channels = box.stop - box.start if box.axis == "channels" else layer.out_channels
        return channels * (PARAMETER_BYTES + prod(layer.weights.shape[1:]) * layer.weights.bits // 8)
    constants = sum(tensor.nbytes for tensor in layer.inputs if tensor.data is not None)
    return constants + (layer.tables.nbytes if isinstance(layer, Lookup) else 0)


# ---------------------------------------------------------------- the cut of each kind


def _cut(layer: Layer, axis: CutAxis, span: Range) -> Cuts | None:
    """The layer of a range of an axis of the output, and the range that it reads of each input along that axis (None:
    all of it). None where there is no such layer."""
    index = _index(layer.ofm, axis)
    if index is None or (len(layer.ofm.shape) == 4 and layer.ofm.shape[0] != 1):
        return None
    match layer:
        case Add() | Mul() | Lookup() | Softmax():
            return _elementwise(layer, axis, index, span)
        case Concat() if layer.axis != index:
            return _moved(layer, index, span, (span,) * len(layer.inputs))
        case Slice():
            step, first = layer.steps[index], layer.begin[index]
            begin = (*layer.begin[:index], 0, *layer.begin[index + 1 :])
            read = first + span[0] * step, first + (span[1] - 1) * step + 1
            return _moved(replace(layer, begin=begin), index, span, (read,))
        case Resize():
            return _resized(layer, axis, index, span)
        case Pad():
            return _padded(layer, index, span)
        case Reshape():
            same = layer.ifm.shape[:2] == layer.ofm.shape[:2] if axis == "rows" else _same_last(layer)
            return _reshaped(layer, axis, span) if same else None
        case MatMul():
            return _moved(layer, 1, span, (span, None)) if axis == "rows" and layer.ofm.shape[0] == 1 else None
    return rows_of(layer, index, span)


def _elementwise(layer: Add | Mul | Lookup | Softmax, axis: CutAxis, index: int, span: Range) -> Cuts | None:
    if isinstance(layer, Softmax) and axis == "channels":
        return None
    if isinstance(layer, Lookup) and layer.by_channel and axis == "channels":
        layer = replace(layer, tables=np.ascontiguousarray(layer.tables[span[0] : span[1]]))
    reads: list[Range | None] = [span]
    for tensor in layer.inputs[1:]:
        whole = tensor.elements == 1 or (axis == "rows" and tensor.shape != layer.ifm.shape)
        reads.append(None if whole else span)
    return _moved(layer, index, span, tuple(reads))


def _resized(layer: Resize, axis: CutAxis, index: int, span: Range) -> Cuts:
    if axis == "channels":
        return _moved(layer, index, span, (span,))
    rows = layer.rows[span[0] : span[1]]
    first = min(rows)
    return _moved(replace(layer, rows=tuple(row - first for row in rows)), index, span, ((first, max(rows) + 1),))


def _padded(layer: Pad, index: int, span: Range) -> Cuts | None:
    before = layer.before[index]
    read = max(span[0] - before, 0), min(span[1] - before, layer.ifm.shape[index])
    if read[0] >= read[1]:
        return None
    left = max(before - span[0], 0)
    return _moved(
        replace(layer, before=(*layer.before[:index], left, *layer.before[index + 1 :])), index, span, (read,)
    )


def _same_last(layer: Reshape) -> bool:
    return layer.ifm.shape[-1] == layer.ofm.shape[-1]


def _reshaped(layer: Reshape, axis: CutAxis, span: Range) -> Cuts | None:
    if _index(layer.ifm, axis) is None:
        return None
    return replace(layer, ifm=_part(layer.ifm, axis, span), ofm=_part(layer.ofm, axis, span)), (span,)


def _moved(layer: Layer, index: int, span: Range, reads: tuple[Range | None, ...]) -> Cuts:
    """The layer on ranges of dimension `index`, of a tensor with fewer dimensions counted from the last one."""
    axis: CutAxis = "channels" if index == len(layer.ofm.shape) - 1 else "rows"
    parts: dict[int, Tensor] = {}
    for tensor, read in zip(layer.inputs, reads, strict=True):
        parts.setdefault(id(tensor), tensor if read is None else _part(tensor, axis, read))
    return layer.on([parts[id(tensor)] for tensor in layer.inputs], _part(layer.ofm, axis, span)), reads


def _reads_all_channels(layer: Layer) -> bool:
    return isinstance(layer, Dense) or (isinstance(layer, Conv2d) and layer.groups == 1)


# ---------------------------------------------------------------- boxes and tensors


def _index(tensor: Tensor, axis: CutAxis) -> int | None:
    """The dimension of an axis, None for rows of what has none."""
    if axis == "channels":
        return len(tensor.shape) - 1 if tensor.shape else None
    return 1 if len(tensor.shape) == 4 else None


def _extent(tensor: Tensor, axis: CutAxis) -> int:
    index = _index(tensor, axis)
    return 1 if index is None else tensor.shape[index]


def _part(tensor: Tensor, axis: CutAxis, span: Range) -> Tensor:
    index = _index(tensor, axis)
    assert index is not None
    shape = (*tensor.shape[:index], span[1] - span[0], *tensor.shape[index + 1 :])
    data = tensor.data
    if data is not None:
        data = np.ascontiguousarray(data[(slice(None),) * index + (slice(*span),)])
    return replace(tensor, name=f"{tensor.name}[{span[0]}:{span[1]}]", shape=shape, data=data)


def _box(tensor: Tensor, axis: CutAxis, read: Range | None) -> PieceBox:
    return ALL if read is None or read == (0, _extent(tensor, axis)) else PieceBox(axis, *read)


def _whole(node: Node, box: PieceBox) -> None:
    if box.axis != "all":
        raise PlanError(f"{node.name}: a function of the host is not cut: got {box}")


def _check_box(node: Node, box: PieceBox) -> None:
    assert node.layer is not None
    extent = 0 if box.axis == "all" or _index(node.layer.ofm, box.axis) is None else _extent(node.layer.ofm, box.axis)
    if not 0 <= box.start < box.stop <= extent:
        raise PlanError(f"{node.name}: a piece is a range of its {extent} {box.axis}: got {box.start} to {box.stop}")


def _found(node: Node, box: PieceBox, found: Cuts | None) -> Cuts:
    if found is None:
        assert node.layer is not None
        raise PlanError(f"{node.name}: a layer of kind {node.layer.kind} cannot be cut into {box}")
    return found
