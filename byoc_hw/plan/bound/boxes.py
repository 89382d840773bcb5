"""The ways to share a layer in boxes, for `prices.py`, and the rules of boxes in the program of `sharing.py`.

Plans on a chip cut a layer along one axis: a lane has rows of its output that follow each other, or columns, or
channels, or, of a layer that reads single pixels, any pixels in a row (`lanes/cut.py`). All that a lane computes of a
layer that the region needs in full, it needs. From how many rows, columns, channels or pixels a lane has follow

- the groups that an array takes for them, in the cheapest mapping: those at the end of a line, and those of the last
  channels, are not full;
- what a lane reads for them, with the rows or columns between two shares that both lanes need; and what of that others
  have made, where a layer and the one before are cut along different axes;
- the pixels of each group, where there are no more groups than these take;
- the weights that its DMA loads: those of its channels, or all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Conv2d, Dense, Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Run, Window, geometry, rows_at_a_time
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.plan.bound.seen import fewest_seen
from byoc_hw.plan.bound.shares import Shares
from byoc_hw.plan.bound.ways import Floats, Ints, able, cover, groups, packs, weight_bytes
from byoc_hw.remembered import kept_in_first
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from byoc_hw.plan.bound.shares import Expr, Var

_MOST = 1024
"""The most ways to share a layer along an axis that are told apart."""

_MOST_PIXELS = 1 << 12
"""The most pixels of an image whose cuts are told apart: of more, what is not full at a border hardly matters."""

_ROWS, _COLUMNS, _CHANNELS, _PIXELS = range(4)


@dataclass(frozen=True, eq=False)
class BoxCut:
    """A way to cut a layer along an axis, of so many elements `each`. `reads` has the elements of the input that any
    number of rows, columns, channels or pixels need at least, from none to all; it is empty where that is not known."""

    whole: Extents
    axis: int
    reads: Sequence[int]

    @property
    def extent(self) -> int:
        """All rows, columns, channels or pixels."""
        return prod(self.whole[:2]) if self.axis == _PIXELS else self.whole[self.axis]

    @property
    def each(self) -> int:
        """The elements of one of them."""
        return prod(self.whole) // self.extent

    def box(self, many: int) -> Extents:
        """Rows, columns and channels of so many of them; pixels are one row."""
        height, width, channels = self.whole
        if self.axis == _PIXELS:
            return 1, many, channels
        return (
            many if self.axis == _ROWS else height,
            many if self.axis == _COLUMNS else width,
            many if self.axis == _CHANNELS else channels,
        )


@kept_in_first
def cuts_of(layer: Layer) -> tuple[BoxCut, ...]:
    """The ways to cut a layer; none where nothing is known of them, or the image is large."""
    form = geometry(layer)
    if isinstance(form, Run):
        return _cuts_of_run(layer, form)
    if not isinstance(form, Window) or layer.ofm.shape[0] != 1 or len(layer.ofm.shape) not in (2, 4):
        return ()
    whole, inputs = extents(layer.ofm), extents(layer.ifm)[2]
    if prod(whole[:2]) > _MOST_PIXELS:
        return ()
    known = all(axis.dilation == 1 and axis.stride <= axis.kernel for axis in (form.rows, form.columns))
    known = known and (form.sums or inputs == whole[2])
    rows, columns = fewest_seen(form.rows).tolist(), fewest_seen(form.columns).tolist()
    axes: list[tuple[int, list[int]]] = []
    if is_pointwise(layer):
        axes.append((_PIXELS, [many * inputs for many in range(prod(whole[:2]) + 1)]))
    else:
        axes.append((_ROWS, [many * columns[-1] * inputs for many in rows]))
        axes.append((_COLUMNS, [many * rows[-1] * inputs for many in columns]))
    if not form.sums:
        axes.append((_CHANNELS, [many * rows[-1] * columns[-1] for many in range(whole[2] + 1)]))
    elif isinstance(layer, Dense) or (isinstance(layer, Conv2d) and layer.groups == 1):
        axes.append((_CHANNELS, [0, *[rows[-1] * columns[-1] * inputs] * whole[2]]))
    return tuple(BoxCut(whole, axis, reads if known else []) for axis, reads in axes)


def _cuts_of_run(layer: Layer, form: Run) -> tuple[BoxCut, ...]:
    """The ways to cut an element-wise layer, which needs as much of each of its inputs as it makes."""
    shape, whole = layer.ofm.shape, extents(layer.ofm)
    alike = form.each == 1 and all(tensor.data is None and tensor.shape == shape for tensor in layer.inputs)
    if not alike or len(shape) != 4 or shape[0] != 1 or prod(whole[:2]) > _MOST_PIXELS:
        return ()
    cuts = (BoxCut(whole, axis, ()) for axis in (_ROWS, _COLUMNS, _CHANNELS))
    return tuple(replace(cut, reads=range(0, prod(whole) + 1, cut.each)) for cut in cuts)


@kept_in_first
def cycles_of_boxes(layer: Weighted, cut: BoxCut, one: Accelerator) -> tuple[float, ...]:
    """The least cycles of an array for so many rows, columns, channels or pixels, or more of them: of none to all."""
    each = np.full(cut.extent, np.inf)
    for turned in (False, True):
        group = groups(layer, one, turned)
        for many in range(1, cut.extent + 1):
            height, width, channels = cut.box(many)
            lines, length = (width, height) if turned else (height, width)
            blocks = ceil_div(channels, group.channels)
            if layer.groups > 1 and cut.axis != _CHANNELS:
                blocks = layer.groups * ceil_div(layer.group_channels, group.channels)
            cycles = _groups_in_lines(layer, one, lines, length, turned=turned) * blocks * group.cycles
            each[many - 1] = min(each[many - 1], cycles + one.job_setup)
    return 0.0, *list(accumulate(map(float, each[::-1]), min))[::-1]


def _groups_in_lines(layer: Weighted, one: Accelerator, lines: int, length: int, *, turned: bool) -> int:
    """The fewest groups of a channel of so many lines, which may be one if the layer reads pixels or rows are packed.

    Between two packed lines is at least what the window reaches beyond its first pixel, but for the padding that both
    share.
    """
    if is_pointwise(layer):
        return ceil_div(lines * length, one.array_columns)
    if packs(layer, one):
        form = geometry(layer)
        assert isinstance(form, Window), "it has a window"
        axis = form.rows if turned else form.columns
        apart = length + max(axis.reach - 1 - max(min(axis.before, axis.after), 0), 0)
        return cover(lines, length, apart, one.array_columns)
    return lines * ceil_div(length, one.array_columns)


# ---------------------------------------------------------------- ways to share


def ways_in_boxes(layer: Layer, chip: Soc) -> Floats | None:
    """The ways to share a layer, as cycles of all arrays and of all DMAs, which load the weights of each share. None
    where they are not known or too many, or only one accelerator can run it."""
    ones = able(chip, layer)
    if not isinstance(layer, Weighted) or len(ones) < 2 or any(one.runs_whole(layer) for one in ones):
        return None
    lanes = [lane for lane, one in enumerate(chip.accelerators) if one in ones]
    found = []
    for cut in cuts_of(layer):
        tables = [np.array(cycles_of_boxes(layer, cut, chip.accelerators[lane])) for lane in lanes]
        some = [np.arange(cut.extent + 1) if cut.axis == _CHANNELS else _last_of_each(one) for one in tables[:-1]]
        if prod(map(len, some)) > _MOST:
            return None
        others = np.array(np.meshgrid(*some, indexing="ij")).reshape(len(some), -1)
        many = [*others, np.maximum(cut.extent - others.sum(axis=0), 0)]
        ways = np.zeros((len(many[-1]), 2 * len(chip.accelerators)))
        for lane, table, its in zip(lanes, tables, many, strict=True):
            loaded = its / cut.extent if cut.axis == _CHANNELS else its > 0
            ways[:, lane] = table[its]
            ways[:, len(chip.accelerators) + lane] = loaded * weight_bytes(layer) / chip.accelerators[lane].dma_width
        found.append(_least(ways))
    return _least(np.concatenate(found)) if found else None


def _last_of_each(table: Floats) -> Ints:
    """The most rows, columns or pixels for each number of cycles."""
    return np.flatnonzero(np.append(table[1:] > table[:-1], True))


def _least(ways: Floats) -> Floats:
    """The ways of which no other one takes less of anything and no more of the rest."""
    ways = np.unique(ways, axis=0)
    below = (ways[:, np.newaxis] <= ways).all(axis=2)
    found: Floats = ways[below.sum(axis=0) == 1]
    return found


# ---------------------------------------------------------------- rules


@dataclass(frozen=True)
class _Boxes:
    """A layer that is cut in one way, if it is `chosen`: how many rows, columns, channels or pixels each lane has, and
    how many elements it reads of an input at least."""

    cut: BoxCut
    chosen: Var
    many: Sequence[Var]
    reads: Sequence[Var]


class BoxRules:
    """Adds the rules of boxes to the program."""

    def __init__(self, shares: Shares) -> None:
        self._shares, self._model = shares, shares.model
        self._boxes: dict[int, list[_Boxes]] = {index: list(self._layer(index)) for index in shares.of_layer}
        for index in shares.of_layer:
            layer = shares.graph.layers[index]
            for tensor in dict.fromkeys(layer.inputs):
                made = shares.made.get(tensor, -1)
                for boxes, others in product(self._boxes[index], self._boxes.get(made, ())):
                    self._across(index, layer, tensor, boxes, others)

    def _layer(self, index: int) -> Iterator[_Boxes]:
        """A layer is cut along one axis, and each lane has so many rows, columns, channels or pixels of it."""
        model, share, lanes = self._model, self._shares.of_layer[index], self._shares.lanes
        cuts = cuts_of(self._shares.graph.layers[index])
        chosen = [model.new_bool_var("") for _ in cuts]
        if cuts:
            model.add_exactly_one(chosen)
        for cut, way in zip(cuts, chosen, strict=True):
            many = [self._shares.var(cut.extent) for _ in lanes]
            model.add(sum(many) >= cut.extent).only_enforce_if(way)
            reads = [self._of(cut.reads, one) for one in many] if cut.reads else []
            boxes = _Boxes(cut, way, many, reads)
            for lane in lanes:
                model.add(share.elements[lane] == cut.each * many[lane]).only_enforce_if(way)
                pixels, channels = self._reach(cut, share.any[lane], many[lane])
                model.add(share.pixels[lane] >= pixels).only_enforce_if(way)
                model.add(share.channels[lane] >= channels).only_enforce_if(way)
                self._lane(index, lane, boxes)
            yield boxes

    @staticmethod
    def _reach(cut: BoxCut, some: Var, many: Var) -> tuple[Expr, Expr]:
        """The pixels and the channels of which a lane has any: all of those that the layer is not cut along."""
        height, width, channels = cut.box(1)
        if cut.axis == _CHANNELS:
            return height * width * some, 1 * many
        return height * width * many, channels * some

    def _lane(self, index: int, lane: int, boxes: _Boxes) -> None:
        """The cycles of a lane, and what it reads."""
        model, layer, share = self._model, self._shares.graph.layers[index], self._shares.of_layer[index]
        one, way = self._shares.chip.accelerators[lane], boxes.chosen
        if isinstance(layer, Weighted) and one in able(self._shares.chip, layer):
            cycles = [int(each) for each in cycles_of_boxes(layer, boxes.cut, one)]
            model.add(share.cycles[lane] >= self._of(cycles, boxes.many[lane])).only_enforce_if(way)
            if layer.groups == 1:
                self._group(index, lane, layer, boxes)
        for tensor in dict.fromkeys(layer.inputs) if boxes.reads else ():
            if tensor in self._shares.loaded:
                elements, _ = self._shares.loaded[tensor][lane]
                made = self._shares.of_layer.get(self._shares.made.get(tensor, -1))
                there = elements if made is None else elements + made.elements[lane]
                model.add(there >= boxes.reads[lane]).only_enforce_if(way)

    def _group(self, index: int, lane: int, layer: Weighted, boxes: _Boxes) -> None:
        """The pixels of any group of a share.

        Some channels of the share are as far apart as a group has channels, the first one among them. No group has two
        of these, and each has as many groups as its pixels take. Where the group has one of them, those that are left
        have the other pixels of that channel; where it has none, there is a group more than they take.
        """
        share, one, cut = self._shares.of_layer[index], self._shares.chip.accelerators[lane], boxes.cut
        largest, others = [groups(layer, one, turned).outputs for turned in (False, True)], [0]
        for many in range(1, cut.extent + 1):
            height, width, channels = cut.box(many)
            blocks = ceil_div(channels, rows_at_a_time(layer, one))
            upright = _groups_in_lines(layer, one, height, width, turned=False)
            turned = _groups_in_lines(layer, one, width, height, turned=True)
            others.append((blocks - 1) * min(upright, turned))
        pixels, _ = self._reach(cut, share.any[lane], boxes.many[lane])
        left = share.groups[lane] - 1 - self._of(others, boxes.many[lane])
        group = share.grouped_pixels[lane] >= pixels - max(largest) * left
        self._model.add(group).only_enforce_if(boxes.chosen, share.any[lane])
        self._model.add(share.grouped[lane] >= share.grouped_pixels[lane])

    def _across(self, index: int, layer: Layer, tensor: Tensor, boxes: _Boxes, others: _Boxes) -> None:
        """A lane that has a share along one axis, of what is cut along another one, has made as large a part of what it
        reads as of the whole tensor, and loads the rest. Of pixels that it reads at first, with all of their channels,
        each lane has made as large a part as it has of all channels: a job of a layer with groups needs fewer."""
        cut, other, model, form = boxes.cut, others.cut, self._model, geometry(layer)
        sums = isinstance(form, Window) and form.sums
        all_channels = isinstance(form, Window) and form.sums and form.groups == 1
        if not _crosses(cut.axis, other.axis, sums) or not cut.reads or cut.reads[-1] != tensor.elements:
            return
        ways = boxes.chosen, others.chosen
        for lane in self._shares.lanes:
            loaded, _ = self._shares.loaded[tensor][lane]
            missing = self._shares.var(other.extent * tensor.elements)
            model.add_multiplication_equality(missing, [boxes.reads[lane], other.extent - others.many[lane]])
            model.add(other.extent * loaded >= missing).only_enforce_if(ways)
            read = self._shares.at_first.get((index, lane, tensor))
            parts = self._shares.parts_at_first.get((index, lane, tensor))
            if all_channels and other.axis == _CHANNELS and read is not None and parts is not None:
                for maker, (part, _) in enumerate(parts):
                    most = self._shares.var(other.extent * tensor.elements)
                    model.add_multiplication_equality(most, [read, others.many[maker]])
                    model.add(other.extent * part <= most).only_enforce_if(ways)

    def _of(self, values: Sequence[int], many: Var) -> Var:
        """The value for a number."""
        found = self._model.new_int_var(min(values), max(values), "")
        self._model.add_element(many, list(values), found)
        return found


def _crosses(axis: int, other: int, sums: bool) -> bool:
    """Whether what a share reads that is cut along one axis crosses all shares that are cut along another one. A layer
    that sums over channels reads all of them."""
    if axis == _CHANNELS:
        return other != _CHANNELS and not sums
    return other == _CHANNELS or {axis, other} == {_ROWS, _COLUMNS}
