"""A lower bound on the cycles of any plan of a region on a chip.

Each layer's work is shared by the accelerators that can run it, in any parts: by rows, columns, channels, or slices of
sums. A share of a layer takes at least that share of the array's cycles without what rounding up to whole rows and
columns of the array wastes, and it loads at least that share of the layer's weights. Inputs and outputs of the region
are copied once. The best shares are a linear program; its value bounds the time of the busiest engine, and so the
time of every plan. It leaves out the latency of the first load and the last store, copies between parts, and waiting.
"""

from __future__ import annotations

from math import ceil, prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, rows_at_a_time, sums_channels
from byoc_hw.plan.array.window import extents
from byoc_hw.soc import Soc

_SLACK = 1e-6
"""The relative error that is allowed to the solver: the bound is lowered by it."""


def chip_bound(graph: Graph, chip: Soc) -> int:
    """Cycles that no plan of a region on a chip goes below."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    time = solver.NumVar(0, solver.infinity(), "time")
    arrays = [solver.Constraint(-solver.infinity(), 0) for _ in chip.accelerators]
    copies = [solver.Constraint(-solver.infinity(), 0) for _ in chip.accelerators]
    for engine in (*arrays, *copies):
        engine.SetCoefficient(time, -1)
    for layer in graph.layers:
        able = chip.supporting(layer)
        whole = solver.Constraint(1, 1)
        for lane, accelerator in enumerate(chip.accelerators):
            if accelerator in able:
                share = solver.NumVar(0, 1, "")
                whole.SetCoefficient(share, 1)
                arrays[lane].SetCoefficient(share, least_cycles(layer, accelerator))
                copies[lane].SetCoefficient(share, weight_cycles(layer, accelerator))
    for tensor in (*graph.inputs, *graph.outputs):
        whole = solver.Constraint(1, 1)
        for lane, accelerator in enumerate(chip.accelerators):
            share = solver.NumVar(0, 1, "")
            whole.SetCoefficient(share, 1)
            copies[lane].SetCoefficient(share, tensor.nbytes / accelerator.dma_width)
    solver.Minimize(time)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return 0
    return ceil(float(solver.Objective().Value()) * (1 - _SLACK) - _SLACK)


def least_cycles(layer: Layer, accelerator: Accelerator) -> float:
    """Array cycles of a layer if all rows and columns of the array were always used."""
    form = geometry(layer)
    height, width, channels = extents(layer.ofm)
    outputs = height * width * channels
    if isinstance(layer, Weighted):
        inputs = layer.in_channels if sums_channels(layer) else 1
        rows, columns = layer.filter
        group = inputs * rows * columns * layer.weights.bits / 8 + 2 * inputs * min(rows, columns)
        overhead = accelerator.job_overhead
        return outputs * (group + overhead) / (rows_at_a_time(layer, accelerator) * accelerator.array_columns)
    if isinstance(form, Run):
        return form.reads * outputs / accelerator.elementwise_width
    if isinstance(form, Window):
        return outputs * form.rows.kernel * form.columns.kernel / accelerator.elementwise_width
    if isinstance(form, Product):
        return (
            outputs * (3 * form.depth + accelerator.job_overhead) / (accelerator.array_rows * accelerator.array_columns)
        )
    return 0.0


def weight_cycles(layer: Layer, accelerator: Accelerator) -> float:
    """DMA cycles to load a layer's weights once."""
    if not isinstance(layer, Weighted):
        return 0.0
    return prod(layer.weights.shape) * layer.weights.bits / 8 / accelerator.dma_width
