"""The layers that C functions of ours compute on the host, with TFLite's arithmetic or TVM's."""

from __future__ import annotations

from dataclasses import replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Pool2d
from byoc_hw.limits import WEIGHT_BITS, Limits

_ANY = Limits(dilations=None, batches=None, accumulator_bits=32, wide_padding=True, broadcast=True)
_WEIGHTED = replace(_ANY, weight_bits=WEIGHT_BITS, groups=True)
HOST_FUNCTIONS = Accelerator(
    "host",
    "host",
    {
        **dict.fromkeys(("conv2d", "depthwise_conv2d", "dense"), _WEIGHTED),
        **dict.fromkeys(("add", "mul", "pool2d"), _ANY),
        "softmax": Limits(batches=None),
    },
    roundings=("tflite", "upward"),
)
"""The functions as an accelerator: the layer kinds that they compute, with sums of 32 bits."""


def has_kernel(layer: Layer) -> bool:
    """Not for what TVM's functions compute as exactly (moved bytes, a maximum), nor for sums, which TFLite has not."""
    return layer.kind in HOST_FUNCTIONS.limits and not (isinstance(layer, Pool2d) and layer.mode != "avg")
