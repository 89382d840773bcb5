"""Estimates of the cycles and local memory of a group of layers, from its rows and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import copy_cycles, transfer_cycles
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Join, Storage
from byoc_hw.plan.array.weight_blocks import (
    all_bytes,
    cut,
    cut_without_sums,
    load_cycles,
    local_blocks,
    psum_bytes,
    staying,
    tile_cycles,
)
from byoc_hw.plan.array.window import extents, row_bytes
from byoc_hw.plan.choices import Blocks
from byoc_hw.plan.work.builder import argument_home, box_home, moves, scratch_home
from byoc_hw.plan.work.ops import Home
from byoc_hw.plan.work.rows_needed import RowsOfLayers, Span, Stripe, stripes_of

HeldSet = frozenset[int]
"""Indices of the storages that are in local memory in full."""

_NONE: HeldSet = frozenset()


@dataclass(frozen=True)
class Shape:
    """A group in stripes: bytes of its tiles without and with overlap, cycles of its jobs and of copies of
    activations, exposed copy cycles (without a job in parallel), and the number of stripes."""

    apart: int
    overlapped: int
    jobs: int
    copied: int
    exposed: float
    stripes: int


class _Inside(NamedTuple):
    """A stripe: cycles of its jobs; bytes of tiles that are loaded, of the others and partial sums at once, and of
    those that are stored."""

    jobs: int
    loaded: int
    computed: int
    stored: int

    @property
    def nbytes(self) -> int:
        """Bytes of tiles and partial sums at once, before it is stored."""
        return self.loaded + self.computed


_NOTHING = _Inside(0, 0, 0, 0)

_LARGER = 2
"""The blocks that fit weight memory at once where the DMA is busier than the array: one is loaded while another one is
in use, and a copy more would be a setup more."""

_SAVED = 1.05
"""How much longer smaller blocks take to be loaded, or they stay: more of them can be loaded ahead."""


class Estimates:
    """Estimates for a mapped region with its weights cut into blocks. `order` are the layers with jobs or copies."""

    def __init__(self, mapped: MappedGraph) -> None:
        mapping, accelerator = mapped.mapping, mapped.accelerator
        self.accelerator, self.layers = accelerator, mapping.layers
        self.blocks = tuple(self._cut(mapped, index) for index in range(len(self.layers)))
        self.all, self.of = mapped.storages.all, mapped.storages.of
        self.mapping = mapping
        self.unit = accelerator.buffer_alignment
        self.order = [index for index in range(len(self.layers)) if mapping.works(index)]
        self.size = [round_up(storage.local_bytes, self.unit) for storage in self.all]
        cuts = list(zip(self.layers, self.blocks, strict=True))
        self.load = [load_cycles(layer, cut, accelerator) for layer, cut in cuts]
        self.weight_bytes = [all_bytes(layer, cut, accelerator) for layer, cut in cuts]
        place = {index: at for at, index in enumerate(self.order)}
        self.ends = [
            max((place[user] for user in (*one.readers, *(one.makers if one.joined else ()))), default=-1)
            for one in self.all
        ]
        self._touched: dict[tuple[int, int], HeldSet] = {}
        self._shapes: dict[tuple[int, int, HeldSet, HeldSet, HeldSet, int], Shape] = {}
        self._too_large: dict[tuple[int, int, HeldSet, HeldSet, HeldSet, int], int] = {}  # bytes of what did not fit
        self._local = [local_blocks(layer, cut, accelerator) for layer, cut in cuts]
        self._stays: dict[tuple[int, int], Sequence[float]] = {}
        self._rows = mapped.shared(RowsOfLayers)
        self._cuts: dict[tuple[int, int, HeldSet, int, HeldSet], Sequence[Stripe]] = {}
        self._made: dict[tuple[int, int], Mapping[Storage, int]] = {}
        self._stored: dict[tuple[int, int, HeldSet], Mapping[Storage, bool]] = {}
        self._tiles: dict[tuple[int, int], tuple[int, int]] = {}
        self._copies: dict[tuple[int, int], int] = {}
        self._stores: dict[tuple[int, int, bool], int] = {}
        self._row_bytes = [row_bytes(layer.ofm) for layer in self.layers]

    def _cut(self, mapped: MappedGraph, index: int) -> Blocks | None:
        """The blocks of a layer's weights: larger ones where the DMA is busier with them than the array is."""
        layer, one = self.layers[index], self.accelerator
        found = cut(layer, one)
        if found is None or _LARGER not in one.tuning.weight_shares:
            return found
        larger = cut(layer, one, _LARGER)
        known, fewer = (load_cycles(layer, some, one) for some in (found, larger))
        return larger if larger is not None and known > max(mapped.cycles_of(index), _SAVED * fewer) else found

    def touched(self, at: int, stop: int) -> HeldSet:
        """The storages that some layers read or write."""
        if (at, stop) not in self._touched:
            layers = [self.layers[index] for index in self.order[at:stop]]
            tensors = (tensor for layer in layers for tensor in (*layer.inputs, layer.ofm))
            self._touched[at, stop] = frozenset(self.of[tensor].index for tensor in tensors)
        return self._touched[at, stop]

    def bytes_of(self, storages: HeldSet) -> int:
        """Bytes of local memory of some storages."""
        return sum(self.size[one] for one in storages)

    def largest_tiles(self, at: int, stop: int, full: HeldSet) -> int:
        """The most bytes that a layer of a group reads and writes in tiles, over all of its stripes."""
        return max(self.bytes_of(self.touched(one, one + 1) - full) for one in range(at, stop))

    def weights_stay(self, at: int, stop: int) -> bool:
        """Whether the weights of all these layers fit local memory at once."""
        return sum(self.weight_bytes[index] for index in self.order[at:stop]) <= self.accelerator.weight_memory

    def weights(self, at: int, stop: int, stripes: int, alternating: bool) -> float:
        """Cycles of the copies of all weights of a group in so many stripes, with their blocks in `alternating` order
        or not."""
        once = sum(self.load[index] for index in self.order[at:stop])
        if stripes == 1 or (self.accelerator.tuning.resident and self.weights_stay(at, stop)):
            return once
        return once + (stripes - 1) * (once - (sum(self._staying(at, stop)) if alternating else 0))

    def alternates(self, at: int, stop: int) -> bool:
        """Whether not all weights of a group stay in local memory, but some can from one stripe to the next."""
        return not self.weights_stay(at, stop) and any(self._staying(at, stop))

    def _staying(self, at: int, stop: int) -> Sequence[float]:
        """Cycles of the copies of the weights of each layer that may stay from one stripe to the next."""
        if not self.accelerator.tuning.resident:
            return ()
        if (at, stop) not in self._stays:
            indices = self.order[at:stop]
            stay = staying([self._local[index] for index in indices], self.accelerator)
            self._stays[at, stop] = [
                self.load[index] * many / self._block_count(index) for index, many in zip(indices, stay, strict=True)
            ]
        return self._stays[at, stop]

    def _block_count(self, index: int) -> int:
        """The number of blocks of weights of a layer; 1 for one without weights."""
        return len(self._local[index].sizes) or 1

    def striped(
        self,
        at: int,
        stop: int,
        held: HeldSet,
        after: HeldSet,
        full: HeldSet,
        count: int,
        overlap: bool,
        room: int,
        alternating: bool = False,
    ) -> float | None:
        """Cycles of a group in `count` stripes; None where it does not fit into `room` bytes.

        The storages `held` are in local memory before the group, `after` after it, `full` during it. Blocks of weights
        may come in `alternating` order.
        """
        kept = self.bytes_of(full)
        if kept > room:
            return None
        touched = self.touched(at, stop)
        key = (at, stop, full & touched, held & touched, after & touched, count)
        if kept + self._too_large.get(key, 0) > room:
            return None
        if key not in self._shapes:
            found = self._fitting(*key, room - kept)
            if found[-1][1].nbytes > room - kept:
                self._too_large[key] = found[-1][1].nbytes
                return None
            self._shapes[key] = self._shape(*key[:5], found)
        shape = self._shapes[key]
        if kept + (shape.overlapped if overlap else shape.apart) > room:
            return None
        weights = self.weights(at, stop, shape.stripes, alternating)
        if overlap:
            return max(shape.jobs, shape.copied + weights) + shape.exposed
        return max(shape.jobs + shape.copied, shape.copied + weights)

    def _fitting(
        self, at: int, stop: int, full: HeldSet, held: HeldSet, after: HeldSet, count: int, room: int
    ) -> list[tuple[Stripe, _Inside]]:
        """The stripes of a group, up to the first whose tiles take more than `room` bytes."""
        found: list[tuple[Stripe, _Inside]] = []
        for stripe in self.cut(at, stop, full, count, _NONE):
            found.append((stripe, self._inside(at, stop, full, after, stripe)))
            if found[-1][1].nbytes > room:
                break
        return found

    def _shape(
        self,
        at: int,
        stop: int,
        full: HeldSet,
        held: HeldSet,
        after: HeldSet,
        found: Sequence[tuple[Stripe, _Inside]],
    ) -> Shape:
        """A group in stripes, without storages that are held in full, and without weights."""
        stripes, inside = zip(*found, strict=True)
        moved = self.moved(at, stop, full, held, after, stripes)
        apart = max(one.nbytes for one in inside)
        padded = [_NOTHING, *inside, _NOTHING]
        around = zip(padded, padded[1:], padded[2:], strict=False)
        overlapped = max(before.stored + now.nbytes + behind.loaded for before, now, behind in around)
        exposed = (moved[0][0] + moved[-1][1]) / 2
        jobs = sum(one.jobs for one in inside)
        return Shape(apart, overlapped, jobs, sum(map(sum, moved)), exposed, len(inside))

    def _inside(self, at: int, stop: int, full: HeldSet, after: HeldSet, stripe: Stripe) -> _Inside:
        """A stripe's jobs, and the tiles that it has without storages that are held in full."""
        stored = self.stored(at, stop, after)
        loaded = sum(size for _, size in self.loaded(at, stop, stripe, full))
        users = {
            self.of[tensor]: index
            for index in self.order[at:stop]
            if index in stripe.rows
            for tensor in self.layers[index].inputs
        }
        ending: dict[int, int] = {}  # bytes of tiles by the layer that reads them last
        jobs = alive = most = out = 0
        for index, rows in reversed(stripe.rows.items()):
            storage = self.of[self.layers[index].ofm]
            if storage.index not in full:
                size = round_up(self._tile_bytes(index, storage, rows, stripe), self.unit)
                alive += size
                if storage in stored:
                    out += size
                else:
                    end = users.get(storage, index)
                    ending[end] = ending.get(end, 0) + size
            cycles, sums = self.jobs(index, rows[1] - rows[0])
            jobs += cycles
            most = max(most, alive + sums)
            alive -= ending.pop(index, 0)
        return _Inside(jobs, loaded, most, out)

    def made(self, at: int, stop: int) -> Mapping[Storage, int]:
        """What a group makes, with the last layer that makes it."""
        if (at, stop) not in self._made:
            self._made[at, stop] = {self.of[self.layers[index].ofm]: index for index in self.order[at:stop]}
        return self._made[at, stop]

    def stored(self, at: int, stop: int, after: HeldSet) -> Mapping[Storage, bool]:
        """What a group stores in main memory, where `after` stay in local memory: whether others read it there."""
        key = at, stop, after
        if key not in self._stored:
            made = self.made(at, stop)
            read = {one: bool(one.lent) or (self.ends[one.index] >= stop and one.index not in after) for one in made}
            self._stored[key] = {one: others for one, others in read.items() if others or one.leaves}
        return self._stored[key]

    def cut(self, at: int, stop: int, full: HeldSet, count: int, halos: HeldSet) -> Iterable[Stripe]:
        """The stripes of a group; of `halos` the rows that two of them share are computed once. They are the same
        whichever of its inputs are in local memory in full."""
        key = at, stop, frozenset(one.index for one in self.made(at, stop) if one.index in full), count, halos
        return self._cuts[key] if key in self._cuts else self._cutting(*key)

    def _cutting(self, at: int, stop: int, full: HeldSet, count: int, halos: HeldSet) -> Iterator[Stripe]:
        """The stripes of a group, which are known once all of them were asked for."""
        found: list[Stripe] = []
        for stripe in stripes_of(self._rows.of(self.order[at:stop]), count, full, halos):
            found.append(stripe)
            yield stripe
        self._cuts[at, stop, full, count, halos] = found

    def loaded(self, at: int, stop: int, stripe: Stripe, full: HeldSet) -> Iterator[tuple[Storage, int]]:
        """The storages of which a stripe loads a tile, and the bytes of that."""
        made = self.made(at, stop)
        for storage, (start, end) in stripe.needs.items():
            if storage not in made and storage.index not in full:
                yield storage, round_up(end - start, self.unit)

    def moved(
        self, at: int, stop: int, full: HeldSet, held: HeldSet, after: HeldSet, stripes: Sequence[Stripe]
    ) -> list[tuple[int, int]]:
        """Cycles of the loads and of the stores of each stripe."""
        made, stored = self.made(at, stop), self.stored(at, stop, after)
        loaded = {one: self.all[one].local_bytes for one in held}
        finished = dict.fromkeys(stored, 0)
        makers = {one: (made[one], one.place(self.layers[made[one]].ofm)) for one in stored}
        found = []
        for stripe in stripes:
            load = store = 0
            for storage, (start, end) in stripe.needs.items():
                if storage in made:
                    continue
                if storage.index not in full:
                    load += self.copy(storage, end - start)
                    continue
                end = storage.local_bytes if storage.index in after or storage.interleaved else end
                load += self.copy(storage, end - loaded.get(storage.index, 0))
                loaded[storage.index] = max(end, loaded.get(storage.index, 0))
            for storage, by_others in stored.items():
                index, place = makers[storage]
                if index in stripe.rows:
                    end = place.span(*stripe.rows[index])[1]
                    if storage.joined:  # stored at once, when all of it is there
                        whole = stripe.rows[index][1] == extents(self.layers[index].ofm)[0]
                        end = storage.nbytes if whole and index == storage.maker else 0
                    store += self.store(storage, end - finished[storage], by_others)
                    finished[storage] = end
            found.append((load, store))
        return found

    def _tile_bytes(self, index: int, storage: Storage, rows: Span, stripe: Stripe) -> int:
        """Bytes of a tile that a layer writes: of packed rows with those around them that are read."""
        if storage.packing is None:
            return (rows[1] - rows[0]) * self._row_bytes[index]
        start, stop = stripe.written(storage, storage.place(self.layers[index].ofm), rows)
        return stop - start

    def tile(self, index: int, rows: int) -> int:
        """Cycles of the jobs over some rows of a layer."""
        return self.jobs(index, rows)[0]

    def jobs(self, index: int, rows: int) -> tuple[int, int]:
        """Cycles of the jobs over some rows of a layer, and bytes of their partial sums."""
        if (index, rows) not in self._tiles:
            layer, blocks, shape = self.layers[index], self.blocks[index], self.mapping.outputs(index, rows)
            sums = psum_bytes(layer, blocks, prod(shape[:2]), self.accelerator)
            self._tiles[index, rows] = tile_cycles(layer, blocks, shape, self.accelerator), sums
        return self._tiles[index, rows]

    def store(self, storage: Storage, nbytes: int, kept: bool) -> int:
        """Cycles to store `nbytes` bytes of a storage wherever they go: by itself if it is `kept`."""
        if nbytes <= 0:
            return 0
        key = storage.index, nbytes, kept
        if key not in self._stores:
            self._stores[key] = self._store(storage, nbytes, kept)
        return self._stores[key]

    def _store(self, storage: Storage, nbytes: int, kept: bool) -> int:
        by_itself = len(storage.sinks) or (kept and not (storage.joins or storage.spreads))
        cycles = self.copy(storage, nbytes) * by_itself
        for part in storage.exits:
            cycles += self.copy(part, part.nbytes * nbytes // storage.nbytes) * len(part.sinks)
        for join in storage.joins:
            _, width, channels = storage.extents
            run = channels if channels != join.whole.extents[2] else width * channels
            cycles += copy_cycles(run, nbytes // run, self.accelerator)
        (_, rows), (_, width, channels) = storage.place(storage.tensor).rows(0, nbytes), storage.extents
        pitch = 0 if storage.packing is None else storage.packing.pitch
        spread = (move for _, one in storage.spreads for move in one.of_rows(rows, width, channels, pitch))
        return cycles + transfer_cycles(spread, self.accelerator)

    def copy(self, storage: Storage, nbytes: int) -> int:
        """Cycles to copy `nbytes` bytes of a storage between local and main memory."""
        if nbytes <= 0:
            return 0
        if (storage.index, nbytes) not in self._copies:
            self._copies[storage.index, nbytes] = self._copied(storage, nbytes)
        return self._copies[storage.index, nbytes]

    def _copied(self, storage: Storage, nbytes: int) -> int:
        if storage.gathered:
            whole = storage.nbytes
            return sum(self._gather(part, join, part.nbytes * nbytes // whole) for part, join in storage.gathered)
        home = self._home(storage if storage.view is None else storage.view.whole)
        if storage.view is not None:
            home = box_home(storage, storage.view, home)
        if home.strides is None:
            return copy_cycles(nbytes, 1, self.accelerator)
        transfers = moves(home, 0, nbytes)
        return sum(copy_cycles(one.nbytes, one.rows, self.accelerator) for one in transfers)

    @staticmethod
    def _home(storage: Storage) -> Home:
        """Where a storage is in main memory."""
        argument = storage.source or (storage.sinks[0] if storage.sinks else None)
        return scratch_home(storage) if argument is None else argument_home(storage, argument)

    def _gather(self, part: Storage, join: Join, nbytes: int) -> int:
        """Cycles to load `nbytes` bytes of a part to its place in a storage that is put together so."""
        _, width, channels = part.extents
        if (1, width, channels) == (join.steps[0], *join.whole.extents[1:]):
            return copy_cycles(nbytes, 1, self.accelerator)
        run = channels if channels != join.whole.extents[2] or join.steps[1] > 1 else width * channels
        return copy_cycles(run, max(1, nbytes // run), self.accelerator)


class EstimatesWithoutSums(Estimates):
    """The same with blocks of all input channels, where these fit: tiles have no partial sums beside them."""

    def _cut(self, mapped: MappedGraph, index: int) -> Blocks | None:
        return cut_without_sums(self.layers[index], self.accelerator)
