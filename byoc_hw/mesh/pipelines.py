"""Plans a network for a mesh: how long a pipeline is and how often it is there, its stages, places and credits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byoc_hw.arguments import check_whole, shown
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.integers import ceil_div
from byoc_hw.mesh.branches import closed_sets, exact_stages
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.latency import latency_plan
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.placing import with_credits
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.stages import StageBytes, StageCutter, stage_bytes
from byoc_hw.mesh.units import Units, UnitWays

PIPELINE_OBJECTIVES = ("throughput", "latency")
"""What a network can be planned for on a mesh."""

_WAYS = (UnitWays(), UnitWays(group=8 * 1024))
"""The ways to make units that are tried for each length of the pipelines."""

_MORE_WAYS = (*_WAYS, UnitWays(lean=16.0, group=4 * 1024, finest=96))
"""Those that are tried if the number of pipelines is given, so that they have one length."""

_USED = 0.98
"""The share of the PEs that pipelines of a length are to use."""

_ENOUGH = 0.965
"""Found over bound at which no other length of the pipelines is tried."""

_LENGTHS = 4
"""The most lengths of pipelines for which stages are found and compared."""

_SMALL, _FEW = 64, 8
"""The most closed sets of nodes, and PEs of a pipeline, for which all orders of whole nodes are looked at."""

_BARELY = 1.005
"""A cut is looked at further if its stages are shorter than those of the best one so many times."""


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
        if not network.nodes or not self._work:
            raise InvalidInput(f"{network.name}: a pipeline has work to do: it has none")

    def of(self, pipelines: int) -> MeshPlan:
        """The best plan with so many pipelines."""
        length = len(self._mesh.alive) // pipelines
        plan = self._plan(length, pipelines, _MORE_WAYS)
        if plan is None:
            raise PlanError(self._why_not(length))
        return plan

    def most_frames(self) -> MeshPlan:
        """The plan with the most frames: first short pipelines, of which there are many."""
        best: MeshPlan | None = None
        tried = 0
        for length in self._lengths():
            plan = self._plan(length, len(self._mesh.alive) // length)
            if plan is None:
                continue
            tried += 1
            if best is None or plan.throughput > best.throughput:
                best = plan
            if best.efficiency >= _ENOUGH or tried == _LENGTHS:
                break
        if best is None:
            raise PlanError(self._why_not(len(self._mesh.alive)))
        return best

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
        return (
            f"{self._network.name}: a pipeline of {length} PEs with {self._mesh.data} bytes each for data holds its "
            f"weights, activations and buffers: it does not, {fewest} PEs would do"
        )

    def _cutters(
        self, length: int, slots: Sequence[int] = (2, 1), ways: Sequence[UnitWays] = _WAYS
    ) -> Iterator[StageCutter]:
        target = max(1, self._work // length)
        for way in ways:
            units = Units(self._costs, way, target, self._mesh.data).pieces
            for count in slots:
                yield StageCutter(self._costs, units, self._mesh, count)

    def _plan(self, length: int, pipelines: int, ways: Sequence[UnitWays] = _WAYS) -> MeshPlan | None:
        """The best plan with stages on at most `length` PEs; None if none fit."""
        best: MeshPlan | None = None
        for cutter in self._cutters(length, ways=ways):
            if best is not None and cutter.within(int(max(best.placed[1].cycles) / _BARELY), length) is None:
                continue
            cuts = cutter.best(length)
            plan = None if cuts is None else self._placed(cutter, cuts, pipelines)
            if plan is not None and (best is None or plan.period < best.period):
                best = plan
        branched = self._over_branches(length, pipelines)
        return branched if branched is not None and (best is None or branched.period < best.period) else best

    def _over_branches(self, length: int, pipelines: int) -> MeshPlan | None:
        """The best plan of whole nodes over all their orders, of a small network on few PEs; None for any other."""
        nodes, makers = self._network.nodes, self._network.makers
        before = [[makers[name] for name in node.inputs if name in makers] for node in nodes]
        sets = closed_sets(before, _SMALL) if length <= _FEW else None
        if sets is None or len(sets) == len(nodes) + 1:  # large, or of one order alone
            return None
        readers = self._network.readers

        def pieces(units: int) -> tuple[NodePiece, ...]:
            return tuple(NodePiece(number) for number in range(len(nodes)) if units >> number & 1)

        def nbytes(units: int) -> StageBytes:
            def leaving(name: str, made: Patch) -> int:
                inside = all(units >> reader & 1 for reader in readers.get(name, ()))
                return 0 if inside and name not in self._network.outputs else self._network.tensors[name].nbytes

            return stage_bytes(self._costs, pieces(units), leaving)

        def cycles(units: int) -> int:
            return sum(map(self._costs.cycles, pieces(units)))

        found = exact_stages(before, length, cycles, lambda units: nbytes(units).total(1) <= self._mesh.data)
        if found is None:
            return None
        stages = [Stage(pieces(units)) for units in found]
        fixed = [nbytes(units).total(0) for units in found]
        return self._on_pes(stages, [cycles(units) for units in found], fixed, pipelines)

    def _placed(self, cutter: StageCutter, cuts: Sequence[tuple[int, int]], pipelines: int) -> MeshPlan | None:
        """The plan of some stages, with places and credits; None if it does not fit with one credit each."""
        stages = [Stage(cutter.pieces(*cut)) for cut in cuts]
        fixed = [cutter.nbytes(*cut).total(0) for cut in cuts]
        return self._on_pes(stages, [cutter.cycles(*cut) for cut in cuts], fixed, pipelines)

    def _on_pes(
        self, stages: Sequence[Stage], cycles: Sequence[int], fixed: Sequence[int], pipelines: int
    ) -> MeshPlan | None:
        places = self._mesh.alive
        replicas = tuple(places[at * len(stages) : (at + 1) * len(stages)] for at in range(pipelines))
        return with_credits(self._network, self._mesh, stages, replicas, cycles, fixed, self._work)
