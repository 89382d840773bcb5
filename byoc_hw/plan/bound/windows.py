"""Raises the earliest beginning of layers: what they need has to be computed between earlier beginnings and theirs, and
loaded before.

Any job of a layer needs some of what earlier layers make (`needs.py`): the same amount, wherever it lies. All of it is
computed before the job begins, and after the first jobs of these layers can begin; from the last of them to the job
there are the shortest ways by single jobs and copies. In between, the arrays share the work. What they can share in a
time is bounded with prices of their cycles that add up to 1: the work costs at least what it costs where it is
cheapest; but the largest layer with whole groups is shared in one of the ways that there are, at all prices. The sets
of layers that are tried are those that begin late, and are far from the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import ceil, comb

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Weighted, Whole
from byoc_hw.plan.array.window import Extents
from byoc_hw.plan.bound.needs import Need, Needed, needed_before
from byoc_hw.plan.bound.ways import Floats, LayerWork, weight_bytes
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_PRICES = 40
"""The most prices of all arrays that are tried."""

_TIMES = 5
"""The most times of beginning, and of the way to the job, that tell sets of layers apart."""

_TIMES_OF_ALL = 32
"""The most times of beginning that tell sets of all layers apart."""


@dataclass(frozen=True)
class AtOnce:
    """What comes in one copy each: some of the region's inputs, and weights of so many bytes, or 0 bytes."""

    inputs: tuple[Tensor, ...] = ()
    weights: float = 0.0


def loading(graph: Graph, one: Accelerator, before: Needed, weights: float, at_once: AtOnce = AtOnce()) -> float:
    """The least cycles of the copies of so many bytes of weights, and of what makes the tensors `before`: of each input
    a part, and the weights of all layers in one copy."""
    least = 0.0
    for tensor, (_, need) in before.items():
        made = graph.layers[graph.made[tensor]] if tensor in graph.made else None
        if made is None:
            nbytes = tensor.nbytes if tensor in at_once.inputs else tensor.bytes_of(need.elements)
            least += one.dma_setup + nbytes / one.dma_width
        elif isinstance(made, Weighted):
            weights += weight_bytes(made) * need.channels / made.out_channels
    return least + (one.dma_setup + max(weights, at_once.weights) / one.dma_width if weights else 0.0)


Copied = Callable[[int, int, int, int], float]
"""Cycles of the copies between two layers on two lanes: the layer, its lane, the reader, its lane."""


class Windows:
    """Layers are raised in their order: `starts` has the earliest beginning of those so far, by lane. `jobs` has the
    least cycles of a job of each layer on each lane."""

    def __init__(
        self, graph: Graph, chip: Soc, works: Sequence[LayerWork], jobs: Sequence[Mapping[int, float]], copied: Copied
    ) -> None:
        self._graph, self._chip, self._works, self._jobs, self._copied = graph, chip, works, jobs, copied
        self._prices = _prices(len(chip.accelerators))
        self._costs: dict[tuple[int, Extents], tuple[Floats, bool]] = {}
        self.starts: list[dict[int, float]] = []

    def raised(self, starts: Mapping[int, float]) -> dict[int, float]:
        """The earliest beginning of the next layer, where it is known to be no earlier than at `starts`."""
        index, found = len(self.starts), dict(starts)
        layer = self._graph.layers[index]
        whole = {lane: self._chip.accelerators[lane].runs_whole(layer) or isinstance(layer, Whole) for lane in starts}
        for at_once in sorted(set(whole.values())):
            before = needed_before(self._graph, index, self._chip, whole=at_once)
            made = self._graph.made
            needs = {made[tensor]: need for tensor, need in before.items() if tensor in made}
            for lane in starts:
                if whole[lane] is at_once:
                    known = max(found[lane], self._loaded(index, before))
                    found[lane] = self._raised(index, lane, needs, known) if needs else known
        self.starts.append(found)
        return found

    def _loaded(self, index: int, before: Needed) -> float:
        """Cycles in which a DMA that is the only one loads what has to be there before the first job of a layer."""
        (one, *others), layers = self._chip.accelerators, self._graph.layers
        if others or one.library is not None or isinstance(layers[index], Whole):
            return 0.0
        weights = 1.0 if isinstance(layers[index], Weighted) else 0.0  # of its own something
        return loading(self._graph, one, before, weights)

    def end(self, behind: Sequence[Mapping[int, float]], known: float, counted: Sequence[bool]) -> float:
        """The earliest end of all layers that are `counted`, no earlier than is known; `behind` are the shortest ways
        to it."""
        every = {index: work.extents for index, work in enumerate(self._works) if counted[index]}
        return self._after(every, dict(enumerate(behind)), known, _TIMES_OF_ALL)

    def _raised(self, index: int, lane: int, needs: Mapping[int, tuple[int, Need]], known: float) -> float:
        """The earliest beginning of a layer on a lane."""
        return self._after(
            {one: need.least for one, (_, need) in needs.items()}, self._ways_to(index, lane, needs), known
        )

    def _after(
        self, needs: Mapping[int, Extents], ways: Mapping[int, Mapping[int, float]], known: float, many: int = _TIMES
    ) -> float:
        """The earliest time at which so many outputs of layers can have been computed, and these shortest ways gone."""
        worked = [one for one, outputs in needs.items() if self._costs_of(one, outputs)[0].any()]
        if not worked:
            return known
        costs = [self._costs_of(one, needs[one])[0] for one in worked]
        least = np.array([one.min(axis=0) for one in costs])
        whole = np.array([not self._costs_of(one, needs[one])[1] for one in worked])
        begin, left = (np.array([self._by_lane(times[one]) for one in worked]) for times in (self.starts, ways))
        first, last = begin.min(axis=1), left.min(axis=1)
        for begins, ends in product(evenly_spread(first, many), evenly_spread(last, _TIMES)):
            among = (first >= begins) & (last >= ends)
            if among.any():
                idle = np.minimum(begin[among].min(axis=0) + left[among].min(axis=0), known)
                work = least[among].sum(axis=0) + self._prices @ idle
                known = max(known, float(work.max()))
                if (among & whole).any():
                    largest = int(np.where(among & whole, least.sum(axis=1), -1.0).argmax())
                    known = max(known, float((costs[largest] + work - least[largest]).max(axis=1).min()))
        return known

    def _ways_to(self, index: int, lane: int, needs: Mapping[int, tuple[int, Need]]) -> dict[int, dict[int, float]]:
        """The shortest ways from the end of a job of each layer, by lane, to a job of a layer on a lane."""
        ways: dict[int, dict[int, float]] = {}
        for one in sorted(needs, reverse=True):
            reader, _ = needs[one]
            there = {lane: 0.0} if reader == index else ways[reader]
            jobs = {} if reader == index else self._jobs[reader]
            ways[one] = {
                its: min(self._copied(one, its, reader, other) + jobs.get(other, 0) + there[other] for other in there)
                for its in self._jobs[one]
            }
        return ways

    def _by_lane(self, times: Mapping[int, float]) -> list[float]:
        return [times.get(lane, np.inf) for lane in range(len(self._chip.accelerators))]

    def _costs_of(self, index: int, outputs: Extents) -> tuple[Floats, bool]:
        """What so many rows, columns and channels of a layer's output cost: a row for each way to share them, and a
        column for each price. And whether they may be shared in a mixture of these ways."""
        key = index, outputs
        if key not in self._costs:
            ways, mixed = self._works[index].ways_or_mixtures(outputs)
            self._costs[key] = ways @ self._prices.T, mixed
        return self._costs[key]


def evenly_spread(values: Floats, many: int) -> Floats:
    """So many of the values at most, evenly spread, from the smallest on."""
    found = np.unique(values)
    return found[:: ceil(len(found) / many)]


def _prices(lanes: int) -> Floats:
    """Prices of the arrays, evenly spread: rows that add up to 1."""
    parts = next(many for many in (16, 8, 4, 2, 1) if comb(many + lanes - 1, many) <= _PRICES or many == 1)
    chosen = combinations_with_replacement(range(lanes), parts)
    return np.array([np.bincount(one, minlength=lanes) / parts for one in chosen])
