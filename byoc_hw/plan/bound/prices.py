"""A lower bound on the cycles of any plan of a region, on one accelerator (`alone.py`) or on a chip of several.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns or channels. What they
compute it in, and how much of that they need at least, says `ways.py`. Inputs that a layer reads all of and outputs of
the region are copied once, by any of the DMAs, and the weights of a channel to each accelerator that has a share of it:
one copy may bring the weights of many layers, so only their bytes count.
The time of the busiest engine with the best shares is a bound on the time of every plan.

An array has nothing to do for some layers before the first of their jobs can begin (`latency.py`, `windows.py`), and
behind the last of them others follow. So the work of any set of layers lies between the earliest beginning of one of
them and the time that is left behind any of them. The sets that are tried are those of layers that begin late, and have
much behind them. The bound leaves out copies between parts, but for the shortest ways, and waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import ceil, sqrt
from weakref import WeakKeyDictionary

import numpy as np

from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.bound.alone import MOST_TIMES, ROUNDING, copied_in_full, cycles_alone, least_copying
from byoc_hw.plan.bound.boxes import ways_in_boxes
from byoc_hw.plan.bound.flows import cycles_of_flows
from byoc_hw.plan.bound.latency import Latencies, latencies, made_in_full
from byoc_hw.plan.bound.sharing import cycles_of_sharing
from byoc_hw.plan.bound.ways import Floats, LayerWork, weight_bytes
from byoc_hw.plan.bound.windows import evenly_spread
from byoc_hw.soc import Hardware, Soc

_ROUNDS = 500
"""Prices that are tried: more of them raise the bound by less than a percent."""


def cycles_bound(graph: Graph, hardware: Hardware) -> int:
    """Cycles that no plan of a region goes below.

    By the duality of linear programs, any prices of the engines' cycles that add up to 1 give a bound: what all
    work costs if each piece of it is done in the cheapest way.
    """
    # A chip forbids some names of accelerators.
    chip = hardware if isinstance(hardware, Soc) else Soc((replace(hardware, name="alone"),))
    if len(chip.accelerators) == 1:
        return cycles_alone(graph, chip)
    works = [LayerWork(layer, chip) for layer in graph.layers]
    counted = made_in_full(graph)
    work = [_ways(*one, chip) for one in zip(graph.layers, works, counted, strict=True)]
    lanes, local = range(len(chip.accelerators)), sum(one.activation_memory for one in chip.accelerators)
    inputs, outputs = copied_in_full(graph)
    work += [_of_dma(chip, tensor.nbytes, local) for tensor in dict.fromkeys((*inputs, *outputs))]
    times = latencies(graph, chip, works, counted)
    sets = _sets(times, [bool(one[:, : len(lanes)].any()) for one in work], len(lanes))
    best = max(times.least, _at_better_prices(work, *sets))
    best = cycles_of_flows(graph, chip, works, work[: len(works)], counted, sets[1][0], best)
    return cycles_of_sharing(graph, chip, works, counted, times, ceil(best * (1 - ROUNDING)))


_BOUNDS: WeakKeyDictionary[Graph, dict[Hardware, int]] = WeakKeyDictionary()
"""The bounds of graphs that are still there."""


def known_bound(graph: Graph, hardware: Hardware) -> int:
    """As `cycles_bound`, counted once: planning asks for it, and so does what is written of the plan."""
    known = _BOUNDS.setdefault(graph, {})
    if hardware not in known:
        known[hardware] = cycles_bound(graph, hardware)
    return known[hardware]


def _at_better_prices(work: Sequence[Floats], chosen: Floats, around: Floats) -> float:
    """The most that work was found to cost at any prices, with `around` cycles in which an array has no part in it:
    prices of engines with much work are raised."""
    ways, lanes = np.concatenate(work), around.shape[1]
    starts = np.cumsum([0, *map(len, work)])[:-1]
    of = np.repeat(np.arange(len(work)), [len(some) for some in work])  # what work each way is of
    prices = np.full(2 * lanes, 0.5 / lanes)
    best = 0.0
    for turn in range(_ROUNDS):
        costs = ways @ prices
        cheapest = np.minimum.reduceat(costs, starts)
        best = max(best, float(np.maximum.reduce(chosen @ cheapest + around @ prices[:lanes])))
        cheap = np.flatnonzero(costs == cheapest[of])
        taken = cheap[np.searchsorted(of[cheap], np.arange(len(work)))]  # the first of each
        loads = np.add.reduce(ways[taken], axis=0)
        loads[:lanes] += around[0]
        prices *= np.exp(loads / max(np.maximum.reduce(loads), 1) / sqrt(turn + 1))
        prices /= np.add.reduce(prices)
    return best


def _sets(times: Latencies, works: Sequence[bool], lanes: int) -> tuple[Floats, Floats]:
    """Sets of work, as rows of 0 and 1, and for each the cycles in which no array works on it: all of the work first.

    What arrays have nothing to do for is in all sets. An array that works on nothing of a set has at least the cycles
    of the shortest plan.
    """
    layers = [at for at, busy in enumerate(works) if busy]
    first = [min(times.before[at].values(), default=0.0) for at in layers]
    last = [min(times.behind[at].values(), default=0.0) for at in layers]
    chosen, around = [], []
    for begins, ends in product(*(evenly_spread(np.array(some or [0.0]), MOST_TIMES) for some in (first, last))):
        among = [at for at, one, other in zip(layers, first, last, strict=True) if one >= begins and other >= ends]
        chosen.append([float(at in among or not busy) for at, busy in enumerate(works)])
        idle = [
            min((one[at][lane] for at in among if lane in one[at]), default=times.least)
            for one in (times.before, times.behind)
            for lane in range(lanes)
        ]
        around.append([min(idle[lane] + idle[lanes + lane], times.least) for lane in range(lanes)])
    return np.array(chosen), np.array(around)


def _of_dma(chip: Soc, nbytes: int, memory: int) -> Floats:
    """A copy of so many bytes as work that any of the DMAs does: a row for each."""
    lanes = len(chip.accelerators)
    return np.concatenate([np.zeros((lanes, lanes)), np.diag(_copies(chip, nbytes, memory))], axis=1)


def _copies(chip: Soc, nbytes: float, memory: int) -> Floats:
    """Cycles of each DMA that copies so many bytes."""
    return np.array([least_copying(nbytes, memory, one) for one in chip.accelerators])


def _ways(layer: Layer, work: LayerWork, counted: bool, chip: Soc) -> Floats:
    """The ways to share a layer, as cycles of all arrays and all DMAs, which copy weights for each share of a channel:
    a plan has no fewer than a mixture of them. Of a layer that is not counted there may be nothing."""
    if not counted:
        return np.zeros((1, 2 * len(chip.accelerators)))
    boxes = ways_in_boxes(layer, chip)
    if boxes is not None:
        return boxes
    arrays = work.ways_of_channels
    setups = [0 if one.runs_whole(layer) else one.job_setup for one in chip.accelerators]
    arrays = arrays + (arrays > 0) * np.array(setups)
    weights = [0.0 if one.library else weight_bytes(layer) / one.dma_width for one in chip.accelerators]
    return np.concatenate([arrays, (arrays > 0) * np.array(weights)], axis=1)
