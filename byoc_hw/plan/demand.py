"""Which rows of every layer of a group the stripes of its last layer take, found backwards.

A storage that lies whole in local memory gets new rows only. Of the others each stripe computes the
rows that it needs again, also those that its neighbour computed (the halo).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from byoc_hw.graph import Add, Layer, Softmax, Tensor
from byoc_hw.plan.storage import Storage
from byoc_hw.plan.transfers import linear_chunks
from byoc_hw.plan.window import extents, window_of

Span = tuple[int, int]
"""From the first to before the second: bytes of a storage, or rows of a tensor."""


@dataclass(frozen=True)
class Stripe:
    """Bytes that are needed of each storage, and rows that each layer computes (those that do, in reversed order)."""

    needs: dict[Storage, Span]
    rows: dict[int, Span]


@lru_cache(maxsize=1 << 14)
def row_bytes(tensor: Tensor) -> int:
    """Bytes of one row of a tensor."""
    _, width, channels = extents(tensor)
    return width * channels


@lru_cache(maxsize=1 << 16)
def rows_read(layer: Layer, rows: Span) -> Span:
    """The input rows that a layer reads for some of its output rows."""
    if isinstance(layer, Add | Softmax):
        return rows
    extent = window_of(layer).rows.extent(rows[0], rows[1] - rows[0])
    return extent.ifm_start, extent.ifm_start + extent.ifm_size


def demands(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    count: int,
    whole: Set[int],
) -> Iterator[Stripe]:
    """The stripes of a group of layers `indices`, `count` or fewer of them.

    `whole` are the storages (by index) that lie in local memory in full. Every layer computes all of
    its rows in the end, also such as nobody reads.
    """
    ofm = layers[indices[-1]].ofm
    height, per_row = extents(ofm)[0], row_bytes(ofm)
    done = {of[layers[index].ofm]: 0 for index in indices}
    for first, rows in linear_chunks(height, -(-height // count)):
        wanted = first * per_row, (first + rows) * per_row
        last = first + rows == height
        stripe = _stripe(layers, of, indices, whole, done, wanted, last)
        for index, (_, stop) in stripe.rows.items():
            storage = of[layers[index].ofm]
            done[storage] = max(done[storage], stop * row_bytes(layers[index].ofm))
        yield stripe


def _stripe(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    whole: Set[int],
    done: Mapping[Storage, int],
    wanted: Span,
    last: bool,
) -> Stripe:
    needs: dict[Storage, Span] = {of[layers[indices[-1]].ofm]: wanted}
    rows: dict[int, Span] = {}
    for index in reversed(indices):
        layer = layers[index]
        storage = of[layer.ofm]
        start, stop = needs.get(storage, (storage.nbytes, 0))
        if last:
            stop = storage.nbytes
        start = done[storage] if storage.index in whole else min(start, done[storage])
        if start >= stop:
            continue
        size = row_bytes(layer.ofm)
        rows[index] = (start // size, -(-stop // size))
        for tensor in layer.inputs:
            first, end = rows_read(layer, rows[index])
            read, size = of[tensor], row_bytes(tensor)
            low, high = needs.get(read, (first * size, end * size))
            needs[read] = min(low, first * size), max(high, end * size)
    return Stripe(needs, rows)
