"""Propagates each stripe of a group's last output back to the rows that every earlier layer must compute.

A storage that is held in local memory in full, or of which the halo is kept, gets new rows only. Of the others each
stripe computes all rows that it needs, also those that its neighbour has computed (the halo).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc_hw.graph import Layer
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.packing import PackedReads, operands
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.window import Place, extents
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Tensor

Span = tuple[int, int]
"""A half-open range: bytes of a storage, or rows of a tensor."""


class Stripe(NamedTuple):
    """The bytes that are needed of each storage, and the rows that each layer computes, last layer first."""

    needs: dict[Storage, Span]
    rows: dict[int, Span]

    def written(self, storage: Storage, place: Place, rows: Span) -> Span:
        """The bytes of a storage that a tile has which is written by rows of a tensor at a place in it: with those
        before them that are kept, and of packed rows with the bytes around them that are read."""
        start, stop = span = place.span(*rows)
        first, end = self.needs.get(storage, span)
        return start if start < first else first, stop if stop > end else end


@kept_in_first
def rows_read(layer: Layer, rows: Span, operand: int = 0) -> Span:
    """The rows of an input that a layer reads for some of its output rows."""
    form = geometry(layer)
    if isinstance(form, Product) and operand == 1:
        first, stop = form.items_of(rows)
        return first * form.channels, stop * form.channels
    if isinstance(form, Run) and form.repeats and operand == 1:
        return 0, 1
    if not isinstance(form, Window):
        return rows
    extent = form.rows.extent(rows[0], rows[1] - rows[0])
    return extent.ifm_start, extent.ifm_start + extent.ifm_size


@dataclass(frozen=True, eq=False)
class LayerRows:
    """A layer: where the rows that it computes lie, and those that it reads, by operand."""

    index: int
    layer: Layer
    storage: Storage
    place: Place
    inputs: tuple[tuple[int, Storage, Place | PackedReads], ...]
    _made: dict[Span, Span] = field(default_factory=dict, init=False, repr=False)
    _reads: dict[Span, list[tuple[Storage, Span]]] = field(default_factory=dict, init=False, repr=False)

    def made(self, span: Span) -> Span:
        """The rows of its output of which any byte lies in a span."""
        if span not in self._made:
            self._made[span] = self.place.rows(*span)
        return self._made[span]

    def reads(self, rows: Span) -> list[tuple[Storage, Span]]:
        """The bytes of each input that are read for some output rows."""
        if rows not in self._reads:
            self._reads[rows] = [
                (read, lies.span(*(rows if isinstance(lies, PackedReads) else rows_read(self.layer, rows, operand))))
                for operand, read, lies in self.inputs
            ]
        return self._reads[rows]


def rows_of_layer(layer: Layer, index: int, of: Mapping[Tensor, Storage], packed: Set[int]) -> LayerRows:
    """The rows of a layer. `packed` are the layers whose jobs are over packed rows."""
    inputs: list[tuple[int, Storage, Place | PackedReads]] = []
    for operand, tensor in enumerate(layer.inputs):
        read = of[tensor]
        if index in packed and read.packing is not None and tensor in operands(layer):
            inputs.append((operand, read, read.packing.reads(layer, read.extents)))
        else:
            inputs.append((operand, read, read.place(tensor)))
    storage = of[layer.ofm]
    return LayerRows(index, layer, storage, storage.place(layer.ofm), tuple(inputs))


class RowsOfLayers:
    """The rows of the layers of a mapped region."""

    def __init__(self, mapped: MappedGraph) -> None:
        self._layers, self._of, self._packed = mapped.mapping.layers, mapped.storages.of, mapped.mapping.rows.layers
        self._found: dict[int, LayerRows] = {}

    def of(self, indices: Sequence[int]) -> list[LayerRows]:
        """Those of some layers."""
        for index in indices:
            if index not in self._found:
                self._found[index] = rows_of_layer(self._layers[index], index, self._of, self._packed)
        return [self._found[index] for index in indices]


def stripes_of(
    layers: Sequence[LayerRows], count: int, held: Set[int], kept: Set[int] = frozenset()
) -> Iterator[Stripe]:
    """The stripes of a group of layers, `count` or fewer of them.

    `held` are the indices of the storages that are in local memory in full, `kept` the storages of which the halo is
    kept. Every layer computes all of its rows in the end, also those that no layer reads: of a layer that no other one
    of the group reads, each stripe has the same share of the rows.
    """
    place = layers[-1].place
    height = extents(layers[-1].layer.ofm)[0]
    once = held | kept
    backwards = [(one, one.storage.index in once, one.storage.index in kept) for one in reversed(layers)]
    done = {one.index: 0 for one in layers}  # rows
    for first, rows in linear_chunks(height, ceil_div(height, count)):
        stripe = _stripe(backwards, done, place.span(first, first + rows), (first + rows, height))
        for index, (_, stop) in stripe.rows.items():
            if stop > done[index]:
                done[index] = stop
        yield stripe


def _stripe(
    backwards: Sequence[tuple[LayerRows, bool, bool]], done: Mapping[int, int], wanted: Span, share: tuple[int, int]
) -> Stripe:
    """A stripe of layers from the last to the first, each with whether it computes no row twice, as its output is held
    or its halo is kept, and whether that is kept."""
    needs: dict[Storage, Span] = {backwards[0][0].storage: wanted}
    rows: dict[int, Span] = {}
    last = share[0] == share[1]
    for one, once, kept in backwards:
        storage, before = one.storage, done[one.index]
        need = needs.get(storage)
        start, stop = one.made(need or (storage.local_bytes, 0))
        if last or (need is None and not kept):
            stop = ceil_div(one.place.height * share[0], share[1])
        if once or before < start:
            start = before
        if start >= stop:
            continue
        rows[one.index] = some = start, stop
        for read, span in one.reads(some):
            if read in needs:
                (first, end), (low, high) = span, needs[read]
                span = low if low < first else first, high if high > end else end
            needs[read] = span
    return Stripe(needs, rows)
