"""Storages: the tensors of a region that share bytes, with the layers that write and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod

from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Layer, Pad, Resize, Slice, Transpose
from byoc_hw.plan.array.kinds import Alias, CopiesOnly, Product, Run, Window, copies_only, geometry
from byoc_hw.plan.array.mapping import Mapping
from byoc_hw.plan.array.packing import Packing
from byoc_hw.plan.array.parcels import progressions
from byoc_hw.plan.array.spread import Spread, spread_within, spreads
from byoc_hw.plan.array.transfers import Permutation, dense_strides
from byoc_hw.plan.array.window import Extents, Place, dense_place, extents
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


def storages(graph: Graph, mapping: Mapping, lies: Lies = NOWHERE_ELSE) -> Storages:
    """The storages of a mapped graph. `lies` has the arguments that lie otherwise than the tensors of the model."""
    found: list[Storage] = []
    of: dict[Tensor, Storage] = {}

    def storage(tensor: Tensor, mapped: Tensor) -> Storage:
        if tensor not in of:
            block = f"{graph.name}: {len(found):05} {tensor.name}"
            swapped = mapped in mapping.origin and mapping.is_swapped(mapped)
            of[tensor] = Storage(len(found), block, mapped, extents(mapped), swapped, packing=mapping.packing(tensor))
            found.append(of[tensor])
        of[mapped] = of[tensor]
        return of[tensor]

    first = {mapping.origin[there]: there for there in reversed(list(mapping.origin))}
    for index, tensor in enumerate(graph.inputs):
        one = storage(tensor, first.get(tensor, tensor))
        one.source = one.source or Argument(index, one.strides_of(tensor, lies))
    outputs: dict[Tensor, tuple[int, int, int]] = {}
    for index, (layer, mapped) in enumerate(zip(graph.layers, mapping.layers, strict=True)):
        if isinstance(geometry(layer), Alias):
            of[layer.ofm] = of[mapped.ofm] = storage(layer.ifm, mapped.ifm)
            packing = mapping.packing(layer.ofm)
            if layer.ifm in of[layer.ifm].places:
                reshape_in_place(layer, of[layer.ifm])
            elif packing is not None:
                of[layer.ofm].lies_as(mapped.ofm, packing)
        elif index in mapping.copied and isinstance(layer, Transpose):
            if layer.ifm in graph.inputs:
                source = of[layer.ifm].source
                assert source is not None, "it is a transposition of an input"
                storage(layer.ofm, mapped.ofm).source = Argument(source.index, _read_strides(layer))
            else:
                of[layer.ofm] = of[mapped.ofm] = of[layer.ifm]
                outputs[layer.ofm] = _written_strides(layer, of[layer.ifm])
        elif index in mapping.placed and isinstance(layer, Slice):
            read_in_place(index, layer, storage(layer.ifm, mapped.ifm), of)
        elif index in mapping.placed and isinstance(layer, Concat):
            for part in write_in_place(index, layer, storage(layer.ofm, mapped.ofm), of):
                found.remove(part)
        elif index in mapping.stored and isinstance(layer, Slice):
            take = store_from if layer.ofm in graph.outputs else load_from
            take(index, layer, storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm), graph)
        elif index in mapping.stored and isinstance(layer, Concat):
            if any(one not in of or _given(of[one]) or of[one].gathered for one in layer.inputs):
                for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
                    storage(tensor, there)
                gather_in_place(index, mapped, storage(layer.ofm, mapped.ofm), of)
            else:
                store_in_place(index, layer, storage(layer.ofm, mapped.ofm), of, mapping)
        elif index in mapping.stored and isinstance(layer, Pad):
            pad_in_place(index, layer, storage(layer.ofm, mapped.ofm), storage(layer.ifm, mapped.ifm))
        elif index in mapping.stored and isinstance(layer, Resize):
            part, whole = storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm)
            resize_in_place(index, layer, whole, part, lambda tensor: storage(tensor, tensor), mapping)
        elif index in mapping.stored and isinstance(layer, Transpose):
            store_transposed(index, layer, storage(layer.ifm, mapped.ifm), storage(layer.ofm, mapped.ofm), mapping)
        else:
            for tensor, there in zip(layer.inputs, mapped.inputs, strict=True):
                one = storage(tensor, there)
                if index not in one.readers[-1:]:
                    one.readers.append(index)
            storage(layer.ofm, mapped.ofm).makers.append(index)
    for index, tensor in enumerate(graph.outputs):
        strides = outputs[tensor] if tensor in outputs else of[tensor].strides_of(tensor, lies)
        of[tensor].sinks.append(Argument(len(graph.inputs) + index, strides))
    _forget_unread(found)
    for index, one in enumerate(found):
        one.index = index
        if mapping.jobs_transpose and _may_turn(one, mapping, lies):
            read_turned(one, [tensor for tensor in mapping.origin if of.get(tensor) is one])
    if mapping.placed or mapping.stored:
        check_places(graph, mapping, of)
    return Storages(tuple(found), of)


# ---------------------------------------------------------------- tensors inside one another


class NotInPlace(PlanError):
    """Raised where the tensors of the placed `layers` cannot lie inside one another."""

    def __init__(self, layers: Iterable[int], message: str) -> None:
        super().__init__(message)
        self.layers = frozenset(layers)


def _may_turn(one: Storage, mapping: Mapping, lies: Lies) -> bool:
    """Whether jobs can read an input of the region as it lies in main memory, with height and width swapped."""
    free = mapping.copied | mapping.placed | mapping.stored
    read = all(isinstance(geometry(mapping.layers[index]), Window) and index not in free for index in one.readers)
    given = one.source is not None and one.swapped and one.source.strides == one.strides
    by_itself = not (one.leaves or one.in_boxes or one.places or one.packing)
    return given and by_itself and read and mapping.origin[one.tensor] not in lies


def read_turned(one: Storage, tensors: Iterable[Tensor]) -> None:
    """Let an input have the same bytes in local memory as in main memory: layers read it as `tensors` with height and
    width swapped."""
    assert one.source is not None, "it is an input"
    height, width, channels = one.extents
    pixel = height * channels
    one.source = replace(one.source, strides=None)
    one.places |= dict.fromkeys(tensors, Place(0, channels, pixel, height, (width - 1) * pixel + channels))


def read_in_place(index: int, layer: Slice, whole: Storage, of: dict[Tensor, Storage]) -> None:
    """Let a slice be part of its input's storage."""
    (rows, columns, channels), steps = _last_three(layer.begin, 0), _last_three(layer.steps, 1)
    place, (height, width, depth) = whole.place(layer.ifm), extents(layer.ofm)
    if prod(layer.ifm.shape[:-3]) != 1 or (steps[2] != 1 and depth > 1) or layer.ofm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: a slice that is read in place has whole runs of channels")
    pixel = place.pixel * steps[1]
    start = place.offset + rows * place.row + columns * place.pixel + channels
    whole.places[layer.ofm] = Place(start, place.row * steps[0], pixel, height, (width - 1) * pixel + depth)
    of[layer.ofm] = whole


def _last_three(values: tuple[int, ...], default: int) -> tuple[int, int, int]:
    height, width, channels = (default, default, default, *values)[-3:]
    return height, width, channels


def write_in_place(index: int, layer: Concat, whole: Storage, of: dict[Tensor, Storage]) -> list[Storage]:
    """Let the inputs of a concatenation be parts of its output's storage. Returns their storages, which are no more."""
    gone: list[Storage] = []
    _, columns, channels = extents(layer.ofm)
    row, inner, before = columns * channels, prod(layer.ofm.shape[layer.axis + 1 :]), 0
    for tensor in layer.inputs:
        part = of.get(tensor)
        again = part is whole or part in gone  # a tensor that is concatenated twice has two places
        plain = part is not None and not (again or part.swapped or part.exits or part.lent) and part.makers
        if part is None or not plain or part.place(tensor) != dense_place(tensor):
            raise NotInPlace([index], f"{layer.name}: {tensor.name} is not one layer's output by itself")
        if prod(layer.ofm.shape[: layer.axis]) != 1 and layer.axis < len(layer.ofm.shape) - 2:
            raise NotInPlace([index], f"{layer.name}: its inputs' rows are not equally far apart in its output")
        for inside in [other for other, one in of.items() if one is part]:
            place = _moved(part.place(inside), inside, tensor, before * inner, row, channels)
            if place is None or tensor.bytes_of(1) != 1:
                raise NotInPlace([index], f"{layer.name}: {inside.name} has its bytes in another order in its output")
            whole.places[inside] = place
            of[inside] = whole
        whole.makers, whole.readers = sorted({*whole.makers, *part.makers}), sorted({*whole.readers, *part.readers})
        gone.append(part)
        before += tensor.shape[layer.axis]
    return gone


def store_in_place(index: int, layer: Concat, whole: Storage, of: dict[Tensor, Storage], mapping: Mapping) -> None:
    """Let the inputs of a concatenation be stored as parts of its output, which is in main memory."""
    rank, before = len(layer.ofm.shape), 0
    if prod(layer.ofm.shape[: layer.axis]) != 1 and layer.axis < rank - 2:
        raise NotInPlace([index], f"{layer.name}: its inputs' rows are not equally far apart in its output")
    for tensor in layer.inputs:
        part = of.get(tensor)
        rows = prod(layer.ofm.shape[layer.axis + 1 : -2])
        at = {rank - 1: (0, 0, before), rank - 2: (0, before, 0)}.get(layer.axis, (before * rows, 0, 0))
        before += tensor.shape[layer.axis]
        if part is not None and part.transposed is not None:
            _spread_further(index, layer, tensor, part, Join(whole, at), mapping)
            continue
        if part is not None and part.view is not None:
            _spread_channels(index, layer, part.view, part.extents, Join(whole, at), mapping)
            continue
        if part is None or not part.makers or part.swapped or tensor in part.places:
            raise NotInPlace([index], f"{layer.name}: {tensor.name} is not one layer's output by itself")
        strange = _copied(part, mapping) and not (_is_image(tensor) and _scattered(mapping.layers[part.makers[0]]))
        if strange or part.extents != extents(tensor) or tensor.bytes_of(1) != 1:
            raise NotInPlace([index], f"{layer.name}: {tensor.name} cannot be stored as a part of its output")
        part.joins.append(Join(whole, at))
        whole.parts.append(part)


def store_transposed(index: int, layer: Transpose, ifm: Storage, whole: Storage, mapping: Mapping) -> None:
    """Let the input of a transposition be stored as its output, by the layer that makes it, also by way of another such
    transposition; or by those that make the channels that it is put together of."""
    turned: Permutation | None = Permutation(layer.ifm.shape, layer.axes)
    image, parts = ifm.extents, list(_channels_of(ifm))
    if ifm.transposed is not None and parts:
        turned, image = ifm.transposed.then(Permutation(layer.ifm.shape, layer.axes)), parts[0][0].extents
    there = parts and all(_stored_by_one(part, mapping) for part, _ in parts) and layer.ifm not in ifm.places
    found = spreads(turned, image) if there and turned is not None and layer.ifm.bytes_of(1) == 1 else None
    if found is None:
        raise NotInPlace([index], f"{layer.name}: {layer.ifm.name} is not stored in another order by what makes it")
    for part, first in parts:
        some = (one.of_channels(first, first + part.extents[2]) for one in found)
        _spread(index, layer, part, whole, [run.from_channel(first) for run in some if run is not None], mapping)
    whole.transposed = turned


def _spread(index: int, layer: Layer, part: Storage, whole: Storage, runs: Sequence[Spread], mapping: Mapping) -> None:
    """Let a part be stored in another storage, run by run."""
    if _copied(part, mapping) and any((run.first, run.stop) != (0, part.extents[2]) for run in runs):
        raise NotInPlace([index], f"{layer.name}: copies store all channels of {part.name} equally far apart")
    part.spreads += [(whole, run) for run in runs]
    whole.parts.append(part)


def _channels_of(ifm: Storage) -> Iterator[tuple[Storage, int]]:
    """The storages that have the channels of one, and the first channel of each; none where these lie otherwise."""
    if not ifm.parts:
        yield ifm, 0
        return
    if ifm.transposed is not None:
        yield from [(part, 0) for part in ifm.parts] if len(ifm.parts) == 1 else []
        return
    joins = [(part, join) for part in dict.fromkeys(ifm.parts) for join in part.joins if join.whole is ifm]
    whole = len(joins) == len(ifm.parts)
    if whole and all(part.extents[:2] == ifm.extents[:2] and join.at[:2] == (0, 0) for part, join in joins):
        yield from ((part, join.at[2]) for part, join in joins)


def _stored_by_one(part: Storage, mapping: Mapping) -> bool:
    """Whether one layer makes all of a storage as it lies in the model, and can store pixels that lie apart."""
    if len(part.makers) != 1 or part.swapped or part.places:
        return False
    return not _copied(part, mapping) or (_scattered(mapping.layers[part.makers[0]]) and _is_image(part.tensor))


def _copied(part: Storage, mapping: Mapping) -> bool:
    """Whether copies make a storage."""
    return any(copies_only(mapping.layers[maker]) for maker in part.makers)


def _is_image(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1


def _spread_further(index: int, layer: Concat, tensor: Tensor, spread: Storage, join: Join, mapping: Mapping) -> None:
    """Let what is stored as the output of a transposition be stored as a part of a concatenation as well."""
    whole, image = join.whole, extents(layer.ofm)
    for part in dict.fromkeys(spread.parts):
        runs = list[Spread]()
        for one in [one for there, one in part.spreads if there is spread]:
            found = spread_within(one, part.extents[:2], extents(tensor), image, join.at)
            if found is None or image != whole.extents:
                raise NotInPlace([index], f"{layer.name}: {tensor.name} cannot be stored as a part of its output")
            runs += found
        _spread(index, layer, part, whole, runs, mapping)


def _spread_channels(index: int, layer: Concat, view: Join, part: Extents, join: Join, mapping: Mapping) -> None:
    """Let a slice of channels be stored as a part of a concatenation by what makes all channels."""
    made, whole, (row, column, first) = view.whole, join.whole, view.at
    _, width, channels = whole.extents
    channelwise = (row, column, view.steps, *part[:2]) == (0, 0, (1, 1, 1), *made.extents[:2])
    if not (channelwise and _stored_by_one(made, mapping) and whole.extents == extents(layer.ofm)):
        raise NotInPlace([index], f"{layer.name}: channels of {made.name} cannot be stored as a part of its output")
    strides = width * channels, channels, 1
    offset = sum(place * stride for place, stride in zip(join.at, strides, strict=True))
    _spread(index, layer, made, whole, [Spread(first, first + part[2], offset, strides)], mapping)


def _forget_unread(found: list[Storage]) -> None:
    """Leave out what is put together in main memory and nobody reads, where all parts of it are stored elsewhere."""
    for one in [one for one in found if one.parts and not (one.readers or one.sinks or one.lent)]:
        if not all(_elsewhere(part, one) for part in one.parts):
            continue
        found.remove(one)
        for part in one.parts:
            part.spreads = [(there, spread) for there, spread in part.spreads if there is not one]
            part.joins = [join for join in part.joins if join.whole is not one]


def _elsewhere(part: Storage, whole: Storage) -> bool:
    return any(
        one is not whole for one in (*(there for there, _ in part.spreads), *(join.whole for join in part.joins))
    )


def _given(part: Storage) -> bool:
    """Whether a tensor is an input of the region, or a slice of one that is loaded from there."""
    whole = part if part.view is None else part.view.whole
    return whole.source is not None


def gather_in_place(index: int, layer: Layer, whole: Storage, of: dict[Tensor, Storage]) -> None:
    """Let a mapped concatenation of which parts are inputs of the region be put together as it is loaded."""
    assert isinstance(layer, Concat), "it is as it stands, or with height and width swapped"
    rank, before = len(layer.ofm.shape), 0
    line = layer.axis == rank - 1 and prod(layer.ofm.shape[:-1]) == 1
    if not line and (rank < 3 or prod(layer.ofm.shape[:-3]) != 1 or layer.axis < rank - 3):
        raise NotInPlace([index], f"{layer.name}: what is put together as it is loaded is an image, or a single row")
    for tensor in layer.inputs:
        row, column, channel = (before * (layer.axis == rank - 3 + place) for place in range(3))
        _gather(index, layer, tensor, of.get(tensor), Join(whole, (row, column, channel)))
        before += tensor.shape[layer.axis]


def pad_in_place(index: int, layer: Pad, whole: Storage, part: Storage) -> None:
    """Let a padded image be put together as it is loaded: of the image itself, and of the value around it."""
    if len(layer.ofm.shape) < 3 or prod(layer.ofm.shape[:-3]) != 1:
        raise NotInPlace([index], f"{layer.name}: what is padded as it is loaded is an image")
    at = _last_three(layer.before, 0)
    _gather(index, layer, layer.ifm, part, Join(whole, at))
    for number, (origin, shape) in enumerate(around(at, extents(layer.ifm), extents(layer.ofm))):
        tensor = Tensor(f"around {layer.ifm.name} {number}", (1, *shape))
        filling = Storage(-1, f"{whole.block} around {number}", tensor, shape, False, filled=layer.value)
        whole.gathered.append((filling, Join(whole, origin)))


def around(at: Extents, inner: Extents, outer: Extents) -> Iterator[tuple[Extents, Extents]]:
    """What an image leaves free of a larger one that it begins in `at`: boxes by their place and extents."""
    first, free = [0, 0, 0], list(outer)
    for axis, (before, size, whole) in enumerate(zip(at, inner, outer, strict=True)):
        for start, stop in ((0, before), (before + size, whole)):
            if start < stop:
                place, shape = [*first], [*free]
                place[axis], shape[axis] = start, stop - start
                yield (place[0], place[1], place[2]), (shape[0], shape[1], shape[2])
        first[axis], free[axis] = before, size


def resize_in_place(
    index: int, layer: Resize, whole: Storage, part: Storage, new: Callable[[Tensor], Storage], mapping: Mapping
) -> None:
    """Let rows be repeated as they are loaded, and columns as the layer that makes them stores them in a `new` storage;
    of an input of the region columns as well as they are loaded."""
    if layer.ifm.shape[0] != 1 or layer.ifm in part.places or part.gathered or layer.ifm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: what is repeated as it is loaded is an image by itself")
    lines, columns = progressions(layer.rows), progressions(layer.columns)
    _, height, width, channels = layer.ifm.shape
    if part.source is None and part.view is None:
        every = all((one.count, one.from_first, one.from_step) == (width, 0, 1) for one in columns)
        if not every or part.extents != extents(layer.ifm) or not _stored_by_one(part, mapping):
            raise NotInPlace([index], f"{layer.name}: no layer stores {part.name} with each column repeated as often")
        row = len(layer.columns) * channels
        wider = new(replace(layer.ifm, name=f"{layer.name} columns", shape=(1, height, row // channels, channels)))
        runs = [Spread(0, channels, one.first * channels, (row, one.step * channels, 1)) for one in columns]
        _spread(index, layer, part, wider, runs, mapping)
        part, columns = wider, progressions(range(row // channels))
    for number, (down, along) in enumerate(product(lines, columns)):
        shape = down.count, along.count, channels
        tensor = replace(layer.ifm, name=f"{part.name} {number}", shape=(1, *shape))
        view = _view_of(part, (down.from_first, along.from_first, 0), (down.from_step, along.from_step, 1))
        piece = Storage(-1, f"{whole.block} {number}", tensor, shape, False, view=view)
        view.whole.lent.append(whole)
        whole.gathered.append((piece, Join(whole, (down.first, along.first, 0), (down.step, along.step, 1))))


def _gather(index: int, layer: Layer, tensor: Tensor, part: Storage | None, join: Join) -> None:
    """Let an input of a layer be loaded to its place in the storage that is put together so; one that is put together
    itself piece by piece."""
    there = part is not None and (part.makers or part.source is not None or part.view or part.gathered)
    if part is None or not there or part.joined or part.extents != extents(tensor) or tensor in part.places:
        raise NotInPlace([index], f"{layer.name}: {tensor.name} is not an input or one layer's output by itself")
    if tensor.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: {tensor.name} has elements of a byte")
    for piece, inside in part.gathered or [(part, Join(part, (0, 0, 0)))]:
        join.whole.gathered.append((piece, Join(join.whole, *_inside(inside.at, inside.steps, join.at, join.steps))))
        _home_of(piece).lent.append(join.whole)


def _home_of(part: Storage) -> Storage:
    """What a storage is loaded from in main memory: itself, or what it is a slice of."""
    return part if part.view is None else part.view.whole


def store_from(index: int, layer: Slice, whole: Storage, part: Storage, graph: Graph) -> None:
    """Let a slice that goes to arguments alone be stored there by what makes its input."""
    begin = _last_three(layer.begin, 0)
    alone = layer.ofm in graph.outputs and all(layer.ofm not in other.inputs for other in graph.layers)
    made = whole.makers and whole.taken is None and not whole.joined and layer.ifm not in whole.places
    dense = whole.packing is None and whole.extents == extents(layer.ifm) and prod(layer.ifm.shape[:-3]) == 1
    if not (alone and made and dense) or set(layer.steps) != {1} or layer.ofm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: what is stored from its input is a box of it, and an output alone")
    part.taken = Join(whole, begin)
    whole.exits.append(part)


def load_from(index: int, layer: Slice, whole: Storage, part: Storage, graph: Graph) -> None:
    """Let a slice be loaded from where its input lies in main memory."""
    begin, steps = _last_three(layer.begin, 0), _last_three(layer.steps, 1)
    plain = prod(layer.ifm.shape[:-3]) == 1 and whole.extents == extents(layer.ifm) and layer.ifm not in whole.places
    several = whole.gathered or whole.constant or layer.ofm.bytes_of(1) != 1
    if not plain or several or (steps[2] != 1 and part.extents[2] > 1):
        raise NotInPlace([index], f"{layer.name}: a slice that is loaded from its input is a box of runs of channels")
    part.view = _view_of(whole, begin, steps)
    part.view.whole.lent.append(part)


def _view_of(whole: Storage, at: Extents, steps: Extents) -> Join:
    """Where some of a storage lies in main memory, also of a slice of another one."""
    if whole.view is None:
        return Join(whole, at, steps)
    return Join(whole.view.whole, *_inside(at, steps, whole.view.at, whole.view.steps))


def _inside(begin: Extents, steps: Extents, at: Extents, by: Extents) -> tuple[Extents, Extents]:
    """Where a slice of a slice begins, and its steps."""
    (top, left, front), (down, right, inward) = begin, by
    (row, column, channel), (rows, columns, channels) = at, steps
    start = row + top * down, column + left * right, channel + front * inward
    return start, (rows * down, columns * right, channels * inward)


def _scattered(layer: Layer) -> bool:
    """Whether a layer without jobs can write to rows and pixels that lie apart."""
    return not isinstance(layer, Transpose)


def needs_all_of(whole: Storage, indices: Sequence[int]) -> bool:
    """Whether some of these layers read what others of them write, by way of main memory: they cannot be one group."""
    views = [one.view.whole for one in (whole, *(part for part, _ in whole.gathered)) if one.view is not None]
    viewed = [each for one in views for each in (one, *one.parts)]
    parts = (*whole.parts, *(part for part, _ in whole.gathered), *viewed)
    return any(maker in indices for part in parts for maker in part.makers) and any(
        reader in indices for reader in whole.readers
    )


def _moved(place: Place, inside: Tensor, part: Tensor, offset: int, row: int, pixel: int) -> Place | None:
    """The place of a tensor once all of the part that it lies in has its pixels and rows so far apart, or None."""
    _, columns, channels = extents(part)
    _, width, depth = extents(inside)
    if columns * channels == row:
        return place._replace(offset=place.offset + offset)
    first_row, rest = divmod(place.offset, columns * channels)
    first_column, first_channel = divmod(rest, channels)
    every_row, odd_row = divmod(place.row, columns * channels)
    every_column, odd_column = divmod(place.pixel, channels)
    within = first_column + (width - 1) * every_column < columns and first_channel + depth <= channels
    if not within or odd_row or (odd_column and width > 1):
        return None
    start = offset + first_row * row + first_column * pixel + first_channel
    return Place(start, every_row * row, every_column * pixel, place.height, (width - 1) * every_column * pixel + depth)


def reshape_in_place(layer: Layer, whole: Storage) -> None:
    """Let the reshape of a part be that part. Raises `NotInPlace` where its bytes do not lie together."""
    place = whole.places[layer.ifm]
    if not _together(layer.ifm, place):
        raise NotInPlace([], f"{layer.name}: the bytes of a reshape lie together")
    whole.places[layer.ofm] = dense_place(layer.ofm)._replace(offset=place.offset)


def _together(tensor: Tensor, place: Place) -> bool:
    height, width, _ = extents(tensor)
    dense = dense_place(tensor)
    return (place.row == dense.row or height == 1) and (place.pixel == dense.pixel or width == 1)


def check_places(graph: Graph, mapping: Mapping, of: dict[Tensor, Storage]) -> None:
    """Check that every layer that works can read and write its tensors where they lie: windows anywhere, runs of
    elements where bytes lie together, copies only storages of one maker. Outputs of the region are whole storages that
    are written."""
    for index, layer in enumerate(mapping.layers):
        form = geometry(layer)
        for tensor in (*layer.inputs, layer.ofm):
            one = of[tensor]
            there = mapping.origin.get(tensor, tensor)
            if there is not tensor and there in one.places:
                raise NotInPlace(_placing(graph, mapping, there, of), f"{layer.name}: height and width are swapped")
            apart = tensor in one.places and not _together(tensor, one.places[tensor])
            copied = isinstance(form, CopiesOnly) and index not in mapping.placed | mapping.stored
            elsewhere = one.gathered or one.view or (tensor is layer.ofm and one.exits)
            several = one.joined or tensor in one.places or elsewhere
            if (isinstance(form, Run | Product) and apart) or (copied and several):
                raise NotInPlace(_placing(graph, mapping, tensor, of), f"{layer.name}: needs {tensor.name} by itself")
    for tensor in graph.outputs:
        if tensor in of[tensor].places or of[tensor].gathered or of[tensor].view:
            message = f"{tensor.name}: an output of the region lies by itself"
            raise NotInPlace(_placing(graph, mapping, tensor, of), message)


def _placing(graph: Graph, mapping: Mapping, tensor: Tensor, of: dict[Tensor, Storage]) -> Iterator[int]:
    """The placed layers that made a tensor part of another or of parts; where that is unclear, all in its storage."""
    placed = {index: graph.layers[index] for index in sorted(mapping.placed | mapping.stored)}
    direct = [index for index, layer in placed.items() if tensor is layer.ofm or tensor in layer.inputs]
    yield from direct or [index for index, layer in placed.items() if of[layer.ofm] is of[tensor]]


def _read_strides(layer: Transpose) -> tuple[int, int, int]:
    """The strides of a transposition's input, by the dimensions of its output."""
    strides = dense_strides(layer.ifm.shape)
    _, height, width, channels = (strides[axis] for axis in layer.axes)
    return height, width, channels


def _written_strides(layer: Transpose, storage: Storage) -> tuple[int, int, int]:
    """The strides of a transposition's output, by the dimensions of its mapped input."""
    strides = dense_strides(layer.ofm.shape)
    _, height, width, channels = (strides[layer.axes.index(axis)] for axis in range(4))
    if storage.extents != extents(layer.ifm):  # a line whose height and width are swapped
        height, width = width, height
    return height, width, channels
