"""Dependencies between operations: two that share bytes, of which at least one writes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from byoc_hw.plan.work.ops import Access, LocalBuffer, Op

TouchedSpan = tuple[int, int, int, bool]
"""An operation, the bytes of one memory that it touches, from and to, and whether it writes them."""

_END = 1 << 62
"""An address behind all bytes."""


class TouchedBytes:
    """The last writer and the readers since then of each byte of one memory, as pieces by address. `arrays` has the
    array of each operation, None for copies."""

    def __init__(self, arrays: Sequence[int | None]) -> None:
        self.arrays = arrays
        self.starts: list[int] = [0, _END]
        self.pieces: list[tuple[int, tuple[int, ...]]] = [(-1, ()), (-1, ())]  # writer, readers since

    def written(self, start: int, stop: int, found: set[int]) -> None:
        """Add the operations that wrote some bytes to `found`; -1 for bytes that none wrote."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        found.update(writer for writer, _ in self.pieces[first:last])

    def record(self, spans: Iterable[TouchedSpan], found: Sequence[set[int]]) -> None:
        """Record what operations touch, in their order. The operations that each one has to wait for are added to what
        is `found` of it; -1 for bytes that none wrote."""
        starts, pieces, arrays = self.starts, self.pieces, self.arrays
        for op, start, stop, writes in spans:
            before = found[op]
            first = bisect_left(starts, start)
            if starts[first] != start:
                starts.insert(first, start)
                pieces.insert(first, pieces[first - 1])
            last = first + 1
            if starts[last] != stop:
                last = bisect_left(starts, stop, first)
                if starts[last] != stop:
                    starts.insert(last, stop)
                    pieces.insert(last, pieces[last - 1])
            if writes:
                for writer, readers in pieces[first:last]:
                    before.add(writer)
                    if readers:
                        before.update(readers)
                starts[first:last] = [start]
                pieces[first:last] = [(op, ())]
                continue
            mine, alone = arrays[op], (op,)
            for index in range(first, last):
                writer, readers = pieces[index]
                before.add(writer)
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
    arrays = [(lanes[index] if lanes else 0) if op.is_job else None for index, op in enumerate(ops)]
    found: list[set[int]] = [set() for _ in ops]
    for spans in _by_memory([op.accesses for op in ops] if accesses is None else accesses, offsets):
        memory, waited_for = TouchedBytes(arrays), len(spans)
        while waited_for and not spans[waited_for - 1][3]:
            waited_for -= 1
        memory.record(spans[:waited_for], found)
        for index, start, stop, _ in spans[waited_for:]:  # nothing waits for these
            memory.written(start, stop, found[index])
    return list(_without_own(found, arrays))


def _by_memory(
    accesses: Sequence[Sequence[Access]], offsets: Mapping[LocalBuffer, int]
) -> Iterable[Sequence[TouchedSpan]]:
    """What operations touch of each memory."""
    memories: dict[object, list[TouchedSpan]] = {}
    lies: dict[object, tuple[list[TouchedSpan], int]] = {}  # the memory of each place, and where it is there
    for index, some in enumerate(accesses):
        for place, start, stop, writes in some:
            there = lies.get(place)
            if there is None:
                key, base = (place.space, offsets[place]) if isinstance(place, LocalBuffer) else (place, 0)
                there = lies[place] = memories.setdefault(key, []), base
            spans, base = there
            spans.append((index, base + start, base + stop, writes))
    return memories.values()


def _without_own(found: Sequence[set[int]], arrays: Sequence[int | None]) -> Iterator[set[int]]:
    """What is `found` of each operation without itself, other jobs of its array, and -1."""
    jobs: dict[int, set[int]] = {}
    for index, array in enumerate(arrays):
        if array is not None:
            jobs.setdefault(array, {-1}).add(index)
    for index, (before, array) in enumerate(zip(found, arrays, strict=True)):
        if array is None:
            before.discard(-1)
            before.discard(index)
        yield before if array is None else before - jobs[array]
