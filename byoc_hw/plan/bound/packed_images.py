"""How images lie in local memory on one accelerator, and what that costs at least.

A window with padding on all sides takes rows as one where its image lies packed, with zero points around and between
the rows: in a band, for the whole region, or in tiles of a layer by itself (`array/packing.py`). Of each such image
there are three ways:

- Its rows lie apart. Then its windows take each row by itself.
- It lies packed, and comes from main memory once at most. Copies of zero points fill what windows see of its padding:
  at least all rows above and below, and what lies between two rows, also in tiles. That is one copy, which fills the
  place of the image too, or there are two: rows between others are shorter than those above and below, and each tile,
  stripe or slice of channels has its own. A convolution of single pixels that reads or makes the image takes pixels
  where they lie, in as many groups as cover the packed rows. A window that is the only one does no job before zero
  points are there: each stripe, and the first tile, begins at the left.
- It lies packed for one layer and otherwise for another: it is loaded once more, and is stored before if it is made.

Images of a band lie packed together, those of windows that take no more groups then. Another one is read in tiles from
main memory: it costs as much as one that lies in both ways. An input that one layer reads may lie as that wants.

Of several images, the copies above and below may be one. Of an image that a job over packed rows makes, zero points
between the rows come behind that job, which has read zero points of its own image: so along a chain of such images each
has another copy, and the one above and below is one more. (Of two neighbouring places between rows, one at least is
written by a job: stripes have two rows or more. With one row each nothing is saved, and rows might lie apart as well.)
An image that comes back from main memory instead costs a copy as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Window, geometry
from byoc_hw.plan.array.packing import bands, free_images, operands
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.seen import padded_on_all_sides
from byoc_hw.plan.bound.ways import LayerWork, cover, groups, packed_line, packs
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_MOST_IMAGES = 4
"""The most images that are told apart: of more, either some are packed or none is."""


@dataclass(frozen=True)
class Lying:
    """What is decided of images: those whose rows lie `apart`, that are `packed`, or `both`. With `some` one is packed,
    any one."""

    apart: frozenset[Tensor] = frozenset()
    packed: frozenset[Tensor] = frozenset()
    both: frozenset[Tensor] = frozenset()
    some: bool = False


@dataclass(frozen=True)
class PackedImages:
    """The images of a region that windows may read packed, and need zero points for, with these windows. Of a region in
    `parts`, a band that is packed in one of them may lie otherwise in the next, with any of its tensors between."""

    graph: Graph
    one: Accelerator
    parts: bool = False
    _works: dict[tuple[Layer, bool], LayerWork] = field(default_factory=dict)

    @cached_property
    def windows(self) -> dict[Tensor, list[Weighted]]:
        found: dict[Tensor, list[Weighted]] = {}
        for layer in self.graph.layers:
            if isinstance(layer, Weighted) and sees_zeros(layer, self.one):
                found.setdefault(layer.ifm, []).append(layer)
        return found

    def ways(self, lying: Lying) -> Iterator[Lying]:
        """The ways that the next image can lie; none where all is decided."""
        known = lying.apart | lying.packed | lying.both
        left = [image for image in self.windows if image not in known]
        if not left or lying.some:
            return
        if len(self.windows) > _MOST_IMAGES:
            yield Lying(some=True)
            yield Lying(apart=frozenset(left))
            return
        image = left[0]
        for name in ("apart", "packed") if self._read_once(image) else ("apart", "packed", "both"):
            yield replace(lying, **{name: getattr(lying, name) | {image}})

    def hardware(self, layer: Layer, lying: Lying) -> Accelerator:
        """The accelerator as a layer has it: without packed rows where its image has none."""
        apart = layer.inputs[0] in lying.apart and layer in self.windows[layer.inputs[0]]
        return self._plain if apart else self.one

    @cached_property
    def _plain(self) -> Accelerator:
        return replace(self.one, packed_rows=False)

    def work(self, layer: Layer, lying: Lying) -> LayerWork:
        """The work of a layer."""
        one = self.hardware(layer, lying)
        key = layer, one.packed_rows
        if key not in self._works:
            self._works[key] = LayerWork(layer, Soc((one,)))
        return self._works[key]

    def _read_once(self, image: Tensor) -> bool:
        """Whether an image is an input that one layer reads."""
        readers = [layer for layer in self.graph.layers if image in layer.inputs]
        return image not in self.graph.made and len(readers) == 1

    def needs_zeros(self, layer: Layer, lying: Lying) -> bool:
        """Whether no job of a layer is done without zero points."""
        image = layer.inputs[0]
        return image in lying.packed | lying.both and self.windows[image] == [layer]

    def later(self, layer: Layer, lying: Lying) -> float:
        """Cycles by which the first job of a layer is later: those of a store and a load of what it reads."""
        image = layer.inputs[0]
        again = self.needs_zeros(layer, lying) and image in lying.both and image in self.graph.made
        return again * 2 * (self.one.dma_setup + 1.0)

    def cycles(self, layer: Layer, lying: Lying) -> float:
        """Cycles of the array for a convolution of single pixels of a packed image, 0 of other layers."""
        if not isinstance(layer, Weighted) or not is_pointwise(layer):
            return 0.0
        return max(
            (self._in_rows(layer, image) for image in (layer.ifm, layer.ofm) if image in lying.packed), default=0.0
        )

    def _in_rows(self, layer: Weighted, image: Tensor) -> float:
        found = []
        for turned in (False, True):
            group, (height, width, between) = groups(layer, self.one, turned), self._rows(image, turned)
            lines = cover(height, width, width + between, self.one.array_columns)
            blocks = ceil_div(layer.group_channels, group.channels) * layer.groups
            found.append(lines * blocks * group.cycles)
        return min(found)

    def _rows(self, image: Tensor, turned: bool) -> tuple[int, int, int]:
        """The rows of an image, their pixels, and those between two rows, at least."""
        between = min(max(axes[turned]) for axes in map(_padding, self.windows[image]))
        height, width, _ = extents(image)
        return (width, height, between) if turned else (height, width, between)

    # ------------------------------------------------------------ bands

    @cached_property
    def _bands(self) -> dict[Tensor, int | None]:
        """The band of each image."""
        numbers = dict(zip(self.graph.layers, bands(self.graph.layers), strict=True))
        return {image: numbers[some[0]] for image, some in self.windows.items()}

    @cached_property
    def _free(self) -> frozenset[Tensor]:
        return free_images(self.graph, self.one, frozenset())

    def _follows(self, image: Tensor) -> bool:
        """Whether an image lies packed where its band does: of a window whose images may all be packed, and that takes
        no more groups then, as height and width are or swapped, however far rows of the band are apart."""
        if self.parts or self._read_once(image):
            return False
        return any(
            self._free.issuperset(operands(layer)) and all(self._one_row(layer, turned) for turned in (False, True))
            for layer in self.windows[image]
        )

    def _one_row(self, layer: Weighted, turned: bool) -> bool:
        rows, length, _ = packed_line(layer, turned)
        columns, number = self.one.array_columns, self._bands[layer.ifm]
        pitch = max(
            max(extents(tensor)[1 - turned] for tensor in operands(one)) + max(_padding(one)[turned])
            for one, band in zip(self.graph.layers, bands(self.graph.layers), strict=True)
            if band == number
        )
        return ceil_div((rows - 1) * pitch + length, columns) <= rows * ceil_div(length, columns)

    # ------------------------------------------------------------ copies

    def copied(self, lying: Lying) -> tuple[float, float]:
        """Cycles of the DMA for zero points; and for images that are moved to and from main memory, or for the zero
        points that this saves."""
        packed = {self._bands[image] for image in lying.packed if not self._read_once(image)}
        away = {image for image in lying.apart if self._bands[image] in packed and self._follows(image)}
        again = sum(self._again(image) for image in lying.both | away)
        images = lying.packed | lying.both
        if not images:
            return lying.some * (self.one.dma_setup + 1.0), again
        beats = [self._beats(image) for image in images]
        chain = max((self._chain(image, lying) for image in lying.packed), default=1)
        at_once = self.one.dma_setup + beats[0][1] if len(images) == 1 else float("inf")
        zeros = min(2 * self.one.dma_setup + sum(min(one) for one in beats), at_once)
        return zeros, again + (chain - 1) * self.one.dma_setup

    def _again(self, image: Tensor) -> float:
        """A load, and the store before it."""
        stored = image in self.graph.made and image not in self.graph.outputs
        return (1 + stored) * (self.one.dma_setup + image.nbytes / self.one.dma_width)

    def _chain(self, image: Tensor, lying: Lying) -> int:
        """The packed images from one on, each made by a window of the one before."""
        (made, *others) = [layer.ofm for layer in self.windows[image]]
        return 1 + (self._chain(made, lying) if not others and made in lying.packed else 0)

    def _beats(self, image: Tensor) -> tuple[int, int]:
        """Cycles of copies that fill what is around the rows of an image alone, and of one that fills its place, but
        for the setups."""
        channels, width = extents(image)[2], self.one.dma_width
        found = []
        for turned in (False, True):
            rows, pixels, between = self._rows(image, turned)
            above = min(sum(axes[not turned]) for axes in map(_padding, self.windows[image]))
            around = ceil(above * pixels * channels / width)
            place = (above * pixels + rows * (pixels + between) - between) * channels
            found.append((around + (rows - 1) * ceil_div(between * channels, width), ceil_div(place, width)))
        sparse, full = zip(*found, strict=True)
        return min(sparse), min(full)


def _padding(layer: Layer) -> tuple[tuple[int, int], tuple[int, int]]:
    """The padding of a layer before and behind its columns, and before and behind its rows."""
    form = geometry(layer)
    if not isinstance(form, Window):
        return (0, 0), (0, 0)
    return (form.columns.before, form.columns.after), (form.rows.before, form.rows.after)


def sees_zeros(layer: Layer, one: Accelerator) -> bool:
    """Whether a window may read packed rows, and zero points around them then."""
    return packs(layer, one) and padded_on_all_sides(layer)
