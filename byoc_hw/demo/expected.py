"""Stores what Relay's TVM computes of the held-out digits: what the demo compares with where TVM has no Relay.

python -m byoc_hw.demo.expected
"""

from __future__ import annotations

import numpy as np

import byoc_hw
from byoc_hw.demo import EXPECTED, heldout, model_path
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.tensor import Array


def relay_outputs() -> Array:
    """The outputs (N, 10) int8 of TVM for the held-out digits."""
    whole = Reference(*byoc_hw.load_tflite(model_path()))
    return np.concatenate([whole.run([image[np.newaxis]])[0] for image in heldout().images])


if __name__ == "__main__":
    np.savez_compressed(EXPECTED, outputs=relay_outputs())
