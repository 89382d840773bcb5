"""The storages of a mapped graph: which tensors share bytes, and which lie inside one another in local memory, or are
put together in main memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from byoc_hw.graph import Concat, Graph, Layer, Pad, Resize, Slice, Transpose
from byoc_hw.plan.array.kinds import Alias, CopiesOnly, Product, Run, Window, geometry
from byoc_hw.plan.array.loaded_parts import (
    gather_in_place,
    load_from,
    loaded_from_outside,
    pad_in_place,
    resize_in_place,
)
from byoc_hw.plan.array.mapping import Mapping
from byoc_hw.plan.array.storage import NOWHERE_ELSE, Argument, Lies, NotInPlace, Storage, Storages, parts_of_output
from byoc_hw.plan.array.stored_parts import forget_unread, store_from, store_in_place, store_transposed
from byoc_hw.plan.array.transfers import dense_strides
from byoc_hw.plan.array.window import Place, box_within, dense_place, extents
from byoc_hw.tensor import Tensor


def storages(graph: Graph, mapping: Mapping, lies: Lies = NOWHERE_ELSE) -> Storages:
    """The storages of a mapped graph. `lies` has the arguments that lie otherwise than the tensors of the model."""
    found: list[Storage] = []
    of: dict[Tensor, Storage] = {}

    def storage(tensor: Tensor, mapped: Tensor) -> Storage:
        if tensor not in of:
            block = f"{graph.name}: {len(found):05} {tensor.name}"
            swapped = mapped in mapping.origin and mapping.is_swapped(mapped)
            of[tensor] = Storage(len(found), block, mapped, extents(mapped), swapped, packing=mapping.packing(tensor))
            found.append(of[tensor])
        of[mapped] = of[tensor]
        return of[tensor]

    first = {mapping.origin[there]: there for there in reversed(list(mapping.origin))}
    for index, tensor in enumerate(graph.inputs):
        one = storage(tensor, first.get(tensor, tensor))
        one.source = one.source or Argument(index, one.strides_of(tensor, lies))
    outputs: dict[Tensor, tuple[int, int, int]] = {}
    for index, (layer, mapped) in enumerate(zip(graph.layers, mapping.layers, strict=True)):
        if isinstance(geometry(layer), Alias):
            of[layer.ofm] = of[mapped.ofm] = storage(layer.ifm, mapped.ifm)
            packing = mapping.packing(layer.ofm)
            if layer.ifm in of[layer.ifm].places:
                reshape_in_place(layer, of[layer.ifm])
            elif packing is not None:
                of[layer.ofm].lies_as(mapped.ofm, packing)
        elif index in mapping.copied and isinstance(layer, Transpose):
            if layer.ifm in graph.inputs:
                source = of[layer.ifm].source
                assert source is not None, "it is a transposition of an input"
                storage(layer.ofm, mapped.ofm).source = Argument(source.index, _read_strides(layer))
            else:
                if of[layer.ifm].parts:
                    turning = _placing(graph, mapping, layer.ifm, of)
                    raise NotInPlace(turning, f"{layer.name}: what is put together is stored in its own order")
                of[layer.ofm] = of[mapped.ofm] = of[layer.ifm]
                outputs[layer.ofm] = _written_strides(layer, of[layer.ifm])
        elif index in mapping.placed and isinstance(layer, Slice):
            read_in_place(index, layer, storage(layer.ifm, mapped.ifm), of)
        elif index in mapping.placed and isinstance(layer, Concat):
            for part in write_in_place(index, layer, storage(layer.ofm, mapped.ofm), of):
                found.remove(part)
        elif index in mapping.stored and isinstance(layer, Slice):
            take = store_from if layer.ofm in graph.outputs else load_from
            take(index, layer, storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm), graph)
        elif index in mapping.stored and isinstance(layer, Concat):
            if any(one not in of or loaded_from_outside(of[one]) or of[one].gathered for one in layer.inputs):
                for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
                    storage(tensor, there)
                gather_in_place(index, mapped, storage(layer.ofm, mapped.ofm), of)
            else:
                store_in_place(index, layer, storage(layer.ofm, mapped.ofm), of, mapping)
        elif index in mapping.stored and isinstance(layer, Pad):
            pad_in_place(index, layer, storage(layer.ofm, mapped.ofm), storage(layer.ifm, mapped.ifm))
        elif index in mapping.stored and isinstance(layer, Resize):
            part, whole = storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm)
            resize_in_place(index, layer, whole, part, lambda tensor: storage(tensor, tensor), mapping)
        elif index in mapping.stored and isinstance(layer, Transpose):
            store_transposed(index, layer, storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm), mapping)
        else:
            for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
                one = storage(tensor, there)
                if index not in one.readers[-1:]:
                    one.readers.append(index)
            storage(layer.ofm, mapped.ofm).makers.append(index)
    for index, tensor in enumerate(graph.outputs):
        strides = outputs[tensor] if tensor in outputs else of[tensor].strides_of(tensor, lies)
        of[tensor].sinks.append(Argument(len(graph.inputs) + index, strides))
    forget_unread(found)
    for index, one in enumerate(found):
        one.index = index
        if mapping.jobs_transpose and _may_turn(one, mapping, lies):
            read_turned(one, [tensor for tensor in mapping.origin if of.get(tensor) is one])
    if mapping.placed or mapping.stored:
        check_places(graph, mapping, of)
    return Storages(tuple(found), of)


def _may_turn(one: Storage, mapping: Mapping, lies: Lies) -> bool:
    """Whether jobs can read an input of the region as it lies in main memory, with height and width swapped."""
    free = mapping.copied | mapping.placed | mapping.stored
    read = all(isinstance(geometry(mapping.layers[index]), Window) and index not in free for index in one.readers)
    given = one.source is not None and one.swapped and one.source.strides == one.strides
    by_itself = not (one.leaves or one.in_boxes or one.places or one.packing)
    return given and by_itself and read and mapping.origin[one.tensor] not in lies


def read_turned(one: Storage, tensors: Iterable[Tensor]) -> None:
    """Let an input have the same bytes in local memory as in main memory: layers read it as `tensors` with height and
    width swapped."""
    assert one.source is not None, "it is an input"
    height, width, channels = one.extents
    pixel = height * channels
    one.source = replace(one.source, strides=None)
    one.places |= dict.fromkeys(tensors, Place(0, channels, pixel, height, (width - 1) * pixel + channels))


def read_in_place(index: int, layer: Slice, whole: Storage, of: dict[Tensor, Storage]) -> None:
    """Let a slice be part of its input's storage."""
    box = box_within(layer.ifm.shape, layer.ofm.shape, layer.begin, layer.steps)
    place, (height, width, depth) = whole.place(layer.ifm), extents(layer.ofm)
    if box is None or (box[1][2] != 1 and depth > 1) or layer.ofm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: a slice that is read in place has whole runs of channels")
    (rows, columns, channels), steps = box
    pixel = place.pixel * steps[1]
    start = place.offset + rows * place.row + columns * place.pixel + channels
    whole.places[layer.ofm] = Place(start, place.row * steps[0], pixel, height, (width - 1) * pixel + depth)
    of[layer.ofm] = whole


def write_in_place(index: int, layer: Concat, whole: Storage, of: dict[Tensor, Storage]) -> list[Storage]:
    """Let the inputs of a concatenation be parts of its output's storage. Returns their storages, which are no more."""
    gone: list[Storage] = []
    _, columns, channels = extents(layer.ofm)
    row = columns * channels
    for tensor, at in parts_of_output(index, layer):
        part = of.get(tensor)
        again = part is whole or part in gone  # a tensor that is concatenated twice has two places
        plain = part is not None and not (again or part.swapped or part.leaves) and part.makers
        if part is None or not plain or part.nbytes > tensor.nbytes or part.place(tensor) != dense_place(tensor):
            raise NotInPlace([index], f"{layer.name}: {tensor.name} is not one layer's output by itself")
        offset = at[0] * row + at[1] * channels + at[2]
        for inside in [other for other, one in of.items() if one is part]:
            place = _moved(part.place(inside), inside, tensor, offset, row, channels)
            if place is None or tensor.bytes_of(1) != 1:
                raise NotInPlace([index], f"{layer.name}: {inside.name} has its bytes in another order in its output")
            whole.places[inside] = place
            of[inside] = whole
        whole.makers, whole.readers = sorted({*whole.makers, *part.makers}), sorted({*whole.readers, *part.readers})
        gone.append(part)
    return gone


def _moved(place: Place, inside: Tensor, part: Tensor, offset: int, row: int, pixel: int) -> Place | None:
    """The place of a tensor once all of the part that it lies in has its pixels and rows so far apart, or None."""
    _, columns, channels = extents(part)
    _, width, depth = extents(inside)
    if columns * channels == row:
        return place._replace(offset=place.offset + offset)
    first_row, rest = divmod(place.offset, columns * channels)
    first_column, first_channel = divmod(rest, channels)
    every_row, odd_row = divmod(place.row, columns * channels)
    every_column, odd_column = divmod(place.pixel, channels)
    within = first_column + (width - 1) * every_column < columns and first_channel + depth <= channels
    if not within or odd_row or (odd_column and width > 1):
        return None
    start = offset + first_row * row + first_column * pixel + first_channel
    return Place(start, every_row * row, every_column * pixel, place.height, (width - 1) * every_column * pixel + depth)


def reshape_in_place(layer: Layer, whole: Storage) -> None:
    """Let the reshape of a part be that part. Raises `NotInPlace` where its bytes do not lie together."""
    place = whole.places[layer.ifm]
    if not _together(layer.ifm, place):
        raise NotInPlace([], f"{layer.name}: the bytes of a reshape lie together")
    whole.places[layer.ofm] = dense_place(layer.ofm)._replace(offset=place.offset)


def _together(tensor: Tensor, place: Place) -> bool:
    height, width, _ = extents(tensor)
    dense = dense_place(tensor)
    return (place.row == dense.row or height == 1) and (place.pixel == dense.pixel or width == 1)


def check_places(graph: Graph, mapping: Mapping, of: dict[Tensor, Storage]) -> None:
    """Check that every layer that works can read and write its tensors where they lie: windows anywhere, runs of
    elements where bytes lie together, copies only storages of one maker. Outputs of the region are whole storages that
    are written."""
    for index, layer in enumerate(mapping.layers):
        form = geometry(layer)
        for tensor in (*layer.inputs, layer.ofm):
            one = of[tensor]
            there = mapping.origin.get(tensor, tensor)
            if there is not tensor and there in one.places:
                raise NotInPlace(_placing(graph, mapping, there, of), f"{layer.name}: height and width are swapped")
            apart = tensor in one.places and not _together(tensor, one.places[tensor])
            copied = isinstance(form, CopiesOnly) and index not in mapping.placed | mapping.stored
            elsewhere = one.gathered or one.view or (tensor is layer.ofm and one.exits)
            several = one.joined or tensor in one.places or elsewhere
            if (isinstance(form, Run | Product) and apart) or (copied and several):
                raise NotInPlace(_placing(graph, mapping, tensor, of), f"{layer.name}: needs {tensor.name} by itself")
    for tensor in graph.outputs:
        if tensor in of[tensor].places or of[tensor].gathered or of[tensor].view:
            message = f"{tensor.name}: an output of the region lies by itself"
            raise NotInPlace(_placing(graph, mapping, tensor, of), message)


def _placing(graph: Graph, mapping: Mapping, tensor: Tensor, of: dict[Tensor, Storage]) -> Iterator[int]:
    """The placed layers that made a tensor part of another or of parts; where that is unclear, all in its storage."""
    placed = {index: graph.layers[index] for index in sorted(mapping.placed | mapping.stored)}
    direct = [index for index, layer in placed.items() if tensor is layer.ofm or tensor in layer.inputs]
    yield from direct or [index for index, layer in placed.items() if of[layer.ofm] is of[tensor]]


def _read_strides(layer: Transpose) -> tuple[int, int, int]:
    """The strides of a transposition's input, by the dimensions of its output."""
    strides = dense_strides(layer.ifm.shape)
    _, height, width, channels = (strides[axis] for axis in layer.axes)
    return height, width, channels


def _written_strides(layer: Transpose, storage: Storage) -> tuple[int, int, int]:
    """The strides of a transposition's output, by the dimensions of its mapped input."""
    strides = dense_strides(layer.ofm.shape)
    _, height, width, channels = (strides[layer.axes.index(axis)] for axis in range(4))
    if storage.extents != extents(layer.ifm):  # a line whose height and width are swapped
        height, width = width, height
    return height, width, channels
