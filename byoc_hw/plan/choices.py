"""The choices of the planner for a region, as data. They determine the rest of the plan.

The planner makes them (`search/`), the tuner tries others (`tune/`), and a tuning file holds the best ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from byoc_hw.errors import PlanError


class Tiling(NamedTuple):
    """Sizes of a tile, in elements; `depth` is the slice of input channels that a job sums over.

    Channels are the outer loop, so that weights are loaded once, unless `rows_outer`. With
    `whole_ifm` the input tile holds all input channels though only a slice of weights fits.
    If it is `packed`, a job takes all rows of a tile as one.
    """

    rows: int
    columns: int
    channels: int
    depth: int
    rows_outer: bool = False
    whole_ifm: bool = False
    packed: bool = False

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        return {name: value for name, value in self._asdict().items() if name != "packed" or value}

    def __str__(self) -> str:
        order = ", rows outer" if self.rows_outer else ""
        packed = ", rows packed" if self.packed else ""
        return f"{self.rows}x{self.columns}x{self.channels} from {self.depth} channels{order}{packed}"


PIECES = (1, 4)
"""The pieces of stripes, patches and tiles that are tried."""


@dataclass(frozen=True)
class Group:
    """Consecutive layers that are computed stripe by stripe, one after the other in each stripe.

    The rows of the last layer's output are cut in `stripes`; for each, every layer computes the rows that
    the layers behind it read. The storages `held` (by index) lie in local memory in full, from the group that
    makes or loads them to the last consecutive group that holds them. Of other storages local memory has a tile
    for each stripe, and main memory the bytes that another group reads. With `overlap` a stripe is loaded, and the one
    before it stored, while the array computes. With `resident` the weights of all layers of the group stay
    until its end; with `alternating` every second stripe or patch takes slices and blocks of weights in reverse
    order, and those that fit beside the others stay from one to the next. A `tiling` cuts a single layer along every
    axis, from main memory to main memory.

    Rows that two stripes share (the halo) are computed for both. Of the storages `kept` (by index), which lie between
    layers of the group, they are computed once: main memory has them from one stripe to the next.

    With several `columns` each stripe is cut into so many patches, from left to right, and every layer computes what a
    patch takes, with its halo in both directions. With several `slices`, layers that work channel by channel, or
    element by element, are computed together with the one before them, so many slices of their channels one after the
    other: what lies between them is never in local memory with all of its channels. With `summed`, a layer behind them
    that sums over channels adds up their slices as these are made, and local memory has its partial sums in place of
    all that it reads. With `slices_outer` all patches of a slice are computed before those of the next one: weights of
    a slice are loaded once, and what the group reads, and layers before the slices make, is loaded and made for each
    slice again.

    With several `pieces` the copies and jobs of a stripe, a patch or a tile are cut by rows: the next one is loaded
    piece by piece over what is used up, and what is made is stored piece by piece.
    """

    layers: int
    stripes: int = 1
    held: frozenset[int] = frozenset()
    overlap: bool = True
    resident: bool = True
    tiling: Tiling | None = None
    columns: int = 1
    slices: int = 1
    kept: frozenset[int] = frozenset()
    alternating: bool = False
    summed: bool = False
    slices_outer: bool = False
    pieces: int = 1

    @property
    def patched(self) -> bool:
        """Whether a stripe is more than rows of all columns and channels."""
        return self.columns > 1 or self.slices > 1

    def plain(self) -> dict[str, Any]:
        """As a JSON value. Tuning files call `held` "whole"."""
        plain: dict[str, Any] = {
            "layers": self.layers,
            "stripes": self.stripes,
            "whole": sorted(self.held),
            "overlap": self.overlap,
            "resident": self.resident,
        }
        if self.tiling is not None:
            plain["tiling"] = self.tiling.plain()
        for name in ("columns", "slices", "pieces"):
            if getattr(self, name) > 1:
                plain[name] = getattr(self, name)
        if self.kept:
            plain["kept"] = sorted(self.kept)
        for name in ("alternating", "summed", "slices_outer"):
            if getattr(self, name):
                plain[name] = True
        return plain

    def __str__(self) -> str:
        shape = "whole" if self.stripes == 1 else f"{self.stripes} stripes"
        if self.columns > 1:
            shape = f"{self.stripes}x{self.columns} patches"
        if self.slices > 1:
            shape += f" in {self.slices} slices of channels{' that are summed' * self.summed}"
            shape += ", slices outer" * self.slices_outer
        parts = [shape if self.tiling is None else f"tiles of {self.tiling}"]
        if self.held:
            parts.append(f"held {sorted(self.held)}")
        if self.kept:
            parts.append(f"halo kept {sorted(self.kept)}")
        if self.stripes > 1 or self.patched or self.tiling is not None:
            parts += ["overlap"] * self.overlap + ["resident weights"] * self.resident
            parts += ["alternating weights"] * self.alternating
        if self.pieces > 1:
            parts.append(f"in {self.pieces} pieces")
        return "  ".join(parts)


@dataclass(frozen=True)
class Blocks:
    """The numbers of output channels and input channels of a block of weights."""

    channels: int
    depth: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.depth}"


@dataclass(frozen=True)
class Choices:
    """A region's choices: the swapped components, the groups, and the blocks of each layer's weights.

    With `copies_transpose` the copies of the region's arguments do the transpositions at its border; without it
    those are layers. With `jobs_transpose` inputs whose height and width are swapped lie in local memory as in main
    memory, where windows alone read them: jobs take rows and pixels at other distances. `placed` are the concatenations
    whose inputs are written into their output in local memory, and the slices that are read in place, by index of the
    layer; `stored` the concatenations whose inputs are stored into their output in main memory, or are put together as
    they are loaded, the padding that is filled in and the rows that are repeated so, the slices that are stored from
    their input, or loaded from where it lies in main memory, and the transpositions that are done by the stores of
    their input. The others are copies.
    `packed` are the bands of layers whose rows are packed. With `apart`, groups that hand nothing over in local memory
    are placed each by itself, and ordered so or all together: they take no more cycles than one after the other. With
    `fine` copies and jobs are cut in two where one engine waits for the other; with both, those of each such piece by
    itself.
    """

    swapped: tuple[bool, ...]
    groups: tuple[Group, ...]
    blocks: tuple[Blocks | None, ...]
    copies_transpose: bool = True
    placed: frozenset[int] = frozenset()
    stored: frozenset[int] = frozenset()
    packed: frozenset[int] = frozenset()
    apart: bool = False
    fine: bool = False
    jobs_transpose: bool = False

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first layer of each group, and the first after it."""
        stops = list(accumulate((group.layers for group in self.groups), initial=0))
        return list(pairwise(stops))

    def with_group(self, index: int, *groups: Group) -> Choices:
        """The same choices with one group replaced by others."""
        return replace(self, groups=(*self.groups[:index], *groups, *self.groups[index + 1 :]))

    def plain(self) -> dict[str, Any]:
        """As a JSON value. Tuning files call `copies_transpose` "direct"."""
        plain: dict[str, Any] = {
            "swapped": list(self.swapped),
            "groups": [group.plain() for group in self.groups],
            "direct": self.copies_transpose,
            "blocks": [None if cut is None else [cut.channels, cut.depth] for cut in self.blocks],
        }
        for name in ("placed", "stored", "packed"):
            if getattr(self, name):
                plain[name] = sorted(getattr(self, name))
        for name in ("apart", "fine", "jobs_transpose"):
            if getattr(self, name):
                plain[name] = True
        return plain

    def __str__(self) -> str:
        """One line for the region, then one a group; `%n` is the output of layer n."""
        swapped = [str(number) for number, value in enumerate(self.swapped) if value]
        border = "copies transpose" if self.copies_transpose else "layers transpose"
        border += ", and jobs as they read inputs" * self.jobs_transpose
        placed = "".join(
            f"; {name} {', '.join(f'%{index}' for index in sorted(getattr(self, name)))}"
            for name in ("placed", "stored")
            if getattr(self, name)
        )
        if self.packed:
            placed += f"; packed bands: {', '.join(map(str, sorted(self.packed)))}"
        placed += "; groups apart" * self.apart + "; cut finely" * self.fine
        lines = [f"swapped components: {', '.join(swapped) or 'none'}; at the border {border}{placed}"]
        for number, (group, (first, stop)) in enumerate(zip(self.groups, self.spans, strict=True)):
            layers = f"%{first}" if group.layers == 1 else f"%{first}..%{stop - 1}"
            cuts = [
                str(cut) if group.layers == 1 else f"%{index} {cut}"
                for index, cut in enumerate(self.blocks[first:stop], first)
                if cut is not None
            ]
            weights = f"  weights in blocks {', '.join(cuts)}" if cuts else ""
            lines.append(f"group {number:<3} {layers:<10} {group}{weights}")
        return "\n".join(lines)


def from_plain(plain: Mapping[str, Any]) -> Choices:
    """Choices from their JSON value. Raises `PlanError` for any other value."""
    try:
        return Choices(
            tuple(bool(value) for value in plain["swapped"]),
            tuple(_group(value) for value in plain["groups"]),
            tuple(_blocks(value) for value in plain["blocks"]),
            bool(plain["direct"]),
            frozenset(map(int, plain.get("placed", ()))),
            frozenset(map(int, plain.get("stored", ()))),
            frozenset(map(int, plain.get("packed", ()))),
            bool(plain.get("apart", False)),
            bool(plain.get("fine", False)),
            bool(plain.get("jobs_transpose", False)),
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
        _positive(plain.get("columns", 1)),
        _positive(plain.get("slices", 1)),
        frozenset(map(int, plain.get("kept", ()))),
        bool(plain.get("alternating", False)),
        bool(plain.get("summed", False)),
        bool(plain.get("slices_outer", False)),
        _positive(plain.get("pieces", 1)),
    )


def _tiling(
    rows: int, columns: int, channels: int, depth: int, rows_outer: bool, whole_ifm: bool, packed: bool = False
) -> Tiling:
    sizes = _positive(rows), _positive(columns), _positive(channels), _positive(depth)
    return Tiling(*sizes, rows_outer=bool(rows_outer), whole_ifm=bool(whole_ifm), packed=bool(packed))


def _blocks(plain: Sequence[int] | None) -> Blocks | None:
    if plain is None:
        return None
    channels, depth = plain
    return Blocks(_positive(channels), _positive(depth))


def _positive(value: int) -> int:
    if int(value) < 1:
        raise ValueError(f"sizes and numbers are at least 1: got {value}")
    return int(value)
