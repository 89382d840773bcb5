"""What an operator computes, by the formulas of hwlib_hal.h in whole numbers of any width.

It knows neither TVM nor byoc_hw: only the samples, and the fixed point of a ratio from its definition.
"""

from __future__ import annotations

import math

import numpy as np
from relay_samples import Add, Conv, Dense, Mul, Pool, Product, Sample, Subtract


def fixed_point(scale: float) -> tuple[int, int, int]:
    """multiplier, left, right of hwlib_scale_t: the nearest significand of 31 bits."""
    significand, exponent = math.frexp(scale)
    multiplier = math.floor(significand * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    return multiplier, max(exponent, 0), 31 + max(-exponent, 0)


def wrapped(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def rescaled(value: int, scale: float) -> int | None:
    """None where TVM's own shift is undefined, and beyond 32 bits, where an array never gets, and TVM does not wrap."""
    multiplier, left, right = fixed_point(scale)
    if left > 31 or right > 62:
        return None
    if multiplier == 2**30 and right > 31 and value + 2 ** (right - 31) >= 2**31:
        return None  # TVM, on the host, adds the half to a power of two in 32 bits
    result = (value * 2**left * multiplier + 2 ** (right - 1)) >> right
    return result if abs(result) < 2**31 else None


def expected(sample: Sample, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The int8 output, and where it is defined."""
    nchw = getattr(sample, "layout", "NHWC") == "NCHW"
    wide = [array.astype(np.int64) for array in inputs]
    if nchw:
        wide = [array.transpose(0, 2, 3, 1) for array in wide]
    exact, offset = _exact(sample, *wide)
    low, high = sample.clip or (-128, 127)
    values = [0 if value is None else min(max(value + offset, -128), 127) for value in exact.ravel().tolist()]
    result = np.clip(np.array(values, np.int64), low, high).astype(np.int8).reshape(exact.shape)
    defined = np.array([value is not None for value in exact.ravel().tolist()]).reshape(exact.shape)
    return (result.transpose(0, 3, 1, 2), defined.transpose(0, 3, 1, 2)) if nchw else (result, defined)


def _exact(sample: Sample, *inputs: np.ndarray) -> tuple[np.ndarray, int]:
    """The output before its zero point, which is added to it, and before it is limited."""
    if isinstance(sample, Conv | Dense):
        sums, scales = weighted(sample, *inputs)
        rows = sums.reshape(-1, len(scales)).tolist()
        found = [
            [rescaled(wrapped(value, 32), scale) for value, scale in zip(row, scales, strict=True)] for row in rows
        ]
        return np.array(found, object).reshape(sums.shape), sample.ofm_zero_point
    if isinstance(sample, Add | Subtract):
        sides = zip(inputs, (sample.lhs, sample.rhs), strict=True)
        one, other = (rescaled_all(ifm - side.zero_point, side.scale, sample.out.scale) for ifm, side in sides)
        return both(one, other, -1 if isinstance(sample, Subtract) else 1), sample.out.zero_point
    if isinstance(sample, Mul):
        product = (inputs[0] - sample.lhs.zero_point) * (inputs[1] - sample.rhs.zero_point)
        scale = np.float32(sample.lhs.scale) * np.float32(sample.rhs.scale)
        return rescaled_all(product, scale, sample.out.scale), sample.out.zero_point
    if isinstance(sample, Product):
        one, other = inputs[0] - sample.ifm.zero_point, inputs[1] - sample.ifm2.zero_point
        scale = np.float32(sample.ifm.scale * sample.ifm2.scale)
        return rescaled_all(one @ other.swapaxes(-1, -2), scale, sample.ofm.scale), sample.ofm.zero_point
    assert isinstance(sample, Pool), sample
    return pooled(sample, *inputs)


def rescaled_all(values: np.ndarray, scale: float, output: float) -> np.ndarray:
    found = [rescaled(int(value), float(np.float32(scale)) / float(np.float32(output))) for value in values.ravel()]
    return np.array(found, object).reshape(values.shape)


def both(one: np.ndarray, other: np.ndarray, sign: int) -> np.ndarray:
    """The sums or differences, but for those that TVM, on the host, would limit to 32 bits before."""
    one, other = np.broadcast_arrays(one, other)
    pairs = zip(one.ravel(), other.ravel(), strict=True)
    safe = [None if a is None or b is None or max(abs(a), abs(b)) >= 2**29 else a + sign * b for a, b in pairs]
    return np.array(safe, object).reshape(one.shape)


def weighted(sample: Conv | Dense, ifm: np.ndarray) -> tuple[np.ndarray, list[float]]:
    scale = np.float32(sample.ifm_scale if isinstance(sample, Conv) else 0.05)
    centred = sample.weights.astype(np.int64) - sample.weight_zero_point
    ifm = ifm - sample.ifm_zero_point
    if isinstance(sample, Dense):
        sums = ifm @ centred.T
    else:
        top, left, bottom, right = sample.padding
        padded = np.pad(ifm[0], ((top, bottom), (left, right), (0, 0)))
        views = np.lib.stride_tricks.sliding_window_view(padded, sample.kernel, axis=(0, 1))
        views = views[:: sample.strides[0], :: sample.strides[1]]
        product = "hwcyx,cyx->hwc" if sample.depthwise else "hwcyx,kyxc->hwk"
        sums = np.einsum(product, views, centred[..., 0] if sample.depthwise else centred)[np.newaxis]
    if sample.bias:
        sums = sums + sample.bias_values
    scales = [float(scale * np.float32(one)) / float(np.float32(sample.ofm_scale)) for one in sample.scales]
    return sums, scales * (sums.shape[-1] // len(scales))


def pooled(sample: Pool, ifm: np.ndarray) -> tuple[np.ndarray, int]:
    if sample.operator == "mean":
        sums = ifm.sum(axis=(1, 2), keepdims=sample.keepdims)
        count = ifm.shape[1] * ifm.shape[2]
        average = np.sign(sums) * (np.abs(sums) // count)
        return rescaled_all(average - sample.ifm.zero_point, sample.ifm.scale, sample.ofm.scale), sample.ofm.zero_point
    largest = sample.operator == "nn.max_pool2d"
    top, left, bottom, right = sample.padding
    borders = ((top, bottom), (left, right), (0, 0))

    def windows(values: np.ndarray, outside: int) -> np.ndarray:
        padded = np.pad(values, borders, constant_values=outside)
        views = np.lib.stride_tricks.sliding_window_view(padded, sample.kernel, axis=(0, 1))
        return views[:: sample.strides[0], :: sample.strides[1]]

    if largest:
        return windows(ifm[0], -128).max((-2, -1))[np.newaxis].astype(object), 0
    sums = windows(ifm[0], 0).sum((-2, -1))
    inside = windows(np.ones_like(ifm[0]), 1 if sample.count_include_pad else 0).sum((-2, -1))
    return (np.sign(sums) * (np.abs(sums) // np.maximum(inside, 1)))[np.newaxis].astype(object), 0
