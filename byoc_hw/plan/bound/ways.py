"""The ways to share the work of a layer among accelerators, in cycles of each of their arrays.

An accelerator computes its share of the outputs in groups: rows of its array work on channels in a row, its columns on
pixels in a row of one line of the output. All of a layer lies on the arrays in one way: rows as rows, or as columns. A
group computes whole sums, as partial sums stay where they are, in one job or in several; so each accelerator takes
whole groups. How many they have to be follows from outputs at a distance: of the pixels of a line that are so many
apart, and of the channels that are, a group has only so many, and all groups together have all of them. That holds for
any distances; those that are tried are 1 and the sizes of the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, parts_of_kernel, rows_at_a_time, sums_channels
from byoc_hw.plan.array.packing import may_pack
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.soc import Soc

_MOST = 512
"""The most ways to share a layer that are told apart."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Turns = tuple[bool, ...]
"""Of each accelerator with tiles, whether its groups run along columns."""

Lines = tuple[int, int, int]
"""The number of lines, their pixels, and the channels."""


class LayerWork:
    """The work of a layer: how many cycles it is at least, however it is shared."""

    def __init__(self, layer: Layer, chip: Soc) -> None:
        mine = able(chip, layer)
        runs = [(lane, one) for lane, one in enumerate(chip.accelerators) if one in mine]
        self._lanes = len(chip.accelerators)
        self._whole = {lane: float(one.cycles_of_whole(layer)) for lane, one in runs if one.runs_whole(layer)}
        tiled = [(lane, one) for lane, one in runs if lane not in self._whole]
        self._tiled = [lane for lane, _ in tiled]
        self.extents = extents(layer.ofm)
        self._flat = is_pointwise(layer) or any(packs(layer, one) for _, one in tiled)
        self._groups: dict[Turns, list[Groups]] = {}
        if isinstance(layer, Weighted) and tiled:
            # Shares that are cut by rows may have groups along rows here, along columns there. Without lines, or on one
            # accelerator, those are not fewer than groups that all run the same way.
            each = 1 if self._flat else len(tiled)
            for some in product((False, True), repeat=each):
                turns = some * (len(tiled) // each)
                pairs = zip(tiled, turns, strict=True)
                self._groups[turns] = [groups(layer, one, turned) for (_, one), turned in pairs]
        self.rates = [least_of_elements(layer, one) / prod(self.extents) for _, one in tiled]
        """Cycles of an element on each accelerator that has tiles, where the layer has no groups."""

    @cached_property
    def covers(self) -> list[Cover]:
        """The rules for groups, for rows as rows and as columns; none of a layer without groups."""
        found = []
        for turns, some in self._groups.items():
            each, least = self._rules(turns, some, self.extents)
            sizes = ([one.channels * one.outputs for one in some], [one.channels for one in some])
            found.append(Cover(each, least, *sizes, [one.cycles for one in some]))
        return found

    def least_of_element(self, lane: int) -> float:
        """The least cycles of an accelerator's array for an element, as one of a full group; it runs the layer in
        tiles."""
        at = self._tiled.index(lane)
        some = [found[at] for found in self._groups.values()]
        return min((one.cycles / (one.channels * one.outputs) for one in some), default=self.rates[at])

    def ways(self, outputs: Extents) -> Floats:
        """The ways to share the work of some rows, columns and channels of the output, as cycles of the arrays of all
        accelerators: a plan has no fewer than one of them, or than a mixture of them."""
        return self.ways_or_mixtures(outputs)[0]

    def ways_or_mixtures(self, outputs: Extents) -> tuple[Floats, bool]:
        """The same, and whether it may be a mixture."""
        if not self._groups:
            found = [self._in_parts(np.array(self.rates, np.float64) * float(prod(outputs)))]
            return self._whole_or(found), len(self._tiled) > 1
        shared = [self._in_groups(some, *self._rules(turns, some, outputs)) for turns, some in self._groups.items()]
        return self._whole_or([one for one, _ in shared]), any(mixed for _, mixed in shared)

    @cached_property
    def ways_of_channels(self) -> Floats:
        """The same for all outputs, channel by channel: all accelerators that have work have it in all channels. A plan
        is a mixture of them."""
        if not self._groups:
            return self.ways(self.extents)
        found = []
        for turns, some in self._groups.items():
            channels = self.extents[2]
            one = [replace(each, channels=1, cycles=each.cycles * channels / each.channels) for each in some]
            found.append(self._in_groups(one, *self._rules(turns, one, (*self.extents[:2], 1)))[0])
        return self._whole_or(found)

    def _whole_or(self, shared: Sequence[Floats]) -> Floats:
        """The ways to share the work, and those where one accelerator takes the layer as a whole."""
        whole = np.zeros((len(self._whole), self._lanes))
        whole[range(len(whole)), list(self._whole)] = list(self._whole.values())
        return np.concatenate([whole, *shared])

    def _in_parts(self, cycles: Floats) -> Floats:
        """All of the work on each accelerator, in so many cycles, of which there may be any mixture."""
        found = np.zeros((len(self._tiled), self._lanes))
        found[range(len(self._tiled)), self._tiled] = cycles
        return found

    def _lines(self, outputs: Extents, turned: bool) -> Lines:
        height, width, channels = outputs
        if self._flat:
            return 1, height * width, channels
        return (width, height, channels) if turned else (height, width, channels)

    def _in_groups(self, some: Sequence[Groups], each: Ints, least: Ints) -> tuple[Floats, bool]:
        """By the rules, any number of groups on all accelerators but the last one, which has what is left. If these are
        too many, any parts of them: then it is True that mixtures are ways, too."""
        cycles = np.array([float(one.cycles) for one in some])
        most = (-(-least[:, np.newaxis] // each)).max(axis=0)
        many = prod(int(one) + 1 for one in most[:-1])
        if many > _MOST:
            alone = least[:, np.newaxis] / each * cycles  # by each rule
            return self._in_parts(alone[alone.sum(axis=1).argmax(), :]), True
        counts = np.indices(most[:-1] + 1).reshape(len(some) - 1, many)
        last = np.maximum(-((each[:, :-1] @ counts - least[:, np.newaxis]) // each[:, -1:]), 0).max(axis=0)
        found = np.zeros((len(last), self._lanes))
        found[:, self._tiled] = np.concatenate([counts, last[np.newaxis]]).T * cycles
        return found, False

    def _rules(self, turns: Turns, some: Sequence[Groups], outputs: Extents) -> tuple[Ints, Ints]:
        """Of outputs at distances, how many a group of each accelerator has at most, and how many all groups have to
        have: a row for each distance of channels and of pixels, along rows or columns as groups run."""
        each, least = [], []
        for turned in sorted(set(turns)):
            lines, length, channels = self._lines(outputs, turned)
            along = [one.pixels for one, its in zip(some, turns, strict=True) if its is turned]
            for far, wide in product({1, *(one.channels for one in some)}, {1, *along}):
                seen = length
                if self._flat and wide > 1 and length < prod(self.extents[:2]):
                    seen = 1  # the others may be anywhere in the line
                pixels = [
                    ceil_div(one.pixels, wide) if its is turned and wide > 1 else one.outputs
                    for one, its in zip(some, turns, strict=True)
                ]
                each.append([ceil_div(one.channels, far) * many for one, many in zip(some, pixels, strict=True)])
                least.append(lines * ceil_div(channels, far) * ceil_div(seen, wide))
        return np.array(each), np.array(least)


@dataclass(frozen=True)
class Cover:
    """How many groups of outputs cover a layer: by each rule, the groups of all accelerators times `each` are at least
    `least`. `outputs` and `channels` are the most of a group of each accelerator, which takes so many `cycles`."""

    each: Ints
    least: Ints
    outputs: Sequence[int]
    channels: Sequence[int]
    cycles: Sequence[float]


def able(chip: Soc, layer: Layer) -> tuple[Accelerator, ...]:
    """The accelerators that can run a layer: a plan of a layer that none supports may be on any."""
    return chip.accelerators if len(chip.accelerators) == 1 else chip.supporting(layer) or chip.accelerators


@dataclass(frozen=True)
class Groups:
    """Groups of outputs on an array: the most channels of one, the most places in a line and how many of them are
    outputs, its cycles, their number for a layer, and the jobs that a group takes, one for each part of the kernel."""

    channels: int
    pixels: int
    outputs: int
    cycles: float
    count: int
    parts: int


def groups(layer: Weighted, accelerator: Accelerator, turned: bool) -> Groups:
    """The groups of a layer with a window. Rows of one that is `turned` are columns of the array's image."""
    height, width, _ = extents(layer.ofm)
    rows = min(rows_at_a_time(layer, accelerator), layer.group_channels)
    lines, length = (width, height) if turned else (height, width)
    if is_pointwise(layer) or packs(layer, accelerator):
        lines, length = 1, height * width
    columns = min(accelerator.array_columns, length)
    in_line, outputs = lines * ceil_div(length, columns), columns
    if packs(layer, accelerator) and not is_pointwise(layer):
        in_line = _fewest_in_line(layer, accelerator, turned)
        outputs = _most_outputs(layer, accelerator.array_columns, turned)
    count = in_line * ceil_div(layer.group_channels, rows) * layer.groups
    parts = [part.height for part in parts_of_kernel(layer, accelerator, turned=turned)]
    return Groups(rows, columns, outputs, _group_cycles(layer, parts, accelerator), count, len(parts))


def packs(layer: Layer, accelerator: Accelerator) -> bool:
    """Whether a job of a layer may take rows as one that are packed for it."""
    return accelerator.packed_rows and isinstance(layer, Weighted) and may_pack(layer)


def _fewest_in_line(layer: Weighted, accelerator: Accelerator, turned: bool) -> int:
    """The fewest groups of a channel, where rows of the image may lie in one line, the padding between them."""
    return cover(*packed_line(layer, turned), accelerator.array_columns)


def packed_line(layer: Weighted, turned: bool) -> tuple[int, int, int]:
    """Rows of outputs, their length, and the least places from one to the next, where they lie in one line."""
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    rows, columns = (form.columns, form.rows) if turned else (form.rows, form.columns)
    apart = ceil_div((columns.ifm + max(columns.before, columns.after, 0)) * rows.stride, columns.stride)
    return rows.ofm, columns.ofm, max(apart, columns.ofm)


def _most_outputs(layer: Weighted, places: int, turned: bool) -> int:
    """The most outputs of a channel at so many places in a line that packed rows lie in.

    Between two rows is what the window reaches beyond its first pixel, but for the padding that they share: also where
    rows are cut, as that makes them shorter and never brings them closer. Rows of other strides may lie in any way.
    """
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    columns = form.rows if turned else form.columns
    if form.rows.stride != 1 or form.columns.stride != 1:
        return places
    apart = columns.ofm + max(columns.reach - 1 - max(min(columns.before, columns.after), 0), 0)
    return places // apart * columns.ofm + min(places % apart, columns.ofm)


@lru_cache(maxsize=1024)
def cover(rows: int, length: int, apart: int, columns: int) -> int:
    """How many runs of so many places cover rows of outputs that lie apart: each begins at an output that is left."""
    return covers(rows, length, apart, columns)[-1]


def covers(rows: int, length: int, apart: int, columns: int) -> list[int]:
    """The same for the first rows, of each number from 0."""
    counts, place = [0], 0
    for row in range(rows):
        place = max(place, row * apart)
        runs = max(ceil_div(row * apart + length - place, columns), 0)
        counts.append(counts[-1] + runs)
        place += runs * columns
    return counts


def _group_cycles(layer: Weighted, parts: Sequence[int], accelerator: Accelerator) -> float:
    """Cycles of a group of outputs, in a job for each part of the kernel, of so many of its rows, or of its columns if
    the array's rows lie along these."""
    inputs = layer.in_channels if sums_channels(layer) else 1
    weights = inputs * prod(layer.filter) * accelerator.weight_width(layer) / 8
    return weights + 2 * inputs * sum(parts) + len(parts) * accelerator.job_overhead


def most_weights_read(layer: Weighted, accelerator: Accelerator) -> float:
    """The most bytes of weights that a job reads in a cycle: of a full group of outputs, and all of the kernel."""
    rows = min(rows_at_a_time(layer, accelerator), layer.group_channels)
    least = min(_group_cycles(layer, [lines], accelerator) for lines in layer.filter)
    return rows * channel_bytes(layer) / least


def least_of_elements(layer: Layer, accelerator: Accelerator) -> float:
    """Array cycles of a whole layer without weights, if each group has as many rows and columns as there can be."""
    form = geometry(layer)
    height, width, channels = extents(layer.ofm)
    outputs = height * width * channels
    if isinstance(form, Run):
        return form.reads * outputs / accelerator.elementwise_width
    if isinstance(form, Window):
        return outputs * form.rows.kernel * form.columns.kernel / accelerator.elementwise_width
    if isinstance(form, Product):
        group, columns = 3 * form.depth + accelerator.job_overhead, min(accelerator.array_columns, form.rows)
        return outputs * group / (min(accelerator.array_rows, form.channels) * columns)
    return 0.0


def least_alone(layers: Sequence[Layer], accelerator: Accelerator) -> float:
    """Cycles of the array that no plan of some layers on one accelerator goes below."""
    return sum(_array_cycles(layer, accelerator) for layer in layers)


def _array_cycles(layer: Layer, accelerator: Accelerator) -> float:
    if accelerator.runs_whole(layer):
        return accelerator.cycles_of_whole(layer)
    if not isinstance(layer, Weighted):
        return least_of_elements(layer, accelerator)
    return min(one.cycles * one.count for one in (groups(layer, accelerator, turned) for turned in (False, True)))


def least_in_blocks(layer: Layer, accelerator: Accelerator) -> float:
    """Cycles of the array that no plan of a layer on one accelerator goes below, as the weights of a job are in weight
    memory: none of a layer without weights, or that runs as a whole.

    Outputs of a channel so far apart that no group has two of them (`groups`) have all weights of all channels each.
    Each pass of a group over some weights has at most as many of them as its rows have, and as have room; its cycles
    are those of its products, in proportion to the weights of a row, and the overhead. So a weight costs at least its
    part of the products of a full group, and its part of the overhead of a pass with the most weights.
    """
    if accelerator.runs_whole(layer) or not isinstance(layer, Weighted):
        return 0.0
    found = []
    for one in (groups(layer, accelerator, turned) for turned in (False, True)):
        nbytes = one.channels * channel_bytes(layer)  # of a full group
        passes = max(nbytes / accelerator.weight_memory, one.parts)
        full = one.cycles + (passes - one.parts) * accelerator.job_overhead
        places = one.count / ceil_div(layer.group_channels, one.channels)
        found.append(places * layer.group_channels / one.channels * full)
    return min(found)


def weight_bytes(layer: Layer) -> float:
    """Bytes of a layer's weights as they are packed, with the parameters of each channel."""
    if not isinstance(layer, Weighted):
        return 0.0
    return layer.out_channels * (channel_bytes(layer) + PARAMS_BYTES)


def channel_bytes(layer: Weighted) -> float:
    """Bytes of the weights of an output channel as they are packed, without its parameters."""
    inputs = layer.in_channels if sums_channels(layer) else 1
    return inputs * prod(layer.filter) * layer.weights.bits / 8
