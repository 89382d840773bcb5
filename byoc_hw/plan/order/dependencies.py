"""Dependencies between operations: two that share bytes, of which at least one writes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from byoc_hw.plan.work.ops import Access, LocalBuffer, Op


class TouchedBytes:
    """The last writer and the readers since then of each byte of one memory, as pieces by address. `arrays` has the
    array of each operation, None for copies."""

    def __init__(self, arrays: Sequence[int | None]) -> None:
        self.arrays = arrays
        self.starts: list[int] = [0]
        self.pieces: list[tuple[int, tuple[int, ...]]] = [(-1, ())]  # writer, readers since

    def written(self, start: int, stop: int, found: set[int]) -> None:
        """Add the operations that wrote some bytes to `found`."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        found.update(writer for writer, _ in self.pieces[first:last] if writer >= 0)

    def access(self, start: int, stop: int, writes: bool, op: int, found: set[int]) -> None:
        """Add the operations that an access has to wait for to `found`, and record the access."""
        first = self._cut(start)
        last = self._cut(stop)
        pieces, arrays, mine = self.pieces, self.arrays, self.arrays[op]
        for index in range(first, last):
            writer, readers = pieces[index]
            if writer >= 0:
                found.add(writer)
            if writes:
                found.update(readers)
            else:  # of the jobs of an array the newest is enough: they end in their order
                kept = readers if mine is None else [other for other in readers if arrays[other] != mine]
                pieces[index] = (writer, (*kept, op))
        if writes:
            self.starts[first:last] = [start]
            pieces[first:last] = [(op, ())]

    def touched(self) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
        """The bytes that were touched: from, to, the last writer or -1, and the readers since then."""
        for (start, stop), (writer, readers) in zip(pairwise(self.starts), self.pieces, strict=False):
            if writer >= 0 or readers:
                yield start, stop, writer, readers

    def _cut(self, at: int) -> int:
        """The index of the piece that starts at an address."""
        index = bisect_right(self.starts, at) - 1
        if self.starts[index] == at:
            return index
        self.starts.insert(index + 1, at)
        self.pieces.insert(index + 1, self.pieces[index])
        return index + 1


def dependencies(
    ops: Sequence[Op],
    offsets: Mapping[LocalBuffer, int],
    lanes: Sequence[int] | None = None,
    accesses: Sequence[Sequence[Access]] | None = None,
) -> list[set[int]]:
    """For each operation, the earlier ones that it depends on.

    For a job without other jobs of the same array, which keep their order anyway. `lanes` has the accelerator of each
    operation, if there are several, and `accesses` what each one touches, if not what it says itself.
    """
    touched = [op.accesses for op in ops] if accesses is None else accesses
    arrays = [(lanes[index] if lanes else 0) if op.is_job else None for index, op in enumerate(ops)]
    last_write = {_memory_of(access): index for index, some in enumerate(touched) for access in some if access.writes}
    memories: dict[object, TouchedBytes] = {}
    found = []
    for index, some in enumerate(touched):
        before: set[int] = set()
        for access in some:
            place, key = access.place, _memory_of(access)
            base = offsets[place] if isinstance(place, LocalBuffer) else 0
            if key not in memories:
                memories[key] = TouchedBytes(arrays)
            if last_write.get(key, -1) < index:  # nothing waits for this
                memories[key].written(base + access.start, base + access.stop, before)
            else:
                memories[key].access(base + access.start, base + access.stop, access.writes, index, before)
        mine = arrays[index]
        found.append({other for other in before if other != index and (mine is None or arrays[other] != mine)})
    return found


def _memory_of(access: Access) -> object:
    """What an access is in: a local memory, or a tensor in main memory."""
    return access.place.space if isinstance(access.place, LocalBuffer) else access.place
