"""Whole numbers: division that rounds up, what is cut into pieces of one size, and the largest one that fits."""

from __future__ import annotations

from collections.abc import Callable

LARGEST_INT32 = 2**31 - 1
"""Of any number that generated C has in 32 bits."""


def ceil_div(value: int, divisor: int) -> int:
    """`value / divisor`, rounded up."""
    return -(-value // divisor)


def round_up(value: int, unit: int) -> int:
    """The next multiple of `unit`: `value` itself where it is one."""
    return ceil_div(value, unit) * unit


def piece_sizes(total: int, size: int) -> list[tuple[int, int]]:
    """How often each size occurs when `total` is cut into pieces of `size`: (count, size), full ones first."""
    whole, rest = divmod(total, size)
    return [(count, piece) for count, piece in ((whole, size), (1, rest)) if count and piece]


def even_size(total: int, most: int) -> int:
    """The size of pieces of `total` that are as large as each other, of as many as pieces of size `most` would be."""
    return ceil_div(total, ceil_div(total, most))


def largest_allowed(limit: int, allowed: Callable[[int], bool]) -> int:
    """The largest allowed value of 1 .. `limit`, 0 if none. All values below an allowed one are allowed."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if allowed(middle):
            low = middle
        else:
            high = middle - 1
    return low
