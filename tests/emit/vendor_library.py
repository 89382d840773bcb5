"""The vendor libraries of tests/emit/vendor as `Accelerator`s: what a team with its own library writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from byoc_hw.accelerator import REFERENCE
from byoc_hw.graph import Add, Conv2d, Dense
from byoc_hw.library_calls import Library, LibraryCall, Operands
from byoc_hw.limits import Limits
from byoc_hw.params.requantize import add_scales, folded_bias, sum_scales, weight_values, zero_point

HERE = Path(__file__).parent / "vendor"


def pack(layer: Conv2d | Dense) -> np.ndarray:
    """[k][fy][fx][c] as [fy][fx][c][k]; two in a byte where 4 bits hold them all, the first in the high half."""
    values = weight_values(layer).transpose(1, 2, 3, 0)
    if stored_bits(layer) == 8:
        return values
    halves = np.append(values.reshape(-1), np.zeros(values.size % 2, np.int8)).view(np.uint8)
    return (halves[::2] << 4 | halves[1::2] & 15).view(np.int8)


def stored_bits(layer: Conv2d | Dense) -> int:
    """The library has weights of 8 and of 4 bits."""
    return max(layer.weights.bits, 4)


def table(layer: Conv2d | Dense) -> dict[str, np.ndarray]:
    offsets = folded_bias(layer)
    rows = [(offset, s.multiplier, s.left, s.right) for offset, s in zip(offsets, sum_scales(layer), strict=True)]
    return {"table": np.array(rows, np.int32)}


def conv_arguments(layer: Conv2d | Dense, operands: Operands) -> list[str]:
    if isinstance(layer, Dense):
        geometry = (1, 1, layer.ifm.shape[1], 1, 1, layer.ofm.shape[1], 1, 1, 1, 1, 0, 0)
    else:
        geometry = (*layer.ifm.shape[1:], *layer.ofm.shape[1:], *layer.kernel, *layer.strides, *layer.padding[:2])
    zeros = tuple(zero_point(layer, tensor) for tensor in (layer.ifm, layer.weights, layer.ofm))
    values = ", ".join(map(str, (*geometry, *zeros, layer.act_min, layer.act_max, stored_bits(layer))))
    assert operands.weights is not None
    return [
        operands.output,
        operands.inputs[0],
        f"&(const vendor_conv_t){{{values}}}",
        operands.weights,
        operands.parameters["table"],
        f"(int32_t *){operands.workspace}",
    ]


def add_table(layer: Add) -> dict[str, np.ndarray]:
    inputs = [
        (zero_point(layer, tensor), scale.multiplier, scale.left, scale.right)
        for tensor, scale in zip(layer.inputs, add_scales(layer), strict=True)
    ]
    output = (zero_point(layer, layer.ofm), layer.act_min, layer.act_max)
    return {"table": np.array([*inputs[0], *inputs[1], *output], np.int32)}


def add_arguments(layer: Add, operands: Operands) -> list[str]:
    return [str(layer.ofm.elements), *operands.inputs, operands.output, operands.parameters["table"]]


CONVOLUTION = LibraryCall("vendor_conv", conv_arguments, pack, table, lambda layer: 4 * layer.ofm.shape[-1])

VENDOR = replace(
    REFERENCE,
    name="vendor",
    label="VENDOR",
    roundings=("upward",),
    limits={"conv2d": Limits(), "dense": Limits(), "add": Limits(), "reshape": Limits(batches=None)},
    library=Library(
        HERE / "vendor_nn.h",
        (HERE / "vendor_nn.c",),
        {
            "conv2d": CONVOLUTION,
            "dense": CONVOLUTION,
            "add": LibraryCall("vendor_add", add_arguments, parameters=add_table),
        },
    ),
)


def conv_cycles(layer: Conv2d | Dense) -> int:
    """Sixteen products a cycle, and a hundred cycles before the first."""
    return 100 + layer.weights.elements * layer.ofm.elements // layer.ofm.shape[-1] // 16


def add_cycles(layer: Add) -> int:
    return 50 + layer.ofm.elements // 4


QUEUED_CONVOLUTION = replace(CONVOLUTION, function="vendor_conv_start", cycles=conv_cycles)

QUEUED = replace(
    VENDOR,
    name="queued",
    label="QUEUED",
    library=Library(
        HERE / "vendor_queue.h",
        (HERE / "vendor_queue.c", HERE / "vendor_nn.c", HERE / "vendor_nn.h"),
        {
            "conv2d": QUEUED_CONVOLUTION,
            "dense": QUEUED_CONVOLUTION,
            "add": LibraryCall("vendor_add_start", add_arguments, parameters=add_table, cycles=add_cycles),
        },
        wait="vendor_queue_wait",
        done="vendor_queue_done",
    ),
)
"""The same layers on an engine of their own: calls start them."""
