"""The choices of a region carried out, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_hw.errors import PlanError
from byoc_hw.graph import Transpose
from byoc_hw.plan.storage import can_tile
from byoc_hw.plan.stripes import stripes
from byoc_hw.plan.tiled import tiled
from byoc_hw.plan.work import Region, Work, in_order


def region_work(region: Region) -> Work:
    """All copies and jobs of a region. Raises `PlanError` where its choices cannot be carried out."""
    first = 0
    for number, group in enumerate(region.choices.groups):
        indices = [i for i in range(first, first + group.layers) if region.mapping.works(i)]
        first += group.layers
        for storage in [one for one in region.held if one.index not in group.whole]:
            del region.held[storage], region.loaded[storage]
        if not indices:
            continue
        kinds = {region.layers[i].kind for i in indices}
        if group.tiling is not None or "transpose" in kinds:
            _check_alone(region, indices, group.whole)
            layer = region.layers[indices[0]]
            if isinstance(layer, Transpose):
                region.transpose(indices[0], layer, number)
            else:
                tiled(region, number, indices[0])
        else:
            stripes(region, number, indices)
    region.pass_through()
    return Work(tuple(in_order(region.units)), region.homes, region.accelerator.dma_alignment)


def _check_alone(region: Region, indices: Sequence[int], whole: frozenset[int]) -> None:
    """A tiling, and a transposition, is of one layer, from main memory to main memory."""
    layer = region.layers[indices[0]]
    inputs, ofm = [region.storages.of[tensor] for tensor in layer.inputs], region.storages.of[layer.ofm]
    inside = any(one.index in whole for one in (*inputs, ofm)) or any(one not in region.homes for one in inputs)
    if len(indices) != 1 or inside or not can_tile(layer, region.storages.of):
        raise PlanError(f"{layer.name}: a layer by itself is computed from main memory to main memory")
