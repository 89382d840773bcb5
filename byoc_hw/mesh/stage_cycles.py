"""The cycles of stages as the planner of one accelerator has them: with copies that the jobs of a stage do not hide."""

from __future__ import annotations

from dataclasses import replace

from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.plan.region import lay_out_region
from byoc_hw.program import RegionCall


def with_planned_cycles(plan: MeshPlan) -> MeshPlan:
    """The same stages, PEs and channels with the cycles that the program of each stage takes.

    Plans for a mesh are compared by the cycles of jobs, which is quick; this plans each stage once. Functions of the
    host keep their estimate. It is for PEs with a HAL, as are programs of stages.
    """
    mesh, figures = plan.placed
    costs = PieceCosts(plan.network, mesh.pe)
    cycles = []
    for number, stage in enumerate(plan.stages):
        program = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}").program
        graphs = [call.graph for call in program.calls if isinstance(call, RegionCall)]
        of_host = [piece for piece in stage.pieces if plan.network.nodes[piece.node].layer is None]
        regions = sum(lay_out_region(graph, mesh.pe).cycles for graph in graphs)
        cycles.append(regions + sum(map(costs.cycles, of_host)))
    return replace(plan, figures=replace(figures, cycles=tuple(cycles)))
