"""The jobs of a layer over packed rows as a single one: its outputs in a few pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from byoc_hw.graph import Layer
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window
from byoc_hw.plan.array.window import Place
from byoc_hw.plan.steps import Job
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.cuts import Cut
from byoc_hw.plan.work.ops import LocalBuffer, Op, job_op
from byoc_hw.plan.work.rows_needed import Span


@dataclass(frozen=True)
class LocalRows:
    """Packed rows in local memory: their place in a storage, or in some of its channels from `channel` on, of which a
    buffer has the bytes from `first` on."""

    buffer: LocalBuffer
    place: Place
    first: int = 0
    channel: int = 0

    def at(self, row: int, pixel: int, channel: int) -> int:
        """The byte in the buffer of an element, whose pixel may lie beside its row."""
        return self.place.span(row, row)[0] + pixel * self.place.pixel + channel - self.channel - self.first


def over_rows(
    region: WorkBuilder,
    index: int,
    layer: Layer,
    form: Window,
    rows: Span,
    cuts: Iterable[Cut],
    ifm: LocalRows,
    ofm: LocalRows,
) -> Iterator[Op]:
    """The jobs of a window of stride 1 over some rows of its output."""
    packing = region.storages.of[layer.ifm].packing
    assert packing is not None, "its images are packed"
    _, outputs, channels = region.mapping.outputs(index, rows[1] - rows[0])
    image = region.image(layer, (rows[0], 0, 0), (rows[1] - rows[0], form.columns.ofm, channels))
    for cut in cuts:
        height = form.rows.part(cut.part.row, cut.part.height)
        width = form.columns.part(cut.part.column, cut.part.width)
        local = {"ifm": ifm.buffer, "ofm": ofm.buffer} | cut.local
        for first, count in _pieces(region, layer, form, rows, outputs):
            job = Job(
                ifm=ifm.at(rows[0] - height.before, first - width.before, cut.depth),
                ofm=ofm.at(rows[0], first, cut.channel),
                ifm_shape=(height.reach, count + width.reach - 1, cut.depths),
                ofm_shape=(1, count, cut.channels),
                ifm_row=ifm.place.row,
                ofm_row=count * ofm.place.pixel,
                ifm_pixel=ifm.place.pixel,
                ofm_pixel=ofm.place.pixel,
                psum=first * cut.channels * PSUM_BYTES if "psum" in cut.local else 0,
                weights=cut.weights,
                params=cut.params,
                kernel=cut.part.size,
                first=cut.first,
                last=cut.last,
                image=replace(
                    image,
                    offset=image.offset + cut.channel,
                    shape=(*image.shape[:2], cut.channels),
                    pitch=packing.pitch,
                    first=first,
                ),
            )
            yield job_op(index, layer, job, local, region.accelerator)


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
