"""Whole numbers: division that rounds up, and what is cut into pieces of one size."""

from __future__ import annotations


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
