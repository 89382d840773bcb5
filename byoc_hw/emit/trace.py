"""The trace entries of `metadata.json`: how each layer's output is assembled from a trace.

A tiled layer's jobs are traced one by one. "jobs" has one box of the output for each job, in order:
offset, height, width, channels, and the strides of height and width; of a job over packed rows then the pixels from
one row to the next, and the number of the first pixel: its record has those between rows, too. A layer that only moves
bytes has no jobs. Its "from" names what it reads, a layer or an input of the model, with an offset in bytes, and
"axes" is the permutation of a transpose. Of other such layers "parts" lists what they read, and "boxes" what
comes from where: the place in that list (-1 for "fill", a constant), the first element there, the first in the
output, and for each dimension the number of elements and the distances from one to the next, there and in the
output. On a chip of several accelerators "pieces" are what each computes of the output: its number, bytes, jobs, and
the box where they belong. The record of a job there has the accelerator in the upper half of the layer's number. All
other outputs are traced whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from byoc_hw.emit.numbering import number_calls
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Moving, Reshape, Transpose, Whole
from byoc_hw.plan.array.parcels import Parcel, parcels
from byoc_hw.plan.array.transfers import dense_strides
from byoc_hw.plan.chip_plan import ChipPlan, ElementBox, busy_lanes
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.steps import Image, Job, RegionPlan
from byoc_hw.program import Buffer, CopyCall, HostCall, Program, RegionCall
from byoc_hw.tensor import Tensor

TraceSource = dict[str, Any]
"""Where bytes come from: {"layer": ..., "offset": ...} or {"input": ..., "offset": ...}; of a constant
its bytes in hexadecimal digits, {"constant": ..., "offset": 0}."""


def trace_entries(program: Program, regions: Mapping[str, PlannedRegion]) -> dict[str, dict[str, Any]]:
    """The entries of the layers of all regions, by the layer's number."""
    entries: dict[str, dict[str, Any]] = {}
    numbers = {lane: number for number, lane in enumerate(busy_lanes(regions.values()))}
    made: dict[Buffer, TraceSource] = {buffer: {"input": at, "offset": 0} for at, buffer in enumerate(program.inputs)}
    for call, layers in number_calls(program):
        if isinstance(call, CopyCall):
            made[call.target] = made[call.source]
        elif isinstance(call, HostCall):
            offset = 0
            for buffer in call.written:
                made[buffer] = {"layer": layers[0].id, "offset": offset}
                offset += buffer.nbytes
        elif isinstance(call, RegionCall):
            graph, region = call.graph, regions[call.graph.name]
            inside: dict[Tensor, TraceSource] = {}
            for tensor, buffer in zip(graph.inputs, call.arguments, strict=False):
                inside[tensor] = made[buffer]
            for index, (layer, numbered) in enumerate(zip(graph.layers, layers, strict=True)):
                entry = _entry(layer, index, region, inside, numbers)
                if entry:
                    entries[str(numbered.id)] = entry
                inside[layer.ofm] = {"layer": numbered.id, "offset": 0}
            for tensor, buffer in zip(graph.outputs, call.arguments[len(graph.inputs) :], strict=True):
                made[buffer] = inside[tensor]
    return entries


def _entry(
    layer: Layer,
    index: int,
    region: PlannedRegion,
    made: Mapping[Tensor, TraceSource],
    numbers: Mapping[int, int],
) -> dict[str, Any]:
    if isinstance(layer, (Reshape, Transpose)) and layer.ifm in made:
        moved: dict[str, Any] = {"from": made[layer.ifm], "bytes": layer.ofm.nbytes}
        if isinstance(layer, Transpose):
            element = layer.ifm.nbytes // layer.ifm.elements
            moved |= {"shape": [*layer.ifm.shape, element], "axes": [*layer.axes, len(layer.axes)]}
        return moved
    if isinstance(region, LibraryPlan):
        return {}
    if isinstance(layer, Moving):
        origins = [made[tensor] if tensor in made else _constant(tensor) for tensor in layer.inputs]
        boxes = [_parcel(parcel) for parcel in parcels(layer)]
        return {"bytes": layer.ofm.nbytes, "parts": origins, "fill": getattr(layer, "value", 0), "boxes": boxes}
    if isinstance(region, ChipPlan):
        return {"bytes": layer.ofm.nbytes, "pieces": list(_pieces(layer, index, region, numbers))}
    return {"bytes": layer.ofm.nbytes, "jobs": list(_boxes(layer, _jobs(region, index)))}


def _jobs(plan: RegionPlan, index: int) -> list[Job]:
    return [step for call in plan.calls if call.index == index for step in call.steps if isinstance(step, Job)]


def _pieces(layer: Layer, index: int, region: ChipPlan, numbers: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """What each accelerator computes of a layer's output, and where it belongs. `numbers` are theirs, by lane."""
    whole = (ElementBox(0, (layer.ofm.nbytes,), (1,)),)
    for part in region.parts:
        for place in (at for at, other in enumerate(part.layers) if other == index):
            piece = part.plan.graph.layers[place]
            boxes = [_parcel(_filled(box)) for box in part.boxes[place] or whole]
            whole_layer = f"0 1 1 {piece.ofm.nbytes} {piece.ofm.nbytes} {piece.ofm.nbytes}"
            at_once = part.prepared or isinstance(piece, Whole)
            jobs = [whole_layer] if at_once else list(_boxes(piece, _jobs(part.plan, place)))
            yield {"accelerator": numbers[part.lane], "bytes": piece.ofm.nbytes, "jobs": jobs, "boxes": boxes}


def _constant(tensor: Tensor) -> TraceSource:
    if tensor.data is None:
        raise PlanError(f"{tensor.name}: an input of a layer is made before it")
    return {"constant": tensor.data.tobytes().hex(), "offset": 0}


def _filled(box: ElementBox) -> Parcel:
    """The next elements of a piece, which fill a box."""
    return Parcel(0, box.counts, 0, dense_strides(box.counts), box.start, box.strides)


def _parcel(parcel: Parcel) -> str:
    strides = parcel.strides or (0,) * len(parcel.counts)
    dimensions = chain.from_iterable(zip(parcel.counts, strides, parcel.target_strides, strict=True))
    source = -1 if parcel.source is None else parcel.source
    return " ".join(map(str, (source, parcel.start, parcel.target, *dimensions)))


def _boxes(layer: Layer, jobs: list[Job]) -> Iterator[str]:
    for job in jobs:
        if job.last:
            yield _box(layer, job.image)


def _box(layer: Layer, image: Image | None) -> str:
    if image is None:
        raise PlanError(f"{layer.name}: each job that writes outputs says where they lie: one does not")
    packed = (image.pitch, image.first) if image.pitch else ()
    return " ".join(map(str, (image.offset, *image.shape, *image.strides, *packed)))
