"""Names: C identifiers, and names that differ, of inputs, layers, C identifiers and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def distinct(
    names: Iterable[str],
    taken: Iterable[str] = (),
    *,
    same: Callable[[str], str] = str,
    longest: int | None = None,
) -> list[str]:
    """A name for each name, no two of them equal, nor equal to one that is `taken`.

    Of names that are equal the first is unchanged, later ones get `_2`, `_3` ... as far as those are free. Two
    names are equal if `same` makes the same of them. `longest` is the length in characters that a suffix may not
    exceed: the name before it is shortened.
    """
    used = {same(name) for name in taken}
    chosen: list[str] = []
    for name in names:
        candidate, number = name, 1
        while same(candidate) in used:
            number += 1
            suffix = f"_{number}"
            candidate = (name if longest is None else name[: longest - len(suffix)]) + suffix
        used.add(same(candidate))
        chosen.append(candidate)
    return chosen


def is_c_name(name: object) -> bool:
    """Whether a value can be the name of something in C."""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
