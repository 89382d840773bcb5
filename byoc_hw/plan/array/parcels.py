"""What layers without jobs move: boxes of elements, each from an input to a place in the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from typing_extensions import assert_never

from byoc_hw.graph import Concat, Moving, Pad, Reshape, Resize, Slice, Transpose
from byoc_hw.plan.array.transfers import dense_strides

Strides = tuple[int, ...]
"""Elements from one index of each dimension to the next."""


@dataclass(frozen=True)
class Parcel:
    """A box of `counts` elements from element `start` of an input on, to element `target` of the output on.

    `source` is the number of the input; None for a box that is filled with a constant, which has no strides.
    """

    source: int | None
    counts: tuple[int, ...]
    start: int
    strides: Strides
    target: int
    target_strides: Strides


def parcels(layer: Moving, inputs: Sequence[Strides] | None = None, ofm: Strides | None = None) -> Iterator[Parcel]:
    """The boxes that make up a layer's output. Inputs and output are dense where no strides are given."""
    inputs = inputs or [dense_strides(tensor.shape) for tensor in layer.inputs]
    ofm = ofm or dense_strides(layer.ofm.shape)
    match layer:
        case Reshape():  # of dense bytes
            yield Parcel(0, (layer.ifm.elements,), 0, (1,), 0, (1,))
        case Transpose():
            order = tuple(ofm[layer.axes.index(axis)] for axis in range(len(layer.axes)))
            yield Parcel(0, layer.ifm.shape, 0, inputs[0], 0, order)
        case Concat():
            first = 0
            for number, (tensor, strides) in enumerate(zip(layer.inputs, inputs, strict=True)):
                yield Parcel(number, tensor.shape, 0, strides, first * ofm[layer.axis], ofm)
                first += tensor.shape[layer.axis]
        case Slice():
            steps = tuple(step * stride for step, stride in zip(layer.steps, inputs[0], strict=True))
            yield Parcel(0, layer.ofm.shape, _at(layer.begin, inputs[0]), steps, 0, ofm)
        case Pad():
            yield Parcel(0, layer.ifm.shape, 0, inputs[0], _at(layer.before, ofm), ofm)
            for origin, shape in around(layer.before, layer.ifm.shape, layer.ofm.shape):
                yield Parcel(None, shape, 0, (), _at(origin, ofm), ofm)
        case Resize():
            yield from _resized(layer, inputs[0], ofm)
        case _:
            assert_never(layer)


def _at(index: Sequence[int], strides: Strides) -> int:
    return sum(place * stride for place, stride in zip(index, strides, strict=True))


def around(
    at: tuple[int, ...], inner: tuple[int, ...], outer: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """What a box leaves free of a larger one that it begins in `at`: boxes before and behind it, dimension by
    dimension, by their place and shape. They are disjoint."""
    counts, origin = list(outer), [0] * len(at)
    for axis, (before, size, whole) in enumerate(zip(at, inner, outer, strict=True)):
        for first, count in ((0, before), (before + size, whole - before - size)):
            if count:
                box, place = [*counts[:axis], count, *counts[axis + 1 :]], [*origin[:axis], first, *origin[axis + 1 :]]
                yield tuple(place), tuple(box)
        counts[axis], origin[axis] = size, before


# ---------------------------------------------------------------- repeated rows and columns


@dataclass(frozen=True)
class Progression:
    """Every `step`-th index of an output from `first` on, `count` of them, reads every `from_step`-th of the input."""

    count: int
    first: int
    step: int
    from_first: int
    from_step: int


def progressions(indices: Sequence[int]) -> tuple[Progression, ...]:
    """The fewest interleaved progressions that give the input's index for each index of the output."""
    for step in range(1, len(indices)):
        found = [_progression(indices[phase::step], phase, step) for phase in range(step)]
        if None not in found:
            return tuple(one for one in found if one is not None)
    return tuple(Progression(1, place, 1, index, 1) for place, index in enumerate(indices))


def _progression(indices: Sequence[int], first: int, step: int) -> Progression | None:
    each = indices[1] - indices[0] if len(indices) > 1 else 1
    regular = each >= 1 and all(index == indices[0] + at * each for at, index in enumerate(indices))
    return Progression(len(indices), first, step, indices[0], each) if regular else None


def _resized(layer: Resize, ifm: Strides, ofm: Strides) -> Iterator[Parcel]:
    batch, _, _, channels = layer.ifm.shape
    for rows, columns in product(progressions(layer.rows), progressions(layer.columns)):
        yield Parcel(
            0,
            (batch, rows.count, columns.count, channels),
            rows.from_first * ifm[1] + columns.from_first * ifm[2],
            (ifm[0], rows.from_step * ifm[1], columns.from_step * ifm[2], ifm[3]),
            rows.first * ofm[1] + columns.first * ofm[2],
            (ofm[0], rows.step * ofm[1], columns.step * ofm[2], ofm[3]),
        )
