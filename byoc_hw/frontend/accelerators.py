"""The registry of accelerators, by compiler name and by digest.

A partitioned module records only the digest of its accelerator, because an `Accelerator` may hold Python functions.
The registry maps the digest back to the value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.errors import InvalidInput
from byoc_hw.soc import Hardware


def remember(accelerator: Hardware) -> str:
    """Register an accelerator in this process; returns its digest."""
    digest = digest_of(accelerator)
    _known[digest] = accelerator
    return digest


def by_name(compiler: str) -> Hardware:
    """The accelerator that was registered first under a compiler name."""
    for accelerator in _known.values():
        if accelerator.name == compiler:
            return accelerator
    names = ", ".join(dict.fromkeys(accelerator.name for accelerator in _known.values()))
    raise InvalidInput(f"compiler is one of {names}: got {compiler!r}")


def known(digest: str) -> Hardware | None:
    """The accelerator with a digest, if this process knows it."""
    return _known.get(digest)


def by_digest(digest: str, label: str) -> Hardware:
    """The accelerator whose digest a module records."""
    if digest not in _known:
        raise InvalidInput(
            f"the module was partitioned for accelerator {label}, which this process does not know: "
            "partition it here, or call partition_for_hwlib once with that accelerator"
        )
    return _known[digest]


def digest_of(accelerator: Hardware) -> str:
    """A digest that is equal for equal descriptions, in every process; functions are hashed by name, code, and what
    they are bound to."""
    return hashlib.sha256(repr(_plain(accelerator)).encode()).hexdigest()[:16]


def _plain(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value as lists and texts; `inside` are those, by identity, that it is part of."""
    if id(value) in inside:
        return "again"
    inside = (*inside, id(value))
    if isinstance(value, type):
        return value.__module__, value.__qualname__
    if is_dataclass(value):
        return [(entry.name, _plain(getattr(value, entry.name), inside)) for entry in fields(value)]
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item, inside)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return [_plain(item, inside) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, CodeType):
        return value.co_name, value.co_code, value.co_names, value.co_firstlineno, _plain(value.co_consts, inside)
    parts = _parts_of(value) if callable(value) else None
    return str(value) if parts is None else _plain(parts, inside)


def _parts_of(function: Any) -> object:
    """What a function computes by; of an object that is called, its class and its attributes."""
    if isinstance(function, FunctionType):
        cells = [cell for cell in function.__closure__ or () if cell != CellType()]  # not those without a value
        bound = [cell.cell_contents for cell in cells]
        name = function.__module__, function.__qualname__
        return name, function.__code__, function.__defaults__, function.__kwdefaults__, bound
    if isinstance(function, MethodType):
        return function.__func__, type(function.__self__), getattr(function.__self__, "__dict__", None)
    if isinstance(function, partial):
        return function.func, function.args, function.keywords
    attributes = getattr(function, "__dict__", None)
    return None if attributes is None else (type(function), attributes)


_known: dict[str, Hardware] = {digest_of(preset): preset for preset in (REFERENCE, DIANA_DIGITAL, SMALL)}
