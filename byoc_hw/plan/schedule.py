"""When each copy and job starts: the DMA's order, and from it the steps with the waits that they need.

Jobs keep the order of the work. A copy may be done earlier or later than it stands there, as long as
nothing that it shares bytes with is passed: whenever the DMA is free it takes, of the copies that can
start, the one that is needed first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from byoc_hw.plan.ops import Buffer, Op
from byoc_hw.plan.steps import SLOTS, Copy, CopyWait, Job, JobWait, Step

EARLY = 1000
"""Cycles by which the host may ask for an operation before it can start: so that an engine never runs dry."""

_NEVER = 1 << 62


@dataclass(frozen=True)
class Owned:
    """A step, the layer that it is for, and its place among the operations (None for a wait)."""

    step: Step
    layer: int
    op: int | None = None


# ---------------------------------------------------------------- what has to wait for what


class _Memory:
    """Who wrote and who read each byte of one memory last: pieces that cover it, by address."""

    def __init__(self, is_copy: Sequence[bool]) -> None:
        self.is_copy = is_copy
        self.starts: list[int] = [0]
        self.pieces: list[tuple[int, tuple[int, ...]]] = [(-1, ())]  # writer, readers since

    def access(self, start: int, stop: int, writes: bool, op: int, found: set[int]) -> None:
        """Add those that an access has to wait for to `found`, and note the access."""
        first = self._cut(start)
        last = self._cut(stop)
        for index in range(first, last):
            writer, readers = self.pieces[index]
            if writer >= 0:
                found.add(writer)
            if writes:
                found.update(readers)
                self.pieces[index] = (op, ())
            else:  # of jobs the newest is enough: they end in their order
                kept = readers if self.is_copy[op] else [other for other in readers if self.is_copy[other]]
                self.pieces[index] = (writer, (*kept, op))
        if writes:
            self.starts[first:last] = [start]
            self.pieces[first:last] = [(op, ())]

    def _cut(self, at: int) -> int:
        """The index of the piece that starts at an address."""
        index = bisect_right(self.starts, at) - 1
        if self.starts[index] == at:
            return index
        self.starts.insert(index + 1, at)
        self.pieces.insert(index + 1, self.pieces[index])
        return index + 1


def dependencies(ops: Sequence[Op], offsets: Mapping[Buffer, int]) -> list[set[int]]:
    """For each operation, the earlier ones that share bytes with it so that one of both writes.

    Without jobs for a job: they keep their order anyway.
    """
    is_copy = [isinstance(op.step, Copy) for op in ops]
    memories: dict[object, _Memory] = {}
    found = []
    for index, op in enumerate(ops):
        before: set[int] = set()
        for access in op.accesses:
            place = access.place
            key, base = (place.space, offsets[place]) if isinstance(place, Buffer) else (place, 0)
            memory = memories.setdefault(key, _Memory(is_copy))
            memory.access(base + access.start, base + access.stop, access.writes, index, before)
        found.append({other for other in before if other != index and (is_copy[index] or is_copy[other])})
    return found


# ---------------------------------------------------------------- the order of copies


@dataclass(frozen=True)
class Order:
    """The DMA's order and the array's, by place in the work, and the times of each operation.

    `before` are those that each has to wait for; `ready` is when it could start.
    """

    before: list[set[int]]
    copies: list[int]
    jobs: list[int]
    start: list[int]
    end: list[int]
    ready: list[int]

    @property
    def cycles(self) -> int:
        """The cycles that all takes on a host that takes no time."""
        return max(self.end, default=0)


def order(ops: Sequence[Op], offsets: Mapping[Buffer, int]) -> Order:
    """Order the copies: jobs keep theirs."""
    before = dependencies(ops, offsets)
    is_copy = [isinstance(op.step, Copy) for op in ops]
    needed = _needed(ops, before, is_copy)
    waiting = [len(before[index]) for index in range(len(ops))]
    after: list[list[int]] = [[] for _ in ops]
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    start, end, ready = [0] * len(ops), [0] * len(ops), [0] * len(ops)
    jobs = [index for index in range(len(ops)) if not is_copy[index]]
    copies: list[int] = []
    free = {True: 0, False: 0}
    possible: list[tuple[int, int]] = []  # copies that can start, by need
    later: list[tuple[int, int, int]] = []  # copies that can start from a time on
    following = 0

    def begin(index: int) -> None:
        engine = is_copy[index]
        start[index] = max(free[engine], ready[index])
        free[engine] = end[index] = start[index] + ops[index].cycles
        for other in after[index]:
            waiting[other] -= 1
            if is_copy[other] != engine:
                ready[other] = max(ready[other], end[index])
            if waiting[other] == 0 and is_copy[other]:
                heappush(later, (ready[other], needed[other], other))

    for index in range(len(ops)):
        if is_copy[index] and waiting[index] == 0:
            heappush(later, (0, needed[index], index))
    while True:
        while following < len(jobs) and waiting[jobs[following]] == 0:
            begin(jobs[following])
            following += 1
        while later and later[0][0] <= free[True]:
            _, need, index = heappop(later)
            heappush(possible, (need, index))
        if possible:
            index = heappop(possible)[1]
        elif later:
            index = heappop(later)[2]
        else:
            break
        copies.append(index)
        begin(index)
    assert len(copies) + following == len(ops), "the order of the work is a possible one"
    return Order(before, copies, jobs, start, end, ready)


def _needed(ops: Sequence[Op], before: Sequence[set[int]], is_copy: Sequence[bool]) -> list[int]:
    """For each copy the first job that waits for it, directly or by way of other copies."""
    needed = [_NEVER] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        at = needed[index] if is_copy[index] else index
        for other in before[index]:
            if is_copy[other]:
                needed[other] = min(needed[other], at)
    return needed


# ---------------------------------------------------------------- steps


def schedule(ops: Sequence[Op], offsets: Mapping[Buffer, int], found: Order) -> tuple[Owned, ...]:
    """The steps: copies and jobs in that order, with the waits that they need."""
    place = {index: at for engine in (found.copies, found.jobs) for at, index in enumerate(engine)}
    sequence = list(_events(_merged(found), ops, found.before, place))
    return tuple(_slots(sequence, ops, offsets, found, place))


def _merged(times: Order) -> list[int]:
    """All operations in the order in which the host asks for them: each engine's stay in theirs."""
    keyed = []
    for engine in (times.copies, times.jobs):
        at = 0
        for index in engine:
            at = max(at, times.ready[index], times.start[index] - EARLY)
            keyed.append((at, index))
    return [index for _, index in sorted(keyed, key=lambda item: (item[0], times.start[item[1]], item[1]))]


_Event = tuple[int, int | None]
"""An operation to wait for (and the one that needs that), or (the operation, None) to start it."""


def _events(
    order: Sequence[int], ops: Sequence[Op], before: Sequence[set[int]], place: Mapping[int, int]
) -> Iterator[_Event]:
    """Starts and waits: a wait shows that all that the engine began earlier has ended."""
    shown = {Copy: -1, Job: -1}
    last: dict[type, int] = {}
    for index in order:
        mine = type(ops[index].step)
        others = [other for other in before[index] if type(ops[other].step) is not mine]
        if others:
            latest = max(others, key=lambda other: place[other])
            engine = type(ops[latest].step)
            if place[latest] > shown[engine]:
                yield latest, index
                shown[engine] = place[latest]
        yield index, None
        last[mine] = index
    for engine, index in sorted(last.items(), key=lambda item: item[1]):
        if place[index] > shown[engine]:
            yield index, -1


def _slots(
    events: Sequence[_Event], ops: Sequence[Op], offsets: Mapping[Buffer, int], times: Order, place: Mapping[int, int]
) -> Iterator[Owned]:
    """Give out the slots of tokens. Slot 0 is for what nobody waits for.

    Where they run out, the host waits at once for what ends first.
    """
    awaited = {index for index, user in events if user is not None}
    free = list(range(SLOTS - 1, 0, -1))
    taken: dict[int, int] = {}  # operation: slot
    shown = {Copy: -1, Job: -1}

    def wait(index: int, layer: int) -> Iterator[Owned]:
        engine = type(ops[index].step)
        yield Owned((CopyWait if engine is Copy else JobWait)(taken[index]), layer)
        shown[engine] = place[index]
        for other in [one for one in taken if type(ops[one].step) is engine and place[one] <= place[index]]:
            free.append(taken.pop(other))

    for index, user in events:
        layer = ops[index if user is None or user < 0 else user].layer
        if user is not None:
            if index in taken:
                yield from wait(index, layer)
            continue
        slot = 0
        if index in awaited:
            if not free:
                yield from wait(min(taken, key=lambda one: times.end[one]), layer)
            slot = taken[index] = free.pop()
        yield Owned(replace(ops[index].at(offsets), slot=slot), layer, index)
