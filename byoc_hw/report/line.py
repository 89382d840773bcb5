"""The `repr` of what people print in a session: one line of a terminal."""

from __future__ import annotations

COLUMNS = 100
"""The most characters of a line."""


def line(of: object, name: str, text: str) -> str:
    """`<Report digits: 13 of 14 operators ...>`: the type, a name, and numbers. A long name is cut to fit."""
    kind = type(of).__name__
    room = COLUMNS - len(f"<{kind} : {text}>")
    shown = name if len(name) <= room else f"{name[: max(0, room - 3)]}..."
    return f"<{kind} {shown}: {text}>"


def counted(number: int, noun: str) -> str:
    """A number and its noun: "1 region", "2 regions"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times_bound(cycles: int, bound: int) -> str:
    """Planned cycles over those that no plan goes below, in a sentence."""
    return f"{cycles / bound:.2f} of the bound" if bound else "the least"


def share_of(part: int, whole: int) -> str:
    """A number, the whole, and the share: "13 of 14 (93%)"; below 100% where anything is missing."""
    if not whole:
        return f"{part:,} of {whole:,}"
    share = part / whole
    digits = 0 if share == 1 or share <= 0.99 else 2 if share < 0.9999 else 4
    return f"{part:,} of {whole:,} ({share:.{digits}%})"
