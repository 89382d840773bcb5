"""TFLite's fixed-point arithmetic in Relay, bit for bit that of its reference kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relay

from byoc_hw.errors import ByocHwError
from byoc_hw.pattern import BrokenRule
from byoc_hw.tensor import Array


class NotImported(ByocHwError):
    """An operator of a file is not one that is imported: the rule, and the value found."""

    def __init__(self, rule: str, found: object) -> None:
        self.broken = BrokenRule(rule, str(found))
        super().__init__(str(self.broken))


def ensure(rule: str, holds: bool, found: object) -> None:
    """Raise `NotImported` unless the rule holds."""
    if not holds:
        raise NotImported(rule, found)


def tensor_scale(tensor: Any) -> np.float32:
    """The one scale of a file's tensor, in TFLite's precision: products of scales are float32 there."""
    scale = tensor.qnn_params["scale"].data.numpy()
    ensure("scales are one for each tensor", scale.size == 1, f"{scale.size}")
    return np.float32(scale)


def tensor_zero_point(tensor: Any) -> int:
    """The one zero point of a file's tensor."""
    return int(tensor.qnn_params["zero_point"].data.numpy())


def multiplier_of(ratio: float) -> tuple[int, int]:
    """A ratio as TFLite's `QuantizeMultiplier` has it: `multiplier / 2**31 * 2**shift`."""
    if ratio == 0:
        return 0, 0
    mantissa, shift = math.frexp(ratio)
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def scaled(total: relay.Expr, ratio: float | Array, largest: int) -> relay.Expr:
    """int32 sums of at most `largest`, times a ratio, as int64: TFLite's `MultiplyByQuantizedMultiplier`.

    `ratio` is one, or one for each index of the last dimension. Rounds twice: halves up at the 31 bits of the
    multiplier, and away from zero at the shift to the right. Raises `NotImported` where a shift to the left may
    overflow TFLite's 32 bits. (Sums may do so in TFLite as here.)
    """
    ratios = np.asarray(ratio, np.float64)
    pairs = np.array([multiplier_of(float(one)) for one in ratios.flat], np.int64)
    multiplier, shift = (column.reshape(ratios.shape) for column in pairs.T)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    most = int(left.max())
    ensure("sums, shifted to the left, fit in 32 bits", not most or largest << most < 2**31, f"{largest} << {most}")
    value = relay.cast(total, "int64") * _int64(multiplier << left)
    value = relay.right_shift(value + _int64(1 << 30), _int64(31))
    if right.any():
        down = relay.right_shift(value, _int64(63))  # -1 for negative values
        if not right.all():
            down = down * _int64(right > 0)
        value = value + _int64((1 << right) >> 1) + down
        value = relay.right_shift(value, _int64(right))
    return value


def narrowed(value: relay.Expr, zero_point: int, dtype: str) -> relay.Expr:
    """int64 values with a zero point, limited to a type."""
    limits = np.iinfo(dtype)
    value = value + _int64(zero_point) if zero_point else value
    return relay.cast(relay.clip(value, int(limits.min), int(limits.max)), dtype)


def _int64(value: int | Array) -> relay.Expr:
    return relay.const(np.asarray(value, np.int64), "int64")
