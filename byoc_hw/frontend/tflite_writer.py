"""Writes TFLite files, tensor by tensor and operator by operator. Needs neither TVM nor TFLite's runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from byoc_hw.tensor import Array

Options = tuple[str, Mapping[str, Any]]
"""The table of an operator's options, as "Conv2DOptions", and its fields: numbers, or arrays of them."""


class TfliteWriter:
    """A TFLite model that grows; tensors are known by their names."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._builder = flatbuffers.Builder(1024)
        self._buffers = [self._table("Buffer")]
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._codes: dict[tuple[str, int], int] = {}

    def activation(self, name: str, shape: tuple[int, ...], grid: tuple[float, int] | None) -> str:
        """int8 with a scale and zero point, or float32 without; the name."""
        scales, zero_point = (None, 0) if grid is None else (np.array([grid[0]]), grid[1])
        self._add(name, shape, "FLOAT32" if grid is None else "INT8", 0, scales, zero_point, 0)
        return name

    def constant(
        self, name: str, values: Array, scales: Array | None = None, axis: int = 0, zero_point: int = 0, bits: int = 8
    ) -> str:
        """Integers with a scale, or with one for each index of an axis, or whole numbers without; the name.

        int8 values of 4 `bits` are stored two in a byte.
        """
        dtype, stored = str(values.dtype).upper(), np.ascontiguousarray(values)
        if bits == 4:
            dtype, stored = "INT4", _packed(stored)
        data = self._builder.CreateByteVector(stored.tobytes())
        self._buffers.append(self._table("Buffer", Data=data))
        self._add(name, values.shape, dtype, len(self._buffers) - 1, scales, zero_point, axis)
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
        self._tensors.append(self._table("Tensor", Type=getattr(tflite.TensorType, dtype), Buffer=buffer, **fields))
        self.shapes[name] = tuple(shape)

    def operator(
        self, kind: str, inputs: Sequence[str], output: str, version: int, options: Options | None = None
    ) -> None:
        """An operator from tensors to a tensor, which all are there already."""
        fields = {"Inputs": self._numbers(map(self._place, inputs)), "Outputs": self._numbers([self._place(output)])}
        if options is not None:
            table, values = options
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, table)
            vectors = {name: self._builder.CreateNumpyVector(value) for name, value in values.items() if np.ndim(value)}
            fields["BuiltinOptions"] = self._table(table, **{**values, **vectors})
        code = self._codes.setdefault((kind, version), len(self._codes))
        self._operators.append(self._table("Operator", OpcodeIndex=code, **fields))

    def finished(self, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        """The bytes of the file."""
        graph = self._table(
            "SubGraph",
            Tensors=self._offsets(self._tensors),
            Inputs=self._numbers(map(self._place, inputs)),
            Outputs=self._numbers(map(self._place, outputs)),
            Operators=self._offsets(self._operators),
        )
        model = self._table(
            "Model",
            Version=3,
            OperatorCodes=self._offsets([self._code(*code) for code in self._codes]),
            Subgraphs=self._offsets([graph]),
            Buffers=self._offsets(self._buffers),
        )
        self._builder.Finish(model, b"TFL3")
        return bytes(self._builder.Output())

    def _code(self, kind: str, version: int) -> int:
        code = getattr(tflite.BuiltinOperator, kind)
        return self._table("OperatorCode", DeprecatedBuiltinCode=min(code, 127), BuiltinCode=code, Version=version)

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


def _packed(values: Array) -> Array:
    """int8 values as 4 bits: two in a byte, the first in its low half."""
    halves = np.append(values.reshape(-1), np.zeros(values.size % 2, np.int8)).view(np.uint8) & 15
    return np.asarray(halves[::2] | halves[1::2] << 4)
