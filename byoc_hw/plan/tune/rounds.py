"""Tunes one region: tries all choices of a small space; in a large one, in rounds, choices near the best.

A round draws a batch of choices from the seed, its number and the results of earlier rounds, and has them
evaluated. So the outcome does not depend on where, or by how many workers, they are evaluated.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from math import inf
from random import Random
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.search.within import Room
from byoc_hw.plan.stages import lay_out
from byoc_hw.plan.steps import SCRATCH
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.tensor import Tensor

BATCH = 16
"""Plans per round: constant, so that the outcome does not depend on the number of workers."""

KEPT = 4
"""The number of best plans that a round starts from."""

LARGEST = 4
"""A plan with more than this many times the operations of the planner's own is rejected without timing."""

_NEAR = 1.06
"""Operations are cut finely in plans that take up to so many times the cycles that the best one takes without."""

PATIENCE = 40
"""Rounds without a better plan before the search restarts."""


class Score(NamedTuple):
    """The score of a plan: accelerator cycles, then copies and jobs, then bytes of main memory."""

    cycles: int
    operations: int
    main_memory: int


@dataclass(frozen=True)
class TunedRegion:
    """The best choices that were found for a region. `fingerprint` identifies it, `name` is its symbol in the model.

    `before` are the accelerator cycles of the planner's own choices, `after` those of `choices`.
    `evaluations` plans were tried; with `exact` these are all plans of the space.
    """

    name: str
    fingerprint: str
    layers: int
    choices: Choices
    before: int
    after: int
    evaluations: int
    exact: bool


class SearchInterrupted(KeyboardInterrupt):
    """The search for a region's plan was interrupted; `found` is the best so far."""

    def __init__(self, found: TunedRegion) -> None:
        super().__init__(f"{found.name}: interrupted after {found.evaluations} plans")
        self.found = found


# ---------------------------------------------------------------- the same region again


def fingerprint(graph: Graph) -> str:
    """Equal for graphs that have the same plans: by layers, shapes and connections, whatever names and weights."""
    number: dict[Tensor, int] = {}
    for tensor in (*graph.inputs, *(t for layer in graph.layers for t in (*layer.inputs, layer.ofm)), *graph.outputs):
        number.setdefault(tensor, len(number))
    plain = {
        "tensors": [[list(tensor.shape), tensor.nbytes, tensor.data is not None] for tensor in number],
        "inputs": [number[tensor] for tensor in graph.inputs],
        "outputs": [number[tensor] for tensor in graph.outputs],
        "layers": [[*_geometry(layer), *(number[t] for t in (*layer.inputs, layer.ofm))] for layer in graph.layers],
    }
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def _geometry(layer: Layer) -> list[object]:
    """The fields of a layer that its plan depends on, besides its tensors."""
    names = ("kernel", "strides", "padding", "dilation", "axes")
    weights = getattr(layer, "weights", None)
    shape = None if weights is None else [list(weights.shape), weights.bits]
    moved = [getattr(layer, name) for name in _MOVED if hasattr(layer, name)]
    whole_pixels = ["by channel"] if getattr(layer, "by_channel", False) else []
    return [layer.kind, *(list(getattr(layer, name, ())) for name in names), shape, *moved, *whole_pixels]


_MOVED = ("axis", "begin", "steps", "before", "rows", "columns")
"""The fields of layers that only move bytes."""


# ---------------------------------------------------------------- one plan


def evaluated(problem: bytes, choices: Choices, most: float = inf, near: float | None = None) -> Score | None:
    """The score of choices; None where they do not fit memory or have more than `most` operations. Operations are cut
    finely in plans alone that take up to `near` cycles otherwise.

    Can run in another process.
    """
    space, room = _opened(problem)
    mapped = space.groups_of(choices).mapped
    try:
        layout = lay_out(mapped, replace(choices, fine=choices.fine and near is None), exact=True, most=most)
        if choices.fine and near is not None and layout.cycles <= near:
            layout = lay_out(mapped, choices, exact=True, most=most)
    except PlanError:
        return None
    memory = sum(storage.nbytes for storage, home in layout.work.homes.items() if home.address.space == SCRATCH)
    constants = 0 if space.accelerator.dma_reads_flash else layout.flash.nbytes
    fits = memory + constants <= space.accelerator.ram if room is None else room.holds(layout)
    return Score(layout.cycles, len(layout.work.ops), memory) if fits else None


def packed(graph: Graph, accelerator: Accelerator, room: Room | None = None) -> bytes:
    """A region for `evaluated`, with the limits of its plans, and without the data that plans do not depend on:
    small enough to send with each task."""
    return pickle.dumps((_without_data(graph), replace(accelerator, limits=dict(accelerator.limits)), room))


@lru_cache(maxsize=4)
def _opened(problem: bytes) -> tuple[SearchSpace, Room | None]:
    graph, accelerator, room = pickle.loads(problem)
    return SearchSpace(graph, accelerator), room


def _without_data(graph: Graph) -> Graph:
    bare: dict[Tensor, Tensor] = {}

    def strip(tensor: Tensor) -> Tensor:
        known = tensor.quantization if tensor.data is None else None  # what lies around packed rows
        return bare.setdefault(tensor, replace(tensor, name=str(len(bare)), quantization=known, data=None))

    return Graph(
        graph.name,
        tuple(map(strip, graph.inputs)),
        tuple(map(strip, graph.outputs)),
        tuple(replace(layer.with_tensors(strip), source=()) for layer in graph.layers),
    )


# ---------------------------------------------------------------- many plans

Found = tuple[Score, Choices]

Watch = Callable[[int, Score, Score], None]
"""Called after each round with the plans tried, the score of the planner's own, and the best so far."""


def tune_region(
    graph: Graph,
    accelerator: Accelerator,
    *,
    budget: int,
    seed: int = 0,
    executor: Executor | None = None,
    room: Room | None = None,
    watch: Watch = lambda evaluations, before, best: None,
) -> TunedRegion:
    """Try up to `budget` plans of a region besides the planner's own, and keep the best of all that `room` holds.

    Raises `PlanError` where the planner has none, `SearchInterrupted` for a `KeyboardInterrupt` once it has one.
    """
    search = _Search(graph, accelerator, budget, seed, executor, room, watch)
    try:
        exact = search.all_there_are()
        if not exact:
            search.near_the_best()
    except KeyboardInterrupt as error:
        raise SearchInterrupted(_found(search, graph, exact=False)) from error
    return _found(search, graph, exact)


def _found(search: _Search, graph: Graph, exact: bool) -> TunedRegion:
    score, choices = search.best
    before, tried = search.before.cycles, search.evaluations
    return TunedRegion(graph.name, search.mark, len(graph.layers), choices, before, score.cycles, tried, exact)


class _Search:
    def __init__(
        self,
        graph: Graph,
        accelerator: Accelerator,
        budget: int,
        seed: int,
        executor: Executor | None,
        room: Room | None,
        watch: Watch,
    ) -> None:
        self.space = SearchSpace(graph, accelerator)
        self.mark = fingerprint(graph)
        self.budget, self.seed, self.watch = budget, seed, watch
        self.score = partial(evaluated, packed(graph, accelerator, room))
        self.map = map if executor is None else executor.map
        fitting = None if room is None else room.choices
        own = known_layout(graph, accelerator).choices if fitting is None else fitting
        start = self.space.canonical(own)
        before, score = self.score(own), self.score(start)
        if before is None or score is None:
            raise PlanError(f"{graph.name}: the tuning space of {accelerator.label} leaves no room for a plan")
        whole = self.score(replace(own, fine=False)) if own.fine else before
        self.near: float | None = _NEAR * (whole or before).cycles / max(before.cycles, 1)
        self.score = partial(self.score, most=LARGEST * before.operations)
        self.before = before
        self.best: Found = score, start
        self.tried = {start}
        self.evaluations = 0

    def all_there_are(self) -> bool:
        """Try all choices if the budget is enough for them. Returns whether it is."""
        if self.space.at_least() > self.budget:
            return False
        found = {self.best[1]: None}
        for looked_at, choices in enumerate(self.space.everything()):
            found[choices] = None
            if len(found) > self.budget + 1 or looked_at > 20 * self.budget:  # some come several times
                return False
        self.near = None  # each is cut finely
        waiting = list(found)[1:]
        while waiting:
            self._try(waiting[:BATCH])
            waiting = waiting[BATCH:]
        return True

    def near_the_best(self) -> None:
        """Rounds of choices a few steps from the best ones, until the budget is spent."""
        kept, since = [self.best], 0
        for number in count():
            random = Random(f"{self.seed} {self.mark} {number}")
            batch = self._near(kept, random)
            if self.evaluations >= self.budget or not batch:
                return
            before = self.best[0]
            kept = _best([*self._try(batch), *kept])
            since = 0 if self.best[0] < before else since + 1
            if since == PATIENCE:
                kept, since = [random.choice(kept)], 0

    def _near(self, kept: Sequence[Found], random: Random) -> list[Choices]:
        """New choices: usually one move from the best or another kept plan, sometimes several moves."""
        found: dict[Choices, None] = {}
        for _ in range(20 * BATCH):
            _, choices = kept[min(int(random.expovariate(0.5)), len(kept) - 1)]
            for _ in range(1 + min(int(random.expovariate(1.0)), 4)):
                choices = step(self.space, choices, random)
            if choices not in self.tried:
                found[choices] = None
            if len(found) == BATCH:
                break
        return list(found)

    def _try(self, batch: Sequence[Choices]) -> list[Found]:
        """The plans of a batch that are possible, within the budget, newest first."""
        batch = [choices for choices in batch if choices not in self.tried][: self.budget - self.evaluations]
        near = None if self.near is None else self.near * self.best[0].cycles
        scores = self.map(partial(self.score, near=near), batch)
        found = [(score, choices) for score, choices in zip(scores, batch, strict=True) if score is not None]
        self.tried.update(batch)
        self.evaluations += len(batch)
        self.best = min([self.best, *found], key=lambda item: item[0])
        self.watch(self.evaluations, self.before, self.best[0])
        return found[::-1]


def _best(found: Sequence[Found]) -> list[Found]:
    """The best plans in order; of plans with the same score, the first one, which is the newest."""
    distinct: dict[Score, Found] = {}
    for item in found:
        distinct.setdefault(item[0], item)
    return [distinct[score] for score in sorted(distinct)[:KEPT]]
