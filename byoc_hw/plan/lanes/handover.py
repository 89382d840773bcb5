"""Parts in local memory that accelerators share: where their buffers lie, and which tensors they hand over in place.

A tensor that one part stores and others load can stay in the shared memory: it is one buffer there, which its writers
fill and its readers read. The loads go, and so do the stores if nobody outside reads it. That is so where each of these
parts has its share of the tensor in buffers of nothing else, byte after byte as in main memory. Which tensors are
handed over is tried: what makes the schedule shorter is kept, and of two that are as long the one that copies less.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.tiling import with_memories
from byoc_hw.plan.lanes.joint import (
    PlacedPart,
    joint_order,
    joint_work,
    main_address,
    main_rows,
    needs_of,
    shifted_behind,
)
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.place.by_lifetime import largest_sum
from byoc_hw.plan.place.local import lifetimes, place_in_time, place_local
from byoc_hw.plan.region_memory import Lifetime
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, WEIGHTS, Address, Copy
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op, activations
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_WIDTHS = (None, 2.0, 1.25)
"""The bytes that a part's own buffers are spread over, as a multiple of those that are live at once; None for all."""

_WORK = 400_000
"""The most copies and jobs that are scheduled to find what is handed over, beyond the first few tries."""


def arranged(parts: Sequence[PlacedPart], chip: Soc, outside: Collection[Tensor]) -> list[PlacedPart]:
    """Parts in a possible order with the addresses of their buffers, and without the copies of what they hand over in
    local memory that accelerators share. The tensors `outside` are inputs and outputs of the region."""
    return _Arrangement(parts, chip, outside).best() if parts else []


# ---------------------------------------------------------------- what parts do with a tensor


@dataclass(frozen=True)
class _Use:
    """A part's copies of a tensor, by place in its work, and how many bytes behind its place in each buffer a byte lies
    in the tensor."""

    loads: frozenset[int]
    stores: frozenset[int]
    shifts: Mapping[LocalBuffer, int]


@dataclass
class _Touched:
    """The copies of a tensor as they are found; `whole` says whether it may be handed over."""

    loads: set[int] = field(default_factory=set)
    stores: set[int] = field(default_factory=set)
    shifts: dict[LocalBuffer, int] = field(default_factory=dict)
    stored: list[tuple[int, int, int]] = field(default_factory=list)  # the copy, bytes of the tensor from and to
    homes: dict[LocalBuffer, tuple[int, int]] = field(default_factory=dict)  # the argument and its byte of the tensor
    whole: bool = True


def _touched(part: PlacedPart) -> dict[Tensor, _Touched]:
    """What a part copies, or calls of a library read and write, of each tensor of the region."""
    found: dict[Tensor, _Touched] = {}
    for index, op in enumerate(part.layout.work.ops):
        for access in op.accesses:
            if not isinstance(access.place, Storage):
                continue
            space = main_address(op, access, part.layout.work.homes).space
            if space < ARGUMENT:
                continue
            tensor, start = part.part.arguments[space - ARGUMENT]
            one = found.setdefault(tensor, _Touched())
            (one.stores if access.writes else one.loads).add(index)
            _note(one, index, op, access, space, start)
    return found


def _note(one: _Touched, index: int, op: Op, access: Access, argument: int, start: int) -> None:
    """Note a copy between a buffer and an argument that begins at byte `start` of a tensor."""
    step, first = op.step, start + access.start
    local = next((access for access in op.accesses if isinstance(access.place, LocalBuffer)), None)
    if local is None or not isinstance(step, Copy) or (step.rows > 1 and step.source_stride != step.target_stride):
        one.whole = False
        return
    assert isinstance(local.place, LocalBuffer)
    if one.shifts.setdefault(local.place, first - local.start) != first - local.start:
        one.whole = False
    one.homes[local.place] = argument, start
    if access.writes:
        count, nbytes, stride = main_rows(step, step.nbytes)
        one.stored += ((index, first + row * stride, first + row * stride + nbytes) for row in range(count))


def _use(part: PlacedPart, one: _Touched, size: int) -> _Use | None:
    """A part's use of a tensor of so many bytes; None if its buffers cannot lie in the tensor.

    What the part itself writes into them is what it stores, and stays as it was stored.
    """
    if not one.whole:
        return None
    share = _merged((first, stop) for _, first, stop in one.stored)
    for index, op in enumerate(part.layout.work.ops):
        for access in op.accesses:
            if not isinstance(access.place, LocalBuffer) or access.place not in one.shifts:
                continue
            shift = one.shifts[access.place]
            first, stop = access.start + shift, access.stop + shift
            if first < 0 or stop > size:
                return None
            if not access.writes or index in one.loads:
                continue
            if not any(begin <= first and stop <= end for begin, end in share):
                return None
            if any(copy < index and begin < stop and first < end for copy, begin, end in one.stored):
                return None
    return _Use(frozenset(one.loads), frozenset(one.stores), one.shifts)


def _merged(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans without those that touch each other, in order."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((first, stop))
    return merged


def as_handed_over(part: PlacedPart, outside: Container[Tensor]) -> Layout:
    """The layout of a part as if all that it can hand over, and all that others can hand over to it, stayed in local
    memory: its jobs read and write these tensors themselves. For an estimate."""
    layout = part.layout
    gone: set[int] = set()
    moved: dict[LocalBuffer, tuple[Address, int]] = {}
    for tensor, one in _touched(part).items():
        if tensor in outside or tensor.nbytes > layout.mapped.accelerator.activation_memory // 2:
            continue
        use = _use(part, one, round_up(tensor.nbytes, layout.mapped.accelerator.dma_alignment))
        if use is not None and not use.shifts.keys() & moved.keys():
            gone |= use.loads | use.stores
            moved |= {
                buffer: (Address(one.homes[buffer][0]), shift - one.homes[buffer][1])
                for buffer, shift in use.shifts.items()
            }
    if not gone:
        return layout
    ops = tuple(_in_place(op, moved) for index, op in enumerate(layout.work.ops) if index not in gone)
    places = {buffer: at for buffer, at in layout.places.items() if buffer not in moved}
    return replace(layout, work=replace(layout.work, ops=ops), places=places, order=order(ops, places))


def _in_place(op: Op, moved: Mapping[LocalBuffer, tuple[Address, int]]) -> Op:
    """An operation that touches arguments in place of some buffers."""
    accesses = []
    for access in op.accesses:
        if isinstance(access.place, LocalBuffer) and access.place in moved:
            argument, shift = moved[access.place]
            access = access._replace(place=argument, start=access.start + shift, stop=access.stop + shift)
        accesses.append(access)
    return replace(op, accesses=tuple(accesses))


# ---------------------------------------------------------------- tensors that may be handed over


@dataclass(frozen=True)
class _Candidate:
    """A tensor that may be handed over in an activation memory: the use that each part makes of it there, by its place
    among the parts. Its stores stay if it is `needed` in main memory."""

    buffer: LocalBuffer
    memory: int
    uses: Mapping[int, _Use]
    needed: bool

    @property
    def life(self) -> tuple[int, int]:
        """The first part that it is there for, and the last one."""
        return min(self.uses), max(self.uses)


def _candidates(parts: Sequence[PlacedPart], chip: Soc, outside: Collection[Tensor]) -> Iterator[_Candidate]:
    touched = [_touched(part) for part in parts]
    for tensor in dict.fromkeys(tensor for found in touched for tensor in found):
        at = [number for number, found in enumerate(touched) if tensor in found]
        size = round_up(tensor.nbytes, chip.dma_alignment)
        uses = {}
        for number in at:
            use = _use(parts[number], touched[number][tensor], size) if chip.group_of(parts[number].lane) else None
            if use is not None:
                uses[number] = use
        writers = [number for number in at if touched[number][tensor].stores]
        memories = {chip.memory_of(parts[number].lane) for number in writers}
        if not all(number in uses for number in writers) or len(memories) != 1:
            continue
        (memory,) = memories
        uses = {number: use for number, use in uses.items() if chip.memory_of(parts[number].lane) == memory}
        if all(number in writers for number in uses):
            continue
        yield _Candidate(activations(tensor.name, size), memory, uses, tensor in outside or len(uses) < len(at))


# ---------------------------------------------------------------- the parts with some of them


@dataclass(frozen=True)
class _Own:
    """The work of a part without the copies of what is handed over, and the places of the buffers that stay its own."""

    ops: tuple[Op, ...]
    places: dict[LocalBuffer, int]
    needs: tuple[int, int]


@dataclass(frozen=True)
class _Arranged:
    """Parts with their addresses: the cycles that they take, and the bytes that they copy."""

    parts: list[PlacedPart]
    cycles: int
    copied: int

    @property
    def cost(self) -> tuple[int, int]:
        """What is compared."""
        return self.cycles, self.copied


class _Arrangement:
    """The search for what is handed over."""

    def __init__(self, parts: Sequence[PlacedPart], chip: Soc, outside: Collection[Tensor]) -> None:
        self._parts, self._chip = parts, chip
        self._candidates = list(_candidates(parts, chip, outside))
        self._own: dict[tuple[int, tuple[int, ...], float | None], _Own | None] = {}
        self._left = _WORK

    @cached_property
    def _groups(self) -> dict[int, list[int]]:
        """The parts in each shared memory."""
        found: dict[int, list[int]] = {}
        for number, part in enumerate(self._parts):
            if self._chip.group_of(part.lane):
                found.setdefault(self._chip.memory_of(part.lane), []).append(number)
        return found

    def best(self) -> list[PlacedPart]:
        """The parts with what is best handed over, in the best width."""
        every = range(len(self._candidates))
        tried = {
            (chosen, width): made
            for chosen in dict.fromkeys((frozenset[int](), self._most()))
            for width in _WIDTHS
            if (made := self._arranged(chosen, width)) is not None
        }
        (chosen, width), best = min(tried.items(), key=lambda item: item[1].cost)
        better = True
        while better and self._left > 0:
            better = False
            for one in every:
                made = self._arranged(chosen ^ {one}, width) if self._left > 0 else None
                if made is not None and made.cost < best.cost:
                    chosen, best, better = chosen ^ {one}, made, True
        return [_ordered(part) for part in best.parts]

    def _most(self) -> frozenset[int]:
        """As many as can be handed over, the first ones first."""
        found: list[int] = []
        for one in range(len(self._candidates)):
            if not self._share_a_buffer([*found, one]):
                found.append(one)
        return frozenset(found)

    def _share_a_buffer(self, chosen: Collection[int]) -> bool:
        """Whether a part has bytes of two of these in one buffer: a copy of one into the other."""
        buffers = [buffer for one in chosen for use in self._candidates[one].uses.values() for buffer in use.shifts]
        return len(set(buffers)) < len(buffers)

    def _arranged(self, chosen: frozenset[int], width: float | None) -> _Arranged | None:
        """The parts with some tensors handed over; None where these and the parts do not fit."""
        if self._share_a_buffer(chosen):
            return None
        own = [self._own_of(number, chosen, width) for number in range(len(self._parts))]
        if any(one is None for one in own):
            return None
        shifts = self._shifts([one for one in own if one is not None], chosen)
        if shifts is None:
            return None
        parts = []
        for part, one, (by, there) in zip(self._parts, own, shifts, strict=True):
            assert one is not None
            places = {buffer: at + by[buffer.space] for buffer, at in one.places.items()} | there
            work = replace(part.layout.work, ops=one.ops)
            parts.append(replace(part, layout=replace(part.layout, work=work, places=places)))
        joint = joint_work(parts, self._chip)
        self._left -= len(joint.ops)
        copied = sum(op.step.bytes_moved for op in joint.ops if isinstance(op.step, Copy))
        return _Arranged(parts, joint_order(joint).cycles, copied)

    def _own_of(self, number: int, chosen: frozenset[int], width: float | None) -> _Own | None:
        handed = tuple(one for one in sorted(chosen) if number in self._candidates[one].uses)
        if not self._chip.group_of(self._parts[number].lane):
            width = None
        key = number, handed, width
        if key not in self._own:
            self._own[key] = self._made(number, [self._candidates[one] for one in handed], width)
        return self._own[key]

    def _made(self, number: int, handed: Sequence[_Candidate], width: float | None) -> _Own | None:
        """A part without the copies of what is handed over. None where its buffers do not fit so many bytes."""
        part = self._parts[number]
        if not handed and width is None:
            return _Own(part.layout.work.ops, part.layout.places, needs_of(part.layout))
        ops = tuple(_without_copies(part.layout.work.ops, number, handed))
        buffers = [one.buffer for one in handed]
        own = [_without_accesses(op, buffers) for op in ops]
        accelerator = part.layout.mapped.accelerator
        if width is not None:
            live = largest_sum(list(lifetimes(own)[ACTIVATIONS].values()))
            unit = accelerator.buffer_alignment
            size = min(accelerator.activation_memory, max(round_up(int(live * width), unit), unit))
            accelerator = with_memories(accelerator, size, accelerator.weight_memory)
        try:
            places = place_local(own, accelerator)
        except PlanError:
            return None
        return _Own(ops, places, needs_of(replace(part.layout, places=places)))

    def _shifts(
        self, own: Sequence[_Own], chosen: frozenset[int]
    ) -> list[tuple[dict[int, int], dict[LocalBuffer, int]]] | None:
        """For each part by how much its own buffers are shifted in each memory, and the places of what is handed over.

        In a shared memory a part lies on the bytes that others needed last, in the order of the parts, and apart from
        what is handed over before and after it. None where that does not fit.
        """
        parts = self._parts
        needs = [(part.lane, part.layout.mapped.accelerator, one.needs) for part, one in zip(parts, own, strict=True)]
        shifts = [{ACTIVATIONS: by[0], WEIGHTS: by[1]} for by in shifted_behind(needs)]
        there: list[dict[LocalBuffer, int]] = [{} for _ in parts]
        for memory, numbers in self._groups.items():
            handed = [self._candidates[one] for one in sorted(chosen) if self._candidates[one].memory == memory]
            lives = {f"{at:05}": one for at, one in enumerate(handed)}
            alive = [Lifetime(name, one.buffer.nbytes, *one.life, one.buffer.name) for name, one in lives.items()]
            alive += (Lifetime(f"part {number}", own[number].needs[0], number, number, "") for number in numbers)
            accelerator = self._chip.accelerators[memory]
            size = accelerator.whole_words(accelerator.activation_memory)
            alive.sort(key=lambda life: (life.first, life.name))
            if largest_sum(alive) > size:
                return None
            found = place_in_time(alive, size, accelerator.buffer_alignment)
            if found is None:
                return None
            for number in numbers:
                shifts[number][ACTIVATIONS] = found[f"part {number}"]
            for name, one in lives.items():
                for number in one.uses:
                    there[number][one.buffer] = found[name]
        return list(zip(shifts, there, strict=True))


def _without_accesses(op: Op, buffers: Sequence[LocalBuffer]) -> Op:
    """An operation without what it touches of some buffers."""
    accesses = tuple(one for one in op.accesses if not any(one.place is buffer for buffer in buffers))
    return op if len(accesses) == len(op.accesses) else replace(op, accesses=accesses)


def _without_copies(ops: Sequence[Op], number: int, handed: Sequence[_Candidate]) -> Iterator[Op]:
    """The work of part `number` on the buffers of what is handed over."""
    moved = {buffer: (one.buffer, shift) for one in handed for buffer, shift in one.uses[number].shifts.items()}
    gone = {index for one in handed for index in one.uses[number].loads}
    gone |= {index for one in handed if not one.needed for index in one.uses[number].stores}
    for index, op in enumerate(ops):
        if index not in gone:
            yield _on(op, moved) if any(buffer in moved for buffer in op.local.values()) else op


def _on(op: Op, moved: Mapping[LocalBuffer, tuple[LocalBuffer, int]]) -> Op:
    """An operation with other buffers in place of some."""
    accesses, local, fields = [], dict(op.local), {}
    for access in op.accesses:
        if isinstance(access.place, LocalBuffer) and access.place in moved:
            buffer, shift = moved[access.place]
            access = access._replace(place=buffer, start=access.start + shift, stop=access.stop + shift)
        accesses.append(access)
    for name, before in op.local.items():
        if before in moved:
            local[name], shift = moved[before]
            fields[name] = getattr(op.step, name) + shift
    return replace(op, step=op.step._replace(**fields), accesses=tuple(accesses), local=local)


def _ordered(part: PlacedPart) -> PlacedPart:
    """A part whose layout has the order of its own copies and jobs."""
    layout = part.layout
    return replace(part, layout=replace(layout, order=order(layout.work.ops, layout.places)))
