"""A group of layers in patches of rows and columns, and in slices of channels: the loads, jobs and stores of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from byoc_hw.graph import Layer, Weighted
from byoc_hw.plan.array.kinds import PSUM_BYTES, Run, Window, geometry
from byoc_hw.plan.array.packing import Packing
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import Box, Transfer, strided
from byoc_hw.plan.array.weight_blocks import WeightRun, blocks_of_sums, channel_blocks
from byoc_hw.plan.array.window import Place
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.cuts import CutOnBuffers, JobCuts, SumEnds
from byoc_hw.plan.work.ops import Home, LocalBuffer, activations, copy_op, run_job
from byoc_hw.plan.work.patch_boxes import (
    AxisPiece,
    ChannelRun,
    bytes_of_box,
    channel_slices,
    check_patches,
    check_slices_outer,
    pieces,
    runs_of_channels,
    weight_run,
)
from byoc_hw.plan.work.row_room import RowRoom
from byoc_hw.plan.work.rows_needed import Span
from byoc_hw.plan.work.units import Unit
from byoc_hw.plan.work.window_jobs import LocalRows, over_pixels, over_rows


@dataclass(frozen=True)
class BoxView:
    """A buffer that holds a box of a storage: dense, or packed rows, of which it has all."""

    buffer: LocalBuffer
    box: Box
    packing: Packing | None = None

    @cached_property
    def place(self) -> Place:
        """Where its rows lie."""
        height, width, pixel = self.box.extents
        if self.packing is not None:
            return self.packing.place(self.box.extents)
        return Place(0, width * pixel, pixel, height, width * pixel)

    def at(self, row: int, column: int, channel: int) -> int:
        """The byte of an element, by its place in the storage."""
        top, left, first = self.box.origin
        place = self.place
        return place.offset + (row - top) * place.row + (column - left) * place.pixel + channel - first

    def rows(self) -> LocalRows:
        """Its rows, by their places in the storage."""
        return LocalRows(self.buffer, self.place, self.place.offset - self.at(0, 0, 0))

    def flat(self, width: int) -> bool:
        """Whether it has `width` pixels in a row, one right behind the other across rows too."""
        return self.place.row == self.place.reach == width * self.place.pixel


@dataclass(frozen=True)
class _Sums:
    """The partial sums of a box of a layer's output: a buffer for the output channels of each block of weights."""

    index: int
    layer: Weighted
    box: Box
    buffers: Sequence[LocalBuffer]


def patches(region: WorkBuilder, number: int, indices: Sequence[int]) -> None:
    """Append the units of a group. `indices` are its layers, without reshapes. Raises `PlanError` for layers that
    cannot be computed in patches."""
    group = region.choices.groups[number]
    layers, of = region.layers, region.storages.of
    check_patches(layers, of, indices, group.held, region.in_main, whole=group.stripes == group.columns == 1)
    run = _Patches(region, number, indices)
    rows = list(pieces(layers, of, indices, group.stripes, 0))
    columns = list(pieces(layers, of, indices, group.columns, 1))
    for only, row, column in product(run.outer_slices(), rows, columns):
        run.patch(row, column, only)


class _Patches:
    def __init__(self, region: WorkBuilder, number: int, indices: Sequence[int]) -> None:
        self.region, self.number, self.indices = region, number, indices
        self.group = region.choices.groups[number]
        self.of = region.storages.of
        self.made = {self.of[region.layers[index].ofm] for index in indices}
        self.last = self.of[region.layers[indices[-1]].ofm]
        group = self.group
        self.runs = runs_of_channels(region.layers, self.of, indices, group.slices, group.held, group.summed)
        self.cuts = JobCuts(region, group, [self._weights_of(run) for run in self.runs])

    def _weights_of(self, run: ChannelRun) -> WeightRun:
        return weight_run(run, self.region.layers, self.group.slices, self.region.accelerator)

    def outer_slices(self) -> Sequence[Span | None]:
        """The slices that the patches are computed for one after the other, or None, for all of them at a time. Raises
        `PlanError` where the layers have no such slices."""
        if not self.group.slices_outer:
            return [None]
        layers = self.region.layers
        check_slices_outer(self.runs, layers, self.of, self.group.held)
        return channel_slices(
            [layers[index] for index in self.runs[-1].layers], self.group.slices, self.region.accelerator
        )

    def patch(self, rows: AxisPiece, columns: AxisPiece, only: Span | None) -> None:
        """The units of one patch: one for each slice of channels that is loaded or stored by itself, and of the rest
        one. Of the slices there may be one `only`."""
        unit = Unit(self.number, self.group.overlap)
        sliced = {one for run in self.runs for one in run.by_slice}
        views = {
            one: self._input(one, rows.read[one], columns.read[one], unit)
            for one in rows.read
            if one not in self.made and one not in sliced
        }
        for run in self.runs:
            unit = self._run(run, rows, columns, only, views, unit)
        self.region.add(unit)

    def _run(
        self,
        run: ChannelRun,
        rows: AxisPiece,
        columns: AxisPiece,
        only: Span | None,
        views: dict[Storage, BoxView],
        unit: Unit,
    ) -> Unit:
        """Compute layers, slice by slice. The unit that comes of it is not yet appended."""
        region = self.region
        layers, last = [region.layers[index] for index in run.layers], run.layers[-1]
        channels = layers[-1].ofm.shape[-1]
        several = [(0, channels)]
        if run.sliced:
            several = channel_slices(layers, self.group.slices, region.accelerator) if only is None else [only]
        sums = None if run.adds is None else self._sums(run.adds, rows, columns, views, several[0][1])
        for number, some in enumerate(several[:: self.cuts.turn(last)]):
            if number and (run.by_slice or last == self.indices[-1]):
                region.add(unit)
                unit = Unit(self.number, self.group.overlap)
            for one in run.by_slice:
                views[one] = self._loaded(one, _box(rows.read[one], columns.read[one], some), unit)
            for index in run.layers:
                layer, storage = region.layers[index], self.of[region.layers[index].ofm]
                box = _box(rows.made[index], columns.made[index], some)
                alone = index != last or sums is not None or self._by_slice(storage, run.sliced)
                if alone or number == 0:
                    made = box if alone else _box(rows.made[index], columns.made[index], (0, channels))
                    views[storage] = self._output(storage, made)
                    unit.jobs += self._room(index, storage, views[storage]).before(rows.made[index], held=False)
                self._compute(index, layer, box, views, unit)
                if alone or number == len(several) - 1:
                    unit.jobs += self._room(index, storage, views[storage]).behind(rows.made[index], held=False)
                if storage is self.last:
                    self._store(index, storage, box, views[storage], unit)
            if sums is not None:
                ends = number == 0, number == len(several) - 1
                self._add(sums, some, ends, rows.made[sums.index], views, unit)
        self.cuts.done(last)
        return unit

    def _sums(
        self, index: int, rows: AxisPiece, columns: AxisPiece, views: dict[Storage, BoxView], depth: int
    ) -> _Sums:
        """The partial sums of a patch of a layer that adds up slices of `depth` channels. Its output gets a buffer."""
        layer = self.region.layers[index]
        assert isinstance(layer, Weighted)
        box = _box(rows.made[index], columns.made[index], (0, layer.out_channels))
        views[self.of[layer.ofm]] = self._output(self.of[layer.ofm], box)
        pixels = prod(self._pixels(index, box))
        blocks = blocks_of_sums(layer, self.region.choices.blocks[index], depth)
        counts = [count for _, count in channel_blocks(layer, blocks)]
        buffers = [activations(layer.name, PSUM_BYTES * pixels * count) for count in counts]
        return _Sums(index, layer, box, buffers)

    def _add(
        self, sums: _Sums, some: Span, ends: SumEnds, rows: Span, views: Mapping[Storage, BoxView], unit: Unit
    ) -> None:
        """Add a slice of the input of a layer to its partial sums, and store its output behind the last one. `ends`
        says whether it is the first, and the last, that is added."""
        index, layer, box = sums.index, sums.layer, sums.box
        storage, form = self.of[layer.ofm], geometry(layer)
        assert isinstance(form, Window)
        room = self._room(index, storage, views[storage])
        if ends[1]:
            unit.jobs += room.before(rows, held=False)
        cuts = self.cuts.of_slice(index, layer, form, unit, some, ends, sums.buffers)
        self._window(index, layer, form, box, cuts, views, unit)
        if ends[1]:
            unit.jobs += room.behind(rows, held=False)
            if storage is self.last:
                self._store(index, storage, box, views[storage], unit)

    def _by_slice(self, storage: Storage, sliced: bool) -> bool:
        """Whether each slice of an output of a run has a buffer of its own: nothing in local memory reads all of it."""
        return sliced and storage is self.last and storage.index not in self.group.held

    # ------------------------------------------------------------ inputs and outputs

    def _input(self, storage: Storage, rows: Span, columns: Span, unit: Unit) -> BoxView:
        region, layer = self.region, self.indices[0]
        if storage.index in self.group.held:
            if storage not in region.held:
                region.held[storage] = activations(storage.name, storage.local_bytes)
                region.loaded[storage] = 0
            buffer, loaded = region.held[storage], region.loaded[storage]
            if loaded < storage.local_bytes:
                home = region.homes[storage]
                unit.loads += self._room(layer, storage, BoxView(buffer, _whole(storage))).everywhere()
                unit.loads += region.part(layer, home, buffer, 0, loaded, storage.local_bytes, True)
                region.loaded[storage] = storage.local_bytes
            return BoxView(buffer, _whole(storage), storage.packing)
        return self._loaded(storage, _box(rows, columns, (0, storage.extents[2])), unit)

    def _loaded(self, storage: Storage, box: Box, unit: Unit) -> BoxView:
        """A buffer of its own for a box that a unit loads."""
        region, layer, patch = self.region, self.indices[0], self._view(storage, box)
        unit.loads += self._room(layer, storage, patch).everywhere()
        for move in _moves(region.homes[storage], patch.box, patch):
            unit.loads.append(copy_op(layer, move, region.homes[storage], patch.buffer, True, region.accelerator))
        return patch

    def _output(self, storage: Storage, box: Box) -> BoxView:
        region = self.region
        if storage.index not in self.group.held:
            return self._view(storage, box)
        if storage not in region.held:
            region.held[storage] = activations(storage.name, storage.local_bytes)
            region.loaded[storage] = storage.local_bytes
        return BoxView(region.held[storage], _whole(storage), storage.packing)

    @staticmethod
    def _view(storage: Storage, box: Box) -> BoxView:
        """A buffer of its own for a box."""
        nbytes = bytes_of_box(storage, box.extents)
        return BoxView(activations(storage.name, nbytes), box, storage.packing)

    def _room(self, index: int, storage: Storage, view: BoxView) -> RowRoom:
        """The room around the rows of a view, which a layer fills."""
        return RowRoom(self.region, storage, view.buffer, 0, index, view.box.extents)

    def _store(self, index: int, storage: Storage, box: Box, patch: BoxView, unit: Unit) -> None:
        region = self.region
        for home in region.targets(storage):
            for move in _moves(home, box, patch):
                unit.stores.append(copy_op(index, move, home, patch.buffer, False, region.accelerator))

    # ------------------------------------------------------------ jobs

    def _compute(self, index: int, layer: Layer, box: Box, views: Mapping[Storage, BoxView], unit: Unit) -> None:
        form = geometry(layer)
        ofm, inputs = views[self.of[layer.ofm]], [views[self.of[tensor]] for tensor in layer.inputs]
        if isinstance(form, Run):
            self._elements(index, layer, form, box, inputs, ofm, unit)
            return
        assert isinstance(form, Window), "`check_patches` has seen to it"
        first, channels = box.origin[2], box.extents[2]
        cuts = self.cuts.of_tile(index, layer, form, unit, self._pixels(index, box), (first, first + channels))
        self._window(index, layer, form, box, cuts, views, unit)

    def _pixels(self, index: int, box: Box) -> tuple[int, int]:
        """The rows and columns of a job over a box; over packed rows it has a single one."""
        height, width, _ = box.extents
        return (1, self.region.mapping.outputs(index, height)[1]) if index in self.region.packed else (height, width)

    def _window(
        self,
        index: int,
        layer: Layer,
        form: Window,
        box: Box,
        cuts: Iterator[CutOnBuffers],
        views: Mapping[Storage, BoxView],
        unit: Unit,
    ) -> None:
        """The jobs of a layer with a window over a box of its output."""
        region, read, written = self.region, views[self.of[layer.ifm]].rows(), views[self.of[layer.ofm]].rows()
        if index in region.packed:
            rows = box.origin[0], box.origin[0] + box.extents[0]
            unit.jobs += over_rows(region, index, layer, form, rows, cuts, read, written)
        else:
            unit.jobs += over_pixels(region, index, layer, form, box, cuts, read, written)

    def _elements(
        self, index: int, layer: Layer, form: Run, box: Box, inputs: Sequence[BoxView], ofm: BoxView, unit: Unit
    ) -> None:
        """The job of an element-wise layer; where rows of a tensor lie apart, one for each."""
        (top, left, first), (height, width, channels) = box.origin, box.extents
        runs = [ofm, *(inputs[:1] if form.repeats else inputs)]
        together = index in self.region.packed
        rows = [(top, height)] if together or all(one.flat(width) for one in runs) else _each(top, height)
        for row, count in rows:
            read = [(one.buffer, one.at(row, left, first)) for one in runs[1:]]
            read += [(one.buffer, 0) for one in inputs[len(read) :]]
            image = self.region.image(layer, (row, left, first), (count, width, channels))
            elements = count * width * channels
            if together and ofm.packing is not None:
                elements = ofm.packing.pixels(count, width) * channels
                image = image._replace(pitch=ofm.packing.pitch)
            target = ofm.buffer, ofm.at(row, left, first)
            unit.jobs.append(run_job(index, layer, form, read, target, elements, image, self.region.accelerator))


def _each(first: int, count: int) -> list[tuple[int, int]]:
    return [(row, 1) for row in range(first, first + count)]


def _box(rows: Span, columns: Span, channels: Span) -> Box:
    spans = rows, columns, channels
    return Box((rows[0], columns[0], channels[0]), tuple(stop - start for start, stop in spans))  # type: ignore[arg-type]


def _whole(storage: Storage) -> Box:
    return Box((0, 0, 0), storage.extents)


def _moves(home: Home, box: Box, patch: BoxView) -> Iterator[Transfer]:
    """The transfers of a box between its place in main memory and a patch that holds it."""
    _, width, channels = home.storage.extents
    strides = home.strides or (width * channels, channels, 1)
    main = home.offset + sum(place * stride for place, stride in zip(box.origin, strides, strict=True))
    local = patch.at(*box.origin)
    for move in strided(box.extents, strides, (patch.place.row, patch.place.pixel, 1)):
        yield move._replace(main=main + move.main, local=local + move.local)
