"""Float operators in numpy, for several samples at once. Activations are NHWC, weights OHWI."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from byoc_hw.tensor import Array, Padding, Pair

_CHUNK = 1 << 22
"""Elements of the input windows that are copied at a time."""


def conv2d(ifm: Array, weights: Array, strides: Pair, padding: Padding, dilation: Pair, groups: int) -> Array:
    """A convolution, without bias."""
    channels, height, width, depth = weights.shape
    padded = with_border(ifm, padding)
    rows, columns = _extents(padded.shape[1:3], (height, width), strides, dilation)
    if depth == 1 and groups == ifm.shape[3]:
        return _depthwise(padded, weights, (rows, columns), strides, dilation)
    ofm = np.empty((len(ifm), rows, columns, channels), np.float32)
    for group in range(groups):
        outputs = slice(group * channels // groups, (group + 1) * channels // groups)
        filters = np.ascontiguousarray(weights[outputs].reshape(channels // groups, -1).T)
        inputs = padded[..., group * depth : (group + 1) * depth]
        step = max(1, _CHUNK // (rows * columns * len(filters)))
        for first in range(0, len(ifm), step):
            taps = list(_taps(inputs[first : first + step], (height, width), (rows, columns), strides, dilation))
            windows = taps[0] if len(taps) == 1 else np.stack(taps, axis=3)
            flat = windows.reshape(-1, len(filters))
            ofm[first : first + step, ..., outputs] = (flat @ filters).reshape(*windows.shape[:3], -1)
    return ofm


def _depthwise(padded: Array, weights: Array, extents: Pair, strides: Pair, dilation: Pair) -> Array:
    channels, height, width, _ = weights.shape
    multiplier = channels // padded.shape[3]
    ofm = np.zeros((len(padded), *extents, padded.shape[3], multiplier), np.float32)
    filters = weights.reshape(padded.shape[3], multiplier, height * width)
    for place, tap in enumerate(_taps(padded, (height, width), extents, strides, dilation)):
        ofm += tap[..., None] * filters[..., place]
    return ofm.reshape(*ofm.shape[:3], channels)


def _taps(padded: Array, kernel: Pair, extents: Pair, strides: Pair, dilation: Pair) -> Iterator[Array]:
    """For each place of the kernel, what it is multiplied with."""
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            top, left = row * dilation[0], column * dilation[1]
            yield padded[
                :,
                top : top + (extents[0] - 1) * strides[0] + 1 : strides[0],
                left : left + (extents[1] - 1) * strides[1] + 1 : strides[1],
            ]


def windows_at(
    ifm: Array, places: tuple[Array, Array, Array], kernel: Pair, strides: Pair, padding: Padding, dilation: Pair
) -> Array:
    """The windows of some outputs, given by sample, row and column: (outputs, height * width, channels)."""
    padded = with_border(ifm, padding)
    samples, rows, columns = places
    down = rows[:, None] * strides[0] + np.repeat(np.arange(kernel[0]) * dilation[0], kernel[1])
    across = columns[:, None] * strides[1] + np.tile(np.arange(kernel[1]) * dilation[1], kernel[0])
    return np.asarray(padded[samples[:, None], down, across])


def with_border(ifm: Array, padding: Padding, fill: float = 0.0) -> Array:
    """An input with its padding as elements."""
    top, left, bottom, right = padding
    if not any(padding):
        return ifm
    return np.pad(ifm, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)


def _extents(ifm: tuple[int, ...], kernel: Pair, strides: Pair, dilation: Pair) -> Pair:
    rows, columns = (
        (extent - (size - 1) * step - 1) // stride + 1
        for extent, size, step, stride in zip(ifm, kernel, dilation, strides, strict=True)
    )
    return rows, columns


def pooled(ifm: Array, mode: str, kernel: Pair, strides: Pair, padding: Padding, extents: Pair, ones: bool) -> Array:
    """A maximum or an average over windows; with `ones` an average counts padding too."""
    fill = -np.inf if mode == "max" else 0.0
    bottom, right = (
        (extent - 1) * stride + size for extent, stride, size in zip(extents, strides, kernel, strict=True)
    )
    top, left = padding[:2]
    around = (top, left, max(bottom - top - ifm.shape[1], 0), max(right - left - ifm.shape[2], 0))
    taps = np.stack(list(_taps(with_border(ifm, around, fill), kernel, extents, strides, (1, 1))))
    if mode == "max":
        return np.asarray(taps.max(axis=0))
    if ones:
        return np.asarray(taps.mean(axis=0))
    inside = with_border(np.ones((1, *ifm.shape[1:3], 1), np.float32), around)
    return np.asarray(taps.sum(axis=0) / np.stack(list(_taps(inside, kernel, extents, strides, (1, 1)))).sum(axis=0))


def softmax(ifm: Array, axis: int) -> Array:
    """The exponentials of each element, as shares of their sum along an axis."""
    powers = np.exp(ifm - ifm.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))
