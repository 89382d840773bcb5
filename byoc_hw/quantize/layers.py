"""A network quantized value by value: each layer reads what the layers before it, quantized, compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from byoc_hw.quantize.grids import Grid, Ranges, grid_of, on_grid
from byoc_hw.quantize.network import Network, Product
from byoc_hw.quantize.rounding import least_squares, nearest, rounded
from byoc_hw.tensor import Array

_MOST = 1 << 22
"""Elements of the rows that one layer's weights are fitted to."""

_LEAST_ROWS = 64


@dataclass(frozen=True, eq=False)
class QuantizedProduct:
    """The integers of a layer's weights in its own layout, the scale of each output, and its bias as real numbers.

    `product` computes with them; `error` is the mean squared error of the results as a share of their mean square.
    """

    bits: int
    levels: Array
    scales: Array
    bias: Array
    product: Product
    error: float


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """The grids of stored values and the integers of weights, by the number of the value; and the outputs found."""

    grids: Mapping[int, Grid]
    products: Mapping[int, QuantizedProduct]
    outputs: tuple[Array, ...]


@dataclass(frozen=True)
class Settings:
    """How to quantize: `compensate` or round to the nearest, how ranges of activations are found, and the seed."""

    compensate: bool = True
    ranges: Ranges = "mse"
    seed: int = 0


def quantized(
    network: Network,
    samples: Mapping[int, Array],
    bits: Mapping[int, int],
    settings: Settings,
    grids: Mapping[int, Grid],
    done: Callable[[], None] = lambda: None,
) -> QuantizedNetwork:
    """Quantize a network for samples of its inputs. `bits` are those of each product, `grids` grids that are given.

    `done` is called after each product.
    """
    real: dict[int, Array] = {}
    held: dict[int, Array] = {}
    found: dict[int, Grid] = {}
    products: dict[int, QuantizedProduct] = {}
    gone = network.last_readers()
    for number, value in enumerate(network.values):
        if value.role == "input":
            real[number] = held[number] = samples[number]
        else:
            real[number] = value.computed([real[operand] for operand in value.inputs])
            operands = [held[operand] for operand in value.inputs]
            product = None
            if value.product is not None:
                chance = np.random.default_rng((settings.seed, number))
                products[number] = _fitted(value.product, operands[0], real[number], bits[number], settings, chance)
                product = products[number].product
                done()
            held[number] = value.computed(operands, product)
        if network.stored[number]:
            found[number] = grids.get(number) or value.grid or grid_of(held[number], settings.ranges)
            held[number] = on_grid(held[number], found[number])
        for old in gone[number]:
            del real[old], held[old]
    return QuantizedNetwork(found, products, tuple(held[number] for number in network.outputs))


def _fitted(
    product: Product, ifm: Array, ofm: Array, bits: int, settings: Settings, chance: np.random.Generator
) -> QuantizedProduct:
    weights = product.matrix()
    groups, outputs, inputs = weights.shape
    most = max(_LEAST_ROWS, _MOST // (groups * max(inputs, outputs)))
    rows, targets = product.rows(ifm, ofm, most, chance)
    if settings.compensate:
        form = least_squares(weights, rows, targets)
        levels, scales = rounded(form, bits, product.shared_scales)
        scales = scales.astype(np.float32)
        # The mean of the results is the model's.
        means = np.einsum("gok,gk->go", levels * scales[..., None], form.input_means)
        bias = (form.target_means - means).astype(np.float32)
    else:
        levels, scales = nearest(weights, bits, product.shared_scales)
        bias = product.bias.reshape(groups, outputs)
    made = product.with_matrix(levels * scales[..., None], bias.reshape(-1))
    results = rows @ made.matrix().transpose(0, 2, 1) + bias[:, None]
    spread = float(np.square(targets, dtype=np.float64).mean()) or 1.0
    error = float(np.square(results - targets, dtype=np.float64).mean()) / spread
    integers = product.with_matrix(levels, bias.reshape(-1)).weights.astype(np.int8)
    return QuantizedProduct(bits, integers, scales.reshape(-1), bias.reshape(-1), made, error)
