"""Bytes of main memory in a grouping: what is there while a group of layers runs."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from byoc_hw.integers import round_up
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.region_memory import UNIT
from byoc_hw.plan.search.estimate import HeldSet


@dataclass(frozen=True)
class _Stay:
    """A storage in main memory, unless it is held: from the layer that makes it to the last that reads it, as places
    in the order of the layers. `fixed` bytes are there from that layer to the end, held or not."""

    index: int
    made: int
    ends: int
    nbytes: int
    fixed: int = 0


_NO_STORAGE = -1
"""In place of the index of a storage that is in main memory whether it is held or not."""


class MainMemoryUse:
    """Main memory of the groups of a mapped region whose working layers are `order`.

    `counted` are the arguments, by index, that count: inputs up to their last load, outputs from their first store.
    Estimates are a little high: in the plan a tensor is there from its first copy to its last.
    """

    def __init__(self, mapped: MappedGraph, order: Sequence[int], counted: Set[int]) -> None:
        place = {index: at for at, index in enumerate(order)}
        self._stays: list[_Stay] = []
        self._near: dict[tuple[int, int], tuple[_Stay, ...]] = {}
        for one in mapped.storages.all:
            nbytes = round_up(one.nbytes, UNIT)
            readers = (*one.readers, *(reader for whole in one.lent for reader in whole.readers))
            ends = max((place[reader] for reader in readers), default=-1)
            sinks = nbytes * sum(sink.index in counted for sink in one.sinks)
            if one.maker is not None:
                self._stays.append(_Stay(one.index, place[one.maker], ends, 0 if one.sinks else nbytes, sinks))
            elif one.parts:  # there from its first part to its last reader, also while it is held
                made = min(place[maker] for part in one.parts for maker in part.makers)
                self._stays.append(_Stay(_NO_STORAGE, made, ends, 0 if one.sinks else nbytes, sinks))
            elif one.taken is not None:
                self._stays.append(_Stay(_NO_STORAGE, place[one.taken.whole.makers[0]], ends, 0, sinks))
            elif one.source is not None and one.source.index in counted:
                if one.sinks:  # it is copied at the very end
                    self._stays.append(_Stay(one.index, -1, ends, 0, nbytes + sinks))
                else:
                    self._stays.append(_Stay(one.index, -1, ends, nbytes))
        self._dropping = {stay.index: stay.ends for stay in self._stays if stay.nbytes}

    def nbytes(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> int | None:
        """Bytes while layers `at` to `stop` (not included) run, with `held` in local memory before, `after` behind.

        None where a storage leaves local memory that later layers read: it would have to be in main memory as
        well for all that time.
        """
        if any(self._dropping.get(index, -1) >= stop for index in held - after):
            return None
        if (at, stop) not in self._near:
            self._near[at, stop] = tuple(
                stay for stay in self._stays if stay.made < stop and (stay.ends >= at or stay.fixed)
            )
        return sum(stay.fixed + self._unheld(stay, at, stop, held, after) for stay in self._near[at, stop])

    @staticmethod
    def _unheld(stay: _Stay, at: int, stop: int, held: HeldSet, after: HeldSet) -> int:
        inside = stay.made >= at
        last, kept = (stop, after) if inside else (at, held)
        return stay.nbytes if stay.ends >= last and stay.index not in kept else 0
