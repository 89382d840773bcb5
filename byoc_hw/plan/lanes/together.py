"""Cycles of parts together, quickly: what two parts do to each other is worked out once for each pair of options.

The cycles are those of `joint_order`, but for bytes of local memory that a part takes over from one long before it, or
from another accelerator that shares the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from byoc_hw.plan.lanes.joint import shifted_behind
from byoc_hw.plan.lanes.profile import Option
from byoc_hw.tensor import Tensor

Edges = list[tuple[int, int]]
"""Actions of one part, and those of a later one that wait for them."""


NEVER = 1 << 62
"""Later than any cycle."""


class Together:
    """Schedules combinations of options. The order of the parts is a possible one."""

    def __init__(self) -> None:
        self._data: dict[tuple[Option, Option], Edges] = {}
        self._memory: dict[tuple[object, ...], Edges] = {}
        self._cycles: dict[tuple[Option, ...], int] = {}
        self._least: dict[tuple[Option, ...], int] = {}
        self.work = 0
        """The actions that were scheduled so far."""

    def cycles(self, parts: Sequence[Option], limit: int = NEVER) -> int:
        """Cycles of parts, each on its lane. Where these are `limit` or more, it may be any number in between."""
        key = tuple(parts)
        if key in self._cycles:
            return self._cycles[key]
        least = self._least.get(key, 0)
        if least >= limit:
            return least
        cycles = _busiest(parts)
        if cycles < limit:
            run = _Run(parts, self._edges(parts))
            self.work += run.actions
            cycles = run.cycles(limit)
        (self._cycles if cycles < limit else self._least)[key] = cycles
        return cycles

    def _edges(self, parts: Sequence[Option]) -> Iterator[tuple[int, int, Edges]]:
        """What parts wait for in earlier ones: the data that these store, and the local memory that they use."""
        makers: dict[Tensor, list[int]] = {}
        before: dict[int, int] = {}
        shifts = shifted_behind([(one.part.cut.lane, one.part.mapped.accelerator, one.profile.needs) for one in parts])
        for at, part in enumerate(parts):
            for other in {one for tensor in part.reads for one in makers.get(tensor, ())}:
                yield other, at, self._data_edges(parts[other], part)
            for tensor in part.writes:
                makers.setdefault(tensor, []).append(at)
            lane = part.part.cut.lane
            if lane in before:
                other = before[lane]
                moved = tuple(mine - its for mine, its in zip(shifts[at], shifts[other], strict=True))
                needs = zip(moved, parts[other].profile.needs, part.profile.needs, strict=True)
                if any(-own < by < its for by, its, own in needs):
                    yield other, at, self._memory_edges(parts[other], part, moved)
            before[lane] = at

    def _data_edges(self, one: Option, other: Option) -> Edges:
        key = one, other
        if key not in self._data:
            self._data[key] = [
                (a, b)
                for tensor, reads in other.reads.items()
                for a, first, last, low, high in one.writes.get(tensor, ())
                for b, begin, end, left, right in reads
                if first < end and begin < last and low < right and left < high
            ]
        return self._data[key]

    def _memory_edges(self, one: Option, other: Option, moved: Sequence[int]) -> Edges:
        key = one.profile, other.profile, moved
        if key not in self._memory:
            copies = [[action.copies for action in option.profile.actions] for option in (one, other)]
            found = {
                (a, b)
                for b, space, start, stop, writes in other.profile.local
                for a, there, first, last, wrote in one.profile.local
                if space == there and start + moved[space] < last and first < stop + moved[space] and (writes or wrote)
            }
            self._memory[key] = [(a, b) for a, b in found if copies[0][a] or copies[1][b]]
        return self._memory[key]


def _busiest(parts: Sequence[Option]) -> int:
    """Cycles of the engine that has the most to do."""
    arrays: dict[int, int] = {}
    dmas: dict[int, int] = {}
    for part in parts:
        lane, (jobs, copies) = part.part.cut.lane, part.profile.load
        arrays[lane] = arrays.get(lane, 0) + jobs
        dmas[lane] = dmas.get(lane, 0) + copies
    return max(*arrays.values(), *dmas.values(), 0)


class _Run:
    """List scheduling, as in `joint.py`."""

    def __init__(self, parts: Sequence[Option], edges: Iterator[tuple[int, int, Edges]]) -> None:
        lanes = max(part.part.cut.lane for part in parts) + 1
        self._cost: list[int] = []
        self._engine: list[int] = []  # twice the lane, and one more for a copy
        self._waits: list[int] = []
        self._after: list[tuple[int, ...]] = []  # how far behind an action those are that wait for it
        self._needed: list[int] = []
        self._jobs: list[list[int]] = [[] for _ in range(lanes)]
        starts = []
        for part in parts:
            base, lane, flat = len(self._cost), part.part.cut.lane, part.profile.flat
            starts.append(base)
            self._cost += flat.cycles
            self._engine += [2 * lane + copies for copies in flat.copies]
            self._waits += flat.before
            self._after += flat.after
            self._needed += [base + needed for needed in flat.needed]
            self._jobs[lane] += [base + at for at in flat.jobs]
        for one, other, pairs in sorted(edges, key=lambda edge: -edge[1]):
            first, second = starts[one], starts[other]
            for a, b in pairs:
                before, behind = first + a, second + b
                self._after[before] += (behind - before,)
                self._waits[behind] += 1
                need = self._needed[behind] if self._engine[behind] & 1 else behind
                if need < self._needed[before]:
                    self._needed[before] = need

    @property
    def actions(self) -> int:
        """Their number."""
        return len(self._cost)

    def cycles(self, limit: int) -> int:
        """The end of the last action; as soon as that is known to be `limit` or later, what is known of it."""
        cost, engine, waits, after, needed = self._cost, self._engine, self._waits, self._after, self._needed
        count = 2 * len(self._jobs)
        ready, free, rest = [0] * len(cost), [0] * count, [0] * count
        possible: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        later: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        jobs = [[-1, *reversed(self._jobs[on >> 1])] for on in range(count)]  # those to come; the next one is the last
        can = [NEVER] * count  # when each engine can start its next action
        for index, on in enumerate(engine):
            rest[on] += cost[index]
            if on & 1 and not waits[index]:
                later[on].append((0, needed[index], index))
                can[on] = 0
        for on in range(0, count, 2):
            if jobs[on][-1] >= 0 and not waits[jobs[on][-1]]:
                can[on] = 0
        for heap in later:
            heapify(heap)
        while True:
            now = min(can)
            if now == NEVER:
                return max(free)
            on = can.index(now)
            if on & 1:
                waiting, open_ = later[on], possible[on]
                while waiting and waiting[0][0] <= now:
                    _, need, index = heappop(waiting)
                    heappush(open_, (need, index))
                index = heappop(open_)[1]
            else:
                index = jobs[on].pop()
            free[on] = end = now + cost[index]
            rest[on] -= cost[index]
            if end + rest[on] >= limit:
                return end + rest[on]
            for far in after[index]:
                other = index + far
                waits[other] -= 1
                its = engine[other]
                if its != on and end > ready[other]:
                    ready[other] = end
                if waits[other]:
                    continue
                if its & 1:
                    heappush(later[its], (ready[other], needed[other], other))
                    if not possible[its]:
                        can[its] = max(free[its], later[its][0][0])
                elif jobs[its][-1] == other:
                    can[its] = max(free[its], ready[other])
            if on & 1:
                can[on] = end if possible[on] else max(end, later[on][0][0]) if later[on] else NEVER
            else:
                index = jobs[on][-1]
                can[on] = max(end, ready[index]) if index >= 0 and not waits[index] else NEVER
