"""The halo: rows of tensors between layers that two stripes of a group share.

They are computed for both, or kept: stored in main memory behind one stripe, and loaded in front of the rows that the
next one computes. They cannot stay where they are: the rows that a window reads lie equally far apart, so those of two
stripes would lie in one piece, and no stripe could begin at the start of the buffer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from byoc_hw.graph import Layer
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.work.rows_needed import Span, Stripe
from byoc_hw.tensor import Tensor

NOTHING: Span = (0, 0)


class Carry(NamedTuple):
    """What a stripe loads of rows that an earlier one has computed, and what it stores for later ones: bytes of the
    storage, and the offsets of the first of them in the block that the storage has in main memory."""

    load: Span = NOTHING
    load_at: int = 0
    store: Span = NOTHING
    store_at: int = 0

    @property
    def end(self) -> int:
        """The bytes of the block that are used."""
        spans = (self.load, self.load_at), (self.store, self.store_at)
        return max(at + stop - start for (start, stop), at in spans)


def keepable(
    layers: Sequence[Layer], of: Mapping[Tensor, Storage], indices: Sequence[int], held: Set[int]
) -> frozenset[int]:
    """The storages, by index, of which a group of layers `indices` can keep the halo: those that lie between its
    layers, and not in local memory in full."""
    read = {of[tensor] for index in indices for tensor in layers[index].inputs}
    made = {of[layers[index].ofm] for index in indices[:-1]}
    last = of[layers[indices[-1]].ofm]
    return frozenset(one.index for one in made & read if one is not last and not one.joined and one.index not in held)


def carries(stripes: Sequence[Stripe], storage: Storage, index: int, ofm: Tensor) -> list[Carry]:
    """What each of the stripes carries of a storage whose halo is kept; layer `index` writes it, as its output `ofm`.

    The block in main memory has the rows that a later stripe needs: it begins anew where none of those that it has are
    among them.
    """
    place = storage.place(ofm)
    later: list[int | None] = []  # the first byte that the stripes behind each one need
    low: int | None = None
    for stripe in reversed(stripes):
        later.append(low)
        low = stripe.needs[storage][0] if storage in stripe.needs else low
    found = []
    made = stored = origin = 0
    for stripe, wanted in zip(stripes, reversed(later), strict=True):
        first = stripe.needs[storage][0] if storage in stripe.needs else made
        load, load_at = ((first, made), first - origin) if first < made else (NOTHING, 0)
        if index in stripe.rows:
            made = place.span(*stripe.rows[index])[1]
        store, store_at = NOTHING, 0
        if wanted is not None and wanted < made:
            origin = wanted if wanted >= stored else origin
            start = max(wanted, stored)
            store, store_at = ((start, made), start - origin) if start < made else (NOTHING, 0)
            stored = made
        found.append(Carry(load, load_at, store, store_at))
    return found
