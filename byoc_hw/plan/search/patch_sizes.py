"""The sizes of a group of layers in patches and slices of channels: of all pieces, and of what is in local memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add

from byoc_hw.graph import Weighted
from byoc_hw.integers import round_up
from byoc_hw.plan.array.kinds import PSUM_BYTES, parts_of_kernel
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.weight_blocks import WeightRun
from byoc_hw.plan.search.estimate import Estimates, HeldSet
from byoc_hw.plan.work.patch_boxes import AxisPiece, bytes_of_box, pieces, runs_of_channels, weight_run


@dataclass(frozen=True)
class Sizes:
    """The sizes of a piece along one axis: what each layer makes of it, and what is read of each storage."""

    made: tuple[int, ...]
    read: tuple[int, ...]


@dataclass(frozen=True)
class PieceSizes:
    """All pieces along one axis: their sizes, and how often each occurs; of what each layer makes, and of what is read
    of each storage, the largest piece, and the sum of all."""

    sizes: list[tuple[Sizes, int]]
    most: Sizes
    total: Sizes


@dataclass(frozen=True)
class SlicedRun:
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


def _joint(pieces: Iterable[Sizes], of: Callable[[Iterable[int]], int]) -> Sizes:
    """The largest, or the sum, of the sizes of all pieces, of each layer or storage by itself."""
    known = list(pieces)
    made, read = (zip(*(getattr(one, name) for one in known), strict=True) for name in ("made", "read"))
    return Sizes(tuple(map(of, made)), tuple(map(of, read)))


class PatchSizes:
    """The sizes of one group, the layers `at` to `stop` (not included) in the order of `estimates`.

    The storages `full` are in local memory during the group. If they are `summed`, slices are added up as they are
    made. `cuts` are the pieces that are known, by axis and number.
    """

    def __init__(
        self,
        estimates: Estimates,
        at: int,
        stop: int,
        full: HeldSet,
        summed: bool,
        cuts: dict[tuple[int, int], PieceSizes],
    ) -> None:
        self._estimates, self._accelerator, self._of = estimates, estimates.accelerator, estimates.of
        self._full, self._summed, self._cuts = full, summed, cuts
        self.indices = estimates.order[at:stop]
        layers = [estimates.layers[index] for index in self.indices]
        made = [self._of[layer.ofm] for layer in layers]
        self.last = made[-1]
        """The storage that the group makes."""
        read = dict.fromkeys(self._of[tensor] for layer in layers for tensor in layer.inputs)
        self.inputs = [one for one in read if one not in made]
        """The storages that it reads."""
        self.packs = any(one.packing is not None for one in (*read, *made))
        self.packed = estimates.mapping.rows.layers
        """The layers whose outputs have packed rows."""
        self._kept = estimates.bytes_of(full & estimates.touched(at, stop))
        self._boxes: dict[int, _Boxes] = {}
        self._in_runs: dict[int, list[SlicedRun]] = {}
        self._live: dict[tuple[int, int, int], tuple[int, int]] = {}

    def pieces(self, axis: int, count: int) -> PieceSizes:
        """The pieces along an axis."""
        if (axis, count) not in self._cuts:
            layers, of = self._estimates.layers, self._of
            cut = Counter(map(self._plain, pieces(layers, of, self.indices, count, axis)))
            self._cuts[axis, count] = PieceSizes(list(cut.items()), _joint(cut, max), _joint(cut.elements(), sum))
        return self._cuts[axis, count]

    def _plain(self, piece: AxisPiece) -> Sizes:
        made, read = (piece.made[index] for index in self.indices), (piece.read[one] for one in self.inputs)
        return Sizes(*(tuple(stop - start for start, stop in spans) for spans in (made, read)))

    def runs(self, slices: int) -> list[SlicedRun]:
        """The layers in runs, with the sizes of their slices: all channels of a layer by itself."""
        if slices not in self._in_runs:
            found = []
            held, summed = self._full, self._summed
            for run in runs_of_channels(self._estimates.layers, self._of, self.indices, slices, held, summed):
                weights = weight_run(run, self._estimates.layers, slices, self._accelerator)
                sizes = weights.slices or (self._estimates.layers[run.layers[0]].ofm.shape[-1],)
                first, loads = self.indices.index(run.layers[0]), (run.loaded, run.by_slice)
                found.append(SlicedRun(run.layers, weights, first, sizes, *loads, run.adds))
            self._in_runs[slices] = found
        return self._in_runs[slices]

    def loaded_in(self, storage: Storage, slices: int) -> Sequence[int]:
        """The channels of an input that each copy brings."""
        sizes = (run.slices for run in self.runs(slices) if storage in run.by_slice)
        return next(sizes, (storage.extents[2],))

    def most_live(self, stripes: int, columns: int, slices: int) -> tuple[int, int]:
        """The most bytes of local memory that are live at once: of the largest patch by itself, and of its neighbours
        with overlap."""
        key = stripes, columns, slices
        if key not in self._live:
            self._live[key] = self._most_bytes(*key)
        return self._live[key]

    def _most_bytes(self, stripes: int, columns: int, slices: int) -> tuple[int, int]:
        unit = self._accelerator.buffer_alignment
        rows, across = self.pieces(0, stripes), self.pieces(1, columns)
        made = dict(zip(self.indices, zip(rows.most.made, across.most.made, strict=True), strict=True))
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
            sums = max((each * self.pixels(index, *made[index]) for index, each in run.sums), default=0)
            sums += sum(each * self.pixels(index, *made[index]) for index, each in run.adding)
            most = max(most, sum(sizes[box] for box in run.alive) + max(pairs) + sums)
        most += self._kept
        out = 0 if known.last is None else sizes[known.last]
        several = any(many > 1 or len(cut.sizes) > 1 for cut in (rows, across) for _, many in cut.sizes)
        return most, most + out + (inputs if several or self.runs(slices)[0].loaded is not None else 0)

    def _boxes_of(self, slices: int) -> _Boxes:
        """The boxes of local memory of the group in so many slices."""
        layers, boxes = self._estimates.layers, list[tuple[Storage, bool, int, int]]()

        def box(storage: Storage, is_made: bool, at: int, channels: int) -> int:
            boxes.append((storage, is_made, at, channels))
            return len(boxes) - 1

        loaded = {
            one: box(one, False, at, self.loaded_in(one, slices)[0])
            for at, one in enumerate(self.inputs)
            if one.index not in self._full
        }
        users = {self._of[tensor]: index for index in self.indices for tensor in layers[index].inputs}
        last, runs = None, list[_Live]()
        alive, ending = set(loaded.values()), dict[int, set[int]]()
        for run in self.runs(slices):
            size, index = run.slices[0], run.layers[-1] if run.adds is None else run.adds
            storage = self._of[layers[index].ofm]
            if storage.index not in self._full:
                is_last = storage is self.last
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

    def pixels(self, index: int, height: int, width: int) -> int:
        """The outputs of a job of each channel: over packed rows with those between them."""
        packing = self._of[self._estimates.layers[index].ofm].packing if index in self.packed else None
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
