"""A lower bound on the cycles of any plan of a region on a chip.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns, channels, or slices of
sums. An accelerator computes the outputs of its share in groups: rows of its array work on channels, its columns on
pixels of one line of the output. For each channel it takes as many groups as its pixels need at least, the longest
pieces of lines first, and the weights of the channel. All of a layer lies on the arrays in one way: rows as rows, or as
columns. Inputs and outputs of the region are copied once, by any of the DMAs; inputs not where a layer reads a part of
something. A lane that has a share of a layer with weights copies some. The time of the busiest engine with the best
shares is a bound on the time of every plan.

An array has nothing to do for some layers before the first of their jobs can begin, and behind the last of them others
follow (`latency.py`). So the work of any set of layers lies between the earliest beginning of one of them and the time
that is left behind any of them. The sets that are tried are those of layers that begin late, and have much behind them.
The bound leaves out copies between parts, and waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import ceil, prod

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Resize, Slice, Weighted, Whole
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, rows_at_a_time, sums_channels
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.lanes.latency import Latencies, latencies
from byoc_hw.soc import Soc

_ROUNDS = 1000
"""Prices that are tried: more of them raise the bound by less than a percent."""

_ROUNDING = 1e-9
"""The relative error of the sums."""

_MOST = 4096
"""The most ways to share a layer that are told apart. Beyond, groups count by the part that is used."""

Floats = npt.NDArray[np.float64]


def chip_bound(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip goes below.

    By the duality of linear programs, any prices of the engines' cycles that add up to 1 give a bound: what all
    work costs if each piece of it is done in the cheapest way. Prices of engines with much work are raised.
    """
    work = [np.array(list(_ways(layer, chip))) for layer in graph.layers]
    lanes = range(len(chip.accelerators))
    whole = {tensor for layer in graph.layers if isinstance(layer, Whole) for tensor in (*layer.inputs, layer.ofm)}
    parts = any(isinstance(layer, Slice | Resize) for layer in graph.layers)  # of what they read
    for tensor in dict.fromkeys((*(() if parts else graph.inputs), *graph.outputs)):
        if tensor in whole:
            continue  # it may never be in local memory
        work.append(np.array([_on(lane, chip, 0.0, tensor.nbytes) for lane in lanes]))
    ways = np.concatenate(work)
    starts = np.cumsum([0, *map(len, work)])[:-1]
    prices = np.full(2 * len(lanes), 0.5 / len(lanes))
    times = latencies(graph, chip)
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


_MOST_TIMES = 8
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


def _on(lane: int, chip: Soc, cycles: float, nbytes: float) -> list[float]:
    """Cycles of all arrays, then of all DMAs: of what one accelerator does, that copies so many bytes at least once."""
    count = len(chip.accelerators)
    found = [0.0] * (2 * count)
    one = chip.accelerators[lane]
    found[lane] = cycles
    if nbytes and not one.library:
        found[count + lane] = one.dma_setup + nbytes / one.dma_width
    return found


def _ways(layer: Layer, chip: Soc) -> Iterator[Sequence[float]]:
    """The ways to share a layer, as cycles of all arrays and all DMAs: a plan has no fewer than a mixture of them."""
    able = [lane for lane, one in enumerate(chip.accelerators) if one in chip.supporting(layer)]
    nbytes = weight_bytes(layer)
    if not isinstance(layer, Weighted) or not isinstance(geometry(layer), Window):
        yield from (_on(lane, chip, least_cycles(layer, chip.accelerators[lane]), nbytes) for lane in able)
        return
    for turned in (False, True):
        steps = [groups(layer, chip.accelerators[lane], turned) for lane in able]
        if prod(len(one.pixels) for one in steps[:-1]) > _MOST:
            yield from (_on(lane, chip, one.least, nbytes) for lane, one in zip(able, steps, strict=True))
            continue
        pixels = prod(extents(layer.ofm)[:2])
        for counts in product(*(range(len(one.pixels)) for one in steps[:-1])):
            left = pixels - sum(one.pixels[count] for one, count in zip(steps, counts, strict=False))
            last = next(count for count, many in enumerate(steps[-1].pixels) if many >= left)
            taken = zip(able, steps, (*counts, last), strict=True)
            shares = [_on(lane, chip, count * one.cycles, nbytes * (count > 0)) for lane, one, count in taken]
            yield np.sum(shares, axis=0)


@dataclass(frozen=True)
class Groups:
    """Groups of outputs on an array: how many pixels so many of them cover at most, the cycles of one for all channels,
    and those of all pixels if every group was as full as the fullest."""

    pixels: tuple[int, ...]
    cycles: float
    least: float


def groups(layer: Weighted, accelerator: Accelerator, turned: bool) -> Groups:
    """The groups of a layer with a window: one, for a library. Rows of one that is `turned` are columns of the array's
    image."""
    height, width, channels = extents(layer.ofm)
    pixels = height * width
    if accelerator.library is not None:
        cycles = float(accelerator.library.cycles(layer))
        return Groups((0, pixels), cycles, cycles)
    count, length = (1, pixels) if is_pointwise(layer) else (width, height) if turned else (height, width)
    whole, rest = divmod(length, accelerator.array_columns)
    sizes = [accelerator.array_columns] * (count * whole) + [rest] * (count if rest else 0)
    cycles = _group_cycles(layer, layer.filter[turned], accelerator)
    cycles *= channels / min(rows_at_a_time(layer, accelerator), channels)
    return Groups(tuple(accumulate(sizes, initial=0)), cycles, cycles * pixels / sizes[0])


def _group_cycles(layer: Weighted, kernel_rows: int, accelerator: Accelerator) -> float:
    """Cycles of a group of outputs, if the array's rows lie along the kernel's rows or columns, of so many."""
    inputs = layer.in_channels if sums_channels(layer) else 1
    weights = inputs * prod(layer.filter) * accelerator.weight_width(layer) / 8
    return weights + 2 * inputs * kernel_rows + accelerator.job_overhead


def least_cycles(layer: Layer, accelerator: Accelerator) -> float:
    """Array cycles of a whole layer without weights, if each group has as many rows and columns as there can be."""
    if accelerator.runs_whole(layer):
        return accelerator.cycles_of_whole(layer)
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


def least_alone(graph: Graph, accelerator: Accelerator) -> float:
    """Cycles of the array that no plan of a region on one accelerator goes below."""
    return sum(_array_cycles(layer, accelerator) for layer in graph.layers)


def _array_cycles(layer: Layer, accelerator: Accelerator) -> float:
    if not isinstance(layer, Weighted) or not isinstance(geometry(layer), Window):
        return least_cycles(layer, accelerator)
    ways = (groups(layer, accelerator, turned) for turned in (False, True))
    return min(one.cycles * (len(one.pixels) - 1) for one in ways)


def weight_bytes(layer: Layer) -> float:
    """Bytes of a layer's weights as they are packed, with the parameters of each channel."""
    if not isinstance(layer, Weighted):
        return 0.0
    return prod(layer.weights.shape) * layer.weights.bits / 8 + PARAMS_BYTES * layer.out_channels
