"""Tunes one region: tries all choices of a small space; in a large one, in rounds, choices near the best.

A round draws a batch of choices from the seed, its number and the results of earlier rounds, and has them
evaluated. So the outcome does not depend on where, or by how many workers, they are evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.search.within import Room
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.plan.tune.scores import RegionScores, Score, evaluated, packed
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


@dataclass(frozen=True)
class TunedRegion:
    """The best choices that were found for a region. `fingerprint` identifies it, `name` is its symbol in the model.

    `before` are the accelerator cycles of the planner's own choices, `after` those of `choices`.
    `evaluations` plans were tried; with `exact` these are all plans of the space.
    """

    name: str
    fingerprint: str
    layers: int
    choices: Choices | ChipChoices
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


# ---------------------------------------------------------------- many plans

AnyChoices = TypeVar("AnyChoices", bound=Choices | ChipChoices)

Watch = Callable[[int, Score, Score], None]
"""Called after each round with the plans tried, the score of the planner's own, and the best so far."""


class ChoiceSpace(Protocol[AnyChoices]):
    """The choices of a region that a search goes through."""

    def start(self, own: AnyChoices) -> AnyChoices:
        """The choices that a search begins with, where the planner has its `own`."""

    def moved(self, choices: AnyChoices, random: Random) -> AnyChoices:
        """Choices after a random move; the same ones where it is impossible."""

    def at_least(self) -> float:
        """A cheap lower bound on the number of choices."""

    def everything(self) -> Iterator[AnyChoices]:
        """All choices, some of them several times."""


class _RegionSpace:
    """The choices of a region on one accelerator."""

    def __init__(self, graph: Graph, accelerator: Accelerator) -> None:
        self._space = SearchSpace(graph, accelerator)
        self.start, self.at_least, self.everything = self._space.canonical, self._space.at_least, self._space.everything

    def moved(self, choices: Choices, random: Random) -> Choices:
        return step(self._space, choices, random)


@dataclass(frozen=True)
class Search(Generic[AnyChoices]):
    """A search for better choices than the planner's `own` among those of a `space`.

    `scores` makes what gives choices scores: of a region, on `hardware`, within the limits of `room`.
    """

    graph: Graph
    hardware: Any
    scores: Callable[[Graph, Any, Room | None], Callable[..., Score | None]]
    space: ChoiceSpace[AnyChoices]
    own: AnyChoices
    room: Room | None

    def best(
        self,
        *,
        budget: int,
        seed: int = 0,
        executor: Executor | None = None,
        watch: Watch = lambda evaluations, before, best: None,
    ) -> TunedRegion:
        """Try up to `budget` plans besides the planner's own, in an order that `seed` gives, and keep the best of all
        that `room` holds. Their scores are worked out here, or by the workers of an `executor`.

        Raises `PlanError` where the planner's own does not fit, `SearchInterrupted` for a `KeyboardInterrupt` once it
        has a score, and `InvalidInput` for an executor, if the description of the hardware has functions that cannot be
        sent to its workers.
        """
        rounds = _Rounds(self, budget, seed, executor, watch)
        try:
            exact = rounds.all_there_are()
            if not exact:
                rounds.near_the_best()
        except KeyboardInterrupt as error:
            raise SearchInterrupted(self._found(rounds, exact=False)) from error
        return self._found(rounds, exact)

    def _found(self, rounds: _Rounds[AnyChoices], exact: bool) -> TunedRegion:
        score, choices = rounds.best
        before, tried = rounds.before.cycles, rounds.evaluations
        layers = len(self.graph.layers)
        return TunedRegion(self.graph.name, rounds.mark, layers, choices, before, score.cycles, tried, exact)


def region_search(graph: Graph, accelerator: Accelerator, room: Room | None = None) -> Search[Choices]:
    """The search for a region on one accelerator. Raises `PlanError` where the planner has no plan."""
    fitting = None if room is None else room.choices
    own = fitting if isinstance(fitting, Choices) else known_layout(graph, accelerator).choices
    return Search(graph, accelerator, RegionScores, _RegionSpace(graph, accelerator), own, room)


class _Rounds(Generic[AnyChoices]):
    """The rounds of a search: `best` so far, with its score, that of the planner's own `before`, and how many plans
    were tried."""

    def __init__(
        self, search: Search[AnyChoices], budget: int, seed: int, executor: Executor | None, watch: Watch
    ) -> None:
        self.space, self.mark = search.space, fingerprint(search.graph)
        self.budget, self.seed, self.watch = budget, seed, watch
        problem = search.graph, search.hardware, search.room
        if executor is None:
            self.map: Callable[..., Iterable[Score | None]] = map
            self.score: Callable[..., Score | None] = search.scores(*problem)
        else:
            self.map, self.score = executor.map, partial(evaluated, packed(search.scores, *problem))
        start = self.space.start(search.own)
        before, score = self.score(search.own), self.score(start)
        if before is None or score is None:
            raise PlanError(
                f"{search.graph.name}: the tuning space of {search.hardware.label} leaves no room for a plan"
            )
        whole = self.score(search.own, near=0)
        self.near: float | None = _NEAR * (whole or before).cycles / max(before.cycles, 1)
        self.score = partial(self.score, most=LARGEST * before.operations)
        self.before = before
        self.best: tuple[Score, AnyChoices] = score, start
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

    def _near(self, kept: Sequence[tuple[Score, AnyChoices]], random: Random) -> list[AnyChoices]:
        """New choices: usually one move from the best or another kept plan, sometimes several moves."""
        found: dict[AnyChoices, None] = {}
        for _ in range(20 * BATCH):
            _, choices = kept[min(int(random.expovariate(0.5)), len(kept) - 1)]
            for _ in range(1 + min(int(random.expovariate(1.0)), 4)):
                choices = self.space.moved(choices, random)
            if choices not in self.tried:
                found[choices] = None
            if len(found) == BATCH:
                break
        return list(found)

    def _try(self, batch: Sequence[AnyChoices]) -> list[tuple[Score, AnyChoices]]:
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


def _best(found: Sequence[tuple[Score, AnyChoices]]) -> list[tuple[Score, AnyChoices]]:
    """The best plans in order; of plans with the same score, the first one, which is the newest."""
    distinct: dict[Score, tuple[Score, AnyChoices]] = {}
    for item in found:
        distinct.setdefault(item[0], item)
    return [distinct[score] for score in sorted(distinct)[:KEPT]]
