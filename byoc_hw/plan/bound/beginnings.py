"""When the array of the only accelerator can begin to work on a layer without losing cycles.

The least cycles of a layer are those of whole groups of outputs (`ways.py`). What proves them are marks: outputs so far
apart that no two are in a group, as many as there are groups. Marks can be moved where a line of outputs does not fill
its groups: with n groups of c on a line of l there are l - (n - 1) * c sets of marks that share no output. As long as
fewer pixels than that are computed of a channel, or of fewer channels by the same count, some set of marks is left as
it was, and with it the least cycles: jobs until then save nothing. So a layer begins when the DMA has loaded what so
many outputs need: as many pixels of the input (`needs.py`), and the weights of so many channels.

Some cycles count before:

- A job may sum over some input channels. Each product counts then, but not the overhead of the group, which another
  job has again that ends the sum.
- A job inside one row needs no zero points between packed rows, which a copy writes. But u rows done so take as many
  groups as by themselves, and save no more than u rows less have fewer in one line. Packed tiles in the middle of an
  image need none either, but come behind one in a corner, which does.
- Layers without weights, those whose kernels have to be in parts, and those that a library runs as a whole begin when a
  job of them can (`latency.py`).

So each layer has a rate: the part of a cycle that counts, if the array spends it on the layer at some time. The array
works on one layer at a time: on a set of layers at the highest of their rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Window, geometry, parts_of_kernel, rows_at_a_time
from byoc_hw.plan.array.window import Axis, extents
from byoc_hw.plan.bound.needs import any_of, needed_for, read
from byoc_hw.plan.bound.ways import cover, covers, groups, in_parts, packed_line, packs
from byoc_hw.plan.bound.windows import AtOnce, loading

_SLICES = 4
"""The equal parts of the input channels that are told apart, beside the first few."""

_MOST_GROUPS = 1 << 12
"""The most groups of a channel whose marks are moved. Of more, all cycles count from the first output on: the inputs
are so many that it hardly matters which come first."""


@dataclass(frozen=True)
class Rates:
    """How much of a cycle counts that the array spends on a layer: from each of `times` on the rate beside it. The
    times go up, and the rates to 1."""

    times: tuple[float, ...]
    rates: tuple[float, ...]

    def at(self, time: float) -> float:
        return max((rate for begin, rate in zip(self.times, self.rates, strict=True) if begin <= time), default=0.0)


def beginnings(graph: Graph, one: Accelerator, before: Sequence[float], at_once: AtOnce) -> list[Rates]:
    """The rates of each layer on the only accelerator; no job of a layer begins before the time in `before`."""
    return [_rates(graph, one, index, known, at_once) for index, known in enumerate(before)]


def lost(among: Sequence[Rates], work: float) -> float:
    """Cycles from the start that do not count for some layers, until so much work on them is done."""
    every = min(one.times[-1] for one in among)  # from then on all cycles count
    early = [one for one in among if one.times[0] < every]
    times = [*sorted({time for one in early for time in one.times if time < every}), every]
    idle, left = times[0], work
    for time, until in pairwise(times):
        rate = max(one.at(time) for one in early)
        if (until - time) * rate >= left:
            return idle + left / rate - left
        idle, left = idle + (until - time) * (1 - rate), left - (until - time) * rate
    return idle


def _rates(graph: Graph, one: Accelerator, index: int, known: float, at_once: AtOnce) -> Rates:
    """The rates of a layer of which no job begins before a time that is known."""
    layer = graph.layers[index]
    if one.runs_whole(layer) or not isinstance(layer, Weighted) or len(parts_of_kernel(layer, one)) > 1:
        return Rates((known,), (1.0,))
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    pixels = min(pixels_at_once(layer, one, turned) for turned in (False, True))
    channels = _movable(layer.group_channels, min(rows_at_a_time(layer, one), layer.group_channels))
    slices = _told_apart(_depth(form))
    times = [known, *(max(known, _loaded(graph, one, index, (pixels, channels), inputs, at_once)) for inputs in slices)]
    rates = [*(_rate_of(layer, one, inputs - 1) for inputs in slices), 1.0]
    return _with_fills(layer, one, Rates(tuple(times), tuple(rates)), known)


def _told_apart(depth: int) -> list[int]:
    """Numbers of input channels, up to all: few of them are there early."""
    few = (1 << power for power in range((depth // _SLICES).bit_length()))
    return sorted({*few, *(ceil_div(depth * part, _SLICES) for part in range(1, _SLICES + 1))})


def _rate_of(layer: Weighted, one: Accelerator, inputs: int) -> float:
    """The part of a group's cycles that counts, where it sums over so many input channels and others are left."""
    products = inputs * _summed(layer, one)
    return products / (products + one.job_overhead) if products else 0.0


def _summed(layer: Weighted, one: Accelerator) -> float:
    """The cycles of a group for each input channel."""
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    whole = max(groups(layer, one, turned).cycles for turned in (False, True))
    return (whole - one.job_overhead) / _depth(form)


def _depth(form: Window) -> int:
    """The input channels that an output sums over."""
    return form.in_channels if form.sums else 1


def _with_fills(layer: Weighted, one: Accelerator, rates: Rates, known: float) -> Rates:
    """The same where rows lie in one line if the zero points between them are copied first."""
    if not packs(layer, one) or is_pointwise(layer) or not needs_fills(layer, one):
        return rates
    apart = max(_rate_of_rows(layer, one, turned) for turned in (False, True))
    filled = [max(time + one.dma_setup + 1, known) for time in rates.times]
    both = Rates((*rates.times, *filled), (*(rate * apart for rate in rates.rates), *rates.rates))
    times = sorted(set(both.times))
    return Rates(tuple(times), tuple(both.at(time) for time in times))


def needs_fills(layer: Weighted, one: Accelerator) -> bool:
    """Whether jobs over packed rows need zero points between the rows, if they save anything. Jobs over the columns of
    the kernel that never see padding need none; those over the others, on both sides, are inside a row then, and take
    more than is saved, unless the middle of the kernel is wide."""
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    axes = form.rows, form.columns
    padded = all(min(axis.before, axis.after) > 0 for axis in axes)
    return padded and (not in_parts(layer, one) or all(_middle(axis) <= 2 for axis in axes))


def _middle(axis: Axis) -> int:
    """The places of a window along an axis that never see padding."""
    return axis.kernel - axis.before - axis.after


def _rate_of_rows(layer: Weighted, one: Accelerator, turned: bool) -> float:
    """The groups that rows save at most, each by itself, of those that they take."""
    rows, length, apart = packed_line(layer, turned)
    many = covers(rows, length, apart, one.array_columns)
    each = ceil_div(length, one.array_columns)
    return max((many[rows] - many[rows - some]) / (some * each) for some in range(1, rows + 1))


def pixels_at_once(layer: Weighted, one: Accelerator, turned: bool) -> int:
    """The pixels of a channel's outputs that are computed when the first group is saved: of fewer, none is."""
    height, width, _ = extents(layer.ofm)
    columns = one.array_columns
    if is_pointwise(layer):
        return _movable(height * width, columns)
    if not packs(layer, one):
        return _movable(height if turned else width, columns)
    return marks(*packed_line(layer, turned), columns)


def _movable(length: int, size: int) -> int:
    """How many sets of marks a line has, for groups of so many."""
    return length - (ceil_div(length, size) - 1) * size


def marks(rows: int, length: int, apart: int, columns: int) -> int:
    """How many sets of marks rows in one line have at least, as many in each as groups cover the line.

    Each mark is the first place for it behind the one before it, and behind its own in the set before.
    """
    count = cover(rows, length, apart, columns)
    if count > _MOST_GROUPS:
        return 1
    last, sets = [-1] * count, 0
    while True:
        place = -columns
        for at in range(count):
            place = max(place + columns, last[at] + 1)
            if place % apart >= length:
                place += apart - place % apart
            last[at] = place
        if place > (rows - 1) * apart + length - 1:
            return sets
        sets += 1


def _loaded(
    graph: Graph, one: Accelerator, index: int, outputs: tuple[int, int], inputs: int, at_once: AtOnce
) -> float:
    """The least cycles of copies before so many pixels and channels of a layer's output can be summed over so many
    input channels."""
    layer = graph.layers[index]
    form = geometry(layer)
    assert isinstance(layer, Weighted), "it has weights"
    assert isinstance(form, Window), "layers with weights have one"
    pixels, channels = outputs
    some = replace(any_of(layer.ofm), pixels=pixels, channels=channels)
    first = {tensor: read(layer, some, tensor) for tensor in layer.inputs}
    if form.sums:
        first = {tensor: need and replace(need, channels=inputs) for tensor, need in first.items()}
    nbytes = prod(layer.filter) * inputs * layer.weights.bits / 8
    params = PARAMS_BYTES if inputs == _depth(form) else 0
    return loading(graph, one, needed_for(graph, index, first), channels * (nbytes + params), at_once)
