"""The whole model: its interface, and the calls of one inference in order.

The calls run host functions and regions; buffers connect them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Graph

ALIGNMENT = 16
"""Alignment in bytes of every buffer in the arena, which generated host code relies on."""


@dataclass(frozen=True)
class Buffer:
    """A tensor of the whole model: an input, output or intermediate of `<mod_name>_run`."""

    name: str
    nbytes: int
    role: Literal["input", "output", "intermediate"] = "intermediate"
    shape: tuple[int, ...] = ()
    dtype: str = "int8"


@dataclass(frozen=True)
class Workspace:
    """Bytes of the arena that a host function uses while it runs; `HostCall.moments` says when."""

    name: str
    nbytes: int
    alignment: int


@dataclass(frozen=True)
class HostCall:
    """A C function that TVM generated. It addresses its own workspace inside the arena.

    It writes the last `results` of its arguments. `moments` are the sets of arguments and workspaces,
    by name, that are live at the same time while it runs; without any, all arguments are live
    throughout.
    """

    symbol: str
    arguments: tuple[Buffer, ...]
    source: tuple[str, ...] = ()
    results: int = 1
    moments: tuple[frozenset[str], ...] = ()

    @property
    def written(self) -> tuple[Buffer, ...]:
        """The arguments that it writes."""
        return self.arguments[len(self.arguments) - self.results :]


@dataclass(frozen=True)
class RegionCall:
    """A call of a region: the graph's inputs, then its outputs; its scratch comes from the arena."""

    graph: Graph
    arguments: tuple[Buffer, ...]


@dataclass(frozen=True)
class WaitCall:
    """Waits for a region whose call returned while it was running; has the arguments of that call.

    A region without a `WaitCall` has ended when its call returns.
    """

    graph: Graph
    arguments: tuple[Buffer, ...]


@dataclass(frozen=True)
class CopyCall:
    """Copies a buffer to a model output (an input that is passed through, for example)."""

    source: Buffer
    target: Buffer


Call = HostCall | RegionCall | WaitCall | CopyCall


@dataclass(frozen=True)
class Program:
    """A whole model: its interface, and the calls of one inference in order."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    calls: tuple[Call, ...]

    @property
    def regions(self) -> tuple[Graph, ...]:
        return tuple(call.graph for call in self.calls if isinstance(call, RegionCall))

    @property
    def returning_early(self) -> frozenset[str]:
        """The names of the regions that have a `WaitCall`."""
        return frozenset(call.graph.name for call in self.calls if isinstance(call, WaitCall))


def check_mod_name(mod_name: str) -> None:
    """Raise `InvalidInput` unless `mod_name` can be the prefix of the C names of a project."""
    if not isinstance(mod_name, str):
        raise InvalidInput(f"mod_name is a string: got {mod_name!r}")
    if not mod_name:
        raise InvalidInput("mod_name has at least one character: got ''")
    for character in mod_name:
        if not (character.isascii() and (character.isalnum() or character == "_")):
            raise InvalidInput(f"mod_name {mod_name!r}: characters are letters, digits and _: got {character!r}")
    if mod_name[0].isdigit():
        raise InvalidInput(f"mod_name {mod_name!r}: the first character is a letter or _: got {mod_name[0]!r}")
