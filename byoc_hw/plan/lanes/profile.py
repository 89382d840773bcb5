"""What a part does to the engines and to main memory, in a form that is quick to schedule behind other parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_hw.plan.lanes.joint import PlacedPart
from byoc_hw.plan.order.copies import needed_first
from byoc_hw.plan.steps import Copy
from byoc_hw.tensor import Tensor

Piece = tuple[Tensor, int, int]
"""Bytes of a tensor in main memory: from, and up to but not including."""


@dataclass(frozen=True)
class Action:
    """A copy or job of a part. `before` are the actions of the part that it waits for, `after` those that wait for it,
    by index. It reads or writes `piece` of a tensor that parts share."""

    copies: bool
    cycles: int
    before: int
    after: tuple[int, ...]
    needed: int
    reads: Piece | None = None
    writes: Piece | None = None


@dataclass(frozen=True)
class Profile:
    """The actions of a part, and those that wait for no other of the part; jobs run in their order."""

    part: PlacedPart
    lane: int
    actions: tuple[Action, ...]
    first: tuple[int, ...]
    busy: int


def profile_of(part: PlacedPart) -> Profile:
    """The profile of a part."""
    layout = part.layout
    ops, before = layout.work.ops, layout.order.before
    is_copy = [isinstance(op.step, Copy) for op in ops]
    needed = needed_first(ops, before, is_copy)
    jobs = [index for index in range(len(ops)) if not is_copy[index]]
    behind: list[list[int]] = [[] for _ in ops]
    waits = [len(others) for others in before]
    for index, others in enumerate(before):
        for other in others:
            behind[other].append(index)
    for one, following in zip(jobs, jobs[1:], strict=False):
        behind[one].append(following)
        waits[following] += 1
    actions = []
    for index, op in enumerate(ops):
        reads = writes = None
        for access in op.accesses:
            source = getattr(access.place, "source", None)
            sinks = getattr(access.place, "sinks", [])
            argument = source or (sinks[0] if sinks else None)
            if argument is not None:
                whole, start = part.part.arguments[argument.index]
                piece = whole, start + access.start, start + access.stop
                reads, writes = (reads, piece) if access.writes else (piece, writes)
        actions.append(
            Action(is_copy[index], op.cycles, waits[index], tuple(behind[index]), needed[index], reads, writes)
        )
    first = tuple(index for index, count in enumerate(waits) if not count)
    busy = sum(op.cycles for op in ops if not isinstance(op.step, Copy))
    return Profile(part, part.lane, tuple(actions), first, busy)


@dataclass(frozen=True)
class Engines:
    """When each lane's DMA and array are free, how long its DMA was idle before, and when bytes are there."""

    dma: tuple[int, ...]
    array: tuple[int, ...]
    idle: tuple[int, ...]
    there: Mapping[Tensor, tuple[tuple[int, int, int], ...]]

    def then(self, profile: Profile) -> Engines:
        """The engines after a part: each starts its actions as early as it can, behind those of earlier parts.

        What waits for nothing, weights as a rule, is loaded while the DMA was idle before.
        """
        lane, actions = profile.lane, profile.actions
        dma, array, idle = self.dma[lane], self.array[lane], self.idle[lane]
        waits = [action.before for action in actions]
        ready = [0] * len(actions)
        open_ = list(profile.first)
        stored: dict[Tensor, list[tuple[int, int, int]]] = {}
        for index in open_:
            reads = actions[index].reads
            if reads is not None:
                ready[index] = self._time(reads)
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
            elif not ready[index] and action.reads is None and action.writes is None and idle >= action.cycles:
                idle -= action.cycles
                end = min(start, action.cycles)
            else:
                idle += start - dma
                end = dma = start + action.cycles
            if action.writes is not None:
                stored.setdefault(action.writes[0], []).append((action.writes[1], action.writes[2], end))
            for other in action.after:
                waits[other] -= 1
                if end > ready[other]:
                    ready[other] = end
                if not waits[other]:
                    reads = actions[other].reads
                    if reads is not None:
                        ready[other] = max(ready[other], self._time(reads))
                    open_.append(other)
        there = self.there
        if stored:
            there = {**there, **{tensor: (*there.get(tensor, ()), *pieces) for tensor, pieces in stored.items()}}
        return Engines(_with(self.dma, lane, dma), _with(self.array, lane, array), _with(self.idle, lane, idle), there)

    def _time(self, piece: Piece) -> int:
        tensor, start, stop = piece
        return max((end for first, last, end in self.there.get(tensor, ()) if first < stop and start < last), default=0)

    @property
    def end(self) -> int:
        """When the last engine is free."""
        return max(*self.dma, *self.array)


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
