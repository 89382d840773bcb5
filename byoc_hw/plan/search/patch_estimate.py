"""Estimates of the cycles and local memory of a group of layers in patches and slices of channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import floor, inf, prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import piece_sizes, round_up
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import copy_cycles, dense_job_cycles, transfer_cycles
from byoc_hw.plan.array.kinds import Window, geometry, job_cycles
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import strided
from byoc_hw.plan.array.weight_blocks import (
    LocalBlocks,
    WeightRun,
    blocks_of_sums,
    channel_blocks,
    run_blocks,
    staying,
    tile_cycles,
    weights_bytes,
)
from byoc_hw.plan.array.window import Extents, extents
from byoc_hw.plan.choices import Blocks
from byoc_hw.plan.search.estimate import Estimates, HeldSet
from byoc_hw.plan.search.patch_counts import column_counts, slice_counts
from byoc_hw.plan.search.patch_sizes import PatchSizes, PieceSizes, SlicedRun
from byoc_hw.plan.work.builder import argument_home, scratch_home
from byoc_hw.plan.work.patch_boxes import check_patches, check_slices_outer, runs_of_channels
from byoc_hw.remembered import kept_in_first

_WITH_COLUMNS = 3
"""The most numbers of slices that are tried with columns where forms are fine: those of the smallest slices."""


@dataclass(frozen=True)
class _Shared:
    """What groups have in common: the pieces of some layers along an axis, cycles of the jobs over tiles of a layer, of
    the copies of boxes of a storage, and of those of the weights of a run in slices, and the blocks of its weights."""

    cuts: dict[tuple[int, int], dict[tuple[int, int], PieceSizes]] = field(default_factory=dict)
    jobs: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    copies: dict[tuple[int, Extents], int] = field(default_factory=dict)
    loads: dict[tuple[tuple[int, ...], int | None, tuple[int, ...]], int] = field(default_factory=dict)
    blocks: dict[WeightRun, LocalBlocks] = field(default_factory=dict)


@kept_in_first
def _shared(estimates: Estimates) -> _Shared:
    """What all groups of a mapped region have in common."""
    return _Shared()


class PatchedGroup:
    """Estimates for one group, the layers `at` to `stop` (not included) in the order of `estimates`.

    The storages `held` are in local memory before the group, `after` after it, `full` during it. With `packs`, some
    images have packed rows: there are no patches, only slices of all rows. If they are `summed`, slices are added up as
    they are made. With `outer` all patches of a slice are computed before those of the next one.
    """

    def __init__(
        self,
        estimates: Estimates,
        at: int,
        stop: int,
        held: HeldSet,
        after: HeldSet,
        full: HeldSet,
        summed: bool = False,
        outer: bool = False,
    ) -> None:
        self._estimates, self._accelerator, self.summed, self.outer = estimates, estimates.accelerator, summed, outer
        known = _shared(estimates)
        sizes = PatchSizes(estimates, at, stop, full, summed, known.cuts.setdefault((at, stop), {}))
        self._sizes, self._of, self._full = sizes, estimates.of, full
        self._layers = [estimates.layers[index] for index in sizes.indices]
        self._stored = set(estimates.stored(at, stop, after))
        self._once = sum(estimates.copy(one, one.local_bytes) for one in sizes.inputs if one.index in full - held)
        self._stay = estimates.weights_stay(at, stop)
        copied = [one for one in sizes.inputs if one.index not in full]
        copied += [sizes.last] * (sizes.last in self._stored)
        self._moved = self._once + sum(estimates.copy(one, one.nbytes) for one in copied)
        weights = sum(estimates.load[index] for index in sizes.indices)
        jobs = sum(estimates.tile(index, extents(estimates.layers[index].ofm)[0]) for index in sizes.indices)
        self.least = max(jobs, self._moved + weights)
        self._jobs, self._copies, self._run_loads, self._blocks = known.jobs, known.copies, known.loads, known.blocks
        self._loads: dict[int, int] = {}
        self._stays: dict[int, int] = {}
        self._work: dict[tuple[int, int, int], tuple[int, int]] = {}

    @property
    def packs(self) -> bool:
        """Whether some images have packed rows."""
        return self._sizes.packs

    def possible(self) -> bool:
        """Whether it can be computed in patches."""
        if self.outer and (self._stay or self.packs or not self._accelerator.tuning.resident):
            return False  # weights are loaded once, or there is a single patch
        layers, of, full, indices = self._estimates.layers, self._of, self._full, self._sizes.indices
        try:
            check_patches(layers, of, indices, full, self._stored, whole=self.packs)
            if self.outer:
                check_slices_outer(runs_of_channels(layers, of, indices, 2, full), layers, of, full)
        except PlanError:
            return False
        return not self.summed or any(run.adds is not None for run in self._sizes.runs(2))

    def forms(self, fine: bool) -> Iterator[tuple[int, int]]:
        """Numbers of columns and slices to try, first those without a halo between columns: those that keep the array
        busy, or the others, which are `fine`."""
        coarse = list(self._forms(False, 1))
        yield from (one for one in self._forms(True, _WITH_COLUMNS) if one not in coarse) if fine else coarse

    def _forms(self, fine: bool, most: int) -> Iterator[tuple[int, int]]:
        layers = self._estimates.layers
        slices = slice_counts(layers, self._of, self._sizes.indices, self._full, self._accelerator, fine=fine)
        yield from ((1, count) for count in slices)
        for columns in column_counts(self._layers[-1], self._accelerator, fine=fine) if not self.packs else ():
            yield from ((columns, count) for count in slices[-most:] or (1,))

    def first_fitting(self, options: Sequence[int], columns: int, slices: int, room: int) -> int:
        """The place of the fewest stripes, of growing numbers of them, that fit into `room` bytes without overlap."""
        low, high = 0, len(options)
        while low < high:
            middle = (low + high) // 2
            if self._sizes.most_live(options[middle], columns, slices)[0] > room:
                low = middle + 1
            else:
                high = middle
        return low

    def cycles(
        self,
        stripes: int,
        columns: int,
        slices: int,
        overlap: bool,
        room: int,
        below: float = inf,
        alternating: bool = False,
    ) -> float | None:
        """Cycles of the group; None where it does not fit into `room` bytes. Not counted in full where they are not
        `below` a number. Slices and blocks of weights may come in `alternating` order."""
        if self._sizes.most_live(stripes, columns, slices)[overlap] > room:
            return None
        cuts = self._sizes.pieces(0, stripes), self._sizes.pieces(1, columns)
        patches = prod(sum(many for _, many in cut.sizes) for cut in cuts)
        once = patches == 1 or (self._accelerator.tuning.resident and self._stay)
        if self.outer:
            if slices == 1 or patches == 1 or self._weights_of_slice(slices) > self._accelerator.weight_memory:
                return None
            once = True
        weights = self._load(slices)
        if not once:
            weights += (patches - 1) * (weights - (self._staying(slices) if alternating else 0))
        times = patches * slices if self.outer or self._sizes.runs(slices)[0].loaded is not None else patches

        def together(jobs: float, copied: float) -> float:
            if overlap:
                return max(jobs, copied + weights) + copied / times / 2
            return max(jobs + copied, copied + weights)

        key = stripes, columns, slices
        if key not in self._work:
            least = together(*self._least_work(stripes, columns))
            if least >= below:
                return least
            self._work[key] = self._worked(*key)
        return together(*self._work[key])

    def _least_work(self, stripes: int, columns: int) -> tuple[int, int]:
        """Cycles that the jobs, and the copies of activations, take at least: of whole groups of outputs, and of their
        bytes."""
        rows, across = self._sizes.pieces(0, stripes).total, self._sizes.pieces(1, columns).total
        pixels = zip(self._pixel_cycles, rows.made, across.made, strict=True)
        read = zip(self._sizes.inputs, rows.read, across.read, strict=True)
        copied = sum(height * width * one.extents[2] for one, height, width in read if one.index not in self._full)
        copied += self._sizes.last.nbytes * (self._sizes.last in self._stored)
        return (
            floor(sum(each * height * width for each, height, width in pixels)),
            max(self._moved, self._once + copied // self._accelerator.dma_width),
        )

    @cached_property
    def _pixel_cycles(self) -> list[float]:
        """Cycles of each layer for an output pixel where the array has no pixels to spare."""
        accelerator, found = self._accelerator, []
        pixels = accelerator.array_columns * accelerator.elementwise_width
        for layer in self._layers:
            depth = layer.in_channels if isinstance(layer, Weighted) else 1
            ifm, channels = (1, pixels, depth), layer.ofm.shape[-1]
            one, two = (job_cycles(layer, ifm, (rows, pixels, channels), accelerator) for rows in (1, 2))
            found.append((two - one) / pixels)
        return found

    def _worked(self, stripes: int, columns: int, slices: int) -> tuple[int, int]:
        """Cycles of the jobs, with those in which they wait for what is loaded by slice, and of the copies of
        activations."""
        rows, across = self._sizes.pieces(0, stripes).sizes, self._sizes.pieces(1, columns).sizes
        runs, jobs, copied = self._sizes.runs(slices), 0, self._once
        again = len(runs[-1].slices) if self.outer else 1  # so often all is done that has no slices
        for (one, many), (other, times) in ((row, column) for row in rows for column in across):
            boxes = list(zip(one.made, other.made, strict=True))
            patches = [self._run_cycles(run, boxes) * (again if run is not runs[-1] else 1) for run in runs]
            copies = sum(
                self._copy(storage, (height, width, channels)) * (again if channels == storage.extents[2] else 1)
                for storage, height, width in zip(self._sizes.inputs, one.read, other.read, strict=True)
                if storage.index not in self._full
                for channels in self._sizes.loaded_in(storage, slices)
            )
            patch = sum(patches) + (max(0, copies - patches[0]) if runs[0].loaded is not None else 0)
            if self._sizes.last in self._stored:
                made = runs[-1].made(self._sizes.last.extents[2])
                copies += sum(self._copy(self._sizes.last, (*boxes[-1], size)) for size in made)
            if self.packs:
                copies += sum(map(self._fills, runs))
            jobs += many * times * patch
            copied += many * times * copies
        return jobs, copied

    def _run_cycles(self, run: SlicedRun, boxes: Sequence[tuple[int, int]]) -> int:
        found = 0
        for index, (height, width) in zip(run.layers, boxes[run.first :], strict=False):
            for channels, many in run.sizes:
                found += many * self._tile(index, height, width, channels)
        if run.adds is not None:
            height, width = boxes[self._sizes.indices.index(run.adds)]
            for depth, many in run.sizes:
                found += many * self._adding(run.adds, height, width, depth)
        return found

    def _adding(self, index: int, height: int, width: int, depth: int) -> int:
        """Cycles of the jobs that add a slice of the input channels of a layer to the partial sums of a tile."""
        key = index, height, width, -depth
        if key not in self._jobs:
            layer, blocks = self._sums_of(index, depth)
            pixels = (1, self._sizes.pixels(index, height, width)) if index in self._sizes.packed else (height, width)
            found = 0
            for _, count in channel_blocks(layer, blocks):
                for times, depths in piece_sizes(depth, blocks.depth):
                    ifm, ofm = (*pixels, depths), (*pixels, count)
                    found += times * dense_job_cycles(layer, ifm, ofm, self._accelerator)
            self._jobs[key] = found
        return self._jobs[key]

    def _sums_of(self, index: int, depth: int) -> tuple[Weighted, Blocks]:
        """A layer that adds up slices of its input channels, and its blocks of weights."""
        layer = self._estimates.layers[index]
        assert isinstance(layer, Weighted)
        return layer, blocks_of_sums(layer, self._estimates.blocks[index], depth)

    def _tile(self, index: int, height: int, width: int, channels: int) -> int:
        """Cycles of the jobs over a tile of some channels of a layer."""
        key = index, height, width, channels
        if key not in self._jobs:
            layer, blocks = self._estimates.layers[index], self._estimates.blocks[index]
            tile = (1, self._sizes.pixels(index, height, width), channels) if index in self._sizes.packed else key[1:]
            self._jobs[key] = _cycles(layer, blocks, tile, self._estimates)
        return self._jobs[key]

    def _weights_of_slice(self, slices: int) -> int:
        """Bytes of the weights of the largest slice of the last run, and of all layers before it."""
        *before, last = self._sizes.runs(slices)
        unit = self._accelerator.buffer_alignment
        found = sum(self._estimates.weight_bytes[index] for run in before for index in run.layers)
        for layer in (self._estimates.layers[index] for index in last.layers):
            if isinstance(layer, Weighted):
                nbytes = weights_bytes(layer, last.slices[0], layer.in_channels, self._accelerator)
                found += round_up(PARAMS_BYTES * last.slices[0], unit) + round_up(nbytes, unit)
        return found

    def _staying(self, slices: int) -> int:
        """Cycles of the copies of the weights that may stay from one patch to the next."""
        if not self._accelerator.tuning.resident:
            return 0
        if slices not in self._stays:
            runs = [self._blocks_of(run.weights) for run in self._sizes.runs(slices)]
            stay = zip(runs, staying(runs, self._accelerator), strict=True)
            sizes = [size for run, many in stay for size in run.sizes[len(run.sizes) - many :]]
            self._stays[slices] = sum(copy_cycles(size, 1, self._accelerator) for size in sizes)
        return self._stays[slices]

    def _blocks_of(self, run: WeightRun) -> LocalBlocks:
        if run not in self._blocks:
            known = self._estimates
            self._blocks[run] = run_blocks(run, known.layers, known.blocks, self._accelerator)
        return self._blocks[run]

    def _load(self, slices: int) -> int:
        """Cycles of the copies of all weights."""
        if slices not in self._loads:
            self._loads[slices] = sum(map(self._load_run, self._sizes.runs(slices)))
        return self._loads[slices]

    def _load_run(self, run: SlicedRun) -> int:
        key = run.layers, run.adds, run.slices
        if key not in self._run_loads:
            adding = 0 if run.adds is None else self._load_adding(run.adds, run.sizes)
            self._run_loads[key] = self._load_made(run) + adding
        return self._run_loads[key]

    def _load_adding(self, index: int, sizes: Sequence[tuple[int, int]]) -> int:
        """Cycles of the copies of the weights of a layer that adds up slices of its input channels."""
        found = copy_cycles(PARAMS_BYTES * self._estimates.layers[index].ofm.shape[-1], 1, self._accelerator)
        for depth, many in sizes:
            layer, blocks = self._sums_of(index, depth)
            for _, count in channel_blocks(layer, blocks):
                for times, depths in piece_sizes(depth, blocks.depth):
                    nbytes = weights_bytes(layer, count, depths, self._accelerator)
                    found += many * times * copy_cycles(nbytes, 1, self._accelerator)
        return found

    def _load_made(self, run: SlicedRun) -> int:
        if len(run.slices) == 1 and len(run.layers) == 1:
            return self._estimates.load[run.layers[0]]
        unit, found = self._accelerator.buffer_alignment, 0
        for layer in (self._estimates.layers[index] for index in run.layers):
            if isinstance(layer, Weighted):
                for channels, many in run.sizes:
                    nbytes = weights_bytes(layer, channels, layer.in_channels, self._accelerator)
                    found += many * copy_cycles(round_up(PARAMS_BYTES * channels, unit) + nbytes, 1, self._accelerator)
        return found

    def _fills(self, run: SlicedRun) -> int:
        """Cycles of the copies that fill what lies around the packed rows that some layers write."""
        found = 0
        for index in (*run.layers, *(() if run.adds is None else (run.adds,))):
            storage = self._of[self._estimates.layers[index].ofm]
            packing, (height, width, channels) = storage.packing, storage.extents
            if packing is None or not packing.crossed:
                continue
            several = run.slices if index != run.layers[-1] or storage is self._sizes.last else (channels,)
            if run.adds is not None:
                several = (channels,) if index == run.adds else run.slices
            for size in several:
                around = ((packing.head, 2), (packing.pitch - width, height - 1))
                found += sum(copy_cycles(gap * size, rows, self._accelerator) for gap, rows in around if gap)
        return found

    def _copy(self, storage: Storage, box: Extents) -> int:
        """Cycles to copy a box of a storage between a tile and main memory."""
        key = storage.index, box
        if key not in self._copies:
            argument = storage.source or (storage.sinks[0] if storage.sinks else None)
            home = scratch_home(storage) if argument is None else argument_home(storage, argument)
            _, width, channels = storage.extents
            strides = home.strides or (width * channels, channels, 1)
            moves = strided(box, strides, (box[1] * box[2], box[2], 1))
            self._copies[key] = transfer_cycles(moves, self._accelerator)
        return self._copies[key]


def _cycles(layer: Layer, blocks: Blocks | None, tile: Extents, estimates: Estimates) -> int:
    """Cycles of the jobs over a tile of a layer, whose blocks of weights are cut at its channels."""
    height, width, channels = tile
    accelerator = estimates.accelerator
    if not isinstance(layer, Weighted) or not isinstance(geometry(layer), Window):
        return tile_cycles(layer, None, tile, accelerator)
    most = channels if blocks is None else blocks.channels
    depth = layer.in_channels if blocks is None else blocks.depth
    cycles = 0
    for many, count in piece_sizes(channels, min(most, layer.group_channels)):
        for times, depths in piece_sizes(layer.in_channels, depth):
            ifm, ofm = (height, width, depths), (height, width, count)
            cycles += many * times * dense_job_cycles(layer, ifm, ofm, accelerator)
    return cycles
