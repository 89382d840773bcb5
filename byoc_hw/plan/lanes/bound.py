"""A lower bound on the cycles of any plan of a region on a chip.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns, channels, or slices of
sums. An accelerator computes the outputs of its share in groups: rows of its array work on channels, its columns on
pixels of one line of the output. The longest pieces of lines fill the columns best, and an image has so many of them:
the more of a layer an accelerator takes, the more it pays for the rest of each line. All of a layer lies on the arrays
in one way: rows as rows, or as columns. An accelerator loads at least its share of the layer's weights. Inputs and
outputs of the region are copied once, by any of the DMAs. An array has nothing to do before a first copy, and its last
results are stored after it. The time of the busiest engine with the best shares, a linear program, is a bound on the
time of every plan. It leaves out copies between parts, and waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, rows_at_a_time, sums_channels
from byoc_hw.plan.array.window import extents
from byoc_hw.soc import Soc

_ROUNDS = 1000
"""Prices that are tried: more of them raise the bound by less than a percent."""

_ROUNDING = 1e-9
"""The relative error of the sums."""

Segment = tuple[float, float]
"""A share of a layer's outputs, and the array's cycles for it."""


def chip_bound(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip goes below.

    By the duality of linear programs, any prices of the engines' cycles that add up to 1 give a bound: what all
    work costs if each piece of it goes where it is cheapest. Prices of engines with much work are raised.
    """
    work = _Work(graph, chip)
    lanes = len(chip.accelerators)
    prices = np.full(2 * lanes, 0.5 / lanes)
    around = 2 * min(one.dma_setup + 1 for one in chip.accelerators) if any(work.arrays.flat) else 0
    best = 0.0
    for turn in range(_ROUNDS):
        cost, loads = work.cheapest(prices)
        best = max(best, cost + around * float(prices[:lanes].sum()))
        loads[:lanes] += around
        prices *= np.exp(loads / max(loads.max(), 1) / np.sqrt(turn + 1))
        prices /= prices.sum()
    return ceil(best * (1 - _ROUNDING))


class _Work:
    """All that is to be done: layers, each in two ways, and copies of arguments. Each has shares, which add up to 1 or
    more, with their accelerators and the cycles of array and DMA."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        rows = [list(_of_layer(layer, chip, turned)) for layer in graph.layers for turned in (False, True)]
        for tensor in dict.fromkeys((*graph.inputs, *graph.outputs)):
            copies = [(1.0, lane, 0.0, tensor.nbytes / one.dma_width) for lane, one in enumerate(chip.accelerators)]
            rows += [copies, copies]
        longest = max(map(len, rows), default=0)
        filled = np.array([row + [_NOTHING] * (longest - len(row)) for row in rows]).reshape(-1, longest, 4)
        self._shares, self.arrays, self._copies = filled[..., 0], filled[..., 2], filled[..., 3]
        self._lanes, self._count = filled[..., 1].astype(np.intp), len(chip.accelerators)

    def cheapest(self, prices: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        """What the work costs at best, by prices of arrays and DMAs, and how long each engine works then."""
        of_arrays, of_copies = np.split(prices, 2)
        costs = self.arrays * of_arrays[self._lanes] + self._copies * of_copies[self._lanes]
        there = self._shares > 0
        sizes = np.where(there, self._shares, 1)
        order = np.where(there, costs / sizes, np.inf).argsort(axis=1)
        shares = np.take_along_axis(self._shares, order, axis=1)
        before = shares.cumsum(axis=1) - shares
        used = np.zeros_like(shares)
        np.put_along_axis(used, order, np.clip(1 - before, 0, shares), axis=1)
        used /= sizes
        ways = (used * costs).sum(axis=1).reshape(-1, 2)
        chosen = np.stack([ways[:, 0] <= ways[:, 1], ways[:, 0] > ways[:, 1]], axis=1).reshape(-1, 1)
        loads = [
            np.bincount(self._lanes.ravel(), (used * chosen * cycles).ravel(), self._count)
            for cycles in (self.arrays, self._copies)
        ]
        return float(ways.min(axis=1).sum()), np.concatenate(loads)


_NOTHING = (0.0, 0, 0.0, 0.0)


def _of_layer(layer: Layer, chip: Soc, turned: bool) -> Iterator[tuple[float, int, float, float]]:
    """Shares of a layer, with the accelerator and the cycles of its array and its DMA."""
    able = chip.supporting(layer)
    for lane, one in enumerate(chip.accelerators):
        if one in able:
            weights = weight_cycles(layer, one)
            for share, cycles in segments(layer, one, turned):
                yield share, lane, cycles, share * weights


def segments(layer: Layer, accelerator: Accelerator, turned: bool) -> list[Segment]:
    """What an accelerator takes at least for the first outputs of a layer, for more of them, and so on: the cheapest
    ones first. Rows of a layer that is `turned` are columns of the array's image."""
    form = geometry(layer)
    if not isinstance(layer, Weighted) or not isinstance(form, Window):
        return [(1.0, least_cycles(layer, accelerator))]
    height, width, channels = extents(layer.ofm)
    pixels = height * width
    count, length = (1, pixels) if is_pointwise(layer) else (width, height) if turned else (height, width)
    whole, rest = divmod(length, accelerator.array_columns)
    rows = min(rows_at_a_time(layer, accelerator), channels)
    group = _group_cycles(layer, layer.filter[turned], accelerator) * channels / rows
    pieces = ((count * whole, accelerator.array_columns), (count * (rest > 0), rest))
    return [(number * size / pixels, number * group) for number, size in pieces if number]


def _group_cycles(layer: Weighted, kernel_rows: int, accelerator: Accelerator) -> float:
    """Cycles of a group of outputs, if the array's rows lie along the kernel's rows or columns, of so many."""
    inputs = layer.in_channels if sums_channels(layer) else 1
    return inputs * prod(layer.filter) * layer.weights.bits / 8 + 2 * inputs * kernel_rows + accelerator.job_overhead


def least_cycles(layer: Layer, accelerator: Accelerator) -> float:
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


def weight_cycles(layer: Layer, accelerator: Accelerator) -> float:
    """DMA cycles to load a layer's weights once."""
    if not isinstance(layer, Weighted):
        return 0.0
    return prod(layer.weights.shape) * layer.weights.bits / 8 / accelerator.dma_width
