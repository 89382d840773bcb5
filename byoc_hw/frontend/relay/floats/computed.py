"""What computes a float operator for several samples at once: numpy, and TVM sample by sample for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.floats.products import static_shape
from byoc_hw.frontend.relay.golden import golden_executor
from byoc_hw.frontend.relay.read import padding, pair
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.sources import operands_of, operator_name
from byoc_hw.quantization import kernels
from byoc_hw.quantization.network import Compute
from byoc_hw.tensor import Array

UNARY: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "negative": np.negative,
    "abs": np.abs,
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
}
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}


def run_of(call: relay.Call, given: Sequence[bool]) -> Compute:
    """What computes a call for samples. What numpy has no short form of, TVM computes sample by sample."""
    name, attrs = operator_name(call), call.attrs
    if name == "nn.relu":
        return lambda inputs: np.maximum(inputs[0], 0)
    if name == "clip":
        low, high = float(attrs.a_min), float(attrs.a_max)
        return lambda inputs: np.clip(inputs[0], low, high)
    if name in UNARY:
        function = UNARY[name]
        return lambda inputs: function(inputs[0])
    if name in PAIRS:
        return _pairwise(call, given)
    if name in ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "copy"):
        shape = static_shape(call)
        return lambda inputs: inputs[0].reshape(len(inputs[0]), *shape)
    if name == "transpose":
        rank = len(static_shape(call))
        axes = [int(axis) % rank for axis in attrs.axes or reversed(range(rank))]
        return lambda inputs: inputs[0].transpose(0, *(axis + 1 for axis in axes))
    if name == "nn.softmax":
        axis = int(attrs.axis) % len(static_shape(call)) + 1
        return lambda inputs: kernels.softmax(inputs[0], axis)
    if name == "concatenate":
        axis = int(attrs.axis) % len(static_shape(call)) + 1
        return lambda inputs: np.concatenate(inputs, axis)
    if name in ("nn.avg_pool2d", "nn.max_pool2d") and str(attrs.layout) == "NHWC" and set(attrs.dilation) == {1}:
        return _pool(call)
    if name == "mean":
        return _mean(call)
    return _by_tvm(call, given)


def _pairwise(call: relay.Call, given: Sequence[bool]) -> Compute:
    function, rank = PAIRS[operator_name(call)], len(static_shape(call))
    constants = [None if here else argument.data.numpy() for argument, here in zip(call.args, given, strict=True)]

    def run(inputs: Sequence[Array]) -> Array:
        rest = iter(inputs)
        sides = [_of_rank(next(rest), rank) if constant is None else constant for constant in constants]
        return np.asarray(function(*sides))

    return run


def _of_rank(samples: Array, rank: int) -> Array:
    """Samples of values with this many dimensions: new ones are in front."""
    shape = samples.shape[1:]
    return samples.reshape(len(samples), *(1,) * (rank - len(shape)), *shape)


def _pool(call: relay.Call) -> Compute:
    attrs, (batch, rows, columns, channels) = call.attrs, static_shape(call)
    mode = "max" if operator_name(call) == "nn.max_pool2d" else "avg"
    arguments = (mode, pair(attrs.pool_size), pair(attrs.strides), padding(attrs.padding), (rows, columns))
    ones = mode == "avg" and bool(attrs.count_include_pad)

    def run(inputs: Sequence[Array]) -> Array:
        flat = inputs[0].reshape(-1, *inputs[0].shape[2:])
        return kernels.pooled(flat, *arguments, ones).reshape(-1, batch, rows, columns, channels)

    return run


def _mean(call: relay.Call) -> Compute:
    rank, attrs = len(static_shape(call.args[0])), call.attrs
    axes = {int(axis) % rank for axis in attrs.axis} if attrs.axis is not None else set(range(rank))
    chosen = tuple(axis + 1 for axis in range(rank) if (axis in axes) != bool(attrs.exclude))
    keepdims = bool(attrs.keepdims)
    return lambda inputs: inputs[0].mean(axis=chosen, keepdims=keepdims)


def _by_tvm(call: relay.Call, given: Sequence[bool]) -> Compute:
    """TVM's own result, one sample after another."""
    operands = operands_of(call)
    variables = {
        operand: relay.Var(f"input_{place}", operand.checked_type)
        for place, (operand, here) in enumerate(zip(operands, given, strict=True))
        if here
    }

    def replaced(expr: relay.Expr) -> relay.Expr:
        if isinstance(expr, relay.Tuple):
            return relay.Tuple([replaced(one) for one in expr.fields])
        return variables.get(expr, expr)

    body = relay.Call(call.op, [replaced(argument) for argument in call.args], call.attrs)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(variables.values()), body)))
    names = [variable.name_hint for variable in variables.values()]
    held: list[Any] = []

    @serial
    def run(inputs: Sequence[Array]) -> Any:
        if not held:
            held.append(golden_executor(mod))
        executor, found = held[0], []
        for sample in zip(*inputs, strict=True):
            executor.run(**dict(zip(names, sample, strict=True)))
            found.append([executor.get_output(place).numpy() for place in range(executor.get_num_outputs())])
        outputs = [np.stack(column) for column in zip(*found, strict=True)]
        return outputs[0] if len(outputs) == 1 else outputs

    return run
