"""Costs of copies and layers in accelerator cycles, by the same rules as the simulator (`hwlib/sim`)."""

from __future__ import annotations

from collections.abc import Iterable

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, job_cycles, product_cycles
from byoc_hw.plan.array.transfers import Transfer
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.remembered import kept_in_first


def copy_cycles(nbytes: int, rows: int, accelerator: Accelerator) -> int:
    """Cycles of one transfer of `rows` rows of `nbytes` bytes."""
    beats = rows * ceil_div(nbytes, accelerator.dma_width)
    return accelerator.dma_setup + (rows - 1) * accelerator.dma_row_setup + beats


def transfer_cycles(moves: Iterable[Transfer], accelerator: Accelerator) -> int:
    """Cycles of several transfers, one after the other."""
    return sum(copy_cycles(move.nbytes, move.rows, accelerator) for move in moves)


def best_cycles(layer: Layer, accelerator: Accelerator) -> int:
    """Cycles of the whole layer in one job for each group, in its cheapest mapping; 0 for a layer without jobs. On a
    library, and without tiles, what it takes as a whole."""
    if accelerator.runs_whole(layer):
        return accelerator.cycles_of_whole(layer)
    form = geometry(layer)
    if isinstance(form, Product):
        return product_cycles(layer, form, form.items * form.rows, accelerator)
    if not isinstance(form, Window | Run):
        return 0
    ifm, ofm = extents(layer.ifm), extents(layer.ofm)
    groups = layer.groups if isinstance(layer, Weighted) else 1
    ifm, ofm = ((height, width, channels // groups) for height, width, channels in (ifm, ofm))
    return groups * dense_job_cycles(layer, ifm, ofm, accelerator)


def dense_job_cycles(layer: Layer, ifm: Extents, ofm: Extents, accelerator: Accelerator) -> int:
    """Cycles of a job over dense pixels, which of a pointwise layer are one row where that takes fewer."""
    cycles = job_cycles(layer, ifm, ofm, accelerator)
    return min(cycles, job_cycles(layer, flat(ifm), flat(ofm), accelerator)) if is_pointwise(layer) else cycles


def dense_job_shapes(layer: Layer, ifm: Extents, ofm: Extents, accelerator: Accelerator) -> tuple[Extents, Extents]:
    """The shapes of such a job."""
    shapes = (ifm, ofm), (flat(ifm), flat(ofm))
    if not is_pointwise(layer):
        return shapes[0]
    return min(shapes, key=lambda one: job_cycles(layer, one[0], one[1], accelerator))


@kept_in_first
def is_pointwise(layer: Layer) -> bool:
    """Whether a layer is a 1 x 1 convolution without stride and padding, whose pixels can be one row."""
    form = geometry(layer)
    return (
        isinstance(form, Window)
        and form.sums
        and all(axis.kernel == axis.stride == 1 and axis.ifm == axis.ofm for axis in (form.rows, form.columns))
    )


def flat(extents: Extents) -> Extents:
    """The same pixels in one row."""
    return 1, extents[0] * extents[1], extents[2]
