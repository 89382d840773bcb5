"""Cycles of parts together, quickly: what two parts do to each other is worked out once for each pair of options.

The cycles are those of `joint_order`, but for bytes of local memory that a part takes over from one long before it, or
from another accelerator that shares the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from byoc_hw.plan.lanes.engine_schedule import NEVER, EngineActions, EngineSchedule
from byoc_hw.plan.lanes.joint import shifted_behind
from byoc_hw.plan.lanes.profile import LocalPiece, Option
from byoc_hw.tensor import Tensor

Edges = list[tuple[int, int]]
"""Actions of one part, and those of a later one that wait for them."""


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
            actions = _actions(parts, self._edges(parts))
            self.work += len(actions.cycles)
            cycles = EngineSchedule(actions, limit).total
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
            found = (
                (a, b)
                for tensor, reads in other.reads.items()
                for a, first, last, low, high in one.writes.get(tensor, ())
                for b, begin, end, left, right in reads
                if first < end and begin < last and low < right and left < high
            )
            self._data[key] = list(dict.fromkeys(found))
        return self._data[key]

    def _memory_edges(self, one: Option, other: Option, moved: Sequence[int]) -> Edges:
        key = one.profile, other.profile, moved
        if key not in self._memory:
            copies = [[action.copies for action in option.profile.actions] for option in (one, other)]
            found = {
                pair
                for space, by in enumerate(moved)
                for pair in waits(one.profile.left[space], other.profile.met[space], by)
            }
            self._memory[key] = [(a, b) for a, b in found if copies[0][a] or copies[1][b]]
        return self._memory[key]


def waits(left: Sequence[LocalPiece], met: Sequence[LocalPiece], moved: int) -> Iterator[tuple[int, int]]:
    """The actions of one part, and those of a later one in the same memory that wait for them: the later part's bytes
    lie `moved` further on. Some pairs come several times."""
    at = 0
    for start, stop, writer, readers in met:
        while at < len(left) and left[at][1] <= start + moved:
            at += 1
        for first, _, wrote, read in islice(left, at, None):
            if first >= stop + moved:
                break
            if wrote >= 0:
                yield from ((wrote, reader) for reader in readers)
            if writer >= 0:
                yield from ((before, writer) for before in (wrote, *read) if before >= 0)


def _busiest(parts: Sequence[Option]) -> int:
    """Cycles of the engine that has the most to do."""
    arrays: dict[int, int] = {}
    dmas: dict[int, int] = {}
    for part in parts:
        lane, (jobs, copies) = part.part.cut.lane, part.profile.load
        arrays[lane] = arrays.get(lane, 0) + jobs
        dmas[lane] = dmas.get(lane, 0) + copies
    return max(*arrays.values(), *dmas.values(), 0)


def _actions(parts: Sequence[Option], edges: Iterator[tuple[int, int, Edges]]) -> EngineActions:
    """The actions of all parts."""
    lanes = max(part.part.cut.lane for part in parts) + 1
    jobs: list[list[int]] = [[] for _ in range(lanes)]
    found = EngineActions([], [], [], [], [], jobs, [], [0] * (2 * lanes))
    starts = []
    for part in parts:
        base, lane, flat = len(found.cycles), part.part.cut.lane, part.profile.flat
        starts.append(base)
        found.cycles.extend(flat.cycles)
        found.engine.extend([2 * lane + copies for copies in flat.copies])
        found.waits.extend(flat.before)
        found.after.extend(flat.after)
        found.needed.extend(flat.needed)
        found.first.extend([base + at for at in flat.first])
        jobs[lane] += [base + at for at in flat.jobs]
        for engine, cycles in enumerate(part.profile.load, 2 * lane):
            found.loads[engine] += cycles
    later: dict[int, list[int]] = {}
    for one, other, pairs in sorted(edges, key=lambda edge: -edge[1]):
        first, second = starts[one], starts[other]
        for a, b in pairs:
            before, behind = first + a, second + b
            later.setdefault(before, []).append(behind - before)
            found.waits[behind] += 1
            need = found.needed[behind] if found.engine[behind] & 1 else 0
            if behind - before + need < found.needed[before]:
                found.needed[before] = behind - before + need
    for before, distances in later.items():
        found.after[before] += tuple(distances)
    return found
