"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8, with a cell state of int16, its steps over time unrolled.

Of each step, for the gates of input, forget, cell and output together:

    %0 = (qnn.dense(%x, weights) + bias) * scale         int16, with 3 integer bits
    %1 = %0 + qnn.dense(%output, weights) * scale        limited to int16
    input, forget, output = logistic(%1); new = tanh(%1)
    %cell = forget * %cell + input * new                 limited to int16
    %output = output * tanh(%cell) * scale               int8

TFLite keeps output and cell state in the interpreter; here they are inputs, and the next ones outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import relay

from byoc_hw.frontend.relay.tflite_operators.fixed_point import (
    ensure,
    narrowed,
    scaled,
    tensor_scale,
    tensor_zero_point,
)
from byoc_hw.frontend.relay.tflite_operators.int16_functions import Int16Functions
from byoc_hw.tensor import Array

_INPUTS = 24
_GATE_BITS = 3
"""Integer bits of the gates' sums in fixed point of int16."""

_HIDDEN = 4
"""The place of the output's quantization among the operator's intermediate tensors."""


def convert_lstm(converter: Any, operator: Any) -> tuple[relay.Expr, relay.Expr, relay.Expr]:
    """Output, next output state and next cell state, of an operator as TVM's converter gives it.

    Raises `NotImported`.
    """
    inputs, (output,) = converter.get_input_tensors(operator), converter.get_output_tensors(operator)
    options = _checked(converter, operator, inputs, output)
    x, output_state, cell_state = inputs[0], inputs[18], inputs[19]
    cells = int(inputs[2].tensor.Shape(0))
    gates = [_gate(converter, inputs, place, cells) for place in ((1, 2, 3, 4) if _given(inputs[1]) else (2, 3, 4))]
    scale = float(tensor_scale(cell_state))
    cell = _Cell(
        len(gates),
        _Sums.of(gates, "recurrent", tensor_scale(output_state) * 2.0**12, tensor_zero_point(output_state), None),
        round(math.log2(scale)),
        int(min(options.CellClip() / scale, 32767)),
        _hidden(converter, operator),
        Int16Functions(),
    )
    steps_axis = 0 if options.TimeMajor() else 1
    rows = converter.get_expr(x.tensor_idx)
    rows = relay.transpose(rows, (1, 0, 2)) if steps_axis else rows
    steps, batch, depth = (int(x.tensor.Shape(axis)) for axis in (steps_axis, 1 - steps_axis, 2))
    sums = _Sums.of(gates, "weights", tensor_scale(x) * 2.0**12, tensor_zero_point(x), [gate.bias for gate in gates])
    driven = relay.reshape(sums.narrowed(relay.reshape(rows, (steps * batch, depth))), (steps, batch, -1))
    hidden = relay.reshape(converter.get_expr(output_state.tensor_idx), (batch, cells))
    state = relay.cast(relay.reshape(converter.get_expr(cell_state.tensor_idx), (batch, cells)), "int32")
    outputs = []
    for step in range(steps):
        one = relay.reshape(relay.strided_slice(driven, [step], [step + 1], axes=[0]), (batch, -1))
        hidden, state = cell.next(one, hidden, state)
        outputs.append(hidden)
    result = relay.stack(outputs, axis=steps_axis)
    return (
        result,
        relay.reshape(hidden, converter.get_tensor_shape(output_state)),
        relay.reshape(relay.cast(state, "int16"), converter.get_tensor_shape(cell_state)),
    )


# ---------------------------------------------------------------- one step


@dataclass(frozen=True)
class _Gate:
    """The weights of a gate for inputs and for outputs of the step before, their scales, and its bias."""

    weights: Array
    recurrent: Array
    scales: tuple[np.float32, np.float32]
    bias: Array


@dataclass(frozen=True)
class _Sums:
    """Products of rows with the weights of all gates, as fixed point of int16."""

    weights: Array
    ratios: Array
    zero_point: int
    bias: Array | None

    @classmethod
    def of(cls, gates: list[_Gate], which: str, scale: np.float32, zero_point: int, bias: list[Array] | None) -> _Sums:
        """Of inputs ("weights") or of outputs ("recurrent"); `scale` is theirs in units of the sums."""
        matrices = [getattr(gate, which) for gate in gates]
        own = [np.float32(gate.scales[which == "recurrent"] * np.float32(scale)) for gate in gates]
        ratios = np.repeat(np.array(own, np.float64), len(matrices[0]))
        return cls(np.concatenate(matrices), ratios, zero_point, None if bias is None else np.concatenate(bias))

    def scaled(self, rows: relay.Expr) -> relay.Expr:
        """The sums of rows of int8, int64, not limited to int16."""
        one = relay.const(1.0, "float32")
        total = relay.qnn.op.dense(
            rows,
            relay.const(self.weights, "int8"),
            *(relay.const(self.zero_point, "int32"), relay.const(0, "int32"), one, one),
            units=len(self.weights),
            out_dtype="int32",
        )
        largest = 255 * int(abs(self.weights.astype(np.int64)).sum(axis=1).max())
        if self.bias is not None:
            total = total + relay.const(self.bias, "int32")
            largest += int(abs(self.bias.astype(np.int64)).max())
        return scaled(total, self.ratios, largest)

    def narrowed(self, rows: relay.Expr) -> relay.Expr:
        """The sums of rows of int8, as int16."""
        return narrowed(self.scaled(rows), 0, "int16")


@dataclass(frozen=True)
class _Cell:
    """What all steps share.

    `gates` is the number of them: input, forget, cell and output, or without the first. `scale_bits` is the exponent
    of the cell state's scale, `clip` its limit or 0, `hidden` the output's scale and zero point.
    """

    gates: int
    recurrent: _Sums
    scale_bits: int
    clip: int
    hidden: tuple[float, int]
    functions: Int16Functions

    def next(self, driven: relay.Expr, hidden: relay.Expr, state: relay.Expr) -> tuple[relay.Expr, relay.Expr]:
        """Output, int8, and cell state, int32, after a step with sums of int16 of its input."""
        sums = narrowed(self.recurrent.scaled(hidden) + relay.cast(driven, "int64"), 0, "int16")
        *first, forget, new, output = relay.split(relay.cast(sums, "int32"), self.gates, axis=1)
        forget, output = (self.functions.logistic(one, _GATE_BITS) for one in (forget, output))
        new = self.functions.tanh(new, _GATE_BITS)
        add = self.functions.logistic(first[0], _GATE_BITS) if first else relay.const(32767, "int32") - forget
        state = _shifted(forget * state, 15) + _shifted(add * new, 30 + self.scale_bits)
        state = relay.clip(state, -32768, 32767)
        if self.clip:
            state = relay.clip(state, -self.clip, self.clip)
        product = output * self.functions.tanh(state, 15 + self.scale_bits)
        scale, zero_point = self.hidden
        return narrowed(scaled(product, scale, 1 << 30), zero_point, "int8"), state


def _shifted(value: relay.Expr, bits: int) -> relay.Expr:
    """int32 values shifted right, with halves away from zero."""
    up = relay.const(1 << (bits - 1), "int32") + relay.right_shift(value, relay.const(31, "int32"))
    return relay.right_shift(value + up, relay.const(bits, "int32"))


# ---------------------------------------------------------------- the operator in the file


def _checked(converter: Any, operator: Any, inputs: list[Any], output: Any) -> Any:
    """The options of an operator of the form that is imported."""
    ensure(f"LSTM has {_INPUTS} inputs", len(inputs) == _INPUTS, len(inputs))
    needed = (0, 2, 3, 4, 6, 7, 8, 13, 14, 15, 18, 19)
    missing = [place for place in needed if not _given(inputs[place])]
    ensure("inputs, weights, biases and states are given", not missing, f"no input {missing[:1]}")
    whole = [_given(inputs[place]) for place in (1, 5, 12)]
    ensure("the input gate has both weights and a bias, or none of them", len(set(whole)) == 1, f"{sum(whole)} of 3")
    for what, places in _LEFT_OUT.items():
        ensure(f"there are no {what}", not any(_given(inputs[place]) for place in places), "some")
    types = [converter.get_tensor_type_str(one.tensor.Type()) for one in (inputs[0], inputs[18], inputs[19], output)]
    ensure("types are int8, with a cell state of int16", types == ["int8", "int8", "int16", "int8"], ", ".join(types))
    exponent = math.log2(tensor_scale(inputs[19]))
    ensure("the cell state's scale is a power of 2", exponent == round(exponent), tensor_scale(inputs[19]))
    ensure("the cell state has 0 to 6 integer bits", 0 <= 15 + exponent <= 6, 15 + exponent)
    options, table = tflite.UnidirectionalSequenceLSTMOptions(), operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    activation = options.FusedActivationFunction()
    ensure("activation is TANH", activation == tflite.ActivationFunctionType.TANH, activation)
    return options


_LEFT_OUT = {"peephole weights": (9, 10, 11), "projection": (16, 17), "layer normalization": (20, 21, 22, 23)}


def _gate(converter: Any, inputs: list[Any], place: int, cells: int) -> _Gate:
    weights, recurrent, bias = inputs[place], inputs[place + 4], inputs[place + 11]
    for one in (weights, recurrent):
        ensure("weights are int8 constants", converter.get_tensor_type_str(one.tensor.Type()) == "int8", "others")
        ensure("zero points of weights are 0", tensor_zero_point(one) == 0, tensor_zero_point(one))
    data = [converter.get_tensor_value(one) for one in (weights, recurrent, bias)]
    ensure("there is one output for each cell", data[1].shape == (cells, cells), data[1].shape)
    return _Gate(data[0], data[1], (tensor_scale(weights), tensor_scale(recurrent)), data[2])


def _hidden(converter: Any, operator: Any) -> tuple[float, int]:
    """The output's scale from the product of two values without integer bits, and its zero point."""
    ensure("there are 5 intermediate tensors", operator.IntermediatesLength() == 5, operator.IntermediatesLength())
    grid = converter.subgraph.Tensors(operator.Intermediates(_HIDDEN)).Quantization()
    ensure("the last of them is quantized", grid is not None and grid.ScaleLength() == 1, "without a scale")
    return float(np.float32(2.0**-30 / np.float64(np.float32(grid.Scale(0))))), int(grid.ZeroPoint(0))


def _given(tensor: Any) -> bool:
    return bool(tensor.tensor_idx >= 0)
