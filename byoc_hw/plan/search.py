"""The planner's own choices: from the first layer to the last, the cheapest way to have come there.

A way is a sequence of groups and what of the live storages lies in local memory at its end. What a
group costs is estimated from its rows and bytes alone; the few best ways are then laid out in full
and timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Reshape, Transpose
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.cost import copy_cycles
from byoc_hw.plan.cuts import all_bytes, block_sizes, cut, psum_bytes, tile_cycles
from byoc_hw.plan.demand import demands, row_bytes
from byoc_hw.plan.flash import Weighted
from byoc_hw.plan.groups import region_work
from byoc_hw.plan.local import place_local
from byoc_hw.plan.mapping import Mapping, map_layers
from byoc_hw.plan.schedule import cycles
from byoc_hw.plan.storage import Storage, Storages, storages
from byoc_hw.plan.tiling import alignment, round_up
from byoc_hw.plan.window import extents
from byoc_hw.plan.work import Region

LONGEST = 8
"""Layers of a group at most."""

ROOM = (1.0, 0.94, 0.86, 0.75)
"""Parts of the local activations that are planned with: places may leave gaps that the estimate does not see."""

_STRIPES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)

_FURTHER = 3
"""Numbers of stripes that are tried beyond the smallest that fits."""


def choose(graph: Graph, accelerator: Accelerator) -> Choices:
    """Choices for a region that can be carried out. Raises `PlanError` naming a layer that does not fit."""
    mapping = map_layers(graph, accelerator)
    found: tuple[int, Choices] | None = None
    for candidate in _candidates(graph, mapping, accelerator):
        try:
            taken = evaluate(graph, candidate, accelerator)
        except PlanError:
            continue  # the estimate was too bold: another candidate is more careful
        if found is None or taken < found[0]:
            found = taken, candidate
    return found[1] if found is not None else layer_by_layer(graph, accelerator)


def evaluate(graph: Graph, choices: Choices, accelerator: Accelerator, mapping: Mapping | None = None) -> int:
    """The cycles of a region with these choices. Raises `PlanError` where they cannot be carried out."""
    mapping = mapping or map_layers(graph, accelerator, choices.swapped)
    work = region_work(Region(graph, mapping, storages(graph, mapping), choices, accelerator))
    return cycles(work.ops, place_local(work.ops, accelerator))


def layer_by_layer(graph: Graph, accelerator: Accelerator) -> Choices:
    """Every layer by itself, from main memory to main memory: what is always possible, if anything is."""
    groups = tuple(
        Group(1, overlap=False, resident=False, tiling=single_tiling(layer, accelerator)) for layer in graph.layers
    )
    mapping = map_layers(graph, accelerator, (False,) * len(map_layers(graph, accelerator).swapped))
    choices = Choices(mapping.swapped, groups, (None,) * len(graph.layers))
    evaluate(graph, choices, accelerator, mapping)
    return choices


def _candidates(graph: Graph, mapping: Mapping, accelerator: Accelerator) -> Iterator[Choices]:
    plain = map_layers(graph, accelerator, (False,) * len(mapping.swapped))
    for one in (mapping, plain) if any(mapping.swapped) else (mapping,):
        ways = _Ways(graph, one, accelerator)
        if ways.fits_whole(1.0):
            yield from ways.resident()
        else:
            for room in ROOM:
                found = ways.best(room)
                if found is not None:
                    yield found


@dataclass(frozen=True)
class _Way:
    """Groups so far, and their estimated cycles."""

    cycles: float
    group: Group | None = None
    before: _Way | None = None

    def groups(self) -> tuple[Group, ...]:
        """All groups in order."""
        found: list[Group] = []
        way: _Way | None = self
        while way is not None and way.group is not None:
            found.append(way.group)
            way = way.before
        return tuple(reversed(found))


class _Ways:
    def __init__(self, graph: Graph, mapping: Mapping, accelerator: Accelerator) -> None:
        self.graph, self.mapping, self.accelerator = graph, mapping, accelerator
        self.layers = mapping.layers
        self.storages: Storages = storages(graph, mapping)
        self.of = self.storages.of
        self.unit = alignment(accelerator)
        self.blocks = tuple(cut(layer, accelerator) for layer in self.layers)
        self.order = [index for index, layer in enumerate(self.layers) if not isinstance(layer, Reshape)]
        self.size = {storage: round_up(storage.nbytes, self.unit) for storage in self.storages.all}
        self.weights = [self._weight_cycles(index) for index in range(len(self.layers))]
        self.weight_bytes = [all_bytes(layer, cut, accelerator) for layer, cut in zip(self.layers, self.blocks, strict=True)]
        self.tiles: dict[tuple[int, int], int] = {}
        self.room = accelerator.activation_memory
        self.estimates: dict[object, tuple[float, Group] | None] = {}
        place = {index: at for at, index in enumerate(self.order)}
        self.begins = {one: -1 if one.maker is None else place[one.maker] for one in self.storages.all}
        self.ends = {one: max((place[reader] for reader in one.readers), default=-1) for one in self.storages.all}

    def _weight_cycles(self, index: int) -> int:
        layer = self.layers[index]
        if not isinstance(layer, Weighted):
            return 0
        return sum(copy_cycles(size, 1, self.accelerator) for size in block_sizes(layer, self.blocks[index], self.accelerator))

    # ------------------------------------------------------------ everything stays

    def fits_whole(self, room: float) -> bool:
        """Whether all storages fit local memory, each from its first layer to its last."""
        if any(isinstance(layer, Transpose) for layer in self.layers):
            return False
        changes: dict[int, int] = {}
        for storage in self.storages.all:
            first, last = self._span(storage)
            changes[first] = changes.get(first, 0) + self.size[storage]
            changes[last + 1] = changes.get(last + 1, 0) - self.size[storage]
        for index in self.order:
            pixels = extents(self.layers[index].ofm)
            psum = psum_bytes(self.layers[index], self.blocks[index], pixels[0] * pixels[1])
            changes[index] = changes.get(index, 0) + psum
            changes[index + 1] = changes.get(index + 1, 0) - psum
        total = 0
        for index in sorted(changes):
            total += changes[index]
            if total > self.accelerator.activation_memory * room:
                return False
        return True

    def _span(self, storage: Storage) -> tuple[int, int]:
        first = storage.maker if storage.maker is not None else min(storage.readers, default=0)
        return first, max(storage.last, first)

    def resident(self) -> Iterator[Choices]:
        """All storages whole, with a few ways to cut the first layers and the last: these have to be loaded and stored."""
        starts: dict[int, list[int]] = {}
        for storage in self.storages.all:
            starts.setdefault(self._span(storage)[0], []).append(storage.index)
        groups = []
        held: set[int] = set()
        for index in range(len(self.layers)):
            held |= set(starts.get(index, ()))
            held = {one for one in held if self._span(self.storages.all[one])[1] >= index}
            groups.append(Group(1, whole=frozenset(held)))
        choices = Choices(self.mapping.swapped, tuple(groups), self.blocks)
        yield choices
        border = [index for index in self.order if self._at_border(index)]
        if border:
            for stripes in (2, 4, 6, 8):
                cut = [replace(group, stripes=stripes) if i in border else group for i, group in enumerate(groups)]
                yield replace(choices, groups=tuple(cut))

    def _at_border(self, index: int) -> bool:
        layer = self.layers[index]
        touched = [self.of[tensor] for tensor in (*layer.inputs, layer.ofm)]
        return any(
            (one.maker is None or (one.sinks and one.maker == index)) and one.nbytes > 8 * self.accelerator.dma_width
            for one in touched
        ) and extents(layer.ofm)[0] > 1

    # ------------------------------------------------------------ ways through the layers

    def best(self, room: float) -> Choices | None:
        """The cheapest way where storages and tiles have a part of local memory, if there is one."""
        self.room = int(self.accelerator.activation_memory * room)
        self.estimates.clear()
        ways: list[dict[frozenset[int], _Way]] = [{} for _ in range(len(self.order) + 1)]
        ways[0][frozenset()] = _Way(0)
        for at in range(len(self.order)):
            for held, way in sorted(ways[at].items(), key=lambda item: item[1].cycles)[:12]:
                for stop, after, cost, group in self._steps(at, held):
                    other = ways[stop].get(after)
                    if other is None or way.cycles + cost < other.cycles:
                        ways[stop][after] = _Way(way.cycles + cost, group, way)
        if not ways[-1]:
            return None
        groups = min(ways[-1].values(), key=lambda way: way.cycles).groups()
        return Choices(self.mapping.swapped, groups or (Group(len(self.layers)),), self.blocks)

    def _steps(self, at: int, held: frozenset[int]) -> Iterator[tuple[int, frozenset[int], float, Group]]:
        """The groups that can follow: where they end, what is held then, their cycles."""
        for stop in range(at + 1, min(at + LONGEST, len(self.order)) + 1):
            indices = self.order[at:stop]
            if any(isinstance(self.layers[index], Transpose) for index in indices) and stop > at + 1:
                return
            possible = False
            for after in self._held_after(at, stop, held):
                found = self._estimate(at, stop, held, after)
                if found is not None:
                    possible = True
                    cost, group = found
                    yield stop, after, cost + self._dropped(held, after, stop), group
            if stop > at + 1 and not possible:
                return

    def _held_after(self, at: int, stop: int, held: frozenset[int]) -> Iterator[frozenset[int]]:
        """Sets of storages that may lie in local memory behind a group."""
        touched = {self.of[t].index for i in self.order[at:stop] for t in (*self.layers[i].inputs, self.layers[i].ofm)}
        live = [one for one in sorted(touched | held) if self.ends[self.storages.all[one]] >= stop]
        if len(live) > 3:  # those that are needed soonest, and all before
            soonest = sorted(live, key=lambda one: self._next(one, stop))
            yield from (frozenset(soonest[:count]) for count in range(len(soonest) + 1))
            return
        for count in range(len(live), -1, -1):
            yield from map(frozenset, combinations(live, count))

    def _next(self, storage: int, stop: int) -> int:
        return min(index for index in self.storages.all[storage].readers if index >= self.order[stop])

    def _dropped(self, held: frozenset[int], after: frozenset[int], stop: int) -> float:
        """Half the cycles to store what a layer made, has been held and is not any more though it is needed."""
        gone = [self.storages.all[one] for one in held - after]
        return sum(
            copy_cycles(one.nbytes, 1, self.accelerator) / 2
            for one in gone
            if one.maker is not None and not one.sinks and self.ends[one] >= stop
        )

    # ------------------------------------------------------------ one group

    def _estimate(self, at: int, stop: int, held: frozenset[int], after: frozenset[int]) -> tuple[float, Group] | None:
        """The cheapest form of a group and its cycles; None where nothing fits."""
        indices = self.order[at:stop]
        read = {self.of[tensor].index for index in indices for tensor in self.layers[index].inputs}
        whole = (held & read) | after
        passing = sum(self.size[self.storages.all[one]] for one in whole - self._touched(indices))
        key = (at, stop, whole & self._touched(indices), held & whole, after & whole & self._touched(indices), passing)
        if key not in self.estimates:
            self.estimates[key] = self._cheapest(at, stop, held, after, whole)
        found = self.estimates[key]
        return None if found is None else (found[0], replace(found[1], whole=whole))

    def _touched(self, indices: Sequence[int]) -> frozenset[int]:
        return frozenset(self.of[t].index for i in indices for t in (*self.layers[i].inputs, self.layers[i].ofm))

    def _cheapest(
        self, at: int, stop: int, held: frozenset[int], after: frozenset[int], whole: frozenset[int]
    ) -> tuple[float, Group] | None:
        indices = self.order[at:stop]
        first = indices[0] if at else 0
        count = (self.order[stop] if stop < len(self.order) else len(self.layers)) - first
        if isinstance(self.layers[indices[0]], Transpose):
            return self._transposed(indices[0], count, whole)
        best: tuple[float, Group] | None = None
        fitting = 0
        height = extents(self.layers[indices[-1]].ofm)[0]
        for stripes in _STRIPES:
            if stripes > height or fitting > _FURTHER:
                break
            for overlap in (True, False) if stripes > 1 else (False,):
                cost = self._striped(at, stop, held, after, whole, stripes, overlap)
                if cost is None:
                    continue
                fitting += 1
                resident = stripes > 1 and self._weights_stay(indices)
                if best is None or cost < best[0]:
                    best = cost, Group(count, stripes, whole, overlap, resident)
                break
        if best is None and len(indices) == 1 and not whole & self._touched(indices):
            return self._tiled(indices[0], count, whole)
        return best

    def _weights_stay(self, indices: Sequence[int]) -> bool:
        return sum(self.weight_bytes[index] for index in indices) <= self.accelerator.weight_memory

    def _transposed(self, index: int, count: int, whole: frozenset[int]) -> tuple[float, Group] | None:
        layer = self.layers[index]
        if whole & self._touched([index]):
            return None
        return copy_cycles(layer.ifm.nbytes, 1, self.accelerator) + layer.ofm.nbytes, Group(count, whole=whole)

    def _tiled(self, index: int, count: int, whole: frozenset[int]) -> tuple[float, Group] | None:
        layer = self.layers[index]
        if any(self.of[tensor].transposed for tensor in (*layer.inputs, layer.ofm)):
            return None
        passing = sum(self.size[self.storages.all[one]] for one in whole)
        smaller = replace(self.accelerator, activation_memory=max(self.room - passing, 0))
        try:
            tiling = single_tiling(layer, smaller)
        except PlanError:
            return None
        extent = extents(layer.ofm)
        jobs = tile_cycles(layer, None, extent, self.accelerator)
        copied = sum(copy_cycles(tensor.nbytes, extent[0], self.accelerator) for tensor in (*layer.inputs, layer.ofm))
        return 2.0 * (jobs + copied + self.weights[index]), Group(count, whole=whole, resident=False, tiling=tiling)

    def _striped(
        self,
        at: int,
        stop: int,
        held: frozenset[int],
        after: frozenset[int],
        whole: Set[int],
        count: int,
        overlap: bool,
    ) -> float | None:
        """Estimated cycles of a group in stripes; None where it does not fit."""
        indices = self.order[at:stop]
        made = {self.of[self.layers[index].ofm]: index for index in indices}
        stored = {one for one in made if one.sinks or (self.ends[one] >= stop and one.index not in after)}
        kept = sum(self.size[self.storages.all[one]] for one in whole)
        if kept > self.room:
            return None
        jobs = copied = 0
        loaded = dict.fromkeys(held, -1)
        finished = dict.fromkeys(made, 0)
        before_out = 0
        load_first = store_last = 0
        spaces: list[tuple[int, int]] = []
        for number, stripe in enumerate(demands(self.layers, self.of, indices, count, whole)):
            tiles_in = tiles_out = load = store = 0
            for storage, (start, end) in stripe.needs.items():
                if storage in made:
                    continue
                if storage.index not in whole:
                    load += self._copy(storage, end - start)
                    tiles_in += round_up(end - start, self.unit)
                elif loaded.get(storage.index, 0) >= 0:
                    end = storage.nbytes if storage.index in after else end
                    if end > loaded.get(storage.index, 0):
                        load += self._copy(storage, end - loaded.get(storage.index, 0))
                        loaded[storage.index] = end
            last_use: dict[Storage, int] = {}
            for index in indices:
                if index in stripe.rows:
                    for tensor in self.layers[index].inputs:
                        last_use[self.of[tensor]] = index
            alive = most = 0
            ending: dict[int, int] = {}
            for index in indices:
                if index not in stripe.rows:
                    continue
                layer = self.layers[index]
                storage, rows = self.of[layer.ofm], stripe.rows[index][1] - stripe.rows[index][0]
                jobs += self._tile(index, rows)
                size = rows * row_bytes(layer.ofm)
                psum = psum_bytes(layer, self.blocks[index], rows * extents(layer.ofm)[1])
                if storage in stored:
                    stop_at = stripe.rows[index][1] * row_bytes(layer.ofm)
                    store += self._copy(storage, stop_at - finished[storage]) * max(1, len(storage.sinks))
                    finished[storage] = stop_at
                if storage.index not in whole:
                    alive += round_up(size, self.unit)
                    if storage in stored:
                        tiles_out += round_up(size, self.unit)
                    else:
                        done = last_use.get(storage, index)
                        ending[done] = ending.get(done, 0) + round_up(size, self.unit)
                most = max(most, alive + psum)
                alive -= ending.pop(index, 0)
            spaces.append((tiles_in + most + (before_out if overlap else 0), tiles_in))
            if number and overlap:
                spaces[-2] = spaces[-2][0] + tiles_in, 0
            before_out = tiles_out
            copied += load + store
            load_first = load if number == 0 else load_first
            store_last = store
        if kept + max(space for space, _ in spaces) > self.room:
            return None
        resident = count > 1 and self._weights_stay(indices)
        weights = sum(self.weights[index] for index in indices) * (1 if resident or count == 1 else len(spaces))
        lead = (load_first + store_last) / 2
        if overlap:
            return max(jobs, copied + weights) + lead
        return max(jobs + copied, copied + weights) + 0.0

    def _tile(self, index: int, rows: int) -> int:
        if (index, rows) not in self.tiles:
            layer = self.layers[index]
            _, width, channels = extents(layer.ofm)
            self.tiles[index, rows] = tile_cycles(layer, self.blocks[index], (rows, width, channels), self.accelerator)
        return self.tiles[index, rows]

    def _copy(self, storage: Storage, nbytes: int) -> int:
        if storage.transposed and (storage.source is not None or storage.sinks):
            _, width, channels = storage.extents
            rows = max(nbytes // (width * channels), 1)
            return min(rows, width) * copy_cycles(channels, max(rows, width), self.accelerator)
        return copy_cycles(nbytes, 1, self.accelerator) if nbytes else 0
