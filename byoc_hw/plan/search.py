"""The planner's own choices: from the first layer to the last, the cheapest way to have come there.

A way is a sequence of groups and what of the live storages lies in local memory at its end. What a
group costs is estimated from its rows and bytes alone; the few best ways are then laid out in full
and timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, combinations

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Transpose
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.cost import copy_cycles
from byoc_hw.plan.cuts import all_bytes, cut, load_cycles, psum_bytes, tile_cycles
from byoc_hw.plan.demand import Stripe, demands, row_bytes
from byoc_hw.plan.groups import region_work
from byoc_hw.plan.local import place_local
from byoc_hw.plan.mapping import Mapping, map_layers
from byoc_hw.plan.schedule import cycles
from byoc_hw.plan.storage import Storage, Storages, storages
from byoc_hw.plan.tiling import alignment, round_up
from byoc_hw.plan.window import extents
from byoc_hw.plan.work import Region, argument_home, moves

LONGEST = 8
"""Layers of a group at most."""

ROOM = (1.0, 0.94, 0.86, 0.75)
"""Parts of the local activations that are planned with: places may leave gaps that the estimate does not see."""

_STRIPES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)

_FIRST_SHARES = (6, 12)
"""Into how many blocks the weight memory is shared for the first layer."""

_FURTHER = 3
"""Numbers of stripes that are tried beyond the smallest that fits."""


def choose(graph: Graph, accelerator: Accelerator) -> Choices:
    """Choices for a region that can be carried out. Raises `PlanError` naming a layer that does not fit."""
    for candidates in _candidates(graph, accelerator):
        found: tuple[int, Choices] | None = None
        for candidate in candidates:
            try:
                taken = evaluate(graph, candidate, accelerator)
            except PlanError:
                continue  # the estimate was too bold: another candidate is more careful
            if found is None or taken < found[0]:
                found = taken, candidate
        if found is not None:
            return found[1]
    return layer_by_layer(graph, accelerator)


def evaluate(graph: Graph, choices: Choices, accelerator: Accelerator, mapping: Mapping | None = None) -> int:
    """The cycles of a region with these choices. Raises `PlanError` where they cannot be carried out."""
    mapping = mapping or map_layers(graph, accelerator, choices.swapped, choices.direct)
    work = region_work(Region(graph, mapping, storages(graph, mapping), choices, accelerator))
    return cycles(work.ops, place_local(work.ops, accelerator))


def layer_by_layer(graph: Graph, accelerator: Accelerator) -> Choices:
    """Every layer by itself, from main memory to main memory: what is always possible, if anything is.

    Raises `PlanError` naming a layer that does not fit.
    """
    tilings = (single_tiling(layer, accelerator) for layer in graph.layers)
    groups = tuple(Group(1, overlap=False, resident=False, tiling=tiling) for tiling in tilings)
    plain = map_layers(graph, accelerator, direct=False)
    choices = Choices(plain.swapped, groups, (None,) * len(graph.layers), direct=False)
    evaluate(graph, choices, accelerator, plain)
    return choices


def _candidates(graph: Graph, accelerator: Accelerator) -> Iterator[Iterator[Choices]]:
    """Choices to try, the best ones first; each kind only if there was none of the kind before."""
    mapping = map_layers(graph, accelerator)
    plain = map_layers(graph, accelerator, direct=False)
    for one in (mapping, plain) if any(mapping.swapped) or mapping.moved else (mapping,):
        ways = _Ways(graph, one, accelerator, one is mapping)
        if ways.fits_whole():
            yield ways.resident()
        yield (choices for room in ROOM if (choices := ways.best(room)) is not None)


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


@dataclass(frozen=True)
class _Shape:
    """A group in stripes: bytes of its tiles without and with overlap, cycles of its jobs and of copies of
    activations, half of those that nothing hides, and how many stripes there are."""

    apart: int
    overlapped: int
    jobs: int
    copied: int
    lead: float
    stripes: int


class _Ways:
    def __init__(self, graph: Graph, mapping: Mapping, accelerator: Accelerator, direct: bool) -> None:
        self.direct = direct
        self.graph, self.mapping, self.accelerator = graph, mapping, accelerator
        self.layers = mapping.layers
        self.storages: Storages = storages(graph, mapping)
        self.of = self.storages.of
        self.unit = alignment(accelerator)
        self.blocks = tuple(cut(layer, accelerator) for layer in self.layers)
        self.order = [index for index in range(len(self.layers)) if mapping.works(index)]
        self.size = {storage: round_up(storage.nbytes, self.unit) for storage in self.storages.all}
        cuts = list(zip(self.layers, self.blocks, strict=True))
        self.weights = [load_cycles(layer, blocks, accelerator) for layer, blocks in cuts]
        self.weight_bytes = [all_bytes(layer, blocks, accelerator) for layer, blocks in cuts]
        self.tiles: dict[tuple[int, int], int] = {}
        self.room = accelerator.activation_memory
        self.estimates: dict[object, tuple[float, Group] | None] = {}
        self.shapes: dict[tuple[int, int, frozenset[int], frozenset[int], frozenset[int], int], _Shape] = {}
        self.touched: dict[tuple[int, int], frozenset[int]] = {}
        alive = self._alive()
        self.tight = [alive[index] > accelerator.activation_memory for index in self.order]
        place = {index: at for at, index in enumerate(self.order)}
        self.begins = {one: -1 if one.maker is None else place[one.maker] for one in self.storages.all}
        self.ends = {one: max((place[reader] for reader in one.readers), default=-1) for one in self.storages.all}

    # ------------------------------------------------------------ everything stays

    def fits_whole(self) -> bool:
        """Whether all storages fit local memory, each from its first layer to its last."""
        if any(isinstance(self.layers[index], Transpose) for index in self.order):
            return False
        return max(self._alive(), default=0) <= self.accelerator.activation_memory

    def _alive(self) -> list[int]:
        """Bytes of storages and partial sums that are live in each layer if all storages are whole."""
        changes = [0] * (len(self.layers) + 1)
        for storage in self.storages.all:
            first, last = self._span(storage)
            changes[first] += self.size[storage]
            changes[last + 1] -= self.size[storage]
        height_width = (extents(layer.ofm)[:2] for layer in self.layers)
        return [
            alive + psum_bytes(layer, blocks, height * width)
            for alive, layer, blocks, (height, width) in zip(
                accumulate(changes), self.layers, self.blocks, height_width, strict=False
            )
        ]

    def _span(self, storage: Storage) -> tuple[int, int]:
        first = storage.maker if storage.maker is not None else min(storage.readers, default=0)
        return first, max(storage.last, first)

    def resident(self) -> Iterator[Choices]:
        """All storages whole, with a few ways to cut the layers that load and store: the first and the last."""
        starts: dict[int, list[int]] = {}
        for storage in self.storages.all:
            starts.setdefault(self._span(storage)[0], []).append(storage.index)
        groups = []
        held: set[int] = set()
        for index in range(len(self.layers)):
            held |= set(starts.get(index, ()))
            held = {one for one in held if self._span(self.storages.all[one])[1] >= index}
            groups.append(Group(1, whole=frozenset(held)))
        border = [index for index in self.order if self._at_border(index)]
        for blocks in self._first_blocks():
            for stripes in (1, 2, 4, 6, 8) if border else (1,):
                striped = [replace(group, stripes=stripes) if i in border else group for i, group in enumerate(groups)]
                yield Choices(self.mapping.swapped, tuple(striped), blocks, self.direct)

    def _first_blocks(self) -> Iterator[tuple[Blocks | None, ...]]:
        """The blocks, and where the first layer's weights are large also in smaller ones: nothing hides the first."""
        yield self.blocks
        index = next((index for index in self.order if self.weights[index]), None)
        if index is not None and self.weights[index] > 8 * self.accelerator.dma_setup:
            for share in _FIRST_SHARES:
                smaller = cut(self.layers[index], self.accelerator, share)
                yield (*self.blocks[:index], smaller, *self.blocks[index + 1 :])

    def _at_border(self, index: int) -> bool:
        layer = self.layers[index]
        touched = [self.of[tensor] for tensor in (*layer.inputs, layer.ofm)]
        return (
            any(
                (one.maker is None or (one.sinks and one.maker == index))
                and one.nbytes > 8 * self.accelerator.dma_width
                for one in touched
            )
            and extents(layer.ofm)[0] > 1
        )

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
        return Choices(self.mapping.swapped, groups or (Group(len(self.layers)),), self.blocks, self.direct)

    def _steps(self, at: int, held: frozenset[int]) -> Iterator[tuple[int, frozenset[int], float, Group]]:
        """The groups that can follow: where they end, what is held then, their cycles."""
        for stop in range(at + 1, min(at + LONGEST, len(self.order)) + 1):
            indices = self.order[at:stop]
            if stop > at + 1 and isinstance(self.layers[indices[-1]], Transpose):
                return
            if stop > at + 1 and not any(self.tight[at:stop]):
                continue  # where everything can stay there is nothing to gain
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
        live = [one for one in sorted(self._touched(at, stop) | held) if self.ends[self.storages.all[one]] >= stop]
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
        touched = self._touched(at, stop)
        passing = sum(self.size[self.storages.all[one]] for one in whole - touched)
        key = (at, stop, whole & touched, held & touched, after & touched, passing)
        if key not in self.estimates:
            self.estimates[key] = self._cheapest(at, stop, held, after, whole)
        found = self.estimates[key]
        return None if found is None else (found[0], replace(found[1], whole=whole))

    def _touched(self, at: int, stop: int) -> frozenset[int]:
        """The storages that some layers read or make."""
        if (at, stop) not in self.touched:
            layers = [self.layers[index] for index in self.order[at:stop]]
            tensors = (tensor for layer in layers for tensor in (*layer.inputs, layer.ofm))
            self.touched[at, stop] = frozenset(self.of[tensor].index for tensor in tensors)
        return self.touched[at, stop]

    def _cheapest(
        self, at: int, stop: int, held: frozenset[int], after: frozenset[int], whole: frozenset[int]
    ) -> tuple[float, Group] | None:
        indices = self.order[at:stop]
        first = indices[0] if at else 0
        count = (self.order[stop] if stop < len(self.order) else len(self.layers)) - first
        if isinstance(self.layers[indices[0]], Transpose):
            return self._transposed(at, count, whole)
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
        if best is None and len(indices) == 1 and not whole & self._touched(at, stop):
            return self._tiled(indices[0], count, whole)
        return best

    def _weights_stay(self, indices: Sequence[int]) -> bool:
        return sum(self.weight_bytes[index] for index in indices) <= self.accelerator.weight_memory

    def _transposed(self, at: int, count: int, whole: frozenset[int]) -> tuple[float, Group] | None:
        layer = self.layers[self.order[at]]
        if whole & self._touched(at, at + 1):
            return None
        return copy_cycles(layer.ifm.nbytes, 1, self.accelerator) + layer.ofm.nbytes, Group(count, whole=whole)

    def _tiled(self, index: int, count: int, whole: frozenset[int]) -> tuple[float, Group] | None:
        layer = self.layers[index]
        if any(self.of[tensor].reordered for tensor in (*layer.inputs, layer.ofm)):
            return None
        passing = sum(self.size[self.storages.all[one]] for one in whole)
        extent = extents(layer.ofm)
        jobs = tile_cycles(layer, None, extent, self.accelerator)
        copied = sum(copy_cycles(tensor.nbytes, extent[0], self.accelerator) for tensor in (*layer.inputs, layer.ofm))
        for overlap in (True, False):
            # Two tiles at a time, or one.
            smaller = replace(
                self.accelerator,
                activation_memory=max(self.room - passing, 0) // (2 if overlap else 1),
                weight_memory=self.accelerator.weight_memory // (2 if overlap else 1),
            )
            try:
                tiling = single_tiling(layer, smaller)
            except PlanError:
                continue
            group = Group(count, whole=whole, overlap=overlap, resident=False, tiling=tiling)
            return (1.5 if overlap else 2.0) * (jobs + copied + self.weights[index]), group
        return None

    def _striped(
        self,
        at: int,
        stop: int,
        held: frozenset[int],
        after: frozenset[int],
        whole: frozenset[int],
        count: int,
        overlap: bool,
    ) -> float | None:
        """Estimated cycles of a group in stripes; None where it does not fit."""
        kept = sum(self.size[self.storages.all[one]] for one in whole)
        if kept > self.room:
            return None
        touched = self._touched(at, stop)
        key = (at, stop, whole & touched, held & touched, after & touched, count)
        if key not in self.shapes:
            self.shapes[key] = self._shape(*key)
        shape = self.shapes[key]
        if kept + (shape.overlapped if overlap else shape.apart) > self.room:
            return None
        indices = self.order[at:stop]
        once = count == 1 or self._weights_stay(indices)
        weights = sum(self.weights[index] for index in indices) * (1 if once else shape.stripes)
        if overlap:
            return max(shape.jobs, shape.copied + weights) + shape.lead
        return max(shape.jobs + shape.copied, shape.copied + weights)

    def _shape(
        self,
        at: int,
        stop: int,
        whole: frozenset[int],
        held: frozenset[int],
        after: frozenset[int],
        count: int,
    ) -> _Shape:
        """What a group in stripes takes, apart from storages that are whole, and from weights."""
        indices = self.order[at:stop]
        made = {self.of[self.layers[index].ofm]: index for index in indices}
        stored = {one for one in made if one.sinks or (self.ends[one] >= stop and one.index not in after)}
        loaded = {one: self.storages.all[one].nbytes for one in held}
        finished = dict.fromkeys(stored, 0)
        jobs = copied = first = last = 0
        inside: list[tuple[int, int, int]] = []  # of each stripe: tiles that are loaded, computed, stored
        for stripe in demands(self.layers, self.of, indices, count, whole):
            tiles_in = load = store = 0
            for storage, (start, end) in stripe.needs.items():
                if storage in made:
                    continue
                if storage.index not in whole:
                    load += self._copy(storage, end - start)
                    tiles_in += round_up(end - start, self.unit)
                    continue
                end = storage.nbytes if storage.index in after else end
                load += self._copy(storage, end - loaded.get(storage.index, 0))
                loaded[storage.index] = max(end, loaded.get(storage.index, 0))
            for storage in stored:
                index = made[storage]
                if index in stripe.rows:
                    end = stripe.rows[index][1] * row_bytes(self.layers[index].ofm)
                    store += self._copy(storage, end - finished[storage]) * max(1, len(storage.sinks))
                    finished[storage] = end
            jobs += sum(self._tile(index, rows[1] - rows[0]) for index, rows in stripe.rows.items())
            inside.append((tiles_in, *self._inside(indices, stripe, whole, stored)))
            copied += load + store
            first = load if len(inside) == 1 else first
            last = store
        apart = max(sum(tiles[:2]) for tiles in inside)
        padded = [(0, 0, 0), *inside, (0, 0, 0)]
        around = zip(padded, padded[1:], padded[2:], strict=False)
        overlapped = max(before[2] + sum(now[:2]) + behind[0] for before, now, behind in around)
        return _Shape(apart, overlapped, jobs, copied, (first + last) / 2, len(inside))

    def _inside(self, indices: Sequence[int], stripe: Stripe, whole: Set[int], stored: Set[Storage]) -> tuple[int, int]:
        """The most bytes that tiles and partial sums of a stripe take at once, and those of tiles that are stored."""
        users = {
            self.of[tensor]: index for index in indices if index in stripe.rows for tensor in self.layers[index].inputs
        }
        ending: dict[int, int] = {}
        alive = most = out = 0
        for index, rows in reversed(stripe.rows.items()):
            layer, count = self.layers[index], rows[1] - rows[0]
            storage = self.of[layer.ofm]
            if storage.index not in whole:
                size = round_up(count * row_bytes(layer.ofm), self.unit)
                alive += size
                if storage in stored:
                    out += size
                else:
                    end = users.get(storage, index)
                    ending[end] = ending.get(end, 0) + size
            most = max(most, alive + psum_bytes(layer, self.blocks[index], count * extents(layer.ofm)[1]))
            alive -= ending.pop(index, 0)
        return most, out

    def _tile(self, index: int, rows: int) -> int:
        if (index, rows) not in self.tiles:
            layer = self.layers[index]
            _, width, channels = extents(layer.ofm)
            self.tiles[index, rows] = tile_cycles(layer, self.blocks[index], (rows, width, channels), self.accelerator)
        return self.tiles[index, rows]

    def _copy(self, storage: Storage, nbytes: int) -> int:
        """Cycles to copy so many bytes of a storage between local and main memory."""
        if nbytes <= 0:
            return 0
        argument = storage.source or (storage.sinks[0] if storage.sinks else None)
        if argument is None or argument.strides is None:
            return copy_cycles(nbytes, 1, self.accelerator)
        transfers = moves(argument_home(storage, argument), 0, nbytes)
        return sum(copy_cycles(one.nbytes, one.rows, self.accelerator) for one in transfers)
