"""The jobs over one tile of a layer with a window: its blocks of weights, one after the other, and their copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from byoc_hw.accelerator import KernelPart
from byoc_hw.graph import Layer, Weighted
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window, parts_of_kernel
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.weight_blocks import channel_blocks, params_together, part_bytes, staying
from byoc_hw.plan.choices import Blocks, Group
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.flash import WeightBlock
from byoc_hw.plan.work.ops import LocalBuffer, activations
from byoc_hw.plan.work.rows_needed import Span
from byoc_hw.plan.work.units import Unit


class Cut(NamedTuple):
    """What a job computes: output channels, the input channels and the part of the kernel that they sum over, and
    their weights."""

    channel: int
    channels: int
    depth: int
    depths: int
    part: KernelPart
    first: bool
    last: bool
    weights: int
    params: int
    local: dict[str, LocalBuffer]


def blocks_of_sums(layer: Weighted, blocks: Blocks | None, depth: int) -> Blocks:
    """The blocks of weights of a layer that adds up slices of `depth` input channels."""
    known = blocks or Blocks(layer.out_channels, layer.in_channels)
    return Blocks(known.channels, min(known.depth, depth))


class JobCuts:
    """The cuts of the layers `indices` of a group. Its `resident` weights stay once they are there, others until the
    last tile's job that uses them, but for some blocks where the order of blocks is `alternating`."""

    def __init__(self, region: WorkBuilder, group: Group, indices: Sequence[int]) -> None:
        self._region, self._resident = region, group.resident
        cuts = [(region.layers[index], region.choices.blocks[index]) for index in indices]
        stay = staying(cuts, region.accelerator) if group.alternating else [0] * len(cuts)
        self._stay = dict(zip(indices, stay, strict=True))
        self._turn = dict.fromkeys(indices, 1)  # the direction in which the next tile takes the blocks of a layer
        self._kept: dict[WeightBlock, LocalBuffer] = {}
        self._blocks: dict[tuple[int, Span | None], list[tuple[int, int, int, int]]] = {}  # of each layer

    def of_tile(
        self, index: int, layer: Layer, form: Window, unit: Unit, pixels: Span, some: Span | None = None
    ) -> Iterator[Cut]:
        """The jobs over one tile of so many rows and columns, each once its weights are there.

        Of all output channels, or of `some` from the first one on to one that is not included.
        """
        parts = parts_of_kernel(layer, self._region.accelerator)
        low, high = some or (0, layer.ofm.shape[-1])
        if not isinstance(layer, Weighted):
            yield Cut(low, high - low, low, high - low, parts[0], True, True, 0, 0, {})
            return
        region = self._region
        total = layer.in_channels
        blocks = region.choices.blocks[index] or Blocks(layer.out_channels, total)
        sliced = blocks.depth < total
        partial = sliced or len(parts) > 1
        once = params_together(layer, blocks, region.accelerator) == layer.out_channels
        turn, used = self._turn[index], dict[WeightBlock, None]()
        slices = list(linear_chunks(total, blocks.depth))[::turn]
        for start, together, channel, count in self._channels(index, layer, blocks, some)[::turn]:
            behind, many = (0, layer.out_channels) if sliced and once else (start, together)
            params = WeightBlock(index, behind, many, 0, 0, True)
            psum = activations(layer.name, PSUM_BYTES * pixels[0] * pixels[1] * count) if partial else None
            for at, (first, depths) in enumerate(slices, 1):
                block = WeightBlock(index, start, together, first, depths, not sliced)
                used[block] = None
                local = {"weights": self._weights(index, layer, block, unit)}
                local["params"] = self._weights(index, layer, params, unit) if sliced else local["weights"]
                if psum is not None:
                    local["psum"] = psum
                inputs = (form.first_input(channel) + first, depths) if form.sums else (channel, count)
                ends = at == 1, at == len(slices)
                params_at = region.params_at(channel - behind)
                yield from self._of_block(layer, block, (channel, count), inputs, ends, params_at, local)
        if not self._resident:
            stay = set(list(used)[-self._stay[index] :]) if self._stay[index] else set()
            done = [one for one in self._kept if one.layer == index and one.channel + one.channels <= high]
            for one in done:
                if one not in stay and not (stay and not one.depths):  # parameters stay with any block
                    del self._kept[one]
            if 0 < len(stay) < len(used):
                self._turn[index] = -turn

    def of_slice(
        self, index: int, layer: Weighted, form: Window, unit: Unit, some: Span, psums: Sequence[LocalBuffer]
    ) -> Iterator[Cut]:
        """The jobs that add the input channels `some`, from the first one on to one that is not included, to the
        partial sums of a tile. Of these each of `blocks_of_sums` has a buffer."""
        region, accelerator = self._region, self._region.accelerator
        several, total = len(parts_of_kernel(layer, accelerator)) > 1, layer.in_channels
        blocks = blocks_of_sums(layer, region.choices.blocks[index], some[1] - some[0])
        once = params_together(layer, blocks, accelerator) == layer.out_channels
        for (start, count), psum in zip(channel_blocks(layer, blocks), psums, strict=True):
            behind, many = (0, layer.out_channels) if once else (start, count)
            params = WeightBlock(index, behind, many, 0, 0, True)
            for first, depths in linear_chunks(some[1] - some[0], blocks.depth):
                block = WeightBlock(index, start, count, some[0] + first, depths, False)
                local = {"weights": self._weights(index, layer, block, unit)}
                if depths < total or several:
                    local["psum"] = psum
                local["params"] = self._weights(index, layer, params, unit)
                inputs = form.first_input(start) + block.depth, depths
                ends = block.depth == 0, block.depth + depths == total
                params_at = region.params_at(start - behind)
                yield from self._of_block(layer, block, (start, count), inputs, ends, params_at, local)
        if not self._resident:
            done = [one for one in self._kept if one.layer == index and (one.depths or some[1] == total)]
            for one in done:
                del self._kept[one]

    def _of_block(
        self,
        layer: Weighted,
        block: WeightBlock,
        channels: Span,
        inputs: Span,
        ends: tuple[bool, bool],
        params: int,
        local: dict[str, LocalBuffer],
    ) -> Iterator[Cut]:
        """The jobs with a block of weights, one for each part of the kernel. `channels` and `inputs` are the first one
        and their number, `ends` whether the block is the first and the last one of its sums."""
        parts, weights = parts_of_kernel(layer, self._region.accelerator), self._region.flash.weights_at(block)
        for part in parts:
            at = weights + part_bytes(layer, part, channels[0] - block.channel, block.depths)
            first, last = ends[0] and part is parts[0], ends[1] and part is parts[-1]
            yield Cut(*channels, *inputs, part, first, last, at, params, local)
            weights += part_bytes(layer, part, block.channels, block.depths)

    def _channels(
        self, index: int, layer: Weighted, blocks: Blocks, some: Span | None
    ) -> list[tuple[int, int, int, int]]:
        """The channels of each job: those of its block, and its own."""
        if (index, some) not in self._blocks:
            whole = channel_blocks(layer, blocks)
            if some is not None:
                whole = [(some[0] + at, count) for at, count in linear_chunks(some[1] - some[0], blocks.channels)]
            self._blocks[index, some] = [
                (start, together, start + first, count)
                for start, together in whole
                for first, count in linear_chunks(together, layer.group_channels)
            ]
        return self._blocks[index, some]

    def _weights(self, index: int, layer: Weighted, block: WeightBlock, unit: Unit) -> LocalBuffer:
        if block not in self._kept:
            self._kept[block], load = self._region.weights(index, layer, block)
            unit.jobs.append(load)
        return self._kept[block]
