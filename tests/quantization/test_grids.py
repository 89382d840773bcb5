"""Grids of activations: what they hold, and which has the least error."""

import numpy as np
import pytest

from byoc_hw.quantization.grids import RANGES, grid_between, grid_of, on_grid, towards_zero


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize(("low", "high"), [(0, 6), (-3, 5), (-4, 0), (0, 0), (1, 9), (-9, -1)])
def test_zero_is_a_point_and_the_range_is_held(low, high, ranges):
    values = np.random.default_rng(0).uniform(low, high, (50, 40)).astype(np.float32)
    grid = grid_of(values, ranges)
    assert grid[0] > 0
    assert -128 <= grid[1] <= 127
    assert on_grid(np.zeros(1, np.float32), grid) == 0
    assert np.abs(on_grid(values, grid) - values).max() <= max(abs(low), abs(high)) * (0.01 if ranges != "mse" else 0.7)


def test_a_few_far_values_cost_the_others_little():
    values = np.random.default_rng(1).normal(size=100_000).astype(np.float32)
    values[0] = 500
    body = values[1:]

    def error(ranges):
        return np.square(on_grid(body, grid_of(values, ranges)) - body).mean()

    assert error("percentile") < error("minmax") / 50
    assert error("mse") <= error("minmax")


def test_the_ends_of_a_range_are_levels():
    grid = grid_between(-1.0, 4.0)
    assert np.isclose(on_grid(np.float32([-1, 4]), grid), [-1, 4], atol=grid[0]).all()


def test_an_average_of_integers_is_cut_off_towards_zero():
    grid = (0.5, 10)
    stored = np.float32([3.7, -3.7, 3.0, -3.0, 0.2])
    real = (stored - 10) * np.float32(0.5)
    assert (towards_zero(real, grid) / 0.5 + 10 == [3, -3, 3, -3, 0]).all()
