"""Bytes that go to main memory and back in all plans.

A layer may need all of a tensor before its first job, and read the tensor after that, as the product at the end of
squeeze and excitation does. All such tensors lie in local memory then, or in main memory: those of an earlier layer
were stored, those of the region's input have been loaded, and what local memory has no room for is loaded again.

Left out are tensors that stripes from the first layer to the last need in part, however many rows that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from byoc_hw.graph import Graph, Whole
from byoc_hw.plan.bound.latency import reads_all
from byoc_hw.plan.bound.needs import needed_before
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Spill:
    """Bytes of some tensors that are loaded again, after `stored` of them were stored that are no output."""

    loaded: int
    stored: int


def spills(graph: Graph, chip: Soc) -> Iterator[Spill]:
    """The spills of a region on one accelerator that no order of its layers avoids."""
    if len(chip.accelerators) > 1 or chip.accelerators[0].library is not None:
        return  # several may compute the same, and a library copies nothing
    room = chip.accelerators[0].activation_memory
    counted: set[Tensor] = set()
    for index, layer in enumerate(graph.layers):
        if isinstance(layer, Whole) or sum(tensor.nbytes for tensor in layer.inputs) <= room:
            continue
        live = [one for one in _live(graph, index, chip) if one not in counted]
        beyond = sum(tensor.nbytes for tensor in live) - room
        if beyond > 0:
            counted.update(live)
            free = sum(one.nbytes for one in live if one in graph.inputs or one in graph.outputs)
            yield Spill(beyond, max(beyond - free, 0))


def _live(graph: Graph, index: int, chip: Soc) -> Iterator[Tensor]:
    """Tensors of which a layer needs all before its first job, and which it reads all of."""
    layer = graph.layers[index]
    if reads_all(layer):
        needed = needed_before(graph, index, chip, whole=False)
        for tensor in dict.fromkeys(layer.inputs):
            if tensor in needed and needed[tensor][1].all:
                yield tensor
