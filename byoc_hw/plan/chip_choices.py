"""All that is decided for a region on a chip of several accelerators: the plan follows from it.

The planner makes these choices (`lanes/`), and so does the tuner; a tuning file holds the best ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Choices, from_plain


@dataclass(frozen=True)
class PartCut:
    """Consecutive layers of a region, by index, that one accelerator runs: `lane` is its index.

    With `rows` only the indices of dimension `axis` of the last layer's output in this range, and of the layers before
    it what that needs: rows, columns or channels. Layers that compute each pixel from the same one of their inputs may
    be `flat`: their rows are pixels. Only a single convolution of these is cut along channels as well.
    """

    lane: int
    layers: tuple[int, ...]
    axis: int = 0
    rows: tuple[int, int] | None = None
    flat: bool = False

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        plain: dict[str, Any] = {"lane": self.lane, "layers": list(self.layers)}
        if self.rows is not None:
            plain |= {"axis": self.axis, "rows": list(self.rows)}
        return plain | ({"flat": True} if self.flat else {})


@dataclass(frozen=True)
class PartChoices:
    """A part of a region, and the choices of its layers; with `pieces` its inputs are loaded in pieces."""

    cut: PartCut
    choices: Choices
    pieces: bool = False

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        return self.cut.plain() | {"choices": self.choices.plain()} | ({"pieces": True} if self.pieces else {})


@dataclass(frozen=True)
class ChipChoices:
    """A region's choices on a chip.

    `order` are the region's layers, by index, in the order in which `parts` number them. `lanes` are the accelerators,
    by index, that the region is cut for, as on a chip of these alone. `swapped` says which of the region's components
    have height and width swapped. The parts of an accelerator run in their order. With `alone` the only part has all
    layers as one accelerator would have them: its own choices say what is swapped. With `divided` each accelerator has
    a share of the local memory that it shares with others (`Soc.share_of`): its parts have no more. The outputs of the
    layers of each of `blocks`, numbered as in `parts`, share bytes of main memory.
    """

    order: tuple[int, ...]
    lanes: tuple[int, ...]
    swapped: tuple[bool, ...]
    parts: tuple[PartChoices, ...]
    alone: bool = False
    divided: bool = False
    blocks: tuple[tuple[int, ...], ...] = ()

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "order": list(self.order),
            "lanes": list(self.lanes),
            "swapped": list(self.swapped),
            "parts": [part.plain() for part in self.parts],
            "alone": self.alone,
            **({"divided": True} if self.divided else {}),
            **({"blocks": [list(block) for block in self.blocks]} if self.blocks else {}),
        }

    def __str__(self) -> str:
        """A few lines for each part; `%n` is the output of layer n."""
        head = "shared local memory is divided\n" * self.divided
        parts = [f"{_text_of(part.cut, self.order)}\n{part.choices}" for part in self.parts]
        blocks = [f"one block of main memory: {_names_of(block, self.order)}" for block in self.blocks]
        return head + "\n".join([*parts, *blocks])


def _names_of(layers: tuple[int, ...], order: tuple[int, ...]) -> str:
    return ", ".join(f"%{order[index]}" for index in layers)


def _text_of(cut: PartCut, order: tuple[int, ...]) -> str:
    layers = _names_of(cut.layers, order)
    share = "" if cut.rows is None else f", {cut.rows[0]} to {cut.rows[1]} of dimension {cut.axis}"
    return f"accelerator {cut.lane}: {layers}{share}{', pixels in one row' * cut.flat}"


def chip_choices_from_plain(plain: Mapping[str, Any]) -> ChipChoices:
    """Choices from their JSON value. Raises `PlanError` for any other value."""
    try:
        return ChipChoices(
            tuple(map(int, plain["order"])),
            tuple(map(int, plain["lanes"])),
            tuple(map(bool, plain["swapped"])),
            tuple(_part(part) for part in plain["parts"]),
            bool(plain["alone"]),
            bool(plain.get("divided", False)),
            tuple(tuple(map(int, block)) for block in plain.get("blocks", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"choices of a plan are as byoc_hw wrote them: {type(error).__name__}: {error}") from error


def _part(plain: Mapping[str, Any]) -> PartChoices:
    rows = None
    if "rows" in plain:
        first, stop = map(int, plain["rows"])
        rows = first, stop
    layers = tuple(map(int, plain["layers"]))
    cut = PartCut(int(plain["lane"]), layers, int(plain.get("axis", 0)), rows, bool(plain.get("flat", False)))
    return PartChoices(cut, from_plain(plain["choices"]), bool(plain.get("pieces", False)))
