"""What a layer costs on the host: instructions of a small core, by a table that is fitted to counts.

`benchmarks/host_costs.py` counts what the C functions of random layers execute under QEMU (rv32imc, -O2), fits the
instructions of each unit of work, and writes `host_cost_table.py`. The functions are those that a project has on the
host: TVM's, and with numerics "tflite" functions of ours where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from byoc_hw.graph import (
    BaseWeighted,
    Conv2d,
    DepthwiseConv2d,
    Layer,
    MatMul,
    Ordering,
    Pool2d,
    Reshape,
    Resize,
    Softmax,
    Suppression,
)
from byoc_hw.host_cost_table import INSTRUCTIONS


def host_instructions(layer: Layer) -> int:
    """About how many instructions the host takes for a layer; 0 for a reshape, which is no work there."""
    if isinstance(layer, Reshape):
        return 0
    costs = INSTRUCTIONS[host_function(layer)]
    return round(sum(costs.get(unit, 0.0) * amount for unit, amount in host_work(layer).items()))


def total_host_instructions(layers: Iterable[Layer]) -> int:
    """About how many instructions the host takes for some layers."""
    return sum(map(host_instructions, layers))


OF_OURS = ("conv2d", "depthwise_conv2d", "dense", "add", "mul", "avg_pool2d", "softmax")
"""The kinds that functions of ours compute with TFLite's rounding."""


def host_function(layer: Layer) -> str:
    """The row of the table that a layer's C function on the host is in."""
    kind = f"{layer.mode}_pool2d" if isinstance(layer, Pool2d) else layer.kind
    if isinstance(layer, Conv2d) and layer.groups > 1:
        kind = "grouped_conv2d"
    return f"tflite_{kind}" if layer.rounding == "tflite" and kind.removeprefix("grouped_") in OF_OURS else kind


def host_work(layer: Layer) -> Mapping[str, int]:
    """The units of work of a layer, by name: what the loops of a C function go through.

    A "tap" is a place of a window for one output, a "window row" a row of such places, a "padded" element one
    of the input with its padding, which TVM's functions copy first. A "guarded" output is in a loop that checks its
    end in each turn. A "fraction" is a place of an input that is computed in floating point. "compared" are the levels
    of a heap that elements may go through, a "pair" is two boxes of which one may suppress the other.
    """
    outputs, inputs = layer.ofm.elements, sum(tensor.elements for tensor in layer.inputs)
    work = {"call": 1, "output": outputs, "input": inputs}
    if isinstance(layer, BaseWeighted):
        work["channel scale"] = outputs if len(layer.accumulator.scale) > 1 else 0
    if isinstance(layer, BaseWeighted | MatMul):
        work["mac"] = layer.macs
    if isinstance(layer, Conv2d | DepthwiseConv2d | Pool2d):
        rows, columns = layer.kernel
        top, left, bottom, right = layer.padding
        _, height, width, channels = layer.ifm.shape
        work["window row"], work["tap"] = outputs * rows, outputs * rows * columns
        work["padded"] = (height + top + bottom) * (width + left + right) * channels if any(layer.padding) else 0
        work["pixel"] = outputs // layer.ofm.shape[-1]
    if layer.ofm.shape:
        last = layer.ofm.shape[-1]
        work["row"] = outputs // last
        work["guarded"] = outputs if last > _BLOCK and last % _BLOCK else 0
    if isinstance(layer, Ordering):
        work["compared"] = layer.rows * layer.extent * layer.ofm.shape[layer.axis].bit_length()
    if isinstance(layer, Suppression):
        batches, boxes, _ = layer.ifm.shape
        work["compared"], work["pair"] = batches * boxes * boxes.bit_length(), batches * prod(layer.seen_and_kept)
    if isinstance(layer, Softmax):
        scale = _EXPONENTS if layer.ifm.quantization is None else layer.ifm.quantization.scale[0]
        work["exponent"] = work["row"] + round((outputs - work["row"]) * min(1.0, _EXPONENTS / scale))
    if isinstance(layer, Resize) and any(ofm % ifm for ifm, ofm in zip(layer.ifm.shape, layer.ofm.shape, strict=True)):
        work["guarded fraction" if work["guarded"] else "fraction"] = work["guarded"] or work["row"]
    return work


_EXPONENTS = 31 / 255
"""The largest scale of a softmax whose exponents are all computed: those below -31 are 0."""

_BLOCK = 16
"""TVM's loops over the last dimension are in blocks of this size, and check the end of the last one in each turn."""
