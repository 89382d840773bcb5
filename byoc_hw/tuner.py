"""Tunes a model: searches for better plans of its regions, with the planner's cost model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_flag, check_type, check_whole, shown
from byoc_hw.compiler import front_end, graphs_to_plan, partition_for_hwlib, region_rooms
from byoc_hw.errors import InvalidInput
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.lanes.chip_rounds import chip_search
from byoc_hw.plan.search.within import Room
from byoc_hw.plan.tune.rounds import Search, SearchInterrupted, TunedRegion, Watch, fingerprint, region_search
from byoc_hw.soc import Hardware, Soc
from byoc_hw.tuning import Tuning, check_tunable, figures

if TYPE_CHECKING:
    import tvm

DEFAULT_BUDGET = 1000
"""Plans tried for each region by default: a few seconds to a minute on one core."""

_SMALL = 4
"""Regions whose tensors take at most this part of RAM together are not limited."""


@dataclass(frozen=True)
class TuningProgress:
    """The state after a round: region `number` of `regions`, with `evaluations` of `budget` plans tried.

    `before` and `best` are accelerator cycles of the region.
    """

    region: str
    number: int
    regions: int
    evaluations: int
    budget: int
    before: int
    best: int

    def __str__(self) -> str:
        return (
            f"region {self.number} of {self.regions}: {self.evaluations} of {self.budget} plans, "
            f"{self.best} cycles ({self.before} before)"
        )


class TuningInterrupted(KeyboardInterrupt):
    """`tune` was interrupted. `tuning` has the best plans so far, of the regions that it came to: save or build it."""

    def __init__(self, tuning: Tuning) -> None:
        super().__init__(f"interrupted: {tuning!r}")
        self.tuning = tuning


@seldom_collected()
def tune(
    mod: tvm.IRModule,
    accelerator: Hardware | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    progress: bool | Callable[[TuningProgress], None] = True,
) -> Tuning:
    """Search for better plans of a model's regions, for `build(..., tuning=...)`.

    `mod` is a Relay module, partitioned or not; one that is not is partitioned for `accelerator` (by default
    `REFERENCE`), which may be a chip of several. `budget` is how many plans are tried for each region: all plans if
    there are no more, else plans near the best ones found. They are evaluated in this process, or by an `executor` of
    threads, processes, or any other with the interface of `concurrent.futures`. The result depends on `budget` and
    `seed` alone, not on the executor. The accelerator's `tuning` is the search space. On a chip plans also differ in
    what runs on which accelerator, and in how layers are cut over several. No plan is worse than the one that `build`
    makes without tuning, nor too large for RAM or flash.

    `progress` prints a line to stderr after each round, or is a function that gets a `TuningProgress`.

    Raises `InvalidInput` for an accelerator other than the one that `mod` was partitioned for, one with a vendor
    library, a model without regions, a budget below 1, or an executor where the accelerator's description has functions
    that cannot be sent to its workers; and `TuningInterrupted`, a `KeyboardInterrupt` with what was found, if it is
    interrupted after its first plan.
    """
    check_whole("budget", budget, 1)
    check_whole("seed", seed)
    budget, seed = int(budget), int(seed)
    if accelerator is not None:
        check_type("accelerator", accelerator, Accelerator | Soc, "an Accelerator or a Soc")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InvalidInput(f"executor has the interface of concurrent.futures.Executor: got {shown(executor)}")
    if not callable(progress):
        check_flag("progress", progress)
    if front_end().partitioned(mod) is None:
        mod, params = partition_for_hwlib(mod, params, accelerator=accelerator or REFERENCE), None
    model = front_end().open_model(mod, params, None)
    known = model.accelerator
    assert known is not None, "the module is partitioned"
    if accelerator is not None and accelerator != known:
        raise InvalidInput(
            f"the module was partitioned for accelerator {known.label}: got {accelerator.label}, which differs"
        )
    accelerator = known
    check_tunable(accelerator)
    graphs = graphs_to_plan(model)
    if not graphs:
        raise InvalidInput(f"tuning is of regions: nothing of the model runs on accelerator {accelerator.label}")
    rooms = _rooms(mod, params, accelerator, graphs)
    tell = _teller(progress)

    def watcher(name: str, number: int) -> Watch:
        return lambda evaluations, before, best: tell(
            TuningProgress(name, number, len(graphs), evaluations, budget, before.cycles, best.cycles)
        )

    found: dict[str, TunedRegion] = {}
    regions: list[TunedRegion] = []
    try:
        for number, (name, graph) in enumerate(graphs.items(), 1):
            mark = fingerprint(graph)
            if mark not in found:  # regions of one structure have one plan
                search = _search(graph, accelerator, rooms.get(mark))
                found[mark] = search.best(budget=budget, seed=seed, executor=executor, watch=watcher(name, number))
            regions.append(replace(found[mark], name=name))
    except KeyboardInterrupt as error:
        last = (error.found,) if isinstance(error, SearchInterrupted) else ()
        if not regions and not last:
            raise
        raise TuningInterrupted(Tuning(figures(accelerator), budget, seed, (*regions, *last))) from error
    return Tuning(figures(accelerator), budget, seed, tuple(regions))


def _search(graph: Graph, hardware: Hardware, room: Room | None) -> Search[Choices] | Search[ChipChoices]:
    return chip_search(graph, hardware, room) if isinstance(hardware, Soc) else region_search(graph, hardware, room)


def _rooms(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, accelerator: Hardware, graphs: Mapping[str, Graph]
) -> dict[str, Room]:
    """The limits of regions by fingerprint, the tightest of those of one structure. None where all tensors take a
    small part of RAM in any plan: to know what the host needs takes a while."""
    tensors = {tensor for graph in graphs.values() for tensor in graph.tensors}
    small = sum(tensor.nbytes for tensor in tensors) <= accelerator.ram // _SMALL
    rooms: dict[str, Room] = {}
    for name, room in ({} if small else region_rooms(mod, params)).items():
        mark = fingerprint(graphs[name])
        rooms[mark] = min(room, rooms.get(mark, room), key=lambda one: one.ram)
    return rooms


def _teller(progress: bool | Callable[[TuningProgress], None]) -> Callable[[TuningProgress], None]:
    if callable(progress):
        return progress
    return _print if progress else lambda state: None


def _print(state: TuningProgress) -> None:
    print(state, file=sys.stderr, flush=True)
