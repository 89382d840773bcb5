"""Writes an int8 TFLite file with the operators of a float one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tflite

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.tflite_file import FileOperator, FileTensor
from byoc_hw.frontend.tflite_integers import CHANNELS, OPERATORS, IntegerFile, IntegerWeights
from byoc_hw.frontend.tflite_writer import Options, TfliteWriter
from byoc_hw.names import distinct
from byoc_hw.quantization.grids import grid_between, on_grid
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class _Form:
    """The int8 form of an operator: its least version, and what TFLite's kernel asks of the grids.

    With `same` its inputs are on the grid of its output; `grid` is the one that its output has in every model.
    """

    version: int
    same: bool = False
    grid: tuple[float, int] | None = None


FORMS = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _Form(3)),
    "FULLY_CONNECTED": _Form(4),
    **dict.fromkeys(("ADD", "SUB", "MUL", "MEAN", "SUM", "BATCH_MATMUL", "RELU", "RELU6", "LEAKY_RELU"), _Form(2)),
    **dict.fromkeys(("RELU_N1_TO_1", "PRELU", "HARD_SWISH", "ELU"), _Form(1)),
    **dict.fromkeys(("SOFTMAX", "LOGISTIC"), _Form(2, grid=(1 / 256, -128))),
    "TANH": _Form(2, grid=(1 / 128, 0)),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX", "MAXIMUM", "MINIMUM"), _Form(2, same=True)),
    **dict.fromkeys(("CONCATENATION", "PAD", "PADV2", "TRANSPOSE", "STRIDED_SLICE"), _Form(2, same=True)),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH"), _Form(2, same=True)),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "DEPTH_TO_SPACE"), _Form(1, same=True)),
}

_NARROW = {"CONV_2D": 7, "DEPTHWISE_CONV_2D": 7, "FULLY_CONNECTED": 10}
"""The versions of operators with weights of 4 bits."""


def integer_file(integers: IntegerFile, *, integer_ends: bool, packed: bool) -> bytes:
    """The int8 file. With `packed` weights of at most 4 bits are INT4; without `integer_ends` inputs and outputs are
    float32. `InvalidInput` names an operator that has no int8 form, before anything is written."""
    for operator in integers.operators:
        _check(integers, operator)
    writing = _Writing(integers, integer_ends, packed)
    for tensor in integers.file.inputs:
        writing.input(tensor)
    for operator in integers.operators:
        writing.operator(operator)
    return writing.finished()


def _check(integers: IntegerFile, operator: FileOperator) -> None:
    kind = _kind(operator)
    what, form = f"{kind} ({operator.name})", FORMS.get(kind)
    if form is None:
        raise InvalidInput(f"{what}: operators of an int8 file are {', '.join(sorted(FORMS))}: got {kind}")
    if form.grid is not None and integers.grids[operator.outputs[0]] != form.grid:
        raise InvalidInput(
            f"{what}: scale and zero point of its int8 output are {form.grid}: "
            f"got {integers.grids[operator.outputs[0]]}"
        )


def _kind(operator: FileOperator) -> str:
    return OPERATORS.get(operator.code, f"operator {operator.code}")


class _Writing:
    """A file that grows; `_names` are those of the int8 tensors, by the number in the float file."""

    def __init__(self, integers: IntegerFile, integer_ends: bool, packed: bool) -> None:
        self._integers, self._integer_ends, self._packed = integers, integer_ends, packed
        self._writer = TfliteWriter()
        self._names: dict[int, str] = {}
        self._taken = {self._tensor(number).name for number in integers.grids}

    def input(self, number: int) -> None:
        """An input of the model; a float one is quantized."""
        tensor, grid = self._tensor(number), self._integers.grids.get(number)
        if self._integer_ends or grid is None:  # nothing reads one without a grid
            self._names[number] = self._writer.activation(tensor.name, tensor.shape, grid)
            return
        self._writer.activation(tensor.name, tensor.shape, None)
        self._names[number] = self._activation(f"{tensor.name}_int8", number)
        self._writer.operator("QUANTIZE", [tensor.name], self._names[number], 1, ("QuantizeOptions", {}))

    def operator(self, operator: FileOperator) -> None:
        """An operator; where its output is a float one of the model, that is dequantized."""
        (output,), tensor = operator.outputs, self._tensor(operator.outputs[0])
        float_end = output in self._integers.file.outputs and not self._integer_ends
        name = self._activation(f"{tensor.name}_int8" if float_end else tensor.name, output)
        self._names[output] = name
        weights = self._integers.weights.get(operator.name)
        if weights is None:
            self._plain(operator, name)
        else:
            self._weighted(operator, weights, name)
        if float_end:
            self._writer.activation(tensor.name, tensor.shape, None)
            self._writer.operator("DEQUANTIZE", [name], tensor.name, 2, ("DequantizeOptions", {}))

    def finished(self) -> bytes:
        """The bytes of the file."""
        file = self._integers.file
        ends = [
            [self._names[number] if self._integer_ends else self._tensor(number).name for number in numbers]
            for numbers in (file.inputs, file.outputs)
        ]
        return self._writer.finished(*ends)

    def _tensor(self, number: int) -> FileTensor:
        return self._integers.file.tensors[number]

    def _new(self, name: str) -> str:
        (chosen,) = distinct([name], self._taken | self._writer.shapes.keys())
        return chosen

    def _activation(self, name: str, number: int) -> str:
        """The int8 tensor of a tensor, which may have another name."""
        own = self._tensor(number).name
        chosen = name if name == own else self._new(name)
        return self._writer.activation(chosen, self._tensor(number).shape, self._integers.grids[number])

    def _plain(self, operator: FileOperator, name: str) -> None:
        """An operator without weights."""
        kind = _kind(operator)
        inputs = [self._input(number, operator) for number in operator.inputs]
        version = max(operator.version, FORMS[kind].version)
        self._writer.operator(kind, inputs, name, version, _options(self._integers.file.data, operator))

    def _weighted(self, operator: FileOperator, weights: IntegerWeights, name: str) -> None:
        """An operator with weights. TFLite's kernels of FULLY_CONNECTED with several scales have outputs of rows."""
        kind, options = _kind(operator), _options(self._integers.file.data, operator)
        narrow = self._packed and weights.bits <= 4
        version = _NARROW[kind] if narrow else FORMS[kind].version
        inputs = [self._names[operator.inputs[0]], *self._constants(operator, weights, 4 if narrow else 8)]
        shape = self._tensor(operator.outputs[0]).shape
        if kind != "FULLY_CONNECTED" or len(shape) == 2 or options is None:
            self._writer.operator(kind, inputs, name, version, options)
            return
        grid, (table, fields) = self._integers.grids[operator.outputs[0]], options
        rows = self._writer.activation(self._new(f"{name}_rows"), (prod(shape[:-1]), shape[-1]), grid)
        self._writer.operator(kind, inputs, rows, version, (table, {**fields, "KeepNumDims": False}))
        extents = np.array(shape, np.int32)
        extents_name = self._writer.constant(self._new(f"{name}_shape"), extents)
        self._writer.operator("RESHAPE", [rows, extents_name], name, 1, ("ReshapeOptions", {"NewShape": extents}))

    def _constants(self, operator: FileOperator, weights: IntegerWeights, bits: int) -> Iterator[str]:
        """Weights and bias; the bias is on the scale of the sums."""
        names = [self._tensor(number).name for number in operator.inputs[1:3] if number >= 0]
        name, bias_name = (*names, f"{operator.name}_bias")[:2]
        scales = weights.scales.astype(np.float32)
        axis = CHANNELS[_kind(operator)]
        yield self._writer.constant(self._new(name), weights.levels, scales, axis, bits=bits)
        sums = np.float32(self._integers.grids[operator.inputs[0]][0]) * scales
        levels, limits = np.rint(weights.bias / sums.astype(np.float64)), np.iinfo(np.int32)
        bias = np.clip(levels, limits.min, limits.max).astype(np.int32)
        yield self._writer.constant(self._new(bias_name), bias, sums)

    def _input(self, number: int, operator: FileOperator) -> str:
        """An activation or constant that an operator reads, on the grid that it asks for."""
        tensor, form = self._tensor(number), FORMS[_kind(operator)]
        wanted = self._integers.grids[operator.outputs[0]]
        if tensor.values is not None:
            return self._constant(tensor, wanted if form.same else None)
        grid, name = self._integers.grids[number], self._names[number]
        if not form.same or grid == wanted:
            return name
        rescaled = self._writer.activation(self._new(f"{tensor.name}_rescaled"), tensor.shape, wanted)
        self._writer.operator("QUANTIZE", [name], rescaled, 2, ("QuantizeOptions", {}))
        return rescaled

    def _constant(self, tensor: FileTensor, grid: tuple[float, int] | None) -> str:
        """A constant: whole numbers as they are, real ones as int8 on a grid, or on the one that holds them."""
        values, name = tensor.values, self._new(tensor.name)
        assert values is not None, "a constant"
        if values.dtype.kind != "f":
            return self._writer.constant(name, values)
        scale, zero_point = grid or grid_between(min(float(values.min()), 0.0), max(float(values.max()), 0.0))
        levels = np.rint(on_grid(values, (scale, zero_point)) / np.float32(scale)) + zero_point
        return self._writer.constant(name, levels.astype(np.int8), np.array([scale]), zero_point=zero_point)


def _options(data: bytes, operator: FileOperator) -> Options | None:
    """The options of an operator of a file."""
    source = tflite.Operator()
    source.Init(data, operator.position)
    table = source.BuiltinOptions()
    if table is None:
        return None
    kind = next(name for name, code in vars(tflite.BuiltinOptions).items() if code == source.BuiltinOptionsType())
    options = getattr(tflite, kind)()
    options.Init(table.Bytes, table.Pos)
    fields = (name.removeprefix(f"{kind}Add") for name in dir(tflite) if name.startswith(f"{kind}Add"))
    return kind, {field: value for field in fields if (value := _field(options, field)) is not None}


def _field(options: Any, field: str) -> int | float | bool | Array | None:
    """A field of a table of options; None for an array that is left out."""
    if not hasattr(options, f"{field}AsNumpy"):
        return getattr(options, field)()  # type: ignore[no-any-return]
    return None if getattr(options, f"{field}IsNone")() else getattr(options, f"{field}AsNumpy")()
