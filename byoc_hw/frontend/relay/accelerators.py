"""The accelerators of this process, by compiler name and by digest, and the current partitioning.

A module records the digest of the accelerator that it was partitioned for; the value itself may hold Python
functions, so it is found here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL, Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Layer
from byoc_hw.pattern import Recorder


def remember(accelerator: Accelerator) -> str:
    """Make an accelerator known to this process; its digest."""
    digest = digest_of(accelerator)
    _known[digest] = accelerator
    return digest


def by_name(compiler: str) -> Accelerator:
    """The accelerator that was first known under a compiler name."""
    for accelerator in _known.values():
        if accelerator.name == compiler:
            return accelerator
    names = ", ".join(dict.fromkeys(accelerator.name for accelerator in _known.values()))
    raise InvalidInput(f"compiler is one of {names}: got {compiler!r}")


def by_digest(digest: str, label: str) -> Accelerator:
    """The accelerator that a module names."""
    if digest not in _known:
        raise InvalidInput(
            f"the module was partitioned for accelerator {label}, which this process does not know: "
            "partition it here, or call partition_for_hwlib once with that accelerator"
        )
    return _known[digest]


def digest_of(accelerator: Accelerator) -> str:
    """Equal for equal descriptions, in every process; functions count by name and code."""
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


@dataclass(frozen=True)
class Session:
    """One partitioning: what its checks ask, and the optimize hook, which TVM gives a module only.

    `why_no_plan` is the backend's. `no_nchw` says why operators in NCHW stay on the host, where they do.
    """

    accelerator: Accelerator
    why_no_plan: Callable[[Layer, Accelerator], str | None]
    deny: Sequence[str] = ()
    numerics: str = "relay"
    no_nchw: str = ""
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def nchw_problem(self) -> str:
        """Why an operator in NCHW cannot be taken, or ""."""
        return self.no_nchw or ("" if "transpose" in self.accelerator.limits else "the accelerator has no transpose")


session: ContextVar[Session | None] = ContextVar("byoc_hw.session", default=None)
"""The partitioning that this thread is at."""

_known = {digest_of(preset): preset for preset in (REFERENCE, DIANA_DIGITAL, SMALL)}
