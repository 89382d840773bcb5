"""Propagates each stripe of a group's last output back to the rows that every earlier layer must compute.

A storage that is held in local memory in full, or of which the halo is kept, gets new rows only. Of the others each
stripe computes all rows that it needs, also those that its neighbour has computed (the halo).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from byoc_hw.graph import Layer
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry
from byoc_hw.plan.array.packing import PackedReads, operands
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.window import Place, extents
from byoc_hw.tensor import Tensor

Span = tuple[int, int]
"""A half-open range: bytes of a storage, or rows of a tensor."""


@dataclass(frozen=True)
class Stripe:
    """The bytes that are needed of each storage, and the rows that each layer computes, last layer first."""

    needs: dict[Storage, Span]
    rows: dict[int, Span]

    def written(self, storage: Storage, tensor: Tensor, rows: Span) -> Span:
        """The bytes of a storage that a tile has which is written by rows of a tensor: with those before them that are
        kept, and of packed rows with the bytes around them that are read."""
        start, stop = storage.place(tensor).span(*rows)
        first, end = self.needs.get(storage, (start, stop))
        return min(start, first), max(stop, end)


@lru_cache(maxsize=1 << 16)
def rows_read(layer: Layer, rows: Span, operand: int = 0) -> Span:
    """The rows of an input that a layer reads for some of its output rows."""
    form = geometry(layer)
    if isinstance(form, Product) and operand == 1:
        return form.items_of(rows)
    if isinstance(form, Run) and form.repeats and operand == 1:
        return 0, 1
    if not isinstance(form, Window):
        return rows
    extent = form.rows.extent(rows[0], rows[1] - rows[0])
    return extent.ifm_start, extent.ifm_start + extent.ifm_size


def stripes_of(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    count: int,
    held: Set[int],
    packed: Set[int] = frozenset(),
    kept: Set[int] = frozenset(),
) -> Iterator[Stripe]:
    """The stripes of a group of layers `indices`, `count` or fewer of them.

    `held` are the indices of the storages that are in local memory in full, `packed` the layers whose jobs are over
    packed rows, `kept` the storages of which the halo is kept. Every layer computes all of its rows in the end, also
    those that no layer reads: of a layer that no other one of the group reads, each stripe has the same share of the
    rows.
    """
    ofm = layers[indices[-1]].ofm
    height, place = extents(ofm)[0], of[ofm].place(ofm)
    backwards = [_work(layers[index], index, of, held, packed, kept) for index in reversed(indices)]
    done = dict.fromkeys(indices, 0)  # rows
    for first, rows in linear_chunks(height, ceil_div(height, count)):
        stripe = _stripe(backwards, done, place.span(first, first + rows), (first + rows, height))
        for index, (_, stop) in stripe.rows.items():
            done[index] = max(done[index], stop)
        yield stripe


@dataclass(frozen=True)
class _Work:
    """A layer of a group: where it writes, whether all of that is held, or the rows that stripes share are kept, and
    what it reads where."""

    index: int
    layer: Layer
    storage: Storage
    place: Place
    held: bool
    kept: bool
    inputs: tuple[tuple[int, Storage, Place | PackedReads], ...]


def _work(
    layer: Layer, index: int, of: Mapping[Tensor, Storage], held: Set[int], packed: Set[int], kept: Set[int]
) -> _Work:
    inputs: list[tuple[int, Storage, Place | PackedReads]] = []
    for operand, tensor in enumerate(layer.inputs):
        read = of[tensor]
        if index in packed and read.packing is not None and tensor in operands(layer):
            inputs.append((operand, read, read.packing.reads(layer, read.extents)))
        else:
            inputs.append((operand, read, read.place(tensor)))
    storage = of[layer.ofm]
    return _Work(
        index, layer, storage, storage.place(layer.ofm), storage.index in held, storage.index in kept, tuple(inputs)
    )


def _stripe(backwards: Sequence[_Work], done: Mapping[int, int], wanted: Span, share: tuple[int, int]) -> Stripe:
    needs: dict[Storage, Span] = {backwards[0].storage: wanted}
    rows: dict[int, Span] = {}
    for work in backwards:
        place, before = work.place, done[work.index]
        start, stop = place.rows(*needs.get(work.storage, (work.storage.local_bytes, 0)))
        if share[0] == share[1] or (work.storage not in needs and not work.kept):
            stop = ceil_div(place.height * share[0], share[1])
        start = before if work.held or work.kept else min(start, before)
        if start >= stop:
            continue
        rows[work.index] = (start, stop)
        for operand, read, lies in work.inputs:
            if isinstance(lies, PackedReads):
                first, end = lies.span(start, stop)
            else:
                first, end = lies.span(*rows_read(work.layer, (start, stop), operand))
            low, high = needs.get(read, (first, end))
            needs[read] = min(low, first), max(high, end)
    return Stripe(needs, rows)
