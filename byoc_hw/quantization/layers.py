"""A network quantized value by value: each layer reads what the layers before it, quantized, compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from byoc_hw.quantization.grids import Int8Grid, Ranges, grid_of, on_grid, towards_zero
from byoc_hw.quantization.network import FloatProduct, Network
from byoc_hw.quantization.rounding import least_squares, nearest, rounded
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
    product: FloatProduct
    error: float


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """The grids of stored values, and the integers of weights, by the number of the value."""

    grids: Mapping[int, Int8Grid]
    products: Mapping[int, QuantizedProduct]


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
    given: Mapping[int, Int8Grid],
    done: Callable[[], None] = lambda: None,
) -> QuantizedNetwork:
    """Quantize a network for samples of its inputs. `bits` are those of each product, `given` grids that are known.

    `done` is called after each product.
    """
    real: dict[int, Array] = {}
    held: dict[int, Array] = {}
    found: dict[int, Int8Grid] = {}
    products: dict[int, QuantizedProduct] = {}
    gone = network.last_readers()
    for number, value in enumerate(network.values):
        if value.role == "input":
            real[number] = held[number] = samples[number]
        else:
            real[number] = value.computed([real[operand] for operand in value.inputs])
            if value.product is not None:
                products[number] = quantized_product(network, number, held, real, bits[number], settings)
                done()
            held[number] = _computed(network, number, held, found, products)
        if network.stored[number]:
            found[number] = given.get(number) or value.grid or grid_of(held[number], settings.ranges)
            held[number] = on_grid(held[number], found[number])
        for old in gone[number]:
            del real[old], held[old]
    return QuantizedNetwork(found, products)


def values_of(
    network: Network, samples: Mapping[int, Array], made: QuantizedNetwork | None, *, keep: bool = False
) -> dict[int, Array]:
    """The outputs for samples by number, of the float network or a quantized one; with `keep` all values."""
    found: dict[int, Array] = {}
    gone = network.last_readers()
    for number, value in enumerate(network.values):
        if value.role == "input":
            found[number] = samples[number]
        elif made is None:
            found[number] = value.computed([found[operand] for operand in value.inputs])
        else:
            found[number] = _computed(network, number, found, made.grids, made.products)
        if made is not None and number in made.grids:
            found[number] = on_grid(found[number], made.grids[number])
        for old in () if keep else gone[number]:
            del found[old]
    return found


def held_values(
    network: Network, held: Mapping[int, Array], made: QuantizedNetwork, changed: int, product: QuantizedProduct
) -> Mapping[int, Array]:
    """The values of a quantized network in which one product is another."""
    products = {**made.products, changed: product}
    found = dict(held)
    after = {changed}
    for number, value in enumerate(network.values):
        if number == changed or after.intersection(value.inputs):
            after.add(number)
            found[number] = _computed(network, number, found, made.grids, products)
            if number in made.grids:
                found[number] = on_grid(found[number], made.grids[number])
    return found


def _computed(
    network: Network,
    number: int,
    held: Mapping[int, Array],
    grids: Mapping[int, Int8Grid],
    products: Mapping[int, QuantizedProduct],
) -> Array:
    """A value of quantized ones, before it is on a grid itself. An average of integers is cut off towards 0."""
    value = network.values[number]
    result = value.computed([held[o] for o in value.inputs], products[number].product if number in products else None)
    place = network.grid_at(value.inputs[0]) if value.averages else None
    return result if place is None else towards_zero(result, grids[place])


def quantized_product(
    network: Network,
    number: int,
    held: Mapping[int, Array],
    real: Mapping[int, Array],
    bits: int,
    settings: Settings,
) -> QuantizedProduct:
    """The weights of a product in `bits` bits: for what its input is in the quantized network, `held`, its results are
    to be those of the float network, `real`."""
    product = network.values[number].product
    assert product is not None
    weights = product.matrix()
    groups, outputs, inputs = weights.shape
    most = max(_LEAST_ROWS, _MOST // (groups * max(inputs, outputs)))
    chance = np.random.default_rng((settings.seed, number))
    rows, targets = product.rows(held[network.values[number].inputs[0]], real[number], most, chance)
    if settings.compensate:
        form = least_squares(weights, rows, targets)
        levels, scales = rounded(form, bits, product.shared_scales)
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
