"""Carries out the choices of a region, group by group: in stripes, in tiles, or as copies only."""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import inf

from byoc_hw.errors import PlanError
from byoc_hw.graph import Moving, Transpose
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import can_tile, needs_all_of
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.moved import moved
from byoc_hw.plan.work.patches import patches
from byoc_hw.plan.work.pieces import units_in_pieces
from byoc_hw.plan.work.stripes import stripes
from byoc_hw.plan.work.tiles import tiled
from byoc_hw.plan.work.units import Busy, Work, in_order, starts_of
from byoc_hw.plan.work.whole import whole_layers


def region_work(
    mapped: MappedGraph,
    choices: Choices,
    some: Container[int] | None = None,
    most: float = inf,
    below: float = inf,
) -> tuple[Work, FlashImage]:
    """All copies and jobs of a region, or those of `some` of its groups, and its constant data. Raises `PlanError`
    where its choices cannot be carried out, or there are more than `most` copies and jobs, or an engine is busy for
    `below` cycles or more."""
    if mapped.whole:
        work, flash = whole_layers(mapped)
        Busy().with_ops(work.ops).check(mapped.graph.name, most, below)
        return work, flash
    region = WorkBuilder(mapped, choices, most, below)
    put_together = [one for one in region.storages.all if one.parts or one.gathered or one.view]
    for number, (group, span) in enumerate(zip(choices.groups, choices.spans, strict=True)):
        indices = [i for i in range(*span) if region.mapping.works(i)]
        for storage in [one for one in region.held if one.index not in group.held]:
            del region.held[storage], region.loaded[storage]
        if not indices or (some is not None and number not in some):
            continue
        for storage in put_together:
            if needs_all_of(storage, indices):
                raise PlanError(f"{storage.name}: what is put together in main memory is read by a later group")
        copied = next((layer for i in indices if isinstance(layer := region.layers[i], Moving)), None)
        if copied is not None or group.tiling is not None:
            _check_alone(region, indices, group.held)
        if copied is not None:
            moved(region, number, indices[0], copied)
        elif group.tiling is not None:
            tiled(region, number, indices[0], group.tiling)
        elif group.patched:
            patches(region, number, indices)
        else:
            stripes(region, number, indices)
    if some is None:
        region.pass_through()
    units = units_in_pieces(region.units, choices.groups, region.layers, region.accelerator)
    alignment = region.accelerator.dma_alignment
    ops = tuple(in_order(units))
    if units is not region.units:  # in pieces there are more
        Busy().with_ops(ops).check(mapped.graph.name, most, below)
    return Work(ops, region.homes, alignment, starts_of(units)), region.flash


def _check_alone(region: WorkBuilder, indices: Sequence[int], held: frozenset[int]) -> None:
    """Check that a tiling, or a layer without jobs, is by itself, from main memory to main memory."""
    layer = region.layers[indices[0]]
    inputs, ofm = [region.storages.of[tensor] for tensor in layer.inputs], region.storages.of[layer.ofm]
    inside = any(one.index in held for one in (*inputs, ofm)) or any(one not in region.homes for one in inputs)
    anywhere = isinstance(layer, Moving) and not isinstance(layer, Transpose)  # also in another order
    if len(indices) != 1 or inside or not (anywhere or can_tile(layer, region.storages.of)):
        raise PlanError(f"{layer.name}: a layer by itself is computed from main memory to main memory")
