"""The cycles of stages as the planner of one accelerator has them: with copies that the jobs of a stage do not hide."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.pe_source import buffer_room, channel_buffer_bytes
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.region_parts import divided, quick_layout
from byoc_hw.mesh.stage_program import StageProgram, program_of_pieces, stage_program
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.search.measured import layer_sizes
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
        room = mesh.data - channel_buffer_bytes(one, number, plan.channels)
        shape = room, *map(graph_sizes, program.regions)
        if shape not in known:
            layouts = [lay_out_region(graph, mesh.pe) for graph in program.regions]
            known[shape] = sum(layout.cycles for layout in fitting(program, layouts, room))
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


_PLANNED, _PES_A_LAYER = 400, 8
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
        self._layouts: dict[Hashable, Layout] = {}
        self.left = most_layers

    def has_room_for(self, stages: Sequence[Sequence[NodePiece]], times: int = 1) -> bool:
        """Whether stages of so many pieces may still be planned, so many times."""
        return self.left >= times * sum(map(len, stages))

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
        program = divided(stage, self._costs.accelerator, self._lay_out).program
        layouts = [self._lay_out(graph, self._costs.accelerator) for graph in program.regions]
        sent = OUTPUT_BUFFERS * sum(map(buffer_room, program.outputs))
        received = sum(map(buffer_room, program.inputs))
        lean = fitting(program, layouts, self._room - sent - slots * received)
        if lean != layouts:
            self.left -= sum(len(graph.layers) for graph in program.regions)
        return StageFigures(cycles + sum(one.cycles for one in lean), held_bytes(program, lean) + sent, received)

    def _lay_out(self, graph: Graph, accelerator: Accelerator) -> Layout:
        """A region of the same sizes as this one: each is laid out once."""
        sizes = graph_sizes(graph)
        if sizes not in self._layouts:
            self._layouts[sizes] = quick_layout(graph, accelerator)
        return self._layouts[sizes]


def fitting(program: Program, layouts: list[Layout], room: int) -> list[Layout]:
    """These plans of a program's regions; if the program has more than `room` bytes beside its buffers for channels,
    the fastest ones that are found with less scratch, where it then fits."""
    scratch = max(map(_scratch, layouts), default=0) + room - held_bytes(program, layouts)
    if scratch < 0 or all(_scratch(one) <= scratch for one in layouts):
        return layouts
    lean = [one if _scratch(one) <= scratch else _with_scratch(one, scratch) for one in layouts]
    found = [one for one in lean if one is not None]
    return found if len(found) == len(layouts) and held_bytes(program, found) <= room else layouts


def _with_scratch(layout: Layout, most: int) -> Layout | None:
    found = SizedPlans(layout.mapped.graph, layout.mapped.accelerator, Border({}, {})).within(most)
    return None if found is None else found.layout


def _scratch(layout: Layout) -> int:
    return without_constants(layout).scratch_bytes


def held_bytes(program: Program, layouts: Sequence[Layout]) -> int:
    """The bytes of a program with these plans of its regions: constants, scratch, and what lies between calls."""
    between = {
        buffer.name: buffer.nbytes
        for call in program.calls
        if isinstance(call, RegionCall | HostCall)
        for buffer in call.arguments
        if buffer.role == "intermediate"
    }
    scratch = max(map(_scratch, layouts), default=0)
    return sum(one.flash.nbytes for one in layouts) + scratch + sum(between.values())
