"""A TFLite file as TVM's importers read it: without some operators, and with names made unique."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import tflite

from byoc_hw.frontend.tflite_file import FileTensor, TfliteFile
from byoc_hw.tensor import Array


class TfliteCut:
    """The main sub-graph without some operators: what they read is an output, what they compute is an input."""

    def __init__(self, file: TfliteFile, without: Collection[int]) -> None:
        self.file = file
        self.operators = [number for number in range(len(file.operators)) if number not in without]
        removed = [file.operators[number] for number in without]
        kept = [file.operators[number] for number in self.operators]
        self.inputs, self.outputs = list(file.inputs), list(file.outputs)
        if removed:
            computed = {index for operator in kept for index in operator.outputs}
            given = {*file.inputs, *(index for operator in removed for index in operator.outputs)} - computed
            asked = {*file.outputs, *(index for operator in removed for index in operator.inputs)} & computed
            self.inputs = [index for index in sorted(given) if file.tensors[index].breaks is None]
            self.outputs = sorted(asked)


class TfliteModel(tflite.Model):  # type: ignore[misc]
    """A model as TVM's importer reads it, with the main sub-graph cut and the names made unique.

    The values of its constants are those of `TfliteFile`, whose types may be others than in the file. The buffer of a
    tensor with such values has the number of the tensor, behind the buffers of the file.
    """

    __slots__ = ("_cut",)

    def __init__(self, cut: TfliteCut) -> None:
        super().__init__()
        self._cut = cut
        self.Init(cut.file.data, int.from_bytes(cut.file.data[:4], "little"))

    def SubgraphsLength(self) -> int:  # noqa: N802
        return 1

    def Subgraphs(self, number: int) -> TfliteSubGraph:  # noqa: N802
        return TfliteSubGraph(self._cut, self.BuffersLength())

    def Buffers(self, number: int) -> Any:  # noqa: N802
        stored = self.BuffersLength()
        return super().Buffers(number) if number < stored else _BufferView(self._cut.file.tensors[number - stored])


class _BufferView:
    """The values of a constant."""

    def __init__(self, tensor: FileTensor) -> None:
        assert tensor.values is not None, "`_TensorView.Buffer` leads here"
        self._values = tensor.values

    def DataAsNumpy(self) -> Array:  # noqa: N802
        return np.ascontiguousarray(self._values).reshape(-1).view(np.uint8)


class TfliteSubGraph(tflite.SubGraph):  # type: ignore[misc]
    """The main sub-graph of a cut model."""

    __slots__ = ("_buffers", "_cut")

    def __init__(self, cut: TfliteCut, buffers: int) -> None:
        super().__init__()
        self._cut, self._buffers = cut, buffers
        self.Init(cut.file.data, cut.file.position)

    def InputsLength(self) -> int:  # noqa: N802
        return len(self._cut.inputs)

    def Inputs(self, number: int) -> int:  # noqa: N802
        return self._cut.inputs[number]

    def InputsAsNumpy(self) -> Array:  # noqa: N802
        return np.array(self._cut.inputs, np.int32)

    def OutputsAsNumpy(self) -> Array:  # noqa: N802
        return np.array(self._cut.outputs, np.int32)

    def OperatorsLength(self) -> int:  # noqa: N802
        return len(self._cut.operators)

    def Operators(self, number: int) -> Any:  # noqa: N802
        operator = tflite.Operator()
        operator.Init(self._cut.file.data, self._cut.file.operators[self._cut.operators[number]].position)
        return operator

    def Tensors(self, number: int) -> _TensorView:  # noqa: N802
        stored = {following: state for state, following in self._cut.file.states}.get(number, number)
        return _TensorView(super().Tensors(stored), self._cut.file.tensors[number], self._buffers + number)


class _TensorView(tflite.Tensor):  # type: ignore[misc]
    __slots__ = ("_buffer", "_described")

    def __init__(self, tensor: Any, described: FileTensor, buffer: int) -> None:
        super().__init__()
        self._described, self._buffer = described, buffer
        self.Init(tensor._tab.Bytes, tensor._tab.Pos)

    def Name(self) -> bytes:  # noqa: N802
        return self._described.name.encode()

    def Type(self) -> int:  # noqa: N802
        described = self._described
        return int(super().Type() if described.values is None else vars(tflite.TensorType)[described.dtype.upper()])

    def Buffer(self) -> int:  # noqa: N802
        return super().Buffer() if self._described.values is None else self._buffer

    def ShapeAsNumpy(self) -> Array:  # noqa: N802
        return super().ShapeAsNumpy() if self.ShapeLength() else np.zeros(0, np.int32)  # the base has 0 for no shape

    def Quantization(self) -> Any:  # noqa: N802
        return super().Quantization() if self._described.quantized else None
