"""Reads packed weights with packed_weights.c, which is written from hwlib_hal.h alone."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fPIC", "-shared"]


def unpacked(stored, shape, bits):
    """Weights [k][fy][fx][c] of this shape out of their bytes."""
    weights, stored = np.empty(shape, np.int64), np.ascontiguousarray(stored)
    values = int(np.prod(shape[1:]))
    _function()(ctypes.c_void_p(stored.ctypes.data), shape[0], values, bits, ctypes.c_void_p(weights.ctypes.data))
    return weights


@functools.cache
def _function():
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "packed_weights.so"
        subprocess.run(["gcc", *FLAGS, SOURCE, "-o", library], check=True)
        return ctypes.CDLL(str(library)).packed_weights
