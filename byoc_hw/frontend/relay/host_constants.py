"""Constants in host functions that TVM's C target writes wrongly.

It writes floats with seven digits, of which a float32 needs up to nine; `inff` and `nanf` for numbers that are not
finite; and the lowest int64 as the negative of a number that no int64 holds. Such a constant becomes an external
call, which the C target writes verbatim:

    exact_constant("1.44692507e-01f")

`with_constants` then replaces the call with the literal.
"""

from __future__ import annotations

import re

import numpy as np
import tvm
from tvm import tir

_MARK = "exact_constant"
_FORMATS = {"float32": "{:.8e}f", "float64": "{:.16e}"}


_INFINITY = {"float32": "INFINITY", "float64": "(double)INFINITY"}
_NAN = {"float32": "NAN", "float64": "(double)NAN"}
_LOWEST_INT64, _LOWEST_LITERAL = -(2**63), "(-9223372036854775807LL - 1)"


@tir.transform.prim_func_pass(opt_level=0, name="byoc_hw.MarkConstants")
class MarkConstants:
    """Mark each constant that the C target writes wrongly."""

    def transform_function(
        self, function: tir.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
    ) -> tir.PrimFunc:
        """One function; see `tvm.tir.transform.prim_func_pass`."""
        return function.with_body(tir.stmt_functor.ir_transform(function.body, None, _marked, ["FloatImm", "IntImm"]))


def _marked(constant: tir.FloatImm | tir.IntImm) -> tir.PrimExpr | None:
    dtype = str(constant.dtype)
    literal = _integer(dtype, constant) if isinstance(constant, tir.IntImm) else _float(dtype, float(constant.value))
    return None if literal is None else tir.call_pure_extern(dtype, _MARK, tir.StringImm(literal))


def _integer(dtype: str, constant: tir.IntImm) -> str | None:
    return _LOWEST_LITERAL if dtype == "int64" and int(constant.value) == _LOWEST_INT64 else None


def _float(dtype: str, value: float) -> str | None:
    if dtype not in _FORMATS:
        return None
    if np.isnan(value):
        return _NAN[dtype]
    if np.isinf(value):
        return _INFINITY[dtype] if value > 0 else f"(-{_INFINITY[dtype]})"
    rounded = np.dtype(dtype).type
    if rounded(f"{value:e}") == rounded(value):
        return None
    return _FORMATS[dtype].format(value)


def with_constants(text: str) -> str:
    """C with each marked constant as a literal."""
    return re.sub(rf'\b{_MARK}\("([^"]*)"\)', r"\1", text)
