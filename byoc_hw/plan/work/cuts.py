"""The jobs over one tile of a layer with a window: its blocks of weights, one after the other, and their copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc_hw.graph import Layer, Weighted
from byoc_hw.limits import KernelPart
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window, parts_of_kernel
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.weight_blocks import (
    WeightRun,
    blocks_of_sums,
    channel_blocks,
    params_together,
    part_bytes,
    run_blocks,
    staying,
)
from byoc_hw.plan.choices import Blocks, Group
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.flash import WeightBlock
from byoc_hw.plan.work.ops import LocalBuffer, activations
from byoc_hw.plan.work.rows_needed import Span
from byoc_hw.plan.work.units import Unit


class Cut(NamedTuple):
    """What a job computes: output channels, the input channels and the part of the kernel that they sum over, and
    the offsets of their weights and parameters in their buffers."""

    channel: int
    channels: int
    depth: int
    depths: int
    part: KernelPart
    first: bool
    last: bool
    weights: int
    params: int


CutOnBuffers = tuple[Cut, Mapping[str, LocalBuffer]]
"""What a job computes, and the buffers of its weights and partial sums, by the field of the job."""


SumEnds = tuple[bool, bool]
"""Whether something is the first, and the last, that is added to partial sums."""


@dataclass
class _Turns:
    """How many blocks of some layers stay from tile to tile, the direction in which the next one takes them, and those
    that this one has used so far."""

    stay: int
    direction: int = 1
    used: dict[WeightBlock, None] = field(default_factory=dict)


class _BlockCuts(NamedTuple):
    """A block of weights, the one with its parameters, which may be itself, and the jobs with it."""

    block: WeightBlock
    params: WeightBlock
    cuts: tuple[Cut, ...]


class _ChannelCuts(NamedTuple):
    """Some output channels of a layer: their number, and the blocks that they sum over."""

    channels: int
    blocks: tuple[_BlockCuts, ...]


class JobCuts:
    """The cuts of the layers of a group, in `runs` of layers that are computed together. Its `resident` weights stay
    once they are there, others until a tile of their run is done, but for some blocks where the order of blocks is
    `alternating`: those that were used last stay."""

    def __init__(self, region: WorkBuilder, group: Group, runs: Sequence[WeightRun]) -> None:
        self._region, self._resident = region, group.resident
        stay = [0] * len(runs)
        if group.alternating:
            known = [run_blocks(run, region.layers, region.choices.blocks, region.accelerator) for run in runs]
            stay = staying(known, region.accelerator)
        states = [_Turns(some) for some in stay]
        self._turns = {index: turns for run, turns in zip(runs, states, strict=True) for index in run.layers}
        self._kept: dict[WeightBlock, LocalBuffer] = {}
        self._known = region.mapped.shared(_known_cuts)

    def turn(self, index: int) -> int:
        """The direction in which the next tile takes the blocks of a layer: 1, or -1 for the reverse order."""
        return self._turns[index].direction

    def done(self, index: int) -> None:
        """A tile is done of the layers that are computed with this one: the next one may take the reverse order."""
        turns = self._turns[index]
        if self._resident:
            return
        stay = set(list(turns.used)[-turns.stay :]) if turns.stay else set()
        for one in [one for one in self._kept if self._turns[one.layer] is turns]:
            if one not in stay and not (stay and not one.depths):  # parameters stay with any block
                del self._kept[one]
        if 0 < len(stay) < len(turns.used):
            turns.direction = -turns.direction
        turns.used.clear()

    def of_tile(
        self, index: int, layer: Layer, form: Window, unit: Unit, pixels: Span, some: Span | None = None
    ) -> Iterator[CutOnBuffers]:
        """The jobs over one tile of so many rows and columns, each once its weights are there.

        Of all output channels, or of `some` from the first one on to one that is not included.
        """
        low, high = some or (0, layer.ofm.shape[-1])
        if not isinstance(layer, Weighted):
            part = parts_of_kernel(layer, self._region.accelerator)[0]
            yield Cut(low, high - low, low, high - low, part, True, True, 0, 0), {}
            return
        for count, blocks in self._channel_cuts(index, layer, form, some, self.turn(index)):
            partial = not (blocks[0].cuts[0].first and blocks[0].cuts[0].last)
            psum = activations(layer.name, PSUM_BYTES * pixels[0] * pixels[1] * count) if partial else None
            for block, params, cuts in blocks:
                local = {"weights": self._weights(index, layer, block, unit)}
                local["params"] = local["weights"] if params is block else self._weights(index, layer, params, unit)
                if psum is not None:
                    local["psum"] = psum
                for cut in cuts:
                    yield cut, local

    def of_slice(
        self,
        index: int,
        layer: Weighted,
        form: Window,
        unit: Unit,
        some: Span,
        ends: SumEnds,
        psums: Sequence[LocalBuffer],
    ) -> Iterator[CutOnBuffers]:
        """The jobs that add the input channels `some`, from the first one on to one that is not included, to the
        partial sums of a tile. Of these each of `blocks_of_sums` has a buffer. `ends` says whether they are the first
        and the last ones that are added."""
        region, accelerator = self._region, self._region.accelerator
        several, total = len(parts_of_kernel(layer, accelerator)) > 1, layer.in_channels
        blocks = blocks_of_sums(layer, region.choices.blocks[index], some[1] - some[0])
        once = params_together(layer, blocks.channels, accelerator.weight_memory) == layer.out_channels
        for (start, count), psum in zip(channel_blocks(layer, blocks), psums, strict=True):
            behind, many = (0, layer.out_channels) if once else (start, count)
            params = WeightBlock(index, behind, many, 0, 0, True)
            chunks = list(linear_chunks(some[1] - some[0], blocks.depth))
            for at, (first, depths) in enumerate(chunks, 1):
                block = WeightBlock(index, start, count, some[0] + first, depths, False)
                local = {"weights": self._weights(index, layer, block, unit)}
                if depths < total or several:
                    local["psum"] = psum
                local["params"] = self._weights(index, layer, params, unit)
                inputs = form.first_input(start) + block.depth, depths
                both = ends[0] and at == 1, ends[1] and at == len(chunks)
                params_at = region.params_at(start - behind)
                for cut in self._of_block(layer, block, (start, count), inputs, both, params_at):
                    yield cut, local

    def _channel_cuts(
        self, index: int, layer: Weighted, form: Window, some: Span | None, turn: int
    ) -> Sequence[_ChannelCuts]:
        """The jobs over any tile of a layer, of all output channels or of `some`. With `turn` -1 in reverse order."""
        blocks = self._region.choices.blocks[index] or Blocks(layer.out_channels, layer.in_channels)
        key = index, blocks, some, turn
        if key not in self._known:
            self._known[key] = list(self._cuts_of(index, layer, form, blocks, some, turn))
        return self._known[key]

    def _cuts_of(
        self, index: int, layer: Weighted, form: Window, blocks: Blocks, some: Span | None, turn: int
    ) -> Iterator[_ChannelCuts]:
        region, total = self._region, layer.in_channels
        sliced = blocks.depth < total
        once = params_together(layer, blocks.channels, region.accelerator.weight_memory) == layer.out_channels
        slices = list(linear_chunks(total, blocks.depth))[::turn]
        for start, together, channel, count in _channels(layer, blocks, some)[::turn]:
            behind, many = (0, layer.out_channels) if sliced and once else (start, together)
            params = WeightBlock(index, behind, many, 0, 0, True)
            found = []
            for at, (first, depths) in enumerate(slices, 1):
                block = WeightBlock(index, start, together, first, depths, not sliced)
                inputs = (form.first_input(channel) + first, depths) if form.sums else (channel, count)
                ends = at == 1, at == len(slices)
                params_at = region.params_at(channel - behind)
                cuts = tuple(self._of_block(layer, block, (channel, count), inputs, ends, params_at))
                found.append(_BlockCuts(block, params if sliced else block, cuts))
            yield _ChannelCuts(count, tuple(found))

    def _of_block(
        self, layer: Weighted, block: WeightBlock, channels: Span, inputs: Span, ends: SumEnds, params: int
    ) -> Iterator[Cut]:
        """The jobs with a block of weights, one for each part of the kernel. `channels` and `inputs` are the first one
        and their number, `ends` whether the block is the first and the last one of its sums."""
        parts, weights = parts_of_kernel(layer, self._region.accelerator), self._region.flash.weights_at(block)
        for part in parts:
            at = weights + part_bytes(layer, part, channels[0] - block.channel, block.depths)
            first, last = ends[0] and part is parts[0], ends[1] and part is parts[-1]
            yield Cut(*channels, *inputs, part, first, last, at, params)
            weights += part_bytes(layer, part, block.channels, block.depths)

    def _weights(self, index: int, layer: Weighted, block: WeightBlock, unit: Unit) -> LocalBuffer:
        if block not in self._kept:
            self._kept[block], load = self._region.weights(index, layer, block)
            unit.jobs.append(load)
        if block.depths:
            self._turns[index].used[block] = None
        return self._kept[block]


def _channels(layer: Weighted, blocks: Blocks, some: Span | None) -> list[tuple[int, int, int, int]]:
    """The channels of each job: those of its block, and its own."""
    whole = channel_blocks(layer, blocks)
    if some is not None:
        whole = [(some[0] + at, count) for at, count in linear_chunks(some[1] - some[0], blocks.channels)]
    return [
        (start, together, start + first, count)
        for start, together in whole
        for first, count in linear_chunks(together, layer.group_channels)
    ]


def _known_cuts(mapped: MappedGraph) -> dict[tuple[int, Blocks, Span | None, int], Sequence[_ChannelCuts]]:
    """The jobs over tiles of the layers of a mapped region."""
    return {}
