"""Tensors between parts that share a block of main memory: one lies where parts before have read another one.

Each tensor has a block of its own at first, and lanes that run at the same time keep more of them than one after the
other would. In a shared block a copy that stores a tensor awaits the copies that load what lay in these bytes. Rows
follow each other in both, so hardly any copy waits long: the first rows of a tensor are stored where the first rows of
another one were, while the last rows of that are still to be read. In the order of the parts, no byte of a tensor is
touched behind the first touch of a later one that has the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.plan.lanes.compose import alignment_in_main_memory, main_memory
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.joint import InBlock, OrderedParts, PlacedPart, PlacesInBlocks, accesses_of_arguments, in_blocks
from byoc_hw.plan.search.within import Border
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_Group = tuple[Tensor, ...]
"""Tensors that share a block."""

_LARGEST = 5
"""The blocks, the largest ones of a moment, of which any two may become one."""

_TRIED = 3
"""The pairs of them that are tried."""

_MOST_ORDERED = 200_000
"""The copies and jobs that are ordered in all to find which tensors share blocks."""


class SharedBlocks:
    """Parts of a region, and the same with more and more tensors that share blocks, as far as it takes."""

    def __init__(self, region: Region, chip: Soc, ordered: OrderedParts, border: Border) -> None:
        self._region, self._chip, self._border = region, chip, border
        self._touched = touched_bytes(ordered.parts)
        self._known = [_Shared(region, chip, ordered, border)]  # with fewer and fewer blocks
        self._further = self._search()

    def within(self, ram: int) -> OrderedParts | None:
        """The fastest of those that have at most so many bytes of main memory; None where none have."""
        best: _Shared | None = None
        for one in self._every():
            if one.peak <= ram and (best is None or one.cycles < best.cycles):
                best = one
                if one.cycles <= self._known[0].cycles:
                    break
        return None if best is None else best.ordered

    def smallest(self) -> OrderedParts:
        """Those with the fewest bytes of main memory."""
        return min(self._every(), key=lambda one: one.peak).ordered

    def _every(self) -> Iterator[_Shared]:
        yield from self._known
        for one in self._further:
            self._known.append(one)
            yield one

    def _search(self) -> Iterator[_Shared]:
        """Two blocks of the moment with the most bytes become one: those that cost the fewest cycles."""
        best = first = self._known[0]
        left, unit = _MOST_ORDERED, alignment_in_main_memory(self._chip)
        while True:
            found: list[_Shared] = []
            for blocks in best.joined(self._touched, unit):
                left -= len(first.ordered.work.ops)
                if left < 0:
                    return
                ordered = in_blocks(first.ordered, self._chip, blocks)
                one = _Shared(self._region, self._chip, ordered, self._border)
                if one.size < best.size:
                    found.append(one)
            if not found:
                return
            best = min(found, key=lambda one: (one.cycles, one.size))
            yield best


class _Shared:
    """Parts with tensors that share blocks: their bytes of main memory at the `peak`, and their `size`, that with the
    number of moments that have as many, and the bytes of all moments."""

    def __init__(self, region: Region, chip: Soc, ordered: OrderedParts, border: Border) -> None:
        self.ordered = ordered
        memory, tensors = main_memory(region, chip, ordered)
        live = memory.live(border.inputs, border.outputs)
        self.peak = max(live, default=0)
        at = live.index(self.peak) if live else 0
        there = sorted((one for one in memory.scratch if one.first <= at <= one.last), key=lambda one: -one.nbytes)
        self._blocks = [(one.nbytes, tuple(tensors[one.name])) for one in there if one.name in tensors][:_LARGEST]
        self.size = self.peak, live.count(self.peak), sum(live)

    @property
    def cycles(self) -> int:
        """Cycles of the region."""
        return self.ordered.order.cycles

    def joined(self, touched: Mapping[Tensor, TouchedTensor], unit: int) -> Iterator[PlacesInBlocks]:
        """The places of tensors with two of the largest blocks joined, those that save the most bytes."""
        found = []
        for (nbytes, one), (other_nbytes, other) in combinations(self._blocks, 2):
            places = places_in_blocks([(*one, *other)], touched, unit)
            saved = nbytes + other_nbytes - max(place.offset + tensor.nbytes for tensor, place in places.items())
            if saved > 0:
                found.append((saved, places))
        for _, places in sorted(found, key=lambda one: -one[0])[:_TRIED]:
            yield {**self.ordered.blocks, **places}


def with_shared_blocks(found: OrderedParts, chip: Soc, groups: Sequence[_Group]) -> OrderedParts:
    """The same parts, in which tensors of each group share a block: those that are in main memory."""
    if not groups:
        return found
    touched = touched_bytes(found.parts)
    there = [tuple(tensor for tensor in group if tensor in touched) for group in groups]
    places = places_in_blocks(filter(None, there), touched, alignment_in_main_memory(chip))
    return in_blocks(found, chip, places)


def layers_of_blocks(blocks: PlacesInBlocks, region: Region) -> tuple[tuple[int, ...], ...]:
    """The layers, by index, whose outputs share each block."""
    found: dict[Tensor, list[int]] = {}
    for tensor, place in blocks.items():
        found.setdefault(place.block, []).append(region.made[tensor])
    return tuple(sorted(tuple(sorted(some)) for some in found.values()))


def tensors_of_blocks(blocks: Sequence[Sequence[int]], region: Region) -> list[_Group]:
    """What the layers of each block make. Raises `PlanError` for layers that a region does not have, or more than once
    in all, and for those that make its outputs."""
    every = [index for block in blocks for index in block]
    inside = [index for index, layer in enumerate(region.graph.layers) if layer.ofm not in region.arguments]
    if len({*every}) < len(every) or not {*every} <= {*inside}:
        rule = f"blocks have outputs of layers that are no outputs of the region, each once, of {inside}"
        raise PlanError(f"{region.graph.name}: {rule}: got {every}")
    return [tuple(region.graph.layers[index].ofm for index in block) for block in blocks]


# ---------------------------------------------------------------- places in a block


class TouchedTensor:
    """The bytes of a tensor in main memory that operations touch: their numbers in the order of the parts, and for each
    the first byte and the one behind the last; `low` and `high` are the same of all operations from one on."""

    def __init__(self, found: Sequence[tuple[int, int, int]]) -> None:
        self.ops, self.start, self.stop = np.array(found, np.int64).T
        self.low: NDArray[np.int64] = np.minimum.accumulate(self.start[::-1])[::-1]
        self.high: NDArray[np.int64] = np.maximum.accumulate(self.stop[::-1])[::-1]

    def before(self, later: TouchedTensor) -> tuple[int, int] | None:
        """How far above another tensor this one begins at least, or how far the other one above it, so that no byte is
        touched as this tensor's behind a touch as the other's; None where it is never touched behind one."""
        first = np.searchsorted(self.ops, later.ops)
        again = first < len(self.ops)
        if not again.any():
            return None
        above = (later.stop[again] - self.low[first[again]]).max()
        below = (self.high[first[again]] - later.start[again]).max()
        return int(above), int(below)


def touched_bytes(parts: Sequence[PlacedPart]) -> dict[Tensor, TouchedTensor]:
    """What parts touch of each tensor in main memory."""
    found: dict[Tensor, list[tuple[int, int, int]]] = {}
    every = ((part, op) for part in parts for op in part.layout.work.ops)
    for number, (part, op) in enumerate(every):
        for argument, access in accesses_of_arguments(part, op):
            tensor, start = part.part.arguments[argument]
            found.setdefault(tensor, []).append((number, start + access.start, start + access.stop))
    return {tensor: TouchedTensor(some) for tensor, some in found.items()}


def places_in_blocks(groups: Iterable[_Group], touched: Mapping[Tensor, TouchedTensor], unit: int) -> PlacesInBlocks:
    """Where the tensors of each group lie in the block that they share, at multiples of `unit`, so that it is small."""
    found: dict[Tensor, InBlock] = {}
    for group in groups:
        places: dict[Tensor, int] = {}
        for tensor in sorted(group, key=lambda one: int(touched[one].ops[0])):
            places[tensor] = _place(tensor, places, touched, unit)
        lowest = min(places.values())
        found |= {tensor: InBlock(group[0], place - lowest) for tensor, place in places.items()}
    return found


def _place(tensor: Tensor, places: dict[Tensor, int], touched: Mapping[Tensor, TouchedTensor], unit: int) -> int:
    """A place of a tensor beside those that have one, which are touched first."""
    limits = []
    for other, place in places.items():
        distances = touched[other].before(touched[tensor])
        if distances is not None:
            above, below = distances
            limits.append((place - round_up(above, unit), place + round_up(below, unit)))
    first = min(places.values(), default=0)
    stop = max((place + one.nbytes for one, place in places.items()), default=0)
    tried = {first, *(limit for some in limits for limit in some)}
    possible = [one for one in tried if all(one <= most or one >= least for most, least in limits)]
    return min(possible, key=lambda one: (max(stop, one + tensor.nbytes) - min(first, one), one))
