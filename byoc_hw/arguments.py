"""Checks of arguments: `InvalidInput` with the name, the rule and the value."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from byoc_hw.errors import ByocHwError, InvalidInput

_LONGEST = 60


def shown(value: object) -> str:
    """A value as messages show it: short values themselves, of others the type alone."""
    text = repr(value) if isinstance(value, str | bytes | int | float | tuple | list | None) else ""
    return text if 0 < len(text) <= _LONGEST else f"a {type(value).__name__}"


def check_type(what: str, value: object, types: Any, rule: str) -> None:
    """Raise unless `value` is of one of `types`; `rule` says which: "a list of names"."""
    if not isinstance(value, types):
        raise InvalidInput(f"{what} is {rule}: got {shown(value)}")


def plain_numbers(value: Any) -> Any:
    """Python's number or flag for one of numpy, also inside a tuple; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(plain_numbers, value))
    return value.item() if isinstance(value, np.generic) else value


def with_plain_numbers(described: Any) -> None:
    """Let the fields of a frozen dataclass be Python's numbers where numpy's are given, which JSON has not."""
    for one in fields(described):
        object.__setattr__(described, one.name, plain_numbers(getattr(described, one.name)))


def check_flag(what: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    check_type(what, value, bool | np.bool_, "True or False")


def check_whole(what: str, value: object, least: int = 0, most: int | None = None) -> None:
    """Raise unless `value` is a whole number of at least `least`, and at most `most`. A bool is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InvalidInput(f"{what} is a whole number: got {shown(value)}")
    if value < least:
        raise InvalidInput(f"{what} is at least {least}: got {value}")
    if most is not None and value > most:
        raise InvalidInput(f"{what} is at most {most}: got {value}")


def check_one_of(what: str, value: object, known: tuple[object, ...]) -> None:
    """Raise unless `value` is one of `known`."""
    if not isinstance(value, str | int) or value not in known:
        raise InvalidInput(f"{what} is one of {', '.join(map(str, known))}: got {shown(value)}")


def check_number(what: str, value: object, *, positive: bool, most: float = math.inf) -> None:
    """Raise unless `value` is a finite number above 0, or of at least 0, and at most `most`."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    least = "above 0" if positive else "of at least 0"
    if not number or not 0 <= value <= sys.float_info.max or (positive and value == 0):  # type: ignore[operator]
        raise InvalidInput(f"{what} is a finite number {least}: got {shown(value)}")
    if value > most:  # type: ignore[operator]
        raise InvalidInput(f"{what} is at most {most}: got {value}")


@contextmanager
def errors_of(
    what: str, kind: type[ByocHwError] = InvalidInput, but: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Let an error in what the caller wrote be one of a `kind` that says where, unless it is ours, or one of `but`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (ByocHwError, *but)):
            raise
        raise kind(f"{what}: {type(error).__name__}: {error}") from error


def asked(what: str, function: Callable[..., Any], *arguments: object) -> Any:
    """What a function of the caller's returns. `InvalidInput` with its error where it fails."""
    with errors_of(what):
        return function(*arguments)
