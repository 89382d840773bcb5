"""A lower bound on the cycles of any plan of a region on a single accelerator.

The array does all layers in the fewest whole groups of outputs (`ways.py`). The DMA copies inputs that a layer reads all
of, and outputs, each in copies of its own, as they lie anywhere in main memory; weights, of which one copy may bring
those of several layers; and what `spills.py` finds. The busier engine is a bound.

The array works on some layers behind the time at which the first of them can begin (`latency.py`), saves nothing before
all that a group needs is there (`beginnings.py`), and is followed by the shortest way from any of them to the end. The
sets of layers that are tried are those that begin late, and have much behind them. Weights come no earlier than weight
memory has room for them (`prefetch.py`).

Jobs over packed rows need zero points between rows, which are copied at least once; or all jobs are inside one row, as
on an accelerator without packed rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Weighted, Whole
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.bound.beginnings import beginnings, lost, needs_fills
from byoc_hw.plan.bound.latency import Latencies, has_jobs, latencies, reads_all
from byoc_hw.plan.bound.prefetch import loaded_after_work
from byoc_hw.plan.bound.spills import spills
from byoc_hw.plan.bound.ways import LayerWork, least_alone, packs, weight_bytes
from byoc_hw.plan.bound.windows import evenly_spread
from byoc_hw.soc import Soc

_MOST_TIMES = 16
"""The most times of beginning, and of what is behind, that tell sets of layers apart."""

_ROUNDING = 1e-9
"""The relative error of the sums."""


def cycles_alone(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip of one accelerator goes below."""
    (one,) = chip.accelerators
    packed = [layer for layer in graph.layers if packs(layer, one) and not is_pointwise(layer)]
    if not packed or not all(isinstance(layer, Weighted) and needs_fills(layer, one) for layer in packed):
        return _least(graph, chip, fills=0)
    apart = replace(chip, accelerators=(replace(one, packed_rows=False),))
    return min(_least(graph, chip, fills=1), _least(graph, apart, fills=0))


def _least(graph: Graph, chip: Soc, fills: int) -> int:
    """The same with so many copies of zero points."""
    (one,), works = chip.accelerators, [LayerWork(layer, chip) for layer in graph.layers]
    times = latencies(graph, chip, works, [True] * len(works))
    partly = [float(work.ways_of_channels()[:, 0].min()) for work in works]
    array = [max(some, least_alone([layer], one)) for some, layer in zip(partly, graph.layers, strict=True)]
    array = [
        cycles and cycles + one.job_setup * (not one.runs_whole(layer)) for cycles, layer in zip(array, graph.layers)
    ]
    copied = 0.0 if one.library else sum(_copies(graph, chip)) + fills * (one.dma_setup + 1)
    found = max(times.least, copied, _array(graph, one, times, array), _late(graph, one, times, array, partly))
    return ceil(found * (1 - _ROUNDING))


def _copies(graph: Graph, chip: Soc) -> Iterator[float]:
    """Cycles of the copies that all plans have."""
    (one,) = chip.accelerators
    whole = {tensor for layer in graph.layers if isinstance(layer, Whole) for tensor in (*layer.inputs, layer.ofm)}
    read = {tensor for layer in graph.layers if has_jobs(layer) and reads_all(layer) for tensor in layer.inputs}
    copied = dict.fromkeys((*(tensor for tensor in graph.inputs if tensor in read), *graph.outputs))
    sizes = [(float(tensor.nbytes), one.activation_memory) for tensor in copied if tensor not in whole]
    sizes.append((sum(map(weight_bytes, graph.layers)), one.weight_memory))
    sizes += [
        (float(size), one.activation_memory) for some in spills(graph, chip) for size in (some.loaded, some.stored)
    ]
    for nbytes, memory in sizes:
        if nbytes:
            yield max(1.0, nbytes / memory) * one.dma_setup + nbytes / one.dma_width


def _array(graph: Graph, one: Accelerator, times: Latencies, least: Sequence[float]) -> float:
    """The longest that the array takes for a set of layers, with what is before it and behind: `least` has the cycles
    of its jobs for each layer."""
    first, behind = ([min(some.values(), default=0.0) for some in each] for each in (times.before, times.behind))
    rates = beginnings(graph, one, first)
    layers = [at for at, cycles in enumerate(least) if cycles]
    begin, left = (np.array([some[at] for at in layers]) for some in ([rate.times[-1] for rate in rates], behind))
    found = 0.0
    for begins, ends in product(evenly_spread(begin, _MOST_TIMES), evenly_spread(left, _MOST_TIMES)):
        among = [at for at in layers if rates[at].times[-1] >= begins and behind[at] >= ends]
        if among:
            work = sum(least[at] for at in among)
            found = max(found, lost([rates[at] for at in among], work) + work + min(behind[at] for at in among))
    return found


def _late(graph: Graph, one: Accelerator, times: Latencies, least: Sequence[float], partly: Sequence[float]) -> float:
    """Cycles of plans whose weights cannot come long before they are used."""
    jobs = [at for at, layer in enumerate(graph.layers) if has_jobs(layer)]
    if one.library is not None or not jobs:
        return 0.0
    around = [min((some[at][0] for at in jobs if 0 in some[at]), default=0.0) for some in (times.before, times.behind)]
    return sum(around) + loaded_after_work(graph, one, least, partly)
