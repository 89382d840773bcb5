"""A planned region, on a HAL or on a library: the interface that the C emitter uses."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.graph import Layer, Lookup
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.steps import FLASH, Copy, RegionPlan

PlannedRegion = RegionPlan | LibraryPlan
"""A region that is ready to be written as C: tile by tile over a HAL, or layer by layer on a library."""


def flash_bytes(region: PlannedRegion) -> int:
    """Bytes of a region's constant data."""
    if isinstance(region, LibraryPlan):
        return region.flash_bytes
    return len(region.flash) + sum(map(_tables_bytes, region.layers))


def flash_by_layer(region: PlannedRegion) -> Iterator[tuple[str, int]]:
    """Each layer of a region that has constant data, and its bytes."""
    if isinstance(region, LibraryPlan):
        yield from region.flash_by_layer()
        return
    tables = {index: _tables_bytes(layer) for index, layer in enumerate(region.layers)}  # counted once
    for call in region.calls:
        blocks = {
            (step.source.offset, step.nbytes)
            for step in call.steps
            if isinstance(step, Copy) and step.source.space == FLASH
        }
        nbytes = sum(nbytes for _, nbytes in blocks) + tables.pop(call.index, 0)
        if nbytes:
            yield region.layers[call.index].name, nbytes


def _tables_bytes(layer: Layer) -> int:
    """Bytes of the tables that a layer's descriptor points to."""
    return layer.tables.nbytes if isinstance(layer, Lookup) else 0
