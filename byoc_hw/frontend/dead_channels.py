"""Channels whose requantize scale is so small that the result is always 0.

TVM's code shifts such a channel right by 63 bits or more, which is undefined behaviour in C. With zero
weights, a zero bias and a representable scale, every compiler gives the same 0.
"""

from __future__ import annotations

import math

import numpy as np

_UNDEFINED_SHIFT = 63

HARMLESS_RATIO = 2.0**-20
"""Of the output scale: the scale that the sums of such a channel get."""


def total_shift(input_scale: float, output_scale: float) -> int:
    """Right shift, in bits, of TVM's fixed-point multiplication for a ratio of scales; that of 1 where it is none."""
    if not output_scale:
        return 31
    _, exponent = math.frexp(float(np.float32(input_scale)) / float(np.float32(output_scale)))
    return 31 - min(exponent, 0)


def is_dead(input_scale: float, output_scale: float) -> bool:
    """Whether the shift of a channel is undefined."""
    return total_shift(input_scale, output_scale) >= _UNDEFINED_SHIFT
