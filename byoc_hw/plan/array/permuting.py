"""The copies that reorder a tensor by way of local memory: the loads do a part of it, and the stores the rest.

A copy has rows of bytes that lie equally far apart on either side, so what moves three dimensions takes a copy for each
index of one of them. In local memory the dimensions may lie in any order. With a good one, loads and stores together
take fewer cycles than loads in the input's order and stores that do all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Transpose
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.transfers import Permutation, Strided, canonical, dense_strides, merged

_MOST_DIMENSIONS = 6
"""The most dimensions of which all orders are tried; of more, those of the input and of the output."""


class PermutingCopies(NamedTuple):
    """The copies of a slab of a tensor into local memory and out of it, from its first element on either side."""

    loads: Strided
    stores: Strided

    def cycles(self, accelerator: Accelerator, targets: int = 1) -> int:
        """Of the DMA, if the slab is stored to so many targets."""
        loads, stores = (one.copies * copy_cycles(one.nbytes, one.rows, accelerator) for one in self)
        return loads + targets * stores


@lru_cache(maxsize=1024)
def permuting_copies(
    permutation: Permutation, extents: tuple[int, ...], accelerator: Accelerator, targets: int = 1
) -> PermutingCopies:
    """The copies with the fewest cycles for a slab with these extents, which is stored to so many targets. Where no
    order keeps the DMA's alignment, those in the input's order."""
    ways = [_by_way_of(order, permutation, extents) for order in _orders(permutation)]
    aligned = [way for way in ways if all(one.keeps(accelerator.dma_alignment) for one in way)]
    return min(aligned or ways[:1], key=lambda way: way.cycles(accelerator, targets))


def reordered_bytes(layer: Transpose) -> Permutation:
    """The bytes that a transposition reorders, in the fewest dimensions."""
    return canonical(layer.ifm.shape, layer.axes, layer.ifm.bytes_of(1))


def transposing_cycles(layer: Transpose, accelerator: Accelerator, *, parted: bool) -> int:
    """Cycles of the DMA for all copies of a transposition, in one slab. If it is not `parted`, stores do all."""
    permutation = reordered_bytes(layer)
    if parted:
        return permuting_copies(permutation, permutation.shape, accelerator).cycles(accelerator)
    return _by_way_of(range(len(permutation.shape)), permutation, permutation.shape).cycles(accelerator)


def outermost_kept(layer: Layer) -> int:
    """How many parts of a tensor lie one after the other on both sides of a transposition; 1 for any other layer."""
    if not isinstance(layer, Transpose):
        return 1
    permutation = reordered_bytes(layer)
    return permutation.shape[0] if permutation.axes[0] == 0 else 1


def _orders(permutation: Permutation) -> Iterator[Sequence[int]]:
    """Orders of the dimensions in local memory, that of the input first."""
    every = range(len(permutation.shape))
    yield from permutations(every) if len(every) <= _MOST_DIMENSIONS else (every, permutation.axes)


def _by_way_of(order: Sequence[int], permutation: Permutation, extents: tuple[int, ...]) -> PermutingCopies:
    """The copies of a slab that lies dense in local memory, its dimensions in an order."""
    strides = dict(zip(order, dense_strides(tuple(extents[one] for one in order)), strict=True))
    sides = (
        (range(len(extents)), dense_strides(permutation.shape)),
        (permutation.axes, permutation.output_strides),
    )
    return PermutingCopies(*(merged((extents[one], main[one], strides[one]) for one in along) for along, main in sides))
