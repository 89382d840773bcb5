"""Tensors and their quantization.

Activations are NHWC, weights OHWI, biases 1-D; batch is the leading 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Pair = tuple[int, int]
"""Height and width."""

Padding = tuple[int, int, int, int]
"""Top, left, bottom, right."""

Rounding = Literal["upward", "tflite"]
"""The rounding of scaled sums: once with halves up, as TVM, or twice, as TFLite's reference kernels."""

_STORAGE_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8}

DTYPES = tuple(_STORAGE_BYTES)
"""The types of a tensor's elements."""


@dataclass(frozen=True)
class Quantization:
    """Affine quantization, `real = scale * (stored - zero_point)`, with the values of the model.

    One scale and zero point, or one for each index of dimension `axis`.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor: activations (NHWC or 2-D), weights (OHWI), or a 1-D bias.

    `bits` is the precision on the accelerator (8, 4, 2, 32), of weights the fewest that hold all values; `dtype` the
    storage type of `data` and of the C argument. Only constants have `data`. Tensors compare by identity.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    bits: int = 8
    quantization: Quantization | None = None
    data: Array | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in main memory."""
        return self.bytes_of(self.elements)

    def bytes_of(self, elements: int) -> int:
        """The size of this many elements in bytes, in main memory and in local memory."""
        return elements * _STORAGE_BYTES[self.dtype]


def bits_of(values: Array) -> Array:
    """The bits of each of some integers in two's complement, its sign among them."""
    if values.dtype == np.int8:
        return _BITS[values.view(np.uint8)]
    return _bits_of(values)


def _bits_of(values: Array) -> Array:
    magnitudes = np.where(values < 0, -1 - values.astype(np.int64), values)
    exponents: Array = np.frexp(magnitudes)[1]
    return exponents + 1


_BITS = _bits_of(np.arange(256, dtype=np.uint8).view(np.int8))
"""The bits of each int8 value, by its byte: models have millions of weights."""


def least_bits(values: Array) -> int:
    """The fewest of 2, 4 and 8 bits that hold each of some int8 values in two's complement."""
    ends = np.array([values.min(initial=0), values.max(initial=0)])
    return next(bits for bits in (2, 4, 8) if bits_of(ends).max() <= bits)


def scale_ratio(ifm: Tensor, ofm: Tensor) -> float:
    """Input scale over output scale; 1 if either has no scale."""
    if ifm.quantization is None or ofm.quantization is None:
        return 1.0
    return ifm.quantization.scale[0] / ofm.quantization.scale[0]


def signed_bits(largest: float) -> int:
    """Bits of a signed integer that holds +-largest with a zero point added."""
    return int(np.ceil(np.log2(largest + 256))) + 1
