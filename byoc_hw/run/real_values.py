"""An input or output of a model: its type, and what its stored values stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byoc_hw.arguments import check_type
from byoc_hw.errors import InvalidInput
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class Interface:
    """One input or output of a model: name, type, shape, and bytes.

    A stored value stands for `scale * (stored - zero_point)`. Both are None for a type that needs none, such as
    float32, and where the model does not state them. `state` is the name of an output, for an input that keeps a
    value from one inference to the next: that output is what it is given next, and zeros (stored: `zero_point`)
    what it is given first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    scale: float | None = None
    zero_point: int | None = None
    state: str | None = None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Interface:
        """The entry of a project's metadata."""
        return cls(
            plain["name"],
            plain["dtype"],
            tuple(plain["shape"]),
            plain["bytes"],
            plain["scale"],
            plain["zero_point"],
            plain["state"],
        )

    @property
    def real(self) -> Interface:
        """The same input or output in real values: float32 where it has a scale."""
        if self.scale is None:
            return self
        size = np.dtype(self.dtype).itemsize
        return replace(self, dtype="float32", nbytes=self.nbytes // size * 4, scale=None, zero_point=None)

    def quantize(self, values: Array) -> Array:
        """The stored values for real ones, of any shape; as the generated header does it, bit for bit.

        As TFLite's QUANTIZE does it, `values / scale` in float32 is rounded to the nearest whole number, halves away
        from zero; then come the zero point and the limits of the type. (TVM's `qnn.quantize` multiplies by 1 / scale,
        which can differ by one step at a half.) NaN becomes the zero point. Raises `InvalidInput` without a scale.
        """
        scale, zero_point = self._quantization()
        limits = np.iinfo(self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.asarray(np.asarray(values).astype(np.float32) / np.float32(scale))
        steps = np.where(np.isnan(steps), np.float32(0), steps)
        steps = steps.clip(np.float32(limits.min - zero_point), np.float32(limits.max - zero_point))
        whole = np.trunc(steps)
        away = (steps - whole >= 0.5).astype(np.int32) - (steps - whole <= -0.5)
        stored: Array = (whole.astype(np.int32) + away + zero_point).astype(self.dtype)
        return stored

    def dequantize(self, values: Array) -> Array:
        """The real values, in float32, that stored ones stand for. Raises `InvalidInput` without a scale."""
        scale, zero_point = self._quantization()
        return (np.asarray(values).astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)

    def _quantization(self) -> tuple[float, int]:
        if self.scale is None or self.zero_point is None:
            raise InvalidInput(
                f"{self.name} has a scale and a zero point: the model states none, its type is {self.dtype}"
            )
        return self.scale, self.zero_point

    def stored(self, values: object) -> Array:
        """What to give an input for real values; for one without a scale, the values themselves."""
        check_type(f"input {self.name}", values, np.ndarray | np.generic, "an array")
        array = np.asarray(values)
        if self.scale is None:
            return array
        if array.dtype.kind not in "fiu":
            raise InvalidInput(f"input {self.name}: real values are numbers: got {array.dtype}")
        return self.quantize(array)
