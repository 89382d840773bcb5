"""Dependencies between operations: two that share bytes, of which at least one writes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from byoc_hw.plan.work.ops import Access, LocalBuffer, Op


class TouchedBytes:
    """The last writer and the readers since then of each byte of one memory, as pieces by address. `arrays` has the
    array of each operation, None for copies. `last_write` is the last operation that writes any byte."""

    def __init__(self, arrays: Sequence[int | None]) -> None:
        self.arrays, self.last_write = arrays, -1
        self.starts: list[int] = [0]
        self.pieces: list[tuple[int, tuple[int, ...]]] = [(-1, ())]  # writer, readers since

    def written(self, start: int, stop: int, found: set[int]) -> None:
        """Add the operations that wrote some bytes to `found`."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        found.update(writer for writer, _ in self.pieces[first:last] if writer >= 0)

    def access(self, start: int, stop: int, writes: bool, op: int, found: set[int]) -> None:
        """Add the operations that an access has to wait for to `found`, and record the access."""
        starts, pieces = self.starts, self.pieces
        first = bisect_left(starts, start)
        if first == len(starts) or starts[first] != start:
            starts.insert(first, start)
            pieces.insert(first, pieces[first - 1])
        last = bisect_left(starts, stop, first)
        if last == len(starts) or starts[last] != stop:
            starts.insert(last, stop)
            pieces.insert(last, pieces[last - 1])
        if writes:
            for writer, readers in pieces[first:last]:
                if writer >= 0:
                    found.add(writer)
                if readers:
                    found.update(readers)
            starts[first:last] = [start]
            pieces[first:last] = [(op, ())]
            return
        arrays, mine, alone = self.arrays, self.arrays[op], (op,)
        for index in range(first, last):
            writer, readers = pieces[index]
            if writer >= 0:
                found.add(writer)
            if not readers:
                pieces[index] = writer, alone
            elif mine is None:
                pieces[index] = writer, readers + alone
            elif len(readers) == 1 and arrays[readers[0]] == mine:
                pieces[index] = writer, alone
            else:  # of the jobs of an array the newest is enough: they end in their order
                pieces[index] = writer, tuple([other for other in readers if arrays[other] != mine]) + alone

    def touched(self) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
        """The bytes that were touched: from, to, the last writer or -1, and the readers since then."""
        for (start, stop), (writer, readers) in zip(pairwise(self.starts), self.pieces, strict=False):
            if writer >= 0 or readers:
                yield start, stop, writer, readers


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
    memories: dict[object, TouchedBytes] = {}
    lies: dict[object, tuple[TouchedBytes, int]] = {}  # the memory of each place, and where it is there
    for index, some in enumerate(touched):
        for place, _, _, writes in some:
            if place not in lies:
                key, base = (place.space, offsets[place]) if isinstance(place, LocalBuffer) else (place, 0)
                if key not in memories:
                    memories[key] = TouchedBytes(arrays)
                lies[place] = memories[key], base
            if writes:
                lies[place][0].last_write = index
    found = []
    for index, (some, mine) in enumerate(zip(touched, arrays, strict=True)):
        before: set[int] = set()
        for place, start, stop, writes in some:
            memory, base = lies[place]
            if memory.last_write >= index:
                memory.access(base + start, base + stop, writes, index, before)
            else:  # nothing waits for this
                memory.written(base + start, base + stop, before)
        if mine is None:
            before.discard(index)
            found.append(before)
        else:
            found.append({other for other in before if arrays[other] != mine})
    return found
