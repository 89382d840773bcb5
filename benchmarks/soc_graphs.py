"""Regions for `soc.py` that no model is needed for: a long chain of large layers, and small graphs with branches."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from tables import ROOT

from byoc_hw.graph import Graph, Layer
from byoc_hw.tensor import Tensor

sys.path[:0] = [str(ROOT / "tests" / name) for name in (".", "plan", "plan/lanes")]
from exhaustive import Exhaustive  # noqa: E402
from plan_samples import Samples, graph_of  # noqa: E402

__all__ = ["Exhaustive", "long_chain", "small_graphs"]


def long_chain(length: int) -> Graph:
    """Blocks of three convolutions, the middle one by channel, with an addition where the shape stays."""
    samples, drawn = Samples(1), random.Random(5)
    image = value = samples.tensor((1, 56, 56, 16))
    layers: list[Layer] = []
    while len(layers) < length:
        channels, height = value.shape[3], value.shape[1]
        wider = drawn.choice([channels, channels, channels, min(channels * 2, 256)])
        layers.append(samples.conv2d(value, wider, (1, 1)))
        stride = 2 if height > 7 and drawn.random() < 0.05 else 1
        layers.append(samples.depthwise(layers[-1].ofm, (3, 3), strides=(stride, stride), padding=(1, 1, 1, 1)))
        layers.append(samples.conv2d(layers[-1].ofm, wider, (1, 1)))
        if layers[-1].ofm.shape == value.shape:
            layers.append(samples.add(layers[-1].ofm, value))
        value = layers[-1].ofm
    return graph_of([image], layers, [value])


def small_graphs(count: int, most: int = 8) -> Iterator[Graph]:
    """Random graphs of up to `most` layers: each reads what any layer before has made, or the image."""
    for seed in range(count):
        samples, drawn = Samples(seed), random.Random(seed)
        size = drawn.choice((4, 6, 8, 12))
        image = samples.tensor((1, size, size, drawn.choice((4, 8, 16))))
        layers: list[Layer] = []
        for _ in range(drawn.randint(2, most)):
            made = [image, *(layer.ofm for layer in layers)]
            layers.append(_layer(samples, drawn, made))
        read = {tensor for layer in layers for tensor in layer.inputs}
        yield graph_of([image], layers, [layer.ofm for layer in layers if layer.ofm not in read])


def _layer(samples: Samples, drawn: random.Random, made: list[Tensor]) -> Layer:
    """A layer that reads one of the last three tensors, or adds it to another one."""
    value = drawn.choice(made[-3:])
    others = [one for one in made if one.shape == value.shape and one is not value]
    kind = drawn.choice(("pointwise", "conv2d", "depthwise", "depthwise", "pool", "add", "add"))
    if kind == "add" and others:
        return samples.add(value, drawn.choice(others))
    if kind == "pool" and value.shape[1] > 3:
        return samples.pool(value, "max", (2, 2))
    if kind == "depthwise":
        return samples.depthwise(value, (3, 3), padding=(1, 1, 1, 1))
    if kind == "conv2d":
        return samples.conv2d(value, drawn.choice((8, 16)), (3, 3), padding=(1, 1, 1, 1))
    return samples.conv2d(value, drawn.choice((8, 16, 32)), (1, 1))
