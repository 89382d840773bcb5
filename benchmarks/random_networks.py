"""Random networks of the forms and sizes of real ones, for which no model is needed."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from math import prod

from tables import ROOT

from byoc_hw.graph import Graph, Layer
from byoc_hw.tensor import Tensor

sys.path.append(str(ROOT / "tests" / "plan"))
from plan_samples import Samples, graph_of

SIZES = (24, 32, 40, 48, 64, 80, 96)
MOST_CHANNELS = 256


def random_networks(count: int) -> Iterator[Graph]:
    """Networks of 4 to 25 layers for images of 24 x 24 to 96 x 96: residual blocks, inverted residual blocks, depthwise
    and pointwise convolutions, or convolutions and pooling."""
    for seed in range(count):
        yield _Network(seed).graph()


class _Network:
    def __init__(self, seed: int) -> None:
        self._drawn, self._samples = random.Random(seed), Samples(seed)
        self._layers: list[Layer] = []

    def graph(self) -> Graph:
        drawn, size = self._drawn, self._drawn.choice(SIZES)
        image = self._samples.tensor((1, size, size, drawn.choice((1, 3))))
        value = self._conv(image, drawn.choice((8, 16, 24, 32)), stride=drawn.choice((1, 2)))
        block = drawn.choice((self._residual, self._inverted, self._separable, self._plain))
        for _ in range(drawn.randint(2, 5)):
            stride = 2 if value.shape[1] >= 8 and drawn.random() < 0.5 else 1
            value = block(value, min(value.shape[3] * stride, MOST_CHANNELS), stride)
        if drawn.random() < 0.7:
            value = self._classified(value)
        return graph_of([image], self._layers, [value])

    def _add(self, layer: Layer) -> Tensor:
        self._layers.append(layer)
        return layer.ofm

    def _conv(self, ifm: Tensor, channels: int, kernel: int = 3, stride: int = 1) -> Tensor:
        padding = (kernel // 2,) * 4
        return self._add(self._samples.conv2d(ifm, channels, (kernel, kernel), (stride, stride), padding))

    def _depthwise(self, ifm: Tensor, kernel: int, stride: int) -> Tensor:
        padding = (kernel // 2,) * 4
        return self._add(self._samples.depthwise(ifm, (kernel, kernel), (stride, stride), padding))

    def _residual(self, ifm: Tensor, channels: int, stride: int) -> Tensor:
        inside = self._conv(self._conv(ifm, channels, stride=stride), channels)
        same = inside.shape == ifm.shape
        return self._add(self._samples.add(inside, ifm if same else self._conv(ifm, channels, 1, stride)))

    def _inverted(self, ifm: Tensor, channels: int, stride: int) -> Tensor:
        wide = self._conv(ifm, ifm.shape[3] * self._drawn.choice((3, 4, 6)), 1)
        narrow = self._conv(self._depthwise(wide, self._drawn.choice((3, 3, 5)), stride), channels, 1)
        return self._add(self._samples.add(narrow, ifm)) if narrow.shape == ifm.shape else narrow

    def _separable(self, ifm: Tensor, channels: int, stride: int) -> Tensor:
        return self._conv(self._depthwise(ifm, 3, stride), channels, 1)

    def _plain(self, ifm: Tensor, channels: int, stride: int) -> Tensor:
        made = self._conv(ifm, channels)
        return made if stride == 1 else self._add(self._samples.pool(made, "max", (2, 2), (2, 2)))

    def _classified(self, ifm: Tensor) -> Tensor:
        """Global average pooling, and a dense layer."""
        pooled = self._add(self._samples.pool(ifm, kernel=ifm.shape[1:3]))
        flat = self._add(self._samples.reshape(pooled, (1, prod(pooled.shape))))
        return self._add(self._samples.dense(flat, self._drawn.choice((2, 10, 100))))
