"""Packed rows: images in local memory with room between their rows, so that one job takes all rows as a single one.

The array computes `array_columns` outputs of one row at a time, and a narrow image leaves a part of it idle. Where
a job's input rows may overlap, the rows of an image lie `pitch` pixels apart, and what lies between them are the
padding on the right of a row and on the left of the next. A window of stride 1 then slides over all rows as over one:
output `row * pitch + column` reads the pixels that lie around the input at the same place. The outputs between the
rows mean nothing.

A band are layers of stride 1 that share images, whose rows are packed together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Convolution, Graph, Layer, Reshape, Slice, Transpose, Weighted
from byoc_hw.plan.array.connected import connected
from byoc_hw.plan.array.cost import best_cycles, is_pointwise, transfer_cycles
from byoc_hw.plan.array.kinds import Run, Window, geometry, job_cycles
from byoc_hw.plan.array.transfers import Transfer
from byoc_hw.plan.array.weight_blocks import all_bytes
from byoc_hw.plan.array.window import Extent, Extents, Place, extents, row_bytes
from byoc_hw.tensor import Pair, Tensor

MOST_FILLED = 1024
"""The most bytes that are filled together with the rows: they are in flash."""


class PackedReads(NamedTuple):
    """What jobs over packed rows of outputs read of an image that lies at a `place` in `nbytes` bytes: its rows with so
    many `before` and `behind` them, and bytes `around` those."""

    place: Place
    before: int
    behind: int
    around: int
    nbytes: int

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The bytes that are read for the output rows `first` to `stop`, not included."""
        start, end = self.place.span(first - self.before, stop + self.behind)
        return max(start - self.around, 0), min(end + self.around, self.nbytes)


@dataclass(frozen=True)
class Packing:
    """How an image lies in local memory: rows `pitch` pixels apart, `head` pixels before the first of them and `tail`
    behind the last. With `padded` windows read padding between rows, above and below where there is room. Jobs that
    read over the ends of rows are there if it is `crossed`."""

    pitch: int
    head: int = 0
    tail: int = 0
    padded: bool = False
    crossed: bool = False

    def place(self, shape: Extents) -> Place:
        """Where an image of this shape lies in its bytes."""
        height, width, pixel = shape
        return Place(self.head * pixel, self.pitch * pixel, pixel, height, width * pixel)

    def nbytes(self, shape: Extents) -> int:
        """Bytes of an image of this shape with all that lies around its rows."""
        height, width, pixel = shape
        return (self.head + (height - 1) * self.pitch + width + self.tail) * pixel

    def pixels(self, rows: int, width: int) -> int:
        """The pixels of some rows, with those between them."""
        return (rows - 1) * self.pitch + width

    def reads(self, layer: Layer, shape: Extents) -> PackedReads:
        """What jobs over packed rows of a layer read of an image of this shape."""
        form, place = geometry(layer), self.place(shape)
        around = (self.pitch - shape[1]) * place.pixel if self.padded else 0
        before = form.rows.before if isinstance(form, Window) else 0
        behind = form.rows.reach - 1 - before if isinstance(form, Window) else 0
        return PackedReads(place, before, behind, around, self.nbytes(shape))

    def fills(self, shape: Extents, accelerator: Accelerator) -> tuple[Transfer, ...]:
        """The copies of zero points around and between the rows of an image of this shape, in the fewest cycles. One of
        two rows fills what lies above and below; or one fills everything, before the image comes."""
        height, width, pixel = shape
        gap, nbytes = (self.pitch - width) * pixel, self.nbytes(shape)
        first, last = 0 < self.head * pixel == gap, 0 < self.tail * pixel == gap
        above, below = 0 if first else self.head * pixel, 0 if last else self.tail * pixel
        moves = [Transfer(0, start, size) for start, size in ((0, above), (nbytes - below, below)) if size]
        if len(moves) == 2 and above == below:
            moves = [Transfer(0, 0, above, 2, above, nbytes - below)]
        gaps = height - 1 + first + last
        if gap and gaps:
            start = 0 if first else (self.head + width) * pixel
            moves.append(Transfer(0, start, gap, gaps, gap, self.pitch * pixel))
        small = moves and nbytes <= MOST_FILLED and nbytes % accelerator.dma_alignment == 0
        whole = (Transfer(0, 0, nbytes),) if small else tuple(moves)
        return min(tuple(moves), whole, key=lambda some: transfer_cycles(some, accelerator))

    def last_cut(self, outputs: int, accelerator: Accelerator) -> int:
        """The first of the last outputs that the array computes together."""
        columns = accelerator.array_columns
        return (outputs - 1) // columns * columns

    def first_late(self, shape: Extents, accelerator: Accelerator) -> int | None:
        """The first pixel between two rows that is written with the last outputs, if one is."""
        height, width, _ = shape
        row = self.last_cut((height - 1) * self.pitch + width, accelerator) // self.pitch
        return row * self.pitch + width if row + 1 < height else None


def tile_packing(rows: Extent, columns: Extent, reach: Pair) -> Packing:
    """How the input of a tile lies in local memory, of which a job takes all rows as one: from the first pixel that its
    windows see to the last one, padding or not. Windows `reach` over some rows and columns."""
    pitch = columns.ifm_size + max(columns.pad_before, columns.pad_after)
    head = rows.pad_before * pitch + columns.pad_before
    seen = (rows.size + reach[0] - 2) * pitch + columns.size + reach[1] - 1
    tail = seen - head - (rows.ifm_size - 1) * pitch - columns.ifm_size
    return Packing(pitch, head, tail, padded=True, crossed=True)


def packs_tiles(layer: Layer, accelerator: Accelerator) -> bool:
    """Whether a job of a layer may take all rows of a tile as one: each of its windows sees a pixel."""
    form = geometry(layer)
    if not accelerator.packed_rows or not may_pack(layer) or not isinstance(form, Window) or is_pointwise(layer):
        return False
    return all(max(axis.before, axis.after) < axis.reach for axis in (form.rows, form.columns))


_STRIPE = 4
"""The rows of a stripe: where local memory has room for two of these, packed stripes are as good as tiles, if they do
not load weights again."""


def worth_packing_tiles(layer: Layer, accelerator: Accelerator) -> bool:
    """Whether tiles with packed rows are tried: where there may be some, and no room for all weights, or for stripes of
    a few rows."""
    form = geometry(layer)
    if not packs_tiles(layer, accelerator) or not isinstance(form, Window):
        return False
    rows = min(_STRIPE, form.rows.ofm)
    nbytes = form.rows.largest_ifm(rows) * row_bytes(layer.ifm) + rows * row_bytes(layer.ofm)
    weights = all_bytes(layer, None, accelerator)
    return 2 * nbytes > accelerator.activation_memory or weights > accelerator.weight_memory


@dataclass(frozen=True)
class Packed:
    """The images that are packed, by tensor of the graph, and the layers that take many rows as one, by index."""

    images: dict[Tensor, Packing] = field(default_factory=dict)
    layers: frozenset[int] = frozenset()


NOT_PACKED = Packed()


def bands(layers: Sequence[Layer]) -> tuple[int | None, ...]:
    """The band of each layer, numbered in order; None for a layer that is in none."""
    members = [index for index, layer in enumerate(layers) if may_pack(layer)]
    numbers = connected([operands(layers[index]) for index in members])
    found = dict(zip(members, numbers, strict=True))
    return tuple(found.get(index) for index in range(len(layers)))


def operands(layer: Layer) -> tuple[Tensor, ...]:
    """The tensors whose rows a job takes together: not a second input that each job reads again."""
    form = geometry(layer)
    inputs = layer.inputs[:1] if isinstance(form, Run) and form.repeats else layer.inputs
    return (*inputs, layer.ofm)


def may_pack(layer: Layer) -> bool:
    """Whether a layer may be in a band: others take no rows as one."""
    form = geometry(layer)
    if isinstance(form, Window):
        fits = isinstance(layer, Convolution) and (form.rows.stride, form.columns.stride) == (1, 1)
    else:
        fits = isinstance(form, Run)
    return fits and all(_is_image(tensor) for tensor in operands(layer))


def _is_image(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1 and min(tensor.shape[1:3]) > 1


def pack_rows(
    graph: Graph,
    layers: Sequence[Layer],
    numbers: Sequence[int | None],
    packed: Set[int],
    accelerator: Accelerator,
    stored: Set[int],
) -> Packed:
    """The packed images of some bands. `layers` are the graph's as they are mapped, `numbers` their bands, and `stored`
    those that copies of other layers do in main memory."""
    free = free_images(graph, accelerator, stored) if packed else frozenset()
    found = NOT_PACKED
    for number in sorted(packed):
        one = _band([index for index, other in enumerate(numbers) if other == number], graph, layers, free, accelerator)
        found = Packed(found.images | one.images, found.layers | one.layers)
    return found


def worth_packing(
    graph: Graph,
    layers: Sequence[Layer],
    numbers: Sequence[int | None],
    accelerator: Accelerator,
    transposed: Set[int],
) -> frozenset[int]:
    """The bands that take the array fewer cycles packed, without the copies that this costs. Stores may do the
    transpositions that are `transposed`."""
    if not (accelerator.packed_rows and accelerator.tuning.pack):
        return frozenset()
    free, found = free_images(graph, accelerator, storable(graph.layers) | transposed), set()
    for number in {one for one in numbers if one is not None}:
        members = [index for index, other in enumerate(numbers) if other == number]
        band = _band(members, graph, layers, free, accelerator)
        before = sum(best_cycles(layers[index], accelerator) for index in members)
        if sum(_cycles(index, graph, layers[index], band, accelerator) for index in members) < before:
            found.add(number)
    return frozenset(found)


def storable(layers: Sequence[Layer]) -> frozenset[int]:
    """The layers that copies of others may do in main memory, where all rows lie as ever."""
    return frozenset(index for index, layer in enumerate(layers) if isinstance(layer, Concat | Slice))


def free_images(graph: Graph, accelerator: Accelerator, stored: Set[int]) -> frozenset[Tensor]:
    """The images that may be packed: all that touches them are windows and runs, layers that are `stored` by copies of
    others, reshapes beside these, and copies of whole words."""
    bound = {tensor for tensor in graph.outputs if tensor in graph.inputs}
    free = stored | _beside_stored(graph, stored)
    touched: set[Tensor] = set()
    for index, layer in enumerate(graph.layers):
        tensors = {*layer.inputs, layer.ofm}
        touched |= tensors
        if index not in free and not isinstance(geometry(layer), Window | Run):
            bound |= tensors
    return frozenset(
        tensor
        for tensor in touched - bound
        if _is_image(tensor)
        and tensor.data is None
        and tensor.dtype == "int8"
        and tensor.shape[-1] % accelerator.dma_alignment == 0
    )


def _beside_stored(graph: Graph, stored: Set[int]) -> frozenset[int]:
    """The reshapes of what transpositions that are stored read, and of what they make: nobody else uses the tensors
    between."""
    turned = {index for index in stored if isinstance(graph.layers[index], Transpose)}
    used = Counter(chain(graph.outputs, *(layer.inputs for layer in graph.layers)))
    read = Counter(graph.layers[index].ifm for index in turned)
    made = {graph.layers[index].ofm for index in turned}
    return frozenset(
        index
        for index, layer in enumerate(graph.layers)
        if isinstance(layer, Reshape)
        and (used[layer.ofm] == read[layer.ofm] or (layer.ifm in made and used[layer.ifm] == 1))
    )


def _band(
    members: Sequence[int], graph: Graph, layers: Sequence[Layer], free: Set[Tensor], accelerator: Accelerator
) -> Packed:
    """One band packed: each layer of it over many rows at once where all of its images are packed and it is cheaper."""
    together = [index for index in members if free >= {*operands(graph.layers[index])}]
    pitch = max((_pitch(layers[index]) for index in together), default=0)
    whole = frozenset(index for index in together if _takes_rows_as_one(layers[index], pitch, accelerator))
    images: dict[Tensor, Packing] = {}
    for index in whole:
        for tensor in operands(graph.layers[index]):
            images.setdefault(tensor, Packing(pitch))
    for index in whole:
        for tensor, there in zip(graph.layers[index].inputs, layers[index].inputs, strict=True):
            if tensor in images:
                images[tensor] = _with_room(images[tensor], layers[index], extents(there)[1])
    return Packed(images, whole)


def _takes_rows_as_one(layer: Layer, pitch: int, accelerator: Accelerator) -> bool:
    """Whether that is the better way: always for runs, which would be a job for each row."""
    if isinstance(geometry(layer), Run):
        return True
    return packed_cycles(layer, pitch, accelerator) <= _by_rows(layer, accelerator)


def _pitch(layer: Layer) -> int:
    """The least pixels from one row to the next for a layer by itself."""
    width = max(extents(tensor)[1] for tensor in operands(layer))
    form = geometry(layer)
    if not isinstance(form, Window):
        return width
    return max(width, extents(layer.ifm)[1] + max(form.columns.before, form.columns.after))


def _with_room(packing: Packing, layer: Layer, width: int) -> Packing:
    """The packing of an image that a job over its packed rows reads as well."""
    form = geometry(layer)
    if not isinstance(form, Window):
        return replace(packing, crossed=True)
    padded = packing.padded or max(form.columns.before, form.columns.after) > 0
    above, below = (
        max(rows, pixels // packing.pitch)
        for rows, pixels in ((form.rows.before, packing.head), (form.rows.after, packing.tail))
    )
    around = packing.pitch - width if padded else 0
    return Packing(packing.pitch, above * packing.pitch + around, below * packing.pitch + around, padded, crossed=True)


def packed_cycles(layer: Layer, pitch: int, accelerator: Accelerator) -> int:
    """Cycles of the jobs over all rows of a layer as one, with rows so many pixels apart."""
    height, width, channels = extents(layer.ofm)
    return _row_cycles(layer, (1, (height - 1) * pitch + width, channels), accelerator)


def least_packed(layer: Layer, accelerator: Accelerator) -> int:
    """Cycles of a job over all outputs of a layer in one row, with nothing between them."""
    height, width, channels = extents(layer.ofm)
    return _row_cycles(layer, (1, height * width, channels), accelerator)


def _by_rows(layer: Layer, accelerator: Accelerator) -> int:
    """Cycles of the jobs of a layer, row by row."""
    height, width, channels = extents(layer.ofm)
    if isinstance(geometry(layer), Run):
        return height * _row_cycles(layer, (1, width, channels), accelerator)
    return _row_cycles(layer, (height, width, channels), accelerator)


def _row_cycles(layer: Layer, ofm: Extents, accelerator: Accelerator) -> int:
    groups = layer.groups if isinstance(layer, Weighted) else 1
    height, width, channels = ofm
    depth = extents(layer.ifm)[2] // groups
    return groups * job_cycles(layer, (height, width, depth), (height, width, channels // groups), accelerator)


def _cycles(index: int, graph: Graph, layer: Layer, band: Packed, accelerator: Accelerator) -> int:
    """Cycles of a layer in its band: row by row where only some of its images are packed."""
    packings = [band.images.get(tensor) for tensor in operands(graph.layers[index])]
    if index in band.layers:
        return packed_cycles(layer, next(one.pitch for one in packings if one is not None), accelerator)
    if any(one is not None for one in packings):
        return _by_rows(layer, accelerator)
    return best_cycles(layer, accelerator)
