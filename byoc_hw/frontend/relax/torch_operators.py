"""Operators of programs of torch.export that TVM's importer lacks, or has with other results than torch.

A function gets the importer's block builder and the node's arguments by name, with values of Relax for tensors. It
returns the value of the result, a tuple of them where the operator has several, or None where TVM's importer is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of


def _add(builder: Any, given: Mapping[str, Any]) -> Any | None:
    return None if given["alpha"] == 1 else relax.op.add(given["self"], _scaled(builder, given, "other"))


def _sub(builder: Any, given: Mapping[str, Any]) -> Any | None:
    return None if given["alpha"] == 1 else relax.op.subtract(given["self"], _scaled(builder, given, "other"))


def _rsub(builder: Any, given: Mapping[str, Any]) -> Any:
    return relax.op.subtract(_operand(given, "other"), _scaled(builder, given, "self"))


def _scaled(builder: Any, given: Mapping[str, Any], name: str) -> Any:
    """An operand times torch's `alpha`."""
    value = _operand(given, name)
    factor = relax.const(given["alpha"], dtype_of(value))
    return value if given["alpha"] == 1 else builder.emit(relax.op.multiply(value, factor))


def _operand(given: Mapping[str, Any], name: str) -> Any:
    """An operand that may be a number, which then has the type of the first one."""
    value = given[name]
    return value if isinstance(value, relax.Expr) else relax.const(value, dtype_of(given["self"]))


def _celu(builder: Any, given: Mapping[str, Any]) -> Any:
    """relu(x) - alpha * relu(1 - exp(x / alpha))"""
    x = given["self"]
    alpha = relax.const(float(given["alpha"]), dtype_of(x))
    power = builder.emit(relax.op.exp(relax.op.divide(x, alpha)))
    below = builder.emit(relax.op.nn.relu(relax.op.subtract(relax.const(1.0, dtype_of(x)), power)))
    return relax.op.subtract(relax.op.nn.relu(x), relax.op.multiply(alpha, below))


def _batch_norm(builder: Any, given: Mapping[str, Any]) -> Any:
    """With the running statistics: the values times a factor for each channel, and a term."""
    if given.get("training"):
        raise InvalidInput("a batch normalization has its running statistics, as after eval(): got training=True")
    x, shape = given["input"], extents_of(given["input"])
    names = ("weight", "bias", "running_mean", "running_var")
    held = [_constant(given[name], default, shape[1]) for name, default in zip(names, (1, 0, 0, 1), strict=True)]
    weight, bias, mean, variance = held
    factor = weight / np.sqrt(variance + np.float32(given["eps"]))
    ones = [1] * (len(shape) - 2)
    factors, terms = (relax.const(one.astype(dtype_of(x)).reshape(-1, *ones)) for one in (factor, bias - mean * factor))
    return relax.op.add(builder.emit(relax.op.multiply(x, factors)), terms)


def _constant(given: Any, default: float, channels: int) -> Any:
    if given is None:
        return np.full(channels, default, np.float32)
    if not isinstance(given, Literal):
        raise InvalidInput("the parameters of a batch normalization are constants: got a value that is computed")
    return array_of(given)


def _prelu(builder: Any, given: Mapping[str, Any]) -> Any:
    """relu(x) + slopes * min(x, 0), with a constant slope for each channel or one"""
    x, slopes = given["self"], given["weight"]
    if not isinstance(slopes, Literal):
        return None
    values = array_of(slopes)
    if values.size == 1:
        return relax.op.nn.leakyrelu(x, float(values.item()))
    below = builder.emit(relax.op.minimum(x, relax.const(0.0, dtype_of(x))))
    by_channel = relax.const(values.reshape(-1, *[1] * (len(extents_of(x)) - 2)))
    return relax.op.add(builder.emit(relax.op.nn.relu(x)), builder.emit(relax.op.multiply(below, by_channel)))


def _select(builder: Any, given: Mapping[str, Any]) -> Any:
    part = builder.emit(_part(given["self"], given["dim"], given["index"], 1))
    shape = extents_of(part)
    axis = int(given["dim"]) % len(shape)
    return relax.op.reshape(part, [*shape[:axis], *shape[axis + 1 :]])


def _narrow(builder: Any, given: Mapping[str, Any]) -> Any:
    return _part(given["self"], given["dim"], given["start"], given["length"])


def _part(x: Any, dim: int, start: int, length: int) -> Any:
    axis = dim % len(extents_of(x))
    begin = start % extents_of(x)[axis] if start < 0 else start
    return relax.op.strided_slice(x, axes=[axis], begin=[begin], end=[begin + length], strides=[1])


def _pixel_shuffle(builder: Any, given: Mapping[str, Any]) -> Any:
    x, block = given["self"], int(given["upscale_factor"])
    *batch, channels, height, width = extents_of(x)
    at, filters = len(batch), channels // block**2
    parts = builder.emit(relax.op.reshape(x, [*batch, filters, block, block, height, width]))
    order = [*range(at), at, at + 3, at + 1, at + 4, at + 2]
    placed = builder.emit(relax.op.permute_dims(parts, order))
    return relax.op.reshape(placed, [*batch, filters, height * block, width * block])


def _amax(builder: Any, given: Mapping[str, Any]) -> Any:
    return relax.op.max(given["self"], list(given["dim"]) or None, bool(given["keepdim"]))


def _prod(builder: Any, given: Mapping[str, Any]) -> Any:
    return relax.op.prod(given["self"], [given["dim"]], bool(given["keepdim"]))


def _adaptive_max_pool(builder: Any, given: Mapping[str, Any]) -> Any:
    """Of windows of one size; the places of the maxima are not computed."""
    x = given["self"]
    shape, sizes = extents_of(x)[-2:], [int(size) for size in given["output_size"]]
    if any(extent % size for extent, size in zip(shape, sizes, strict=True)):
        raise InvalidInput(f"windows of an adaptive maximum are of one size: got {sizes} of {list(shape)}")
    if sizes == [1, 1]:
        return (relax.op.max(x, [-2, -1], True),)
    window = [extent // size for extent, size in zip(shape, sizes, strict=True)]
    return (relax.op.nn.max_pool2d(x, window, window, layout="NCHW"),)


RECURRENT = ("gru.input", "lstm.input")
"""Operators whose results are outputs and states, of which TVM's importer gives the outputs alone."""


def last_states(builder: Any, outputs: Any, given: Mapping[str, Any]) -> Any | None:
    """The last states of a layer of one direction, of shape (1, batch, states), or None of one of two."""
    if given["bidirectional"]:
        return None
    if not given["batch_first"]:
        return _part(outputs, 0, -1, 1)
    return relax.op.permute_dims(builder.emit(_part(outputs, 1, -1, 1)), [1, 0, 2])


OPERATORS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "_native_batch_norm_legit_no_training.default": lambda builder, given: (_batch_norm(builder, given),),
    "adaptive_max_pool2d.default": _adaptive_max_pool,
    "add.Tensor": _add,
    "add_.Tensor": _add,
    "amax.default": _amax,
    "batch_norm.default": _batch_norm,
    "celu.default": _celu,
    "narrow.default": _narrow,
    "pixel_shuffle.default": _pixel_shuffle,
    "prelu.default": _prelu,
    "prod.dim_int": _prod,
    "rsub.Scalar": _rsub,
    "rsub.Tensor": _rsub,
    "select.int": _select,
    "sub.Tensor": _sub,
}
"""By the name of the operator."""
