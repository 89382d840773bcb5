"""What a program has worked out, while it is one of the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

_Value = TypeVar("_Value")
_Owner = TypeVar("_Owner")
_Others = ParamSpec("_Others")


class Remembered(Generic[_Value]):
    """At most so many values by key: those that were kept or asked for last. Threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._values: dict[Hashable, _Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> _Value | None:
        """The value of a key, if it is there."""
        with self._lock:
            if key not in self._values:
                return None
            self._values[key] = value = self._values.pop(key)
            return value

    def keep(self, key: Hashable, value: _Value) -> _Value:
        """Remember a value, which is returned, and forget the one that was not asked for the longest."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._most:
                del self._values[next(iter(self._values))]
        return value


class _Kept(dict[Hashable, Any]):
    """What a function has found out, by its other arguments. A copy of the object that it is kept in has nothing."""

    def __reduce__(self) -> tuple[type[_Kept], tuple[()]]:
        return _Kept, ()


def kept_in_first(
    function: Callable[Concatenate[_Owner, _Others], _Value],
) -> Callable[Concatenate[_Owner, _Others], _Value]:
    """Keep what a function finds out in its first argument, for each value of the others: it is forgotten with that,
    whose weights may be large. For arguments by position."""
    name = f"_{function.__module__}.{function.__qualname__}"

    def known(owner: _Owner, /, *others: _Others.args, **named: _Others.kwargs) -> _Value:
        assert not named, "arguments are by position"
        try:
            found = owner.__dict__[name]
        except KeyError:
            found = owner.__dict__.setdefault(name, _Kept())
        try:
            value: _Value = found[others]
        except KeyError:
            value = found[others] = function(owner, *others, **named)
        return value

    return wraps(function)(known)
