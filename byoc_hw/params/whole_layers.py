"""What a layer without tiles tells the accelerator: numbers, as our functions for the host read them, and scratch."""

from __future__ import annotations

from math import prod

import numpy as np
from typing_extensions import assert_never

from byoc_hw.graph import Gather, Ordering, Suppression, Whole
from byoc_hw.params.host_kernels import kernel_call
from byoc_hw.program import Sort, Suppress
from byoc_hw.tensor import Array


def whole_numbers(layer: Whole) -> Array:
    """The numbers of a layer, int32, in the order that `hwlib_hal.h` gives for its kind."""
    match layer:
        case Ordering():
            return _numbers(Sort(layer.ifm.dtype, *_around(layer), layer.ofm.shape[layer.axis], layer.descending))
        case Gather():
            size = layer.ifm.bytes_of(1)
            return np.array([size, *_around(layer), layer.ofm.shape[layer.axis]], np.int32)
        case Suppression():
            limits = np.array([layer.most, np.float32(layer.threshold).view(np.int32)], np.int32)
            return np.concatenate([_numbers(_suppress(layer)), limits])
        case _:
            assert_never(layer)


def workspace_bytes(layer: Whole) -> int:
    """Bytes of main memory that a layer uses while it runs: a suppression keeps the order of the boxes of a batch, and
    with indices the number of those of each batch that are kept."""
    if not isinstance(layer, Suppression):
        return 0
    batches, boxes, _ = layer.ifm.shape
    return 4 * (boxes + (0 if layer.indices is None else batches))


def _around(layer: Ordering | Gather) -> tuple[int, int, int]:
    """The input as (before, extent, after) the axis."""
    shape, axis = layer.ifm.shape, layer.axis
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _suppress(layer: Suppression) -> Suppress:
    batches, boxes, values = layer.ifm.shape
    return Suppress(
        batches,
        boxes,
        values,
        layer.top_k,
        layer.coord_start,
        layer.score_index,
        layer.id_index,
        layer.force_suppress,
        layer.invalid_to_bottom,
        places=layer.indices is not None,
    )


def _numbers(work: Sort | Suppress) -> Array:
    return kernel_call(work).constants[-1]
