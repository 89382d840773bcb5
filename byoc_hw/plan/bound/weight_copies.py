"""How many copies bring the weights: two that follow each other lie side by side, or the array works in between.

Let n copies bring all weights, w bytes without parameters, and weight memory have m bytes. No job reads bytes of a
copy before its end. When the next one begins, there is room for it: of the bytes of both, all beyond m are done. So
behind the one and before the other the array has worked on these, a cycle at least for as many bytes as a full group of
outputs has for each of its cycles: r of the layer with the most. In all pairs of copies each byte counts twice, but
once in the first copy and in the last one, of m bytes at most. So while the DMA copies no weights, the array works on
2 w - (n + 1) m bytes or more. With b cycles of other copies, the DMA takes no less than the bytes, n setups, and the
longer one of b and (2 w - (n + 1) m) / r. The best n bounds all plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.plan.bound.ways import channel_bytes, most_weights_read, weight_bytes


@dataclass(frozen=True)
class WeightCopies:
    """The copies of the weights of some layers, without and with the parameters of their channels, in bytes; `rate` are
    the most bytes that a cycle of the array uses."""

    products: float
    nbytes: float
    rate: float
    one: Accelerator

    def __add__(self, other: WeightCopies) -> WeightCopies:
        """Those of both."""
        rate = max(self.rate, other.rate)
        return WeightCopies(self.products + other.products, self.nbytes + other.nbytes, rate, self.one)

    def cycles(self, others: float) -> float:
        """The least cycles of the DMA, with so many of other copies."""
        return self.nbytes / self.one.dma_width + self.setups(others)

    def setups(self, others: float = 0.0, there: int = 0) -> float:
        """The least cycles of their setups, and of other copies or while the array makes room; `there` are bytes of
        them that are in weight memory before."""
        room, products = self.one.weight_memory, self.products - there
        fewest = ceil((self.nbytes - there) / room)
        if fewest <= 0:
            return others
        enough = (2 * products - others * self.rate) / room - 1  # so many that other copies fill the time
        return min(
            many * self.one.dma_setup + max(others, (2 * products - (many + 1) * room) / self.rate)
            for many in (max(fewest, some) for some in (1, floor(enough), ceil(enough)))
        )


def weight_copies(layers: Sequence[Layer], one: Accelerator) -> WeightCopies:
    """The copies of the weights of layers that have tiles."""
    return sum((_of_layer(layer, one) for layer in layers), WeightCopies(0.0, 0.0, 0.0, one))


def copies_behind(layers: Sequence[Layer], one: Accelerator) -> list[WeightCopies]:
    """For each layer the copies of the weights of all layers behind it."""
    of_layers = (_of_layer(layer, one) for layer in reversed(layers[1:]))
    return list(accumulate(of_layers, initial=WeightCopies(0.0, 0.0, 0.0, one)))[::-1]


def _of_layer(layer: Layer, one: Accelerator) -> WeightCopies:
    if not isinstance(layer, Weighted):
        return WeightCopies(0.0, 0.0, 0.0, one)
    rate = most_weights_read(layer, one)
    return WeightCopies(layer.out_channels * channel_bytes(layer), weight_bytes(layer), rate, one)
