"""Tensors that are in main memory in pieces alone: put together, or a box of another one, as they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from byoc_hw.graph import Concat, Graph, Layer, Pad, Resize, Slice
from byoc_hw.plan.array.mapping import Mapping
from byoc_hw.plan.array.parcels import around, progressions
from byoc_hw.plan.array.spread import Spread
from byoc_hw.plan.array.storage import Join, NotInPlace, Storage, parts_of_output, place_in_output
from byoc_hw.plan.array.stored_parts import store_runs, stored_by_one
from byoc_hw.plan.array.window import Extents, box_within, extents
from byoc_hw.tensor import Tensor


def loaded_from_outside(part: Storage) -> bool:
    """Whether a tensor is an input of the region, or a slice of one that is loaded from there."""
    return _home_of(part).source is not None


def gather_in_place(index: int, layer: Layer, whole: Storage, of: dict[Tensor, Storage]) -> None:
    """Let a mapped concatenation of which parts are inputs of the region be put together as it is loaded."""
    assert isinstance(layer, Concat), "it is as it stands, or with height and width swapped"
    for tensor, at in parts_of_output(index, layer):
        _gather(index, layer, tensor, of.get(tensor), Join(whole, at))


def pad_in_place(index: int, layer: Pad, whole: Storage, part: Storage) -> None:
    """Let a padded image be put together as it is loaded: of the image itself, and of the value around it."""
    at = place_in_output(index, layer, layer.ifm, layer.before)
    _gather(index, layer, layer.ifm, part, Join(whole, at))
    for number, ((row, column, channel), shape) in enumerate(around(at, extents(layer.ifm), extents(layer.ofm))):
        tensor = Tensor(f"around {layer.ifm.name} {number}", (1, *shape))
        filling = Storage(-1, f"{whole.block} around {number}", tensor, extents(tensor), False, filled=layer.value)
        whole.gathered.append((filling, Join(whole, (row, column, channel))))


def resize_in_place(
    index: int, layer: Resize, whole: Storage, part: Storage, new: Callable[[Tensor], Storage], mapping: Mapping
) -> None:
    """Let rows be repeated as they are loaded, and columns as the layer that makes them stores them in a `new` storage;
    of an input of the region columns as well as they are loaded."""
    if layer.ifm.shape[0] != 1 or layer.ifm in part.places or part.gathered or layer.ifm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: what is repeated as it is loaded is an image by itself")
    lines, columns = progressions(layer.rows), progressions(layer.columns)
    _, height, width, channels = layer.ifm.shape
    if part.source is None and part.view is None:
        every = all((one.count, one.from_first, one.from_step) == (width, 0, 1) for one in columns)
        if not every or part.extents != extents(layer.ifm) or not stored_by_one(part, mapping):
            raise NotInPlace([index], f"{layer.name}: no layer stores {part.name} with each column repeated as often")
        row = len(layer.columns) * channels
        wider = new(replace(layer.ifm, name=f"{layer.name} columns", shape=(1, height, row // channels, channels)))
        runs = [Spread(0, channels, one.first * channels, (row, one.step * channels, 1)) for one in columns]
        store_runs(index, layer, part, wider, runs, mapping)
        part, columns = wider, progressions(range(row // channels))
    for number, (down, along) in enumerate(product(lines, columns)):
        shape = down.count, along.count, channels
        tensor = replace(layer.ifm, name=f"{part.name} {number}", shape=(1, *shape))
        view = _view_of(part, (down.from_first, along.from_first, 0), (down.from_step, along.from_step, 1))
        piece = Storage(-1, f"{whole.block} {number}", tensor, shape, False, view=view)
        view.whole.lent.append(whole)
        whole.gathered.append((piece, Join(whole, (down.first, along.first, 0), (down.step, along.step, 1))))


def load_from(index: int, layer: Slice, whole: Storage, part: Storage, graph: Graph) -> None:
    """Let a slice be loaded from where its input lies in main memory."""
    box = box_within(layer.ifm.shape, layer.ofm.shape, layer.begin, layer.steps)
    plain = whole.extents == extents(layer.ifm) and layer.ifm not in whole.places
    several = whole.gathered or whole.constant or layer.ofm.bytes_of(1) != 1
    if box is None or not plain or several or (box[1][2] != 1 and part.extents[2] > 1):
        raise NotInPlace([index], f"{layer.name}: a slice that is loaded from its input is a box of runs of channels")
    part.view = _view_of(whole, *box)
    part.view.whole.lent.append(part)


def _gather(index: int, layer: Layer, tensor: Tensor, part: Storage | None, join: Join) -> None:
    """Let an input of a layer be loaded to its place in the storage that is put together so; one that is put together
    itself piece by piece."""
    there = part is not None and (part.makers or part.source is not None or part.view or part.gathered)
    if part is None or not there or part.joined or part.extents != extents(tensor) or tensor in part.places:
        raise NotInPlace([index], f"{layer.name}: {tensor.name} is not an input or one layer's output by itself")
    if tensor.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: {tensor.name} has elements of a byte")
    for piece, inside in part.gathered or [(part, Join(part, (0, 0, 0)))]:
        join.whole.gathered.append((piece, Join(join.whole, *_inside(inside.at, inside.steps, join.at, join.steps))))
        _home_of(piece).lent.append(join.whole)


def _home_of(part: Storage) -> Storage:
    """What a storage is loaded from in main memory: itself, or what it is a slice of."""
    return part if part.view is None else part.view.whole


def _view_of(whole: Storage, at: Extents, steps: Extents) -> Join:
    """Where some of a storage lies in main memory, also of a slice of another one."""
    if whole.view is None:
        return Join(whole, at, steps)
    return Join(whole.view.whole, *_inside(at, steps, whole.view.at, whole.view.steps))


def _inside(begin: Extents, steps: Extents, at: Extents, by: Extents) -> tuple[Extents, Extents]:
    """Where a slice of a slice begins, and its steps."""
    (top, left, front), (down, right, inward) = begin, by
    (row, column, channel), (rows, columns, channels) = at, steps
    start = row + top * down, column + left * right, channel + front * inward
    return start, (rows * down, columns * right, channels * inward)
