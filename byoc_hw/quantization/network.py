"""A float network as values that numpy computes, for all samples of a calibration at once.

An array of samples has one dimension more than the value: the samples are its first. Front ends make networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from byoc_hw.quantization import kernels
from byoc_hw.tensor import Array, Padding, Pair

Role = Literal["input", "product", "sum", "bounded", "unary", "moved", "plain", "other"]
"""What quantization has to know of an operator.

"product" has weights; "sum" is another one that is computed as int32, as an addition or a mean; "bounded" is a ReLU or
clip, which is part of what it bounds; "unary" is another function of single elements; "moved" picks among its input's
elements, on its input's grid; "plain" is never stored as int8: integers, or several results.
"""


class FloatProduct(Protocol):
    """An operator that multiplies its input with weights, as (groups, outputs of a group, inputs of an output)."""

    @property
    def weights(self) -> Array:
        """In the product's own layout."""

    @property
    def bias(self) -> Array:
        """A number for each output."""

    @property
    def shared_scales(self) -> bool:
        """Whether the outputs of a group have one scale."""

    def with_bias(self, bias: Array) -> FloatProduct:
        """The same with another bias."""

    def matrix(self) -> Array:
        """The weights as a matrix for each group."""

    def with_matrix(self, matrix: Array, bias: Array) -> FloatProduct:
        """The same with other weights, given as `matrix` gives them."""

    def run(self, ifm: Array) -> Array:
        """The outputs, with the bias."""

    def rows(self, ifm: Array, ofm: Array, most: int, chance: np.random.Generator) -> tuple[Array, Array]:
        """What some outputs are products of, and these outputs: (groups, rows, inputs), (groups, rows, outputs)."""


@dataclass(frozen=True, eq=False)
class FloatConvolution:
    """A convolution; `weights` are OHWI. With `nchw` its activations are in that order.

    With `shared_scales` the outputs of a group have one scale.
    """

    weights: Array
    bias: Array
    strides: Pair
    padding: Padding
    dilation: Pair
    groups: int
    nchw: bool = False
    shared_scales: bool = False

    def with_bias(self, bias: Array) -> FloatConvolution:
        """The same with another bias."""
        return replace(self, bias=bias)

    def matrix(self) -> Array:
        """The weights as a matrix for each group."""
        return self.weights.reshape(self.groups, len(self.weights) // self.groups, -1)

    def with_matrix(self, matrix: Array, bias: Array) -> FloatConvolution:
        """The same with other weights, given as `matrix` gives them."""
        weights = matrix.reshape(self.weights.shape).astype(np.float32)
        return replace(self, weights=weights, bias=bias.astype(np.float32))

    def run(self, ifm: Array) -> Array:
        """The outputs, with the bias."""
        samples = ifm.shape[:2]
        flat = kernels.conv2d(self._images(ifm), self.weights, self.strides, self.padding, self.dilation, self.groups)
        flat += self.bias
        ofm = flat.reshape(*samples, *flat.shape[1:])
        return np.moveaxis(ofm, -1, 2) if self.nchw else ofm

    def rows(self, ifm: Array, ofm: Array, most: int, chance: np.random.Generator) -> tuple[Array, Array]:
        """What some outputs are products of, and these outputs."""
        outputs = self._images(ofm)
        extents = outputs.shape[:3]
        sample, row, column = np.unravel_index(_some(prod(extents), most, chance), extents)
        kernel = self.weights.shape[1], self.weights.shape[2]
        windows = kernels.windows_at(
            self._images(ifm), (sample, row, column), kernel, self.strides, self.padding, self.dilation
        )
        count, taps, depth = windows.shape
        inputs = windows.reshape(count, taps, self.groups, depth // self.groups).transpose(2, 0, 1, 3)
        targets = outputs[sample, row, column].reshape(count, self.groups, -1).transpose(1, 0, 2)
        return inputs.reshape(self.groups, count, -1), targets

    def _images(self, value: Array) -> Array:
        ordered = np.moveaxis(value, 2, -1) if self.nchw else value
        return ordered.reshape(-1, *ordered.shape[2:])


@dataclass(frozen=True, eq=False)
class FloatDense:
    """A product with a matrix: `weights` are (outputs, inputs)."""

    weights: Array
    bias: Array
    shared_scales: bool = False

    def with_bias(self, bias: Array) -> FloatDense:
        """The same with another bias."""
        return replace(self, bias=bias)

    def matrix(self) -> Array:
        """The weights as one matrix."""
        return self.weights[None]

    def with_matrix(self, matrix: Array, bias: Array) -> FloatDense:
        """The same with other weights."""
        return replace(self, weights=matrix[0].astype(np.float32), bias=bias.astype(np.float32))

    def run(self, ifm: Array) -> Array:
        """The outputs, with the bias."""
        return np.asarray(ifm @ self.weights.T + self.bias)

    def rows(self, ifm: Array, ofm: Array, most: int, chance: np.random.Generator) -> tuple[Array, Array]:
        """What some outputs are products of, and these outputs."""
        inputs, targets = ifm.reshape(-1, ifm.shape[-1]), ofm.reshape(-1, ofm.shape[-1])
        chosen = _some(len(inputs), most, chance)
        return inputs[None, chosen], targets[None, chosen]


def _some(count: int, most: int, chance: np.random.Generator) -> Array:
    if count <= most:
        return np.arange(count)
    return np.sort(chance.choice(count, most, replace=False))


Compute = Callable[[Sequence[Array]], Any]
"""Gives an array; of an operator with several results a list of them."""


@dataclass(frozen=True, eq=False)
class NetworkValue:
    """A value of a network: the operator that computes it, and its inputs by number.

    `run` computes it from its inputs; a product computes by itself, weights and bias. `grid` is scale and zero point
    where the operator's results have a range of their own, such as a softmax's. `kind` is the layer kind of a product,
    `sources` are the names of its operators in the model.
    One that `averages` divides a sum of the stored integers.
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    role: Role
    inputs: tuple[int, ...] = ()
    run: Compute | None = None
    product: FloatProduct | None = None
    kind: str = ""
    sources: tuple[str, ...] = ()
    grid: tuple[float, int] | None = None
    averages: bool = False

    def computed(self, inputs: Sequence[Array], product: FloatProduct | None = None) -> Array:
        """The value of samples, of a product also with other weights."""
        if self.product is not None:
            return (product or self.product).run(inputs[0])
        assert self.run is not None, f"{self.name} is an input"
        found: Array = self.run(inputs)
        return found


@dataclass(frozen=True, eq=False)
class Network:
    """A float network: its values in order, operands first, and the numbers of its outputs."""

    values: tuple[NetworkValue, ...]
    outputs: tuple[int, ...]

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The numbers of the inputs."""
        return tuple(number for number, value in enumerate(self.values) if value.role == "input")

    @cached_property
    def products(self) -> tuple[int, ...]:
        """The numbers of the values that have weights."""
        return tuple(number for number, value in enumerate(self.values) if value.product is not None)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """By number: the values that read a value."""
        found: list[list[int]] = [[] for _ in self.values]
        for number, value in enumerate(self.values):
            for operand in dict.fromkeys(value.inputs):
                found[operand].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def stored(self) -> tuple[bool, ...]:
        """By number: whether a value has a grid of its own and is stored as int8.

        Not where it is moved only, or the operator that alone reads it is computed with it: a bound with a sum, a
        function of elements with another one.
        """
        forms: list[Role] = []
        for number, value in enumerate(self.values):
            if value.role in ("product", "sum"):
                forms.append("sum")
            elif value.role == "bounded":
                inner = value.inputs[0]
                forms.append(forms[inner] if self._alone(inner, number) else "unary")
            else:
                forms.append(value.role)
        return tuple(self._is_stored(number, forms) for number in range(len(self.values)))

    def _alone(self, operand: int, reader: int) -> bool:
        return self.readers[operand] == (reader,) and operand not in self.outputs

    def _is_stored(self, number: int, forms: Sequence[Role]) -> bool:
        readers = self.readers[number]
        if self.values[number].role in ("moved", "plain"):
            return False
        if len(readers) != 1 or number in self.outputs:
            return True
        role = self.values[readers[0]].role
        if forms[number] == "sum":
            return role != "bounded"
        return not (forms[number] == "unary" and role in ("bounded", "unary"))

    def last_readers(self) -> list[list[int]]:
        """By number: the values that nothing after this one reads."""
        gone: list[list[int]] = [[] for _ in self.values]
        for number, readers in enumerate(self.readers):
            if number not in self.outputs:
                gone[max(readers, default=number)].append(number)
        return gone

    def grid_at(self, number: int) -> int | None:
        """The value whose grid a value is on: its own, or that of what it moves; None for integers and the like."""
        while not self.stored[number]:
            if self.values[number].role == "plain":
                return None
            number = self.values[number].inputs[0]
        return number
