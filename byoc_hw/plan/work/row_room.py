"""The room around the rows of packed images in local memory: the copies that fill it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from byoc_hw.params.requantize import zero_point
from byoc_hw.plan.array.packing import MOST_FILLED
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import Transfer
from byoc_hw.plan.array.window import Extents
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op
from byoc_hw.plan.work.rows_needed import Span

_ANYTHING = -128
"""What fills room of which nothing comes, though jobs read it: often the zero point of other images."""


class RowRoom:
    """The room of a packed storage that a buffer has, which holds it from byte `first` on; none of another storage.

    Gap `n` lies before row `n`. Copies are those of a layer. The buffer may have some channels of the storage, as an
    image of the extents `some`.
    """

    def __init__(
        self,
        region: WorkBuilder,
        storage: Storage,
        buffer: LocalBuffer,
        first: int,
        layer: int,
        some: Extents | None = None,
    ) -> None:
        self._region, self._storage, self._buffer, self._layer = region, storage, buffer, layer
        self._first, self._end = first, first + buffer.nbytes
        self._place, self._all = storage.place(storage.tensor), storage.local_bytes
        if some is not None and storage.packing is not None:
            self._place, self._all = storage.packing.place(some), storage.packing.nbytes(some)
        self._gap = self._place.row - self._place.reach
        self._there = storage.packing is not None and storage.packing.crossed

    def before(self, rows: Span, held: bool) -> Iterator[Op]:
        """Fill what no job of the layer writes, before it computes some rows. All rows stay in the buffer if it is
        `held`."""
        if rows[0] == 0 or not held:
            yield from self.outside()
        if self._layer not in self._region.packed:
            yield from self.gaps(rows[0] + held, rows[1])

    def behind(self, rows: Span, held: bool) -> Iterator[Op]:
        """Fill what the layer's jobs over packed rows have written between them. Where all rows stay, those before
        have filled the first gap."""
        packing = self._storage.packing
        if packing is None or self._layer not in self._region.packed:
            return
        low, high = rows[0] + held, rows[1]
        if not packing.padded:  # between rows there is something: only behind the last is nothing
            if not held:  # a gap behind rows that were kept
                yield from self.gaps(rows[0], rows[0])
            yield from self.gaps(max(low, rows[1]), high)
            return
        outputs = self._region.mapping.outputs(self._layer, rows[1] - rows[0])[1]
        gap = rows[0] + packing.last_cut(outputs, self._region.accelerator) // packing.pitch
        yield from self.gaps(low, gap)
        yield from self.gaps(gap + 1, high)

    def everywhere(self) -> Iterator[Op]:
        """Fill all of it, before anything is loaded: by itself, or with the rows where that takes fewer cycles."""
        by_itself = [*self.outside(), *self.gaps(1, self._place.height - 1)]
        if by_itself:
            nbytes = self._end - self._first
            small = nbytes <= MOST_FILLED and nbytes % self._region.accelerator.dma_alignment == 0
            whole = [self._fill(Transfer(0, 0, nbytes))] if small else by_itself
            yield from min(by_itself, whole, key=lambda ops: sum(op.cycles for op in ops))

    def outside(self) -> Iterator[Op]:
        """Fill what lies above and below all rows."""
        if not self._there:
            return
        above = 0, self._place.offset
        below = self._place.span(0, self._place.height)[1], self._all
        spans = [(max(start, self._first), min(stop, self._end)) for start, stop in (above, below)]
        moves = [Transfer(0, start - self._first, stop - start) for start, stop in spans if start < stop]
        if len(moves) == 2 and moves[0].nbytes == moves[1].nbytes:
            yield self._both(*moves)
        else:
            yield from map(self._fill, moves)

    def gaps(self, low: int, high: int) -> Iterator[Op]:
        """Fill the gaps `low` to `high`, of those that lie between two rows and in the buffer."""
        if not self._there or not self._gap:
            return
        inside = [
            number
            for number in range(max(low, 1), min(high, self._place.height - 1) + 1)
            if self._start(number) - self._gap >= self._first and self._start(number) <= self._end
        ]
        if inside:
            start = self._start(inside[0]) - self._gap - self._first
            yield self._fill(Transfer(0, start, self._gap, len(inside), self._gap, self._place.row))

    def _both(self, above: Transfer, below: Transfer) -> Op:
        """One copy of two rows. It touches nothing between them."""
        return self._fill(Transfer(0, above.local, above.nbytes, 2, above.nbytes, below.local - above.local))

    def _start(self, row: int) -> int:
        return self._place.offset + row * self._place.row

    def _fill(self, move: Transfer) -> Op:
        packing = self._storage.packing
        assert packing is not None, "another storage has no room"
        read = packing.padded or packing.head or packing.tail
        value = _zero_point(self._storage) if read else _ANYTHING
        return _filled(self._region, self._layer, self._storage, self._buffer, move, value)


def zero_points(region: WorkBuilder, index: int, buffer: LocalBuffer, moves: Iterable[Transfer]) -> Iterator[Op]:
    """Fill parts of a buffer with the zero point of a layer's input: its storage may have begun as a tensor with
    another one, or with none."""
    layer = region.layers[index]
    value = zero_point(layer, layer.ifm)
    for move in moves:
        yield _filled(region, index, region.storages.of[layer.ifm], buffer, move, value)


def _filled(region: WorkBuilder, layer: int, storage: Storage, buffer: LocalBuffer, move: Transfer, value: int) -> Op:
    """Fill a part of a buffer. A copy of two rows touches nothing between them."""
    op = region.fill(layer, storage, value, buffer, move)
    if move.rows != 2:
        return op
    starts = move.local, move.local + move.local_stride
    return replace(op, accesses=tuple(Access(buffer, start, start + move.nbytes, True) for start in starts))


def _zero_point(storage: Storage) -> int:
    quantization = storage.tensor.quantization
    return 0 if quantization is None else int(quantization.zero_point[0])
