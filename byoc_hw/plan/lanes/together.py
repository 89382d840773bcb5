"""Cycles of parts together, quickly: what two parts do to each other is worked out once for each pair of options.

The cycles are those of `joint_order`, but for bytes of local memory that a part takes over from one long before it, or
from another accelerator that shares the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from byoc_hw.plan.lanes.joint import shifted_behind
from byoc_hw.plan.lanes.profile import Option
from byoc_hw.tensor import Tensor

Edges = list[tuple[int, int]]
"""Actions of one part, and those of a later one that wait for them."""


class Together:
    """Schedules combinations of options. The order of the parts is a possible one."""

    def __init__(self) -> None:
        self._data: dict[tuple[Option, Option], Edges] = {}
        self._memory: dict[tuple[object, ...], Edges] = {}
        self._cycles: dict[tuple[Option, ...], int] = {}

    def cycles(self, parts: Sequence[Option]) -> int:
        """Cycles of parts, each on its lane."""
        key = tuple(parts)
        if key not in self._cycles:
            self._cycles[key] = _Run(parts, self._edges(parts)).cycles()
        return self._cycles[key]

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


class _Run:
    """List scheduling, as in `joint.py`."""

    def __init__(self, parts: Sequence[Option], edges: Iterator[tuple[int, int, Edges]]) -> None:
        lanes = max(part.part.cut.lane for part in parts) + 1
        self._cost: list[int] = []
        self._engine: list[int] = []  # twice the lane, and one more for a copy
        self._waits: list[int] = []
        self._after: list[list[int]] = []
        self._needed: list[int] = []
        self._jobs: list[list[int]] = [[] for _ in range(lanes)]
        starts = []
        for part in parts:
            base, lane, actions = len(self._cost), part.part.cut.lane, part.profile.actions
            starts.append(base)
            self._cost += [action.cycles for action in actions]
            self._engine += [2 * lane + action.copies for action in actions]
            self._waits += [action.before for action in actions]
            self._after += [[base + other for other in action.after] for action in actions]
            self._needed += [base + action.needed for action in actions]
            self._jobs[lane] += [base + at for at, action in enumerate(actions) if not action.copies]
        for one, other, pairs in sorted(edges, key=lambda edge: -edge[1]):
            first, second = starts[one], starts[other]
            for a, b in pairs:
                before, behind = first + a, second + b
                self._after[before].append(behind)
                self._waits[behind] += 1
                need = self._needed[behind] if self._engine[behind] & 1 else behind
                if need < self._needed[before]:
                    self._needed[before] = need

    def cycles(self) -> int:
        """The end of the last action."""
        cost, engine, waits, after, needed = self._cost, self._engine, self._waits, self._after, self._needed
        count = 2 * len(self._jobs)
        ready, free = [0] * len(cost), [0] * count
        following = [0] * count
        possible: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        later: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        for index, on in enumerate(engine):
            if on & 1 and not waits[index]:
                heappush(later[on], (0, needed[index], index))
        while True:
            best, chosen = _NEVER, -1
            for on in range(count):
                if on & 1:
                    if possible[on]:
                        start = free[on]
                    elif later[on]:
                        start = max(free[on], later[on][0][0])
                    else:
                        continue
                else:
                    jobs = self._jobs[on >> 1]
                    at = following[on]
                    if at == len(jobs) or waits[jobs[at]]:
                        continue
                    start = max(free[on], ready[jobs[at]])
                if start < best:
                    best, chosen = start, on
            if chosen < 0:
                return max(free)
            if chosen & 1:
                waiting, heap = later[chosen], possible[chosen]
                while waiting and waiting[0][0] <= best:
                    _, need, index = heappop(waiting)
                    heappush(heap, (need, index))
                index = heappop(heap)[1]
            else:
                index = self._jobs[chosen >> 1][following[chosen]]
                following[chosen] += 1
            free[chosen] = end = best + cost[index]
            for other in after[index]:
                waits[other] -= 1
                on = engine[other]
                if on != chosen and end > ready[other]:
                    ready[other] = end
                if on & 1 and not waits[other]:
                    heappush(later[on], (ready[other], needed[other], other))


_NEVER = 1 << 62
