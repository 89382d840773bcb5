"""Scale and zero point of an activation, from its values in a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from byoc_hw.errors import InvalidInput
from byoc_hw.tensor import Array

Int8Grid = tuple[float, int]
"""Scale and zero point of int8: real = scale * (stored - zero_point)."""

Ranges = Literal["minmax", "percentile", "mse"]
RANGES: tuple[Ranges, ...] = ("minmax", "percentile", "mse")

_OUTSIDE = 1e-4
"""The share of values that "percentile" leaves outside, on each side."""

_SHARES = [float(share) for share in np.linspace(1.0, 0.4, 25)]
_SAMPLE = 1 << 15
_TURNS = 2


def grid_of(values: Array, ranges: Ranges) -> Int8Grid:
    """The grid for values: of all ("minmax"), of all but a few, or with the least mean squared error.

    Raises `InvalidInput` for values beyond float32.
    """
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if not math.isfinite(high - low):
        raise InvalidInput(f"what the network computes on the calibration is finite: got {low:g} to {high:g}")
    if ranges == "minmax" or low == high:
        return grid_between(low, high)
    flat = values.reshape(-1)
    if ranges == "percentile":
        low, high = (float(end) for end in np.quantile(flat, (_OUTSIDE, 1 - _OUTSIDE)))
        return grid_between(min(low, 0.0), max(high, 0.0))
    sample = flat[:: -(-flat.size // _SAMPLE)]
    below = above = 1.0
    for _ in range(_TURNS if low < 0 < high else 1):
        above = _best(sample, [(share, grid_between(low * below, high * share)) for share in _SHARES])
        below = _best(sample, [(share, grid_between(low * share, high * above)) for share in _SHARES])
    return grid_between(low * below, high * above)


def _best(sample: Array, grids: Sequence[tuple[float, Int8Grid]]) -> float:
    """The share whose grid has the least mean squared error."""
    errors = [np.square(on_grid(sample, grid) - sample).mean(dtype=np.float64) for _, grid in grids]
    return grids[int(np.argmin(errors))][0]


def grid_between(low: float, high: float) -> Int8Grid:
    """The grid from a number of at most 0 to one of at least 0, of which 0 is a point."""
    scale = float(np.float32((high - low) / 255)) or 1.0
    return scale, int(np.clip(round(-128 - low / scale), -128, 127))


def on_grid(values: Array, grid: Int8Grid) -> Array:
    """The values that int8 on a grid stands for, nearest to these."""
    scale, zero_point = np.float32(grid[0]), grid[1]
    levels = np.clip(np.rint(values / scale) + np.float32(zero_point), -128, 127)
    return np.asarray((levels - np.float32(zero_point)) * scale)


def towards_zero(values: Array, grid: Int8Grid) -> Array:
    """The values that int8 on a grid stands for, with integers cut off towards 0: what a division of integers gives."""
    scale, zero_point = np.float32(grid[0]), np.float32(grid[1])
    levels = values / scale + zero_point
    return np.asarray((np.trunc(levels + np.sign(levels) * np.float32(1e-4)) - zero_point) * scale)
