"""What is known of each layer, whatever its group, for `reloads.py`: what it touches that local memory has no room for,
and in how many stripes it is at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div, largest_allowed
from byoc_hw.plan.array.kinds import Run, Window, geometry
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.by_itself import by_itself
from byoc_hw.plan.bound.halos import pixel_cycles
from byoc_hw.plan.bound.latency import has_jobs, reads_all
from byoc_hw.plan.bound.seen import fewest_seen
from byoc_hw.plan.bound.ways import Floats, weight_bytes
from byoc_hw.tensor import Pair, Tensor


@dataclass(frozen=True)
class KnownLayer:
    """A layer.

    `reads` are the inputs beyond local memory that it reads all of. `stored` are the bytes of an output beyond local
    memory: it is stored where a reader is in a later group, or where it is an `output` of the region. `readers` are the
    layers that read all of its output, `all_readers` those that read any of it, with jobs or not; `elsewhere` is true
    if anything but `readers` reads it.

    It is in so many `stripes` at least, of the `most` rows or columns: with its inputs in local memory, and with its
    output as well. `plain` are the inputs of its output's shape that a layer makes, or that are the region's. It may
    sum over channels (`sums`), or work channel by channel (`by_channels`), or element by element (`elements`). It
    `grows` if each further row needs another one of its input.

    The array needs `array` cycles for it, and `pixel` for each pixel that it computes again. Of all ways that may be
    the best for a group of this layer `alone`, those are cycles of the array and of copies beyond all of its work once.
    """

    layer: Layer
    jobs: bool
    weights: float
    reads: tuple[Tensor, ...]
    readers: tuple[int, ...]
    all_readers: tuple[int, ...]
    elsewhere: bool
    stored: int
    output: bool
    stripes: tuple[float, float]
    most: tuple[Pair, Pair]
    plain: tuple[Tensor, ...]
    sums: bool
    by_channels: bool
    elements: bool
    grows: bool
    alone: tuple[Floats, Floats]
    array: float
    pixel: float

    @property
    def lines(self) -> tuple[int, int]:
        """The rows and columns of its output."""
        return _lines(self.layer)

    @property
    def in_slices(self) -> bool:
        """Whether slices of its inputs may be all that is there of them."""
        return self.by_channels or self.elements


def known_layers(graph: Graph, one: Accelerator, array: Sequence[float]) -> list[KnownLayer]:
    """The layers of a region, which take the array so many cycles at least."""
    room, outputs = one.activation_memory, set(graph.outputs)
    readers: dict[Tensor, list[int]] = {}
    everywhere: dict[Tensor, list[int]] = {}
    others = set(outputs)
    for index, layer in enumerate(graph.layers):
        for tensor in dict.fromkeys(layer.inputs):
            everywhere.setdefault(tensor, []).append(index)
            if has_jobs(layer) and reads_all(layer):
                readers.setdefault(tensor, []).append(index)
            else:
                others.add(tensor)
    plain = {layer.ofm for layer in graph.layers if has_jobs(layer)} | set(graph.inputs)
    found = []
    for layer, cycles in zip(graph.layers, array, strict=True):
        jobs, form = has_jobs(layer), geometry(layer)
        window = form if isinstance(form, Window) else None
        same = tuple(one for one in dict.fromkeys(layer.inputs) if one in plain and one.shape == layer.ofm.shape)
        reads = [one for one in dict.fromkeys(layer.inputs) if one in plain and one.nbytes > room]
        sums = window is not None and isinstance(layer, Weighted) and window.sums and window.groups == 1
        by_channels = window is not None and not window.sums
        read = tuple(reads) if jobs and reads_all(layer) else ()
        most = _most(layer, len(same), room, False), _most(layer, len(same), room, True)
        found.append(
            KnownLayer(
                layer=layer,
                jobs=jobs,
                weights=weight_bytes(layer) if jobs else 0.0,
                reads=read,
                readers=tuple(readers.get(layer.ofm, ())) if jobs else (),
                all_readers=tuple(everywhere.get(layer.ofm, ())),
                elsewhere=layer.ofm in others,
                stored=layer.ofm.nbytes if jobs and layer.ofm.nbytes > room else 0,
                output=layer.ofm in outputs,
                stripes=(_stripes(layer, most[0]), _stripes(layer, most[1])),
                most=most,
                plain=same,
                sums=sums,
                by_channels=by_channels,
                elements=isinstance(form, Run) and form.each == 1 and not form.repeats,
                grows=isinstance(form, Run) or (window is not None and _grows(window)),
                alone=by_itself(layer, one, cycles)
                if isinstance(layer, Weighted) and sums and read
                else (np.zeros(1), np.zeros(1)),
                array=cycles if jobs else 0.0,
                pixel=pixel_cycles(layer, one) if jobs and cycles else 0.0,
            )
        )
    return found


def _stripes(layer: Layer, most: Pair) -> float:
    """The fewest stripes of a layer, of at most so many rows, or else columns."""
    return min(ceil_div(lines, size) if size else inf for lines, size in zip(_lines(layer), most, strict=True))


def _most(layer: Layer, operands: int, room: int, inside: bool) -> Pair:
    """The most rows of a layer that have room with what it reads for them, and with `inside` with what it makes as
    well; and the most columns, which may be rows of the plan."""
    (height, width), made = _lines(layer), layer.ofm.bytes_of(extents(layer.ofm)[2]) * inside

    def fits(rows: int, columns: int) -> bool:
        return _read(layer, operands, rows, columns) + made * rows * columns <= room

    return (
        largest_allowed(height, lambda rows: fits(rows, width)),
        largest_allowed(width, lambda columns: fits(height, columns)),
    )


def _lines(layer: Layer) -> tuple[int, int]:
    """The rows and columns of a layer's output."""
    form = geometry(layer)
    return (form.rows.ofm, form.columns.ofm) if isinstance(form, Window) else extents(layer.ofm)[:2]


def _read(layer: Layer, operands: int, rows: int, columns: int) -> float:
    """Bytes that a layer reads at least for so many rows and columns of its output; an element-wise one reads as much
    of so many `operands`."""
    form = geometry(layer)
    if isinstance(form, Window):
        seen = int(fewest_seen(form.rows)[rows] * fewest_seen(form.columns)[columns])
        return layer.ifm.bytes_of(seen * form.ifm_channels)
    if isinstance(form, Run):
        return operands * layer.ofm.bytes_of(rows * columns * extents(layer.ofm)[2])
    return 0


def _grows(window: Window) -> bool:
    """Whether each further row, or column, of the output needs another one of the input, until all are needed."""
    return all(axis.before < axis.reach for axis in (window.rows, window.columns))
