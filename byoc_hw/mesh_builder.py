"""Builds the programs of a mesh: one C project for each stage of a plan, and the manifest that joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import Accelerator
from byoc_hw.arguments import check_type, check_whole
from byoc_hw.compiler import build, front_end
from byoc_hw.emit.files import Parts, project_files, write_project
from byoc_hw.errors import InvalidInput, PlanError, Unsupported
from byoc_hw.frontend.seam import CompiledHost, Model
from byoc_hw.garbage import seldom_collected
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.mesh.built_mesh import MeshProject
from byoc_hw.mesh.code_size import CODE_OF_A_CALL, PE_CODE, code_owners
from byoc_hw.mesh.host_part import host_part
from byoc_hw.mesh.machine import Coordinates
from byoc_hw.mesh.manifest import MANIFEST, Manifest, ProgramEntry, manifest_of
from byoc_hw.mesh.network import MeshNetwork, network_of
from byoc_hw.mesh.patches import channels_of
from byoc_hw.mesh.pe_source import channel_buffer_bytes, pe_files, ports_of
from byoc_hw.mesh.placing import stages_by_place
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
    """Write the C project of each stage, and the manifest, to a directory; and compile what has changed.

    `plan` is what `pipeline` gives, or stages over the nodes of `mesh_network(mod, params)`: then there is one
    pipeline, at the stages' own places or in a row, and channels hold two frames. `data` is the room of a PE in bytes
    for weights, activations and the buffers of channels: by default that of the plan's mesh.

    Raises `PlanError` for stages that do not compute the model once, and for programs that do not fit `data`: before
    any file is written.
    """
    check_type("output_dir", output_dir, str | Path, "a path")
    model = _open(mod, params)
    wanted = _wanted(plan, data, model)
    stages, names = wanted.stages, [f"{model.mod_name}_pe{number}" for number in range(len(wanted.stages))]
    for name in names:
        check_mod_name(name)
    host = _compiled_host(model, ())
    network = _network(host)
    channels = _channels(network, stages, wanted.channels)
    planned = []
    for number, name in enumerate(names):
        progress(f"plan {number + 1} of {len(names)}: {name}")
        stage = stage_program(network, stages, number, channels, name)
        buffers = channel_buffer_bytes(stage, number, channels)
        planned.append(plan_stage(stage, _pe(model), network, buffers, wanted.data))
    if host.workspaces:  # the functions of the host have the offsets of their workspaces in their code
        host = _compiled_host(model, planned)
    for here in stages_by_place(wanted.places[0]):
        _check_memory(wanted.places[0][here[0]], [planned[number] for number in here], wanted.data)
    _check_code(planned, wanted.places[0], channels, wanted.code)
    projects = []
    for number, one in enumerate(planned):
        parts = _parts(model, one, host)
        projects.append(project_files(parts, pe_files(network, one.stage, number, channels, parts.tiled)))
    manifest = _manifest(network, stages, channels, names, wanted.places)
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
    if not isinstance(model.accelerator, Accelerator) or model.accelerator.library is not None:
        what = "none" if model.accelerator is None else model.accelerator.label
        raise InvalidInput(f"a mesh is of PEs with one accelerator and a HAL each: the module is for {what}")
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


def _check_code(
    planned: Sequence[StagePlan], places: Sequence[Coordinates], channels: Sequence[Channel], room: int | None
) -> None:
    """Raise `PlanError` for the PE with the most code, if it has more bytes than a PE has room for."""
    if room is None:
        return
    pes = stages_by_place(places)
    owners = [
        code_owners(
            [(planned[number].program, planned[number].regions) for number in here],
            sum(len(ports) for number in here for ports in ports_of(number, channels)),
        )
        for here in pes
    ]
    worst = max(range(len(pes)), key=lambda at: sum(owners[at].values()))
    nbytes = sum(owners[worst].values())
    if nbytes <= room:
        return
    listed = ", ".join(f"{each} of {owner}" for owner, each in owners[worst].items() if each)
    names = ", ".join(planned[number].program.name for number in pes[worst])
    # What does not grow with what a stage computes is needed on each PE.
    fixed = PE_CODE + CODE_OF_A_CALL
    wanted = "no number of PEs would do"
    if room > fixed:
        wanted = f"about {ceil_div((nbytes - fixed) * len(pes), room - fixed)} PEs would do"
    raise PlanError(f"the code of {names} fits {room} bytes of its PE: it has {nbytes}: {listed}; {wanted}")


def _check_memory(place: Coordinates, planned: Sequence[StagePlan], data: int | None) -> None:
    """Raise `PlanError` for a PE whose stages have more than `data` bytes."""
    nbytes = sum(one.nbytes for one in planned)
    if data is None or nbytes <= data:
        return
    owners = {
        "constants of regions": sum(one.constants for one in planned),
        "constants of host functions": sum(one.host for one in planned),
        "activations": sum(one.memory.ram for one in planned),
        "buffers of channels": sum(one.buffers for one in planned),
    }
    listed = ", ".join(f"{each} of {owner}" for owner, each in owners.items() if each)
    names = ", ".join(one.program.name for one in planned)
    layers = [layer.name for one in planned for graph in one.stage.program.regions for layer in graph.layers]
    verb = "does" if len(planned) == 1 else "do"
    raise PlanError(f"{names} {verb} not fit PE {place}: {nbytes} bytes of {data}: {listed}; of {', '.join(layers)}")


# ---------------------------------------------------------------- the host's functions


def _network(host: _Host) -> MeshNetwork:
    """The nodes of a model whose host is compiled."""
    program, source = host.compiled.program, host.compiled.source
    symbols = {call.symbol for call in program.calls if isinstance(call, HostCall)}
    return network_of(program, host.workspaces, {symbol: host_part(source, {symbol})[1] for symbol in symbols})


def _compiled_host(model: Model, planned: Sequence[StagePlan]) -> _Host:
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
        for one in planned:
            offsets |= _offsets_of(one, spaces, [other for other in planned if other is not one])
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
    names: Sequence[str],
    places: Sequence[Sequence[Coordinates]],
) -> Manifest:
    programs = [
        ProgramEntry(
            name, f"{PROGRAMS}/{name}", tuple(f"{network.nodes[one.node].name} {one.box}" for one in stage.pieces)
        )
        for name, stage in zip(names, stages, strict=True)
    ]
    return manifest_of(network, stages, channels, programs, places)


def _parts(model: Model, planned: StagePlan, host: _Host) -> Parts:
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
