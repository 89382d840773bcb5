"""Dependencies between operations: two that share bytes, of which at least one writes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from byoc_hw.plan.work.ops import LocalBuffer, Op


class _Memory:
    """The last writer and the readers since then of each byte of one memory, as pieces by address."""

    def __init__(self, array: Sequence[int | None]) -> None:
        self.array = array  # that does a job; None of a copy
        self.starts: list[int] = [0]
        self.pieces: list[tuple[int, tuple[int, ...]]] = [(-1, ())]  # writer, readers since

    def access(self, start: int, stop: int, writes: bool, op: int, found: set[int]) -> None:
        """Add the operations that an access has to wait for to `found`, and record the access."""
        first = self._cut(start)
        last = self._cut(stop)
        for index in range(first, last):
            writer, readers = self.pieces[index]
            if writer >= 0:
                found.add(writer)
            if writes:
                found.update(readers)
                self.pieces[index] = (op, ())
            else:  # of an array's jobs the newest is enough: they end in their order
                array = self.array[op]
                kept = readers if array is None else [other for other in readers if self.array[other] != array]
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


def dependencies(ops: Sequence[Op], offsets: Mapping[LocalBuffer, int], lanes: Sequence[int] = ()) -> list[set[int]]:
    """For each operation, the earlier ones that it depends on. Those of several accelerators are on `lanes`.

    For a job without other jobs of its array, which keep their order anyway.
    """
    array = [(lanes[index] if lanes else 0) if op.is_job else None for index, op in enumerate(ops)]
    memories: dict[object, _Memory] = {}
    found = []
    for index, op in enumerate(ops):
        before: set[int] = set()
        for access in op.accesses:
            place = access.place
            key, base = (place.space, offsets[place]) if isinstance(place, LocalBuffer) else (place, 0)
            memory = memories.setdefault(key, _Memory(array))
            memory.access(base + access.start, base + access.stop, access.writes, index, before)
        mine = array[index]
        found.append({other for other in before if other != index and (mine is None or array[other] != mine)})
    return found
