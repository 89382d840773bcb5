"""Layers that share tensors, directly or by way of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_hw.tensor import Tensor


def connected(layers: Sequence[Iterable[Tensor]]) -> tuple[int, ...]:
    """The component of each layer, numbered in order, from the tensors of each: those that share one share it."""
    leader: dict[Tensor, int] = {}
    parent = list(range(len(layers)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for index, tensors in enumerate(layers):
        for tensor in tensors:
            one, other = sorted((root(leader.setdefault(tensor, index)), root(index)))
            parent[other] = one
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(root(index), len(numbers)) for index in range(len(layers)))
