"""What orders the operations of lanes whose engines have events: an event where one is free, else the core.

An event is a counter, which engines count up and wait for. The signals of one follow each other whatever the engines'
speed: each of them is behind the one before on its engine, or behind an operation that has waited for that. So the
value of an event says which of its signals have come. An event that several engines signal is free for the next one
from there on.

The core gives the operations of a lane to its engines in the order of their starts, and every wait is for an operation
with an earlier end. So is every await: nobody waits for anybody who waits for him.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_hw.plan.lanes.joint import JointWork
from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.order.waits import EARLY
from byoc_hw.soc import Soc

_MOST_SIGNALS = 65535
"""The largest value of an event."""


@dataclass(frozen=True)
class Ordered:
    """What an operation waits for, and who is told that it has ended.

    The core waits for the operations `waits` before it gives it to its engine, which waits for (event, value) of
    `awaits`, and signals the event `signal` behind it.
    """

    waits: tuple[int, ...] = ()
    awaits: tuple[tuple[int, int], ...] = ()
    signal: int | None = None

    @property
    def places(self) -> int:
        """The places that it takes in its engine's queue."""
        return len(self.awaits) + 1 + (self.signal is not None)


@dataclass(frozen=True)
class Sync:
    """How the lanes with events are ordered.

    `ops` has each of their operations, `lanes` those of each lane in the order in which the core gives them to the
    engines. Before those in `turns` it goes on with the next lane. `lasts` are the last operations of a lane's engines,
    for which the core waits at its end: it learns of a failure there, whoever else waits for that engine.
    """

    ops: Mapping[int, Ordered]
    lanes: Mapping[int, Sequence[int]]
    turns: frozenset[int]
    lasts: Mapping[int, Sequence[int]]

    def waits(self, lane: int, is_job: Sequence[bool], queue: int) -> Iterator[tuple[int, int | None]]:
        """What the core does in a lane: (operation, the one that needs it) to wait for one, (operation, None) to start
        it. It also waits where the queue of an engine would be full, until that is half empty."""
        flying: dict[bool, list[int]] = {True: [], False: []}

        def wait(op: int, user: int) -> Iterator[tuple[int, int | None]]:
            others = flying[is_job[op]]
            if op in others:  # else it has ended with another one
                del others[: others.index(op) + 1]
                yield op, user

        for op in self.lanes[lane]:
            for other in self.ops[op].waits:
                yield from wait(other, op)
            others = flying[is_job[op]]
            if others and sum(self.ops[one].places for one in (*others, op)) > queue:
                left = 0
                for other in reversed(others):
                    left += self.ops[other].places
                    if 2 * left > queue or other == others[0]:
                        yield from wait(other, op)
                        break
            yield op, None
            others.append(op)
        for op in self.lasts[lane]:
            yield from wait(op, -1)


def synchronized(work: JointWork, order: Order, chip: Soc) -> Sync:
    """How the lanes with events are ordered, of those that have work."""
    lanes = sorted(lane for lane in set(work.lanes) if chip.has_events(lane))
    times = sorted(range(len(work.ops)), key=lambda op: (order.start[op], order.end[op], op))
    ordering = _Ordering(work, order, [op for op in times if work.lanes[op] in lanes])
    wanted = ordering.run(_Every())
    found = ordering.run(_Allocation(chip.events, wanted.awaited))
    of_lane = {lane: [op for op in times if work.lanes[op] == lane] for lane in lanes}
    return Sync(found.ordered(), of_lane, _turns(of_lane, order.start), found.lasts)


def _turns(lanes: Mapping[int, Sequence[int]], start: Sequence[int]) -> frozenset[int]:
    """The operations before which the core goes on with the next lane, as another one has work that starts earlier."""
    turns: set[int] = set()
    left = {lane: list(reversed(ops)) for lane, ops in lanes.items()}
    while any(left.values()):
        for lane, ops in left.items():
            others = [start[other[-1]] for at, other in left.items() if at != lane and other]
            until = min(others, default=start[ops[-1]] if ops else 0) + EARLY
            while ops and (not others or start[ops[-1]] <= until or ops[-1] in turns):
                ops.pop()
            if ops:
                turns.add(ops[-1])
    return frozenset(turns)


# ---------------------------------------------------------------- what is known to have ended

_Known = list[int]
"""Of each engine, what has ended: twice the number of an operation, and one more with the signal behind it."""


def _both(one: _Known, other: _Known) -> _Known:
    return list(map(max, one, other))


class _Every:
    """An event for each operation."""

    def take(self, op: int, engine: int, number: int, known: _Known) -> int | None:
        return op


class _Allocation:
    """Events, as registers: each has the engine and the number of the operation that signals it last."""

    def __init__(self, events: int, needed: Collection[int]) -> None:
        self._free, self._needed = list(range(events - 1, -1, -1)), needed
        self._last: dict[int, tuple[int, int]] = {}
        self._signals = [0] * events

    def take(self, op: int, engine: int, number: int, known: _Known) -> int | None:
        """An event for an operation of which so much is known to have ended when it has; None if none is free."""
        if op not in self._needed:
            return None
        possible = [
            (last != engine, event)
            for event, (last, before) in self._last.items()
            if (last == engine or known[last] > 2 * before) and self._signals[event] < _MOST_SIGNALS
        ]
        if self._free and not (possible and not min(possible)[0]):
            event = self._free.pop()
        elif possible:
            event = min(possible)[1]
        else:
            return None
        self._last[event] = engine, number
        self._signals[event] += 1
        return event


@dataclass(frozen=True)
class _Found:
    """For each operation those that the core waits for, those that its engine awaits, and the event of its signal."""

    waits: dict[int, list[int]]
    awaits: dict[int, list[int]]
    events: dict[int, int]
    lasts: dict[int, list[int]]

    @property
    def awaited(self) -> frozenset[int]:
        """The operations that engines await."""
        return frozenset(other for others in self.awaits.values() for other in others)

    def ordered(self) -> dict[int, Ordered]:
        """With the values of the events: only those are signalled that somebody awaits."""
        awaited, counts, values = self.awaited, Counter[int](), {}
        for op in self.awaits:
            if op in awaited:
                counts[self.events[op]] += 1
                values[op] = counts[self.events[op]]
        return {
            op: Ordered(
                tuple(self.waits[op]),
                tuple((self.events[other], values[other]) for other in others),
                self.events[op] if op in awaited else None,
            )
            for op, others in self.awaits.items()
        }


class _Ordering:
    """What orders operations, which are given in the order of their starts."""

    def __init__(self, work: JointWork, order: Order, times: Sequence[int]) -> None:
        self._work, self._order, self._times = work, order, times
        self._engines = 2 * (max(work.lanes, default=-1) + 1)
        self._engine = [2 * lane + op.is_job for op, lane in zip(work.ops, work.lanes, strict=True)]
        self._number = [0] * len(work.ops)
        counts: Counter[int] = Counter()
        for op in (*order.copies, *order.jobs):
            self._number[op] = counts[self._engine[op]]
            counts[self._engine[op]] += 1

    def run(self, events: _Every | _Allocation) -> _Found:
        """Order all operations with these events."""
        nothing = [-1] * self._engines
        core = {self._work.lanes[op]: nothing for op in self._times}  # what it knows in each lane
        engines = dict.fromkeys(self._engine, nothing)  # and each engine, at the end of what it was given
        ended: dict[int, _Known] = {}  # what has ended with an operation and its signal
        found = _Found({}, {}, {}, {})
        for op in self._times:
            engine, lane, number = self._engine[op], self._work.lanes[op], 2 * self._number[op]
            known = _both(core[lane], engines[engine])
            waits: list[int] = []
            awaits: list[int] = []
            for other in self._before(op):
                if known[self._engine[other]] >= 2 * self._number[other]:
                    continue
                if other in found.events:
                    awaits.append(other)
                    known = _both(known, self._signalled(other, ended))
                else:
                    waits.append(other)
                    core[lane] = _both(core[lane], self._over(other, ended))
                    known = _both(known, core[lane])
            found.waits[op], found.awaits[op] = waits, awaits
            known[engine] = number
            engines[engine] = ended[op] = known
            event = events.take(op, engine, self._number[op], known)
            if event is not None:
                found.events[op] = event
        for lane in core:
            last = {self._engine[op]: op for op in self._times if self._work.lanes[op] == lane}
            found.lasts[lane] = sorted(last.values(), key=lambda op: (self._order.end[op], op))
        return found

    def _before(self, op: int) -> list[int]:
        """The operations of other engines that one waits for, those that end last first."""
        others = [other for other in self._work.before[op] if self._engine[other] != self._engine[op]]
        return sorted(others, key=lambda other: (self._order.end[other], other), reverse=True)

    def _over(self, op: int, ended: Mapping[int, _Known]) -> _Known:
        """What has ended when an operation has, also one of a lane without events."""
        known = list(ended.get(op, [-1] * self._engines))
        known[self._engine[op]] = 2 * self._number[op]
        return known

    def _signalled(self, op: int, ended: Mapping[int, _Known]) -> _Known:
        known = list(ended[op])
        known[self._engine[op]] = 2 * self._number[op] + 1
        return known
