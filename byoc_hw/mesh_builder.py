"""Builds the programs of a mesh: one C project for each PE of a pipeline, and the manifest that joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.arguments import check_type, check_whole
from byoc_hw.compiler import build, front_end
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.errors import InvalidInput, PlanError, Unsupported
from byoc_hw.frontend.seam import CompiledHost, Model
from byoc_hw.garbage import seldom_collected
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.mesh.built_mesh import MeshProject
from byoc_hw.mesh.code_size import CODE_OF_A_CALL, CODE_OF_A_FUNCTION, PE_CODE, code_owners
from byoc_hw.mesh.host_part import host_part
from byoc_hw.mesh.machine import Coordinates
from byoc_hw.mesh.manifest import MANIFEST, Manifest, ProgramEntry, StageEntry, manifest_of
from byoc_hw.mesh.network import MeshNetwork, network_of
from byoc_hw.mesh.patches import channels_of
from byoc_hw.mesh.pe_program import PePlan
from byoc_hw.mesh.pe_source import channel_buffer_bytes, pe_files, ports_of
from byoc_hw.mesh.pe_stages import program_name, programs_of, stage_label, stages_by_place
from byoc_hw.mesh.plan import Channel, MeshPlan, Stage
from byoc_hw.mesh.stage_check import REFERENCE_PROJECT
from byoc_hw.mesh.stage_plan import StagePlan, plan_stage, workspaces_of
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.params.host_kernels import kernel_call
from byoc_hw.program import ALIGNMENT, HostCall, Program, Workspace, check_mod_name
from byoc_hw.report.explain import Report
from byoc_hw.whole_file import check_directory, write_whole

if TYPE_CHECKING:
    import tvm

Progress = Callable[[str], None]
"""Is told what is being built, a line at a time."""

PROGRAMS = "programs"
_FAR = 1 << 28
"""Where buffers lie that no function of a PE addresses."""


@dataclass(frozen=True)
class _Host:
    """The host of a model: all its functions, and their workspaces."""

    compiled: CompiledHost
    workspaces: tuple[Workspace, ...]


def mesh_network(mod: tvm.IRModule, params: Mapping[str, Any] | None = None) -> MeshNetwork:
    """The nodes of a partitioned module: what a plan for a mesh divides. It compiles the functions of the host.

    Raises `InvalidInput` for a module that was not partitioned, or was for several accelerators.
    """
    model = _open(mod, params)
    return _network(_compiled_host(model, ()))


@seldom_collected()
def build_mesh(
    mod: tvm.IRModule,
    plan: MeshPlan | Sequence[Stage],
    params: Mapping[str, Any] | None = None,
    *,
    output_dir: str | Path,
    data: int | None = None,
    progress: Progress = lambda line: None,
    force: bool = False,
) -> MeshProject:
    """Write the C project of each PE of a pipeline, and the manifest, to a directory; and compile what has changed.

    `plan` is what `pipeline` gives, or stages over the nodes of `mesh_network(mod, params)`: then there is one
    pipeline, at the stages' own places or in a row, and channels hold two frames. `data` is the room of a PE in bytes
    for weights, activations and the buffers of channels: by default that of the plan's mesh.

    Raises `PlanError` for stages that do not compute the model once, and for programs that do not fit `data`: before
    any file is written.
    """
    check_type("output_dir", output_dir, str | Path, "a path")
    model = _open(mod, params)
    wanted = _wanted(plan, data, model)
    programs = programs_of(wanted.places)
    for number in range(len(programs)):
        check_mod_name(program_name(model.mod_name, number))
    host = _compiled_host(model, ())
    network = _network(host)
    channels = _channels(network, wanted.stages, wanted.channels)
    planned = []
    for number, stages in enumerate(programs):
        name = program_name(model.mod_name, number)
        progress(f"plan {number + 1} of {len(programs)}: {name}")
        planned.append(_planned(name, stages, model, network, wanted, channels))
    if host.workspaces:  # the functions of the host have the offsets of their workspaces in their code
        host = _compiled_host(model, planned)
    for one in planned:
        _check_memory(one, wanted)
    _check_code(planned, channels, wanted.code)
    projects = []
    for one in planned:
        parts = _parts(model, one, host)
        stages_of_pe = {number: plan.stage for number, plan in one.stages.items()}
        projects.append(project_files(parts, pe_files(network, one.program, stages_of_pe, channels, parts.tiled)))
    manifest = _manifest(network, wanted.stages, channels, planned, wanted.places)
    directory = Path(output_dir)
    check_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    progress("plan the whole model, for comparisons")
    try:
        build(mod, params, output_dir=directory / REFERENCE_PROJECT, force=force)
    except PlanError as error:
        progress(f"the whole model does not fit one accelerator, so there are no comparisons: {error}")
    return _written(directory, manifest, projects, progress, force)


@dataclass(frozen=True)
class _Wanted:
    """What is to be built: stages, their channels if they are known, the PEs of each pipeline, the room of a PE."""

    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]
    places: list[list[Coordinates]]
    data: int | None
    code: int | None


def _wanted(plan: MeshPlan | Sequence[Stage], data: int | None, model: Model) -> _Wanted:
    if data is not None:
        check_whole("data", data, 1)
    if not isinstance(plan, MeshPlan):
        check_type("plan", plan, Sequence, "a MeshPlan, or a list of stages")
        stages = tuple(plan)
        return _Wanted(stages, (), _places(stages, ()), data, None)
    if plan.mesh is not None and plan.mesh.pe != model.accelerator:
        label = model.accelerator.label if model.accelerator else "none"
        raise InvalidInput(f"the module is partitioned for the PE of the plan, {plan.mesh.pe.label}: it is for {label}")
    if data is None and plan.mesh is not None:
        data = plan.mesh.data
    code = None if plan.mesh is None else plan.mesh.code
    return _Wanted(plan.stages, plan.channels, _places(plan.stages, plan.replicas), data, code)


def _open(mod: Any, params: Mapping[str, Any] | None) -> Model:
    model = front_end().open_model(mod, params, None)
    if model.accelerator is None:
        raise InvalidInput("a mesh takes a module that partition_for_hwlib made for its PE: got another module")
    if not isinstance(model.accelerator, Accelerator) or model.accelerator.library is not None:
        label = model.accelerator.label
        raise InvalidInput(f"a mesh is of PEs with one accelerator and a HAL each: the module is for {label}")
    return model


def _pe(model: Model) -> Accelerator:
    assert isinstance(model.accelerator, Accelerator), "it was opened so"
    return model.accelerator


def _channels(network: MeshNetwork, stages: Sequence[Stage], given: Sequence[Channel]) -> tuple[Channel, ...]:
    needed = channels_of(network, stages)
    if not given:
        return needed
    plain = [replace(one, credits=2, hops=0) for one in given]
    if sorted(map(repr, plain)) != sorted(map(repr, needed)):
        raise PlanError("the channels are those that the stages need, with credits and hops of their own: they differ")
    return tuple(given)


def _places(stages: Sequence[Stage], replicas: Sequence[Sequence[Coordinates]]) -> list[list[Coordinates]]:
    if not stages:
        raise InvalidInput("a mesh has at least one stage: got none")
    default = [stage.pe or (number, 0) for number, stage in enumerate(stages)]
    places = [list(one) for one in replicas] or [default]
    used: dict[Coordinates, int] = {}
    for number, row in enumerate(places):
        if len(row) != len(stages):
            raise InvalidInput(f"pipeline {number} has a PE for each of {len(stages)} stages: got {len(row)}")
        for place in row:
            if used.setdefault(place, number) != number:
                raise InvalidInput(f"a PE is of one pipeline: PE {place} is of {used[place]} and {number}")
    return places


# ---------------------------------------------------------------- one PE


def _planned(
    name: str,
    numbers: Sequence[int],
    model: Model,
    network: MeshNetwork,
    wanted: _Wanted,
    channels: Sequence[Channel],
) -> PePlan:
    """The plan of a PE with the stages of these numbers: with names of their own if they are several."""
    found = {}
    for number in numbers:
        names = (name,) if len(numbers) == 1 else (f"{name}_{stage_label(number)}", f"stage {number} ")
        stage = stage_program(network, wanted.stages, number, channels, *names)
        buffers = channel_buffer_bytes(stage, number, channels)
        found[number] = plan_stage(stage, _pe(model), network, buffers, wanted.data)
    return PePlan(name, found)


def _check_code(planned: Sequence[PePlan], channels: Sequence[Channel], room: int | None) -> None:
    """Raise `PlanError` for the PE with the most code, if it has more bytes than a PE has room for."""
    if room is None:
        return
    owners = [
        code_owners(
            [(plan.program, plan.regions) for plan in one.plans],
            sum(map(len, ports_of([*one.stages], channels))),
        )
        for one in planned
    ]
    worst = max(range(len(planned)), key=lambda at: sum(owners[at].values()))
    nbytes = sum(owners[worst].values())
    if nbytes <= room:
        return
    listed = ", ".join(f"{each} of {owner}" for owner, each in owners[worst].items() if each)
    # What does not grow with what a stage computes is needed on each PE; a function of the host is on one.
    fixed = PE_CODE + CODE_OF_A_CALL + min(owners[worst]["functions of the host"], CODE_OF_A_FUNCTION)
    wanted = "no number of PEs would do"
    if room > fixed:
        wanted = f"about {ceil_div((nbytes - fixed) * len(planned), room - fixed)} PEs would do"
    name = planned[worst].name
    raise PlanError(f"the code of {name} fits {room} bytes of its PE: it has {nbytes}: {listed}; {wanted}")


def _check_memory(planned: PePlan, wanted: _Wanted) -> None:
    """Raise `PlanError` for a PE whose stages have more bytes than it has room for."""
    if wanted.data is None or planned.nbytes <= wanted.data:
        return
    owners = {
        "constants of regions": sum(one.constants for one in planned.plans),
        "constants of host functions": sum(one.host for one in planned.plans),
        "activations": planned.memory.ram,
        "buffers of channels": sum(one.buffers for one in planned.plans),
    }
    listed = ", ".join(f"{each} of {owner}" for owner, each in owners.items() if each)
    layers = [layer.name for graph in planned.program.regions for layer in graph.layers]
    place = next(
        places[here[0]] for places in wanted.places for here in stages_by_place(places) if here == (*planned.stages,)
    )
    what = f"{planned.name} does not fit PE {place}: {planned.nbytes} bytes of {wanted.data}"
    raise PlanError(f"{what}: {listed}; of {', '.join(layers)}")


# ---------------------------------------------------------------- the host's functions


def _network(host: _Host) -> MeshNetwork:
    """The nodes of a model whose host is compiled."""
    program, source = host.compiled.program, host.compiled.source
    symbols = {call.symbol for call in program.calls if isinstance(call, HostCall)}
    return network_of(program, host.workspaces, {symbol: host_part(source, {symbol})[1] for symbol in symbols})


def _compiled_host(model: Model, planned: Sequence[PePlan]) -> _Host:
    """The host with its workspaces where the PEs that call its functions have them; anywhere apart without PEs."""
    workspaces: list[Workspace] = []

    def place(program: Program, spaces: Sequence[Workspace]) -> Mapping[str, int]:
        workspaces.extend(spaces)
        offsets, at = {}, _FAR
        for call in program.calls:
            for buffer in getattr(call, "arguments", ()):
                if buffer.role == "intermediate" and buffer.name not in offsets:
                    offsets[buffer.name] = at
                    at += round_up(buffer.nbytes, ALIGNMENT)
        for space in spaces:
            offsets[space.name] = at
            at += round_up(space.nbytes, ALIGNMENT)
        stages = {number: plan for one in planned for number, plan in one.stages.items()}
        for number, plan in stages.items():
            offsets |= _offsets_of(plan, spaces, [other for at, other in stages.items() if at != number])
        return offsets

    compiled = model.compile_host(model.graphs(), place, kernel_call)
    return _Host(compiled, tuple(workspaces))


def _offsets_of(planned: StagePlan, spaces: Sequence[Workspace], others: Sequence[StagePlan]) -> dict[str, int]:
    """Where a PE has the workspaces of its host functions, and the buffers between its calls."""
    own = workspaces_of(planned.stage.program, spaces)
    for other in others:
        for space in workspaces_of(other.stage.program, own):
            both = f"{planned.stage.program.name} and {other.stage.program.name}"
            raise Unsupported(f"{both} call functions of the host that share the workspace {space.name}: join them")
    placed = planned.memory.arena.offsets
    return {space.name: placed[space.name] for space in own}


# ---------------------------------------------------------------- the files


def _manifest(
    network: MeshNetwork,
    stages: Sequence[Stage],
    channels: Sequence[Channel],
    planned: Sequence[PePlan],
    places: Sequence[Sequence[Coordinates]],
) -> Manifest:
    def nodes(number: int) -> tuple[str, ...]:
        return tuple(f"{network.nodes[piece.node].name} {piece.box}" for piece in stages[number].pieces)

    programs = [
        ProgramEntry(one.name, f"{PROGRAMS}/{one.name}", tuple(StageEntry(at, nodes(at)) for at in one.stages))
        for one in planned
    ]
    return manifest_of(network, channels, programs, places)


def _parts(model: Model, planned: PePlan, host: _Host) -> Parts:
    symbols = {call.symbol for call in planned.program.calls if isinstance(call, HostCall)}
    source, flash = host_part(host.compiled.source, symbols)
    assert isinstance(model.accelerator, Accelerator)
    numerics = model.numerics or "relay"
    return Parts(
        program=planned.program,
        accelerator=model.accelerator,
        regions={name: plan.placed(planned.memory.scratch[name][1]) for name, plan in planned.regions.items()},
        memory=planned.memory,
        tvm_arena=planned.memory.arena.nbytes,
        host_source=source,
        host_flash=flash,
        numerics=numerics,
        report=Report(planned.program.name, model.accelerator.label, numerics, ()).plain(),
        versions=model.versions,
    )


def _written(
    directory: Path,
    manifest: Manifest,
    projects: Sequence[Mapping[str, str | bytes]],
    progress: Progress,
    force: bool,
) -> MeshProject:
    for entry, files in zip(manifest.programs, projects, strict=True):
        place = directory / entry.directory
        if not _is_there(place, files):
            write_project(place, dict(files), force)
    write_whole(directory / MANIFEST, manifest.to_json().encode())
    project = MeshProject(directory)
    project.build(progress=progress)
    return project


def _is_there(directory: Path, files: Mapping[str, str | bytes]) -> bool:
    """Whether a project is there as it would be written."""
    for name, contents in files.items():
        path = directory / name
        wanted = contents.encode() if isinstance(contents, str) else contents
        if not path.is_file() or path.read_bytes() != wanted:
            return False
    return True
