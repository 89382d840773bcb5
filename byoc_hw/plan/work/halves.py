"""Copies and jobs cut in two: both parts together do what the whole did, on the same bytes, the first part first.

A copy is cut between two rows, or between two words of the DMA. A job is cut where that costs the array nothing:
between two rows of its output, between the groups of pixels of its only row, or between groups of output channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import PSUM_BYTES, Run, Window, geometry, rows_at_a_time, sums_channels
from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.steps import Copy, Image, Job
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op, job_cost, job_op

Halves = tuple[Op, Op]


# ---------------------------------------------------------------- copies


def copy_cuts(op: Op, accelerator: Accelerator) -> range:
    """The rows of a copy, or the bytes of one that has a single row, at which it can be cut."""
    step = op.step
    if not isinstance(step, Copy):
        return range(0)
    if step.rows > 1:
        return range(1, step.rows)
    word = lcm(accelerator.dma_width, accelerator.dma_alignment)
    return range(word, step.nbytes, word)


def copy_halves(op: Op, at: int, accelerator: Accelerator) -> Halves:
    """A copy, cut at one of its `copy_cuts`."""
    step = op.step
    assert isinstance(step, Copy), "a job is no copy"
    if step.rows == 1:
        sizes, moved = ((at, 1), (step.nbytes - at, 1)), (at, at)
    else:
        sizes = (step.nbytes, at), (step.nbytes, step.rows - at)
        moved = at * step.target_stride, at * step.source_stride
    accesses = [_accessed(op, step, access, at, moved) for access in op.accesses]
    first, second = (
        replace(
            op,
            step=_rows(step, *size, *(moved if late else (0, 0))),
            accesses=tuple(access for both in accesses if (access := both[late]) is not None),
            cycles=copy_cycles(*size, accelerator),
        )
        for late, size in enumerate(sizes)
    )
    return first, second


def _rows(step: Copy, nbytes: int, rows: int, target: int, source: int) -> Copy:
    """Some of the rows or bytes of a copy."""
    strides = (step.target_stride, step.source_stride) if rows > 1 else (0, 0)
    return Copy(step.target + target, step.source + source, nbytes, rows, *strides)


def _accessed(
    op: Op, step: Copy, access: Access, at: int, moved: tuple[int, int]
) -> tuple[Access | None, Access | None]:
    """What both parts access of the bytes that a copy does. Of one with an access for each row, a part has its own."""
    alike = [one for one in op.accesses if one.place == access.place]
    if len(alike) > 1:
        early = alike.index(access) < at
        return (access, None) if early else (None, access)
    by = moved[access.writes is False]
    if step.rows == 1:
        middle = access.start + by
        return access._replace(stop=middle), access._replace(start=middle)
    stride = step.source_stride if access.writes is False else step.target_stride
    stop = access.start + (at - 1) * stride + step.nbytes
    return access._replace(stop=stop), access._replace(start=access.start + by)


# ---------------------------------------------------------------- jobs


def row_cuts(op: Op, layer: Layer, accelerator: Accelerator) -> range:
    """The rows at which a job can be cut, or the pixels of one that has a single row."""
    job, form = op.step, geometry(layer)
    if not isinstance(job, Job) or job.image is None:
        return range(0)
    if isinstance(form, Run):
        return range(1, _run_rows(job, form))
    if not isinstance(form, Window):
        return range(0)
    if job.ofm_shape[0] > 1:
        return range(1, job.ofm_shape[0])
    return range(accelerator.array_columns, job.ofm_shape[1], accelerator.array_columns)


def channel_cuts(op: Op, layer: Layer, accelerator: Accelerator) -> range:
    """The output channels at which a job can be cut: where its sums are complete, and with weights."""
    job = op.step
    if not isinstance(job, Job) or not isinstance(layer, Weighted) or not (job.first and job.last):
        return range(0)
    rows = rows_at_a_time(layer, accelerator)
    return range(rows, job.ofm_shape[2], rows)


def row_halves(op: Op, layer: Layer, at: int, accelerator: Accelerator) -> Halves:
    """A job, cut at one of its `row_cuts`."""
    job, form = op.step, geometry(layer)
    assert isinstance(job, Job)
    if isinstance(form, Run):
        parts = [_run_part(job, layer, form, *span) for span in _spans(at, _run_rows(job, form))]
    else:
        assert isinstance(form, Window), "others are not cut"
        axis = int(job.ofm_shape[0] == 1)
        parts = [_window_part(job, layer, form, axis, *span) for span in _spans(at, job.ofm_shape[axis])]
    return _both(op, layer, parts, accelerator)


def channel_halves(op: Op, layer: Layer, at: int, accelerator: Accelerator) -> Halves:
    """A job, cut at one of its `channel_cuts`."""
    job = op.step
    assert isinstance(job, Job)
    assert isinstance(layer, Weighted)
    parts = [_channels(job, layer, *span) for span in _spans(at, job.ofm_shape[2])]
    return _both(op, layer, parts, accelerator)


def _both(op: Op, layer: Layer, parts: Sequence[Job], accelerator: Accelerator) -> Halves:
    first, second = (job_op(op.layer, layer, part, op.local, job_cost(layer, part, accelerator)) for part in parts)
    return first, second


def _spans(at: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (0, at), (at, size - at)


def _run_rows(job: Job, form: Run) -> int:
    """The rows of a run that can be told apart, 0 where they cannot. The last one may end with its image."""
    image = job.image
    if image is None or form.each > 1:
        return 0
    rows, rest = divmod(job.ofm_shape[1], _run_row(image))
    if rest == 0:
        return rows
    return rows + 1 if rest == image.shape[1] * image.shape[2] else 0


def _run_row(image: Image) -> int:
    """The elements of a row of a run, with those between packed rows."""
    return (image.pitch or image.shape[1]) * image.shape[2]


def _run_part(job: Job, layer: Layer, form: Run, first: int, rows: int) -> Job:
    """Some rows of the run of an element-wise layer. A second input that repeats, one value, is for all of them."""
    image = job.image
    assert image is not None
    start = first * _run_row(image)
    count = min(rows * _run_row(image), job.ofm_shape[1] - start)
    shape = (1, count, 1)
    return job._replace(
        ifm=job.ifm + layer.inputs[0].bytes_of(start),
        ifm2=job.ifm2 + (layer.inputs[1].bytes_of(start) if len(layer.inputs) > 1 and not form.repeats else 0),
        ofm=job.ofm + layer.ofm.bytes_of(start),
        ifm_shape=shape,
        ofm_shape=shape,
        ifm_row=layer.ofm.bytes_of(count),
        ofm_row=layer.ofm.bytes_of(count),
        image=_image_rows(image, first, rows),
    )


def _image_rows(image: Image, first: int, rows: int) -> Image:
    offset = image.offset + first * image.strides[0]
    return image._replace(offset=offset, shape=(rows, *image.shape[1:]))


def _window_part(job: Job, layer: Layer, form: Window, axis: int, first: int, count: int) -> Job:
    """Some rows of a job's output (`axis` is 0), or some pixels of its only row (1)."""
    along = (form.rows, form.columns)[axis]
    kernel = job.kernel[axis] if isinstance(layer, Weighted) else along.kernel
    seen = Axis(job.ifm_shape[axis], job.ofm_shape[axis], kernel, along.stride, job.padding[axis], along.dilation)
    extent = seen.extent(first, count)
    ifm_shape, ofm_shape, padding = list(job.ifm_shape), list(job.ofm_shape), list(job.padding)
    ifm_shape[axis], ofm_shape[axis] = extent.ifm_size, count
    padding[axis], padding[axis + 2] = extent.pad_before, extent.pad_after
    ifm_step, ofm_step = ((job.ifm_row, job.ofm_row), (job.ifm_pixel, job.ofm_pixel))[axis]
    before = first * (job.ofm_shape[1] if axis == 0 else 1)
    height, width, channels = ofm_shape
    assert job.image is not None
    return job._replace(
        ifm=job.ifm + extent.ifm_start * ifm_step,
        ofm=job.ofm + first * ofm_step,
        psum=job.psum + (0 if job.first and job.last else PSUM_BYTES * before * channels),
        ifm_shape=(ifm_shape[0], ifm_shape[1], ifm_shape[2]),
        ofm_shape=(height, width, channels),
        ifm_row=ifm_shape[1] * job.ifm_pixel if ifm_shape[0] == 1 else job.ifm_row,
        ofm_row=width * job.ofm_pixel if height == 1 else job.ofm_row,
        padding=(padding[0], padding[1], padding[2], padding[3]),
        image=_image_rows(job.image, first, count) if axis == 0 else _image_pixels(job.image, first, count),
    )


def _image_pixels(image: Image, first: int, count: int) -> Image:
    """Some pixels of the image of a job with a single row, which may be all pixels of several rows."""
    if image.pitch == 0 and image.shape[0] == 1:
        offset = image.offset + first * image.strides[1]
        return image._replace(offset=offset, shape=(1, count, image.shape[2]))
    return image._replace(pitch=image.pitch or image.shape[1], first=image.first + first)


def _channels(job: Job, layer: Weighted, first: int, count: int) -> Job:
    """Some output channels of a job."""
    (height, width, inputs), image = job.ifm_shape, job.image
    sums = sums_channels(layer)
    each = packed_channel_bytes(job.kernel[0] * job.kernel[1] * (inputs if sums else 1), layer.weights.bits)
    return job._replace(
        ifm=job.ifm + (0 if sums else layer.ifm.bytes_of(first)),
        ofm=job.ofm + layer.ofm.bytes_of(first),
        ifm_shape=job.ifm_shape if sums else (height, width, count),
        ofm_shape=(*job.ofm_shape[:2], count),
        weights=job.weights + first * each,
        params=job.params + first * PARAMS_BYTES,
        image=image and image._replace(offset=image.offset + first, shape=(*image.shape[:2], count)),
    )


def touches(one: Op, other: Op, offsets: dict[LocalBuffer, int]) -> bool:
    """Whether two operations share bytes, of which at least one writes."""
    return any(
        (first.writes or second.writes) and _overlap(first, second, offsets)
        for first in one.accesses
        for second in other.accesses
    )


def _overlap(one: Access, other: Access, offsets: dict[LocalBuffer, int]) -> bool:
    if isinstance(one.place, LocalBuffer) and isinstance(other.place, LocalBuffer):
        first, second = offsets[one.place], offsets[other.place]
        same = one.place.space == other.place.space
    else:
        first = second = 0
        same = one.place == other.place
    return same and first + one.start < second + other.stop and second + other.start < first + one.stop
