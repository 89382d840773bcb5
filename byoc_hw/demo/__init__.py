"""A small network for handwritten digits that ships with the package, and digits that it was not trained on.

`python -m byoc_hw.demo` compiles it and runs it; `train_digits.py` made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_hw.tensor import Array

_HERE = Path(__file__).parent

EXPECTED = _HERE / "digits_expected.npz"
"""What Relay's TVM computes of the held-out digits; `expected.py` made it."""


@dataclass(frozen=True)
class Heldout:
    """Digits that the network was not trained on.

    `images` (N, 8, 8, 1) int8 are quantized for the model's input, `pixels` (N, 8, 8) uint8 are 0 to
    16, `labels` (N,) the digits. The accuracies, between 0 and 1, were measured when the network was
    made: of the float model, and of the int8 model in TFLite.
    """

    images: Array
    pixels: Array
    labels: Array
    float_accuracy: float
    int8_accuracy: float


def model_path() -> Path:
    """The network: a TFLite file, int8 throughout, input (1, 8, 8, 1), output (1, 10)."""
    return _HERE / "digits_int8.tflite"


def float_path() -> Path:
    """The same network before it was quantized: a TFLite file of float32, for pixels from 0 to 1."""
    return _HERE / "digits_float.tflite"


def calibration() -> Array:
    """Digits (N, 8, 8, 1) from 0 to 1, without labels, that the network was trained with: to quantize it with."""
    with np.load(_HERE / "digits_calibration.npz") as data:
        return np.asarray(data["pixels"][..., None].astype(np.float32) / 16)


def heldout() -> Heldout:
    """The held-out digits."""
    with np.load(_HERE / "digits_heldout.npz") as data:
        return Heldout(
            data["images"],
            data["pixels"],
            data["labels"],
            float(data["float_accuracy"]),
            float(data["int8_accuracy"]),
        )


def expected_outputs() -> Array:
    """What Relay's TVM computes of the held-out digits: (N, 10) int8."""
    with np.load(EXPECTED) as data:
        return np.asarray(data["outputs"])
