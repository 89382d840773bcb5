"""Biases as int32 on the scale of their sums, the input's times the weights'.

A TFLite file may state another scale: its kernels and TVM's importer of Relay read the integers alone. Other files may
have real biases: they become the nearest integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import Assignment, call_on, steps_of, with_steps
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call
from byoc_hw.tensor import Array


def with_scales_of_biases(main: Any) -> Any:
    """The function with the constant int32 biases of convolutions and matrix products on those scales."""
    values = dict(steps_of(main))
    for value in list(values.values()):
        found = _scale_of_sums(value, values)
        if found is not None:
            values[value.args[1]] = _scaled(values[value.args[1]], found)
    return with_steps(main, list(values.items()))


def with_stored_biases(main: Any) -> Any:
    """The function with integers for real constants that are added to sums of products."""
    values = dict(steps_of(main))
    steps: list[Assignment] = []
    for variable, value in values.items():
        stored = _stored_bias(value, values)
        if stored is not None:
            bias = relax.DataflowVar(f"{variable.name}_bias", stored.ty)
            steps.append((bias, stored))
            value = call_on(value, [value.args[0], bias], value.ty)
        steps.append((variable, value))
    return with_steps(main, steps)


def _stored_bias(add: Any, values: Mapping[Any, Any]) -> Any | None:
    """The dequantize of a real bias that is stored, or None for anything else."""
    if not is_call(add, "add") or not isinstance(add.args[1], Literal):
        return None
    scale, real = _scale_of_products(values.get(add.args[0]), values), array_of(add.args[1])
    if scale is None or not scale.all() or real.size != extents_of(add)[-1] or real.shape[-1] != real.size:
        return None
    levels = np.rint(real.reshape(-1).astype(np.float64) / scale.reshape(-1).astype(np.float64))
    if not np.isfinite(levels).all() or np.abs(levels).max(initial=0) >= 1 << 31:
        return None
    stored = relax.op.dequantize(
        relax.const(levels.astype(np.int32)), relax.const(scale), relax.const(np.zeros_like(scale, "int32")), axis=0
    )
    return call_on(stored, stored.args, relax.TensorType([real.size], "float32"), add.span)


def _scale_of_sums(add: Any, values: Mapping[Any, Any]) -> Array | None:
    """The scale of a stored bias, for an addition of one to sums of products."""
    if not is_call(add, "add"):
        return None
    bias = values.get(add.args[1])
    if not _is_constant_scale(bias) or dtype_of(bias.args[0]) != "int32":
        return None
    return _scale_of_products(values.get(add.args[0]), values)


def _scale_of_products(total: Any, values: Mapping[Any, Any]) -> Array | None:
    """The scale of sums of products, one or one for each channel; None of what is no such sum."""
    if not is_call(total, "nn.conv2d", "matmul"):
        return None
    factors = []
    for operand in total.args[:2]:
        factor = values.get(operand)
        factor = values.get(factor.args[0]) if is_call(factor, "reshape") else factor
        if not _is_constant_scale(factor):
            return None
        factors.append(array_of(factor.args[1]).astype(np.float32))
    one, other = factors
    return np.asarray(one * other)


def _is_constant_scale(value: Any) -> TypeGuard[Any]:
    return is_call(value, "dequantize") and isinstance(value.args[1], Literal)


def _scaled(dequantize: Any, scale: Array) -> Any:
    operands = [dequantize.args[0], relax.const(scale), relax.const(np.int32(0))]
    return call_on(dequantize, operands, dequantize.ty)
