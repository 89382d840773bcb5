"""A mesh of processing elements as data: each a core with one accelerator, joined by links to its four neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from byoc_hw.accelerator import KIB, REFERENCE, Accelerator
from byoc_hw.arguments import check_type, check_whole, shown, with_plain_numbers
from byoc_hw.errors import InvalidInput
from byoc_hw.integers import LARGEST_INT32, ceil_div

Coordinates = tuple[int, int]
"""Column and row of a PE, from 0."""

_MOST_SIDE = 4096


@dataclass(frozen=True)
class Link:
    """What joins two neighbours, in each direction: bytes a cycle, and the cycles that a message takes for a hop."""

    bytes_per_cycle: int = 16
    hop_cycles: int = 5

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_whole("link: bytes_per_cycle", self.bytes_per_cycle, 1, 2**20)
        check_whole("link: hop_cycles", self.hop_cycles, 0, 2**20)

    def beats(self, nbytes: int) -> int:
        """The cycles that a message of so many bytes keeps a link busy."""
        return ceil_div(nbytes, self.bytes_per_cycle)


@dataclass(frozen=True)
class Mesh:
    """`width` x `height` processing elements (PEs), each a core with the accelerator `pe`, and links to neighbours.

    `memory` is the bytes of a PE for code and data. The local memories of `pe` lie in it, and `code` bytes of it are
    for code, stack and tables; the rest is for weights, activations and the buffers of channels. `ram` and `flash` of
    `pe` do not count. The PEs are on `chips`, columns x rows of them, each with as many PEs; a link from one chip to
    another is `between_chips` if that is given. PEs in `dead` are not used; messages pass their routers.
    """

    pe: Accelerator
    width: int
    height: int
    link: Link = field(default_factory=Link)
    memory: int = 128 * KIB
    code: int = 16 * KIB
    chips: tuple[int, int] = (1, 1)
    between_chips: Link | None = None
    dead: frozenset[Coordinates] = frozenset()
    label: str = "MESH"

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_type("mesh: pe", self.pe, Accelerator, "an Accelerator")
        check_whole("mesh: width", self.width, 1, _MOST_SIDE)
        check_whole("mesh: height", self.height, 1, _MOST_SIDE)
        check_type("mesh: link", self.link, Link, "a Link")
        check_type("mesh: between_chips", self.between_chips, Link | None, "a Link, or None")
        check_whole("mesh: memory", self.memory, 1, LARGEST_INT32)
        check_whole("mesh: code", self.code, 0, self.memory)
        check_type("mesh: label", self.label, str, "a string")
        self._check_chips()
        check_type("mesh: dead", self.dead, set | frozenset | list | tuple, "a set of places (column, row)")
        for place in self.dead:
            if place not in self:
                rule = f"each of dead is a place (column, row) of {self.width} x {self.height} PEs"
                raise InvalidInput(f"mesh: {rule}: got {shown(place)}")
        object.__setattr__(self, "dead", frozenset(self.dead))
        if len(self.dead) == self.width * self.height:
            raise InvalidInput("mesh: at least one PE is not dead: all of them are")
        if self.data < 0:
            what = (
                f"{self.memory} bytes a PE, {self.code} of code, and {self._local} of the accelerator's local memories"
            )
            raise InvalidInput(f"mesh: memory has room for code and the accelerator's local memories: got {what}")

    def _check_chips(self) -> None:
        whole = isinstance(self.chips, tuple) and len(self.chips) == 2
        if not whole or not all(type(count) is int and count >= 1 for count in self.chips):
            raise InvalidInput(f"mesh: chips are columns x rows of at least 1: got {shown(self.chips)}")
        if self.width % self.chips[0] or self.height % self.chips[1]:
            what = f"{self.chips[0]} x {self.chips[1]} chips for {self.width} x {self.height} PEs"
            raise InvalidInput(f"mesh: each chip has as many PEs: got {what}")

    def __contains__(self, place: object) -> bool:
        if not isinstance(place, tuple) or len(place) != 2 or not all(type(one) is int for one in place):
            return False
        x, y = place
        return bool(0 <= x < self.width and 0 <= y < self.height)

    def __repr__(self) -> str:
        dead = f", {len(self.dead)} dead" if self.dead else ""
        return f"<Mesh {self.label}: {self.width} x {self.height} PEs of {self.memory // KIB} KiB{dead}>"

    @property
    def data(self) -> int:
        """Bytes of a PE for weights, activations and the buffers of channels."""
        return self.memory - self.code - self._local

    @property
    def _local(self) -> int:
        return 0 if self.pe.library is not None else self.pe.activation_memory + self.pe.weight_memory

    @cached_property
    def alive(self) -> tuple[Coordinates, ...]:
        """The PEs that can be used, in a snake of chips and of their PEs: neighbours here are near in the mesh."""
        return tuple(place for place in self._snake() if place not in self.dead)

    def _snake(self) -> Iterator[Coordinates]:
        columns, rows = self.chips
        wide, high = self.width // columns, self.height // rows
        for down in range(rows):
            for at in range(columns):
                across = columns - 1 - at if down % 2 else at
                # Within a chip the snake goes up and down its columns, and always in the direction of the chips' row.
                for step in range(wide):
                    x = wide - 1 - step if down % 2 else step
                    for y in range(high) if (at * wide + step) % 2 == 0 else reversed(range(high)):
                        yield across * wide + x, down * high + y

    def link_of(self, source: Coordinates, target: Coordinates) -> Link:
        """The link from a PE to its neighbour."""
        wide, high = self.width // self.chips[0], self.height // self.chips[1]
        one, other = ((x // wide, y // high) for x, y in (source, target))
        return self.link if one == other or self.between_chips is None else self.between_chips

    def of(self, count: int) -> Mesh:
        """The mesh with only the first `count` of the PEs that can be used: the others count as dead."""
        check_whole("mesh: count of PEs", count, 1, len(self.alive))
        return replace(self, dead=self.dead | frozenset(self.alive[count:]))


_PE_7296 = replace(
    REFERENCE,
    label="PE_7296",
    array_rows=4,
    array_columns=16,
    depthwise_rows=4,
    activation_memory=16 * KIB,
    weight_memory=8 * KIB,
    packed_rows=False,
)

MESH_7296 = Mesh(
    _PE_7296,
    width=64,
    height=114,
    chips=(8, 6),
    between_chips=Link(bytes_per_cycle=8, hop_cycles=40),
    label="MESH_7296",
)
"""48 chips of 152 PEs, with 128 KiB for code and data and an array of 4 x 16 MACs each: so published for SpiNNaker2.

All else is an assumption: a chip's PEs lie in 8 columns and 19 rows, the chips in 8 columns and 6 rows; 16 KiB of a
PE are code, stack and tables, and 16 + 8 KiB of it are the local memories that the array works on; costs of jobs and
copies are those of `REFERENCE`, depthwise jobs compute 4 channels at a time; links carry 16 bytes a cycle inside a chip
with 5 cycles a hop, and 8 bytes a cycle with 40 between chips; and each pipeline's inputs are there when its first PE
asks.
"""
