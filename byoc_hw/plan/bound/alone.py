"""A lower bound on the cycles of any plan of a region on a single accelerator.

The array does all layers in the fewest whole groups of outputs (`ways.py`). The DMA copies inputs that a layer reads
all of, and outputs, each in copies of its own, as they lie anywhere in main memory; weights, of which one copy may
bring those of several layers; and what `spills.py` finds, or what `reloads.py` does. The busier engine is a bound,
and so is a part of the one's cycles and the rest of the other's: where local memory is small, what takes the array
fewer cycles takes the DMA more.

The fewest copies are late ones: an input that comes in one copy is there in full before any job reads it, and so are
all weights; an output in one copy is stored behind the last job that makes it. More copies have more setups. Of all
inputs, of the weights, and of all outputs, there is one copy each, or a setup more: the best of these ways is a bound.

The array works on some layers behind the time at which the first of them can begin (`latency.py`), saves nothing before
all that a group needs is there (`beginnings.py`), and is followed by the shortest way from any of them to the end. The
sets of layers that are tried are those that begin late, and have much behind them. Weights come no earlier than weight
memory has room for them (`prefetch.py`), and a job has no more of them than that (`least_in_blocks`).

Jobs over packed rows need zero points between rows, which are copied, or rows of an image lie apart: each image is in
the way that is the best for all (`packed_images.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain, product
from math import ceil

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Weighted, Whole
from byoc_hw.plan.bound.beginnings import Beginnings, lost
from byoc_hw.plan.bound.latency import Latencies, has_jobs, latencies, least_job, reads_all
from byoc_hw.plan.bound.needs import needed_before
from byoc_hw.plan.bound.packed_images import Lying, PackedImages
from byoc_hw.plan.bound.prefetch import loaded_after_work
from byoc_hw.plan.bound.reloads import ENGINE_SHARES, both_engines
from byoc_hw.plan.bound.spills import spills
from byoc_hw.plan.bound.ways import Floats, least_alone, least_in_blocks, weight_bytes
from byoc_hw.plan.bound.weight_copies import weight_copies
from byoc_hw.plan.bound.windows import AtOnce, evenly_spread, loading
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

MOST_TIMES = 16
"""The most times of beginning, and of what is behind, that tell sets of layers apart."""

_MOST_WAYS = 25
"""The most ways that images lie in which the cycles are counted."""

ROUNDING = 1e-9
"""The relative error of the sums."""


def cycles_alone(graph: Graph, chip: Soc, *, parts: bool = False) -> int:
    """Cycles that no plan of a region on a chip of one accelerator goes below, or that plans the region in `parts`: of
    the ways that its images can lie, the best. Ways are decided image by image, where that takes the fewest cycles so
    far."""
    region = _Region(graph, chip, parts)
    images, first = region.images, _Engines(region, Lying())
    found = [(first.least(*images.copied(Lying())), 0, Lying())]
    for number in range(1, _MOST_WAYS, 3):
        cycles, _, lying = found[0]
        ways = list(images.ways(lying))
        if not ways:
            break
        heappop(found)
        for way, one in enumerate(ways):
            engines = first if one.some else _Engines(region, one, first.both)
            heappush(found, (max(cycles, engines.least(*images.copied(one))), number + way, one))
            if found[0][0] == cycles and one.some:
                break  # others take no fewer
    return ceil(found[0][0] * (1 - ROUNDING))


class _Region:
    """What is known of a region on a chip of one accelerator, however its images lie."""

    def __init__(self, graph: Graph, chip: Soc, parts: bool) -> None:
        self.graph, self.chip, (self.one,) = graph, chip, chip.accelerators
        self.images = PackedImages(graph, self.one, parts)
        self.beginnings = Beginnings(self.images)
        self.jobs = [least_job(layer, self.one, chip) for layer in graph.layers]
        self.needed = [needed_before(graph, at, chip, whole=False) for at in range(len(graph.layers))]
        self.inputs, self.outputs = copied_in_full(graph)
        self.weights = weight_copies(graph.layers, self.one)
        self.once, self.spilled = _tensors_once(graph, self.one), _spilled(graph, chip)


class _Engines:
    """The array and the DMA of an accelerator, where images lie in some way; `both` is what `least_of_both` finds, by
    default for this way."""

    def __init__(self, region: _Region, lying: Lying, both: Floats | None = None) -> None:
        graph, chip, images, one = region.graph, region.chip, region.images, region.one
        works = [images.work(layer, lying) for layer in graph.layers]
        ones = [images.hardware(layer, lying) for layer in graph.layers]
        times = latencies(graph, chip, works, [True] * len(works))
        partly = [float(work.ways_of_channels[:, 0].min()) for work in works]
        array, blocks = [], []
        for layer, its, some in zip(graph.layers, ones, partly, strict=True):
            cycles = max(some, least_alone([layer], its), images.cycles(layer, lying))
            array.append(cycles + one.job_setup if cycles and not one.runs_whole(layer) else cycles)
            blocks.append(max(array[-1], least_in_blocks(layer, its)))
        self._around = _around(graph, one, times)
        self._known = max(times.least, self._around + max(sum(blocks), _late(graph, one, blocks, partly)))
        self.both = least_of_both(graph, chip, blocks) if both is None else both
        self._region, self._lying, self._array = region, lying, array
        self._before, self._behind = (
            [min(some.values(), default=0.0) for some in each] for each in (times.before, times.behind)
        )
        self._least = self._working(AtOnce(), False)

    def least(self, zeros: float, moved: float) -> float:
        """Cycles that no plan goes below, with those of copies for images: of zero points, and of images that may be
        among what is loaded again anyway."""
        mixed = self.both + ENGINE_SHARES * self._around + (1 - ENGINE_SHARES) * zeros
        return max(self._known, float(mixed.max()), self._busier(zeros, moved))

    def _copied(self, more: float, moved: float) -> float:
        """The cycles of the DMA, with `more` of other copies than are known."""
        region = self._region
        once = region.weights.cycles(region.once + more + max(region.spilled, moved))
        return max(float(self.both[0]) + more, once)

    def _busier(self, zeros: float, moved: float) -> float:
        """The cycles of the busier engine, with the fewest copies, or with a setup more and earlier ones."""
        least, region, one = self._least, self._region, self._region.one
        if one.library is not None:
            return least
        room = one.activation_memory
        may = (
            bool(region.inputs) and all(tensor.nbytes <= room for tensor in region.inputs),
            0 < region.weights.nbytes <= one.weight_memory,
            bool(region.outputs) and all(tensor.nbytes <= room for tensor in region.outputs),
        )
        if self._copied(zeros + sum(may) * one.dma_setup, moved) <= least:
            return least
        found = []
        for chosen in product(*((False, True) if some else (False,) for some in may)):
            inputs, weights, outputs = chosen
            at_once = AtOnce(tuple(region.inputs) if inputs else (), region.weights.nbytes * weights)
            earlier = self._copied(zeros + (sum(may) - sum(chosen)) * one.dma_setup, moved)
            found.append(max(least, earlier, self._working(at_once, outputs) if any(chosen) else 0.0))
        return min(found)

    def _working(self, at_once: AtOnce, outputs: bool) -> float:
        """The longest that the array takes for a set of layers, with what is before it and behind; `at_once` comes in
        one copy each, and so do `outputs`."""
        region, behind = self._region, self._ways_behind() if outputs else self._behind
        rates = region.beginnings.rates(self._lying, self._earliest(at_once), at_once)
        every = [one[-1].time for one in rates]
        layers = [at for at, cycles in enumerate(self._array) if cycles]
        if not layers:
            return 0.0
        begin, left = (np.array([some[at] for at in layers]) for some in (every, behind))
        found = 0.0
        for begins, ends in product(evenly_spread(begin, MOST_TIMES), evenly_spread(left, MOST_TIMES)):
            among = [at for at in layers if every[at] >= begins and behind[at] >= ends]
            if among:
                work = sum(self._array[at] for at in among)
                around = work + min(behind[at] for at in among)
                if around + min(every[at] for at in among) > found:
                    found = max(found, around + lost([rates[at] for at in among], work, region.one.dma_setup))
        return found

    def _earliest(self, at_once: AtOnce) -> list[float]:
        """The earliest job of each layer."""
        if not at_once.inputs and not at_once.weights:
            return self._before
        region, found = self._region, []
        for layer, known, needed in zip(region.graph.layers, self._before, region.needed, strict=True):
            own = 1.0 if isinstance(layer, Weighted) else 0.0
            found.append(max(known, loading(region.graph, region.one, needed, own, at_once)))
        return found

    def _ways_behind(self) -> list[float]:
        """The cycles behind the end of any job of each layer, where each output is stored when it is there in full."""
        region, one = self._region, self._region.one
        ways: dict[Tensor, float] = {
            tensor: least_copying(float(tensor.nbytes), one.activation_memory, one) for tensor in region.outputs
        }
        for layer, job in zip(reversed(region.graph.layers), reversed(region.jobs), strict=True):
            for tensor in layer.inputs if reads_all(layer) else ():
                ways[tensor] = max(ways.get(tensor, 0.0), job + ways.get(layer.ofm, 0.0))
        return [ways.get(layer.ofm, 0.0) for layer in region.graph.layers]


def copied_in_full(graph: Graph) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of a region that some layer reads all of, and its outputs: all but those that a layer as a whole
    touches, which may never be in local memory."""
    whole = {tensor for layer in graph.layers if isinstance(layer, Whole) for tensor in (*layer.inputs, layer.ofm)}
    read = {tensor for layer in graph.layers if has_jobs(layer) and reads_all(layer) for tensor in layer.inputs}
    inputs = [tensor for tensor in graph.inputs if tensor in read and tensor not in whole]
    return inputs, [tensor for tensor in dict.fromkeys(graph.outputs) if tensor not in whole]


def least_of_both(graph: Graph, chip: Soc, array: Sequence[float]) -> Floats:
    """For each of `ENGINE_SHARES`, the least sum of that part of the array's cycles and the rest of the DMA's, of any
    plan on a chip of one accelerator whose layers take the array at least as many cycles as `array` says."""
    (one,) = chip.accelerators
    once = least_copying(sum(map(weight_bytes, graph.layers)), one.weight_memory, one)
    once += _tensors_once(graph, one, held=True)
    return both_engines(graph, one, array) + (1 - ENGINE_SHARES) * once


def _tensors_once(graph: Graph, one: Accelerator, *, held: bool = False) -> float:
    """Cycles of the DMA for all inputs and outputs once; if `held`, for those that have room."""
    room, tensors = one.activation_memory, dict.fromkeys(chain(*copied_in_full(graph)))
    return sum(least_copying(some.nbytes, room, one) for some in tensors if not held or some.nbytes <= room)


def _spilled(graph: Graph, chip: Soc) -> float:
    """Cycles of the DMA for what is stored and loaded again, whatever the groups (`spills.py`)."""
    (one,) = chip.accelerators
    sizes = (size for some in spills(graph, chip) for size in (some.loaded, some.stored))
    return sum(least_copying(size, one.activation_memory, one) for size in sizes)


def least_copying(nbytes: float, memory: int, one: Accelerator) -> float:
    """Cycles of a DMA that copies so many bytes at least once, in copies that a memory has room for; none where a
    library copies nothing."""
    if one.library is not None or not nbytes:
        return 0.0
    return max(1.0, nbytes / memory) * one.dma_setup + nbytes / one.dma_width


def _around(graph: Graph, one: Accelerator, times: Latencies) -> float:
    """The cycles before the first job and behind the last one."""
    jobs = [at for at, layer in enumerate(graph.layers) if has_jobs(layer)]
    if one.library is not None or not jobs:
        return 0.0
    return sum(min((some[at][0] for at in jobs if 0 in some[at]), default=0.0) for some in (times.before, times.behind))


def _late(graph: Graph, one: Accelerator, least: Sequence[float], partly: Sequence[float]) -> float:
    """Cycles from the first job to the last one of plans whose weights cannot come long before they are used."""
    if one.library is not None or not any(map(has_jobs, graph.layers)):
        return 0.0
    return loaded_after_work(graph, one, least, partly)
