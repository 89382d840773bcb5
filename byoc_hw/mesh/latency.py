"""One inference as early as possible: every layer is cut over many PEs, which take one layer after the other."""

from __future__ import annotations

from byoc_hw.errors import PlanError
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.machine import Coordinates, Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.placing import with_credits
from byoc_hw.mesh.plan import MeshPlan, Stage
from byoc_hw.mesh.stages import StageCutter
from byoc_hw.mesh.units import Units, UnitWays


def latency_plan(network: MeshNetwork, mesh: Mesh) -> MeshPlan:
    """The plan whose single inference ends first, of those with each layer over at most 1, 2, 4, 8 ... PEs.

    More PEs are tried until twice in a row they do not help. A PE has a stage for each layer that it computes a part
    of: they take turns. Where parts would be smaller than what the array computes at a time, a layer is on fewer PEs.
    Raises `PlanError` where no number of PEs holds the network.
    """
    costs = PieceCosts(network, mesh.pe)
    best: MeshPlan | None = None
    worse, count = 0, 1
    while count <= len(mesh.alive) and worse < 2:
        plan = _over(costs, mesh, count)
        if plan is not None and (best is None or plan.latency < best.latency):
            best, worse = plan, 0
        elif best is not None:
            worse += 1
        count *= 2
    if best is None:
        raise PlanError(
            f"{network.name}: weights, activations and buffers of its layers, cut over at most {len(mesh.alive)} PEs, "
            f"fit {mesh.data} bytes of each: they do not"
        )
    return best


def _over(costs: PieceCosts, mesh: Mesh, count: int) -> MeshPlan | None:
    """The plan with each layer over at most `count` PEs; None if it does not fit."""
    network = costs.network
    units: list[NodePiece] = []
    places: list[Coordinates] = []
    cut = Units(costs, UnitWays(), 1, mesh.data)
    for number in range(len(network.nodes)):
        parts = cut.parts_of(number, count)
        units += parts
        places += mesh.alive[: len(parts)]
    cutter = StageCutter(costs, units, mesh, slots=1)
    fixed = [cutter.nbytes(at, at + 1).total(0) for at in range(len(units))]
    cycles = [costs.cycles(unit) for unit in units]
    stages = [Stage(cutter.pieces(at, at + 1)) for at in range(len(units))]
    return with_credits(network, mesh, stages, [tuple(places)], cycles, fixed, costs.work(), "latency")
