"""What a part does to the engines and to main memory, in a form that is quick to schedule behind other parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from byoc_hw.integers import ceil_div
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.joint import PlacedPart, main_address, main_rows, needs_of
from byoc_hw.plan.lanes.layouts import in_pieces
from byoc_hw.plan.lanes.oriented import OrientedPart
from byoc_hw.plan.order.copies import needed_first
from byoc_hw.plan.order.dependencies import TouchedBytes
from byoc_hw.plan.search.planner import mapped_as
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, WEIGHTS, Address, Copy, Started
from byoc_hw.plan.work.ops import LocalBuffer
from byoc_hw.tensor import Tensor

ArgumentBytes = tuple[int, int, int]
"""Bytes of an argument: its index, from, and up to but not including."""


@dataclass(frozen=True)
class Action:
    """A copy or job of a part. It waits for `before` other actions of the part; those in `after` wait for it.

    It reads or writes bytes of an argument.
    """

    copies: bool
    cycles: int
    before: int
    after: tuple[int, ...]
    needed: int
    reads: tuple[ArgumentBytes, ...] = ()
    writes: ArgumentBytes | None = None


LocalBytes = tuple[int, int, int, int, bool]
"""Bytes of a local memory that an action touches: the action, the memory, from and to, and whether it writes."""

LocalPiece = tuple[int, int, int, tuple[int, ...]]
"""Bytes of a local memory from and to, the action that wrote them last or -1, and those that read them since: of a part
backwards, the first that writes them, and those that read them before."""

Touched = tuple[int, Started | None, int, int, int, bool]
"""Bytes of an argument that an action touches: the action, its step or None where the argument is handed over, the
argument, from and to, whether it writes."""

PixelBox = tuple[int, int, int, int, int]
"""Bytes of a tensor in main memory: the action that moves them, pixels from and to, bytes of each pixel from and to."""


@dataclass(frozen=True, eq=False)
class Profile:
    """The actions of a layout, and those that wait for no other; jobs run in their order.

    `cycles` are those of the part by itself, `copied` the bytes that its copies move, `needs` the bytes of both local
    memories that it uses, `local` those of each action.
    Parts with equal part_structure have equal profiles: only the tensors behind their arguments differ.
    """

    choices: Choices
    pieces: bool
    cycles: int
    copied: int
    actions: tuple[Action, ...]
    first: tuple[int, ...]
    needs: tuple[int, int]
    local: tuple[LocalBytes, ...]
    moved: tuple[Touched, ...]

    @cached_property
    def flat(self) -> FlatActions:
        """The actions once more, for a quick scheduler."""
        actions = self.actions
        return FlatActions(
            copies=[action.copies for action in actions],
            cycles=[action.cycles for action in actions],
            before=[action.before for action in actions],
            after=[tuple(other - index for other in action.after) for index, action in enumerate(actions)],
            needed=[action.needed - index for index, action in enumerate(actions)],
            first=[index for index in self.first if actions[index].copies],
            jobs=[index for index, action in enumerate(actions) if not action.copies],
        )

    @cached_property
    def left(self) -> list[list[LocalPiece]]:
        """The bytes of each local memory, by address, with the last actions that touch them."""
        return self._pieces(self.local)

    @cached_property
    def met(self) -> list[list[LocalPiece]]:
        """The bytes of each local memory, by address, with the first actions that touch them."""
        return self._pieces(self.local[::-1])

    def _pieces(self, local: Sequence[LocalBytes]) -> list[list[LocalPiece]]:
        arrays = [None if action.copies else 0 for action in self.actions]
        waits: list[set[int]] = [set() for _ in arrays]
        found = []
        for memory in (ACTIVATIONS, WEIGHTS):
            touched = TouchedBytes(arrays)
            spans = [(action, start, stop, writes) for action, space, start, stop, writes in local if space == memory]
            touched.record(spans, waits)
            found.append(list(touched.touched()))
        return found

    @cached_property
    def load(self) -> tuple[int, int]:
        """Cycles of all jobs, and of all copies."""
        jobs, copies = (sum(one.cycles for one in self.actions if one.copies is kind) for kind in (False, True))
        return jobs, copies


@dataclass(frozen=True)
class FlatActions:
    """Actions as lists, one for each field; `after` and `needed` are distances to the actions that wait, `first` the
    copies that wait for none, `jobs` those that are no copies."""

    copies: list[bool]
    cycles: list[int]
    before: list[int]
    after: list[tuple[int, ...]]
    needed: list[int]
    first: list[int]
    jobs: list[int]


def profile_of(layout: Layout, pieces: bool) -> Profile:
    """The profile of a part that is laid out; `pieces` says whether its inputs are loaded in pieces."""
    ops, before = layout.work.ops, layout.order.before
    is_copy = [isinstance(op.step, Copy) for op in ops]
    needed = needed_first(ops, before)
    jobs = [index for index in range(len(ops)) if not is_copy[index]]
    behind: list[list[int]] = [[] for _ in ops]
    waits = [len(others) for others in before]
    for index, others in enumerate(before):
        for other in others:
            behind[other].append(index)
    for one, following in itertools.pairwise(jobs):
        behind[one].append(following)
        waits[following] += 1
    actions, local, moved = [], [], []
    for index, op in enumerate(ops):
        reads: list[ArgumentBytes] = []
        writes = None
        for access in op.accesses:
            if isinstance(access.place, LocalBuffer):
                base = layout.places[access.place]
                local.append((index, access.place.space, base + access.start, base + access.stop, access.writes))
                continue
            space = main_address(op, access, layout.work.homes).space
            if space >= ARGUMENT:
                span = space - ARGUMENT, access.start, access.stop
                reads, writes = (reads, span) if access.writes else ([*reads, span], writes)
                step = None if isinstance(access.place, Address) else op.step
                moved.append((index, step, *span, access.writes))
        actions.append(
            Action(is_copy[index], op.cycles, waits[index], tuple(behind[index]), needed[index], tuple(reads), writes)
        )
    first = tuple(index for index, count in enumerate(waits) if not count)
    return Profile(
        choices=layout.choices,
        pieces=pieces,
        cycles=layout.cycles,
        copied=sum(op.step.bytes_moved for op in ops if isinstance(op.step, Copy)),
        actions=tuple(actions),
        first=first,
        needs=needs_of(layout),
        local=tuple(local),
        moved=tuple(moved),
    )


@dataclass(frozen=True, eq=False)
class Option:
    """A part with one of its profiles."""

    part: OrientedPart
    profile: Profile

    @property
    def span(self) -> tuple[int, int]:
        """The first of its layers, and the one behind its last."""
        layers = self.part.cut.layers
        return layers[0], layers[-1] + 1

    @cached_property
    def reads(self) -> dict[Tensor, list[PixelBox]]:
        """What it loads of each tensor of the region."""
        return self._boxes(writes=False)

    @cached_property
    def writes(self) -> dict[Tensor, list[PixelBox]]:
        """What it stores of each tensor of the region."""
        return self._boxes(writes=True)

    def _boxes(self, *, writes: bool) -> dict[Tensor, list[PixelBox]]:
        found: dict[Tensor, list[PixelBox]] = {}
        for index, step, argument, first, last, wrote in self.profile.moved:
            if wrote == writes:
                tensor, start = self.part.arguments[argument]
                boxes = found.setdefault(tensor, [])
                boxes += ((index, *box) for box in boxes_of(step, tensor, start + first, last - first))
        return found

    @cached_property
    def placed(self) -> PlacedPart:
        """The part laid out as its profile says."""
        choices = self.profile.choices
        layout = lay_out(mapped_as(self.part.mapped, choices), choices)
        pieces = self.profile.pieces
        return PlacedPart(self.part, in_pieces(layout) if pieces else layout, pieces)


def boxes_of(step: Started | None, tensor: Tensor, start: int, nbytes: int) -> Iterator[tuple[int, int, int, int]]:
    """What a copy or a call touches of `nbytes` of a tensor from byte `start` on: pixels from and to, and bytes of each
    of them."""
    pixel = tensor.bytes_of(tensor.shape[-1]) if tensor.shape else tensor.nbytes
    count, each, stride = main_rows(step, nbytes)
    if count > 1 and stride == pixel:
        first, low = divmod(start, pixel)
        yield first, first + count, low, low + each
        return
    for row in range(count):
        first, low = divmod(start + row * stride, pixel)
        if low + each <= pixel:
            yield first, first + 1, low, low + each
        else:
            yield first, first + ceil_div(low + each, pixel), 0, pixel


@dataclass(frozen=True)
class Engines:
    """When each lane's DMA and array are free, how long its DMA was idle before, and when bytes are there."""

    dma: tuple[int, ...]
    array: tuple[int, ...]
    idle: tuple[int, ...]
    there: Mapping[Tensor, tuple[tuple[int, int, int], ...]]

    def then(self, option: Option) -> Engines:
        """The engines after a part: each starts its actions as early as it can, behind those of earlier parts.

        What waits for nothing, weights as a rule, is loaded while the DMA was idle before.
        """
        lane, arguments, actions = option.part.cut.lane, option.part.arguments, option.profile.actions
        dma, array, idle = self.dma[lane], self.array[lane], self.idle[lane]
        waits = [action.before for action in actions]
        ready = [0] * len(actions)
        open_ = list(option.profile.first)
        stored: dict[Tensor, list[tuple[int, int, int]]] = {}
        for index in open_:
            ready[index] = self._time(arguments, actions[index].reads)
        while open_:
            best = -1
            chosen: tuple[int, int] | None = None
            for at, index in enumerate(open_):
                action = actions[index]
                start = ready[index]
                free = dma if action.copies else array
                if start < free:
                    start = free
                key = (start, action.needed if action.copies else -1)
                if chosen is None or key < chosen:
                    best, chosen = at, key
            assert chosen is not None
            index = open_.pop(best)
            action = actions[index]
            start = chosen[0]
            if not action.copies:
                end = array = start + action.cycles
            elif not ready[index] and not action.reads and action.writes is None and idle >= action.cycles:
                idle -= action.cycles
                end = min(start, action.cycles)
            else:
                idle += start - dma
                end = dma = start + action.cycles
            if action.writes is not None:
                number, begin, stop = action.writes
                tensor, offset = arguments[number]
                stored.setdefault(tensor, []).append((offset + begin, offset + stop, end))
            for other in action.after:
                waits[other] -= 1
                if end > ready[other]:
                    ready[other] = end
                if not waits[other]:
                    ready[other] = max(ready[other], self._time(arguments, actions[other].reads))
                    open_.append(other)
        there = self.there
        if stored:
            there = {**there, **{tensor: (*there.get(tensor, ()), *pieces) for tensor, pieces in stored.items()}}
        return Engines(_with(self.dma, lane, dma), _with(self.array, lane, array), _with(self.idle, lane, idle), there)

    def _time(self, arguments: Sequence[tuple[Tensor, int]], spans: Sequence[ArgumentBytes]) -> int:
        latest = 0
        for number, start, stop in spans:
            tensor, offset = arguments[number]
            start, stop = start + offset, stop + offset
            there = (end for first, last, end in self.there.get(tensor, ()) if first < stop and start < last)
            latest = max(latest, *there, 0)
        return latest

    @property
    def end(self) -> int:
        """When the last engine is free."""
        return max(*self.dma, *self.array)


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
