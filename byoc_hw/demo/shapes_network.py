"""The shapes detector as a float network in numpy: its layers, its anchors, and the gradients that train it.

Pictures come in as (N, 48, 48, 1), real values 0 to 1. A backbone of strided convolutions gives 12x12 pixels for small
shapes and 6x6 for large ones; the neck enlarges the latter and joins them with the former. Each pixel has one anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from byoc_hw.demo.shapes import KINDS, SIDE
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class FloatLayer:
    """One operator: "conv", "depthwise" (3x3), "nearest" (twice the size) or "concat" (of channels)."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    filters: int = 0
    kernel: int = 1
    stride: int = 1
    relu: bool = True


def _conv(name: str, source: str, filters: int, kernel: int = 1, stride: int = 1, relu: bool = True) -> FloatLayer:
    return FloatLayer("conv", name, (source,), filters, kernel, stride, relu)


def _depthwise(name: str, source: str, stride: int = 1) -> FloatLayer:
    return FloatLayer("depthwise", name, (source,), kernel=3, stride=stride)


NETWORK = (
    _conv("stem", "picture", 12, kernel=3, stride=2),  # 24x24
    _depthwise("spread_1", "stem"),
    _conv("mix_1", "spread_1", 16),
    _depthwise("spread_2", "mix_1", stride=2),  # 12x12
    _conv("mix_2", "spread_2", 32),
    _depthwise("spread_3", "mix_2"),
    _conv("mix_3", "spread_3", 40),
    _depthwise("spread_4", "mix_3", stride=2),  # 6x6
    _conv("mix_4", "spread_4", 56),
    _depthwise("spread_5", "mix_4"),
    _conv("coarse", "spread_5", 64),
    _conv("lateral", "coarse", 24),
    FloatLayer("nearest", "enlarged", ("lateral",)),  # 12x12
    FloatLayer("concat", "joined", ("mix_3", "enlarged")),
    _depthwise("spread_6", "joined"),
    _conv("fine", "spread_6", 56),
    _conv("fine_scores", "fine", len(KINDS), relu=False),
    _conv("coarse_scores", "coarse", len(KINDS), relu=False),
    _conv("fine_boxes", "fine", 4, relu=False),
    _conv("coarse_boxes", "coarse", 4, relu=False),
)
HEADS = {"scores": ("fine_scores", "coarse_scores"), "boxes": ("fine_boxes", "coarse_boxes")}
"""What stands one behind the other in each output."""

VARIANCES = 0.1, 0.1, 0.2, 0.2
"""Real values of a box output are offsets from the anchor's middle in its sizes, and logarithms, divided by these."""

ANCHORS = ((12, 13), (6, 22))
"""For fine and coarse: pixels across, and the side of an anchor in pixels of the picture."""


def anchor_corners() -> Array:
    """Left, top, right and bottom of the anchors, 0 to 1: (180, 4) float32, row by row, fine and then coarse."""
    levels = []
    for across, side in ANCHORS:
        middles = (np.arange(across) + 0.5) / across
        y, x = (each.ravel() for each in np.meshgrid(middles, middles, indexing="ij"))
        half = side / SIDE / 2
        levels.append(np.stack([x - half, y - half, x + half, y + half], axis=1))
    return np.asarray(np.concatenate(levels), np.float32)


Parameters = dict[str, tuple[Array, Array]]
"""Weights and biases by the step's name: (inputs, outputs) of a 1x1 convolution, else (taps, inputs, outputs)."""


def untrained(seed: int) -> Parameters:
    """Random weights; scores begin low, as most anchors see nothing."""
    rng, depth, made = np.random.default_rng(seed), {"picture": 1}, Parameters()
    for step in NETWORK:
        inputs = sum(depth[name] for name in step.inputs)
        depth[step.name] = step.filters or inputs
        if step.kind not in ("conv", "depthwise"):
            continue
        taps = step.kernel**2
        fan_in = taps * (inputs if step.kind == "conv" else 1)
        shape = (taps * inputs, step.filters) if step.kind == "conv" else (taps, inputs)
        weights = rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)
        bias = np.full(depth[step.name], -3.0 if "scores" in step.name else 0.0, np.float32)
        made[step.name] = (weights, bias)
    return made


# ---------------------------------------------------------------- forward and backward


def forward(parameters: Mapping[str, tuple[Array, Array]], pictures: Array) -> dict[str, Array]:
    """The value of every step by its name, after its ReLU."""
    values = {"picture": pictures}
    for step in NETWORK:
        inputs = [values[name] for name in step.inputs]
        if step.kind == "nearest":
            value = inputs[0].repeat(2, axis=1).repeat(2, axis=2)
        elif step.kind == "concat":
            value = np.concatenate(inputs, axis=3)
        else:
            weights, bias = parameters[step.name]
            value = _product(step, inputs[0], weights) + bias
        values[step.name] = np.maximum(value, 0) if step.relu else value
    return values


def backward(
    parameters: Mapping[str, tuple[Array, Array]], values: Mapping[str, Array], of_heads: Mapping[str, Array]
) -> Parameters:
    """The gradients of the parameters, from those of the heads' values."""
    gradients, found = dict(of_heads), Parameters()
    for step in reversed(NETWORK):
        gradient = gradients.pop(step.name)
        gradient = gradient * (values[step.name] > 0) if step.relu else gradient
        if step.kind == "nearest":
            n, height, width, depth = values[step.inputs[0]].shape
            passed = [gradient.reshape(n, height, 2, width, 2, depth).sum(axis=(2, 4))]
        elif step.kind == "concat":
            passed = np.split(gradient, [values[step.inputs[0]].shape[3]], axis=3)
        else:
            of_weights, of_input = _product_gradients(step, values[step.inputs[0]], parameters[step.name][0], gradient)
            found[step.name] = (of_weights, gradient.sum(axis=(0, 1, 2)))
            passed = [of_input]
        for name, each in zip(step.inputs, passed, strict=True):
            gradients[name] = gradients[name] + each if name in gradients else each
    return found


def _product(step: FloatLayer, ifm: Array, weights: Array) -> Array:
    taps = _taps(step, ifm)
    if step.kind == "conv":
        return np.asarray(np.concatenate(taps, axis=3) @ weights)
    value: Array = taps[0] * weights[0]
    for tap, filter_ in zip(taps[1:], weights[1:], strict=True):
        value += tap * filter_
    return value


def _product_gradients(step: FloatLayer, ifm: Array, weights: Array, gradient: Array) -> tuple[Array, Array]:
    taps = _taps(step, ifm)
    if step.kind == "conv":
        columns = np.concatenate(taps, axis=3)
        of_weights = columns.reshape(-1, columns.shape[3]).T @ gradient.reshape(-1, gradient.shape[3])
        of_taps = np.split(gradient @ weights.T, len(taps), axis=3)
    else:
        of_weights = np.stack([np.einsum("nhwc,nhwc->c", tap, gradient) for tap in taps])
        of_taps = [gradient * filter_ for filter_ in weights]
    if step.kernel == 1:
        return of_weights, of_taps[0]
    padded = np.zeros((len(ifm), *(extent + 2 for extent in ifm.shape[1:3]), ifm.shape[3]), gradient.dtype)
    for view, each in zip(_views(step, padded, ifm.shape), of_taps, strict=True):
        view += each
    before = _before(step)
    return of_weights, padded[:, before : before + ifm.shape[1], before : before + ifm.shape[2]]


def _before(step: FloatLayer) -> int:
    """Rows and columns of padding before the input, as TFLite's "same" has them for even extents."""
    return 0 if step.stride == 2 else 1


def _taps(step: FloatLayer, ifm: Array) -> list[Array]:
    """What each weight of a window sees."""
    if step.kernel == 1:
        return [ifm]
    before = _before(step)
    padded = np.pad(ifm, ((0, 0), (before, 2 - before), (before, 2 - before), (0, 0)))
    return _views(step, padded, ifm.shape)


def _views(step: FloatLayer, padded: Array, shape: tuple[int, ...]) -> list[Array]:
    _, height, width, _ = shape
    every = step.stride
    return [padded[:, y : y + height : every, x : x + width : every] for y in range(3) for x in range(3)]
