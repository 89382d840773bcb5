"""A lower bound on the cycles of any plan of a region on a chip.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns or channels. What they
compute it in, and how much of that they need at least, says `ways.py`. Inputs that a layer reads all of and outputs of
the region are copied once, by any of the DMAs, and the weights of a channel to each accelerator that has a share of it.
The time of the busiest engine with the best shares is a bound on the time of every plan.

An array has nothing to do for some layers before the first of their jobs can begin (`latency.py`, `windows.py`), and
behind the last of them others follow. So the work of any set of layers lies between the earliest beginning of one of
them and the time that is left behind any of them. The sets that are tried are those of layers that begin late, and have
much behind them. The bound leaves out copies between parts, but for the shortest ways, and waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, prod

import numpy as np

from byoc_hw.graph import Graph, Layer, Weighted, Whole
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.lanes.latency import Latencies, has_jobs, latencies, reads_all
from byoc_hw.plan.lanes.ways import Floats, LayerWork
from byoc_hw.soc import Soc

_ROUNDS = 500
"""Prices that are tried: more of them raise the bound by less than a percent."""

_ROUNDING = 1e-9
"""The relative error of the sums."""


def chip_bound(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip goes below.

    By the duality of linear programs, any prices of the engines' cycles that add up to 1 give a bound: what all
    work costs if each piece of it is done in the cheapest way. Prices of engines with much work are raised.
    """
    works = [LayerWork(layer, chip) for layer in graph.layers]
    work = [_ways(layer, one, chip) for layer, one in zip(graph.layers, works, strict=True)]
    lanes = range(len(chip.accelerators))
    whole = {tensor for layer in graph.layers if isinstance(layer, Whole) for tensor in (*layer.inputs, layer.ofm)}
    loaded = {tensor for layer in graph.layers if has_jobs(layer) and reads_all(layer) for tensor in layer.inputs}
    for tensor in dict.fromkeys((*(one for one in graph.inputs if one in loaded), *graph.outputs)):
        if tensor in whole:
            continue  # it may never be in local memory
        work.append(np.concatenate([np.zeros((len(lanes), len(lanes))), np.diag(_copies(chip, tensor.nbytes))], axis=1))
    ways = np.concatenate(work)
    starts = np.cumsum([0, *map(len, work)])[:-1]
    prices = np.full(2 * len(lanes), 0.5 / len(lanes))
    times = latencies(graph, chip, works)
    chosen, around = _sets(times, [bool(one[:, : len(lanes)].any()) for one in work], len(lanes))
    best = times.least
    for turn in range(_ROUNDS):
        costs = ways @ prices
        cheapest = np.minimum.reduceat(costs, starts)
        best = max(best, float((chosen @ cheapest + around @ prices[: len(lanes)]).max()))
        taken = [
            start + int(costs[start : start + len(some)].argmin()) for start, some in zip(starts, work, strict=True)
        ]
        loads = ways[taken].sum(axis=0)
        loads[: len(lanes)] += around[0]
        prices *= np.exp(loads / max(loads.max(), 1) / np.sqrt(turn + 1))
        prices /= prices.sum()
    return ceil(best * (1 - _ROUNDING))


_MOST_TIMES = 16
"""The most times of beginning, and of what is behind, that tell sets of layers apart."""


def _sets(times: Latencies, works: Sequence[bool], lanes: int) -> tuple[Floats, Floats]:
    """Sets of work, as rows of 0 and 1, and for each the cycles in which no array works on it: all of the work first.

    What arrays have nothing to do for is in all sets. An array that works on nothing of a set has at least the cycles
    of the shortest plan.
    """
    layers = [at for at, busy in enumerate(works) if busy]
    first = [min(times.before[at].values(), default=0.0) for at in layers]
    last = [min(times.behind[at].values(), default=0.0) for at in layers]
    chosen, around = [], []
    for begins, ends in product(_some(first), _some(last)):
        among = [at for at, one, other in zip(layers, first, last, strict=True) if one >= begins and other >= ends]
        chosen.append([float(at in among or not busy) for at, busy in enumerate(works)])
        idle = [
            min((one[at][lane] for at in among if lane in one[at]), default=times.least)
            for one in (times.before, times.behind)
            for lane in range(lanes)
        ]
        around.append([min(idle[lane] + idle[lanes + lane], times.least) for lane in range(lanes)])
    return np.array(chosen), np.array(around)


def _some(values: Sequence[float]) -> list[float]:
    """Some of the values, evenly spread, from the smallest on; 0 alone if there are none."""
    found = sorted(set(values)) or [0.0]
    return found[:: ceil(len(found) / _MOST_TIMES)]


def _copies(chip: Soc, nbytes: float) -> Floats:
    """Cycles of each DMA that copies so many bytes at least once; none where a library copies nothing."""
    return np.array(
        [0 if one.library or not nbytes else one.dma_setup + nbytes / one.dma_width for one in chip.accelerators]
    )


def _ways(layer: Layer, work: LayerWork, chip: Soc) -> Floats:
    """The ways to share a layer, as cycles of all arrays and all DMAs, which copy weights for each share of a channel:
    a plan has no fewer than a mixture of them."""
    arrays = work.ways_of_channels()
    return np.concatenate([arrays, (arrays > 0) * _copies(chip, weight_bytes(layer))], axis=1)


def weight_bytes(layer: Layer) -> float:
    """Bytes of a layer's weights as they are packed, with the parameters of each channel."""
    if not isinstance(layer, Weighted):
        return 0.0
    return prod(layer.weights.shape) * layer.weights.bits / 8 + PARAMS_BYTES * layer.out_channels
