"""When the array of the only accelerator can begin to work on a layer without losing cycles.

The least cycles of a layer are those of whole groups of outputs (`ways.py`). What proves them are marks: outputs so far
apart that no two are in a group, as many as there are groups. Marks can be moved where a line of outputs does not fill
its groups: with n groups of c on a line of l there are l - (n - 1) * c sets of marks that share no output. As long as
fewer pixels than that are computed of a channel, or of fewer channels by the same count, some set of marks is left as
it was, and with it the least cycles: jobs until then save nothing. So a layer begins when the DMA has loaded what so
many outputs need: as many pixels of the input (`needs.py`), and the weights of so many channels.

Some cycles count before:

- A job may sum over some input channels. Each product counts then, but not the overhead of the group, which another
  job has again that ends the sum. (Of a kernel that the array takes at once, a job sums over all of it.)
- A job inside one row needs no zero points between packed rows, which a copy writes. But u rows done so take as many
  groups as by themselves, and save no more than u rows less have fewer in one line. Packed tiles in the middle of an
  image need none either, but come behind one in a corner, which does. Where the layer's image is known to lie packed,
  for it alone, no job is done before the first copy (`packed_images.py`).
- More and smaller copies are there earlier, but have more setups.
- Layers without weights, those whose kernels have to be in parts, and those that a library runs as a whole begin when a
  job of them can (`latency.py`).

So each layer has a rate: the part of a cycle that counts, if the array spends it on the layer at some time. The array
works on one layer at a time: on a set of layers at the highest of their rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Window, geometry, parts_of_kernel, rows_at_a_time
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.needs import any_of, needed_for, read
from byoc_hw.plan.bound.packed_images import Lying, PackedImages, sees_zeros
from byoc_hw.plan.bound.ways import cover, covers, groups, packed_line, packs
from byoc_hw.plan.bound.windows import AtOnce, loading

_SLICES = 4
"""The equal parts of the input channels that are told apart, beside the first few."""

_MOST_GROUPS = 1 << 12
"""The most groups of a channel whose marks are moved. Of more, all cycles count from the first output on: the inputs
are so many that it hardly matters which come first."""


_MOST_STAGES = 4
"""The most states of what is loaded that plans may have one after the other: of more, setups are not counted."""


class Pace(NamedTuple):
    """From a time on the array may work on a layer at a rate: the part of a cycle that counts. Of a time that is one of
    the DMA, `copies` has the fewest that it takes, else it is 0."""

    time: float
    rate: float
    copies: int = 0


Rates = tuple[Pace, ...]
"""The steps of a layer: the rates go up to 1."""


class Beginnings:
    """The rates of the layers of a region on the only accelerator, in any of the ways that its images lie."""

    def __init__(self, images: PackedImages) -> None:
        self._images = images
        self._loads: dict[tuple[int, bool, AtOnce], list[Pace]] = {}

    def rates(self, lying: Lying, before: Sequence[float], at_once: AtOnce) -> list[Rates]:
        """The rates of each layer, of which no job begins before the time in `before`."""
        return [self._rates(index, lying, earliest, at_once) for index, earliest in enumerate(before)]

    def _rates(self, index: int, lying: Lying, earliest: float, at_once: AtOnce) -> Rates:
        images, layer = self._images, self._images.graph.layers[index]
        one, known = images.hardware(layer, lying), earliest + images.later(layer, lying)
        key = index, one.packed_rows, at_once
        if key not in self._loads:
            self._loads[key] = _loads(images.graph, one, index, at_once)
        steps = self._loads[key]
        if not steps or images.cycles(layer, lying):
            return (Pace(known, 1.0),)
        if sees_zeros(layer, one):
            steps = _with_fills(layer, one, steps, zeros=images.needs_zeros(layer, lying))
        return tuple(sorted(step if step.time > known else Pace(known, step.rate) for step in steps))


def lost(among: Sequence[Rates], work: float, setup: float = 0.0) -> float:
    """Cycles from the start that do not count for some layers, until so much work on them is done. A copy more has a
    `setup`.

    With each further copy, more is loaded. So what is loaded when m earlier copies were of use takes m copies more than
    the fewest that are of any use, at least, and its own. The best of all such sequences counts.
    """
    every = min(one[-1].time for one in among) + _MOST_STAGES * setup  # from then on all cycles count
    steps = sorted({step for one in among if one[0].time <= every for step in one})
    fewest = min((copies for _, rate, copies in steps if rate and copies), default=0)
    more = max((copies for _, _, copies in steps), default=0) - fewest
    free = [(time, rate) for time, rate, copies in steps if not copies]
    loaded: list[tuple[float, float]] = []
    for time, rate, copies in steps:
        if copies and rate > (loaded[-1][1] if loaded else 0.0):
            loaded.append((time, rate))
    best, states = float("inf"), {-1: _Spent(0.0, 0.0, work)}
    for stage in range(_MOST_STAGES + 1):
        late = max(stage - more, 0) * setup
        states = {at: spent for at, spent in states.items() if spent.idle < best}
        following: dict[int, _Spent] = {}
        for at, spent in states.items():
            known = loaded[at][1] if at >= 0 else 0.0
            if stage == _MOST_STAGES:
                coming = [*free, *((time + late, rate) for time, rate in loaded[at + 1 :])]
                best = min(best, spent.until(float("inf"), known, coming).idle)
                continue
            best = min(best, spent.until(float("inf"), known, free).idle)
            for other in range(at + 1, len(loaded)):
                then = spent.until(loaded[other][0] + late, known, free)
                if other not in following or then.idle < following[other].idle:
                    following[other] = then
        states = following
    return best


@dataclass(frozen=True)
class _Spent:
    """The cycles so far, those of them that do not count, and the work that is left."""

    time: float
    idle: float
    left: float

    def until(self, end: float, rate: float, coming: Sequence[tuple[float, float]]) -> _Spent:
        """The same at a later time, where the array works at a rate, or at one of those that come at some times."""
        time, idle, left = self.time, self.idle, self.left
        for then in (*sorted(at for at, _ in coming if time < at < end), end):
            rate = max([rate, *(some for at, some in coming if at <= time)])
            done = (then - time) * rate if rate else 0.0
            if left <= done:
                return _Spent(end, idle + (left / rate - left if left else 0.0), 0.0)
            idle, left, time = idle + (then - time) - done, left - done, then
        return _Spent(end, idle, left)


def _loads(graph: Graph, one: Accelerator, index: int, at_once: AtOnce) -> list[Pace]:
    """The steps of a layer by what is loaded; none where a job of it counts in full."""
    layer = graph.layers[index]
    if one.runs_whole(layer) or not isinstance(layer, Weighted) or len(parts_of_kernel(layer, one)) > 1:
        return []
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    pixels = min(pixels_at_once(layer, one, turned) for turned in (False, True))
    channels = _movable(layer.group_channels, min(rows_at_a_time(layer, one), layer.group_channels))
    slices = _told_apart(_depth(form))
    rates = [*(_rate_of(layer, one, inputs - 1) for inputs in slices[1:]), 1.0]  # with one more, the next step begins
    return [
        Pace(time, rate, copies)
        for inputs, rate in zip(slices, rates, strict=True)
        for time, copies in [_loaded(graph, one, index, (pixels, channels), inputs, at_once)]
    ]


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


def _with_fills(layer: Layer, one: Accelerator, steps: Sequence[Pace], *, zeros: bool) -> list[Pace]:
    """The same where rows lie in one line if the zero points between them are copied first: before any job, if
    `zeros`, or before those over several rows."""
    assert isinstance(layer, Weighted), "others see none"
    apart = 0.0 if zeros else max(_rate_of_rows(layer, one, turned) for turned in (False, True))
    filled = one.dma_setup + 1
    return [
        some
        for time, rate, copies in steps
        for some in (Pace(time, rate * apart, copies), Pace(time + filled, rate, copies + 1))
    ]


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
) -> tuple[float, int]:
    """The least cycles of copies before so many pixels and channels of a layer's output can be summed over so many
    input channels, and the number of these copies."""
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
    needed = needed_for(graph, index, first)
    inputs_needed = sum(tensor not in graph.made for tensor in needed)
    return loading(graph, one, needed, channels * (nbytes + params), at_once), inputs_needed + 1
