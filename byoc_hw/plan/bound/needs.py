"""How much of earlier layers has to be computed before any job of a layer can begin.

An output of a window reads some rows, columns and channels of the input, these read some of the input of the layer that
made it, and so on. What any output needs, wherever it lies, is needed by each: the least rows, columns and channels
are counted. A job may sum over one of the input channels only, or over a part of the kernel, but for what all plans on
a chip sum at once; what it reads is complete, of all channels that were to be summed. Of several readers of a tensor
one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Graph, Layer, Pad, Reshape, Transpose, Weighted, Whole
from byoc_hw.plan.array.kinds import Run, Window, geometry, parts_of_kernel
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.tiling import Tiler
from byoc_hw.plan.array.weight_blocks import SHARES, fits_often
from byoc_hw.plan.array.window import Axis, Extents, extents
from byoc_hw.plan.bound.ways import able
from byoc_hw.plan.choices import Choices, Group, Tiling
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Spans:
    """Where rows or columns begin and end: a pair for each place at which an output may lie; of them each `step`-th
    one."""

    first: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    step: int = 1

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """The rows, or columns, of each place."""
        return np.maximum(-((self.first - self.stop) // self.step), 0)

    @cached_property
    def least(self) -> int:
        """The fewest of any place."""
        return int(self.counts.min())


@dataclass(frozen=True)
class Need:
    """Rows, columns and channels of a tensor that are needed; `pixels` of them at least."""

    extents: Extents
    rows: Spans
    columns: Spans
    channels: int
    pixels: int = 1

    @cached_property
    def least(self) -> Extents:
        """The least number of rows and of columns, and the channels."""
        return self.rows.least, self.columns.least, self.channels

    @cached_property
    def elements(self) -> int:
        """Their least number."""
        rows, columns, channels = self.least
        seen = rows * columns
        return (max(seen, self.pixels) if seen else 0) * channels

    @property
    def all(self) -> bool:
        """Whether it is the whole tensor."""
        return self.least == self.extents


def any_of(tensor: Tensor) -> Need:
    """One element, wherever it lies."""
    height, width, _ = found = extents(tensor)
    return Need(found, _each(height), _each(width), 1)


def all_of(tensor: Tensor) -> Need:
    """The whole tensor."""
    height, width, channels = found = extents(tensor)
    return Need(found, _whole(height), _whole(width), channels)


@lru_cache(maxsize=256)
def _each(size: int) -> Spans:
    """Single elements, at any place along an axis."""
    return Spans(np.arange(size), np.arange(1, size + 1))


@lru_cache(maxsize=256)
def _whole(size: int) -> Spans:
    """All elements along an axis."""
    return Spans(np.array([0]), np.array([size]))


def whole_sums(layer: Weighted, accelerator: Accelerator, chip: Soc) -> bool:
    """Whether all plans on a chip of several sum a layer over all that an output sees in one job."""
    return len(chip.accelerators) > 1 and not accelerator.library and _sums_at_once(layer, accelerator)


def keeps_sums_whole(mapped: MappedGraph, group: Group, first: int) -> bool:
    """Whether a group of some layers, from the `first` on, may be in a plan on a chip of several: of layers with whole
    sums none is in slices of channels."""
    weighted = (layer for layer in mapped.graph.layers[first : first + group.layers] if isinstance(layer, Weighted))
    return group.slices == 1 or not any(_sums_at_once(layer, mapped.accelerator) for layer in weighted)


def all_keep_sums_whole(mapped: MappedGraph, choices: Choices) -> bool:
    """Whether all groups of choices may be in a plan on a chip of several, as `keeps_sums_whole` says."""
    groups = zip(choices.groups, choices.spans, strict=True)
    return all(keeps_sums_whole(mapped, group, first) for group, (first, _) in groups)


def _sums_at_once(layer: Weighted, accelerator: Accelerator) -> bool:
    """Whether the kernel is not in parts, the weights fit into local memory as often as the planner ever asks for, and
    all else fits once: then no weights are in blocks of some input channels."""
    form = geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    if len(parts_of_kernel(layer, accelerator)) > 1:
        return False
    whole = Tiling(form.rows.ofm, form.columns.ofm, form.group_channels, form.in_channels)
    often = set(SHARES) & set(accelerator.tuning.weight_shares) and fits_often(layer, accelerator)
    return bool(often) and Tiler(layer, form, accelerator).fits(whole)


def begun(layer: Layer, tensor: Tensor, *, whole: bool, parts: bool, sums: bool = False) -> Need | None:
    """What the first job of a layer needs of an input: of a `whole` layer all, of one whose kernel is in `parts` some
    element; all channels that an output `sums`, or one of them."""
    if whole:
        return all_of(tensor)
    if parts and isinstance(geometry(layer), Window):
        return None  # what a part of the kernel sees may be padding
    found = read(layer, any_of(layer.ofm), tensor)
    if found is None or not isinstance(form := geometry(layer), Window) or not form.sums or sums:
        return found
    return Need(found.extents, found.rows, found.columns, 1)


def read(layer: Layer, need: Need, tensor: Tensor) -> Need | None:
    """What is needed of an input of a layer for what is needed of its output; None where that may be nothing."""
    form = geometry(layer)
    if isinstance(layer, Whole):
        return all_of(tensor)
    if isinstance(form, Run):
        if tensor.shape != layer.ofm.shape:
            return any_of(tensor)
        channels = extents(tensor)[2] if form.each > 1 and not form.repeats else need.channels
        return Need(need.extents, need.rows, need.columns, channels, need.pixels)
    if isinstance(form, Window):
        rows, columns = _seen(form.rows, need.rows), _seen(form.columns, need.columns)
        if rows is None or columns is None:
            return None
        channels = form.in_channels if form.sums else need.channels if tensor.shape[-1] == layer.ofm.shape[-1] else 1
        return Need(extents(tensor), rows, columns, channels, need.pixels * _own(form.rows) * _own(form.columns))
    if need.all and isinstance(layer, Reshape | Transpose | Concat | Pad):
        return all_of(tensor)
    return any_of(tensor) if isinstance(layer, Reshape | Transpose) else None


_LAYERS = 12
"""The layers before one that are looked at."""

Needed = dict[Tensor, tuple[int, Need]]
"""What is needed of tensors, and the layer that reads so much of each."""


def needed_before(graph: Graph, index: int, chip: Soc, *, whole: bool) -> Needed:
    """What the first job of a layer needs of the region's inputs and of what other layers make, on any of the
    accelerators that are able to run it; of a `whole` layer what it reads."""
    layer, ones = graph.layers[index], able(chip, graph.layers[index])
    parts = isinstance(geometry(layer), Window) and any(len(parts_of_kernel(layer, one)) > 1 for one in ones)
    sums = isinstance(layer, Weighted) and all(whole_sums(layer, one, chip) for one in ones)
    first = {tensor: begun(layer, tensor, whole=whole, parts=parts, sums=sums) for tensor in layer.inputs}
    return needed_for(graph, index, first)


def needed_for(graph: Graph, index: int, first: Mapping[Tensor, Need | None]) -> Needed:
    """What is needed of the region's inputs and of what layers before one make, where it reads so much of its own
    inputs."""
    found: Needed = {}

    def add(reader: int, tensor: Tensor, need: Need | None) -> None:
        if tensor.data is not None or need is None or not need.elements:
            return
        if tensor not in found or (found[tensor][1].elements, -found[tensor][0]) < (need.elements, -reader):
            found[tensor] = reader, need

    for tensor, need in first.items():
        add(index, tensor, need)
    for reader in range(index - 1, max(index - _LAYERS, -1), -1):
        ofm = graph.layers[reader].ofm
        if ofm in found:
            for tensor in dict.fromkeys(graph.layers[reader].inputs):
                add(reader, tensor, read(graph.layers[reader], found[ofm][1], tensor))
    return found


def _own(axis: Axis) -> int:
    """How many inputs along an axis are an output's own: those at places of the window that lie inside the input for
    all outputs, no more of them than from one window to the next."""
    first, last = max(axis.before, 0), axis.ifm - 1 - (axis.ofm - 1) * axis.stride + axis.before
    return max(min(min(last, axis.kernel - 1) - first + 1, axis.stride), 0)


@lru_cache(maxsize=1 << 12)
def _seen(axis: Axis, spans: Spans) -> Spans | None:
    """The inputs along an axis that some outputs read, of windows that lie apart one of each; None if it is not known.
    Networks have many layers with the same windows."""
    if axis.dilation > 1:
        return None
    step, last = spans.step * axis.stride, spans.first + np.maximum(spans.counts - 1, 0) * spans.step
    if step > axis.kernel and (spans.counts > 1).any():
        at = min(max(axis.before, 0), axis.kernel - 1) - axis.before  # the same place of each window
        if at < 0 or (axis.ofm - 1) * axis.stride + at >= axis.ifm:
            return None
        return _where_any(spans, spans.first * axis.stride + at, last * axis.stride + at + 1, step)
    first = np.maximum(spans.first * axis.stride - axis.before, 0)
    return _where_any(spans, first, np.minimum(last * axis.stride - axis.before + axis.kernel, axis.ifm))


def _where_any(spans: Spans, first: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], step: int = 1) -> Spans:
    """These spans at all places where others have something: what lies in padding reads nothing."""
    return Spans(first, np.where(spans.counts > 0, stop, first), step)
