"""Lifetimes of the main memory that one call of a region uses, for the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from byoc_hw.integers import round_up
from byoc_hw.tensor import Tensor

UNIT = 16
"""Bytes of main memory are counted in these: what alignment may add to a block."""


class Lifetime(NamedTuple):
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
    is in scratch. Copies read and write whole words of `word` bytes: also behind the end of an argument.
    `constants` are bytes of RAM with constants, for a DMA that cannot read flash.
    """

    moments: tuple[str, ...]
    scratch: tuple[Lifetime, ...]
    arguments: tuple[tuple[int, int] | None, ...]
    alignment: int
    blocks: Mapping[Tensor, str]
    word: int = 1
    constants: int = 0

    def peak(self, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> int:
        """The most bytes of RAM at any moment."""
        return max(self.live(inputs, outputs), default=self.constants)

    def live(self, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> list[int]:
        """The bytes of RAM at each moment, of constants, scratch and some arguments: their bytes by index.

        An input is there up to the last moment that touches it, an output from the first one on.
        """
        live = [self.constants] * len(self.moments)
        for life in self.scratch:
            for moment in range(life.first, life.last + 1):
                live[moment] += round_up(life.nbytes, UNIT)
        for index, nbytes in (*inputs.items(), *outputs.items()):
            first, last = self.arguments[index] or (0, -1)
            for moment in range(last + 1) if index in inputs else range(first, len(live)):
                live[moment] += round_up(nbytes, UNIT)
        return live


NOTHING = RegionMemory((), (), (), 1, {})
"""The default, for a plan that was written by hand."""
