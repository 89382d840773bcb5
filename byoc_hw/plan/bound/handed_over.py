"""What groups cannot hand over to each other in local memory, as it has no room for it.

A tensor that one group makes and another one reads is in local memory in full in both of them (`Group.held`), or it is
stored by the one that makes it, and loaded by the one that reads it. All jobs of a layer read its inputs, and write its
output: so of what a layer touches, no more tensors are there in full than there is room for, in whatever order jobs are
done. Layers that touch different tensors count each by themselves.

What is larger than local memory, and what the region stores anyway, counts elsewhere; so does what a layer does not
read all of.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from byoc_hw.graph import Graph
from byoc_hw.plan.bound.latency import has_jobs, reads_all
from byoc_hw.tensor import Tensor


class HandedOver:
    """Tensors of a region that have room in local memory, and the layers that touch too many of them at a time."""

    def __init__(self, graph: Graph, room: int) -> None:
        self._room, self._outputs = room, set(graph.outputs)
        self._made: dict[Tensor, int] = {}
        self._last: dict[Tensor, int] = {}  # the last layer that reads all of a tensor
        self._touched: dict[int, list[Tensor]] = {}
        for at, layer in enumerate(graph.layers):
            if not has_jobs(layer):
                continue
            read = [one for one in dict.fromkeys(layer.inputs) if one in self._made] if reads_all(layer) else []
            self._last |= dict.fromkeys(read, at)
            if layer.ofm.nbytes <= room:
                self._made[layer.ofm] = at
                read.append(layer.ofm)
            if sum(tensor.nbytes for tensor in read) > room:
                self._touched[at] = read

    def __bool__(self) -> bool:
        """Whether any layer touches more than there is room for."""
        return bool(self._touched)

    def copied(self, first: int, stop: int) -> int:
        """The bytes that a group of layers `first` to `stop` (not included) loads and stores at least."""
        found, counted = 0, set[Tensor]()
        for at, touched in self._touched.items():
            if first <= at < stop:
                across = [tensor for tensor in touched if self._across(tensor, first, stop)]
                if counted.isdisjoint(across):
                    found += self._beyond(across)
                    counted.update(across)
        return found

    def _across(self, tensor: Tensor, first: int, stop: int) -> bool:
        """Whether another group makes what is read here, or reads what is made here and is no output."""
        made = self._made[tensor]
        return made < first or (self._last.get(tensor, made) >= stop and tensor not in self._outputs)

    def _beyond(self, tensors: Sequence[Tensor]) -> int:
        """The fewest bytes of tensors without which the others have room."""
        sizes = [tensor.nbytes for tensor in tensors]
        total = sum(sizes)
        some = (sum(chosen) for many in range(len(sizes) + 1) for chosen in combinations(sizes, many))
        return min(size for size in some if total - size <= self._room)
