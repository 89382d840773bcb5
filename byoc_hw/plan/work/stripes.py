"""A group of layers, stripe by stripe: the loads, jobs and stores of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_hw.accelerator import KernelPart
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import flat, is_pointwise
from byoc_hw.plan.array.kinds import PSUM_BYTES, Product, Run, Window, geometry, job_cycles, parts_of_kernel
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.weight_blocks import channel_blocks, part_bytes
from byoc_hw.plan.array.window import Place, extents
from byoc_hw.plan.choices import Blocks
from byoc_hw.plan.steps import Job
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.flash import WeightBlock
from byoc_hw.plan.work.ops import LocalBuffer, activations, job_op, product_job, run_job
from byoc_hw.plan.work.rows_needed import Span, Stripe, rows_read, stripes_of
from byoc_hw.plan.work.units import Unit


@dataclass(frozen=True)
class View:
    """A buffer that holds a storage from byte `first` on."""

    buffer: LocalBuffer
    first: int


@dataclass(frozen=True)
class Cut:
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


def stripes(region: WorkBuilder, number: int, indices: Sequence[int]) -> None:
    """Append the units of a group. `indices` are its layers, without reshapes."""
    group = region.choices.groups[number]
    run = _Stripes(region, number, indices)
    for stripe in stripes_of(region.layers, region.storages.of, indices, group.stripes, group.held):
        run.stripe(stripe)


class _Stripes:
    def __init__(self, region: WorkBuilder, number: int, indices: Sequence[int]) -> None:
        self.region, self.number, self.indices = region, number, indices
        self.group = region.choices.groups[number]
        # The number of bytes of each storage that are stored so far.
        self.done = {region.storages.of[region.layers[index].ofm]: 0 for index in indices}
        self.kept: dict[WeightBlock, LocalBuffer] = {}
        self.blocks: dict[int, list[tuple[int, int, int, int]]] = {}  # of each layer; see `_blocks`

    def stripe(self, stripe: Stripe) -> None:
        """The unit of one stripe."""
        region = self.region
        unit = Unit(self.number, self.group.overlap)
        views = {
            storage: self._input(storage, span, unit)
            for storage, span in stripe.needs.items()
            if storage not in self.done
        }
        views |= {storage: View(region.held[storage], 0) for storage in self.done if storage in region.held}
        for index, rows in reversed(stripe.rows.items()):
            layer = region.layers[index]
            storage = region.storages.of[layer.ofm]
            span = storage.place(layer.ofm).span(*rows)
            views[storage] = self._output(storage, span)
            self._compute(index, layer, rows, views, unit)
            if len(storage.makers) > 1:  # stored at once, when all of them are done
                whole = index == storage.maker and rows[1] == extents(layer.ofm)[0]
                span = 0, storage.nbytes if whole else 0
            if span[1] > self.done[storage]:
                for home in region.targets(storage):
                    view, done = views[storage], self.done[storage]
                    unit.stores += region.part(index, home, view.buffer, view.first, done, span[1], False)
                self.done[storage] = span[1]
        region.units.append(unit)

    def _held(self, storage: Storage) -> bool:
        return storage.index in self.group.held

    # ------------------------------------------------------------ inputs and outputs

    def _input(self, storage: Storage, span: Span, unit: Unit) -> View:
        region = self.region
        home = region.homes.get(storage)
        layer = self.indices[0]
        if self._held(storage):
            if storage not in region.held:
                region.held[storage] = activations(storage.name, storage.nbytes)
                region.loaded[storage] = 0
            buffer, loaded = region.held[storage], region.loaded[storage]
            stop = storage.nbytes if region.held_until(storage, self.number) > self.number else span[1]
            stop = self._rounded(stop, storage)
            if loaded < stop:
                assert home is not None, "what is not held lies in main memory"
                unit.loads += region.part(layer, home, buffer, 0, loaded, stop, True)
                region.loaded[storage] = stop
            return View(buffer, 0)
        assert home is not None, "what is not held lies in main memory"
        alignment = region.accelerator.dma_alignment
        first, stop = span[0] // alignment * alignment, self._rounded(span[1], storage)
        buffer = activations(storage.name, stop - first)
        unit.loads += region.part(layer, home, buffer, first, first, stop, True)
        return View(buffer, first)

    def _rounded(self, stop: int, storage: Storage) -> int:
        """The next offset at which a copy may end."""
        alignment = self.region.accelerator.dma_alignment
        return min(round_up(stop, alignment), storage.nbytes)

    def _output(self, storage: Storage, span: Span) -> View:
        region = self.region
        if not self._held(storage):
            if len(storage.makers) > 1:
                raise PlanError(f"{storage.name}: what several layers write is held in local memory")
            return View(activations(storage.name, span[1] - span[0]), span[0])
        if storage not in region.held:
            region.held[storage] = activations(storage.name, storage.nbytes)
            region.loaded[storage] = storage.nbytes
        return View(region.held[storage], 0)

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
        height, width = rows[1] - rows[0], form.columns.ofm
        local = {"ifm": inputs[0].buffer, "ofm": ofm.buffer}
        source, target = (region.storages.of[tensor].place(tensor) for tensor in (layer.ifm, layer.ofm))
        ofm_start = target.span(rows[0], rows[0])[0] - ofm.first
        for cut in self._cuts(index, layer, form, unit, (height, width)):
            row = form.rows.part(cut.part.row, cut.part.height).extent(rows[0], height)
            column = form.columns.part(cut.part.column, cut.part.width).extent(0, width)
            ifm_start = source.span(row.ifm_start, row.ifm_start)[0] - inputs[0].first
            ifm_start += column.ifm_start * source.pixel
            ifm_shape = (row.ifm_size, column.ifm_size, cut.depths)
            ofm_shape = (height, width, cut.channels)
            if is_pointwise(layer) and _flat(source, column.ifm_size) and _flat(target, width):
                mapped = flat(ifm_shape), flat(ofm_shape)
                flattened = job_cycles(layer, *mapped, region.accelerator)
                if flattened < job_cycles(layer, ifm_shape, ofm_shape, region.accelerator):
                    ifm_shape, ofm_shape = mapped
            job = Job(
                ifm=ifm_start + layer.ifm.bytes_of(cut.depth),
                ofm=ofm_start + layer.ofm.bytes_of(cut.channel),
                ifm_shape=ifm_shape,
                ofm_shape=ofm_shape,
                ifm_row=ifm_shape[1] * source.pixel if ifm_shape[0] == 1 else source.row,
                ofm_row=target.row * (height if ofm_shape[0] == 1 else 1),
                ifm_pixel=source.pixel,
                ofm_pixel=target.pixel,
                weights=cut.weights,
                params=cut.params,
                padding=(row.pad_before, column.pad_before, row.pad_after, column.pad_after),
                kernel=cut.part.size if isinstance(layer, Weighted) else (0, 0),
                first=cut.first,
                last=cut.last,
                image=region.image(layer, (rows[0], 0, cut.channel), (height, width, cut.channels)),
            )
            unit.jobs.append(job_op(index, layer, job, local | cut.local, region.accelerator))

    def _cuts(self, index: int, layer: Layer, form: Window, unit: Unit, pixels: Span) -> Iterator[Cut]:
        """The jobs over one tile, each once its weights are there."""
        parts = parts_of_kernel(layer, self.region.accelerator)
        if not isinstance(layer, Weighted):
            channels = layer.ofm.shape[-1]
            yield Cut(0, channels, 0, channels, parts[0], True, True, 0, 0, {})
            return
        region = self.region
        total = layer.in_channels
        blocks = region.choices.blocks[index] or Blocks(layer.out_channels, total)
        sliced = blocks.depth < total
        partial = sliced or len(parts) > 1
        shared = WeightBlock(index, 0, layer.out_channels, 0, 0, True)
        for start, together, channel, count in self._blocks(index, layer, blocks):
            psum = activations(layer.name, PSUM_BYTES * pixels[0] * pixels[1] * count) if partial else None
            for first, depths in linear_chunks(total, blocks.depth):
                block = WeightBlock(index, start, together, first, depths, not sliced)
                local = {"weights": self._weights(index, layer, block, unit)}
                local["params"] = self._weights(index, layer, shared, unit) if sliced else local["weights"]
                if psum is not None:
                    local["psum"] = psum
                weights = region.flash.weights_at(block)
                for part in parts:
                    yield Cut(
                        channel,
                        count,
                        form.first_input(channel) + first if form.sums else channel,
                        depths if form.sums else count,
                        part,
                        first == 0 and part is parts[0],
                        first + depths == total and part is parts[-1],
                        weights + part_bytes(layer, part, channel - start, depths),
                        region.params_at(channel if sliced else channel - start),
                        local,
                    )
                    weights += part_bytes(layer, part, together, depths)
        if not self.group.resident:
            self.kept.clear()

    def _blocks(self, index: int, layer: Weighted, blocks: Blocks) -> list[tuple[int, int, int, int]]:
        """The channels of each job: those of its block, and its own."""
        if index not in self.blocks:
            self.blocks[index] = [
                (start, together, start + first, count)
                for start, together in channel_blocks(layer, blocks)
                for first, count in linear_chunks(together, layer.group_channels)
            ]
        return self.blocks[index]

    def _weights(self, index: int, layer: Weighted, block: WeightBlock, unit: Unit) -> LocalBuffer:
        if block not in self.kept:
            self.kept[block], load = self.region.weights(index, layer, block)
            unit.jobs.append(load)
        return self.kept[block]

    def _run(
        self, index: int, layer: Layer, form: Run, rows: Span, inputs: Sequence[View], ofm: View, unit: Unit
    ) -> None:
        """The job of an element-wise layer, whose rows are one run of bytes."""
        _, width, channels = extents(layer.ofm)
        of = self.region.storages.of
        operands = []
        for operand, (tensor, view) in enumerate(zip(layer.inputs, inputs, strict=True)):
            first, stop = rows_read(layer, rows, operand)
            operands.append((view.buffer, of[tensor].place(tensor).span(first, stop)[0] - view.first))
        start = of[layer.ofm].place(layer.ofm).span(*rows)[0]
        image = self.region.image(layer, (rows[0], 0, 0), (rows[1] - rows[0], width, channels))
        elements = (rows[1] - rows[0]) * width * channels
        target = ofm.buffer, start - ofm.first
        unit.jobs.append(run_job(index, layer, form, operands, target, elements, image, self.region.accelerator))

    def _product(
        self, index: int, layer: Layer, form: Product, rows: Span, inputs: Sequence[View], ofm: View, unit: Unit
    ) -> None:
        """The jobs of a matrix product: one for each item that the rows are of."""
        of = self.region.storages.of
        one, other, product = (of[tensor].place(tensor) for tensor in (*layer.inputs, layer.ofm))
        for item, first, count in form.cut(rows):
            operands = [
                (inputs[0].buffer, one.span(first, first)[0] - inputs[0].first),
                (inputs[1].buffer, other.span(item, item)[0] - inputs[1].first),
            ]
            target = ofm.buffer, product.span(first, first)[0] - ofm.first
            image = self.region.image(layer, (first, 0, 0), (count, 1, form.channels))
            job = product_job(index, layer, form, operands, target, count, image, self.region.accelerator)
            unit.jobs.append(job)


def _flat(place: Place, width: int) -> bool:
    """Whether all pixels of a tensor are equally far apart, across its rows too."""
    return place.row == width * place.pixel
