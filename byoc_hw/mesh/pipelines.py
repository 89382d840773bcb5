"""Plans a network for a mesh: how long a pipeline is and how often it is there, its stages, places and credits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from byoc_hw.arguments import check_whole, shown
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.integers import ceil_div
from byoc_hw.mesh.balance import NO_PLAN, Balance, BalancedCuts
from byoc_hw.mesh.branches import closed_sets, exact_stages
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.latency import latency_plan
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.placing import with_credits
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.stage_cycles import StageCycles, stages_in_full
from byoc_hw.mesh.stages import StageBytes, StageCutter, stage_bytes
from byoc_hw.mesh.units import Units, UnitWays

PIPELINE_OBJECTIVES = ("throughput", "latency")
"""What a network can be planned for on a mesh."""

_WAYS = (UnitWays(), UnitWays(group=8 * 1024))
"""The ways to make units that are tried for each length of the pipelines."""

_MORE_WAYS = (*_WAYS, UnitWays(lean=16.0, group=4 * 1024, finest=96), UnitWays(lean=16.0, group=2 * 1024, finest=200))
"""Those that are tried if the number of pipelines is given, so that they have one length."""

_USED = 0.98
"""The share of the PEs that pipelines of a length are to use."""

_ENOUGH = 0.965
"""Found over bound at which no other length of the pipelines is tried."""

_LENGTHS = 4
"""The most lengths of pipelines for which stages are found and compared."""

_WORTH = 0.96
"""Lengths are planned that have nearly as many frames, by jobs, as the best one."""

_SMALL, _FEW = 64, 8
"""The most closed sets of nodes, and PEs of a pipeline, for which all orders of whole nodes are looked at."""

_NEARLY = 0.97
"""Cuts are planned whose longest stage is nearly as short, by its jobs, as that of the best ones."""

_BALANCED = 2
"""The most cuts of a length that are balanced by planned stages."""


def plan_network(
    network: MeshNetwork, mesh: Mesh, objective: str = "throughput", pipelines: int | None = None
) -> MeshPlan:
    """Plan a network for a mesh. `pipelines` is how many copies of one pipeline there are; by default as many as give
    the most frames. With the objective "latency" there is one.

    Raises `InvalidInput` for arguments that are none, and `PlanError` where the network does not fit the PEs: it says
    what does not, and how many PEs would do.
    """
    if objective not in PIPELINE_OBJECTIVES:
        raise InvalidInput(f"objective is one of {', '.join(PIPELINE_OBJECTIVES)}: got {shown(objective)}")
    if pipelines is not None:
        check_whole("pipelines", pipelines, 1, len(mesh.alive))
    if objective == "latency":
        if pipelines not in (None, 1):
            raise InvalidInput(f"pipelines is 1 with the objective latency: got {pipelines}")
        return latency_plan(network, mesh)
    planner = _Planner(network, mesh)
    return planner.most_frames() if pipelines is None else planner.of(pipelines)


class _Planner:
    def __init__(self, network: MeshNetwork, mesh: Mesh) -> None:
        self._network, self._mesh = network, mesh
        self._costs = PieceCosts(network, mesh.pe)
        self._work = self._costs.work()
        self._planned = stages_in_full(self._costs, mesh)
        self._cuts: dict[tuple[int, tuple[UnitWays, ...]], list[tuple[StageCutter, BalancedCuts]]] = {}
        if not network.nodes or not self._work:
            raise InvalidInput(f"{network.name}: a pipeline has work to do: it has none")

    def of(self, pipelines: int) -> MeshPlan:
        """The best plan with so many pipelines."""
        length = len(self._mesh.alive) // pipelines
        if self._planned is not None:
            self._planned.left *= 2
        plan = self._plan(length, pipelines, _MORE_WAYS)
        if plan is None:
            raise PlanError(self._why_not(length))
        return plan

    def most_frames(self) -> MeshPlan:
        """The plan with the most frames: first short pipelines, of which there are many."""
        by_jobs: list[tuple[int, MeshPlan]] = []
        for length in self._lengths():
            plan = self._plan(length, len(self._mesh.alive) // length, by_jobs=True)
            if plan is not None:
                by_jobs.append((length, plan))
            if len(by_jobs) == _LENGTHS or (plan is not None and plan.efficiency >= _ENOUGH):
                break
        found = self._most_planned(by_jobs)
        if found is None:
            raise PlanError(self._why_not(len(self._mesh.alive)))
        return found

    def _most_planned(self, by_jobs: Sequence[tuple[int, MeshPlan]]) -> MeshPlan | None:
        """The plan with the most frames whose stages are planned: of the lengths that are good by jobs, the short ones
        first, as they lose least to what jobs do not hide; of the others, if none of those fits. Each length has an
        even share of the work that may still be done."""
        most = max((plan.throughput for _, plan in by_jobs), default=0.0)
        good = [one for one in by_jobs if one[1].throughput >= _WORTH * most]
        best: MeshPlan | None = None
        for at, (length, plan) in enumerate([*good, *(one for one in by_jobs if one not in good)]):
            if best is not None and (at >= len(good) or best.throughput >= max(one.throughput for _, one in good[at:])):
                break
            with self._share(max(1, len(good) - at)):
                found = self._plan(length, len(plan.replicas))
            if found is not None and (best is None or found.throughput > best.throughput):
                best = found
        return best

    @contextmanager
    def _share(self, parts: int) -> Iterator[None]:
        """Here one of so many parts of the work that is left may be done."""
        planned = self._planned
        if planned is None:
            yield
            return
        kept = planned.left - planned.left // parts
        planned.left -= kept
        yield
        planned.left += kept

    def _lengths(self) -> Iterator[int]:
        """Lengths that leave few PEs over: from what the bytes need on, each a quarter longer than the last."""
        count = len(self._mesh.alive)
        weights = sum(self._costs.weights(piece) for piece in Units(self._costs, _WAYS[0], self._work, 1 << 62).pieces)
        least = min(count, max(1, ceil_div(weights, max(1, self._mesh.data))))
        fitting = self._fewest(least)
        at = least if fitting is None else max(least, min(count, fitting))
        for length in range(at, count):
            if length >= at and count // length * length >= _USED * count:
                yield length
                at = ceil_div(length * 5, 4)
        yield count

    def _fewest(self, length: int) -> int | None:
        """About how many PEs a pipeline needs for its bytes alone."""
        found = [cutter.within(self._work) for cutter in self._cutters(length, slots=(1,))]
        return min((len(cuts) for cuts in found if cuts is not None), default=None)

    def _why_not(self, length: int) -> str:
        """What does not fit pipelines of this length, and what would do."""
        for cutter in self._cutters(max(length, 64), slots=(1,)):
            for at, unit in enumerate(cutter.units):
                if not cutter.fits(at, at + 1):
                    nbytes = cutter.nbytes(at, at + 1)
                    name = self._network.nodes[unit.node].name
                    return (
                        f"{name}: its smallest piece fits the {self._mesh.data} bytes of a PE for data: it has "
                        f"{nbytes.weights} of weights, {nbytes.received} that it receives, {nbytes.sent} that it sends "
                        f"and {nbytes.inner} inside"
                    )
        fewest = self._fewest(max(length, 64))
        enough = fewest is not None and fewest > length
        wanted = f"{fewest} PEs would do" if enough else "and no number of PEs was found that would do"
        return (
            f"{self._network.name}: a pipeline of {length} PEs with {self._mesh.data} bytes each for data holds its "
            f"weights, activations and buffers: it does not, {wanted}"
        )

    def _cutters(
        self, length: int, slots: Sequence[int] = (2, 1), ways: Sequence[UnitWays] = _WAYS
    ) -> Iterator[StageCutter]:
        target = max(1, self._work // length)
        for way in ways:
            units = Units(self._costs, way, target, self._mesh.data).pieces
            for count in slots:
                yield StageCutter(self._costs, units, self._mesh, count)

    def _plan(
        self, length: int, pipelines: int, ways: Sequence[UnitWays] = _WAYS, by_jobs: bool = False
    ) -> MeshPlan | None:
        """The best plan with stages on at most `length` PEs; None if none fit. `by_jobs`, or for PEs without tiles to
        plan, it is the best one by the cycles of jobs."""
        planned = None if by_jobs else self._planned
        found = self._cuts_of(length, ways)
        plans = [self._over_branches(length, pipelines, planned)]
        plans += [
            self._placed(cutter, cuts, pipelines, planned is not None)
            for cutter, cuts in (found if planned is None else self._balanced(planned, found, length))
        ]
        return min(filter(None, plans), key=lambda plan: plan.period, default=None)

    def _cuts_of(self, length: int, ways: Sequence[UnitWays]) -> list[tuple[StageCutter, BalancedCuts]]:
        """The best cuts by jobs into at most `length` stages, of each order of units that is about as good as any."""
        key = length, tuple(ways)
        if key in self._cuts:
            return self._cuts[key]
        found: list[tuple[StageCutter, BalancedCuts]] = []
        for cutter in self._cutters(length, ways=ways):
            least = min((one.longest for _, one in found), default=None)
            if least is not None and cutter.within(int(least / _NEARLY), length) is None:
                continue
            cuts = cutter.best(length)
            if cuts is not None and (cutter.units, cuts) not in [(other.units, one.cuts) for other, one in found]:
                cycles = tuple(cutter.cycles(*cut) for cut in cuts)
                fixed = tuple(cutter.nbytes(*cut).total(0) for cut in cuts)
                found.append((cutter, BalancedCuts(cuts, cycles, fixed)))
        self._cuts[key] = found
        return found

    def _balanced(
        self, planned: StageCycles, found: Sequence[tuple[StageCutter, BalancedCuts]], length: int
    ) -> Iterator[tuple[StageCutter, BalancedCuts]]:
        """The nearly best cuts, balanced by stages that are planned, without those that do not fit."""
        least = min((one.longest for _, one in found), default=0)
        near = [pair for pair in found if pair[1].longest * _NEARLY <= least]
        tried: list[tuple[Balance, BalancedCuts]] = []
        for cutter, cuts in sorted(near, key=lambda pair: pair[1].longest):
            balance = Balance(cutter, self._mesh.data, planned)
            tried.append((balance, balance.of(cuts.cuts)))
            if planned.left <= 0:
                break
        best = sorted(tried, key=lambda pair: pair[1].longest)[:_BALANCED]
        for at, (balance, cuts) in enumerate(best):
            with self._share(len(best) - at):
                better = balance.better(cuts, length)
            if better.longest < NO_PLAN:
                yield balance.cutter, better

    def _over_branches(self, length: int, pipelines: int, planned: StageCycles | None) -> MeshPlan | None:
        """The best plan of whole nodes over all their orders, of a small network on few PEs; None for any other."""
        nodes, makers = self._network.nodes, self._network.makers
        before = [[makers[name] for name in node.inputs if name in makers] for node in nodes]
        sets = closed_sets(before, _SMALL) if length <= _FEW else None
        if sets is None or len(sets) == len(nodes) + 1:  # large, or of one order alone
            return None
        readers = self._network.readers

        def pieces(units: int) -> tuple[NodePiece, ...]:
            return tuple(NodePiece(number) for number in range(len(nodes)) if units >> number & 1)

        def leaving(units: int) -> Callable[[str, Patch], Patch | None]:
            def part(name: str, made: Patch) -> Patch | None:
                inside = all(units >> reader & 1 for reader in readers.get(name, ()))
                return None if inside and name not in self._network.outputs else made

            return part

        def nbytes(units: int) -> StageBytes:
            return stage_bytes(self._costs, pieces(units), leaving(units))

        def cycles(units: int) -> int:
            return sum(map(self._costs.cycles, pieces(units)))

        found = exact_stages(before, length, cycles, lambda units: nbytes(units).total(1) <= self._mesh.data)
        if found is None:
            return None
        stages = [Stage(pieces(units)) for units in found]
        if planned is not None:
            figures = [planned.built(pieces(units), leaving(units)) for units in found]
            whole = [one for one in figures if one is not None and one.nbytes(1) <= self._mesh.data]
            if len(whole) < len(figures):
                return None
            in_cycles, in_bytes = [one.cycles for one in whole], [one.fixed for one in whole]
            return _as_planned(self._on_pes(stages, in_cycles, in_bytes, pipelines))
        fixed = [nbytes(units).total(0) for units in found]
        return self._on_pes(stages, [cycles(units) for units in found], fixed, pipelines)

    def _placed(
        self, cutter: StageCutter, found: BalancedCuts, pipelines: int, planned: bool = False
    ) -> MeshPlan | None:
        """The plan of some stages, with places and credits; None if it does not fit with one credit each."""
        stages = [Stage(cutter.pieces(*cut)) for cut in found.cuts]
        plan = self._on_pes(stages, found.cycles, found.fixed, pipelines)
        return _as_planned(plan) if planned else plan

    def _on_pes(
        self, stages: Sequence[Stage], cycles: Sequence[int], fixed: Sequence[int], pipelines: int
    ) -> MeshPlan | None:
        places = self._mesh.alive
        replicas = tuple(places[at * len(stages) : (at + 1) * len(stages)] for at in range(pipelines))
        return with_credits(self._network, self._mesh, stages, replicas, cycles, fixed, self._work)


def _as_planned(plan: MeshPlan | None) -> MeshPlan | None:
    """The plan with cycles that are known to be those of stages planned in full."""
    return None if plan is None else replace(plan, figures=replace(plan.placed[1], planned=True))
