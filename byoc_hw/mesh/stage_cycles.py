"""The cycles and bytes of stages by the planner of one accelerator: with copies that jobs do not hide."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.mesh.code_size import CODE_OF_A_PORT, PE_CODE, stage_code_owners
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.pe_source import buffer_room, channel_buffer_bytes
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import MeshPlan, Patch, Stage
from byoc_hw.mesh.stage_plan import plan_stage
from byoc_hw.mesh.stage_program import StageProgram, program_of_pieces, stage_program
from byoc_hw.plan.array.alike_layer import layer_sizes
from byoc_hw.plan.planned import table_bytes
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.search.within import Border, SizedPlans
from byoc_hw.plan.stages import Layout, without_constants
from byoc_hw.program import HostCall, Program, RegionCall

_ANY = float("inf")
"""The cycles of a region that are taken at once."""


def with_planned_cycles(plan: MeshPlan) -> MeshPlan:
    """The same stages, PEs and channels with the cycles that the program of each stage takes, to the cycle, and its
    bytes, both as `build_mesh` has them.

    Functions of the host keep their estimate. It is for PEs with a HAL, as are programs of stages.
    """
    mesh, figures = plan.placed
    costs = PieceCosts(plan.network, mesh.pe)
    known: dict[Hashable, tuple[int, int, int]] = {}
    cycles, nbytes, arenas = [], [], []
    for number, stage in enumerate(plan.stages):
        one = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}")
        buffers = channel_buffer_bytes(one, number, plan.channels)
        shape = buffers, *_sizes_of_calls(one.program)
        if shape not in known:
            built = plan_stage(one, mesh.pe, plan.network, buffers, mesh.data)
            known[shape] = built.cycles(mesh.pe), built.nbytes, built.arena
        cycles.append(known[shape][0] + _host_cycles(costs, stage.pieces))
        nbytes.append(known[shape][1])
        arenas.append(known[shape][2])
    sizes = replace(figures, cycles=tuple(cycles), nbytes=tuple(nbytes), arenas=tuple(arenas))
    return replace(plan, figures=replace(sizes, planned=True, period=0)).simulated()


def _host_cycles(costs: PieceCosts, pieces: Sequence[NodePiece]) -> int:
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


def _sizes_of_calls(program: Program) -> tuple[Hashable, ...]:
    return tuple(
        graph_sizes(call.graph) if isinstance(call, RegionCall) else getattr(call, "symbol", None)
        for call in program.calls
    )


_PLANNED, _PLANNED_A_PE, _PES_A_LAYER = 1100, 100, 4
"""The work of planning stages, in layers that are planned quickly: so many, or so many for a PE if these are fewer; and
one more for so many PEs."""

_BUILT = 12
"""About how many layers are planned quickly while one is planned as `build_mesh` does."""


def stages_in_full(costs: PieceCosts, mesh: Mesh) -> StageCycles | None:
    """What plans the stages of a network on a mesh; None for PEs without tiles to plan."""
    count = len(mesh.alive)
    most = min(_PLANNED, _PLANNED_A_PE * count) + count // _PES_A_LAYER
    return None if mesh.pe.library is not None else StageCycles(costs, most, mesh.data)


@dataclass(frozen=True)
class StageFigures:
    """A stage as it is planned: its cycles, the bytes of its PE without what it receives, those of one frame that it
    receives, the bytes of its code and tables, but for its ports and for what each PE has, the least number of its
    ports, and how many of its bytes are its arena, which the stages of a PE share; 0 if that is not known."""

    cycles: int
    fixed: int
    received: int
    code: int = 0
    ports: int = 0
    arena: int = 0

    @property
    def code_alone(self) -> int:
        """The least bytes of code of a PE with this stage only."""
        return PE_CODE + self.code + CODE_OF_A_PORT * self.ports

    def nbytes(self, slots: int) -> int:
        """Its bytes with so many frames of what it receives."""
        return self.fixed + slots * self.received


def why_no_room(figures: StageFigures, mesh: Mesh) -> str:
    """What a stage that does not fit its PE alone should fit, and what it has."""
    if not figures.fixed:
        return "the PE's local memories: no plan of it does"
    if figures.nbytes(1) > mesh.data:
        return f"the {mesh.data} bytes of a PE for data: it has {figures.nbytes(1)}"
    return f"the {mesh.code} bytes of a PE for code: it has {figures.code_alone}"


def sharpened(
    quick: Sequence[StageFigures], built: Callable[[int], StageFigures | None], enough: float = _ANY
) -> tuple[StageFigures, ...]:
    """Figures of stages, where the longest one, and each that was longer when it was planned quickly, is as it is
    built. `built` has the figures of a stage by its number; None where no more stages are planned. One with `enough`
    cycles ends it as well."""
    found, seen = list(quick), set[int]()
    while True:
        worst = max(range(len(found)), key=lambda at: found[at].cycles)
        figures = None if worst in seen else built(worst)
        if figures is None:
            return tuple(found)
        found[worst] = figures
        seen.add(worst)
        if figures.cycles >= enough:
            return tuple(found)


class StageCycles:
    """The figures of stages that are planned, so that they fit `room` bytes if they can. Stages of the same sizes are
    planned once.

    `of` has the first plan that can be carried out; `built` takes longer, and has the plan that `build_mesh` writes,
    which has fewer cycles as a rule. `left` is the work that may still be done, in layers that are planned quickly: it
    is for the caller to heed.
    """

    def __init__(self, costs: PieceCosts, most_layers: int, room: int) -> None:
        self._costs, self._room = costs, room
        self._known: dict[Hashable, StageFigures | None] = {}
        self._layouts: dict[Hashable, _Sized] = {}
        self.left = most_layers

    def of(
        self, pieces: Sequence[NodePiece], leaving: Callable[[str, Patch], Patch | None], slots: int = 1
    ) -> StageFigures | None:
        """The figures of a stage of these pieces; None where it cannot be planned. `leaving` has what anything else
        reads of a patch that it makes, `slots` is the frames that it has of what it receives."""
        return self._figures(pieces, leaving, slots, self._planned, 1)

    def built(
        self, pieces: Sequence[NodePiece], leaving: Callable[[str, Patch], Patch | None], slots: int = 1
    ) -> StageFigures | None:
        """As `of`, for the plan of the stage that `build_mesh` writes."""
        return self._figures(pieces, leaving, slots, self._built, _BUILT)

    def _figures(
        self,
        pieces: Sequence[NodePiece],
        leaving: Callable[[str, Patch], Patch | None],
        slots: int,
        plan: Callable[[StageProgram, int], StageFigures],
        price: int,
    ) -> StageFigures | None:
        stage = program_of_pieces(self._costs.network, Stage(tuple(pieces)), leaving, "stage")
        shape = price, slots, *_sizes_of_calls(stage.program)
        if shape not in self._known:
            self.left -= price * sum(len(graph.layers) for graph in stage.program.regions)
            try:
                found = plan(stage, slots)
                self._known[shape] = replace(found, cycles=found.cycles + _host_cycles(self._costs, pieces))
            except PlanError:  # no plan fits the local memory
                self._known[shape] = None
        return self._known[shape]

    def _built(self, stage: StageProgram, slots: int) -> StageFigures:
        accelerator, network = self._costs.accelerator, self._costs.network
        sent, received = _buffers(stage.program)
        found = plan_stage(stage, accelerator, network, sent + slots * received, self._room)
        fixed = found.nbytes - slots * received
        return StageFigures(found.cycles(accelerator), fixed, received, found.code, _ports(stage.program), found.arena)

    def _planned(self, stage: StageProgram, slots: int) -> StageFigures:
        layouts = [self._lay_out(graph) for graph in stage.program.regions]
        sent, received = _buffers(stage.program)
        sent += self._costs.network.constants_of(stage.program)
        lean = _fitting(stage.program, layouts, self._room - sent - slots * received)
        code = sum(stage_code_owners(stage.program, sum(one.tables for one in lean)).values())
        constants, arena = sum(one.layout.flash.nbytes for one in lean), _arena_bytes(stage.program, lean)
        cycles = sum(one.layout.cycles for one in lean)
        return StageFigures(cycles, constants + arena + sent, received, code, _ports(stage.program), arena)

    def _lay_out(self, graph: Graph) -> _Sized:
        """The first layout of a region of the same sizes as this one that can be carried out."""
        sizes = graph_sizes(graph)
        if sizes not in self._layouts:
            self._layouts[sizes] = _sized(best_layout(graph, self._costs.accelerator, _ANY, _ANY))
        return self._layouts[sizes]


def _ports(program: Program) -> int:
    """The least number of ports of a program: one for each of what it receives and sends."""
    return len(program.inputs) + len(program.outputs)


def _buffers(program: Program) -> tuple[int, int]:
    """The bytes of the buffers for what a program sends, and of one frame of what it receives."""
    sent, received = (sum(buffer_room(one.nbytes) for one in ends) for ends in (program.outputs, program.inputs))
    return OUTPUT_BUFFERS * sent, received


@dataclass(frozen=True, eq=False)
class _Sized:
    """The layout of a region, and the bytes of its scratch and of its tables."""

    layout: Layout
    scratch: int
    tables: int


def _sized(layout: Layout) -> _Sized:
    plan = without_constants(layout)
    return _Sized(layout, plan.scratch_bytes, table_bytes(plan))


def _fitting(program: Program, layouts: list[_Sized], room: int) -> list[_Sized]:
    """These plans of a program's regions; if the program has more than `room` bytes beside its buffers for channels,
    the fastest ones that are found with less scratch, where it then fits."""
    constants = sum(one.layout.flash.nbytes for one in layouts)
    scratch = max((one.scratch for one in layouts), default=0) + room - constants - _arena_bytes(program, layouts)
    if scratch < 0 or all(one.scratch <= scratch for one in layouts):
        return layouts
    lean = [one if one.scratch <= scratch else _with_scratch(one.layout, scratch) for one in layouts]
    found = [one for one in lean if one is not None]
    if len(found) < len(layouts):
        return layouts
    held = sum(one.layout.flash.nbytes for one in found) + _arena_bytes(program, found)
    return found if held <= room else layouts


def _with_scratch(layout: Layout, most: int) -> _Sized | None:
    found = SizedPlans(layout.mapped.graph, layout.mapped.accelerator, Border({}, {})).within(most)
    return None if found is None else _sized(found.layout)


def _arena_bytes(program: Program, layouts: Sequence[_Sized]) -> int:
    """The bytes of a program's arena with these plans of its regions: scratch, and what lies between calls."""
    between = {
        buffer.name: buffer.nbytes
        for call in program.calls
        if isinstance(call, RegionCall | HostCall)
        for buffer in call.arguments
        if buffer.role == "intermediate"
    }
    scratch = max((one.scratch for one in layouts), default=0)
    return scratch + sum(between.values())
