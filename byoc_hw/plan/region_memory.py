"""Lifetimes of the main memory that one call of a region uses, for the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Lifetime:
    """A buffer that is live from step `first` to step `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int
    owner: str


@dataclass(frozen=True)
class RegionMemory:
    """The main memory that one call of a region uses, moment by moment.

    `moments` are their names: the layers' calls in order, then the end of the region. `scratch`
    are the intermediates, named uniquely; `arguments` gives the first and last moment that touches each
    argument, inputs first, or None where none does. `blocks` names the block of each tensor that
    is in scratch.
    """

    moments: tuple[str, ...]
    scratch: tuple[Lifetime, ...]
    arguments: tuple[tuple[int, int] | None, ...]
    alignment: int
    blocks: Mapping[Tensor, str]


NOTHING = RegionMemory((), (), (), 1, {})
"""The default, for a plan that was written by hand."""
