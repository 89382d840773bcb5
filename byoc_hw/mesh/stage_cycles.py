"""The cycles of stages as the planner of one accelerator has them: with copies that the jobs of a stage do not hide."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.pe_source import buffer_room
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.region_parts import divided
from byoc_hw.mesh.stage_program import StageProgram, program_of_pieces, stage_program
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.search.measured import layer_sizes
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.search.within import Border, SizedPlans
from byoc_hw.plan.stages import Layout, without_constants
from byoc_hw.program import HostCall, Program, RegionCall


def with_planned_cycles(plan: MeshPlan) -> MeshPlan:
    """The same stages, PEs and channels with the cycles that the program of each stage takes, to the cycle.

    Functions of the host keep their estimate. It is for PEs with a HAL, as are programs of stages.
    """
    mesh, figures = plan.placed
    costs = PieceCosts(plan.network, mesh.pe)
    known: dict[Hashable, int] = {}
    cycles = []
    for number, stage in enumerate(plan.stages):
        one = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}")
        program = divided(one, mesh.pe).program
        graphs = [call.graph for call in program.calls if isinstance(call, RegionCall)]
        shape = tuple(map(graph_sizes, graphs))
        if shape not in known:
            known[shape] = sum(lay_out_region(graph, mesh.pe).cycles for graph in graphs)
        cycles.append(known[shape] + host_cycles(costs, stage.pieces))
    return replace(plan, figures=replace(figures, cycles=tuple(cycles), planned=True))


def host_cycles(costs: PieceCosts, pieces: Sequence[NodePiece]) -> int:
    """The cycles of the functions of the host among some pieces."""
    return sum(costs.cycles(piece) for piece in pieces if costs.network.nodes[piece.node].layer is None)


def graph_sizes(graph: Graph) -> Hashable:
    """A graph without names and values: what its plan depends on."""
    numbers = {tensor: at for at, tensor in enumerate(graph.tensors)}
    ends = tuple(tuple(numbers[tensor] for tensor in side) for side in (graph.inputs, graph.outputs))
    layers = tuple(
        (layer_sizes(layer), numbers[layer.ofm], *(numbers.get(tensor) for tensor in layer.inputs))
        for layer in graph.layers
    )
    return ends, layers


_PLANNED, _PES_A_LAYER = 300, 8
"""Layers of stages that are planned in full: so many, and one more for so many PEs."""


def stages_in_full(costs: PieceCosts, mesh: Mesh) -> StageCycles | None:
    """What plans the stages of a network on a mesh; None for PEs without tiles to plan."""
    most = _PLANNED + len(mesh.alive) // _PES_A_LAYER
    return None if mesh.pe.library is not None else StageCycles(costs, most, mesh.data)


@dataclass(frozen=True)
class StageFigures:
    """A stage as it is planned: its cycles, the bytes of its PE without what it receives, and those of one frame that
    it receives."""

    cycles: int
    fixed: int
    received: int

    def nbytes(self, slots: int) -> int:
        """Its bytes with so many frames of what it receives."""
        return self.fixed + slots * self.received


class StageCycles:
    """The figures of stages by the planner's own choices: of stages that do not fit `room` bytes so, with less scratch.
    Stages of the same sizes are planned once.

    `left` is the number of layers that may still be planned.
    """

    def __init__(self, costs: PieceCosts, most_layers: int, room: int) -> None:
        self._costs, self._room = costs, room
        self._known: dict[Hashable, StageFigures | None] = {}
        self.left = most_layers

    def has_room_for(self, stages: Sequence[Sequence[NodePiece]]) -> bool:
        """Whether stages of so many pieces may still be planned."""
        return self.left >= sum(map(len, stages))

    def of(
        self, pieces: Sequence[NodePiece], leaving: Callable[[str, Patch], Patch | None], slots: int = 1
    ) -> StageFigures | None:
        """The figures of a stage of these pieces; None where it cannot be planned. `leaving` has what anything else
        reads of a patch that it makes, `slots` is the frames that it has of what it receives."""
        stage = program_of_pieces(self._costs.network, Stage(tuple(pieces)), leaving, "stage")
        calls = stage.program.calls
        shape = (
            slots,
            *(
                graph_sizes(call.graph) if isinstance(call, RegionCall) else getattr(call, "symbol", None)
                for call in calls
            ),
        )
        if shape not in self._known:
            self.left -= sum(len(graph.layers) for graph in stage.program.regions)
            try:
                self._known[shape] = self._planned(stage, host_cycles(self._costs, pieces), slots)
            except PlanError:  # no plan fits the local memory
                self._known[shape] = None
        return self._known[shape]

    def _planned(self, stage: StageProgram, cycles: int, slots: int) -> StageFigures:
        program = divided(stage, self._costs.accelerator).program
        layouts = [best_layout(graph, self._costs.accelerator) for graph in program.regions]
        found = _figures(program, layouts, cycles)
        scratch = max(map(_scratch, layouts), default=0) + self._room - found.nbytes(slots)
        if scratch < 0 or found.nbytes(slots) <= self._room:
            return found
        self.left -= sum(len(graph.layers) for graph in program.regions)
        lean = [one if _scratch(one) <= scratch else with_scratch(one, scratch) for one in layouts]
        fitting = [one for one in lean if one is not None]
        return _figures(program, fitting, cycles) if len(fitting) == len(layouts) else found


def with_scratch(layout: Layout, most: int) -> Layout | None:
    """The fastest plan that is found of the same region with at most so many bytes of scratch, or None."""
    nothing = Border({}, {})
    found = SizedPlans(layout.mapped.graph, layout.mapped.accelerator, nothing).within(most)
    return None if found is None else found.layout


def _scratch(layout: Layout) -> int:
    return without_constants(layout).scratch_bytes


def _figures(program: Program, layouts: Sequence[Layout], cycles: int) -> StageFigures:
    """The figures of a program with these plans of its regions, and so many cycles of the host."""
    between = {
        buffer.name: buffer.nbytes
        for call in program.calls
        if isinstance(call, RegionCall | HostCall)
        for buffer in call.arguments
        if buffer.role == "intermediate"
    }
    scratch = max(map(_scratch, layouts), default=0)
    held = sum(one.flash.nbytes for one in layouts) + scratch + sum(between.values())
    return StageFigures(
        cycles + sum(one.cycles for one in layouts),
        held + OUTPUT_BUFFERS * sum(map(buffer_room, program.outputs)),
        sum(map(buffer_room, program.inputs)),
    )
