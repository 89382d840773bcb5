"""What the stored values of a model's inputs and outputs stand for, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from byoc_hw.program import QUANTIZED_TYPES, SMALLEST_SCALE
from byoc_hw.tensor import Quantization


@dataclass(frozen=True)
class End:
    """One input or output of a model.

    `state` names an output, for an input whose next value that output is. `name` is that of such an output, else "".
    """

    quantization: Quantization | None = None
    name: str = ""
    state: str = ""

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> End:
        """The end that `asdict` and JSON made this of."""
        found = plain["quantization"]
        one = None if found is None else Quantization(tuple(found["scale"]), tuple(found["zero_point"]))
        return cls(one, plain["name"], plain["state"])


@dataclass(frozen=True)
class Ends:
    """The inputs and outputs of a model, in order."""

    inputs: tuple[End, ...] = ()
    outputs: tuple[End, ...] = ()

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Ends:
        """The ends that `asdict` and JSON made this of."""
        inputs, outputs = ([End.from_plain(one) for one in plain[part]] for part in ("inputs", "outputs"))
        return cls(tuple(inputs), tuple(outputs))


def usable(quantization: Quantization | None, dtype: str) -> Quantization | None:
    """The quantization if real values can be brought to it, and None if not: one scale, and sound values."""
    if quantization is None or dtype not in QUANTIZED_TYPES or len(quantization.scale) != 1:
        return None
    limits = np.iinfo(dtype)
    sound = math.isfinite(quantization.scale[0]) and quantization.scale[0] >= SMALLEST_SCALE
    return quantization if sound and limits.min <= quantization.zero_point[0] <= limits.max else None
