"""What each layer loses with weights of fewer bits, without labels: how far the float network's outputs move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from byoc_hw.quantization.layers import QuantizedNetwork, Settings, held_values, quantized_product, values_of
from byoc_hw.quantization.network import Network
from byoc_hw.tensor import Array

_ELEMENTS = 1 << 27
"""Elements of all values of the samples that are looked at."""

_LEAST = 8
_MOST = 128


def decides(network: Network) -> bool:
    """Whether all outputs are shares of classes, of which the largest is the answer."""
    places = [network.grid_at(output) for output in network.outputs]
    return all(place is not None and network.values[place].operator == "nn.softmax" for place in places)


def divergence(network: Network, real: Sequence[Array], found: Sequence[Array]) -> float:
    """How far outputs are from the float network's: the Kullback-Leibler divergence of shares in nats, else the mean
    squared error as a share of the mean square; the mean over samples and outputs."""
    if decides(network):
        return float(np.mean([_relative_entropy(one, other) for one, other in zip(real, found, strict=True)]))
    return float(np.mean([_relative_error(one, other) for one, other in zip(real, found, strict=True)]))


def agreement(network: Network, real: Sequence[Array], found: Sequence[Array]) -> float | None:
    """The share of samples with the same largest class; None for outputs that are no shares of classes."""
    if not decides(network):
        return None
    same = [one.argmax(axis=-1) == other.argmax(axis=-1) for one, other in zip(real, found, strict=True)]
    return float(np.mean(np.concatenate([one.reshape(-1) for one in same])))


_TINY = 1e-6
"""The least share that is told from none."""


def _relative_entropy(real: Array, found: Array) -> float:
    parts = real * (np.log(np.maximum(real, _TINY)) - np.log(np.maximum(found, _TINY)))
    return float(parts.sum(axis=-1).mean())


def _relative_error(real: Array, found: Array) -> float:
    spread = float(np.square(real - real.mean(), dtype=np.float64).mean())
    return float(np.square(real - found, dtype=np.float64).mean()) / (spread or 1.0)


def losses(
    network: Network,
    samples: Mapping[int, Array],
    base: QuantizedNetwork,
    widths: Mapping[int, Sequence[int]],
    settings: Settings,
    done: Callable[[], None] = lambda: None,
) -> dict[tuple[int, int], float]:
    """By product and width: the divergence that the width of this layer alone adds to `base`, which has 8 bits.

    `widths` are those narrower ones that each layer can have.
    """
    few = _few(network, samples)
    # Outputs are compared before they are rounded to int8: steps of 1/256 would hide small losses.
    base = replace(base, grids={number: grid for number, grid in base.grids.items() if number not in network.outputs})
    real = values_of(network, few, None, keep=True)
    held = values_of(network, few, base, keep=True)
    outputs = [real[number] for number in network.outputs]
    floor = divergence(network, outputs, [held[number] for number in network.outputs])
    found: dict[tuple[int, int], float] = {}
    for number in network.products:
        for bits in widths[number]:
            made = quantized_product(network, number, held, real, bits, settings)
            moved = held_values(network, held, base, number, made)
            loss = divergence(network, outputs, [moved[output] for output in network.outputs])
            found[number, bits] = max(loss - floor, 0.0)
            done()
    return found


def _few(network: Network, samples: Mapping[int, Array]) -> dict[int, Array]:
    """As many of the samples as memory holds all values of."""
    elements = sum(int(np.prod(value.shape)) for value in network.values)
    total = len(next(iter(samples.values())))
    count = min(total, max(_LEAST, min(_MOST, _ELEMENTS // max(elements, 1))))
    chosen = np.linspace(0, total - 1, count).round().astype(int)
    return {number: values[chosen] for number, values in samples.items()}
