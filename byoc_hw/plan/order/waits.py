"""Makes steps of ordered copies and jobs, with a wait wherever an operation depends on the other engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.steps import SLOTS, CopyWait, JobWait, Step
from byoc_hw.plan.work.ops import LocalBuffer, Op

EARLY = 1000
"""Cycles by which the host may queue an operation before it can start, so that an engine does not run idle."""


@dataclass(frozen=True)
class Owned:
    """A step, the layer that it is for, and its place among the operations (None for a wait)."""

    step: Step
    layer: int
    op: int | None = None


def with_waits(ops: Sequence[Op], offsets: Mapping[LocalBuffer, int], found: Order) -> tuple[Owned, ...]:
    """The steps: copies and jobs in that order, with the waits that they need."""
    sequence = list(_events(_merged(found), ops, found.before, _places(found)))
    return tuple(with_slots(sequence, ops, offsets, found))


def _places(times: Order) -> dict[int, int]:
    """The place of each operation on its engine."""
    return {index: at for engine in (times.copies, times.jobs) for at, index in enumerate(engine)}


def _merged(times: Order) -> list[int]:
    """All operations in the order in which the host starts them; each engine keeps its order."""
    keyed = []
    for engine in (times.copies, times.jobs):
        at = 0
        for index in engine:
            at = max(at, times.ready[index], times.start[index] - EARLY)
            keyed.append((at, index))
    return [index for _, index in sorted(keyed, key=lambda item: (item[0], times.start[item[1]], item[1]))]


Awaited = tuple[int, int | None]
"""An operation to wait for (and the one that needs that), or (the operation, None) to start it."""


def _events(
    order: Sequence[int], ops: Sequence[Op], before: Sequence[set[int]], place: Mapping[int, int]
) -> Iterator[Awaited]:
    """Starts and waits. After a wait, everything that the engine began earlier has ended, too."""
    shown = {True: -1, False: -1}  # of the jobs, of all others
    last: dict[bool, int] = {}
    for index in order:
        mine = ops[index].is_job
        others = [other for other in before[index] if ops[other].is_job is not mine]
        if others:
            latest = max(others, key=lambda other: place[other])
            engine = ops[latest].is_job
            if place[latest] > shown[engine]:
                yield latest, index
                shown[engine] = place[latest]
        yield index, None
        last[mine] = index
    for engine, index in sorted(last.items(), key=lambda item: item[1]):
        if place[index] > shown[engine]:
            yield index, -1


def with_slots(
    events: Sequence[Awaited],
    ops: Sequence[Op],
    offsets: Mapping[LocalBuffer, int],
    times: Order,
) -> Iterator[Owned]:
    """Assign the slots of tokens. Slot 0 is for operations that nothing waits for.

    Where no slot is free, the host waits at once for the operation that ends first.
    """
    awaited = {index for index, user in events if user is not None}
    place = _places(times)
    free = list(range(SLOTS - 1, 0, -1))
    taken: dict[int, int] = {}  # operation: slot

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
        yield Owned(replace(ops[index].at(offsets), slot=slot), layer, index)
