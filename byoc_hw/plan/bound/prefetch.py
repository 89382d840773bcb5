"""Weights come no further ahead of the array than weight memory has room for.

Weights are finished when no later job uses them: the array is done with them at every place of the output. By then all
that these places read is made, in the channel of the input that the weights belong to, and all that it was made of. At
any time, weights that are not finished are in weight memory, or are loaded later.

Let k be the last layer of which some weights are finished at a time t. Layers that are needed in full for that are
done. Those that are needed channel by channel are done in as large a part as k. Of the layers before k that it does not
need, as those beside a shortcut, let j be the last one of which some weights are finished, if there is one: what it
needs is done as well, and nothing is finished of those between j and k that k does not need. In what is left of t the
array finishes the weights that take the fewest cycles a byte, of k, j, what they need, and the layers before j. All
other weights are in weight memory, or are loaded after t: those of the layers behind k in a copy each at least. The k
and j with the least to load bound all plans, at every t. For j that is one of the last few, or any before these, of
which it is not asked what they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Weighted
from byoc_hw.plan.array.kinds import parts_of_kernel
from byoc_hw.plan.bound.needs import Need, all_of, read
from byoc_hw.plan.bound.ways import Floats, weight_bytes
from byoc_hw.plan.bound.weight_copies import copies_behind
from byoc_hw.plan.bound.windows import evenly_spread
from byoc_hw.tensor import Tensor

Flags = npt.NDArray[np.bool_]

_LAYERS = 12
"""The layers before one that are looked at for what it needs in part."""

_BESIDE = 2
"""The last layers that one does not need, which are looked at for what they need themselves."""

_TIMES = 64
"""The most times that are tried."""


def loaded_after_work(graph: Graph, one: Accelerator, least: Sequence[float], partly: Sequence[float]) -> float:
    """Cycles from the first job to the last one that no plan on one accelerator goes below.

    `least` has the cycles of the array for each layer, and `partly` those of which each part of a layer's channels
    takes its share.
    """
    sizes = np.array([weight_bytes(layer) for layer in graph.layers])
    if not sizes.any():
        return 0.0
    curves = _curves(graph, one, sizes, np.array(least), np.array(partly))
    beyond = (sizes.sum() - one.weight_memory) / one.dma_width
    found = 0.0
    for time in evenly_spread(np.concatenate([curve.cycles for curve in curves]), _TIMES):
        begun = [curve for curve in curves if curve.cycles[0] < time]
        left = [beyond - curve.finished(time) / one.dma_width + curve.later for curve in begun]
        found = max(found, time + min([beyond, *left]))
    return float(found)


@dataclass(frozen=True)
class _Curve:
    """The most bytes of weights that are finished within some cycles, if those of one layer are among them, in part,
    and none of later layers: corners of a concave line. `later` are cycles that the DMA needs beside their bytes."""

    cycles: Floats
    nbytes: Floats
    later: float

    def finished(self, cycles: float) -> float:
        return float(np.interp(cycles, self.cycles, self.nbytes))


def _curves(graph: Graph, one: Accelerator, sizes: Floats, least: Floats, partly: Floats) -> list[_Curve]:
    """A curve for each layer with weights, and for each of the last ones that it does not need, if weights of that are
    finished as well, but none between them."""
    found, behind, needed = list[_Curve](), copies_behind(graph.layers, one), _needed(graph, one)
    for index, (full, linked) in enumerate(needed):
        if not sizes[index]:
            continue
        later = behind[index].setups(there=one.weight_memory)
        beside = [other for other in range(index) if sizes[other] and not full[other] and not linked[other]]
        for some in range(len(beside) - 1, max(len(beside) - _BESIDE, 0) - 1, -1):
            both = [(index, linked), (beside[some], needed[beside[some]][1])]
            corners = _corners(both, full | needed[beside[some]][0], beside[:some], sizes, least, partly)
            found.append(_Curve(corners[:, 0], corners[:, 1], later))
        corners = _corners([(index, linked)], full, beside[: max(len(beside) - _BESIDE, 0)], sizes, least, partly)
        found.append(_Curve(corners[:, 0], corners[:, 1], later))
    return found


def _corners(
    ends: Sequence[tuple[int, Flags]],
    full: Flags,
    others: Sequence[int],
    sizes: Floats,
    least: Floats,
    partly: Floats,
) -> Floats:
    """Cycles, and bytes of weights that are finished: of the layers `full`, then of the `ends`, with those that these
    need in part, and of `others`, of which it is not known what they need, the fewest cycles a byte first."""
    single, items, taken = list[int](), list[tuple[float, float]](), full.copy()
    for index, linked in ends:
        if taken[index]:
            continue
        among = [one for one in range(index) if linked[one] and not taken[one]]
        taken[[index, *among]] = True
        together = [index, *among]
        for other in sorted((one for one in among if sizes[one]), key=lambda one: partly[one] / sizes[one]):
            if partly[other] * sizes[together].sum() < partly[together].sum() * sizes[other]:
                together.remove(other)
                single.append(other)
        items.append((partly[together].sum(), sizes[together].sum()))
    single += [one for one in others if not taken[one]]
    items += [(partly[one], sizes[one]) for one in single]
    items.sort(key=lambda item: item[0] / item[1])
    return np.asarray(np.cumsum([(least[full].sum(), sizes[full].sum()), *items], axis=0))


def _needed(graph: Graph, one: Accelerator) -> list[tuple[Flags, Flags]]:
    """For each layer which other ones are needed in full before any of its weights are finished, and which ones in as
    large a part of their channels as of its weights are finished."""
    full: list[Flags] = []  # of each layer: itself, and what its whole output needs in full
    found: list[tuple[Flags, Flags]] = []
    for index, layer in enumerate(graph.layers):
        whole = all_of(layer.ofm)
        channel = replace(whole, channels=1)
        full.append(_before(graph, full, {tensor: read(layer, whole, tensor) for tensor in layer.inputs})[0])
        full[-1][index] = True
        seen: dict[Tensor, Need | None] = {}
        if isinstance(layer, Weighted) and len(parts_of_kernel(layer, one)) == 1:
            seen = {tensor: _channel(read(layer, channel, tensor)) for tensor in layer.inputs}
        found.append(_before(graph, full[:index], seen))
    return found


def _channel(need: Need | None) -> Need | None:
    """One channel of what is needed: weights are those of one channel of the input."""
    return None if need is None else replace(need, channels=1)


def _before(graph: Graph, full: Sequence[Flags], needs: dict[Tensor, Need | None]) -> tuple[Flags, Flags]:
    """Which of the first layers are needed in full, where so much of tensors is needed, and which in one channel."""
    found, linked = (np.zeros(len(graph.layers), np.bool_) for _ in range(2))
    for reader in range(len(full) - 1, -1, -1):
        layer = graph.layers[reader]
        need = needs.get(layer.ofm)
        if need is None:
            continue
        if need.all:
            found |= full[reader]
        elif len(full) - reader <= _LAYERS:
            linked[reader] = need.least == (*need.extents[:2], 1)
            for tensor in layer.inputs:
                more, known = read(layer, need, tensor), needs.get(tensor)
                if more is not None and (known is None or known.elements < more.elements):
                    needs[tensor] = more
    return found, linked
