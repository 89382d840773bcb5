"""Biases on the scale of their sums, the input's times the weights', whatever scale a TFLite file states for them.

TFLite's kernels and TVM's importer of Relay read the integers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import steps_of, typed_as, with_steps
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, name_of
from byoc_hw.tensor import Array


def with_scales_of_biases(main: Any) -> Any:
    """The function with the constant int32 biases of convolutions and matrix products on those scales."""
    values = dict(steps_of(main))
    for value in list(values.values()):
        found = _scale_of_sums(value, values)
        if found is not None:
            values[value.args[1]] = _scaled(values[value.args[1]], found)
    return with_steps(main, list(values.items()))


def _scale_of_sums(add: Any, values: Mapping[Any, Any]) -> Array | None:
    """The scale of a bias, for an addition of one to sums of products."""
    if not _is_call(add, "add"):
        return None
    total, bias = (values.get(one) for one in add.args)
    if not _is_constant_scale(bias) or dtype_of(bias.args[0]) != "int32":
        return None
    if not (_is_call(total, "nn.conv2d") or _is_call(total, "matmul")):
        return None
    factors = []
    for operand in total.args[:2]:
        factor = values.get(operand)
        factor = values.get(factor.args[0]) if _is_call(factor, "reshape") else factor
        if not _is_constant_scale(factor):
            return None
        factors.append(array_of(factor.args[1]).astype(np.float32))
    one, other = factors
    return one * other


def _is_call(value: Any, name: str) -> TypeGuard[Any]:
    return isinstance(value, relax.Call) and name_of(value) == name


def _is_constant_scale(value: Any) -> TypeGuard[Any]:
    return _is_call(value, "dequantize") and isinstance(value.args[1], Literal)


def _scaled(dequantize: Any, scale: Array) -> Any:
    operands = [dequantize.args[0], relax.const(scale), relax.const(np.int32(0))]
    call = relax.Call(dequantize.op, operands, dequantize.attrs, dequantize.ty_args, dequantize.span)
    return typed_as(call, dequantize.ty)
