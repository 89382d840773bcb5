"""Orders of a tensor's elements: permutations of those of the model's tensor, in the fewest dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from byoc_hw.plan.array.transfers import Permutation, canonical
from byoc_hw.tensor import Array

Axes = tuple[int, ...]
"""By dimension of a tensor as it lies: the dimension of the model's tensor that it is."""


def same_order(shape: Sequence[int]) -> Permutation:
    """All elements of a tensor of this shape where they are."""
    return Permutation((prod(shape),), (0,))


@lru_cache(maxsize=4096)
def one_after_the_other(one: Permutation, other: Permutation) -> Permutation | None:
    """Both, one after the other, in the fewest dimensions; None where they have none in common."""
    both = one.then(other)
    return None if both is None else canonical(both.shape, both.axes)


@lru_cache(maxsize=4096)
def inverse_order(one: Permutation) -> Permutation:
    """The order that brings all elements back."""
    return Permutation(
        tuple(one.shape[axis] for axis in one.axes), tuple(one.axes.index(axis) for axis in range(len(one.axes)))
    )


def is_same_order(one: Permutation) -> bool:
    """Whether all elements are where they were."""
    return one.axes == tuple(range(len(one.axes)))


def order_by_axes(shape: Sequence[int], axes: Axes) -> Permutation:
    """The form of a tensor of this shape with its dimensions in an order."""
    return canonical(tuple(shape), axes)


@lru_cache(maxsize=4096)
def axes_of_order(form: Permutation, shape: tuple[int, ...]) -> Axes | None:
    """The dimensions of a tensor of this shape in the order of a form; None where it cuts dimensions apart.

    Dimensions of one element, which may be anywhere, go before the dimension that they were in front of; the first
    ones stay.
    """
    whole = Permutation(shape, tuple(range(len(shape)))).then(form)
    if whole is None:
        return None
    real = [axis for axis, size in enumerate(shape) if size > 1]
    if whole.shape != tuple(shape[axis] for axis in real):
        return None
    order: list[int] = [real[axis] for axis in whole.axes]
    first = real[0] if real else len(shape)
    for axis in reversed(range(first, len(shape))):
        if shape[axis] == 1:
            behind = [one for one in range(axis + 1, len(shape)) if one in order]
            order.insert(order.index(behind[0]) if behind else order.index(max(order)) + 1, axis)
    return (*range(first), *order)


def order_of_channels(form: Permutation, channels: int) -> Array | None:
    """Which channel the first one is, and so on, where so many channels of each pixel are reordered alike; None where
    anything else is."""
    inside = prod(form.shape[1:]) if form.axes[0] == 0 else prod(form.shape)
    if channels % inside:
        return None
    order: Array = np.arange(prod(form.shape)).reshape(form.shape).transpose(form.axes).reshape(-1)[:channels]
    return order
