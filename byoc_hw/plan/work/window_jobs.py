"""The jobs of a window over a box of its output: over its pixels as they lie, or over packed rows as a single one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from byoc_hw.graph import Layer, Weighted
from byoc_hw.limits import KernelPart
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window
from byoc_hw.plan.array.transfers import Box
from byoc_hw.plan.array.window import Extent, Place
from byoc_hw.plan.steps import Image, Job
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.cuts import CutOnBuffers
from byoc_hw.plan.work.ops import LocalBuffer, Op
from byoc_hw.plan.work.rows_needed import Span


@dataclass(frozen=True)
class LocalRows:
    """Rows in local memory: their place in a storage, of which a buffer has the bytes from `first` on."""

    buffer: LocalBuffer
    place: Place
    first: int

    def at(self, row: int, pixel: int, nbytes: int) -> int:
        """The byte in the buffer that is `nbytes` behind the start of a pixel, which may lie beside its row."""
        return self.place.span(row, row)[0] + pixel * self.place.pixel + nbytes - self.first

    def flat(self, width: int) -> bool:
        """Whether rows of `width` pixels have all pixels equally far apart, across rows too."""
        return self.place.row == width * self.place.pixel


def over_pixels(
    region: WorkBuilder,
    index: int,
    layer: Layer,
    form: Window,
    box: Box,
    cuts: Iterable[CutOnBuffers],
    ifm: LocalRows,
    ofm: LocalRows,
) -> Iterator[Op]:
    """The jobs of a window over a box of its output."""
    (top, left, _), (height, width, _) = box.origin, box.extents
    image = region.image(layer, (top, left, 0), box.extents)
    known: dict[KernelPart, tuple[Extent, Extent, int]] = {}  # of each part: rows, columns, where its input begins
    ofm_start = ofm.at(top, left, 0)
    for cut, local in cuts:
        if cut.part not in known:
            row = form.rows.part(cut.part.row, cut.part.height).extent(top, height)
            column = form.columns.part(cut.part.column, cut.part.width).extent(left, width)
            known[cut.part] = row, column, ifm.at(row.ifm_start, column.ifm_start, 0)
        row, column, ifm_start = known[cut.part]
        ifm_shape, ofm_shape = (row.ifm_size, column.ifm_size, cut.depths), (height, width, cut.channels)
        if ifm.flat(column.ifm_size) and ofm.flat(width):
            ifm_shape, ofm_shape = region.dense_shapes(index, layer, ifm_shape, ofm_shape)
        job = Job(
            ifm=ifm_start + layer.ifm.bytes_of(cut.depth),
            ofm=ofm_start + layer.ofm.bytes_of(cut.channel),
            ifm_shape=ifm_shape,
            ofm_shape=ofm_shape,
            ifm_row=ifm_shape[1] * ifm.place.pixel if ifm_shape[0] == 1 else ifm.place.row,
            ofm_row=ofm.place.row * (height if ofm_shape[0] == 1 else 1),
            ifm_pixel=ifm.place.pixel,
            ofm_pixel=ofm.place.pixel,
            weights=cut.weights,
            params=cut.params,
            padding=(row.pad_before, column.pad_before, row.pad_after, column.pad_after),
            kernel=cut.part.size if isinstance(layer, Weighted) else (0, 0),
            first=cut.first,
            last=cut.last,
            image=Image(image.offset + cut.channel, (height, width, cut.channels), image.strides),
        )
        yield region.job(index, layer, job, {"ifm": ifm.buffer, "ofm": ofm.buffer, **local})


def over_rows(
    region: WorkBuilder,
    index: int,
    layer: Layer,
    form: Window,
    rows: Span,
    cuts: Iterable[CutOnBuffers],
    ifm: LocalRows,
    ofm: LocalRows,
) -> Iterator[Op]:
    """The jobs of a window of stride 1 over some packed rows of its output."""
    packing = region.storages.of[layer.ifm].packing
    assert packing is not None, "its images are packed"
    _, outputs, channels = region.mapping.outputs(index, rows[1] - rows[0])
    image = region.image(layer, (rows[0], 0, 0), (rows[1] - rows[0], form.columns.ofm, channels))
    pieces = list(_pieces(region, layer, form, rows, outputs))
    known: dict[KernelPart, tuple[int, int, int]] = {}  # of each part: rows, columns but one, where its input begins
    ofm_first = ofm.at(rows[0], 0, 0)
    for cut, some in cuts:
        if cut.part not in known:
            height = form.rows.part(cut.part.row, cut.part.height)
            width = form.columns.part(cut.part.column, cut.part.width)
            before = ifm.at(rows[0] - height.before, -width.before, 0)
            known[cut.part] = height.reach, width.reach - 1, before
        *reach, ifm_first = known[cut.part]
        ifm_start = ifm_first + layer.ifm.bytes_of(cut.depth)
        ofm_start = ofm_first + layer.ofm.bytes_of(cut.channel)
        local = {"ifm": ifm.buffer, "ofm": ofm.buffer, **some}
        for first, count in pieces:
            job = Job(
                ifm=ifm_start + first * ifm.place.pixel,
                ofm=ofm_start + first * ofm.place.pixel,
                ifm_shape=(reach[0], count + reach[1], cut.depths),
                ofm_shape=(1, count, cut.channels),
                ifm_row=ifm.place.row,
                ofm_row=count * ofm.place.pixel,
                ifm_pixel=ifm.place.pixel,
                ofm_pixel=ofm.place.pixel,
                psum=first * cut.channels * PSUM_BYTES if "psum" in local else 0,
                weights=cut.weights,
                params=cut.params,
                kernel=cut.part.size,
                first=cut.first,
                last=cut.last,
                image=Image(
                    image.offset + cut.channel,
                    (*image.shape[:2], cut.channels),
                    image.strides,
                    packing.pitch,
                    first,
                ),
            )
            yield region.job(index, layer, job, local)


def _pieces(region: WorkBuilder, layer: Layer, form: Window, rows: Span, outputs: int) -> Iterator[Span]:
    """The outputs of a job in pieces: while one is computed, what lies between the rows of another is filled. The
    first of each, and their number."""
    columns = region.accelerator.array_columns
    cuts = {0, outputs}
    source, target = (region.storages.of[tensor] for tensor in (layer.ifm, layer.ofm))
    if target.packing is not None and target.packing.padded:
        cuts.add(target.packing.last_cut(outputs, region.accelerator))
    if source.packing is not None and source.packing.padded and source.maker in region.packed:
        late = source.packing.first_late(source.extents, region.accelerator)
        behind = (form.rows.reach - 1 - form.rows.before) * source.packing.pitch
        behind += form.columns.reach - 1 - form.columns.before
        if late is not None and rows[0] == 0:
            cuts.add(min(max(late - behind, 0) // columns * columns, outputs))
    for start, stop in pairwise(sorted(cuts)):
        yield start, stop - start
