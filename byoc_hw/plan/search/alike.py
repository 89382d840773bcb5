"""Which consecutive layers are alike: what a search finds out about some of them is true of the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from byoc_hw.plan.array.alike_layer import layer_sizes
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.choices import Group

GroupForm = tuple[float, Group]
"""A form of a group, behind its estimated cycles."""


@dataclass
class Known:
    """What is known of layers that are alike, in any mapping to one accelerator: their number, of runs that were
    measured the cycles and the number of copies and jobs, and forms of groups with their estimates. None stands for
    what does not fit."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    measured: dict[Hashable, tuple[int, int] | None] = field(default_factory=dict)
    forms: dict[Hashable, GroupForm | None] = field(default_factory=dict)


@dataclass(frozen=True)
class LayersInPlace:
    """Consecutive layers of a mapped region: `number` is that of all layers that are alike, `storages` are the indices
    of their storages in the order of first use."""

    number: int
    storages: tuple[int, ...]

    def plain(self, some: Iterable[int]) -> frozenset[int]:
        """Storages by their place in that order, without those that other layers use."""
        return frozenset(self.storages.index(one) for one in some if one in self.storages)

    def named(self, places: Iterable[int]) -> frozenset[int]:
        """The storages at some places: the other way round."""
        return frozenset(self.storages[place] for place in places)

    def plain_group(self, group: Group) -> Group:
        """A group of these layers, with its storages by their places."""
        return replace(group, held=self.plain(group.held), kept=self.plain(group.kept))


class AlikeLayers:
    """The layers of a mapped region, some at a time, as `known` numbers those that are alike."""

    def __init__(self, mapped: MappedGraph, known: Known) -> None:
        self._mapping, self._of, self._known = mapped.mapping, mapped.storages.of, known
        self._found: dict[tuple[int, int], LayersInPlace] = {}

    def span(self, start: int, stop: int) -> LayersInPlace:
        """The layers `start` to `stop` (not included)."""
        if (start, stop) not in self._found:
            self._found[start, stop] = self._placed(start, stop)
        return self._found[start, stop]

    def _placed(self, start: int, stop: int) -> LayersInPlace:
        names: dict[Storage, int] = {}
        parts: list[Hashable] = []
        for index, layer in enumerate(self._mapping.layers[start:stop], start):
            tensors = [self._of[tensor] for tensor in (*layer.inputs, layer.ofm)]
            for one in tensors:
                if one not in names:
                    names[one] = len(names)
                    parts.append(_lies(one, stop))
            together = index in self._mapping.rows.layers
            parts.append((layer_sizes(layer), together, *(names[one] for one in tensors)))
        numbers = self._known.numbers
        return LayersInPlace(numbers.setdefault(tuple(parts), len(numbers)), tuple(one.index for one in names))


def _lies(storage: Storage, stop: int) -> Hashable:
    """What copies of a storage depend on, where layers before `stop` use it."""
    if storage.joined or storage.in_boxes or storage.parts or storage.places or storage.lent:
        return storage  # not alike any other
    arguments = (storage.source, *storage.sinks)
    later = any(reader >= stop for reader in storage.readers)
    strides = tuple(None if one is None else (one.strides or True) for one in arguments)
    return storage.local_bytes, storage.extents, storage.swapped, storage.packing, storage.constant, strides, later
