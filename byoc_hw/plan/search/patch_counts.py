"""Numbers of patches and of slices of channels that are tried for a group of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.plan.array.kinds import rows_at_a_time
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.search.estimate import HeldSet
from byoc_hw.plan.work.patch_boxes import runs_of_channels
from byoc_hw.tensor import Tensor

_CUTS = (2, 3, 4, 6, 8, 12)
"""Numbers of patches side by side that are tried, and the same in whole columns of the array."""

_SLICES = (1, 2, 4)
"""Sizes of slices that are tried, in rows of the array."""

_FINER = (2, 4)
"""Numbers of slices of one such row that are tried where these forms are slow: patches may be larger."""

_LOADED = (2, 4, 8)
"""Numbers of slices that are tried where they are loaded one by one: all channels of the next layer's input are in
local memory, so there is little room to gain from more of them."""


def column_counts(layer: Layer, accelerator: Accelerator, *, fine: bool = True) -> list[int]:
    """Numbers of patches side by side, more than one, that are tried for the output of a layer, in growing order. If
    they are not `fine`, they fill at least half of the array's columns."""
    width, unit = extents(layer.ofm)[1], accelerator.array_columns
    sizes = {ceil_div(width, count) for count in _CUTS if count <= width}
    sizes |= {round_up(size, unit) for size in sizes}
    return sorted({ceil_div(width, size) for size in sizes if (1 if fine else unit // 2) <= size < width})


def slice_counts(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    held: HeldSet,
    accelerator: Accelerator,
    *,
    fine: bool = True,
) -> list[int]:
    """Numbers of slices of channels, more than one, that are tried for some layers in a group where some storages are
    `held` in full, in growing order; none where nothing is computed in slices. If they are not `fine`, slices are whole
    rows of the array."""
    found = runs_of_channels(layers, of, indices, 2, held)
    runs = [run for run in found if run.sliced]
    if len(found) > 1 and found[0].loaded is not None:
        return [count for count in _LOADED if count <= layers[indices[0]].ofm.shape[-1]]
    weighted = [layer for run in runs for index in run.layers if isinstance(layer := layers[index], Weighted)]
    rows = max((rows_at_a_time(one, accelerator) for one in weighted), default=1)
    sizes = [rows * size for size in _SLICES]
    if fine:
        sizes += [rows // parts for parts in _FINER if rows >= 2 * parts]
    return sorted({ceil_div(layers[run.layers[-1]].ofm.shape[-1], size) for run in runs for size in sizes} - {1})
