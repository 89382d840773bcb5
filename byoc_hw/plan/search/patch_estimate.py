"""Estimates of the cycles and local memory of a group of layers in patches and slices of channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import floor, inf, prod
from operator import add

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, piece_sizes, round_up
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import copy_cycles, dense_job_cycles, transfer_cycles
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window, geometry, job_cycles, parts_of_kernel, rows_at_a_time
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
from byoc_hw.plan.work.builder import argument_home, scratch_home
from byoc_hw.plan.work.patch_boxes import (
    AxisPiece,
    bytes_of_box,
    check_patches,
    check_slices_outer,
    pieces,
    runs_of_channels,
    weight_run,
)
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Tensor

_CUTS = (2, 3, 4, 6, 8, 12)
"""Numbers of patches side by side that are tried, and the same in whole columns of the array."""

_SLICES = (1, 2, 4)
"""Sizes of slices that are tried, in rows of the array."""

_FINER = (2, 4)
"""Numbers of slices of one such row that are tried where these forms are slow: patches may be larger."""

_WITH_COLUMNS = 3
"""The most numbers of slices that are tried with columns there: those of the smallest slices."""

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


@dataclass(frozen=True)
class Sizes:
    """The sizes of a piece along one axis: what each layer makes of it, and what is read of each storage."""

    made: tuple[int, ...]
    read: tuple[int, ...]


@dataclass(frozen=True)
class _Cut:
    """All pieces along one axis: their sizes, and how often each occurs; of what each layer makes, and of what is read
    of each storage, the largest piece, and the sum of all."""

    sizes: list[tuple[Sizes, int]]
    most: Sizes
    total: Sizes


@dataclass(frozen=True)
class _Run:
    """Layers that are computed together, what their `weights` know of them, the place of the first of them in the
    group, the sizes of their slices of channels, the largest first, what is `loaded` slice by slice for the first
    layer, what comes so at all (`by_slice`), and the layer that `adds` them up."""

    layers: tuple[int, ...]
    weights: WeightRun
    first: int
    slices: tuple[int, ...]
    loaded: Storage | None
    by_slice: tuple[Storage, ...]
    adds: int | None

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """The sizes of slices, and how often each occurs."""
        return list(Counter(self.slices).items())

    def made(self, channels: int) -> Sequence[int]:
        """The channels of each piece of its output, that has so many in all."""
        return self.slices if self.adds is None else (channels,)


@dataclass(frozen=True)
class _Live:
    """What is in local memory while a run is computed, by the numbers of boxes: those that are `alive` for longer, and
    the ones `between` its layers, of which two at a time are. `sums` are bytes of partial sums of each pixel of a
    layer, the most of which count, and those of a layer that adds slices up, on top."""

    alive: tuple[int, ...]
    between: tuple[int, ...]
    sums: tuple[tuple[int, int], ...]
    adding: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Boxes:
    """The boxes of a group in so many slices: each a storage, the layer that makes it, or the place among the inputs
    that it is read from, and its channels; those that are loaded, and the last one; what is live in each run."""

    boxes: list[tuple[Storage, bool, int, int]]
    loaded: tuple[int, ...]
    last: int | None
    runs: list[_Live]


@dataclass(frozen=True)
class _Shared:
    """What groups have in common: the pieces of some layers along an axis, cycles of the jobs over tiles of a layer, of
    the copies of boxes of a storage, and of those of the weights of a run in slices, and the blocks of its weights."""

    cuts: dict[tuple[int, int], dict[tuple[int, int], _Cut]] = field(default_factory=dict)
    jobs: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    copies: dict[tuple[int, Extents], int] = field(default_factory=dict)
    loads: dict[tuple[tuple[int, ...], int | None, tuple[int, ...]], int] = field(default_factory=dict)
    blocks: dict[WeightRun, LocalBlocks] = field(default_factory=dict)


@kept_in_first
def _shared(estimates: Estimates) -> _Shared:
    """What all groups of a mapped region have in common."""
    return _Shared()


def _joint(pieces: Iterable[Sizes], of: Callable[[Iterable[int]], int]) -> Sizes:
    """The largest, or the sum, of the sizes of all pieces, of each layer or storage by itself."""
    known = list(pieces)
    made, read = (zip(*(getattr(one, name) for one in known), strict=True) for name in ("made", "read"))
    return Sizes(tuple(map(of, made)), tuple(map(of, read)))


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

        def array_cycles(index: int) -> int:
            return estimates.tile(index, extents(estimates.layers[index].ofm)[0])

        self._indices = estimates.order[at:stop]
        self._layers = [estimates.layers[index] for index in self._indices]
        self._of, self._full = estimates.of, full
        made = [self._of[layer.ofm] for layer in self._layers]
        self._last = made[-1]
        self._stored = set(estimates.stored(at, stop, after))
        read = dict.fromkeys(self._of[tensor] for layer in self._layers for tensor in layer.inputs)
        self._inputs = [one for one in read if one not in made]
        self._once = sum(estimates.copy(one, one.local_bytes) for one in self._inputs if one.index in full - held)
        self._kept = estimates.bytes_of(full & estimates.touched(at, stop))
        self._stay = estimates.weights_stay(at, stop)
        self._packed = estimates.mapping.rows.layers
        self.packs = any(one.packing is not None for one in (*read, *made))
        copied = [one for one in self._inputs if one.index not in full]
        copied += [self._last] * (self._last in self._stored)
        self._moved = self._once + sum(estimates.copy(one, one.nbytes) for one in copied)
        weights = sum(estimates.load[index] for index in self._indices)
        self.least = max(sum(map(array_cycles, self._indices)), self._moved + weights)
        known = _shared(estimates)
        self._axes = known.cuts.setdefault((at, stop), {})
        self._jobs, self._copies, self._run_loads, self._blocks = known.jobs, known.copies, known.loads, known.blocks
        self._boxes: dict[int, _Boxes] = {}
        self._loads: dict[int, int] = {}
        self._stays: dict[int, int] = {}
        self._in_runs: dict[int, list[_Run]] = {}
        self._live: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._work: dict[tuple[int, int, int], tuple[int, int]] = {}

    def possible(self) -> bool:
        """Whether it can be computed in patches."""
        if self.outer and (self._stay or self.packs or not self._accelerator.tuning.resident):
            return False  # weights are loaded once, or there is a single patch
        layers, of = self._estimates.layers, self._of
        try:
            check_patches(layers, of, self._indices, self._full, self._stored, whole=self.packs)
            if self.outer:
                check_slices_outer(runs_of_channels(layers, of, self._indices, 2, self._full), layers, of, self._full)
        except PlanError:
            return False
        return not self.summed or any(run.adds is not None for run in self._runs(2))

    def forms(self, fine: bool) -> Iterator[tuple[int, int]]:
        """Numbers of columns and slices to try, first those without a halo between columns: those that keep the array
        busy, or the others, which are `fine`."""
        coarse = list(self._forms(False, 1))
        yield from (one for one in self._forms(True, _WITH_COLUMNS) if one not in coarse) if fine else coarse

    def _forms(self, fine: bool, most: int) -> Iterator[tuple[int, int]]:
        layers = self._estimates.layers
        slices = slice_counts(layers, self._of, self._indices, self._full, self._accelerator, fine=fine)
        yield from ((1, count) for count in slices)
        for columns in column_counts(self._layers[-1], self._accelerator, fine=fine) if not self.packs else ():
            yield from ((columns, count) for count in slices[-most:] or (1,))

    def first_fitting(self, options: Sequence[int], columns: int, slices: int, room: int) -> int:
        """The place of the fewest stripes, of growing numbers of them, that fit into `room` bytes without overlap."""
        low, high = 0, len(options)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(options[middle], columns, slices)[0] > room:
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
        if self._bytes(stripes, columns, slices)[overlap] > room:
            return None
        patches = prod(sum(many for _, many in self._cut(*axis).sizes) for axis in ((0, stripes), (1, columns)))
        once = patches == 1 or (self._accelerator.tuning.resident and self._stay)
        if self.outer:
            if slices == 1 or patches == 1 or self._weights_of_slice(slices) > self._accelerator.weight_memory:
                return None
            once = True
        weights = self._load(slices)
        if not once:
            weights += (patches - 1) * (weights - (self._staying(slices) if alternating else 0))
        times = patches * slices if self.outer or self._runs(slices)[0].loaded is not None else patches

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
        rows, across = self._cut(0, stripes).total, self._cut(1, columns).total
        pixels = zip(self._pixel_cycles, rows.made, across.made, strict=True)
        read = zip(self._inputs, rows.read, across.read, strict=True)
        copied = sum(height * width * one.extents[2] for one, height, width in read if one.index not in self._full)
        copied += self._last.nbytes * (self._last in self._stored)
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
        rows, across = self._cut(0, stripes).sizes, self._cut(1, columns).sizes
        runs, jobs, copied = self._runs(slices), 0, self._once
        again = len(runs[-1].slices) if self.outer else 1  # so often all is done that has no slices
        for (one, many), (other, times) in ((row, column) for row in rows for column in across):
            boxes = list(zip(one.made, other.made, strict=True))
            patches = [self._run_cycles(run, boxes) * (again if run is not runs[-1] else 1) for run in runs]
            copies = sum(
                self._copy(storage, (height, width, channels)) * (again if channels == storage.extents[2] else 1)
                for storage, height, width in zip(self._inputs, one.read, other.read, strict=True)
                if storage.index not in self._full
                for channels in self._loaded_in(storage, slices)
            )
            patch = sum(patches) + (max(0, copies - patches[0]) if runs[0].loaded is not None else 0)
            if self._last in self._stored:
                made = runs[-1].made(self._last.extents[2])
                copies += sum(self._copy(self._last, (*boxes[-1], size)) for size in made)
            if self.packs:
                copies += sum(map(self._fills, runs))
            jobs += many * times * patch
            copied += many * times * copies
        return jobs, copied

    # ------------------------------------------------------------ sizes

    def _cut(self, axis: int, count: int) -> _Cut:
        """The pieces along an axis."""
        if (axis, count) not in self._axes:
            layers, of = self._estimates.layers, self._of
            cut = Counter(map(self._plain, pieces(layers, of, self._indices, count, axis)))
            self._axes[axis, count] = _Cut(list(cut.items()), _joint(cut, max), _joint(cut.elements(), sum))
        return self._axes[axis, count]

    def _plain(self, piece: AxisPiece) -> Sizes:
        made, read = (piece.made[index] for index in self._indices), (piece.read[one] for one in self._inputs)
        return Sizes(*(tuple(stop - start for start, stop in spans) for spans in (made, read)))

    def _runs(self, slices: int) -> list[_Run]:
        """The layers in runs, with the sizes of their slices: all channels of a layer by itself."""
        if slices not in self._in_runs:
            found = []
            held, summed = self._full, self.summed
            for run in runs_of_channels(self._estimates.layers, self._of, self._indices, slices, held, summed):
                weights = weight_run(run, self._estimates.layers, slices, self._accelerator)
                sizes = weights.slices or (self._estimates.layers[run.layers[0]].ofm.shape[-1],)
                first, loads = self._indices.index(run.layers[0]), (run.loaded, run.by_slice)
                found.append(_Run(run.layers, weights, first, sizes, *loads, run.adds))
            self._in_runs[slices] = found
        return self._in_runs[slices]

    def _loaded_in(self, storage: Storage, slices: int) -> Sequence[int]:
        """The channels of an input that each copy brings."""
        sizes = (run.slices for run in self._runs(slices) if storage in run.by_slice)
        return next(sizes, (storage.extents[2],))

    def _bytes(self, stripes: int, columns: int, slices: int) -> tuple[int, int]:
        """The most bytes of local memory that are live at once: of the largest patch by itself, and of its neighbours
        with overlap."""
        key = stripes, columns, slices
        if key not in self._live:
            self._live[key] = self._most_bytes(*key)
        return self._live[key]

    def _most_bytes(self, stripes: int, columns: int, slices: int) -> tuple[int, int]:
        unit = self._accelerator.buffer_alignment
        rows, across = self._cut(0, stripes), self._cut(1, columns)
        made = dict(zip(self._indices, zip(rows.most.made, across.most.made, strict=True), strict=True))
        read = list(zip(rows.most.read, across.most.read, strict=True))
        if slices not in self._boxes:
            self._boxes[slices] = self._boxes_of(slices)
        known = self._boxes[slices]
        sizes = [
            round_up(bytes_of_box(one, (*(made if is_made else read)[at], channels)), unit)
            for one, is_made, at, channels in known.boxes
        ]
        inputs = sum(sizes[box] for box in known.loaded)
        most = inputs
        for run in known.runs:
            between = [sizes[box] for box in run.between]
            pairs = map(add, [0, *between], [*between, 0])
            sums = max((each * self._pixels(index, *made[index]) for index, each in run.sums), default=0)
            sums += sum(each * self._pixels(index, *made[index]) for index, each in run.adding)
            most = max(most, sum(sizes[box] for box in run.alive) + max(pairs) + sums)
        most += self._kept
        out = 0 if known.last is None else sizes[known.last]
        several = any(many > 1 or len(cut.sizes) > 1 for cut in (rows, across) for _, many in cut.sizes)
        return most, most + out + (inputs if several or self._runs(slices)[0].loaded is not None else 0)

    def _boxes_of(self, slices: int) -> _Boxes:
        """The boxes of local memory of the group in so many slices."""
        layers, boxes = self._estimates.layers, list[tuple[Storage, bool, int, int]]()

        def box(storage: Storage, is_made: bool, at: int, channels: int) -> int:
            boxes.append((storage, is_made, at, channels))
            return len(boxes) - 1

        loaded = {
            one: box(one, False, at, self._loaded_in(one, slices)[0])
            for at, one in enumerate(self._inputs)
            if one.index not in self._full
        }
        users = {self._of[tensor]: index for index in self._indices for tensor in layers[index].inputs}
        last, runs = None, list[_Live]()
        alive, ending = set(loaded.values()), dict[int, set[int]]()
        for run in self._runs(slices):
            size, index = run.slices[0], run.layers[-1] if run.adds is None else run.adds
            storage = self._of[layers[index].ofm]
            if storage.index not in self._full:
                is_last = storage is self._last
                channels = run.made(storage.extents[2])[0] if is_last else layers[index].ofm.shape[-1]
                made = box(storage, True, index, channels)
                alive.add(made)
                if is_last:
                    last = made
                else:
                    ending.setdefault(users[storage], set()).add(made)
            inner = run.layers if run.adds is not None else run.layers[:-1]
            between = tuple(box(self._of[layers[one].ofm], True, one, size) for one in inner)
            sums = tuple((one, each) for one in run.layers if (each := self._psum(one, size)))
            adding = () if run.adds is None else ((index, PSUM_BYTES * storage.extents[2]),)
            runs.append(_Live(tuple(alive), between, sums, adding))
            for one in run.layers:
                alive -= ending.pop(one, set())
            if run.loaded is not None:
                alive.discard(loaded[run.loaded])
        return _Boxes(boxes, tuple(loaded.values()), last, runs)

    def _pixels(self, index: int, height: int, width: int) -> int:
        """The outputs of a job of each channel: over packed rows with those between them."""
        packing = self._of[self._estimates.layers[index].ofm].packing if index in self._packed else None
        return height * width if packing is None else packing.pixels(height, width)

    def _psum(self, index: int, channels: int) -> int:
        """Bytes of partial sums of each pixel of a job."""
        layer, blocks = self._estimates.layers[index], self._estimates.blocks[index]
        if not isinstance(layer, Weighted):
            return 0
        partial = blocks is not None and blocks.depth < layer.in_channels
        if not partial and len(parts_of_kernel(layer, self._accelerator)) == 1:
            return 0
        return PSUM_BYTES * min(channels, blocks.channels if blocks is not None else channels)

    # ------------------------------------------------------------ cycles

    def _run_cycles(self, run: _Run, boxes: Sequence[tuple[int, int]]) -> int:
        found = 0
        for index, (height, width) in zip(run.layers, boxes[run.first :], strict=False):
            for channels, many in run.sizes:
                found += many * self._tile(index, height, width, channels)
        if run.adds is not None:
            height, width = boxes[self._indices.index(run.adds)]
            for depth, many in run.sizes:
                found += many * self._adding(run.adds, height, width, depth)
        return found

    def _adding(self, index: int, height: int, width: int, depth: int) -> int:
        """Cycles of the jobs that add a slice of the input channels of a layer to the partial sums of a tile."""
        key = index, height, width, -depth
        if key not in self._jobs:
            layer, blocks = self._sums_of(index, depth)
            pixels = (1, self._pixels(index, height, width)) if index in self._packed else (height, width)
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
            tile = (1, self._pixels(index, height, width), channels) if index in self._packed else key[1:]
            self._jobs[key] = _cycles(layer, blocks, tile, self._estimates)
        return self._jobs[key]

    def _weights_of_slice(self, slices: int) -> int:
        """Bytes of the weights of the largest slice of the last run, and of all layers before it."""
        *before, last = self._runs(slices)
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
            runs = [self._blocks_of(run.weights) for run in self._runs(slices)]
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
            self._loads[slices] = sum(map(self._load_run, self._runs(slices)))
        return self._loads[slices]

    def _load_run(self, run: _Run) -> int:
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

    def _load_made(self, run: _Run) -> int:
        if len(run.slices) == 1 and len(run.layers) == 1:
            return self._estimates.load[run.layers[0]]
        unit, found = self._accelerator.buffer_alignment, 0
        for layer in (self._estimates.layers[index] for index in run.layers):
            if isinstance(layer, Weighted):
                for channels, many in run.sizes:
                    nbytes = weights_bytes(layer, channels, layer.in_channels, self._accelerator)
                    found += many * copy_cycles(round_up(PARAMS_BYTES * channels, unit) + nbytes, 1, self._accelerator)
        return found

    def _fills(self, run: _Run) -> int:
        """Cycles of the copies that fill what lies around the packed rows that some layers write."""
        found = 0
        for index in (*run.layers, *(() if run.adds is None else (run.adds,))):
            storage = self._of[self._estimates.layers[index].ofm]
            packing, (height, width, channels) = storage.packing, storage.extents
            if packing is None or not packing.crossed:
                continue
            several = run.slices if index != run.layers[-1] or storage is self._last else (channels,)
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
