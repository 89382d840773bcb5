"""A group of layers, stripe by stripe: the loads, jobs and stores of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.integers import round_up
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry
from byoc_hw.plan.array.packing import operands
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import Box, Transfer
from byoc_hw.plan.array.weight_blocks import WeightRun
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.cuts import JobCuts
from byoc_hw.plan.work.halo import Carry, carries, keepable
from byoc_hw.plan.work.ops import Home, LocalBuffer, Op, activations, copy_op, product_job, run_job
from byoc_hw.plan.work.row_room import RowRoom
from byoc_hw.plan.work.rows_needed import RowsOfLayers, Span, Stripe, rows_read, stripes_of
from byoc_hw.plan.work.units import Unit
from byoc_hw.plan.work.window_jobs import LocalRows, over_pixels, over_rows


@dataclass(frozen=True)
class View:
    """A buffer that holds a storage from byte `first` on."""

    buffer: LocalBuffer
    first: int


@dataclass(frozen=True)
class Halo:
    """The place in main memory for rows that are kept from stripe to stripe, and what each stripe carries."""

    home: Home
    carries: Sequence[Carry]


def stripes(region: WorkBuilder, number: int, indices: Sequence[int]) -> None:
    """Append the units of a group. `indices` are its layers, without reshapes."""
    group = region.choices.groups[number]
    kept = group.kept & keepable(region.layers, region.storages.of, indices, group.held)
    found = stripes_of(region.mapped.shared(RowsOfLayers).of(indices), group.stripes, group.held, kept)
    run = _Stripes(region, number, indices, kept, list(found))
    for at in range(len(run.stripes)):
        run.stripe(at)


class _Stripes:
    def __init__(
        self, region: WorkBuilder, number: int, indices: Sequence[int], kept: Set[int], stripes: Sequence[Stripe]
    ) -> None:
        self.region, self.number, self.indices, self.stripes = region, number, indices, stripes
        self.group = region.choices.groups[number]
        # The number of bytes of each storage that are stored so far.
        self.done = {region.storages.of[region.layers[index].ofm]: 0 for index in indices}
        self.cuts = JobCuts(region, self.group, [WeightRun((index,)) for index in indices])
        self.halos = dict(self._halos(kept))

    def _halos(self, kept: Set[int]) -> Iterator[tuple[int, Halo]]:
        """What is kept of the outputs of layers, by layer."""
        for index in self.indices:
            ofm = self.region.layers[index].ofm
            storage = self.region.storages.of[ofm]
            found = carries(self.stripes, storage, index, ofm) if storage.index in kept else []
            nbytes = max((one.end for one in found), default=0)
            if nbytes:
                yield index, Halo(self.region.halo_home(storage, nbytes), found)

    def stripe(self, number: int) -> None:
        """The unit of one stripe."""
        region, stripe = self.region, self.stripes[number]
        unit = Unit(self.number, self.group.overlap)
        views = {
            storage: self._input(storage, span, unit)
            for storage, span in stripe.needs.items()
            if storage not in self.done
        }
        views |= {storage: View(region.held[storage], 0) for storage in self.done if storage in region.held}
        for index in self.halos:
            if index not in stripe.rows:
                self._loaded(index, stripe, views, unit, self.halos[index].carries[number])
        for index, rows in reversed(stripe.rows.items()):
            layer = region.layers[index]
            storage = region.storages.of[layer.ofm]
            place = storage.place(layer.ofm)
            span = place.span(*rows)
            views[storage] = self._output(storage, stripe.written(storage, place, rows))
            room = RowRoom(region, storage, views[storage].buffer, views[storage].first, index)
            carry = self.halos[index].carries[number] if index in self.halos else Carry()
            unit.jobs += room.before(rows, self._held(storage))
            unit.jobs += self._carried(index, views[storage], carry.load, carry.load_at, True)
            self._compute(index, layer, rows, views, unit)
            self.cuts.done(index)
            unit.jobs += room.behind(rows, self._held(storage))
            unit.jobs += self._carried(index, views[storage], carry.store, carry.store_at, False)
            if len(storage.makers) > 1:  # stored at once, when all of them are done
                whole = index == storage.maker and rows[1] == extents(layer.ofm)[0]
                span = 0, storage.local_bytes if whole else 0
            if span[1] > self.done[storage]:
                for home in region.targets(storage):
                    view, done = views[storage], max(self.done[storage], views[storage].first)
                    unit.stores += region.part(index, home, view.buffer, view.first, done, span[1], False)
                self.done[storage] = span[1]
        region.add(unit)

    def _held(self, storage: Storage) -> bool:
        return storage.index in self.group.held or storage.interleaved  # a stripe reads bytes from end to end

    # ------------------------------------------------------------ inputs and outputs

    def _input(self, storage: Storage, span: Span, unit: Unit) -> View:
        region = self.region
        layer = self.indices[0]
        if self._held(storage):
            if storage not in region.held:
                region.held[storage] = activations(storage.name, storage.local_bytes)
                region.loaded[storage] = 0
                unit.loads += RowRoom(region, storage, region.held[storage], 0, layer).everywhere()
            buffer, loaded = region.held[storage], region.loaded[storage]
            later = region.held_until(storage, self.number) > self.number
            stop = storage.local_bytes if later or storage.interleaved else span[1]
            stop = self._rounded(stop, storage)
            if loaded < stop:
                for home in region.sources(storage):
                    unit.loads += region.part(layer, home, buffer, 0, loaded, stop, True)
                region.loaded[storage] = stop
            return View(buffer, 0)
        alignment = region.accelerator.dma_alignment
        first, stop = span[0] // alignment * alignment, self._rounded(span[1], storage)
        buffer = activations(storage.name, stop - first)
        unit.loads += RowRoom(region, storage, buffer, first, layer).everywhere()
        for home in region.sources(storage):
            unit.loads += region.part(layer, home, buffer, first, first, stop, True)
        return View(buffer, first)

    def _rounded(self, stop: int, storage: Storage) -> int:
        """The next offset at which a copy may end."""
        alignment = self.region.accelerator.dma_alignment
        return min(round_up(stop, alignment), storage.local_bytes)

    def _output(self, storage: Storage, span: Span) -> View:
        region = self.region
        if not self._held(storage):
            if len(storage.makers) > 1:
                raise PlanError(f"{storage.name}: what several layers write is held in local memory")
            return View(activations(storage.name, span[1] - span[0]), span[0])
        if storage not in region.held:
            region.held[storage] = activations(storage.name, storage.local_bytes)
            region.loaded[storage] = storage.local_bytes
        return View(region.held[storage], 0)

    # ------------------------------------------------------------ rows that are kept

    def _loaded(self, index: int, stripe: Stripe, views: dict[Storage, View], unit: Unit, carry: Carry) -> None:
        """Load what a stripe needs of a storage of which it computes no rows."""
        region, storage = self.region, self.region.storages.of[self.region.layers[index].ofm]
        if storage not in stripe.needs:
            return
        first, stop = stripe.needs[storage]
        views[storage] = View(activations(storage.name, stop - first), first)
        unit.jobs += RowRoom(region, storage, views[storage].buffer, first, index).everywhere()
        unit.jobs += self._carried(index, views[storage], carry.load, carry.load_at, True)

    def _carried(self, index: int, view: View, span: Span, at: int, inward: bool) -> Iterator[Op]:
        """The copy of kept bytes between a tile and byte `at` of their block in main memory, if there are any."""
        if span[0] == span[1]:
            return
        ofm, home = self.region.layers[index].ofm, self.halos[index].home
        storage = self.region.storages.of[ofm]
        move = Transfer(at, span[0] - view.first, span[1] - span[0])
        if storage.packing is not None and not storage.packing.crossed:  # between the rows is nothing
            place = storage.place(ofm)
            first, stop = place.rows(*span)
            start = place.span(first, stop)[0]
            main, local = at + start - span[0], start - view.first
            move = Transfer(main, local, place.reach, stop - first, place.row, place.row)
        yield copy_op(index, move, home, view.buffer, inward, self.region.accelerator)

    # ------------------------------------------------------------ jobs

    def _compute(self, index: int, layer: Layer, rows: Span, views: Mapping[Storage, View], unit: Unit) -> None:
        region = self.region
        ofm = views[region.storages.of[layer.ofm]]
        inputs = [views[region.storages.of[tensor]] for tensor in layer.inputs]
        form = geometry(layer)
        if isinstance(form, Run):
            self._run(index, layer, form, rows, inputs, ofm, unit)
            return
        if isinstance(form, Product):
            self._product(index, layer, form, rows, inputs, ofm, unit)
            return
        if not isinstance(form, Window):
            raise PlanError(f"{layer.name}: a {layer.kind} layer has no stripes")
        of = region.storages.of
        read, written = (
            LocalRows(view.buffer, of[tensor].place(tensor), view.first)
            for tensor, view in ((layer.ifm, inputs[0]), (layer.ofm, ofm))
        )
        height, width = rows[1] - rows[0], form.columns.ofm
        if index in region.packed:
            outputs = region.mapping.outputs(index, height)[1]
            cuts = self.cuts.of_tile(index, layer, form, unit, (1, outputs))
            unit.jobs += over_rows(region, index, layer, form, rows, cuts, read, written)
        else:
            box = Box((rows[0], 0, 0), (height, width, extents(layer.ofm)[2]))
            cuts = self.cuts.of_tile(index, layer, form, unit, (height, width))
            unit.jobs += over_pixels(region, index, layer, form, box, cuts, read, written)

    def _run(
        self, index: int, layer: Layer, form: Run, rows: Span, inputs: Sequence[View], ofm: View, unit: Unit
    ) -> None:
        """The job of an element-wise layer, whose rows are one run of bytes; where they lie apart, one for each row."""
        _, width, channels = extents(layer.ofm)
        of = self.region.storages.of
        together = index in self.region.packed
        if not together and rows[1] - rows[0] > 1 and any(of[one].packing is not None for one in operands(layer)):
            for row in range(*rows):
                self._run(index, layer, form, (row, row + 1), inputs, ofm, unit)
            return
        read = []
        for operand, (tensor, view) in enumerate(zip(layer.inputs, inputs, strict=True)):
            first, stop = rows_read(layer, rows, operand)
            read.append((view.buffer, of[tensor].place(tensor).span(first, stop)[0] - view.first))
        start = of[layer.ofm].place(layer.ofm).span(*rows)[0]
        image = self.region.image(layer, (rows[0], 0, 0), (rows[1] - rows[0], width, channels))
        elements = prod(self.region.mapping.outputs(index, rows[1] - rows[0]))
        packing = of[layer.ofm].packing
        if together and packing is not None:
            image = image._replace(pitch=packing.pitch)
        target = ofm.buffer, start - ofm.first
        unit.jobs.append(run_job(index, layer, form, read, target, elements, image, self.region.accelerator))

    def _product(
        self, index: int, layer: Layer, form: Product, rows: Span, inputs: Sequence[View], ofm: View, unit: Unit
    ) -> None:
        """The jobs of a matrix product: one for each item that the rows are of."""
        of = self.region.storages.of
        one, other, product = (of[tensor].place(tensor) for tensor in (*layer.inputs, layer.ofm))
        for first, count in form.cut(rows):
            vector, _ = rows_read(layer, (first, first + count), 1)
            operands = [
                (inputs[0].buffer, one.span(first, first)[0] - inputs[0].first),
                (inputs[1].buffer, other.span(vector, vector)[0] - inputs[1].first),
            ]
            target = ofm.buffer, product.span(first, first)[0] - ofm.first
            image = self.region.image(layer, (first, 0, 0), (count, 1, form.channels))
            job = product_job(index, layer, form, operands, target, count, image, self.region.accelerator)
            unit.jobs.append(job)
