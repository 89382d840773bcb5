"""A lower bound for regions that begin with constants in local memory, which the region in front has copied.

Whatever constants are in the local memories: copies in front of the region bring them there, too. With these it is a
plan that begins from nothing, so it takes at least the bound of the region by itself, less the cycles of the copies.
One copy for each local memory is enough, as constants lie in flash as the plan wants, and one more for zero points.
And no plan takes fewer cycles than with a DMA that copies anything in a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.bound.prices import cycles_bound, known_bound
from byoc_hw.plan.bound.ways import weight_bytes

_ANY_WIDTH = 1 << 30
_MEMORIES = 2


def bound_of_begun(graph: Graph, one: Accelerator, copied: Sequence[int]) -> int:
    """Cycles that no plan of a region goes below that begins with constants in local memory. `copied` are the cycles of
    copies that bring them."""
    at_once = replace(one, dma_width=_ANY_WIDTH, dma_setup=0, dma_row_setup=0)
    return max(known_bound(graph, one) - sum(copied), cycles_bound(graph, at_once) - _MEMORIES, 0)


def bound_of_inference(graphs: Sequence[Graph], one: Accelerator) -> int:
    """Cycles that no plans of the regions of an inference go below together, whatever they copy for each other."""
    if len(graphs) < 2:
        return sum(known_bound(graph, one) for graph in graphs)
    begun = [bound_of_begun(graph, one, _most_copied(graph, one)) for graph in graphs]
    alone = [known_bound(graph, one) for graph in graphs]
    return sum(begun) + min(first - later for first, later in zip(alone, begun, strict=True))


def _most_copied(graph: Graph, one: Accelerator) -> list[int]:
    """Cycles of copies that bring as many constants as can be there. Zero points have one more: the bound of a region
    counts two copies for those around packed images and between their rows."""
    weights = min(ceil(sum(map(weight_bytes, graph.layers))), one.weight_memory)
    sizes = (weights, one.activation_memory, one.packed_rows and 1)
    return [copy_cycles(nbytes, 1, one) for nbytes in sizes if nbytes]
