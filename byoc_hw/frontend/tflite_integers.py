"""What a float TFLite file becomes when it is quantized: the scale of each tensor, the integers of each weight.

The values of a network and the operators of its file have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tflite

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.tflite_file import FileOperator, TfliteFile
from byoc_hw.frontend.tflite_float import with_float_weights
from byoc_hw.quantization.layers import QuantizedNetwork, QuantizedProduct
from byoc_hw.quantization.network import Network
from byoc_hw.tensor import Array

OPERATORS: dict[int, str] = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
"""The names of operators in the schema, by their codes."""

CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
"""The dimension of the outputs in the weights of an operator."""

_BOUNDS = {"RELU", "RELU6", "RELU_N1_TO_1", "MAXIMUM", "MINIMUM"}
"""Operators that are a bound and nothing else."""


@dataclass(frozen=True, eq=False)
class IntegerWeights:
    """The int8 weights of an operator as its file has them, of `bits` bits; the scale and real bias of each output."""

    levels: Array
    scales: Array
    bias: Array
    bits: int


@dataclass(frozen=True, eq=False)
class IntegerFile:
    """A float file, the operators that its outputs need, and the integers that stand for its numbers.

    `grids` are scale and zero point of activations, by the number of the tensor; `weights` are by the name of the
    operator.
    """

    file: TfliteFile
    operators: tuple[FileOperator, ...]
    grids: Mapping[int, tuple[float, int]]
    weights: Mapping[str, IntegerWeights]


def integers_of(source: TfliteFile, network: Network, made: QuantizedNetwork) -> IntegerFile:
    """The integers of a file, by the network that was made of it. `InvalidInput` names an operator without them."""
    file = with_float_weights(source)
    values = {value.name: number for number, value in enumerate(network.values)}  # an operator's last one is its result
    grids, weights = {}, {}
    for tensor in file.inputs:
        if file.tensors[tensor].name in values:
            grids[tensor] = made.grids[values[file.tensors[tensor].name]]
    operators = _needed(file)
    for operator in operators:
        kind = OPERATORS.get(operator.code, f"operator {operator.code}")
        what = f"{kind} ({operator.name})"
        output = _output(file, operator, what)
        if operator.name not in values or _is_folded(network, operator.name, kind):
            raise InvalidInput(f"{what}: an operator of an int8 file is not folded: its constants are in others")
        grids[output] = _grid(network, made, values[operator.name], what)
        products = [made.products[place] for place in network.products if network.values[place].name == operator.name]
        if len(products) != (kind in CHANNELS):
            raise InvalidInput(
                f"{what}: an operator of an int8 file has constant weights if it is one of {', '.join(CHANNELS)}: "
                f"got {len(products)} products"
            )
        if products:
            weights[operator.name] = _laid_out(kind, products[0], file.tensors[operator.inputs[1]].shape)
    return IntegerFile(file, operators, grids, weights)


def _output(file: TfliteFile, operator: FileOperator, what: str) -> int:
    if len(operator.outputs) != 1:
        raise InvalidInput(f"{what}: an operator of an int8 file has one output: got {len(operator.outputs)}")
    return operator.outputs[0]


def _is_folded(network: Network, name: str, kind: str) -> bool:
    """Whether nothing is left of an operator but its bound."""
    return kind not in _BOUNDS and all(value.role == "bounded" for value in network.values if value.name == name)


def _needed(file: TfliteFile) -> tuple[FileOperator, ...]:
    """The operators that outputs need, in order; those that compute weights are not among them."""
    wanted = set(file.outputs)
    found = []
    for operator in reversed(file.operators):
        if wanted.intersection(operator.outputs):
            found.append(operator)
            weighted = OPERATORS.get(operator.code) in CHANNELS
            wanted.update(operator.inputs[:1] if weighted else operator.inputs)
    return tuple(reversed(found))


def _grid(network: Network, made: QuantizedNetwork, number: int, what: str) -> tuple[float, int]:
    """The grid of a value, which is the one of what it moves, or of the bounds that alone read it."""
    value = network.values[number]
    if network.stored[number]:
        return made.grids[number]
    if value.role == "moved":
        return _grid(network, made, value.inputs[0], what)
    (reader,) = network.readers[number]
    if network.values[reader].role != "bounded":
        raise InvalidInput(
            f"{what}: the result of an operator of an int8 file has a scale: it stays float up to "
            f"{network.values[reader].name}"
        )
    return _grid(network, made, reader, what)


def _laid_out(kind: str, product: QuantizedProduct, shape: tuple[int, ...]) -> IntegerWeights:
    """The weights in the file's layout: OHWI, of a depthwise convolution 1HWO."""
    levels = product.levels
    if kind == "DEPTHWISE_CONV_2D":
        levels = levels.transpose(3, 1, 2, 0)
    assert levels.shape == shape, "the weights of the file"
    return IntegerWeights(np.ascontiguousarray(levels), product.scales, product.bias, product.bits)
