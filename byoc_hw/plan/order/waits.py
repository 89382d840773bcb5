"""Makes steps of ordered copies and jobs, with a wait wherever an operation depends on the other engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.steps import SLOTS, CopyWait, JobWait, Step
from byoc_hw.plan.work.ops import LocalBuffer, Op

EARLY = 1000
"""Cycles by which the host may queue an operation before it can start, so that an engine does not run idle."""


@dataclass(frozen=True)
class Handover:
    """Copies that one region starts for the next: of those that were `begun` before this one the slot of the token, by
    operation; and those that this one starts `ahead`, for which it does not wait. Both are operations of its order."""

    begun: Mapping[int, int] = field(default_factory=dict)
    ahead: frozenset[int] = frozenset()


CLOSED = Handover()
"""Of a region that starts all its copies, and no other."""


@dataclass(frozen=True)
class Owned:
    """A step, the layer that it is for, and its place among the operations (None for a wait)."""

    step: Step
    layer: int
    op: int | None = None


def with_waits(
    ops: Sequence[Op], offsets: Mapping[LocalBuffer, int], found: Order, queue: int, border: Handover = CLOSED
) -> tuple[Owned, ...]:
    """The steps: copies and jobs in that order, with the waits that they need.

    Each engine holds `queue` operations. They take the cycles of the order for every queue.
    """
    return tuple(with_slots(_sequence(ops, found, queue, len(ops), border), ops, offsets, found, border))


def with_waits_for_room(
    ops: Sequence[Op], offsets: Mapping[LocalBuffer, int], found: Order, queue: int
) -> tuple[Owned, ...]:
    """As `with_waits`, for one of several accelerators: the host also waits before a start into a full queue, as others
    go on during a wait, and a start would hold them back."""
    return tuple(with_slots(_sequence(ops, found, queue, queue), ops, offsets, found))


def _sequence(ops: Sequence[Op], found: Order, queue: int, flying: int, border: Handover = CLOSED) -> list[Awaited]:
    """Starts and waits, with at most `flying` operations of an engine that the host has not seen to end."""
    place = _places(found)
    return list(_events(_merged(ops, found, place, queue, flying, border), ops, found, place, flying, border))


def _places(times: Order) -> dict[int, int]:
    """The place of each operation on its engine."""
    return {index: at for engine in (times.copies, times.jobs) for at, index in enumerate(engine)}


def _merged(
    ops: Sequence[Op], times: Order, place: Mapping[int, int], queue: int, flying: int, border: Handover
) -> list[int]:
    """All operations in the order in which the host starts them; each engine keeps its order.

    The host starts one when what it waits for has ended, and its engine's queue and the tokens have room for it. That
    is never later than the engine is free for it, and all that comes before was started by then: so no start and no
    wait holds an operation of the other engine back.
    """
    awaited = _ever_awaited(ops, times, place, flying, border)
    coming = [deque(one for one in engine if one not in border.begun) for engine in (times.copies, times.jobs)]
    # The ends of operations with a token, which the host may wait for.
    ended: list[deque[int]] = [deque(times.end[index] for index in border.begun), deque()]
    order: list[int] = []
    now = 0

    def starts(engine: int) -> tuple[int, int, int]:
        index = coming[engine][0]
        at = max(now, times.ready[index], times.start[index] - EARLY)
        if place[index] >= queue:
            at = max(at, times.end[(times.copies, times.jobs)[engine][place[index] - queue]])
        return (_with_token(at, ended, engine) if index in awaited else at), times.start[index], index

    while coming[0] or coming[1]:
        now, _, index = min(starts(engine) for engine in (0, 1) if coming[engine])
        engine = int(ops[index].is_job)
        coming[engine].popleft()
        order.append(index)
        for ends in ended:
            while ends and ends[0] <= now:
                ends.popleft()
        if index in awaited:
            ended[engine].append(times.end[index])
    return order


def _with_token(at: int, ended: Sequence[Sequence[int]], engine: int) -> int:
    """The cycle from `at` on at which there is a token for one more operation of an engine.

    An engine leaves one to the other engine: where none is left, it has operations under way itself, and the first of
    them ends before the next one starts.
    """
    under_way = [[end for end in ends if end > at] for ends in ended]
    mine = under_way[engine]
    if len(mine) == SLOTS - 2:
        return mine[0]
    if len(mine) + len(under_way[1 - engine]) == SLOTS - 1:
        return min(ends[0] for ends in under_way)
    return at


def _ever_awaited(ops: Sequence[Op], times: Order, place: Mapping[int, int], flying: int, border: Handover) -> set[int]:
    """The operations that the host may have to wait for: the last that one of the other engine needs, the last of all,
    those that have to end before there is room for another one, and those that the next region waits for."""
    engines = [one for one in times.copies if one not in border.ahead], times.jobs
    found = {index for engine in engines for index in (*engine[-1:], *engine[:-flying])} | border.ahead
    for index, before in enumerate(times.before):
        others = [other for other in before if ops[other].is_job is not ops[index].is_job]
        if others:
            found.add(max(others, key=lambda other: place[other]))
    return found


Awaited = tuple[int, int | None]
"""An operation to wait for (and the one that needs that), or (the operation, None) to start it."""


def _events(
    order: Sequence[int], ops: Sequence[Op], times: Order, place: Mapping[int, int], flying: int, border: Handover
) -> Iterator[Awaited]:
    """Starts and waits. After a wait, everything that the engine began earlier has ended, too."""
    shown = {True: -1, False: -1}  # of the jobs, of all others
    last: dict[bool, int] = {}
    for index in order:
        mine = ops[index].is_job
        others = [other for other in times.before[index] if ops[other].is_job is not mine]
        if others:
            latest = max(others, key=lambda other: place[other])
            engine = ops[latest].is_job
            if place[latest] > shown[engine]:
                yield latest, index
                shown[engine] = place[latest]
        if place[index] - flying > shown[mine]:
            shown[mine] = place[index] - flying
            yield (times.jobs if mine else times.copies)[shown[mine]], index
        yield index, None
        if index not in border.ahead:
            last[mine] = index
    for engine, index in sorted(last.items(), key=lambda item: item[1]):
        if place[index] > shown[engine]:
            yield index, -1


def with_slots(
    events: Sequence[Awaited],
    ops: Sequence[Op],
    offsets: Mapping[LocalBuffer, int],
    times: Order,
    border: Handover = CLOSED,
) -> Iterator[Owned]:
    """Assign the slots of tokens. Slot 0 is for operations that nothing waits for.

    Where no slot is free, the host waits at once for the operation that ends first.
    """
    awaited = {index for index, user in events if user is not None} | border.ahead
    place = _places(times)
    taken = dict(border.begun)  # operation: slot
    free = [slot for slot in range(SLOTS - 1, 0, -1) if slot not in taken.values()]

    def wait(index: int, layer: int) -> Iterator[Owned]:
        engine = ops[index].is_job
        yield Owned((JobWait if engine else CopyWait)(taken[index]), layer)
        for other in [one for one in taken if ops[one].is_job is engine and place[one] <= place[index]]:
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
        yield Owned(ops[index].at(offsets, slot), layer, index)
