"""What limits of the hardware speak of: the knobs of a random operator, and their values at the edge of each limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from math import isqrt
from typing import Any

from byoc_hw.limits import MOST_KERNEL, MOST_PADDING, Limits
from byoc_hw.tensor import Pair


@dataclass(frozen=True)
class Knobs:
    """What a random operator is to be; None is any value that most hardware takes.

    `padding` is on every side of a window, `weight_bits` what the weights need, `multiplier` the output channels of a
    depthwise convolution for each input channel. `sums` are "small", "large" (they need all bits but few), or "beyond"
    (they need more than 32 bits). With `broadcast` the second operand is smaller than the first.
    """

    batch: int = 1
    kernel: Pair | None = None
    strides: Pair | None = None
    padding: int | None = None
    dilation: Pair = (1, 1)
    dtype: str = "int8"
    weight_dtype: str = "int8"
    weight_bits: int = 8
    multiplier: int = 1
    groups: int = 1
    broadcast: bool = False
    sums: str = "small"
    zero_point: int | None = None


@dataclass(frozen=True)
class Edge:
    """Knobs just inside and just outside of a limit of one `knob`; `rule` is how the limit's text begins. `free` is
    what may be had instead, where the hardware has no such limit."""

    knob: str
    rule: str
    inside: tuple[Knobs, ...]
    outside: tuple[Knobs, ...] = ()
    free: str = ""


ANY = Knobs()


def edges(limits: Limits) -> list[Edge]:
    """The edges of every limit of a layer kind, as the description of the accelerator has it."""
    found = []
    if limits.batches is not None:
        found.append(Edge("batch", "batch is ", *_numbers("batch", limits.batches)))
    if limits.max_kernel is not None:
        found.append(_kernel(limits))
    found.append(_padding(limits))
    if limits.strides is not None:
        found.append(Edge("strides", "stride is ", *_pairs("strides", limits.strides)))
    if limits.dilations is not None:
        inside, outside = _pairs("dilation", limits.dilations)
        inside, outside = (tuple(replace(one, kernel=(3, 3)) for one in some) for some in (inside, outside))
        if limits.kernel_parts:  # an element at a time
            inside, outside = (*inside, *outside), ()
        found.append(Edge("dilation", "dilation is ", inside, outside))
    found.append(_types(limits))
    if limits.weight_bits is not None:
        found.append(Edge("weight_dtype", "weight type is ", (ANY,), (Knobs(weight_dtype="int16"),)))
        widest = max(limits.weight_bits)
        inside = tuple(Knobs(weight_bits=bits) for bits in limits.weight_bits)
        found.append(
            Edge("weight_bits", "weight bits is ", inside, (Knobs(weight_bits=widest + 1),) if widest < 8 else ())
        )
    if limits.channel_multipliers is not None:
        found.append(Edge("multiplier", "channel multiplier is ", *_numbers("multiplier", limits.channel_multipliers)))
    if limits.accumulator_bits == 32:
        found.append(
            Edge("sums", "sums, before and after they are scaled, ", (Knobs(sums="large"),), (Knobs(sums="beyond"),))
        )
    several = (Knobs(groups=2), Knobs(groups=3))
    found.append(
        Edge("groups", "groups are 1", (ANY, *several), (), "any number of groups")
        if limits.groups
        else Edge("groups", "groups are 1", (ANY,), several)
    )
    wide_one = (Knobs(broadcast=True),)
    one_shape = "both inputs have one shape"
    found.append(
        Edge("broadcast", one_shape, (ANY, *wide_one), (), "inputs of one shape, or one repeats")
        if limits.broadcast
        else Edge("broadcast", one_shape, (ANY,), wide_one)
    )
    ends = tuple(Knobs(zero_point=point) for point in (-128, 0, 127))
    found.append(
        Edge("zero_point", "zero points are from -128 to 127", ends, (Knobs(zero_point=128), Knobs(zero_point=-129)))
    )
    return found


def _numbers(knob: str, allowed: tuple[int, ...]) -> tuple[tuple[Knobs, ...], tuple[Knobs, ...]]:
    """Every allowed number, and those behind the gaps and the largest."""
    inside = tuple(_with(knob, number) for number in allowed)
    return inside, tuple(_with(knob, number) for number in _others(allowed))


def _pairs(knob: str, allowed: tuple[int, ...]) -> tuple[tuple[Knobs, ...], tuple[Knobs, ...]]:
    """Allowed numbers for rows and for columns; one that is not allowed for either."""
    most = max(allowed)
    inside = tuple(_with(knob, (rows, columns)) for rows in allowed for columns in {most, rows})
    outside = [
        pair for number in _others(allowed) for pair in ((number, allowed[0]), (allowed[0], number), (number, number))
    ]
    return inside, tuple(_with(knob, pair) for pair in outside)


def _with(knob: str, value: Any) -> Knobs:
    return replace(ANY, **{knob: value})


def _others(allowed: tuple[int, ...]) -> list[int]:
    """The first numbers that are not allowed: in gaps, and next to the largest."""
    free = (number for number in count(1) if number not in allowed)
    first = next(free)
    return sorted({first, max(allowed) + 1})


def _kernel(limits: Limits) -> Edge:
    assert limits.max_kernel is not None, "the kind has windows"
    rows, columns = (MOST_KERNEL, MOST_KERNEL) if limits.kernel_parts else limits.max_kernel
    inside = ((rows, 1), (1, columns), (min(rows, 3), min(columns, 3)), limits.max_kernel)
    outside = ((_prime_after(rows), 1), (1, _prime_after(columns)))
    allowed, beyond = (tuple(Knobs(kernel=pair) for pair in some) for some in (inside, outside))
    return Edge("kernel", "kernel is at most ", allowed, beyond)


def _prime_after(number: int) -> int:
    """The next prime: a window over all of so many pixels has no shorter sides."""
    return next(one for one in count(number + 1) if all(one % other for other in range(2, isqrt(one) + 1)))


def _padding(limits: Limits) -> Edge:
    if limits.wide_padding:
        inside = (Knobs(padding=MOST_PADDING, kernel=(2, 2)), Knobs(padding=3, kernel=(2, 2)))
        return Edge("padding", "padding is ", inside, (Knobs(padding=MOST_PADDING + 1, kernel=(2, 2)),))
    rows, columns = limits.max_kernel or (3, 3)
    side = min(rows, columns, 3)
    return Edge(
        "padding",
        "padding is ",
        (Knobs(padding=side - 1, kernel=(side, side)),),
        (Knobs(padding=side, kernel=(side, side)),),
    )


def _types(limits: Limits) -> Edge:
    others = [dtype for dtype in ("int16", "int32", "float32") if dtype not in limits.activation_types]
    inside = tuple(Knobs(dtype=dtype) for dtype in limits.activation_types)
    return Edge("dtype", "activation type is ", inside, tuple(Knobs(dtype=dtype) for dtype in others))
