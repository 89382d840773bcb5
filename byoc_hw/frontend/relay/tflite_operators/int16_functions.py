"""Logistic function and tanh of int16 as TFLite's kernels compute them, as tables in Relay.

Inputs are fixed point of some integer bits, outputs have none. A table has the outputs of 0 to 32768; those of negative
inputs follow from them. It takes 64 KiB.
"""

from __future__ import annotations

import numpy as np
from tvm import relay

from byoc_hw.tensor import Array

_ONE = 32767
"""1 without integer bits: the largest there is."""

_EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1) and so on up to exp(-16), in 31 bits."""


class Int16Functions:
    """The functions, with one table for all their uses in an operator."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], relay.Expr] = {}

    def logistic(self, x: relay.Expr, integer_bits: int) -> relay.Expr:
        """1 / (1 + exp(-x)), int32, of int32 values that fit int16."""
        positive = self._looked_up("logistic", x, integer_bits)
        return relay.where(_is_negative(x), _int32(_ONE) - positive, positive)

    def tanh(self, x: relay.Expr, integer_bits: int) -> relay.Expr:
        """tanh(x), int32, of int32 values that fit int16."""
        positive = self._looked_up("tanh", x, integer_bits)
        return relay.where(_is_negative(x), relay.negative(positive), positive)

    def _looked_up(self, name: str, x: relay.Expr, integer_bits: int) -> relay.Expr:
        key = name, integer_bits
        if key not in self._tables:
            values = {"logistic": logistic_values, "tanh": tanh_values}[name](integer_bits)
            self._tables[key] = relay.const(values.astype(np.int16), "int16")
        return relay.cast(relay.take(self._tables[key], relay.abs(x)), "int32")


def _is_negative(x: relay.Expr) -> relay.Expr:
    return relay.less(x, _int32(0))


def _int32(value: int) -> relay.Expr:
    return relay.const(value, "int32")


# ---------------------------------------------------------------- tables


def logistic_values(integer_bits: int) -> Array:
    """1 / (1 + exp(-x)) of x from 0 to 32768 in fixed point."""
    values = _saturated(_inverse(_exponential(_negative_values(), integer_bits)) << 1)
    values[0] = 1 << 14
    return values


def tanh_values(integer_bits: int) -> Array:
    """tanh(x) of x from 0 to 32768 in fixed point: (1 - exp(-2x)) / (1 + exp(-2x))."""
    values = _saturated((_inverse(_exponential(_negative_values(), integer_bits + 1)) - (1 << 13)) << 2)
    values[0] = 0
    return values


def _negative_values() -> Array:
    return -np.arange((1 << 15) + 1, dtype=np.int64)


def _exponential(x: Array, integer_bits: int) -> Array:
    """exp(x) of x from -2**integer_bits to 0: exp of what is left of x / 4, times that of each bit above."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (x & (quarter - 1)) - quarter
    values, above = _last_quarter(_saturated(rest << integer_bits)), rest - x
    for exponent, factor in zip(range(-2, integer_bits), _EXPONENTIALS, strict=False):
        values = np.where(above & (1 << (fraction + exponent)), _product(values, _constant(factor)), values)
    if integer_bits > 5:
        values = np.where(x < -(1 << (20 - integer_bits)), 0, values)
    return np.where(x == 0, _ONE, values)


def _last_quarter(x: Array) -> Array:
    """exp(x) of x from -1/4 to 0: five terms of its series around -1/8."""
    x = x + (1 << 12)
    square = _product(x, x)
    fourth = _halved(_product(square, square), 2)
    higher = _halved(_product(fourth + _product(square, x), _constant(715827883)) + square, 1)
    at_eighth = _constant(1895147668)
    return _saturated(at_eighth + _product(at_eighth, x + higher))


def _inverse(x: Array) -> Array:
    """2 / (1 + x) of x from 0 to 1, with 2 integer bits: three of Newton's steps."""
    half = (x + _ONE + 1) >> 1
    values = _constant(1515870810) + _product(half, _constant(-1010580540))
    for _ in range(3):
        values = values + _saturated(_product(values, (1 << 13) - _product(half, values)) << 2)
    return values


def _product(one: Array | int, other: Array | int) -> Array:
    return (np.asarray(one, np.int64) * other + (1 << 14)) >> 15


def _halved(x: Array, times: int) -> Array:
    """A shift to the right, with halves away from zero."""
    return (x + (1 << (times - 1)) - (x < 0)) >> times


def _saturated(x: Array) -> Array:
    return np.clip(x, -_ONE - 1, _ONE)


def _constant(value: int) -> int:
    """A constant of 31 bits in 15."""
    return int(_halved(np.asarray(value), 16))
