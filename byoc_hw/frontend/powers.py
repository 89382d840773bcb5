"""What LLVM makes of a power with a constant base or exponent, also without fast mathematics."""

from __future__ import annotations

import math
from typing import Any


def power(tir: Any, dtype: str, base: Any, exponent: Any) -> Any | None:
    """The expression in place of a power, in the low-level language that `tir` is the module of; None for another
    power."""
    if isinstance(exponent, tir.FloatImm):
        value = float(exponent.value)
        if value == 2:
            return base * base
        if value == -1:
            return tir.const(1.0, dtype) / base
        if value == 0.5:
            infinity = tir.const(math.inf, dtype)
            return tir.Select(base == -infinity, infinity, tir.abs(tir.sqrt(base)))
    if isinstance(base, tir.FloatImm) and float(base.value) > 0:
        significand, exponent_of_base = math.frexp(float(base.value))
        if significand == 0.5 and exponent_of_base != 1:  # 2^n; not 1
            return tir.exp2(tir.const(float(exponent_of_base - 1), dtype) * exponent)
    return None
