"""Parts as the arrays take them: with height and width swapped where that is faster, for the region as a whole.

A tensor between two parts lies in main memory as the arrays have it, so that no copy between them reorders it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from byoc_hw.errors import PlanError
from byoc_hw.graph import Dense, Graph, Reshape, Transpose
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.mapped import MappedGraph, map_graph
from byoc_hw.plan.array.mapping import components
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.chip_plan import ElementBox
from byoc_hw.plan.lanes.cut import CutGraph, Region, boxes_of_piece, by_pixels, pixels_in, place_of
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class OrientedPart:
    """A part as it is mapped. `arguments` are the region's tensor that each of its arguments lies in, and the byte.
    `boxes` say of each layer where its output lies in that of the region's layer, None for all of it. `swapped` says
    which components of the region are swapped."""

    cut: PartCut
    mapped: MappedGraph
    arguments: tuple[tuple[Tensor, int], ...]
    boxes: tuple[tuple[ElementBox, ...] | None, ...]
    swapped: tuple[bool, ...] = ()

    @cached_property
    def reads(self) -> frozenset[Tensor]:
        """The tensors of the region that its layers read and others make, or that are inputs of the region."""
        return frozenset(tensor for tensor, _ in self.arguments[: len(self.mapped.graph.inputs)])

    @cached_property
    def makes(self) -> frozenset[Tensor]:
        """The tensors of the region that it makes, all of them or a share."""
        return frozenset(tensor for tensor, _ in self.arguments[len(self.mapped.graph.inputs) :])


class Oriented:
    """A region on a chip whose components are swapped or not, each for all parts alike.

    With `copies_transpose` copies do the transpositions at the region's border.
    """

    def __init__(self, region: Region, chip: Soc, swapped: Sequence[bool], copies_transpose: bool = True) -> None:
        self.region, self.chip, self._copies_transpose = region, chip, copies_transpose
        self._of_components = tuple(swapped)
        self._swapped = [swapped[number] for number in components(region.graph)]
        self._outside = {*region.arguments, *region.graph.outputs}

    def axis(self, layer: int) -> int:
        """The dimension along which the rows of a layer's output lie on the array: 1 or 2; 1 for a dense layer."""
        return 2 if self._swapped[layer] else 1

    def axes(self, whole: PartCut) -> tuple[int, ...]:
        """The dimensions of the last output along which layers can be cut."""
        index = whole.layers[-1]
        layer = self.region.graph.layers[index]
        if whole.flat:
            return (1, 3) if len(whole.layers) == 1 and len(layer.ofm.shape) == 4 else (1,)
        if isinstance(layer, Dense):
            return (1,)
        if len(layer.ofm.shape) != 4:
            return (1,) if isinstance(layer, Reshape | Transpose) and len(layer.ofm.shape) > 1 else ()
        return self.axis(index), 3

    def can_be_flat(self, layer: int) -> bool:
        """Whether a layer's pixels can be rows of their own: they lie in the same order in its input and its output."""
        found = self.region.graph.layers[layer]
        height, width, _ = extents(found.ofm)
        outside = found.ifm in self._outside or found.ofm in self._outside
        return is_pointwise(found) and width > 1 and height > 1 and not (self._swapped[layer] and outside)

    def has_pixels_alone(self, layers: Sequence[int]) -> bool:
        """Whether layers can be cut between any two pixels, of which all have as many, and the last one's output has no
        rows of these."""
        found = [self.region.graph.layers[index] for index in layers]
        pixels = {pixels_in(layer.ofm) for layer in found}
        if len(found[-1].ofm.shape) == 4 or len(pixels) > 1 or pixels == {1}:
            return False
        return all(map(by_pixels, found)) and not any(self._swapped[index] for index in layers)

    def part(self, cut: PartCut) -> OrientedPart | None:
        """A part as it is mapped; None where the layers cannot be cut so, or not be mapped."""
        name = f"{self.region.graph.name}_{self.chip.accelerators[cut.lane].name}_{cut.layers[0]}"
        cut_graph = self.region.part(cut, name)
        accelerator = self.chip.accelerators[cut.lane]
        if cut_graph is None or not self._tiled_or_whole(cut):
            return None
        graph = cut_graph.graph
        boxes = tuple(
            boxes_of_piece(cut_graph.views[layer.ofm], layer.ofm.shape, self._swapped[index])
            if layer.ofm in cut_graph.views
            else None
            for index, layer in zip(cut.layers, graph.layers, strict=True)
        )
        of = dict(zip(components(graph), cut.layers, strict=True))
        turned = [self._swapped[of[number]] and not cut.flat for number in sorted(of)]
        arguments = dict.fromkeys((*graph.inputs, *graph.outputs))
        swapped = {tensor: self._is_swapped(cut_graph, tensor) for tensor in arguments}
        lies: dict[Tensor, tuple[int, int, int] | None] = {}
        for tensor in arguments:
            whole = cut_graph.whole(tensor)
            apart = tensor in cut_graph.views and cut_graph.views[tensor].axis == 3
            if whole not in self._outside and not apart:
                lies[tensor] = None
            elif tensor in cut_graph.views and (apart or swapped[tensor]):
                lies[tensor] = self._strides(whole, swapped[tensor], flat=cut.flat)
        try:
            mapped = map_graph(graph, accelerator, turned, self._copies_transpose, lies=lies)
        except PlanError:
            return None
        places = {tensor: self._place(cut_graph, tensor, swapped[tensor]) for tensor in arguments}
        if any(not self._is_aligned(tensor, *place, lies.get(tensor)) for tensor, place in places.items()):
            return None
        ends = tuple(places[tensor] for tensor in (*graph.inputs, *graph.outputs))
        return OrientedPart(cut, mapped, ends, boxes, self._of_components)

    def _tiled_or_whole(self, cut: PartCut) -> bool:
        """Whether all layers of a part have tiles on its accelerator, or all run as a whole and none of them is cut."""
        layers = [self.region.graph.layers[index] for index in cut.layers]
        whole = [self.chip.accelerators[cut.lane].runs_whole(layer) for layer in layers]
        at_once = (one or isinstance(layer, Reshape) for one, layer in zip(whole, layers, strict=True))
        return not any(whole) or (cut.rows is None and all(at_once))

    def _is_aligned(self, piece: Tensor, whole: Tensor, start: int, strides: tuple[int, int, int] | None) -> bool:
        """Whether a piece of a tensor is whole words of the DMA, so that its copies touch no other piece."""
        if piece is whole or piece.nbytes == whole.nbytes:
            return True
        pixel = piece.bytes_of(piece.shape[-1])
        sizes = (start, piece.nbytes) if strides is None else (start, pixel, *strides[:2])
        return all(size % self.chip.dma_alignment == 0 for size in sizes)

    def copies(self) -> Iterator[OrientedPart]:
        """Parts without layers that copy what no layer writes where the region gives it, on the first DMA of the chip.

        Raises `PlanError` where there is none.
        """
        lane = next((lane for lane, one in enumerate(self.chip.accelerators) if one.library is None), None)
        if lane is None and self.region.copies:
            raise PlanError(f"{self.region.graph.name}: an output is copied by a DMA: libraries alone have none")
        for number, (source, target) in enumerate(self.region.copies):
            inputs = () if source.data is not None else (source,)
            graph = Graph(f"{self.region.graph.name}_copy_{number}", inputs, (source,), ())
            assert lane is not None
            mapped = map_graph(graph, self.chip.accelerators[lane])
            yield OrientedPart(PartCut(lane, ()), mapped, (*((one, 0) for one in inputs), (target, 0)), ())

    def _strides(self, whole: Tensor, swapped: bool, *, flat: bool) -> tuple[int, int, int]:
        """The strides of a piece of a tensor, by the dimensions of the array."""
        height, width, channels = extents(whole)
        if flat:
            return channels, channels, 1
        if swapped and whole in self._outside:
            return channels, width * channels, 1
        return (height if swapped else width) * channels, channels, 1

    def _is_swapped(self, part: CutGraph, tensor: Tensor) -> bool:
        """Whether the layers of a part that touch a tensor are swapped."""
        if part.cut.flat:
            return False
        for index, layer in zip(part.cut.layers, part.graph.layers, strict=True):
            if tensor in (*layer.inputs, layer.ofm):
                return self._swapped[index]
        return False

    def _place(self, part: CutGraph, tensor: Tensor, swapped: bool) -> tuple[Tensor, int]:
        if tensor not in part.views:
            return tensor, 0
        view = part.views[tensor]
        return view.tensor, place_of(view, swapped and view.tensor not in self._outside)


def part_structure(mapped: MappedGraph) -> tuple[object, ...]:
    """All of a mapped part that its layouts depend on: equal for parts that differ in names and numbers alone."""
    graph = mapped.graph
    number = {tensor: at for at, tensor in enumerate(graph.tensors)}

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            held = value.data is not None
            return number.get(value, -1), value.shape, value.dtype, value.bits, held, mapped.lies.get(value, ())
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return value if isinstance(value, int) else None

    layers = tuple(
        (layer.kind, *(plain(getattr(layer, entry.name)) for entry in fields(layer))) for layer in graph.layers
    )
    ends = tuple(number[tensor] for tensor in (*graph.inputs, *graph.outputs))
    return layers, ends, mapped.mapping.swapped
