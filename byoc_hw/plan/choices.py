"""What is decided about a region, as data: everything else follows from it.

The planner decides by itself (`search.py`), the tuner looks for better, and a file can bring what
was found before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from byoc_hw.errors import PlanError
from byoc_hw.plan.tiling import Tiling


@dataclass(frozen=True)
class Group:
    """Consecutive layers that take turns, stripe by stripe.

    The rows of the last layer's output are cut in `stripes`; for each, every layer computes the rows
    that it takes. Storages in `whole` (by index) lie in local memory in full, from where they are made
    or loaded up to the last group in a row that has them; of the others there is a tile for each
    stripe, and main memory holds what another group needs. With `overlap` a stripe's input is loaded,
    and the output of the one before stored, while it is computed. With `resident` the weights of all
    its layers stay until its end. A `tiling` cuts a single layer freely, from main memory to main memory.
    """

    layers: int
    stripes: int = 1
    whole: frozenset[int] = frozenset()
    overlap: bool = True
    resident: bool = True
    tiling: Tiling | None = None

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        plain: dict[str, Any] = {
            "layers": self.layers,
            "stripes": self.stripes,
            "whole": sorted(self.whole),
            "overlap": self.overlap,
            "resident": self.resident,
        }
        if self.tiling is not None:
            plain["tiling"] = vars(self.tiling)
        return plain


@dataclass(frozen=True)
class Blocks:
    """How many output channels' weights are loaded at a time, and how many of their input channels."""

    channels: int
    depth: int


@dataclass(frozen=True)
class Choices:
    """A region's choices: which components are swapped, its groups, and by layer how its weights are cut.

    With `direct` the copies of the region's arguments do what transpositions there are at its border.
    """

    swapped: tuple[bool, ...]
    groups: tuple[Group, ...]
    blocks: tuple[Blocks | None, ...]
    direct: bool = True

    def with_group(self, index: int, *groups: Group) -> Choices:
        """The same choices with one group replaced by others."""
        return replace(self, groups=(*self.groups[:index], *groups, *self.groups[index + 1 :]))

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "swapped": list(self.swapped),
            "groups": [group.plain() for group in self.groups],
            "direct": self.direct,
            "blocks": [None if cut is None else [cut.channels, cut.depth] for cut in self.blocks],
        }


def from_plain(plain: Mapping[str, Any]) -> Choices:
    """Choices from their JSON value. Raises `PlanError` for a value that is none."""
    try:
        return Choices(
            tuple(bool(value) for value in plain["swapped"]),
            tuple(_group(value) for value in plain["groups"]),
            tuple(_blocks(value) for value in plain["blocks"]),
            bool(plain["direct"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"choices of a plan are as byoc_hw wrote them: {type(error).__name__}: {error}") from error


def _group(plain: Mapping[str, Any]) -> Group:
    tiling = plain.get("tiling")
    return Group(
        _positive(plain["layers"]),
        _positive(plain["stripes"]),
        frozenset(map(int, plain["whole"])),
        bool(plain["overlap"]),
        bool(plain["resident"]),
        None if tiling is None else _tiling(**tiling),
    )


def _tiling(rows: int, columns: int, channels: int, depth: int, rows_outer: bool, whole_ifm: bool) -> Tiling:
    sizes = _positive(rows), _positive(columns), _positive(channels), _positive(depth)
    return Tiling(*sizes, rows_outer=bool(rows_outer), whole_ifm=bool(whole_ifm))


def _blocks(plain: Sequence[int] | None) -> Blocks | None:
    if plain is None:
        return None
    channels, depth = plain
    return Blocks(_positive(channels), _positive(depth))


def _positive(value: int) -> int:
    if int(value) < 1:
        raise ValueError(f"sizes and numbers are at least 1: got {value}")
    return int(value)
