"""Compiles a module to a C project. Connects the packages, as do `tuner.py`, `project.py` and the checks.

It does not import TVM: the front end does, at its first use. A built project thus runs on a machine without TVM.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_flag, check_type
from byoc_hw.emit.files import Parts, project_files, write_project
from byoc_hw.emit.region import region_source
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.frontend.seam import Backend, CompiledHost, FrontEnd, Model
from byoc_hw.graph import Graph
from byoc_hw.overlap import overlapped
from byoc_hw.params.host_kernels import kernel_call
from byoc_hw.pattern import Outcome
from byoc_hw.plan.place.arena import ModelMemory, check_budget, check_ram, place_model
from byoc_hw.plan.planned import PlannedRegion, flash_by_layer, flash_bytes
from byoc_hw.plan.region import plan_region, why_no_plan
from byoc_hw.plan.tune.rounds import TunedRegion
from byoc_hw.program import ALIGNMENT, Program, Workspace
from byoc_hw.project import Project
from byoc_hw.report.explain import Report
from byoc_hw.tuning import Tuning

if TYPE_CHECKING:
    import tvm

# ---------------------------------------------------------------- front ends


def front_end() -> FrontEnd:
    """The front end: Relay's."""
    from byoc_hw.frontend.relay import front_end as relay

    return relay


def register_with_tvm() -> None:
    """Register the compiler name `hwlib` with TVM, if installed: TVM looks up the pattern table by this name."""
    if importlib.util.find_spec("tvm") is not None:
        front_end().register(REFERENCE.name, BACKEND)


def _region_source(graph: Graph, accelerator: Accelerator) -> str:
    return region_source(plan_region(graph, accelerator), accelerator)


BACKEND = Backend(why_no_plan, _region_source)


def load_tflite(path: str | Path) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Read a .tflite file: a module and its weights by name.

    Raises `InvalidInput` for a file that cannot be read, is no TFLite model, or holds an operator that
    TVM's importer does not support.
    """
    check_type("path", path, str | Path, "a path")
    return front_end().load_tflite(path)


def pattern_table(compiler: str = "hwlib") -> Sequence[tuple[str, Any, Callable[[Any], bool]]]:
    """The live pattern table of a compiler name, the same that TVM's `get_pattern_table(compiler)` gives.

    Entries are (composite name, dataflow pattern, check). `InvalidInput` for a compiler that no
    accelerator of this process has.
    """
    return front_end().pattern_table(compiler)


# ---------------------------------------------------------------- partition, explain


def partition_for_hwlib(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    *,
    accelerator: Accelerator = REFERENCE,
    numerics: str = "relay",
    deny: Iterable[str] = (),
    **opts: object,
) -> tvm.IRModule:
    """Partition a Relay module for an accelerator.

    Supported operators move to external functions `tvmgen_<mod_name>_<accelerator>_main_<n>` of the
    compiler `accelerator.name`; everything else is unchanged. `params` are the weights by
    name, as a front end of TVM returns them. `deny` names composites, or operators of the model
    file, that stay on the host. The module records accelerator, numerics and mod_name for `build`.

    `numerics` is the arithmetic of offloaded layers. "relay" is TVM's own, bit for bit. "tflite" is
    that of TFLite's reference integer kernels, for the results of TFLite itself; TVM's import of a TFLite
    model rounds differently. Host operators use TVM's arithmetic in either case.

    Raises `InvalidInput` for a module without `main` or one that is already partitioned, for a
    `mod_name` that is no C identifier, for numerics or options that do not exist, for numerics whose
    rounding the accelerator lacks, and for a name in `deny` that the model and the pattern table do
    not have.
    """
    if opts:
        raise InvalidInput(f"options are accelerator, numerics, deny: got {', '.join(opts)}")
    return front_end().partition(
        mod, params, mod_name, accelerator=accelerator, numerics=numerics, deny=deny, backend=BACKEND
    )


def explain(mod_or_project: tvm.IRModule | Project) -> Report:
    """Where each operator of the model file runs, and why those on the host were not offloaded.

    Takes what `partition_for_hwlib` or `build` returned; prints as text, shows as a table in a
    notebook, and has `to_json()`. `InvalidInput` for a module that was not partitioned.
    """
    if isinstance(mod_or_project, Project):
        return mod_or_project.report
    found = front_end().partitioned(mod_or_project)
    if found is None:
        raise InvalidInput("explain takes a module that partition_for_hwlib made, or a Project: got another module")
    return Report(found.mod_name, found.label, found.numerics, found.outcomes)


def explain_tflite(
    path: str | Path, *, accelerator: Accelerator = REFERENCE, numerics: str = "relay", deny: Iterable[str] = ()
) -> Report:
    """Where each operator of a .tflite file runs, also of a file that cannot be imported as a whole.

    For each operator that stops TVM's importer, the report has the reason, in place of a run; the others are
    reported as for a model that ends where such an operator begins and goes on behind it. `accelerator`,
    `numerics` and `deny` are those of `partition_for_hwlib`. Raises `InvalidInput` for a file that cannot be read
    or is damaged.
    """
    imported, operators, stops = front_end().importable_tflite(path)
    found: tuple[Outcome, ...] = ()
    if imported is not None:
        here = [name for name in deny if name not in {stop.name for stop in stops}]
        mod = partition_for_hwlib(*imported, accelerator=accelerator, numerics=numerics, deny=here)
        if not stops:
            return explain(mod)
        found = explain(mod).outcomes
    place = {name: number for number, name in enumerate(operators)}
    outcomes = sorted([*found, *stops], key=lambda outcome: place.get(outcome.name, len(place)))
    return Report("default", accelerator.label, numerics, tuple(outcomes))


def region_graphs(mod: tvm.IRModule) -> dict[str, Graph]:
    """The regions of a partitioned module by C symbol, as `build` plans them."""
    return front_end().open_model(mod, None, None).graphs()


# ---------------------------------------------------------------- build


def build(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    mod_name: str | None = None,
    output_dir: str | Path | None = None,
    io_in_arena: bool = False,
    tuning: Tuning | str | Path | None = None,
    force: bool = False,
) -> Project:
    """Compile a Relay module to a self-contained C project.

    A module that `partition_for_hwlib` made runs its regions on the accelerator that it records. Any
    other module runs on the host alone: the CPU-only baseline. `params` are weights by name that the
    module does not hold yet. `mod_name` (default: the one that the module records, or "default")
    is the prefix of every C name. `output_dir` is new, empty or an earlier project; by default a
    temporary directory that is deleted with the `Project`. With `io_in_arena` the model's inputs and
    outputs are in the arena, and the header has a function for the address of each. An input's bytes
    are reused after its last reader, so it must be filled before each run. A `tuning`, or the file that
    holds one, has the plans of the tuned regions; the report says how many regions are tuned.

    An earlier project is replaced as a whole, or not at all. Your own files and the build directories in it stay. So
    do files of `app/` that you have edited, and other edited files that the new project would write as the old one
    did: `Project.changed` names them, and `force` replaces them.

    Nothing is written before everything is compiled. Raises `InvalidInput` (a mod_name that differs
    from the module's record, a shape that is not static, a tuning for another accelerator or for none
    of the regions, an output_dir with other files or with edited ones that would be lost ...), `Unsupported`
    for a region that cannot be lowered, `PlanError` where the RAM or flash of the accelerator is exceeded.
    """
    if output_dir is not None:
        check_type("output_dir", output_dir, str | Path, "a path")
    check_flag("io_in_arena", io_in_arena)
    if tuning is not None:
        check_type("tuning", tuning, Tuning | str | Path, "a Tuning, or the path of its file")
    model = front_end().open_model(mod, params, mod_name)
    chosen = _tuning(tuning, model)
    graphs = model.graphs()  # lower the regions
    plans = _plans(graphs, model, chosen)  # plan each region
    arena = _Arena(plans.regions, model.accelerator, io_in_arena)
    host = model.compile_host(graphs, arena.place, kernel_call)  # TVM compiles the rest, and calls `place`
    parts = _parts(model, plans, arena, host)
    if model.accelerator is not None:
        _check_budgets(parts)
    files = project_files(parts)
    directory = Path(output_dir) if output_dir is not None else Path(tempfile.mkdtemp(prefix="byoc_hw_"))
    write_project(directory, files, force)
    return Project(directory, temporary=output_dir is None)


@dataclass(frozen=True)
class _Plans:
    """The planned regions, and the results of those that were tuned, by symbol; `tuned` is None without a tuning."""

    regions: dict[str, PlannedRegion]
    tuned: dict[str, TunedRegion] | None


def _plans(graphs: Mapping[str, Graph], model: Model, tuning: Tuning | None) -> _Plans:
    accelerator = model.accelerator
    if accelerator is None:
        return _Plans({}, None)
    if tuning is None:
        return _Plans({name: plan_region(graph, accelerator) for name, graph in graphs.items()}, None)
    known = {name: tuning.region(graph) for name, graph in graphs.items()}
    tuned = {name: found for name, found in known.items() if found is not None}
    if not tuned:
        raise InvalidInput("a tuning names regions of the model: it has none of them, so it is of another model")
    return _Plans({name: _plan(graph, accelerator, tuned.get(name)) for name, graph in graphs.items()}, tuned)


def _plan(graph: Graph, accelerator: Accelerator, tuned: TunedRegion | None) -> PlannedRegion:
    if tuned is None:
        return plan_region(graph, accelerator)
    try:
        return plan_region(graph, accelerator, tuned.choices)
    except PlanError as error:
        raise PlanError(f"{graph.name}: its tuned plan cannot be carried out, tune it again: {error}") from error


class _Arena:
    """The arena of a build, with the model's inputs and outputs if `with_io`. `place` sets the other two attributes.

    `overlaps` says whether host functions and regions run in parallel: only if the larger arena fits RAM.
    """

    def __init__(self, regions: Mapping[str, PlannedRegion], accelerator: Accelerator | None, with_io: bool) -> None:
        self._regions, self.with_io = regions, with_io
        self._accelerator = accelerator or REFERENCE
        self.overlaps = self._accelerator.library is None
        self.memory: ModelMemory | None = None

    def place(self, program: Program, workspaces: Sequence[Workspace]) -> Mapping[str, int]:
        """Offsets for host tensors and workspaces, placed together with the intermediates of regions."""
        if self.overlaps:
            self.memory = self._placed(overlapped(program), workspaces)
            self.overlaps = self.memory.arena.nbytes <= self._accelerator.ram
        if self.memory is None or not self.overlaps:
            self.memory = self._placed(program, workspaces)
        return self.memory.arena.offsets

    def _placed(self, program: Program, workspaces: Sequence[Workspace]) -> ModelMemory:
        regions = {name: region.memory for name, region in self._regions.items()}
        return place_model(program, workspaces, regions, ALIGNMENT, self.with_io)


def _parts(model: Model, plans: _Plans, arena: _Arena, host: CompiledHost) -> Parts:
    memory = arena.memory
    assert memory is not None, "the front end has asked for places"
    report, tuned = _report(model), plans.tuned
    if tuned is not None:
        report = replace(report, tuning=f"{len(tuned)} of {len(plans.regions)} regions tuned")
    return Parts(
        program=overlapped(host.program) if arena.overlaps else host.program,
        accelerator=model.accelerator or REFERENCE,
        regions={name: region.placed(memory.scratch[name][1]) for name, region in plans.regions.items()},
        memory=memory,
        tvm_arena=host.tvm_arena + sum(region.scratch_bytes for region in plans.regions.values()),
        io_in_arena=arena.with_io,
        host_source=host.source,
        host_flash=host.constant_bytes,
        numerics=report.numerics or "relay",
        tuning={name: vars(one) | {"choices": one.choices.plain()} for name, one in (tuned or {}).items()},
        report=report.plain(),
        versions=model.versions,
    )


def _check_budgets(parts: Parts) -> None:
    """Raise `PlanError` if the project does not fit the accelerator's RAM or flash."""
    check_ram(parts.memory, parts.accelerator.ram)
    owners = {"host constants": parts.host_flash}
    for name, region in parts.regions.items():
        owners |= {f"{name}: {layer}": nbytes for layer, nbytes in flash_by_layer(region)}
    total = parts.host_flash + sum(map(flash_bytes, parts.regions.values()))
    check_budget(total, owners, parts.accelerator.flash, "flash")


def _report(model: Model) -> Report:
    label = None if model.accelerator is None else model.accelerator.label
    return Report(model.mod_name, label, model.numerics, model.outcomes)


def _tuning(given: Tuning | str | Path | None, model: Model) -> Tuning | None:
    if given is None:
        return None
    if model.accelerator is None:
        raise InvalidInput("a tuning is for a partitioned module: all of this one runs on the host")
    tuning = given if isinstance(given, Tuning) else Tuning.load(given)
    tuning.check(model.accelerator)
    return tuning
