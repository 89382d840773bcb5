"""The shapes detector as a TFLite file, int8 throughout, with the scales that calibration pictures ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from byoc_hw.demo.shapes import SIDE
from byoc_hw.demo.shapes_network import HEADS, NETWORK, FloatLayer, Parameters, forward
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
    return file.finished("picture", HEADS)


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
        file.operator("RESIZE_NEAREST_NEIGHBOR", [*step.inputs, size], step.name, aligned)
        return
    if step.kind == "concat":
        depths = sum(file.shapes[name][3] for name in step.inputs)
        file.tensor(step.name, (1, height, width, depths), scales[step.name])
        file.operator("CONCATENATION", step.inputs, step.name, {"Axis": 3})
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
    file.operator(operator, names, step.name, {**window, **options, "FusedActivationFunction": activation})


def _add_head(file: _File, head: str, levels: Sequence[str], scale: _Scaled) -> None:
    """One output: scores through a sigmoid, then all levels one behind the other."""
    parts = []
    for level in levels:
        _, height, width, depth = file.shapes[level]
        value = level
        if head == "scores":
            value, scale = f"{level}_sigmoid", _SIGMOID
            file.tensor(value, file.shapes[level], scale)
            file.operator("LOGISTIC", [level], value, {})
        rows = (1, height * width, depth)
        size = file.constant(f"{level}_size", np.array(rows, np.int32))
        file.tensor(f"{level}_rows", rows, scale)
        file.operator("RESHAPE", [value, size], f"{level}_rows", {})
        parts.append(f"{level}_rows")
    total = sum(file.shapes[part][1] for part in parts)
    file.tensor(head, (1, total, file.shapes[parts[0]][2]), scale)
    file.operator("CONCATENATION", parts, head, {"Axis": 1})


# ---------------------------------------------------------------- the format

_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "CONCATENATION": "ConcatenationOptions",
}
_VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "RESHAPE": 1}


class _File:
    """A TFLite model that grows tensor by tensor and operator by operator; tensors are known by their names."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.scales: dict[str, Any] = {}
        self._builder = flatbuffers.Builder(1024)
        self._buffers = [self._table("Buffer")]
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._codes: dict[str, int] = {}

    def tensor(self, name: str, shape: tuple[int, ...], quantized: _Scaled) -> None:
        """An int8 activation."""
        scale, zero_point = quantized
        self._add(name, shape, "INT8", 0, np.array([scale]), zero_point, 0)

    def constant(self, name: str, values: Array, scales: Array | None = None, axis: int = 0) -> str:
        """int8 weights and int32 biases with a scale for each channel, or whole numbers without; the name."""
        data = self._builder.CreateByteVector(np.ascontiguousarray(values).tobytes())
        self._buffers.append(self._table("Buffer", Data=data))
        self._add(name, values.shape, str(values.dtype).upper(), len(self._buffers) - 1, scales, 0, axis)
        return name

    def _add(
        self, name: str, shape: tuple[int, ...], dtype: str, buffer: int, scales: Array | None, zero: int, axis: int
    ) -> None:
        fields = {"Name": self._builder.CreateString(name), "Shape": self._numbers(shape)}
        if scales is not None:
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                Scale=self._builder.CreateNumpyVector(scales.astype(np.float32)),
                ZeroPoint=self._builder.CreateNumpyVector(np.full(len(scales), zero, np.int64)),
                QuantizedDimension=axis,
            )
            self.scales[name] = scales.astype(np.float32)
        self._tensors.append(self._table("Tensor", Type=getattr(tflite.TensorType, dtype), Buffer=buffer, **fields))
        self.shapes[name] = tuple(shape)

    def operator(self, kind: str, inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> None:
        """An operator from tensors to a tensor, which all are there already."""
        fields = {"Inputs": self._numbers(map(self._place, inputs)), "Outputs": self._numbers([self._place(output)])}
        if kind in _OPTIONS:
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, _OPTIONS[kind])
            fields["BuiltinOptions"] = self._table(_OPTIONS[kind], **options)
        code = self._codes.setdefault(kind, len(self._codes))
        self._operators.append(self._table("Operator", OpcodeIndex=code, **fields))

    def finished(self, source: str, outputs: Sequence[str] | Mapping[str, Any]) -> bytes:
        """The bytes of the file."""
        graph = self._table(
            "SubGraph",
            Tensors=self._offsets(self._tensors),
            Inputs=self._numbers([self._place(source)]),
            Outputs=self._numbers(map(self._place, outputs)),
            Operators=self._offsets(self._operators),
        )
        model = self._table(
            "Model",
            Version=3,
            OperatorCodes=self._offsets([self._code(kind) for kind in self._codes]),
            Subgraphs=self._offsets([graph]),
            Buffers=self._offsets(self._buffers),
        )
        self._builder.Finish(model, b"TFL3")
        return bytes(self._builder.Output())

    def _code(self, kind: str) -> int:
        code = getattr(tflite.BuiltinOperator, kind)
        version = _VERSIONS.get(kind, 2)
        return self._table("OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, Version=version)

    def _place(self, name: str) -> int:
        return list(self.shapes).index(name)

    def _table(self, kind: str, **fields: Any) -> int:
        getattr(tflite, f"{kind}Start")(self._builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(self._builder, value)
        return int(getattr(tflite, f"{kind}End")(self._builder))

    def _numbers(self, values: Any) -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(list(values), np.int32)))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())
