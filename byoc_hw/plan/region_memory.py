"""What one call of a region touches in main memory, and when: as data for the arena."""

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
    """What one call of a region touches in main memory, moment by moment.

    `moments` names them: the layers' calls in order, then the end, with what ends only there. `scratch`
    are the intermediates, named uniquely; `arguments` gives the first and last moment that touches each
    argument, inputs first, or None where none does. `blocks` names the block of each tensor that
    lies in scratch.
    """

    moments: tuple[str, ...]
    scratch: tuple[Lifetime, ...]
    arguments: tuple[tuple[int, int] | None, ...]
    alignment: int
    blocks: Mapping[Tensor, str]


NOTHING = RegionMemory((), (), (), 1, {})
"""Of a plan that was written by hand."""
