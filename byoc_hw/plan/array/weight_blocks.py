"""A layer's weights in blocks that are loaded one by one: the cheapest cut, and the bytes of each block."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, piece_sizes, round_up
from byoc_hw.limits import KernelPart
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.array.alike_layer import without_values
from byoc_hw.plan.array.cost import copy_cycles, flat, is_pointwise
from byoc_hw.plan.array.kinds import (
    PSUM_BYTES,
    Geometry,
    Product,
    Run,
    geometry,
    job_cycles,
    parts_of_kernel,
    product_cycles,
    rows_at_a_time,
)
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.plan.choices import Blocks

_PARAMS_SHARE = 4
"""The part of the weight memory that the parameters of all channels of a layer may take: one of so many."""

SHARES = (3, 2, 1)
"""Numbers of blocks in the weight memory at once, the preferred one first: one in use, the others being loaded."""


def cut(layer: Layer, accelerator: Accelerator, share: int | None = None) -> Blocks | None:
    """The blocks of a layer, None for one block (or no weights).

    Of the cuts of which `share` blocks fit the weight memory at once (by default as many of `SHARES` as
    possible) the one that costs the fewest cycles of jobs and of copies, counted one after the other.
    """
    if not isinstance(layer, Weighted):
        return None
    known = layer.kind, layer.weights.bits, geometry(layer), extents(layer.ofm)
    return _cut(_Alike(without_values(layer), *known), accelerator, share)


def cut_without_sums(layer: Layer, accelerator: Accelerator) -> Blocks | None:
    """The same with blocks of all input channels, of which two or one fit at once: local memory has no partial sums.
    Those of `cut` where no such block fits."""
    found = cut(layer, accelerator)
    if not isinstance(layer, Weighted) or found is None or found.depth == layer.in_channels:
        return found
    deep = [blocks for blocks in _candidates(layer, accelerator) if blocks.depth == layer.in_channels]
    possible = _Possible(layer, accelerator, (Blocks(layer.out_channels, layer.in_channels), *deep))
    fitting = (possible.cheapest(part) for part in SHARES[1:])
    return next((blocks for blocks in fitting if blocks is not None), found)


@dataclass(frozen=True)
class _Alike:
    """A layer without its values; of layers whose weights are cut alike any equals the others."""

    layer: Weighted = field(compare=False)
    kind: str
    bits: int
    form: Geometry
    ofm: Extents


@lru_cache(maxsize=1024)
def _cut(alike: _Alike, accelerator: Accelerator, share: int | None) -> Blocks | None:
    possible = _possible(alike, accelerator)
    shares = [part for part in SHARES if part in accelerator.tuning.weight_shares]
    for part in shares if share is None else (share,):
        if possible.fits(0, part):
            return None  # one block costs the least
        found = possible.cheapest(part)
        if found is not None:
            return found
    return Blocks(1, 1)


@lru_cache(maxsize=256)
def _possible(alike: _Alike, accelerator: Accelerator) -> _Possible:
    layer = alike.layer
    whole = Blocks(layer.out_channels, layer.in_channels)
    return _Possible(layer, accelerator, (whole, *_candidates(layer, accelerator)))


class _Possible:
    """Blocks that a layer may have, the first of which is the whole layer, and what is known of them by their place."""

    def __init__(self, layer: Weighted, accelerator: Accelerator, blocks: Sequence[Blocks]) -> None:
        self._layer, self._accelerator, self._blocks = layer, accelerator, blocks
        self._jobs = tile_cycles(layer, blocks[0], extents(layer.ofm), accelerator)
        self._copies = [_copies(layer, one) for one in blocks]
        self._by_copies = sorted(range(len(blocks)), key=self._copies.__getitem__)
        self._room: dict[int, tuple[int, int]] = {}
        self._cycles: dict[int, int] = {}

    def cheapest(self, part: int) -> Blocks | None:
        """The first of the blocks that cost the fewest cycles, of those of which `part` fit the weight memory at once;
        None where none do. Those with the fewest copies are looked at first: others have no fewer cycles of jobs than
        one block, and to begin more copies costs too much soon."""
        first = next((at for at in range(len(self._blocks)) if self.fits(at, part)), None)
        if first is None:
            return None
        best = self._cycles_of(first), first
        for at in self._by_copies:
            if self._jobs + self._copies[at] * self._accelerator.dma_setup > best[0]:
                break
            if self.fits(at, part):
                best = min(best, (self._cycles_of(at), at))
        return self._blocks[best[1]]

    def fits(self, at: int, part: int) -> bool:
        """Whether `part` blocks fit the weight memory at once."""
        if at not in self._room:
            self._room[at] = most_bytes(self._layer, self._blocks[at], self._accelerator)
        return _fit(self._room[at], part, self._accelerator)

    def _cycles_of(self, at: int) -> int:
        if at not in self._cycles:
            self._cycles[at] = _cycles(self._layer, self._blocks[at], self._accelerator)
        return self._cycles[at]


def _copies(layer: Weighted, blocks: Blocks) -> int:
    """The number of blocks."""
    return sum(many for many, _ in _pieces(layer, blocks)) * ceil_div(layer.in_channels, blocks.depth)


def channel_blocks(layer: Weighted, blocks: Blocks) -> list[tuple[int, int]]:
    """The first output channel of each block, and their number: a part of a group, or whole groups in full depth."""
    span, channels = _span(layer, blocks)
    return [
        (start + first, count)
        for start in range(0, layer.out_channels, span)
        for first, count in linear_chunks(span, channels)
    ]


def _pieces(layer: Weighted, blocks: Blocks) -> list[tuple[int, int]]:
    """How many of `channel_blocks` have each number of channels."""
    span, channels = _span(layer, blocks)
    return [(layer.out_channels // span * many, size) for many, size in piece_sizes(span, channels)]


def _span(layer: Weighted, blocks: Blocks) -> tuple[int, int]:
    """The channels that are cut into blocks by themselves, and those of a block."""
    group = layer.group_channels
    if blocks.channels < group or blocks.depth < layer.in_channels:
        return group, min(blocks.channels, group)
    return layer.out_channels, blocks.channels // group * group


def part_bytes(layer: Weighted, part: KernelPart, channels: int, depths: int) -> int:
    """Bytes of the packed weights of `channels` output channels with `depths` input channels each: a part of them."""
    return channels * packed_channel_bytes(prod(part.size) * depths, layer.weights.bits)


def weights_bytes(layer: Weighted, channels: int, depths: int, accelerator: Accelerator) -> int:
    """Bytes of packed weights, one part of the kernel behind the other."""
    return sum(part_bytes(layer, part, channels, depths) for part in parts_of_kernel(layer, accelerator))


def most_bytes(layer: Weighted, blocks: Blocks, accelerator: Accelerator) -> tuple[int, int]:
    """Bytes of a layer's largest block, and of the parameters beside it in local memory."""
    unit, step = accelerator.buffer_alignment, accelerator.dma_alignment
    weights = weights_bytes(layer, blocks.channels, blocks.depth, accelerator)
    if blocks.depth < layer.in_channels:
        channels = params_together(layer, blocks.channels, accelerator.weight_memory)
        return round_up(weights, step), round_up(round_up(PARAMS_BYTES * channels, step), unit)
    return round_up(round_up(PARAMS_BYTES * blocks.channels, unit) + weights, step), 0


def params_together(layer: Weighted, channels: int, room: int) -> int:
    """The most output channels whose parameters are loaded at once, where blocks of so many channels are slices of
    input channels: all, but for those of a block where that would leave too little to the weights in a weight memory of
    `room` bytes."""
    if PARAMS_BYTES * layer.out_channels * _PARAMS_SHARE <= room:
        return layer.out_channels
    return min(channels, layer.group_channels)


def fits(layer: Weighted, blocks: Blocks, part: int, accelerator: Accelerator) -> bool:
    """Whether `part` blocks fit the weight memory at once."""
    return _fit(most_bytes(layer, blocks, accelerator), part, accelerator)


def fits_often(layer: Weighted, accelerator: Accelerator) -> bool:
    """Whether all weights of a layer fit the weight memory as often as the planner ever asks for: then no blocks have a
    part of the input channels alone for want of room."""
    most = max(*SHARES, *accelerator.tuning.weight_shares)
    return fits(layer, Blocks(layer.out_channels, layer.in_channels), most, accelerator)


def _fit(most: tuple[int, int], part: int, accelerator: Accelerator) -> bool:
    """Whether `part` blocks fit the weight memory, each of so `most` bytes, and the parameters beside them."""
    return part * round_up(most[0], accelerator.buffer_alignment) + most[1] <= accelerator.weight_memory


def all_bytes(layer: Layer, blocks: Blocks | None, accelerator: Accelerator) -> int:
    """Bytes of local memory that all blocks of a layer take."""
    if not isinstance(layer, Weighted):
        return 0
    unit = accelerator.buffer_alignment
    return sum(count * round_up(nbytes, unit) for nbytes, count in block_sizes(layer, blocks, accelerator))


def load_cycles(layer: Layer, blocks: Blocks | None, accelerator: Accelerator) -> int:
    """Cycles of the copies of a layer's weights."""
    if not isinstance(layer, Weighted):
        return 0
    copies = block_sizes(layer, blocks, accelerator)
    return sum(count * copy_cycles(nbytes, 1, accelerator) for nbytes, count in copies)


def block_sizes(layer: Weighted, blocks: Blocks | None, accelerator: Accelerator) -> list[tuple[int, int]]:
    """The sizes of the copies of a layer's weights in bytes, and how many copies have each size."""
    unit, step = accelerator.buffer_alignment, accelerator.dma_alignment
    total = layer.in_channels
    blocks = blocks or Blocks(layer.out_channels, total)
    sliced = blocks.depth < total
    together = params_together(layer, blocks.channels, accelerator.weight_memory)
    once = sliced and together == layer.out_channels
    found = [(round_up(PARAMS_BYTES * layer.out_channels, step), 1)] if once else []
    for many, channels in _pieces(layer, blocks):
        if sliced and not once:
            found.append((round_up(PARAMS_BYTES * channels, step), many))
        params = 0 if sliced else round_up(PARAMS_BYTES * channels, unit)
        for times, depths in piece_sizes(total, blocks.depth):
            found.append((round_up(params + weights_bytes(layer, channels, depths, accelerator), step), many * times))
    return found


_AT_A_TIME = 2
"""Blocks of a layer that have room beside those that stay: one in use, the other being loaded."""


class LocalBlocks(NamedTuple):
    """Bytes of local memory of each block of a layer, with its parameters if these come with it, and of the parameters
    that lie `beside` them. A layer without weights has no blocks. `turned` says whether they come in exactly the
    reverse order in every second stripe, where they come in alternating order."""

    sizes: tuple[int, ...]
    beside: int
    turned: bool = True


def local_blocks(layer: Layer, blocks: Blocks | None, accelerator: Accelerator) -> LocalBlocks:
    """What the weights of a layer take in local memory."""
    if not isinstance(layer, Weighted):
        return LocalBlocks((), 0)
    beside = 0 if blocks is None else most_bytes(layer, blocks, accelerator)[1]
    unit, total = accelerator.buffer_alignment, layer.in_channels
    blocks = blocks or Blocks(layer.out_channels, total)
    sliced = blocks.depth < total
    sizes = tuple(
        round_up(weights_bytes(layer, channels, depths, accelerator), unit)
        + (0 if sliced else round_up(PARAMS_BYTES * channels, unit))
        for _, channels in channel_blocks(layer, blocks)
        for _, depths in linear_chunks(total, blocks.depth)
    )
    return LocalBlocks(sizes, beside)


def blocks_of_sums(layer: Weighted, blocks: Blocks | None, depth: int) -> Blocks:
    """The blocks of weights of a layer that adds up slices of `depth` input channels."""
    known = blocks or Blocks(layer.out_channels, layer.in_channels)
    return Blocks(known.channels, min(known.depth, depth))


class WeightRun(NamedTuple):
    """Layers of a group that are computed together, by index: for each of the `slices` of channels, if there are any,
    one after the other. The last one may add up what the others make of them (`adds`)."""

    layers: tuple[int, ...]
    slices: tuple[int, ...] = ()
    adds: bool = False


def run_blocks(
    run: WeightRun, layers: Sequence[Layer], blocks: Sequence[Blocks | None], accelerator: Accelerator
) -> LocalBlocks:
    """What the weights of a run take in local memory: its blocks in the order in which they are used."""
    if not run.slices:
        (index,) = run.layers
        return local_blocks(layers[index], blocks[index], accelerator)
    sizes, beside = list[int](), 0
    for number, size in enumerate(run.slices):
        for index in run.layers:
            layer = layers[index]
            if not isinstance(layer, Weighted):
                continue
            adding = run.adds and index == run.layers[-1]
            found = _of_slice(layer, blocks[index], size, adding, accelerator)
            sizes += found.sizes
            beside += found.beside if number == 0 else 0
    weighted = sum(isinstance(layers[index], Weighted) for index in run.layers)
    return LocalBlocks(tuple(sizes), beside, turned=weighted == 1 and not run.adds)  # slices are turned, not layers


def _of_slice(layer: Weighted, blocks: Blocks | None, size: int, adding: bool, accelerator: Accelerator) -> LocalBlocks:
    """What the weights of a layer take for a slice of so many output channels, or of input channels that it is
    `adding`."""
    unit, known = accelerator.buffer_alignment, blocks or Blocks(layer.out_channels, layer.in_channels)
    if adding:
        known = blocks_of_sums(layer, blocks, size)
        channels, total = [count for _, count in channel_blocks(layer, known)], size
    else:
        channels, total = [count for _, count in linear_chunks(size, known.channels)], layer.in_channels
    apart = adding or known.depth < total
    sizes = tuple(
        round_up(weights_bytes(layer, count, depths, accelerator), unit)
        + (0 if apart else round_up(PARAMS_BYTES * count, unit))
        for count in channels
        for _, depths in linear_chunks(total, known.depth)
    )
    return LocalBlocks(sizes, round_up(PARAMS_BYTES * layer.out_channels, unit) if apart else 0)


def staying(runs: Sequence[LocalBlocks], accelerator: Accelerator) -> list[int]:
    """How many blocks of each run of a group can stay in weight memory from one stripe, or patch, to the next: all of
    those of the smallest, and as many of the last ones as fit of the others, beside two that are in use or being
    loaded. The blocks of the only run that does not stay as a whole need no room beside those that stay: in the reverse
    order each of them is used up before one is loaded that takes its place."""
    sizes, beside = [one.sizes for one in runs], [one.beside for one in runs]
    order = sorted((at for at, found in enumerate(sizes) if found), key=lambda at: sum(sizes[at]))
    found, room = [0] * len(runs), accelerator.weight_memory

    def in_turn(at: int) -> int:
        return _AT_A_TIME * max(sizes[at]) + beside[at]

    for number, at in enumerate(order):
        whole, sums = sum(sizes[at]) + beside[at], _last_blocks(sizes[at])
        others = [one for one in order[:number] if found[one] < len(sizes[one])] + order[number + 1 :]
        others_turn = max(map(in_turn, others), default=0)
        if whole + others_turn <= room:
            found[at] = len(sizes[at])
            room -= whole
            continue
        own_turn = in_turn(at) if others or not runs[at].turned else beside[at]
        found[at] = bisect_right(sums, room - max(others_turn + beside[at], own_turn))
        if found[at]:
            room -= sums[found[at] - 1] + beside[at]
    return found


def _last_blocks(sizes: Sequence[int]) -> list[int]:
    """The bytes of one or more blocks, but not all, at the end or at the beginning, whichever are larger."""
    return [max(both) for both in zip(accumulate(sizes), accumulate(sizes[::-1]), strict=True)][:-1]


def psum_bytes(layer: Layer, blocks: Blocks | None, pixels: int, accelerator: Accelerator) -> int:
    """Bytes of partial sums while `pixels` pixels of a layer are computed."""
    if not isinstance(layer, Weighted):
        return 0
    blocks = blocks or Blocks(layer.out_channels, layer.in_channels)
    if blocks.depth >= layer.in_channels and len(parts_of_kernel(layer, accelerator)) == 1:
        return 0
    return PSUM_BYTES * pixels * min(blocks.channels, layer.group_channels)


def tile_cycles(layer: Layer, blocks: Blocks | None, ofm: Extents, accelerator: Accelerator) -> int:
    """Cycles of all jobs that compute all channels of a tile of a layer's output."""
    if not isinstance(layer, Weighted):
        form = geometry(layer)
        if isinstance(form, Product):
            return product_cycles(layer, form, ofm[0], accelerator)
        shape = form.shape(prod(ofm)) if isinstance(form, Run) else ofm
        return job_cycles(layer, shape, shape, accelerator)
    total, pixels = layer.in_channels, ofm
    blocks = blocks or Blocks(layer.out_channels, total)
    if is_pointwise(layer):
        pixels = min(ofm, flat(ofm), key=lambda shape: shape[0] * ceil_div(shape[1], accelerator.array_columns))
    cycles = 0
    for many, together in _pieces(layer, blocks):
        for jobs, channels in piece_sizes(together, layer.group_channels):
            for times, depths in piece_sizes(total, blocks.depth):
                shape, made = (pixels[0], pixels[1], depths), (pixels[0], pixels[1], channels)
                cycles += many * jobs * times * job_cycles(layer, shape, made, accelerator)
    return cycles


def _candidates(layer: Weighted, accelerator: Accelerator) -> Iterator[Blocks]:
    rows, total = rows_at_a_time(layer, accelerator), layer.in_channels
    groups = ceil_div(layer.out_channels, rows)
    channels = {
        min(layer.out_channels, rows * ceil_div(groups, parts)) for parts in (*range(1, 9), 12, 16, 24, 32, groups)
    }
    channels |= {size for shift in range(1, rows.bit_length()) if (size := rows >> shift) <= layer.out_channels}
    depths = {ceil_div(total, parts) for parts in (*range(1, 9), 12, 16, 24, 32, 48, 64, 128, total)}
    for count in sorted(channels, reverse=True):
        for depth in sorted(depths, reverse=True):
            yield Blocks(count, depth)


def _cycles(layer: Weighted, blocks: Blocks, accelerator: Accelerator) -> int:
    height, width, channels = extents(layer.ofm)
    jobs = tile_cycles(layer, blocks, (height, width, channels), accelerator)
    return jobs + load_cycles(layer, blocks, accelerator)
