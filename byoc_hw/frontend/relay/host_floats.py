"""Exact float constants in host functions: TVM's C target writes seven digits, a float32 needs up to nine.

A constant that needs more than seven digits becomes an external call, which the C target writes verbatim:

    exact_float("1.44692507e-01f")

`with_floats` then replaces the call with the literal.
"""

from __future__ import annotations

import re

import numpy as np
import tvm
from tvm import tir

_MARK = "exact_float"
_FORMATS = {"float32": "{:.8e}f", "float64": "{:.16e}"}


@tir.transform.prim_func_pass(opt_level=0, name="byoc_hw.MarkFloats")
class MarkFloats:
    """Mark each float constant that needs more digits."""

    def transform_function(
        self, function: tir.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
    ) -> tir.PrimFunc:
        """One function; see `tvm.tir.transform.prim_func_pass`."""
        return function.with_body(tir.stmt_functor.ir_transform(function.body, None, _marked, ["FloatImm"]))


def _marked(constant: tir.FloatImm) -> tir.PrimExpr | None:
    dtype, value = str(constant.dtype), float(constant.value)
    if dtype not in _FORMATS or not np.isfinite(value):
        return None
    rounded = np.dtype(dtype).type
    if rounded(f"{value:e}") == rounded(value):
        return None
    return tir.call_pure_extern(dtype, _MARK, tir.StringImm(_FORMATS[dtype].format(value)))


def with_floats(text: str) -> str:
    """C with each marked constant as a literal."""
    return re.sub(rf'\b{_MARK}\("([^"]*)"\)', r"\1", text)
