"""Weights as integers of few bits, so that a layer's results stay as they are: error-compensating rounding.

For each group of outputs the squared error of the results, summed over rows of a calibration, is a quadratic form in
the weights. `least_squares` reads it off; `rounded` looks for integers and a scale for each output that make it small:
each weight is rounded in turn while those behind it make up for the error (the order and the inverse of the form as in
"GPTQ", Frantar et al., 2022), then single weights move while that helps, then the scale is fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from byoc_hw.tensor import Array

_DAMPING = 0.1
"""How strongly the weights of the model pull, as a share of the mean square of an input."""

_SHARES = (0.2, 1.1)
"""The scales that are tried, as shares of the one with which the largest weight of an output just fits: from, to."""

_STARTS = (5, 19)
_WORK = 1 << 29
"""The fewest and the most scales that are tried, and the products that decide between."""

_ROUNDS = 4
"""Fits of the scale, each with moves of single weights."""

_SWEEPS = 4
_BLOCK = 64


@dataclass(frozen=True)
class ErrorForm:
    """A quadratic form for each group: the error of weights is (w - best)' metric (w - best).

    `best` is (groups, outputs, inputs), `metric` (groups, inputs, inputs). `means` are those of the inputs.
    """

    best: Array
    metric: Array
    input_means: Array
    target_means: Array


def least_squares(weights: Array, inputs: Array, targets: Array) -> ErrorForm:
    """The form for results that are to be near `targets`, but for a constant: the bias.

    `weights` (groups, outputs, inputs) are the model's, `inputs` (groups, rows, inputs) what they multiply now,
    `targets` (groups, rows, outputs) the model's results. Where the rows say little, the best weights are the model's.
    """
    input_means, target_means = inputs.mean(axis=1, dtype=np.float64), targets.mean(axis=1, dtype=np.float64)
    rows = inputs.shape[1]
    across = (inputs - input_means[:, None].astype(np.float32)).transpose(0, 2, 1)
    metric = (across @ across.transpose(0, 2, 1)).astype(np.float64) / rows
    products = (across @ (targets - target_means[:, None].astype(np.float32))).astype(np.float64) / rows
    diagonal = np.einsum("gkk->gk", metric)
    damping = _DAMPING * diagonal.mean(axis=1, keepdims=True) + 1e-12
    diagonal += damping
    model = weights.transpose(0, 2, 1).astype(np.float64)
    best = np.linalg.solve(metric, products + damping[..., None] * model).transpose(0, 2, 1)
    return ErrorForm(best, metric, input_means, target_means)


def nearest(weights: Array, bits: int, shared: bool) -> tuple[Array, Array]:
    """The nearest integers with the scale of each output at which its largest weight fits, and the scales.

    With `shared` the outputs of a group have one scale.
    """
    scales = _full(weights, bits, shared)
    return _near(weights, scales, bits), scales.astype(np.float32)


def rounded(form: ErrorForm, bits: int, shared: bool) -> tuple[Array, Array]:
    """Integers of `bits` bits and a scale for each output, for which the form is small.

    Each of several scales is a start: weights are rounded one by one, then single weights move and the scale is fitted.
    """
    groups, outputs, inputs = form.best.shape
    starts = int(np.clip(_WORK // (groups * outputs * inputs**2), *_STARTS))
    shares = np.linspace(*_SHARES, starts)[:, None]
    scales = (_full(form.best, bits, shared)[:, None] * shares).reshape(groups, starts * outputs)
    levels = _compensated(np.tile(form.best, (1, starts, 1)), form.metric, scales, bits)
    levels, scales = _best(form, levels, scales, shared)
    least = _errors(form, levels, scales, shared)
    for _ in range(_ROUNDS):
        moved = _moved(form, levels, scales, bits)
        fitted = _fitted(form, moved, scales, shared)
        found = _errors(form, moved, fitted, shared)
        better = found < least
        levels, scales = np.where(better[..., None], moved, levels), np.where(better, fitted, scales)
        least = np.minimum(found, least)
        if not better.any():
            break
    return levels.astype(np.int8), scales.astype(np.float32)


def _best(form: ErrorForm, levels: Array, scales: Array, shared: bool) -> tuple[Array, Array]:
    """Of several starts, one behind the other, the best of each output."""
    groups, outputs, _ = form.best.shape
    starts = levels.shape[1] // outputs
    tried = replace(form, best=np.tile(form.best, (1, starts, 1)))
    found = _errors(tried, levels, scales, False).reshape(groups, starts, outputs)
    if shared:
        found = np.broadcast_to(found.sum(axis=2, keepdims=True), found.shape)
    chosen = found.argmin(axis=1) * outputs + np.arange(outputs)
    return np.take_along_axis(levels, chosen[..., None], 1), np.take_along_axis(scales, chosen, 1)


def _errors(form: ErrorForm, levels: Array, scales: Array, shared: bool) -> Array:
    off = levels * scales[..., None] - form.best
    return _over(np.einsum("gok,gok->go", off @ form.metric, off), shared)


def _over(numbers: Array, shared: bool) -> Array:
    """With `shared` the sum over the outputs of a group, for each of them."""
    if not shared:
        return numbers
    return np.asarray(np.broadcast_to(numbers.sum(axis=1, keepdims=True), numbers.shape))


def _full(weights: Array, bits: int, shared: bool) -> Array:
    largest = np.abs(weights).max(axis=(1, 2) if shared else 2, keepdims=True)[..., 0]
    largest = np.broadcast_to(largest, weights.shape[:2])
    return np.where(largest > 0, largest, 1.0) / ((1 << bits - 1) - 1)


def _near(weights: Array, scales: Array, bits: int) -> Array:
    top = (1 << bits - 1) - 1
    return np.asarray(np.clip(np.rint(weights / scales[..., None]), _bottom(bits), top))


def _bottom(bits: int) -> int:
    """The least integer: 8 bits have as many below 0 as above, as TFLite has it."""
    return -(1 << bits - 1) + (bits == 8)


def _compensated(weights: Array, metric: Array, scales: Array, bits: int) -> Array:
    """Each weight rounded in turn; those behind it make up for the error, as far as the form lets them."""
    inputs = metric.shape[-1]
    order = np.argsort(-np.einsum("gkk->gk", metric), axis=1, kind="stable")
    ordered = np.take_along_axis(np.take_along_axis(metric, order[:, :, None], 1), order[:, None, :], 2)
    # Upper triangular U with U'U the inverse: row by row what an error of one weight costs those behind it.
    root = np.linalg.cholesky(np.linalg.inv(ordered)).transpose(0, 2, 1)
    left = np.take_along_axis(weights, order[:, None, :], 2).copy()
    levels = np.empty_like(left)
    for first in range(0, inputs, _BLOCK):
        last = min(first + _BLOCK, inputs)
        errors = np.empty((*left.shape[:2], last - first))
        for place in range(first, last):
            column = left[..., place]
            levels[..., place] = _near(column[..., None], scales, bits)[..., 0]
            error = (column - levels[..., place] * scales) / root[:, place, place, None]
            left[..., place:last] -= error[..., None] * root[:, None, place, place:last]
            errors[..., place - first] = error
        left[..., last:] -= errors @ root[:, first:last, last:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(levels, back[:, None, :], 2)


def _moved(form: ErrorForm, levels: Array, scales: Array, bits: int) -> Array:
    """Levels of which no single one can move and make the form smaller, or nearly so."""
    levels = levels.copy()
    slope = (levels * scales[..., None] - form.best) @ form.metric
    diagonal = np.einsum("gkk->gk", form.metric)
    for _ in range(_SWEEPS):
        moves = 0
        for place in range(levels.shape[2]):
            wish = levels[..., place] * scales - slope[..., place] / diagonal[:, place, None]
            new = _near(wish[..., None], scales, bits)[..., 0]
            step = new - levels[..., place]
            if step.any():
                slope += (step * scales)[..., None] * form.metric[:, None, place]
                levels[..., place] = new
                moves += 1
        if not moves:
            break
    return levels


def _fitted(form: ErrorForm, levels: Array, scales: Array, shared: bool) -> Array:
    """The scales for which the form is least with these levels; those given where all levels are 0."""
    across = levels @ form.metric
    below, above = (_over(np.einsum("gok,gok->go", across, side), shared) for side in (levels, form.best))
    fits = (below > 0) & (above > 0)
    return np.where(fits, above / np.where(fits, below, 1.0), scales)
