"""A lower bound on the cycles of any plan of a region on a chip.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns, channels, or slices of
sums. A share of a layer takes at least that share of the array's cycles, as if no row or column of the array were idle
that the layer can fill, and it loads at least that share of the layer's weights. Inputs and outputs of the region
are copied once. The time of the busiest engine with the best shares, a linear program, is a bound on the time of every
plan. It leaves out the latency of the first load and the last store, copies between parts, and waiting.
"""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, rows_at_a_time, sums_channels
from byoc_hw.plan.array.window import extents
from byoc_hw.soc import Soc

_ROUNDS = 1500
"""Prices that are tried: more of them raise the bound by less than a percent."""


def chip_bound(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip goes below.

    By the duality of linear programs, any prices of the engines' cycles that add up to 1 give a bound: what all
    work costs if each piece of it goes where it is cheapest. Prices of engines with much work are raised.
    """
    arrays, copies = _shares(graph, chip)
    prices = np.full(2 * len(chip.accelerators), 0.5 / len(chip.accelerators))
    best = 0.0
    for turn in range(_ROUNDS):
        of_arrays, of_copies = np.split(prices, 2)
        costs = arrays * of_arrays + copies * of_copies
        cheapest = costs.argmin(axis=1)
        best = max(best, float(costs.min(axis=1).sum()))
        loads = np.concatenate(
            [np.bincount(cheapest, each[np.arange(len(each)), cheapest], len(of_arrays)) for each in (arrays, copies)]
        )
        prices *= np.exp(loads / max(loads.max(), 1) / np.sqrt(turn + 1))
        prices /= prices.sum()
    return ceil(best * (1 - _ROUNDING))


_ROUNDING = 1e-9
"""The relative error of the sums."""

_NEVER = 1e15
"""Cycles of what an accelerator cannot do."""


def _shares(graph: Graph, chip: Soc) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The array and DMA cycles of each layer, and of each argument of the region, on each accelerator."""
    arrays, copies = [], []
    for layer in graph.layers:
        able = chip.supporting(layer)
        arrays.append([least_cycles(layer, one) if one in able else _NEVER for one in chip.accelerators])
        copies.append([weight_cycles(layer, one) if one in able else _NEVER for one in chip.accelerators])
    for tensor in dict.fromkeys((*graph.inputs, *graph.outputs)):
        arrays.append([0.0 for _ in chip.accelerators])
        copies.append([0.0 if one.library else tensor.nbytes / one.dma_width for one in chip.accelerators])
    return np.array(arrays), np.array(copies)


def least_cycles(layer: Layer, accelerator: Accelerator) -> float:
    """Array cycles of a layer if as many rows and columns of the array are used as its output can fill."""
    if accelerator.library is not None:
        return accelerator.library.cycles(layer)
    form = geometry(layer)
    height, width, channels = extents(layer.ofm)
    outputs = height * width * channels
    columns = min(accelerator.array_columns, height * width if is_pointwise(layer) else max(height, width))
    if isinstance(layer, Weighted):
        inputs = layer.in_channels if sums_channels(layer) else 1
        kernel = layer.filter
        group = inputs * prod(kernel) * layer.weights.bits / 8 + 2 * inputs * min(kernel) + accelerator.job_overhead
        return outputs * group / (min(rows_at_a_time(layer, accelerator), channels) * columns)
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
    if not isinstance(layer, Weighted) or accelerator.library is not None:
        return 0.0
    return prod(layer.weights.shape) * layer.weights.bits / 8 / accelerator.dma_width
