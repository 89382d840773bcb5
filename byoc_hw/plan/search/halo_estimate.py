"""Estimates of the cycles and local memory of a group in stripes that keep the rows that two of them share."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.window import Place, extents
from byoc_hw.plan.search.estimate import Estimates, HeldSet
from byoc_hw.plan.work.halo import Carry, carries
from byoc_hw.plan.work.rows_needed import Stripe


class _Moment(NamedTuple):
    """A layer in a stripe, or the loads before all of them: the bytes of local memory in use, the cycles of the jobs,
    and the bytes of a `tile` that copies fill before the moment ends."""

    nbytes: int
    jobs: int
    tile: int


class _Made(NamedTuple):
    """What a layer makes in a stripe: rows, and the bytes of their tile, 0 where all of it is in local memory."""

    layer: int
    rows: int
    nbytes: int


@dataclass(frozen=True)
class _Work:
    """All stripes of a group: the most bytes of a moment; cycles of the jobs, and of the copies of activations; cycles
    at both ends that nothing hides; and the moments in order, with the cycles of the copies that fill their tiles."""

    nbytes: int
    jobs: int
    copied: int
    exposed: float
    moments: Sequence[_Moment]
    loading: Sequence[int]
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
        self._tiles = {index: self._output(index) for index in self._indices}
        heights = ((index, extents(estimates.layers[index].ofm)[0]) for index in self._indices)
        self.least = sum(estimates.tile(index, rows) for index, rows in heights)
        self._work: dict[int, _Work] = {}
        self._too_large: dict[int, int] = {}  # bytes of what did not fit, by the number of stripes

    def jobs(self, count: int) -> int:
        """Cycles of the jobs of the group in `count` stripes."""
        stripes = self._estimates.cut(*self._span, self._full, count, self.halos)
        rows = (one for stripe in stripes for one in stripe.rows.items())
        return sum(self._estimates.tile(index, stop - start) for index, (start, stop) in rows)

    def cycles(self, count: int, room: int, alternating: bool = False) -> float | None:
        """Cycles of the group in `count` stripes; None where it does not fit into `room` bytes, or where it keeps
        nothing. Blocks of weights may come in `alternating` order."""
        if self._too_large.get(count, 0) > room:
            return None
        if count not in self._work:
            found = self._worked(count, room)
            if isinstance(found, int):
                self._too_large[count] = found
                return None
            self._work[count] = found
        work = self._work[count]
        if work.nbytes > room:
            return None
        weights = self._estimates.weights(*self._span, work.stripes, alternating)
        return max(work.jobs + self._waits(work, room), work.copied + weights) + work.exposed

    @staticmethod
    def _waits(work: _Work, room: int) -> int:
        """Cycles in which the array waits for loads: those behind the jobs beside which there is room for the tile."""
        found, moments = 0, work.moments
        for at in range(1, len(moments)):
            left = work.loading[at] - moments[at].jobs
            if left <= 0:
                continue
            beside = room - moments[at].tile
            for before in range(at - 1, -1, -1):
                if left <= 0 or moments[before].nbytes > beside:
                    break
                left -= moments[before].jobs
            found += max(left, 0)
        return found

    def _worked(self, count: int, room: int) -> _Work | int:
        """The group in `count` stripes, or the bytes of a moment in which it takes more than `room`."""
        estimates, span = self._estimates, self._span
        alike: dict[Hashable, list[_Moment]] = {}
        stripes: list[Stripe] = []
        moments: list[_Moment] = []
        largest = 0
        for stripe in estimates.cut(*span, self._full, count, self.halos):
            tiles = dict(estimates.loaded(*span, stripe, self._full))
            made = self._made(stripe)
            key = (*tiles.items(), *made)
            if key not in alike:
                alike[key] = list(self._moments(tiles, made))
                most = max(one.nbytes for one in alike[key])
                if most > room:
                    return most
                largest = max(largest, most)
            stripes.append(stripe)
            moments += alike[key]
        moved = estimates.moved(*span, self._full, self._held, self._after, stripes)
        carried = dict(self._carried(stripes))
        loads = {index: [self._copy(one.load) for one in found] for index, found in carried.items()}
        loading = []
        for number, (stripe, (load, _)) in enumerate(zip(stripes, moved, strict=True)):
            loading.append(load)
            loading += [loads[one][number] if one in loads else 0 for one in reversed(stripe.rows)]
        copied = sum(map(sum, (*moved, *loads.values())))
        copied += sum(self._copy(one.store) for found in carried.values() for one in found)
        jobs = sum(moment.jobs for moment in moments)
        return _Work(largest, jobs, copied, (moved[0][0] + moved[-1][1]) / 2, moments, loading, len(stripes))

    def _carried(self, stripes: Sequence[Stripe]) -> Iterator[tuple[int, list[Carry]]]:
        """What the stripes carry of the outputs of layers whose halo is kept."""
        for index in self._indices:
            ofm = self._estimates.layers[index].ofm
            storage = self._estimates.of[ofm]
            if storage.index in self.halos:
                yield index, carries(stripes, storage, index, ofm)

    def _copy(self, span: tuple[int, int]) -> int:
        return copy_cycles(span[1] - span[0], 1, self._estimates.accelerator) if span[0] < span[1] else 0

    def _output(self, index: int) -> tuple[Storage, Place | None]:
        """What a layer writes, and where it lies in its tile; None where it is in local memory in full."""
        ofm = self._estimates.layers[index].ofm
        storage = self._estimates.of[ofm]
        return storage, None if storage.index in self._full else storage.place(ofm)

    def _made(self, stripe: Stripe) -> list[_Made]:
        """What the layers write in a stripe."""
        found, unit = [], self._estimates.unit
        for index, rows in reversed(stripe.rows.items()):
            storage, place = self._tiles[index]
            start, stop = (0, 0) if place is None else stripe.written(storage, place, rows)
            found.append(_Made(index, rows[1] - rows[0], round_up(stop - start, unit)))
        return found

    def _moments(self, tiles: Mapping[Storage, int], made: Sequence[_Made]) -> Iterator[_Moment]:
        """The loads of a stripe, then its layers. `tiles` are the bytes that are loaded."""
        estimates = self._estimates
        order = [one.layer for one in made]
        last = {estimates.of[tensor]: at for at, index in enumerate(order) for tensor in estimates.layers[index].inputs}
        live = [sum(tiles.values())] + [0] * len(order)  # before all layers, and in each
        for storage, nbytes in tiles.items():
            for at in range(last.get(storage, -1) + 1):
                live[at + 1] += nbytes
        jobs: list[int] = []
        for at, (index, rows, nbytes) in enumerate(made):
            storage = estimates.of[estimates.layers[index].ofm]
            end = len(order) - 1 if storage in self._stored else last.get(storage, at)
            for other in range(at, end + 1):
                live[other + 1] += nbytes
            cycles, sums = estimates.jobs(index, rows)
            jobs.append(cycles)
            live[at + 1] += sums
        yield _Moment(live[0], 0, live[0])
        for nbytes, cycles, one in zip(live[1:], jobs, made, strict=True):
            yield _Moment(nbytes, cycles, one.nbytes)
