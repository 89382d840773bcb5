"""A Relay module to a C project. With `project.py` the only place that wires rooms together."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.emit.files import Parts, project_files, write_project
from byoc_hw.emit.region import region_source
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.frontend.relay import codegen
from byoc_hw.frontend.relay.accelerators import by_fingerprint
from byoc_hw.frontend.relay.host import ALIGNMENT, compile_module
from byoc_hw.frontend.relay.partition import check_module, folding, prepare
from byoc_hw.frontend.relay.record import Record, record_of, regions
from byoc_hw.frontend.relay.sources import source_operators
from byoc_hw.frontend.relay.table import plan_with
from byoc_hw.graph import Graph
from byoc_hw.overlap import overlapped
from byoc_hw.pattern import Outcome
from byoc_hw.plan.place.arena import ModelMemory, check_budget, check_ram, place_model
from byoc_hw.plan.planned import PlannedRegion as Region
from byoc_hw.plan.planned import flash_by_layer, flash_bytes
from byoc_hw.plan.region import plan_region, why_no_plan
from byoc_hw.plan.region_memory import NOTHING, RegionMemory
from byoc_hw.plan.tune.rounds import TunedRegion
from byoc_hw.program import Program, Workspace, check_mod_name
from byoc_hw.project import Project
from byoc_hw.report.explain import Report
from byoc_hw.tuning import Tuning

DEFAULT_MOD_NAME = "default"


def build(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    mod_name: str | None = None,
    output_dir: str | Path | None = None,
    io_in_arena: bool = False,
    tuning: Tuning | str | Path | None = None,
) -> Project:
    """Compile a Relay module to a self-contained C project.

    A module that `partition_for_hwlib` made runs its regions on the accelerator that it records. Any
    other module runs on the host alone: the CPU-only baseline. `params` are weights by name that the
    module does not hold yet. `mod_name` (default: the one that the module records, or "default")
    starts every C name. `output_dir` is new, empty or an earlier project; by default a temporary
    directory that lives as long as the `Project`. With `io_in_arena` the model's inputs and outputs
    have bytes in the arena as well: the header then has a function for each that gives its address.
    An input's bytes are used again after its last reader, so that it is filled before each run. A
    `tuning`, or the file that holds one, gives the plans of the regions that it knows; the report says
    where it does not know all of them.

    Nothing is written before everything is compiled. Raises `InvalidInput` (a mod_name that differs
    from the module's record, a shape that is not static, a tuning for another accelerator or for none
    of the regions ...), `Unsupported` for a region that cannot be lowered, `PlanError` where RAM or
    flash of the accelerator is exceeded.
    """
    check_module(mod)
    record = record_of(mod)
    mod_name = _mod_name(mod, record, mod_name)
    _check_inputs(mod)
    mod = prepare(mod, params)
    if record is None:
        report = _host_only(mod, mod_name)
        mod = tvm.transform.Sequential(folding())(mod)
    else:
        report = explain(mod)
    accelerator = REFERENCE if record is None else by_fingerprint(record.accelerator, record.label)
    job = _Job(accelerator, io_in_arena, _tuning(tuning, record, accelerator))
    with codegen.building_with(job.region):
        host = compile_module(mod, mod_name, job.graphs, job.place)
    memory = job.memory
    assert memory is not None
    if job.tuning is not None:
        report = replace(report, tuning=job.how_much_is_tuned())
    if record is not None:
        job.check_budgets(memory, host.constant_bytes)
    parts = Parts(
        program=overlapped(host.program) if job.overlaps else host.program,
        accelerator=accelerator,
        regions=job.regions,
        memory=memory,
        tvm_arena=host.tvm_arena + job.own_scratch,
        io_in_arena=io_in_arena,
        host_source=host.source,
        host_flash=host.constant_bytes,
        numerics=report.numerics or "relay",
        tuning={name: vars(region) | {"choices": region.choices.plain()} for name, region in job.tuned.items()},
        report=report.plain(),
        versions={"tvm": tvm.__version__},
    )
    files = project_files(parts)
    directory = Path(output_dir) if output_dir is not None else Path(tempfile.mkdtemp(prefix="byoc_hw_"))
    write_project(directory, files)
    return Project(directory, temporary=output_dir is None)


def explain(mod_or_project: tvm.IRModule | Project) -> Report:
    """What goes where, and why not: one entry for each operator of the model file.

    Takes what `partition_for_hwlib` or `build` returned; prints as text, shows as a table in a
    notebook, and has `to_json()`. `InvalidInput` for a module that was not partitioned.
    """
    if isinstance(mod_or_project, Project):
        return mod_or_project.report
    check_module(mod_or_project)
    record = record_of(mod_or_project)
    if record is None:
        raise InvalidInput("explain takes a module that partition_for_hwlib made, or a Project: got another module")
    return Report(record.mod_name, record.label, record.numerics, record.outcomes)


def build_region(graph: Graph, accelerator: Accelerator) -> str:
    """The C source of one region by itself: what `relay.ext.<name>` gives a plain `tvm.relay.build`."""
    return region_source(plan_region(graph, accelerator), accelerator)


def region_graphs(mod: tvm.IRModule, params: Mapping[str, Any] | None = None) -> dict[str, Graph]:
    """The regions of a partitioned module by symbol, as `build` plans them. None is planned."""
    graphs: dict[str, Graph] = {}

    def collect(graph: Graph, accelerator: Accelerator) -> str:
        graphs[graph.name] = graph
        return ""

    def place(program: Program, workspaces: Sequence[Workspace]) -> Mapping[str, int]:
        memories = {}
        for name, graph in graphs.items():
            arguments = ((0, 0),) * (len(graph.inputs) + len(graph.outputs))
            memories[name] = replace(NOTHING, moments=("all of it",), arguments=arguments)
        return place_model(program, workspaces, memories, ALIGNMENT).arena.offsets

    with codegen.building_with(collect):
        compile_module(prepare(mod, params), DEFAULT_MOD_NAME, graphs, place)
    return graphs


class _Job:
    """One build: collects what TVM hands over on the way."""

    def __init__(self, accelerator: Accelerator, io_in_arena: bool, tuning: Tuning | None) -> None:
        self.accelerator = accelerator
        self.io_in_arena = io_in_arena
        self.tuning = tuning
        self.tuned: dict[str, TunedRegion] = {}
        self.graphs: dict[str, Graph] = {}
        self.regions: dict[str, Region] = {}
        self.own_scratch = 0
        self.overlaps = accelerator.library is None
        self.memory: ModelMemory | None = None

    def region(self, graph: Graph, accelerator: Accelerator) -> str:
        """Plan a region. Its code is written later, with the project; TVM's own copy stays empty."""
        self.graphs[graph.name] = graph
        tuned = None if self.tuning is None else self.tuning.region(graph)
        if tuned is None:
            self.regions[graph.name] = plan_region(graph, accelerator)
            return ""
        try:
            self.regions[graph.name] = plan_region(graph, accelerator, tuned.choices)
        except PlanError as error:
            raise PlanError(f"{graph.name}: its tuned plan cannot be carried out, tune it again: {error}") from error
        self.tuned[graph.name] = tuned
        return ""

    def how_much_is_tuned(self) -> str:
        """How many of the regions are. `InvalidInput` where none is: then the tuning is of another model."""
        if not self.tuned:
            raise InvalidInput("a tuning names regions of the model: it has none of them, so it is of another model")
        return f"{len(self.tuned)} of {len(self.regions)} regions tuned"

    def place(self, program: Program, workspaces: Sequence[Workspace]) -> Mapping[str, int]:
        """One arena for host tensors, host workspaces and the intermediates of regions."""
        self.own_scratch = sum(region.scratch_bytes for region in self.regions.values())
        memories = {name: region.memory for name, region in self.regions.items()}
        self.memory = self._placed(program, workspaces, memories)
        for name, (_, offsets) in self.memory.scratch.items():
            self.regions[name] = self.regions[name].placed(offsets)
        return self.memory.arena.offsets

    def _placed(
        self, program: Program, workspaces: Sequence[Workspace], memories: Mapping[str, RegionMemory]
    ) -> ModelMemory:
        """The arena with the host's functions beside the regions, if RAM is large enough for that."""
        if self.overlaps:
            memory = place_model(overlapped(program), workspaces, memories, ALIGNMENT, self.io_in_arena)
            if memory.arena.nbytes <= self.accelerator.ram:
                return memory
            self.overlaps = False
        return place_model(program, workspaces, memories, ALIGNMENT, self.io_in_arena)

    def check_budgets(self, memory: ModelMemory, host_flash: int) -> None:
        """`PlanError` where the project would not fit the accelerator's RAM or flash."""
        check_ram(memory, self.accelerator.ram)
        owners = {"host constants": host_flash}
        for name, region in self.regions.items():
            owners |= {f"{name}: {layer}": nbytes for layer, nbytes in flash_by_layer(region)}
        total = host_flash + sum(map(flash_bytes, self.regions.values()))
        check_budget(total, owners, self.accelerator.flash, "flash")


# ---------------------------------------------------------------- input


def _tuning(given: Tuning | str | Path | None, record: Record | None, accelerator: Accelerator) -> Tuning | None:
    if given is None:
        return None
    if record is None:
        raise InvalidInput("a tuning is for a partitioned module: all of this one runs on the host")
    tuning = given if isinstance(given, Tuning) else Tuning.load(given)
    tuning.check(accelerator)
    return tuning


def _mod_name(mod: tvm.IRModule, record: Record | None, mod_name: str | None) -> str:
    if mod_name is not None:
        check_mod_name(mod_name)
    if record is None:
        if regions(mod):
            raise InvalidInput("the module has external functions that partition_for_hwlib did not make")
        return mod_name or DEFAULT_MOD_NAME
    if mod_name not in (None, record.mod_name):
        raise InvalidInput(f"the module was partitioned with mod_name {record.mod_name!r}: got {mod_name!r}")
    return record.mod_name


def _check_inputs(mod: tvm.IRModule) -> None:
    for parameter in relay.transform.InferType()(mod)["main"].params:
        shape = getattr(parameter.checked_type, "shape", None)
        if shape is None:
            raise InvalidInput(f"input {parameter.name_hint} is a tensor: got {parameter.checked_type}")
        if any(not isinstance(extent, tvm.tir.IntImm) for extent in shape):
            shown = ", ".join("?" if isinstance(extent, tvm.tir.Any) else str(extent) for extent in shape)
            raise InvalidInput(f"input {parameter.name_hint} has a static shape: got ({shown})")


def _host_only(mod: tvm.IRModule, mod_name: str) -> Report:
    outcomes = (Outcome(operator.name, operator.relay, "host") for operator in source_operators(mod["main"]))
    return Report(mod_name, None, None, tuple(outcomes))


codegen.install(REFERENCE.name, build_region)
plan_with(why_no_plan)
