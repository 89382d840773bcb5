"""Plans a network for a mesh: how long a pipeline is and how often it is there, its stages, places and credits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from byoc_hw.arguments import check_one_of, check_whole
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.integers import ceil_div
from byoc_hw.mesh.balance import NO_PLAN, Balance, BalancedCuts
from byoc_hw.mesh.branches import closed_sets, exact_stages
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.latency import latency_plan
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.placing import why_not_placed, with_credits
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.stage_cycles import StageCycles, StageFigures, stages_in_full, why_no_room
from byoc_hw.mesh.stages import StageBytes, StageCutter, stage_bytes
from byoc_hw.mesh.units import Units, UnitWays

PIPELINE_OBJECTIVES = ("throughput", "latency")
"""What a network can be planned for on a mesh."""

_WAYS = (
    UnitWays(),
    UnitWays(group=8 * 1024),
    UnitWays(lean=16.0, group=4 * 1024, finest=96),
    UnitWays(lean=16.0, group=2 * 1024, finest=200),
)
"""The ways to make units that are tried for each length of the pipelines."""

_ANY_UNITS, _MOST_UNITS = 2, 1000
"""How many of the ways are tried with any number of units. The others have smaller ones, and are tried with so many."""

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

_FURTHER = 12
"""How often a pipeline that does not fit is made longer by a quarter, to say how many PEs would do."""

_NEARLY = 0.97
"""Cuts are planned whose longest stage is nearly as short, by its jobs, as that of the best ones."""

_EVENED = 0.75
"""How far balancing is taken to bring the longest stage to the mean of all."""

_KEPT = 0.75
"""The part of the work of planning stages that is kept for balancing; the rest may go into comparing cuts."""

_ALIKE = 100
"""One of so many parts of a period does not count when lengths of pipelines are compared by jobs."""

_AGAIN = 0.02
"""How much worse other cuts of a length count than they promise, when cuts of several lengths are compared."""

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
    check_one_of("objective", objective, PIPELINE_OBJECTIVES)
    if pipelines is not None:
        check_whole("pipelines", pipelines, 1, len(mesh.alive))
    if objective == "latency":
        if pipelines not in (None, 1):
            raise InvalidInput(f"pipelines is 1 with the objective latency: got {pipelines}")
        return latency_plan(network, mesh)
    planner = _Planner(network, mesh)
    return planner.most_frames() if pipelines is None else planner.of(pipelines)


@dataclass(frozen=True)
class _Cuts:
    """Cuts of an order of units, and their plan by jobs: None if they are not placed, or credits do not fit."""

    cutter: StageCutter
    cuts: BalancedCuts
    plan: MeshPlan | None

    @property
    def waits(self) -> float:
        """The period over the longest stage: above 1 where there is no room for the credits that a frame needs."""
        return NO_PLAN if self.plan is None else self.plan.period_alone / max(1, self.cuts.longest)

    @property
    def period(self) -> float:
        """Cycles between two frames."""
        return self.waits * self.cuts.longest


class _Planner:
    def __init__(self, network: MeshNetwork, mesh: Mesh) -> None:
        self._network, self._mesh = network, mesh
        self._costs = PieceCosts(network, mesh.pe)
        self._work, self._least = self._costs.work(), self._costs.least_work()
        self._planned = stages_in_full(self._costs, mesh)
        self._cuts: dict[tuple[int, int], list[_Cuts]] = {}

    def of(self, pipelines: int) -> MeshPlan:
        """The best plan with so many pipelines."""
        length = len(self._mesh.alive) // pipelines
        if self._planned is not None:  # there is one length alone
            self._planned.left *= 2
        plan = self._best([(length, pipelines)])
        if plan is None:
            raise PlanError(self._why_not(length))
        return plan.simulated()

    def most_frames(self) -> MeshPlan:
        """The plan with the most frames: first short pipelines, of which there are many."""
        by_jobs: list[tuple[int, MeshPlan]] = []
        lengths = self._lengths()
        for length in lengths:
            plan = self._by_jobs(length, len(self._mesh.alive) // length)
            if plan is not None:
                by_jobs.append((length, plan))
            if len(by_jobs) == _LENGTHS or (plan is not None and plan.efficiency >= _ENOUGH):
                break
        most = max((plan.throughput for _, plan in by_jobs), default=0.0)
        good = [(length, len(plan.replicas)) for length, plan in by_jobs if plan.throughput >= _WORTH * most]
        others = [(length, len(plan.replicas)) for length, plan in by_jobs if plan.throughput < _WORTH * most]
        found = self._best(good) or self._best(others)
        for length in lengths:  # as they are planned, stages may need longer pipelines than by their jobs
            found = found or self._best([(length, len(self._mesh.alive) // length)])
        if found is None:
            raise PlanError(self._why_not(len(self._mesh.alive)))
        return found.simulated()

    def _best(self, lengths: Sequence[tuple[int, int]]) -> MeshPlan | None:
        """The plan with the most frames, of so many pipelines of at most so many PEs each; None if none fit."""
        planned = self._planned
        if planned is None:
            plans = [self._by_jobs(length, pipelines) for length, pipelines in lengths]
        else:
            plans = [self._over_branches(length, pipelines, planned) for length, pipelines in lengths]
            plans += self._balanced(planned, lengths)
        return max(filter(None, plans), key=lambda plan: plan.throughput, default=None)

    def _lengths(self) -> Iterator[int]:
        """The longest of so many pipelines each, where these leave few PEs over: from what the bytes need on, each a
        quarter longer than the last."""
        count = len(self._mesh.alive)
        weights = sum(self._costs.weights(piece) for piece in Units(self._costs, _WAYS[0], self._work, 1 << 62).pieces)
        least = min(count, max(1, ceil_div(weights, max(1, self._mesh.data))))
        fitting = self._fewest(least)
        at = least if fitting is None else max(least, min(count, fitting))
        while (length := count // (count // min(at, count))) < count:
            if count // length * length >= _USED * count:
                yield length
                at = ceil_div(length * 5, 4)
            else:
                at = length + 1
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
        if fewest is not None and fewest <= length:
            return self._why_not_as_planned(length)
        enough = fewest is not None
        wanted = f"{fewest} PEs would do" if enough else "and no number of PEs was found that would do"
        return (
            f"{self._network.name}: a pipeline of {length} PEs with {self._mesh.data} bytes each for data holds its "
            f"weights, activations and buffers: it does not, {wanted}"
        )

    def _why_not_as_planned(self, length: int) -> str:
        """The stage that does not fit as it is planned, and what would do."""
        misfit = self._misfit(length)
        wanted = "no number of PEs was found that would do"
        for further in range(1, _FURTHER + 1):
            enough = length + ceil_div(length * further, 4)
            if self._cuts_of(enough, 0) and self._misfit(enough) is None:
                wanted = f"{enough} PEs would do"
                break
        return f"{self._network.name}: {misfit or 'credits of channels do not fit'}; {wanted}"

    def _misfit(self, length: int) -> str | None:
        """The stage of the best cuts into so many that does not fit as it is planned; None if all fit."""
        assert self._planned is not None, "stages are planned"
        found: str | None = None
        for one in self._cuts_of(length, 0):
            balance = Balance(one.cutter, self._mesh, self._planned)
            best = balance.better(one.cuts, length)
            misfit = balance.misfit(best)
            if misfit is None:
                stages = [Stage(one.cutter.pieces(*cut)) for cut in best.cuts]
                found = why_not_placed(self._network, self._mesh, stages, None, best.figures)
                if found is None:
                    return None
                continue
            number, figures = misfit
            pieces = one.cutter.pieces(*best.cuts[number])
            nodes = ", ".join(self._network.nodes[piece.node].name for piece in pieces)
            found = f"stage {number} fits {why_no_room(figures, self._mesh)}; it is of {nodes}"
        return found

    def _cutters(self, length: int, slots: Sequence[int] = (2, 1)) -> Iterator[StageCutter]:
        target = max(1, self._work // length)
        for number, way in enumerate(_WAYS):
            units = Units(self._costs, way, target, self._mesh.data).pieces
            if number < _ANY_UNITS or len(units) <= _MOST_UNITS:
                for count in slots:
                    yield StageCutter(self._costs, units, self._mesh, count)

    def _by_jobs(self, length: int, pipelines: int) -> MeshPlan | None:
        """The best plan with stages on at most `length` PEs by the cycles of jobs; None if none fit."""
        plans = [self._over_branches(length, pipelines, None)]
        plans += [one.plan for one in self._cuts_of(length, pipelines)]
        return min(filter(None, plans), key=lambda plan: plan.period_alone, default=None)

    def _cuts_of(self, length: int, pipelines: int) -> list[_Cuts]:
        """The best cuts by jobs into at most `length` stages, of each order of units that is about as good as any; with
        0 pipelines they are not placed."""
        if (length, pipelines) in self._cuts:
            return self._cuts[length, pipelines]
        found: list[_Cuts] = []
        least: float = NO_PLAN
        for cutter in self._cutters(length):
            cuts = cutter.best(length, int(least / _NEARLY))
            if cuts is None or (cutter.units, cuts) in [(one.cutter.units, one.cuts.cuts) for one in found]:
                continue
            known = BalancedCuts(cuts, tuple(cutter.figures(*cut) for cut in cuts))
            found.append(_Cuts(cutter, known, self._placed(cutter, known, pipelines, False) if pipelines else None))
            least = min(least, found[-1].period if pipelines else known.longest)
        self._cuts[length, pipelines] = found
        return found

    def _balanced(self, planned: StageCycles, lengths: Sequence[tuple[int, int]]) -> list[MeshPlan | None]:
        """Plans whose stages are planned: of the cuts that are nearly the best ones of a length by jobs, and have the
        most frames as they are first planned. If none of these fit when they are cut again, of the first that does."""
        tried: list[tuple[int, int, int, _Cuts]] = []  # the place among the good ones of its length, length, pipelines
        for length, pipelines in lengths:
            found = sorted(self._cuts_of(length, pipelines), key=lambda one: one.period)
            good = [one for one in found if one.period * _NEARLY <= found[0].period]
            tried += [(at, length, pipelines, one) for at, one in enumerate(good)]
        least = min((one.period / pipelines for _, _, pipelines, one in tried), default=1.0)
        # Of those that are as good within a hundredth, short pipelines first: their stages are evened with less work.
        tried.sort(key=lambda one: (one[0], int(_ALIKE * one[3].period / one[2] / least), one[1]))
        promising: list[tuple[float, int, int, Balance, BalancedCuts]] = []
        kept = planned.left * _KEPT
        for _, length, pipelines, one in tried:
            balance, cuts, promise = Balance(one.cutter, self._mesh, planned), one.cuts, float(NO_PLAN)
            if not promising or planned.left > kept:
                cuts = balance.quickly(cuts.cuts)
                promise = _promise(cuts) * one.waits / pipelines
            promising.append((promise, length, pipelines, balance, cuts))
        promising.sort(key=lambda one: one[0])
        again = Counter[int]()  # of a length, other cuts count as worse than they promise: they mostly end alike
        for at, (promise, length, pipelines, balance, cuts) in enumerate(promising):
            promising[at] = promise * (1 + _AGAIN * again[length]), length, pipelines, balance, cuts
            again[length] += 1
        promising.sort(key=lambda one: one[0])
        plans: list[MeshPlan | None] = []
        for at, (_, length, pipelines, balance, cuts) in enumerate(promising):
            if any(plans) and (at >= _BALANCED or planned.left <= 0):
                break
            with self._share(max(1, _BALANCED - at)):
                better = balance.better(cuts, length)
            if better.longest < NO_PLAN:
                plans.append(self._placed(balance.cutter, better, pipelines, True))
        return plans

    @contextmanager
    def _share(self, parts: int) -> Iterator[None]:
        """Here one of so many parts of the work that is left may be done."""
        assert self._planned is not None, "stages are planned"
        kept = self._planned.left - self._planned.left // parts
        self._planned.left -= kept
        yield
        self._planned.left += kept

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
            whole = [one for one in figures if one is not None]
            return _as_planned(self._on_pes(stages, whole, pipelines)) if len(whole) == len(figures) else None
        by_jobs = [nbytes(units).figures(cycles(units)) for units in found]
        return self._on_pes(stages, by_jobs, pipelines)

    def _placed(self, cutter: StageCutter, found: BalancedCuts, pipelines: int, planned: bool) -> MeshPlan | None:
        """The plan of some stages, with places and credits; None if it does not fit with one credit each."""
        stages = [Stage(cutter.pieces(*cut)) for cut in found.cuts]
        plan = self._on_pes(stages, found.figures, pipelines)
        return _as_planned(plan) if planned else plan

    def _on_pes(self, stages: Sequence[Stage], figures: Sequence[StageFigures], pipelines: int) -> MeshPlan | None:
        places = self._mesh.alive
        replicas = tuple(places[at * len(stages) : (at + 1) * len(stages)] for at in range(pipelines))
        return with_credits(self._network, self._mesh, stages, replicas, figures, self._least)


def _promise(cuts: BalancedCuts) -> float:
    """About how long the longest stage will be when cuts are balanced: nearer to the mean than it is. Stages that do
    not fit are cut again, and are taken to be as the others."""
    fitting = [cycles for cycles in cuts.cycles if cycles < NO_PLAN] or [NO_PLAN]
    return (1 - _EVENED) * max(fitting) + _EVENED * sum(fitting) / len(fitting)


def _as_planned(plan: MeshPlan | None) -> MeshPlan | None:
    """The plan with cycles that are known to be those of stages planned in full."""
    return None if plan is None else replace(plan, figures=replace(plan.placed[1], planned=True))
