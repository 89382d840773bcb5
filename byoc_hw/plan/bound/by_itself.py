"""What a convolution by itself, a group of one layer, costs the array and the DMA at least beyond its work once.

It is in stripes, patches or tiles: m tiles of pixels and q of output channels, each over slices of input channels or
over all of them at once. Each tile of pixels loads what its windows see. With pixels outside, each tile of pixels uses
all weights, and each tile of channels all of its input. With channels outside, each tile of channels uses all of the
input, and each tile of pixels all weights of the channels. Nothing is loaded again that local memory holds from one to
the next. Without slices of input channels a tile of pixels is there with all of them, and the weights of a tile of
channels; with slices there are the partial sums of a tile.

The array takes whole groups of outputs for each tile: at least one for each of its channel tiles, and as many as all
pixels and channels fill. A job over all input channels at once has no more weights than weight memory holds, so a tile
of pixels takes as many jobs at least as this holds parts of all weights. In slices each pass over some weights has the
overhead of a group, and so has each pass over a slice of the input. Of this a job has no more than fits beside the
partial sums: x pixels for which s bytes of the input are read, in o output channels, take s / (room - 4 x o) passes.
That is convex in x and in o, so all tiles take no fewer than as many of average size, with the fewest inputs for each
pixel. Each slice comes in a copy of its own, as no more of it is there at a time, but for the one that stays from one
tile of channels to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, prod

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Weighted
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window
from byoc_hw.plan.array.tiling import tile_geometry
from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.bound.halos import sizes
from byoc_hw.plan.bound.ways import Floats, Ints, groups, weight_bytes


def by_itself(layer: Weighted, one: Accelerator, array: float) -> tuple[Floats, Floats]:
    """Of all ways that may be the best, cycles of the array beyond `array`, and those of copies beside all once. If
    `array` is 0, of the copies alone."""
    form = tile_geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    blocks = prod(layer.weights.shape) * layer.weights.bits / 8 / one.weight_memory
    rates = loading_rates(one)
    memories = one.activation_memory, one.weight_memory
    found = []
    for ways in _ways_of(form, layer.ifm.bytes_of(form.ifm_channels), weight_bytes(layer), memories, rates):
        copied = ways.again + one.dma_setup * ways.copies
        if not array:
            found.append((np.zeros(len(copied)), copied))
            continue
        channels = np.maximum(ways.tiles, 1 if ways.sliced else ceil(blocks - 1e-9))
        passes = ways.many * np.maximum(blocks, ways.passes) if ways.sliced else np.zeros(len(copied))
        cycles = np.full(len(copied), inf)
        for some in (groups(layer, one, turned) for turned in (False, True)):
            pixels = ceil_div(form.rows.ofm * form.columns.ofm, some.outputs)
            count = np.maximum(ways.many, pixels) * np.maximum(channels, ceil_div(form.out_channels, some.channels))
            more = np.maximum(passes - count * some.parts, 0.0) * one.job_overhead
            cycles = np.minimum(cycles, count * some.cycles + more)
        found.append((np.maximum(cycles - array, 0.0), copied))
    cycles, copied = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.lexsort((cycles, copied))
    least = np.minimum.accumulate(cycles[order])
    best = order[np.flatnonzero(np.diff(least, prepend=inf) < 0)]
    return cycles[best], copied[best]


def loading_rates(one: Accelerator) -> tuple[float, float]:
    """The least cycles to copy a byte of activations, and of weights: a copy has no more than local memory holds."""
    activations, weights = (
        one.dma_setup / size + 1 / one.dma_width for size in (one.activation_memory, one.weight_memory)
    )
    return activations, weights


@dataclass(frozen=True)
class _Ways:
    """Ways to cut a layer by itself: `many` tiles of pixels, and `tiles` of channels; the fewest cycles to load bytes
    `again`. If they are `sliced`, a tile takes so many `passes` over slices of its input in all channel tiles, and
    there are so many `copies` more than loads of all that local memory holds."""

    sliced: bool
    many: Ints
    tiles: Ints
    again: Floats
    passes: Floats
    copies: Floats


@lru_cache(maxsize=256)
def _ways_of(
    form: Window, pixel: int, weights: float, memories: tuple[int, int], rates: tuple[float, float]
) -> tuple[_Ways, _Ways]:
    """The ways that have room in the local memories, in slices of input channels and over all of them at once; `pixel`
    are the bytes of an input in all channels, `rates` the least cycles to load a byte of the input, and of weights."""
    (room, weight_room), (load, load_weights) = memories, rates
    rows, columns = np.array(_cuts(form.rows)).T, np.array(_cuts(form.columns)).T
    many, pixels, largest, seen, ratio = (
        np.outer(one, other).reshape(-1, 1) for one, other in zip(rows, columns, strict=True)
    )
    tiles = -(-form.out_channels // sizes(form.out_channels))
    outputs = form.out_channels / tiles  # the fewest of each pixel in a tile of channels
    again = (seen - form.rows.ifm * form.columns.ifm) * pixel * load
    beyond = max(weights - weight_room, 0.0) * load_weights
    inside = (tiles - 1) * np.maximum(seen * pixel - room, 0) * load
    inside = inside + (many - 1) * np.maximum(weights - tiles * weight_room, 0) * load_weights
    # In slices of input channels: what stays of the input lies beside the sums of a tile of pixels.
    sums = PSUM_BYTES * form.rows.ofm * form.columns.ofm * outputs
    left = many * room - sums
    outside = (many - 1) * beyond + (tiles - 1) * np.maximum(seen * pixel - left, 0) * load
    fits = PSUM_BYTES * pixels * outputs + largest <= room
    slices = ratio * form.rows.ofm * form.columns.ofm * pixel / np.maximum(left, 1.0)  # of a tile, on average
    copies = many * (tiles * (slices - 1) + 1) - seen * pixel * tiles / room
    sliced = _ways(True, many, tiles, np.where(fits, again + np.minimum(outside, inside), inf), tiles * slices, copies)
    # Over all input channels at once.
    outside, inside = (many - 1) * beyond, np.where(tiles * weight_room >= weights, inside, inf)
    fits = largest * pixel <= room
    nothing = np.zeros(fits.shape)
    return sliced, _ways(False, many, tiles, np.where(fits, again + np.minimum(outside, inside), inf), nothing, nothing)


def _ways(sliced: bool, many: Ints, tiles: Ints, again: Floats, passes: Floats, copies: Floats) -> _Ways:
    """Those that have room."""
    places = np.nonzero(np.isfinite(again))
    shown = (np.broadcast_to(one, again.shape)[places] for one in (many, tiles, again, passes, np.maximum(copies, 0.0)))
    return _Ways(sliced, *shown)


@lru_cache(maxsize=256)
def _cuts(axis: Axis) -> list[tuple[float, ...]]:
    """The ways to cut an axis in tiles of one size, but for the last: for each number of tiles the fewest outputs of a
    whole one, its fewest inputs, and the fewest of all, and the fewest inputs for each output of a tile."""
    if axis.reach == axis.stride == 1 and axis.ifm == axis.ofm:  # no tile sees what another one does
        return [(ceil_div(axis.ofm, size), size, size, axis.ofm, 1) for size in sizes(axis.ofm).tolist()]
    found: dict[int, tuple[float, ...]] = {}
    for size in range(1, axis.ofm + 1):
        tiles = axis.cut(size)
        largest = max(tile.ifm_size for tile in tiles if tile.size == size)
        seen = sum(tile.ifm_size for tile in tiles)
        ratio = min(tile.ifm_size / tile.size for tile in tiles)
        known = found.get(len(tiles), (0, size, largest, seen, ratio))
        fewest = map(min, known[1:], (size, largest, seen, ratio))
        found[len(tiles)] = len(tiles), *fewest
    return list(found.values())
