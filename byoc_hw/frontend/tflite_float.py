"""The float form of a TFLite file: constants that are stored with fewer bits are the float32 values they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from byoc_hw.frontend.tflite_file import FileOperator, FileTensor, TfliteFile
from byoc_hw.tensor import Array

_DEQUANTIZE = 6


def with_float_weights(file: TfliteFile) -> TfliteFile:
    """The file with float weights where its activations are float.

    The quantized constants of "dynamic range" operators, whose activations are float32, become float32. Where a
    DEQUANTIZE reads a constant, its output is the constant instead, and the operator is gone.
    """
    tensors = list(file.tensors)
    kept = []
    for operator in file.operators:
        if _dequantizes_a_constant(file, operator):
            real = _real(tensors[operator.inputs[0]])
            index = operator.outputs[0]
            tensors[index] = replace(tensors[index], constant=True, values=real)
        else:
            kept.append(operator)
    of_integers = {index for operator in kept for index in _quantized_constants(file, operator, of_floats=False)}
    for operator in kept:
        for index in _quantized_constants(file, operator, of_floats=True):
            if index not in of_integers:
                real = _real(file.tensors[index])
                tensors[index] = replace(file.tensors[index], dtype="float32", quantization=None, values=real)
    return replace(file, tensors=tuple(tensors), operators=tuple(kept))


def _dequantizes_a_constant(file: TfliteFile, operator: FileOperator) -> bool:
    if operator.code != _DEQUANTIZE or len(operator.inputs) != 1 or len(operator.outputs) != 1:
        return False
    source, real = file.tensors[operator.inputs[0]], file.tensors[operator.outputs[0]]
    whole = source.values is not None and real.breaks is None and source.shape == real.shape and real.dtype == "float32"
    return whole and operator.outputs[0] not in file.outputs and (source.quantized or source.dtype == "float16")


def _quantized_constants(file: TfliteFile, operator: FileOperator, *, of_floats: bool) -> Iterator[int]:
    """The quantized constants of an operator, if its activations are float, or if they are not."""
    activations = [*operator.inputs[:1], *operator.outputs]
    if all(index >= 0 and file.tensors[index].dtype == "float32" for index in activations) == of_floats:
        for index in operator.inputs:
            if index >= 0 and file.tensors[index].values is not None and file.tensors[index].quantized:
                yield index


def _real(tensor: FileTensor) -> Array:
    """The values that the stored ones stand for, as float32."""
    assert tensor.values is not None, "a constant"
    stored = tensor.values.astype(np.float32)
    if tensor.quantization is None:
        return stored
    along = [1] * stored.ndim
    if tensor.quantization.axis is not None:
        along[tensor.quantization.axis] = -1
    scale = np.array(tensor.quantization.scale, np.float32).reshape(along)
    zero_point = np.array(tensor.quantization.zero_point, np.float32).reshape(along)
    return np.asarray((stored - zero_point) * scale)
