"""Ways through a region: its layers in groups, one after the other, and what lies in local memory between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, combinations

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Transpose
from byoc_hw.plan.choice import single_tiling
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.cost import copy_cycles
from byoc_hw.plan.cuts import cut, psum_bytes, tile_cycles
from byoc_hw.plan.estimate import Estimates, Held
from byoc_hw.plan.mapping import Mapping
from byoc_hw.plan.storage import Storage, can_tile, storages
from byoc_hw.plan.window import extents

_LONGEST = 4
"""Layers of a group that the planner looks at; the tuner goes as far as the accelerator's space."""

_BORDER_STRIPES = (1, 2, 4, 6, 8)
"""Into how many stripes layers are cut that load or store where all else stays."""

_FIRST_SHARES = (6, 12)
"""Into how many blocks the weight memory is shared for the first layer."""

_FURTHER = 3
"""Numbers of stripes that are tried beyond the smallest that fits."""


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


class Ways:
    """The ways through a mapped region."""

    def __init__(self, graph: Graph, mapping: Mapping, accelerator: Accelerator, direct: bool) -> None:
        self.mapping, self.accelerator, self.direct = mapping, accelerator, direct
        self.layers, self.space = mapping.layers, accelerator.tuning
        found = storages(graph, mapping)
        self.all, self.of = found.all, found.of
        self.blocks = tuple(cut(layer, accelerator) for layer in self.layers)
        self.estimates = Estimates(mapping, found, self.blocks, accelerator)
        self.order = self.estimates.order
        alive = self._alive()
        self.tight = [alive[index] > accelerator.activation_memory for index in self.order]
        self.room = accelerator.activation_memory
        self.groups: dict[object, tuple[float, Group] | None] = {}

    # ------------------------------------------------------------ everything stays

    def fits_whole(self) -> bool:
        """Whether all storages fit local memory, each from its first layer to its last."""
        if not self.space.hold or any(isinstance(self.layers[index], Transpose) for index in self.order):
            return False
        return max(self._alive(), default=0) <= self.accelerator.activation_memory

    def _alive(self) -> list[int]:
        """Bytes of storages and partial sums that are live in each layer if all storages are whole."""
        changes = [0] * (len(self.layers) + 1)
        for storage in self.all:
            first, last = self._span(storage)
            changes[first] += self.estimates.size[storage.index]
            changes[last + 1] -= self.estimates.size[storage.index]
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
        for storage in self.all:
            starts.setdefault(self._span(storage)[0], []).append(storage.index)
        groups = []
        held: set[int] = set()
        for index in range(len(self.layers)):
            held |= set(starts.get(index, ()))
            held = {one for one in held if self._span(self.all[one])[1] >= index}
            groups.append(Group(1, 1, frozenset(held), self.space.overlap, self.space.resident))
        border = [index for index in self.order if self._at_border(index)]
        for blocks in self._first_blocks():
            for stripes in [count for count in _BORDER_STRIPES if count in self.space.stripes] if border else (1,):
                striped = [replace(group, stripes=stripes) if i in border else group for i, group in enumerate(groups)]
                yield Choices(self.mapping.swapped, tuple(striped), blocks, self.direct)

    def _first_blocks(self) -> Iterator[tuple[Blocks | None, ...]]:
        """The blocks, and where the first layer's weights are large also in smaller ones: nothing hides the first."""
        yield self.blocks
        index = next((index for index in self.order if self.estimates.load[index]), None)
        if index is not None and self.estimates.load[index] > 8 * self.accelerator.dma_setup:
            for share in [share for share in _FIRST_SHARES if share in self.space.weight_shares]:
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
        self.groups.clear()
        ways: list[dict[Held, _Way]] = [{} for _ in range(len(self.order) + 1)]
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

    def _steps(self, at: int, held: Held) -> Iterator[tuple[int, Held, float, Group]]:
        """The groups that can follow: where they end, what is held then, their cycles."""
        for stop in range(at + 1, min(at + min(self.space.longest_group, _LONGEST), len(self.order)) + 1):
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

    def _held_after(self, at: int, stop: int, held: Held) -> Iterator[Held]:
        """Sets of storages that may lie in local memory behind a group."""
        if not self.space.hold:
            yield frozenset()
            return
        live = [one for one in sorted(self.estimates.touched(at, stop) | held) if self.estimates.ends[one] >= stop]
        if len(live) > 3:  # those that are needed soonest, and all before
            soonest = sorted(live, key=lambda one: self._next(one, stop))
            yield from (frozenset(soonest[:count]) for count in range(len(soonest) + 1))
            return
        for count in range(len(live), -1, -1):
            yield from map(frozenset, combinations(live, count))

    def _next(self, storage: int, stop: int) -> int:
        return min(index for index in self.all[storage].readers if index >= self.order[stop])

    def _dropped(self, held: Held, after: Held, stop: int) -> float:
        """Half the cycles to store what a layer made, has been held and is not any more though it is needed."""
        gone = [self.all[one] for one in held - after]
        return sum(
            copy_cycles(one.nbytes, 1, self.accelerator) / 2
            for one in gone
            if one.maker is not None and not one.sinks and self.estimates.ends[one.index] >= stop
        )

    # ------------------------------------------------------------ one group

    def _estimate(self, at: int, stop: int, held: Held, after: Held) -> tuple[float, Group] | None:
        """The cheapest form of a group and its cycles; None where nothing fits."""
        indices = self.order[at:stop]
        read = {self.of[tensor].index for index in indices for tensor in self.layers[index].inputs}
        whole = (held & read) | after
        touched = self.estimates.touched(at, stop)
        passing = self.estimates.bytes_of(whole - touched)
        key = (at, stop, whole & touched, held & touched, after & touched, passing)
        if key not in self.groups:
            self.groups[key] = self._cheapest(at, stop, held, after, whole)
        found = self.groups[key]
        return None if found is None else (found[0], replace(found[1], whole=whole))

    def _cheapest(self, at: int, stop: int, held: Held, after: Held, whole: Held) -> tuple[float, Group] | None:
        indices = self.order[at:stop]
        first = indices[0] if at else 0
        count = (self.order[stop] if stop < len(self.order) else len(self.layers)) - first
        if isinstance(self.layers[indices[0]], Transpose):
            return self._transposed(at, count, whole)
        best: tuple[float, Group] | None = None
        fitting = 0
        height = extents(self.layers[indices[-1]].ofm)[0]
        most = self.estimates.largest_tiles(at, stop, whole)
        for stripes in sorted(self.space.stripes):
            if stripes > height or fitting > _FURTHER:
                break
            if most > stripes * self.room:
                continue
            for overlap in (True, False) if stripes > 1 and self.space.overlap else (False,):
                cost = self.estimates.striped(at, stop, held, after, whole, stripes, overlap, self.room)
                if cost is None:
                    continue
                fitting += 1
                resident = stripes > 1 and self.space.resident and self.estimates.weights_stay(at, stop)
                if best is None or cost < best[0]:
                    best = cost, Group(count, stripes, whole, overlap, resident)
                break
        if best is None and len(indices) == 1 and not whole & self.estimates.touched(at, stop):
            return self._tiled(indices[0], count, whole)
        return best

    def _transposed(self, at: int, count: int, whole: Held) -> tuple[float, Group] | None:
        layer = self.layers[self.order[at]]
        if whole & self.estimates.touched(at, at + 1):
            return None
        return copy_cycles(layer.ifm.nbytes, 1, self.accelerator) + layer.ofm.nbytes, Group(count, whole=whole)

    def _tiled(self, index: int, count: int, whole: Held) -> tuple[float, Group] | None:
        layer = self.layers[index]
        if not can_tile(layer, self.of):
            return None
        passing = self.estimates.bytes_of(whole)
        extent = extents(layer.ofm)
        jobs = tile_cycles(layer, None, extent, self.accelerator)
        copied = sum(copy_cycles(tensor.nbytes, extent[0], self.accelerator) for tensor in (*layer.inputs, layer.ofm))
        for overlap in (True, False) if self.space.overlap else (False,):
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
            return (1.5 if overlap else 2.0) * (jobs + copied + self.estimates.load[index]), group
        return None
