"""What windows see of their inputs, and which outputs see an input: at least so many, wherever they lie."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from byoc_hw.graph import Layer
from byoc_hw.plan.array.kinds import Run, Window, geometry
from byoc_hw.plan.array.window import Axis, Extents
from byoc_hw.plan.bound.ways import Ints
from byoc_hw.tensor import Tensor

PARTS = 1024
"""Fractions are so many-th parts."""


def sees_one(layer: Layer, tensor: Tensor) -> Extents:
    """The rows, columns and channels of the outputs that see an element of an input: the least, wherever it lies."""
    form = geometry(layer)
    if not isinstance(form, Window):
        return 1, 1, 1
    return least_seen(form.rows), least_seen(form.columns), form.group_channels if form.sums else 1


def _spans(axis: Axis) -> tuple[Ints, Ints]:
    """The inputs along an axis that each output sees: from the first, to one behind the last."""
    first = np.arange(axis.ofm) * axis.stride - axis.before
    return np.clip(first, 0, axis.ifm), np.clip(first + axis.reach, 0, axis.ifm)


def padded_on_all_sides(layer: Layer) -> bool:
    """Whether a layer has padding on all sides: any rows or columns of it have some, too."""
    form = geometry(layer)
    return isinstance(form, Window) and all(min(axis.before, axis.after) > 0 for axis in (form.rows, form.columns))


@lru_cache(maxsize=1024)
def fewest_seen(axis: Axis) -> Ints:
    """The fewest inputs from the first to the last that outputs in a row see, those at an end: of no outputs to all."""
    first, stop = _spans(axis)
    return np.append(0, np.minimum(stop - first[0], stop[-1] - first[::-1]))


def least_seen(axis: Axis) -> int:
    """The number of outputs that see an input, the least of all inputs."""
    if axis.dilation > 1:
        return 1
    first, stop = _spans(axis)
    places = np.arange(axis.ifm)[:, np.newaxis]
    return int(((first <= places) & (places < stop)).sum(axis=1).min())


def least_inputs(layer: Layer, tensor: Tensor) -> tuple[bool, int]:
    """How many inputs any outputs see at least, for each pixel of them or else for each element: in parts."""
    form = geometry(layer)
    if isinstance(form, Run):
        return False, PARTS if tensor.shape == layer.ofm.shape else 0
    if not isinstance(form, Window) or any(axis.dilation > 1 for axis in (form.rows, form.columns)):
        return False, 0
    if not form.sums and tensor.shape[-1] != layer.ofm.shape[-1]:
        return False, 0
    channels = form.in_channels if form.sums else 1
    return form.sums, int(own_inputs(form.rows) * own_inputs(form.columns) * channels * PARTS)


def own_inputs(axis: Axis) -> float:
    """How many inputs along an axis each output may have to itself, of those that it sees: the fewest for an output
    that any outputs in a row see. By Hall's theorem others need not be looked at, as windows lie in a row."""
    first, stop = _spans(axis)
    some, more = np.meshgrid(np.arange(axis.ofm), np.arange(axis.ofm), indexing="ij")
    seen = np.maximum(stop[more] - first[some], 0) / np.maximum(more - some + 1, 1)
    return float(seen[some <= more].min()) * (1 - 1e-9)
