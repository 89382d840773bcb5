"""Rounding of weights: the results of a layer stay nearer than with each weight rounded by itself."""

import itertools

import numpy as np
import pytest

from byoc_hw.quantization.rounding import least_squares, nearest, rounded

RAILS = {8: (-127, 127), 4: (-8, 7), 2: (-2, 1)}


def problem(groups, outputs, inputs, rows=400, seed=0):
    """Correlated inputs, as neighbouring pixels are, and the results of the weights."""
    chance = np.random.default_rng(seed)
    mix = chance.normal(size=(groups, inputs, inputs)) / np.sqrt(inputs) + np.eye(inputs)
    given = (chance.normal(size=(groups, rows, inputs)) @ mix).astype(np.float32) + 0.5
    weights = chance.normal(size=(groups, outputs, inputs)).astype(np.float32)
    bias = chance.normal(size=(groups, 1, outputs)).astype(np.float32)
    return weights, given, given @ weights.transpose(0, 2, 1) + bias


def error(form, given, targets, levels, scales):
    real = levels * scales[..., None]
    bias = form.target_means - np.einsum("gok,gk->go", real, form.input_means)
    return float(np.square(given @ real.transpose(0, 2, 1) + bias[:, None] - targets).mean())


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("shape", [(1, 6, 20), (1, 3, 130), (5, 1, 9), (2, 4, 18)], ids=str)
def test_results_are_nearer_than_with_nearest_weights(shape, bits):
    weights, given, targets = problem(*shape)
    form = least_squares(weights, given, targets)
    levels, scales = rounded(form, bits, False)
    assert levels.dtype == np.int8
    assert RAILS[bits][0] <= levels.min() <= levels.max() <= RAILS[bits][1]
    plain = error(form, given, targets, *nearest(weights, bits, False))
    assert error(form, given, targets, levels, scales) < plain * (1 if bits == 8 else 0.7)


def test_two_bits_for_few_inputs_are_near_the_best_of_all():
    weights, given, targets = problem(1, 1, 4, seed=3)
    form = least_squares(weights, given, targets)
    best = np.inf
    for chosen in itertools.product(range(-2, 2), repeat=4):
        levels = np.array(chosen, float).reshape(1, 1, 4)
        below = (levels @ form.metric @ levels.transpose(0, 2, 1)).item()
        above = (levels @ form.metric @ form.best.transpose(0, 2, 1)).item()
        scale = np.array([[above / below if below > 0 and above > 0 else 1.0]])
        off = levels * scale[..., None] - form.best
        best = min(best, (off @ form.metric @ off.transpose(0, 2, 1)).item())
    levels, scales = rounded(form, 2, False)
    off = levels * scales[..., None] - form.best
    assert (off @ form.metric @ off.transpose(0, 2, 1)).item() <= 1.05 * best + 1e-9


def test_outputs_that_share_a_scale_have_one():
    weights, given, targets = problem(3, 4, 9)
    levels, scales = rounded(least_squares(weights, given, targets), 4, True)
    assert (scales == scales[:, :1]).all()
    assert levels.any(axis=2).all()
    assert (nearest(weights, 4, True)[1] == nearest(weights, 4, True)[1][:, :1]).all()


def test_weights_of_inputs_that_never_vary_stay_near_the_models():
    weights, given, _ = problem(1, 3, 8)
    given[..., 5] = 2.0
    form = least_squares(weights, given, given @ weights.transpose(0, 2, 1))
    assert np.abs(form.best[..., 5] - weights[..., 5]).max() < 1e-3


def test_weights_of_zero_stay_zero():
    weights, given, _ = problem(1, 2, 6)
    weights[:, 0] = 0
    levels, scales = rounded(least_squares(weights, given, given @ weights.transpose(0, 2, 1)), 4, False)
    assert not levels[0, 0].any()
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    assert levels[0, 1].any()
