"""The shapes detector as a TFLite file, int8 throughout, with the scales that calibration pictures ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tflite

from byoc_hw.demo.shapes import SIDE
from byoc_hw.demo.shapes_network import HEADS, NETWORK, FloatLayer, Parameters, forward
from byoc_hw.frontend.tflite_writer import TfliteWriter
from byoc_hw.tensor import Array

_SHARED = (("mix_3", "lateral", "enlarged", "joined"), *HEADS.values())
"""Values with one scale: what is enlarged or joined. The scores are joined after the sigmoid."""

_LOWEST = -128
_INPUT = 1 / 255, _LOWEST
_SIGMOID = 1 / 256, _LOWEST


def quantized_file(parameters: Parameters, pictures: Array) -> bytes:
    """The file of a trained network, calibrated on pictures (N, 48, 48, 1), real values 0 to 1.

    Input (1, 48, 48, 1); outputs "scores" (1, 180, 3), by sigmoids, and "boxes" (1, 180, 4), as `anchor_corners` has
    them row by row.
    """
    file = _File()
    scales = _scales(forward(parameters, pictures))
    file.tensor("picture", (1, SIDE, SIDE, 1), _INPUT)
    for step in NETWORK:
        _add_step(file, step, parameters, scales)
    for head, levels in HEADS.items():
        _add_head(file, head, levels, scales[levels[0]])
    return file.finished(["picture"], list(HEADS))


_Scaled = tuple[float, int]


def _scales(values: Mapping[str, Array]) -> dict[str, _Scaled]:
    """Scale and zero point of each step's value; zero is exact."""
    ranges = {step.name: (min(0.0, values[step.name].min()), values[step.name].max()) for step in NETWORK}
    for names in _SHARED:
        widest = min(ranges[name][0] for name in names), max(ranges[name][1] for name in names)
        ranges |= dict.fromkeys(names, widest)
    found = {}
    for name, (low, high) in ranges.items():
        scale = float(high - low) / 255
        found[name] = scale, round(_LOWEST - low / scale)
    return found


def _add_step(file: _File, step: FloatLayer, parameters: Parameters, scales: Mapping[str, _Scaled]) -> None:
    """One operator, with its weights and bias."""
    _, height, width, depth = file.shapes[step.inputs[0]]
    if step.kind == "nearest":
        size = file.constant(f"{step.name}_size", np.array([height * 2, width * 2], np.int32))
        aligned = {"AlignCorners": False, "HalfPixelCenters": False}
        file.tensor(step.name, (1, height * 2, width * 2, depth), scales[step.name])
        file.add("RESIZE_NEAREST_NEIGHBOR", [*step.inputs, size], step.name, aligned)
        return
    if step.kind == "concat":
        depths = sum(file.shapes[name][3] for name in step.inputs)
        file.tensor(step.name, (1, height, width, depths), scales[step.name])
        file.add("CONCATENATION", step.inputs, step.name, {"Axis": 3})
        return
    weights, bias = parameters[step.name]
    if step.kind == "conv":
        weights, axis = weights.reshape(step.kernel, step.kernel, depth, -1).transpose(3, 0, 1, 2), 0
        operator, options = "CONV_2D", {}
    else:
        weights, axis = weights.reshape(1, step.kernel, step.kernel, -1), 3
        operator, options = "DEPTHWISE_CONV_2D", {"DepthMultiplier": 1}
    own = np.abs(weights).max(axis=tuple({0, 1, 2, 3} - {axis})) / 127
    spread = own.reshape([-1 if each == axis else 1 for each in range(4)])
    sums = own * file.scales[step.inputs[0]]
    names = [
        *step.inputs,
        file.constant(f"{step.name}_weights", np.round(weights / spread).astype(np.int8), own, axis),
        file.constant(f"{step.name}_bias", np.round(bias / sums).astype(np.int32), sums, 0),
    ]
    file.tensor(step.name, (1, height // step.stride, width // step.stride, len(bias)), scales[step.name])
    kinds = tflite.ActivationFunctionType
    activation = kinds.RELU if step.relu else kinds.NONE
    window = {"Padding": tflite.Padding.SAME, "StrideH": step.stride, "StrideW": step.stride}
    file.add(operator, names, step.name, {**window, **options, "FusedActivationFunction": activation})


def _add_head(file: _File, head: str, levels: Sequence[str], scale: _Scaled) -> None:
    """One output: scores through a sigmoid, then all levels one behind the other."""
    parts = []
    for level in levels:
        _, height, width, depth = file.shapes[level]
        value = level
        if head == "scores":
            value, scale = f"{level}_sigmoid", _SIGMOID
            file.tensor(value, file.shapes[level], scale)
            file.add("LOGISTIC", [level], value, {})
        rows = (1, height * width, depth)
        size = file.constant(f"{level}_size", np.array(rows, np.int32))
        file.tensor(f"{level}_rows", rows, scale)
        file.add("RESHAPE", [value, size], f"{level}_rows", {})
        parts.append(f"{level}_rows")
    total = sum(file.shapes[part][1] for part in parts)
    file.tensor(head, (1, total, file.shapes[parts[0]][2]), scale)
    file.add("CONCATENATION", parts, head, {"Axis": 1})


# ---------------------------------------------------------------- the format

_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "CONCATENATION": "ConcatenationOptions",
}
_VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "RESHAPE": 1}


class _File(TfliteWriter):
    """A TFLite model with the scales of its tensors by name."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: dict[str, Any] = {}

    def tensor(self, name: str, shape: tuple[int, ...], quantized: _Scaled) -> None:
        """An int8 activation."""
        self.activation(name, shape, quantized)
        self.scales[name] = np.float32(quantized[0])

    def add(self, kind: str, inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> None:
        """An operator from tensors to a tensor."""
        table = (_OPTIONS[kind], options) if kind in _OPTIONS else None
        self.operator(kind, inputs, output, _VERSIONS.get(kind, 2), table)
