"""hwlib_scale_t: the scales and zero points of a layer's quantization, and what they do to values.

Written from hwlib_hal.h and from what TVM and TFLite compute, not from the compiler, whose numbers plan_check.py
compares with these. A scale is a tuple: multiplier, left, right.
"""

from fractions import Fraction

import numpy as np


def zero_point(tensor):
    """The one of a whole tensor."""
    (found,) = set(tensor.quantization.zero_point)
    return found


def scale_of(tensor):
    """As a model stores it: in float32. Quotients of two are in double precision."""
    return float(np.float32(tensor.quantization.scale[0]))


def fixed_point(ratio):
    """Multiplier, left and right of a ratio: its first 31 bits, rounded, and a power of two; nothing of one for which
    right would be more than 62, the most that the header has."""
    exponent = 0
    while Fraction(ratio) >= Fraction(2) ** exponent:
        exponent += 1
    while Fraction(ratio) < Fraction(2) ** (exponent - 1):
        exponent -= 1
    multiplier = int(Fraction(ratio) * Fraction(2) ** (31 - exponent) + Fraction(1, 2))
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    right = 31 + max(-exponent, 0)
    return (multiplier, max(exponent, 0), right) if right <= 62 else (0, 0, 31)


def add_scales(layer):
    """Of the two inputs and of their sum. Upward, the sum is the output's already: its scale is 1."""
    first, second, output = (scale_of(tensor) for tensor in (*layer.inputs, layer.ofm))
    if layer.rounding == "upward":
        return fixed_point(first / output), fixed_point(second / output), fixed_point(1.0)
    common = 2 * max(first, second)  # and 20 bits finer
    (one, _, right), (other, _, right2) = fixed_point(first / common), fixed_point(second / common)
    return (one, 20, right), (other, 20, right2), fixed_point(common / (2**20 * output))


def mul_scale(layer):
    """Of the product of two inputs' steps, which TVM and TFLite form in float32."""
    first, second, output = (np.float32(tensor.quantization.scale[0]) for tensor in (*layer.inputs, layer.ofm))
    product = first * second
    return fixed_point(float(product) / float(output) if layer.rounding == "upward" else float(product / output))


def matmul_scale(layer):
    """Of a sum of products: TVM's requantize states it, TFLite multiplies the two scales in float32."""
    if layer.rounding == "upward":
        return fixed_point(float(np.float32(layer.accumulator.scale[0])) / scale_of(layer.ofm))
    first, second = (np.float32(scale_of(tensor)) for tensor in layer.inputs)
    return fixed_point(float(first * second) / scale_of(layer.ofm))


def pool_scale(layer):
    """The scale of an average or sum, the zero points before and after it, and what is added to a sum, or None."""
    if not layer.rescaled:
        return fixed_point(1.0), 0, 0, None
    before, after = zero_point(layer.ifm), zero_point(layer.ofm)
    scale = fixed_point(scale_of(layer.ifm) / scale_of(layer.ofm))
    if layer.mode == "sum":
        return scale, before, after, -before
    if layer.rounding == "upward":
        return scale, before, after, None
    # TFLite's mean: the multiplier, shifted by the whole bits of the count, is divided by the count.
    count, bits = layer.kernel[0] * layer.kernel[1], 0
    while 2 ** (bits + 1) <= count:
        bits += 1
    exponent = scale[1] - (scale[2] - 31) - bits
    return (scale[0] * 2**bits // count, max(exponent, 0), 31 + max(-exponent, 0)), before, after, -before * count


def upward(values, scale):
    """HWLIB_ROUND_UPWARD, in integers of any width."""
    multiplier, left, right = (np.asarray(part, object) for part in scale)
    product = (values.astype(object) << left) * multiplier
    return ((product + (1 << (right - 1))) >> right).astype(np.int64)


def twice(values, scale):
    """HWLIB_ROUND_TFLITE."""
    multiplier, left, right = scale
    high = ((values << left).astype(np.int32).astype(np.int64) * multiplier + 2**30) >> 31
    half = 2 ** (right - 31) // 2
    return np.sign(high) * ((np.abs(high) + half) >> (right - 31))
