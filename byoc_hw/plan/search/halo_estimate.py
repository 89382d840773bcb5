"""Estimates of the cycles and local memory of a group in stripes that keep the rows that two of them share."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.search.estimate import Estimates, HeldSet
from byoc_hw.plan.work.halo import Carry, carries
from byoc_hw.plan.work.rows_needed import Stripe


class _Moment(NamedTuple):
    """A layer in a stripe, or the loads before all of them: the bytes of local memory in use, the cycles of the jobs;
    and `loading` cycles of copies that fill a part of a `tile` before the moment ends."""

    nbytes: int
    jobs: int
    tile: int
    loading: int


@dataclass(frozen=True)
class _Work:
    """All stripes of a group: cycles of the jobs, and of the copies of activations; cycles at both ends that nothing
    hides; and the moments in order."""

    jobs: int
    copied: int
    exposed: float
    moments: Sequence[_Moment]
    stripes: int


class KeptHalos:
    """Estimates for one group, the layers `at` to `stop` (not included) in the order of `estimates`.

    The storages `held` are in local memory before the group, `after` after it, `full` during it; of `halos` the rows
    that two stripes share are kept. Copies are done as early as there is room for what they fill.
    """

    def __init__(
        self, estimates: Estimates, at: int, stop: int, held: HeldSet, after: HeldSet, full: HeldSet, halos: HeldSet
    ) -> None:
        self._estimates, self._span, self.halos = estimates, (at, stop), halos
        self._held, self._after, self._full = held, after, full
        self._indices = estimates.order[at:stop]
        self._stored = estimates.stored(at, stop, after)
        heights = ((index, extents(estimates.layers[index].ofm)[0]) for index in self._indices)
        self.least = sum(estimates.tile(index, rows) for index, rows in heights)
        self._work: dict[int, _Work] = {}

    def cycles(self, count: int, room: int, alternating: bool = False) -> float | None:
        """Cycles of the group in `count` stripes; None where it does not fit into `room` bytes, or where it keeps
        nothing. Blocks of weights may come in `alternating` order."""
        if count not in self._work:
            self._work[count] = self._worked(count)
        work = self._work[count]
        if max(one.nbytes for one in work.moments) > room:
            return None
        weights = self._estimates.weights(*self._span, work.stripes, alternating)
        return max(work.jobs + self._waits(work.moments, room), work.copied + weights) + work.exposed

    @staticmethod
    def _waits(moments: Sequence[_Moment], room: int) -> int:
        """Cycles in which the array waits for loads: those behind the jobs beside which there is room for the tile."""
        found = 0
        for at, moment in enumerate(moments):
            left = moment.loading - moment.jobs
            for before in range(at - 1, -1, -1):
                if left <= 0 or moments[before].nbytes + moment.tile > room:
                    break
                left -= moments[before].jobs
            found += max(left, 0) if at else 0
        return found

    def _worked(self, count: int) -> _Work:
        estimates, span = self._estimates, self._span
        stripes = estimates.cut(*span, self._full, count, self.halos)
        moved = estimates.moved(*span, self._full, self._held, self._after, stripes)
        carried = dict(self._carried(stripes))
        alike: dict[Hashable, list[_Moment]] = {}
        moments: list[_Moment] = []
        for number, (stripe, (load, _)) in enumerate(zip(stripes, moved, strict=True)):
            mine = {storage: found[number] for storage, found in carried.items()}
            sizes = (*stripe.needs.values(), *stripe.rows.values(), *(one.load for one in mine.values()))
            key = load, *stripe.rows, *(stop - start for start, stop in sizes)
            if key not in alike:
                alike[key] = list(self._moments(stripe, load, mine))
            moments += alike[key]
        copied = sum(map(sum, moved))
        copied += sum(self._copy(one.load) + self._copy(one.store) for found in carried.values() for one in found)
        jobs = sum(moment.jobs for moment in moments)
        return _Work(jobs, copied, (moved[0][0] + moved[-1][1]) / 2, moments, len(stripes))

    def _carried(self, stripes: Sequence[Stripe]) -> Iterator[tuple[Storage, list[Carry]]]:
        for index in self._indices:
            ofm = self._estimates.layers[index].ofm
            storage = self._estimates.of[ofm]
            if storage.index in self.halos:
                yield storage, carries(stripes, storage, index, ofm)

    def _copy(self, span: tuple[int, int]) -> int:
        return copy_cycles(span[1] - span[0], 1, self._estimates.accelerator) if span[0] < span[1] else 0

    def _moments(self, stripe: Stripe, load: int, carried: Mapping[Storage, Carry]) -> Iterator[_Moment]:
        """The loads of a stripe, then its layers."""
        estimates, unit = self._estimates, self._estimates.unit
        order = [index for index in self._indices if index in stripe.rows]
        last = {estimates.of[tensor]: at for at, index in enumerate(order) for tensor in estimates.layers[index].inputs}
        tiles = dict(estimates.loaded(*self._span, stripe, self._full))
        live = [sum(tiles.values())] + [0] * len(order)  # before all layers, and in each
        for storage, nbytes in tiles.items():
            for at in range(last.get(storage, -1) + 1):
                live[at + 1] += nbytes
        made: list[int] = []
        jobs: list[int] = []
        for at, index in enumerate(order):
            layer, rows = estimates.layers[index], stripe.rows[index]
            storage = estimates.of[layer.ofm]
            start, stop = stripe.written(storage, layer.ofm, rows)
            made.append(0 if storage.index in self._full else round_up(stop - start, unit))
            end = len(order) - 1 if storage in self._stored else last.get(storage, at)
            for other in range(at, end + 1):
                live[other + 1] += made[-1]
            cycles, sums = estimates.jobs(index, rows[1] - rows[0])
            jobs.append(cycles)
            live[at + 1] += sums
        yield _Moment(live[0], 0, live[0], load)
        for index, nbytes, cycles, tile in zip(order, live[1:], jobs, made, strict=True):
            storage = estimates.of[estimates.layers[index].ofm]
            loading = self._copy(carried[storage].load) if storage in carried else 0
            yield _Moment(nbytes, cycles, tile, loading)
