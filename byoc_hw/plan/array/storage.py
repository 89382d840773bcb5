"""Storages: the tensors of a region that share bytes, with the layers that write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from functools import cached_property

from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Layer
from byoc_hw.plan.array.kinds import Run, Window, geometry
from byoc_hw.plan.array.packing import Packing
from byoc_hw.plan.array.spread import Spread
from byoc_hw.plan.array.transfers import Permutation
from byoc_hw.plan.array.window import Extents, Place, box_within, dense_place, extents
from byoc_hw.tensor import Tensor

Lies = MappingOf[Tensor, tuple[int, int, int] | None]
"""How arguments of a region lie in main memory: their strides as those of `Argument`."""


NOWHERE_ELSE: Lies = {}
"""All arguments lie as the tensors of the model."""


@dataclass(frozen=True)
class Argument:
    """An argument of the region. `strides` are its bytes from one row, column and channel of the storage
    to the next where it lies in another order, None where it does not."""

    index: int
    strides: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Join:
    """A box of another storage: from this row, column and channel on, every one of them or in steps."""

    whole: Storage
    at: tuple[int, int, int]
    steps: tuple[int, int, int] = (1, 1, 1)


@dataclass(eq=False)
class Storage:
    """The bytes of one activation tensor, of its reshapes, and of tensors that lie inside it.

    `makers` are the layers that write it, in order (none for inputs and constants), `readers` are the layers that
    read it (without reshapes). `places` says where tensors lie in it that are not all of it. `source` is the
    region's argument that it is loaded from, `sinks` those that it is stored to. `swapped` says that height and
    width, and `extents` with them, are exchanged against the model. `block` is its name in the arena.

    A storage that is put together in main memory has no maker: its `parts` have, and each is stored where its
    `joins` say, or, where the whole is `transposed`, its `spreads`: runs of its channels. Nor has a slice that goes to
    arguments alone: what makes the storage that it is `taken` from stores that part of it there. These are the `exits`
    of that storage. Nor has one that is `gathered` from others in main memory as it is loaded, or a slice that is
    loaded from where its input lies there, its `view`: it is nowhere else as a whole. Those others are `lent` to it.
    What lies around a padded tensor is `filled` with a value as that is gathered, and is not in main memory. An image
    whose columns are repeated lies there, and is gathered as often as its rows are.

    With a `packing` its rows lie apart in local memory, in main memory as ever.
    """

    index: int
    block: str
    tensor: Tensor
    extents: Extents
    swapped: bool
    makers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    source: Argument | None = None
    sinks: list[Argument] = field(default_factory=list)
    places: dict[Tensor, Place] = field(default_factory=dict)
    parts: list[Storage] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    spreads: list[tuple[Storage, Spread]] = field(default_factory=list)
    transposed: Permutation | None = None
    taken: Join | None = None
    exits: list[Storage] = field(default_factory=list)
    gathered: list[tuple[Storage, Join]] = field(default_factory=list)
    view: Join | None = None
    lent: list[Storage] = field(default_factory=list)
    packing: Packing | None = None
    filled: int | None = None

    def place(self, tensor: Tensor) -> Place:
        """Where one of its tensors lies in it in local memory."""
        return self.places.get(tensor) or (dense_place(tensor) if self.packing is None else self._packed_place)

    @cached_property
    def _packed_place(self) -> Place:
        assert self.packing is not None, "it is asked for packed rows alone"
        return self.packing.place(self.extents)

    @property
    def interleaved(self) -> bool:
        """Whether its rows lie among one another in local memory."""
        return self.place(self.tensor).interleaved

    @property
    def maker(self) -> int | None:
        """The last layer that writes it, None for inputs and constants."""
        return self.makers[-1] if self.makers else None

    @property
    def joined(self) -> bool:
        """Whether several layers write it."""
        return len(self.makers) > 1

    def lies_as(self, image: Tensor, packing: Packing) -> None:
        """Let its rows in local memory be those of another shape that it has, apart."""
        self.tensor, self.extents, self.packing = image, extents(image), packing

    @cached_property
    def nbytes(self) -> int:
        """Its bytes in main memory."""
        return self.tensor.nbytes

    @cached_property
    def local_bytes(self) -> int:
        """Its bytes in local memory."""
        return self.nbytes if self.packing is None else self.packing.nbytes(self.extents)

    @property
    def strides(self) -> tuple[int, int, int] | None:
        """The strides in main memory of a tensor of the model; None where it has the same bytes in local memory."""
        height, _, channels = self.extents
        return (channels, height * channels, 1) if self.swapped else self.strides_as_mapped

    @property
    def strides_as_mapped(self) -> tuple[int, int, int] | None:
        """The strides in main memory of a tensor that lies there as the array has it, row after row; None where it has
        the same bytes in local memory."""
        _, width, channels = self.extents
        return None if self.packing is None else (width * channels, channels, 1)

    def strides_of(self, argument: Tensor, lies: Lies) -> tuple[int, int, int] | None:
        """The strides in main memory of an argument, which may lie otherwise than a tensor of the model."""
        return lies[argument] or self.strides_as_mapped if argument in lies else self.strides

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def leaves(self) -> bool:
        """Whether it is stored, or a box of it is, whoever reads it later."""
        return bool(self.sinks or self.joins or self.spreads or self.exits or self.lent)

    @property
    def in_boxes(self) -> bool:
        """Whether it is stored as a box of another one, or is loaded or stored in boxes."""
        return bool(self.joins or self.spreads or self.exits or self.gathered or self.view)

    @property
    def reordered(self) -> bool:
        """Whether an argument has the bytes in another order than the array takes them in."""
        arguments = self.sinks if self.source is None else (self.source, *self.sinks)
        return any(argument.strides not in (None, self.strides_as_mapped) for argument in arguments)

    @property
    def constant(self) -> bool:
        nowhere = self.maker is None and self.source is None
        return nowhere and self.taken is self.view is None and not (self.parts or self.gathered)

    @property
    def last(self) -> int:
        """The last layer that reads or writes it, -1 if none does."""
        return max((*self.readers, -1 if self.maker is None else self.maker), default=-1)


@dataclass(frozen=True)
class Storages:
    """All storages of a region in order of their first use, and the storage of each tensor (mapped or not)."""

    all: tuple[Storage, ...]
    of: dict[Tensor, Storage]


class NotInPlace(PlanError):
    """Raised where the tensors of the placed `layers` cannot lie inside one another."""

    def __init__(self, layers: Iterable[int], message: str) -> None:
        super().__init__(message)
        self.layers = frozenset(layers)


def can_tile(layer: Layer, of: dict[Tensor, Storage]) -> bool:
    """Whether a layer can be tiled: not if an argument is reordered, for parts of others, nor for runs over tensors
    that are swapped or have packed rows. (Boxes of packed rows come from main memory, where they lie as ever.) Tiles of
    windows may be stored where another tensor is put together in main memory, from rows that are as wide."""
    touched = {tensor: of[tensor] for tensor in (*layer.inputs, layer.ofm)}
    if any(one.joined or one.reordered or tensor in one.places for tensor, one in touched.items()):
        return False
    form, made = geometry(layer), of[layer.ofm]
    if any(one.in_boxes for one in touched.values() if one is not made):
        return False
    if made.in_boxes and not (isinstance(form, Window) and _stored_in_rows(made)):
        return False
    return not isinstance(form, Run) or not any(one.swapped or one.packing for one in touched.values())


def _stored_in_rows(part: Storage) -> bool:
    """Whether what a storage is stored as a part of is put together of its rows as they lie, or in another order."""
    return not (part.exits or part.gathered) and all(
        join.whole.extents[1] == part.extents[1] and join.whole.swapped == part.swapped and not join.whole.reordered
        for join in part.joins
    )


def needs_all_of(whole: Storage, indices: Sequence[int]) -> bool:
    """Whether some of these layers read what others of them write, by way of main memory: they cannot be one group."""
    views = [one.view.whole for one in (whole, *(part for part, _ in whole.gathered)) if one.view is not None]
    viewed = [each for one in views for each in (one, *one.parts)]
    parts = (*whole.parts, *(part for part, _ in whole.gathered), *viewed)
    return any(maker in indices for part in parts for maker in part.makers) and any(
        reader in indices for reader in whole.readers
    )


def place_in_output(index: int, layer: Layer, tensor: Tensor, begin: Sequence[int]) -> Extents:
    """Where an input begins that lies in a layer's output, from places by dimension."""
    box = box_within(layer.ofm.shape, tensor.shape, begin)
    if box is None or box[1] != (1, 1, 1):
        raise NotInPlace([index], f"{layer.name}: its inputs' rows are not one after the other in its output")
    return box[0]


def parts_of_output(index: int, layer: Concat) -> Iterator[tuple[Tensor, Extents]]:
    """The inputs of a concatenation, and where each begins in its output."""
    begin = [0] * len(layer.ofm.shape)
    for tensor in layer.inputs:
        yield tensor, place_in_output(index, layer, tensor, begin)
        begin[layer.axis] += tensor.shape[layer.axis]
