"""A planned region, on a HAL or on a library: the interface that the C emitter uses."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.graph import Layer, Lookup, Weighted
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.chip_plan import ChipPlan, Part, plan_of_one, works_alone
from byoc_hw.plan.compact import compact, most_compact_bytes
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.steps import Copy, Job, RegionPlan

PlannedRegion = RegionPlan | LibraryPlan | ChipPlan
"""A region that is ready to be written as C: tile by tile over one HAL or several, or layer by layer on a library."""


TABLES = "tables of copies, tiles and steps"
"""The owner of flash that no layer has by itself."""

_COPY_BYTES, _TILE_BYTES, _STEP_BYTES = 32, 72, 4
"""Sizes of `hwlib_copy_t`, `hwlib_tile_t` and `hwlib_step_t` on a core of 32 bits."""


def table_bytes(region: PlannedRegion) -> int:
    """Bytes of flash of a region's tables of copies, tiles and steps, on a core of 32 bits; rows are shared."""
    if isinstance(region, LibraryPlan):
        return 0
    if isinstance(region, RegionPlan):
        return compact(region).nbytes
    if works_alone(region):
        return compact(plan_of_one(region)).nbytes
    return sum(_wide_bytes(part.plan) for part in region.parts)


def most_table_bytes(region: PlannedRegion) -> int:
    """No fewer bytes than `table_bytes`; of a region on one HAL they are counted without making the tables."""
    return most_compact_bytes(region) if isinstance(region, RegionPlan) else table_bytes(region)


def _wide_bytes(plan: RegionPlan) -> int:
    """Bytes of the tables of a part on a chip: all copies and tiles are rows."""
    copies, tiles = set(), set()
    for step in plan.steps:
        if isinstance(step, Copy):
            strides = (step.target_stride, step.source_stride) if step.rows > 1 else (0, 0)
            copies.add((step.target, step.source, step.nbytes, step.rows, *strides))
        elif isinstance(step, Job):
            tiles.add(step._replace(slot=0, image=None))
    return _COPY_BYTES * len(copies) + _TILE_BYTES * len(tiles) + _STEP_BYTES * len(plan.steps)


def flash_bytes(region: PlannedRegion) -> int:
    """Bytes of a region's constant data."""
    if isinstance(region, LibraryPlan):
        return region.flash_bytes
    if isinstance(region, ChipPlan):
        return sum(map(_bytes_of_part, region.parts))
    return len(region.flash) + sum(map(_tables_bytes, region.layers))


def flash_owners(region: PlannedRegion) -> dict[str, int]:
    """Bytes of flash by layer, of what no single layer has, and of the tables."""
    owners = constants_by_layer(region)
    if isinstance(region, ChipPlan):
        for part in region.parts:
            for one in part.prepared:
                owners[one.layer.name] = owners.get(one.layer.name, 0) + one.flash_bytes
    owners = {layer: nbytes for layer, nbytes in owners.items() if nbytes}
    return owners | {"shared constants": flash_bytes(region) - sum(owners.values()), TABLES: table_bytes(region)}


def constants_by_layer(region: PlannedRegion) -> dict[str, int]:
    """Bytes of packed weights and parameters, and of tables, that each layer of a region has in flash once."""
    if isinstance(region, LibraryPlan):
        return dict(region.flash_by_layer())
    found: dict[str, int] = {}
    for layer in _tiled_layers(region):
        nbytes = _tables_bytes(layer)
        if isinstance(layer, Weighted):
            channel = packed_channel_bytes(layer.weights.elements // layer.out_channels, layer.weights.bits)
            nbytes += layer.out_channels * (channel + PARAMS_BYTES)
        found[layer.name] = found.get(layer.name, 0) + nbytes
    return found


def narrow_weights(region: PlannedRegion) -> dict[str, tuple[int, int]]:
    """The layers of a region with weights of fewer than 8 bits: these bits, and the bytes that they save against 8."""
    found: dict[str, tuple[int, int]] = {}
    for layer in _tiled_layers(region):
        if isinstance(layer, Weighted) and layer.weights.bits < 8:
            bits, saved = found.get(layer.name, (0, 0))
            channel = packed_channel_bytes(layer.weights.elements // layer.out_channels, layer.weights.bits)
            saved += layer.weights.elements - layer.out_channels * channel
            found[layer.name] = max(bits, layer.weights.bits), saved
    return found


def _tiled_layers(region: PlannedRegion) -> Iterator[Layer]:
    if isinstance(region, RegionPlan):
        yield from region.layers
    elif isinstance(region, ChipPlan):
        for part in region.parts:
            if not part.prepared:
                yield from _tiled_layers(part.plan)


def _bytes_of_part(part: Part) -> int:
    if not part.prepared:
        return flash_bytes(part.plan)
    constants = (tensor.data for tensor in part.plan.graph.tensors if tensor.data is not None)
    return sum(one.flash_bytes for one in part.prepared) + sum(data.nbytes for data in constants)


def _tables_bytes(layer: Layer) -> int:
    """Bytes of the tables that a layer's descriptor points to."""
    return layer.tables.nbytes if isinstance(layer, Lookup) else 0
