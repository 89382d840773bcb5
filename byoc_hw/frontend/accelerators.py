"""The registry of accelerators, by compiler name and by digest.

A partitioned module records only the digest of its accelerator, because an `Accelerator` may hold Python functions.
The registry maps the digest back to the value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

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
    """A digest that is equal for equal descriptions, in every process; functions are hashed by name and code."""
    return hashlib.sha256(repr(_plain(accelerator)).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [(entry.name, _plain(getattr(value, entry.name))) for entry in fields(value)]
    if isinstance(value, Mapping):
        return sorted((key, _plain(item)) for key, item in value.items())
    if callable(value):
        code = getattr(value, "__code__", None)
        return (value.__module__, value.__qualname__, code and (code.co_code, code.co_names, code.co_firstlineno))
    return str(value)


_known: dict[str, Hardware] = {digest_of(preset): preset for preset in (REFERENCE, DIANA_DIGITAL, SMALL)}
