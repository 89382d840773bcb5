"""How layers are shared by accelerators: along which axis they are cut, and where.

Shares are by what keeps each accelerator busy, its array or its DMA, in whole units of what an array does at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice, pairwise
from math import gcd, lcm

from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.kinds import rows_at_a_time
from byoc_hw.plan.bound.ways import least_alone, weight_bytes
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.lanes.cut import pixels_in
from byoc_hw.plan.lanes.oriented import Oriented
from byoc_hw.soc import Soc

_ROUNDING = 1e-9
"""Beyond this, a part of a unit is one that is not whole."""


LayerCosts = Sequence[Mapping[int, int]]
"""Of each layer the accelerators that may run it, by index, and its cycles on each."""


def layer_costs(graph: Graph, chip: Soc) -> LayerCosts:
    """The cycles of each layer by itself on each accelerator whose limits it keeps."""
    accelerators = list(enumerate(chip.accelerators))
    return [
        {lane: best_cycles(layer, one) for lane, one in accelerators if not any(one.broken_rules(layer))}
        for layer in graph.layers
    ]


class Sharing:
    """The shares of a region's layers."""

    def __init__(self, graph: Graph, chip: Soc, oriented: Oriented, costs: LayerCosts) -> None:
        self._graph, self._chip, self._oriented, self._cost = graph, chip, oriented, costs
        self._least_cycles = [
            {lane: least_alone([layer], chip.accelerators[lane]) for lane in cost}
            for layer, cost in zip(graph.layers, costs, strict=True)
        ]

    def _busy(self, lane: int, whole: PartCut) -> float:
        """Cycles of the busier engine of an accelerator that has all of a cut: its array, with rows packed where it
        takes that, or, where each channel's weights go to one accelerator only, its DMA."""
        accelerator, layers = self._chip.accelerators[lane], [self._graph.layers[index] for index in whole.layers]
        cycles = sum(min(self._least_cycles[index][lane], self._cost[index][lane]) for index in whole.layers)
        if accelerator.library is not None or not _by_channels(whole, layers):
            return cycles
        return max(cycles, sum(map(weight_bytes, layers)) / accelerator.dma_width)

    def shares(self, whole: PartCut, lanes: Sequence[int], *, more: bool) -> Iterator[list[PartCut]]:
        """The layers of a cut, shared by lanes by their speed, of which there are several estimates, the best one
        first: in units of the fastest, or where that leaves nothing to one of them, in units of each. With `more` also
        by the others, by a little more or less, and with half as much for all but the fastest, which may have other
        layers to do."""
        least = [self._busy(lane, whole) for lane in lanes]
        cycles = [sum(self._cost[one][lane] for one in whole.layers) for lane in lanes]
        speeds = [[1 / max(each, 1) for each in by] for by in (least, cycles)]
        ofm = self._graph.layers[whole.layers[-1]].ofm
        extent = pixels_in(ofm) if whole.flat and whole.axis == 1 else ofm.shape[whole.axis]
        units = [self.unit(whole, lane) for lane in lanes]
        fastest = max(speeds[0])
        halves = [speed if speed == fastest else speed / 2 for speed in speeds[0]]
        unit = max(unit for unit, speed in zip(units, speeds[0], strict=True) if speed == fastest)
        ways = ((speeds[0], 0), *((one, 0) for one in speeds[1:]), (halves, 0), (speeds[0], -1), (speeds[0], 1))
        by_speed = (_by_speed(one, unit, shift, extent) for one, shift in (ways if more else ways[:1]))
        found = chain(by_speed, (_first_done(one, units, extent) for one in speeds))
        possible = dict.fromkeys(one for one in found if sorted(set(one)) == list(one))
        for borders in islice(possible, None if more else 1):
            yield [replace(whole, lane=lane, rows=rows) for lane, rows in zip(lanes, pairwise(borders), strict=True)]

    def unit(self, cut: PartCut, lane: int) -> int:
        """The rows, columns or channels of a cut that an array does at once, in whole words of the DMAs; of reshapes
        rows that are whole ones of their inputs and outputs."""
        one, layers = self._chip.accelerators[lane], [self._graph.layers[index] for index in cut.layers]
        if cut.flat and cut.axis == 1:
            return one.array_columns
        if _by_channels(cut, layers):
            at_once = (rows_at_a_time(layer, one) for layer in layers if isinstance(layer, Weighted))
            return lcm(self._chip.dma_alignment, max(at_once, default=1))
        extent = layers[-1].ofm.shape[cut.axis]
        moved = (tensor.shape for layer in layers if isinstance(layer, Reshape) for tensor in (layer.ifm, layer.ofm))
        return lcm(*(extent // gcd(extent, shape[cut.axis]) for shape in moved if len(shape) > cut.axis))

    def steps(self, one: PartCut, other: PartCut) -> Iterator[int]:
        """By how much the border of two shares is moved: by what an array does at once, or a fourth of a share."""
        unit = min(self.unit(cut, cut.lane) for cut in (one, other))
        for sign, rows in ((-1, one.rows), (1, other.rows)):
            assert rows is not None
            most = (rows[1] - rows[0] - 1) // unit  # something of the share is left
            yield from (sign * steps * unit for steps in sorted({1, most // 4}) if 0 < steps <= most)


def _by_channels(cut: PartCut, layers: Sequence[Layer]) -> bool:
    """Whether a cut of some layers is one of the last one's channels."""
    return cut.axis == len(layers[-1].ofm.shape) - 1 and not isinstance(layers[-1], Reshape)


def _by_speed(speeds: Sequence[float], unit: int, shift: int, extent: int) -> tuple[int, ...]:
    """The borders of shares of so many rows or channels by the speeds of lanes, in whole units, moved by some units."""
    parts = (extent * part / sum(speeds) for part in accumulate(speeds[:-1]))
    return 0, *(min(max(round(part / unit + shift) * unit, 0), extent) for part in parts), extent


def _first_done(speeds: Sequence[float], units: Sequence[int], extent: int) -> tuple[int, ...]:
    """The borders of shares of so many rows or channels that are done first: each lane does whole units of its own, and
    all of them at its speed."""
    counts = [ceil_div(extent, unit) for unit in units]
    steps = [1 / (speed * count) for speed, count in zip(speeds, counts, strict=True)]  # the time of a unit

    def borders(end: float) -> tuple[int, ...]:
        shares = [int(end / step + _ROUNDING) * unit for step, unit in zip(steps, units, strict=True)]
        return 0, *(min(border, extent) for border in accumulate(shares))

    ends = sorted(step * many for step, count in zip(steps, counts, strict=True) for many in range(1, count + 1))
    return borders(ends[bisect_left(ends, extent, key=lambda end: borders(end)[-1])])
