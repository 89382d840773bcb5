"""Compiles a module to a C project. Connects the packages, as do `tuner.py`, `project.py` and the checks.

It does not import TVM: the front end does, at its first use. A built project thus runs on a machine without TVM.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import REFERENCE
from byoc_hw.arguments import check_flag, check_one_of, check_type, shown
from byoc_hw.build_arena import BuildArena, is_tiled
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.emit.region import region_source
from byoc_hw.emit.weight_file import WEIGHTS
from byoc_hw.errors import InvalidInput, PlanError, Unsupported
from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.frontend.on_import import when_imported
from byoc_hw.frontend.seam import Backend, CompiledHost, FixedPoint, FrontEnd, Model
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph, Layer
from byoc_hw.objective import HOST, Energy, Objective, check_objective, on_accelerators
from byoc_hw.params.fixed_point_values import pairwise_values, rescaled_values
from byoc_hw.params.host_kernels import kernel_call
from byoc_hw.params.tflite_functions import hard_swish_values, inverse_root_values
from byoc_hw.pattern import Outcome
from byoc_hw.plan.ahead import with_copies_ahead
from byoc_hw.plan.border_transpositions import with_borders_in_order
from byoc_hw.plan.bound.begun import bound_of_inference
from byoc_hw.plan.channel_orders import with_orders_in_weights
from byoc_hw.plan.core import NO_ENERGY, region_energy
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.merged_transpositions import with_merged_transpositions
from byoc_hw.plan.moved_transpositions import with_moved_transpositions
from byoc_hw.plan.place.arena import flash_problem, ram_problem
from byoc_hw.plan.placement import sent_to_host
from byoc_hw.plan.planned import PlannedRegion, flash_owners
from byoc_hw.plan.region import plan_region, why_no_plan
from byoc_hw.plan.search.within import Room
from byoc_hw.plan.tune.best_order import in_best_order
from byoc_hw.plan.tune.rounds import TunedRegion
from byoc_hw.project import Project
from byoc_hw.report.engines import costs_of, engines_of
from byoc_hw.report.explain import Report
from byoc_hw.soc import Hardware, Soc, accelerators_of
from byoc_hw.tuning import Tuning

if TYPE_CHECKING:
    import tvm

# ---------------------------------------------------------------- front ends


def front_end() -> FrontEnd:
    """The front end of the TVM that is installed. `Unsupported` without one that there is a front end for."""
    if HAS_RELAY:
        from byoc_hw.frontend.relay import front_end as relay

        return relay
    if HAS_RELAX:
        from byoc_hw.frontend.relax.front_end import RelaxFrontEnd  # imports TVM, so it may have asked for it already

        return _the_only(RelaxFrontEnd)
    raise Unsupported(
        "this needs TVM: pip install 'byoc-hw[relay]' on CPython 3.10 and x86-64 Linux, elsewhere 'byoc-hw[relax]'"
    )


@functools.cache
def _the_only(relax: Callable[[Backend], FrontEnd]) -> FrontEnd:
    return relax(BACKEND)


def register_with_tvm() -> None:
    """Register the compiler name `hwlib` with TVM: TVM looks up the pattern table by this name."""
    front_end().register(REFERENCE.name, BACKEND)


def register_with_tvm_when_imported() -> None:
    """Register once TVM is imported, if it is installed."""
    if HAS_RELAY or HAS_RELAX:
        when_imported("tvm", register_with_tvm)


def _region_source(graph: Graph, accelerator: Hardware) -> str:
    if isinstance(accelerator, Soc):
        raise Unsupported(f"{graph.name}: a region on a chip of several accelerators is built by byoc_hw.build alone")
    return region_source(plan_region(graph, accelerator), accelerator)


BACKEND = Backend(
    why_no_plan,
    _region_source,
    FixedPoint(rescaled_values, pairwise_values, hard_swish_values, inverse_root_values),
)


def load_tflite(path: str | Path) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Read a .tflite file: a module and its weights by name.

    Raises `InvalidInput` for a file that cannot be read, is no TFLite model, or holds an operator that
    TVM's importer does not support.
    """
    check_type("path", path, str | Path, "a path")
    return front_end().load_tflite(path)


def load(
    path: str | Path, *, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Read a model file by its suffix: a module, and its weights by name (none where they are inside the module).

    .tflite is read by TVM's importer. .onnx needs the extra `onnx`; quantized models, in QDQ form or of QLinear
    operators, become integer modules, see `to_integers`. `shapes` has the shapes of inputs that an ONNX file leaves
    open, by name: {"x": (1, 3, 32, 32)}. .relay and .txt are Relay modules as `mod.astext()` prints them, .json as
    `tvm.ir.save_json(mod)`, with their weights as constants inside; one in QDQ form becomes an integer module too.

    Where TVM has Relax, quantized models stay in QDQ form, there are no files of modules, and .pt2 is a program that
    `torch.export.save` wrote, which needs the package torch.

    Raises `InvalidInput` for a file that cannot be read or is damaged, an unknown suffix, a missing extra, a
    shape that is not static, or operators that cannot be imported.
    """
    check_type("path", path, str | Path, "a path")
    return front_end().load(path, {} if shapes is None else shapes)


def to_integers(mod: tvm.IRModule, params: Mapping[str, Any] | None = None) -> tvm.IRModule:
    """The integer form of a module in QDQ form, its weights inside.

    In QDQ form, as importers make it of quantized ONNX and PyTorch models, float operators stand between
    `qnn.dequantize` and `qnn.quantize`. Convolutions, matrix products, additions and the like become integer
    operators; what has no integer form stays float. The results are those of the float operators but for rounding:
    sums are int32, and halves are rounded upward. From here on the integer module is what results are compared with.
    """
    return front_end().to_integers(mod, params)


def pattern_table(compiler: str = "hwlib") -> Sequence[tuple[Any, ...]]:
    """The live pattern table of a compiler name, as TVM takes it.

    Of Relay it is what `get_pattern_table(compiler)` gives: entries of (composite name, dataflow pattern, check). Of
    Relax it is for `FuseOpsByPattern`: (composite name, dataflow pattern, {}, check). `InvalidInput` for a compiler
    that no accelerator of this process has.
    """
    return front_end().pattern_table(compiler)


# ---------------------------------------------------------------- partition, explain


@seldom_collected()
def partition_for_hwlib(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    *,
    accelerator: Hardware = REFERENCE,
    numerics: str = "relay",
    deny: Iterable[str] = (),
    **opts: object,
) -> tvm.IRModule:
    """Partition a Relay module for an accelerator.

    Supported operators move to external functions `tvmgen_<mod_name>_<accelerator>_main_<n>` of the
    compiler `accelerator.name`; everything else is unchanged. `params` are the weights by
    name, as a front end of TVM returns them. `deny` names composites, or operators of the model
    file, that stay on the host. The module records accelerator, numerics and mod_name for `build`.

    `numerics` is the arithmetic of the model. "relay" is TVM's own, bit for bit. "tflite" is that of
    TFLite's reference integer kernels, for the results of TFLite itself; TVM's import of a TFLite
    model rounds differently. It holds for offloaded layers, and on the host for all that functions of
    ours compute; operators that follow TVM's arithmetic all the same are marked in the report. "float" is
    for Relax modules: the nearest to their float operators between dequantize and quantize.

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
    notebook, and has `to_json()`. For each offloaded operator it has the cycles on each accelerator and on the host, by
    estimate. Of a chip of several accelerators it plans the regions, and says which of them run an operator.
    `InvalidInput` for a module that was not partitioned.
    """
    if isinstance(mod_or_project, Project):
        return mod_or_project.report
    found = front_end().partitioned(mod_or_project)
    if found is None:
        raise InvalidInput("explain takes a module that partition_for_hwlib made, or a Project: got another module")
    report = Report(found.mod_name, found.label, found.numerics, found.outcomes)
    hardware = found.accelerator
    if hardware is None or not found.graphs:
        return report
    if isinstance(hardware, Soc):
        plans = {name: known_plan(graph, hardware) for name, graph in found.graphs.items()}
        cycles, bounds = zip(*((plan.cycles, plan.bound) for plan in plans.values()), strict=True)
        return replace(report, engines=engines_of(plans, hardware), cycles=sum(cycles), bound=sum(bounds))
    bound = None if hardware.library else bound_of_inference(list(found.graphs.values()), hardware)
    return replace(report, engines=costs_of(found.graphs, hardware), bound=bound)


def explain_tflite(
    path: str | Path,
    mod_name: str = "default",
    *,
    accelerator: Hardware = REFERENCE,
    numerics: str = "relay",
    deny: Iterable[str] = (),
) -> Report:
    """Where each operator of a .tflite file runs, also of a file that cannot be imported as a whole.

    For each operator that stops TVM's importer, the report has the reason, in place of a run; the others are
    reported as for a model that ends where such an operator begins and goes on behind it. `mod_name`, `accelerator`,
    `numerics` and `deny` are those of `partition_for_hwlib`. Raises `InvalidInput` for a file that cannot be read
    or is damaged.
    """
    imported, operators, stops = front_end().importable_tflite(path)
    found: tuple[Outcome, ...] = ()
    if imported is not None:
        here = [name for name in deny if name not in {stop.name for stop in stops}]
        mod = partition_for_hwlib(*imported, mod_name, accelerator=accelerator, numerics=numerics, deny=here)
        if not stops:
            return explain(mod)
        found = explain(mod).outcomes
    place = {name: number for number, name in enumerate(operators)}
    outcomes = sorted([*found, *stops], key=lambda outcome: place.get(outcome.name, len(place)))
    return Report(mod_name, accelerator.label, numerics, tuple(outcomes))


def region_graphs(mod: tvm.IRModule) -> dict[str, Graph]:
    """The regions of a partitioned module by C symbol, as `build` plans them."""
    return graphs_to_plan(front_end().open_model(mod, None, None))


def graphs_to_plan(model: Model) -> dict[str, Graph]:
    """The regions of a partitioned model by symbol, with few transpositions in them and between them, and without
    shuffles of channels that weights take up; those of a single accelerator with their layers in the best order. A
    library takes its layers as they are."""
    hardware = model.accelerator
    if hardware is None or not is_tiled(hardware):
        return model.graphs()
    tiled, *others = accelerators_of(hardware)

    def plannable(layer: Layer) -> bool:
        return why_no_plan(layer, hardware) is None

    def tidied(graph: Graph) -> Graph:
        moved = with_moved_transpositions(graph, tiled, plannable)
        return with_merged_transpositions(with_orders_in_weights(moved, plannable), tiled)

    graphs = with_borders_in_order(model.graphs(), model.passed_on(), tidied, tiled)
    return graphs if others else {name: in_best_order(graph, tiled) for name, graph in graphs.items()}


# ---------------------------------------------------------------- build

OBJECTIVES = ("speed", "size")
"""What `build` can plan for."""


@seldom_collected()
def build(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    mod_name: str | None = None,
    output_dir: str | Path | None = None,
    io_in_arena: bool = False,
    tuning: Tuning | str | Path | None = None,
    optimize: str = "speed",
    place: Mapping[str, str] | None = None,
    poll: bool = False,
    objective: Objective | None = None,
    weights: str = "auto",
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
    holds one, has the plans of the tuned regions; the report says how many regions are tuned. On a chip it says where
    their layers run, so there is no `place` on an accelerator, nor an `Energy`, beside it.

    RAM and flash of the accelerator are limits of the plans. With `optimize` "speed" the fastest plans are taken,
    tuned or not, and where these do not fit, the fastest that do: the report says how many regions that concerns.
    With "size" it is the plans with the smallest arena; of several those with the least flash, then the
    fastest. A tuned plan is taken there only if it is among these.

    Everything that the module has in regions runs on the accelerator, unless an `objective` is given: what was
    partitioned was meant to be offloaded, and the costs of the host are estimates. With "latency", regions that take
    longer from call to return than their layers on the host go back there, and so do layers at their ends; with an
    `Energy`, what costs more energy there. On a chip, each layer then runs on the accelerator that the objective asks
    for. The report has the figures. The bits are the same.

    `place` says where an operator of the model, a layer, or all layers of a kind run, whatever the objective: on an
    accelerator by name, or on the "host": {"softmax": "dsp", "conv2d": "host"}.

    With `poll` the model can be run in steps: its header has start, poll and wait beside run, and regions on one
    accelerator too are driven without waiting. That takes more instructions of the core.

    `weights` says how the constant data of the regions is written: as "text" of C, or "binary", which the assembler
    includes from a file, with GCC, Clang and what takes their assembly. "auto" is "binary" from 1 MiB on, of whose text
    a compiler takes long.

    An earlier project is replaced as a whole, or not at all. Your own files and the build directories in it stay. So
    do files of `app/` that you have edited, and other edited files that the new project would write as the old one
    did: `Project.changed` names them, and `force` replaces them.

    Nothing is written before everything is compiled. Raises `InvalidInput` (a mod_name that differs
    from the module's record, a shape that is not static, a tuning for another accelerator or for none
    of the regions, an output_dir with other files or with edited ones that would be lost ...), `Unsupported`
    for a region that cannot be lowered, `PlanError` where no plans fit the RAM and flash of the accelerator: it says
    what is short, by how much, what is largest, and the smallest RAM or flash that has a plan.
    """
    if output_dir is not None:
        check_type("output_dir", output_dir, str | Path, "a path")
    check_flag("io_in_arena", io_in_arena)
    check_flag("poll", poll)
    io_in_arena, poll = bool(io_in_arena), bool(poll)
    check_one_of("optimize", optimize, OBJECTIVES)
    check_one_of("weights", weights, WEIGHTS)
    if tuning is not None:
        check_type("tuning", tuning, Tuning | str | Path, "a Tuning, or the path of its file")
    model = front_end().open_model(mod, params, mod_name)
    chosen = _tuning(tuning, model, place, objective)
    if poll and model.accelerator is not None and model.accelerator.library is not None:
        raise InvalidInput(f"poll is for accelerators with a HAL: {model.accelerator.name} has a library")
    host = _sent_to_host(model, place, objective)
    if host:
        model = front_end().open_model(front_end().host_again(mod, host), params, mod_name)
    parts, _ = _compiled(model, chosen, io_in_arena, optimize, on_accelerators(place or {}), objective)
    parts = parts if poll else _with_copies_ahead(parts)
    report = {**parts.report, "polled": poll}
    files = project_files(replace(parts, polled=poll, weights=weights, report=report))
    directory = Path(output_dir) if output_dir is not None else Path(tempfile.mkdtemp(prefix="byoc_hw_"))
    write_project(directory, files, force)
    return Project(directory, temporary=output_dir is None)


def region_rooms(mod: tvm.IRModule, params: Mapping[str, Any] | None, optimize: str = "speed") -> dict[str, Room]:
    """What each region of a partitioned module may use of RAM and flash, with choices that fit where the fastest do
    not. It compiles the host, whose buffers are in RAM as well. Raises `PlanError` where no plans fit."""
    _, rooms = _compiled(front_end().open_model(mod, params, None), None, False, optimize, {})
    return rooms()


def _compiled(
    model: Model,
    tuning: Tuning | None,
    io_in_arena: bool,
    optimize: str,
    place: Mapping[str, str],
    objective: Objective | None = None,
) -> tuple[Parts, Callable[[], dict[str, Room]]]:
    """The parts of a project, and a function for what each region may use of RAM and flash."""
    graphs = model.graphs() if place else graphs_to_plan(model)  # lower the regions: `place` names their layers
    plans = _plans(graphs, model, tuning, place, objective)  # plan each region
    arena = BuildArena(plans.regions, model.accelerator, io_in_arena, optimize, place)
    host = model.compile_host(graphs, arena.place, kernel_call)  # TVM compiles the rest, and calls `place`
    if arena.wants_less_flash(host.constant_bytes):  # only now is the host's flash known
        host = model.compile_host(graphs, arena.place, kernel_call)
    parts = _parts(model, plans, arena, host, objective)
    if model.accelerator is not None:
        _check_budgets(parts)
    return parts, lambda: arena.rooms(host.program)


@dataclass(frozen=True)
class _Plans:
    """The planned regions, and the results of those that were tuned, by symbol; `tuned` is None without a tuning."""

    regions: dict[str, PlannedRegion]
    tuned: dict[str, TunedRegion] | None


def _plans(
    graphs: Mapping[str, Graph],
    model: Model,
    tuning: Tuning | None,
    place: Mapping[str, str],
    objective: Objective | None,
) -> _Plans:
    accelerator = model.accelerator
    if accelerator is None:
        return _Plans({}, None)
    if tuning is None:
        regions = {
            name: plan_region(graph, accelerator, place=place, objective=objective) for name, graph in graphs.items()
        }
        return _Plans(regions, None)
    known = {name: tuning.region(graph) for name, graph in graphs.items()}
    tuned = {name: found for name, found in known.items() if found is not None}
    if not tuned:
        why = "so it is of another model, or numerics, deny, place or an objective makes other regions of it"
        raise InvalidInput(f"a tuning names regions of the model: it has none of them, {why}")
    return _Plans({name: _plan(graph, accelerator, tuned.get(name)) for name, graph in graphs.items()}, tuned)


def _sent_to_host(
    model: Model, place: Mapping[str, str] | None, objective: Objective | None
) -> Mapping[str, Mapping[str, str]]:
    """The layers of a model's regions that go to the host, with the reason, by region and name. `InvalidInput` for
    what is not there."""
    hardware = model.accelerator
    if hardware is None:
        if place or objective is not None:
            what = "place" if place else "objective"
            raise InvalidInput(f"{what} is for a partitioned module: all of this one runs on the host")
        return {}
    names = [one.name for one in accelerators_of(hardware)]
    check_objective(objective, names)
    if objective is not None and hardware.library is not None:
        raise InvalidInput(f"objective: the cycles of {hardware.label} are not known, as it is driven by a library")
    place = place or {}
    check_type("place", place, Mapping, "a mapping from operators to accelerators")
    for name, wished in place.items():
        if wished not in (*names, HOST):
            raise InvalidInput(
                f"place: an operator runs on {', '.join(names)} or {HOST}: got {shown(wished)} for {name}"
            )
    if not place and objective is None:
        return {}
    graphs = model.graphs()
    _check_wishes(place, graphs)
    return sent_to_host(graphs, hardware, place, objective)


def _check_wishes(place: Mapping[str, str], graphs: Mapping[str, Graph]) -> None:
    layers = [layer for graph in graphs.values() for layer in graph.layers]
    known = {name for layer in layers for name in (layer.name, layer.kind, *layer.source)}
    for name in place:
        if name not in known:
            kinds = ", ".join(sorted({layer.kind for layer in layers}))
            raise InvalidInput(f"place names offloaded operators, or kinds of layers ({kinds}): got {shown(name)}")


def _plan(graph: Graph, accelerator: Hardware, tuned: TunedRegion | None) -> PlannedRegion:
    if tuned is None:
        return plan_region(graph, accelerator)
    try:
        return plan_region(graph, accelerator, tuned.choices)
    except PlanError as error:
        raise PlanError(f"{graph.name}: its tuned plan cannot be carried out, tune it again: {error}") from error


def _parts(model: Model, plans: _Plans, arena: BuildArena, host: CompiledHost, objective: Objective | None) -> Parts:
    memory = arena.memory
    assert memory is not None, "the front end has asked for places"
    kept = {name for name, plan in plans.regions.items() if arena.plans[name] is plan}
    tuned = None if plans.tuned is None else {name: one for name, one in plans.tuned.items() if name in kept}
    program = arena.program(host.program)
    planning = "; ".join(filter(None, (_planning(arena, len(plans.regions) - len(kept)), _placing(arena, objective))))
    report = replace(_report(model), planning=planning, engines=_engines(arena.plans, model.accelerator))
    if tuned is not None:
        report = replace(report, tuning=f"{len(tuned)} of {len(plans.regions)} regions tuned")
    return Parts(
        program=arena.overlapping(program),
        accelerator=model.accelerator or REFERENCE,
        regions={name: region.placed(memory.scratch[name][1]) for name, region in arena.plans.items()},
        memory=memory,
        tvm_arena=host.tvm_arena + sum(region.scratch_bytes for region in arena.plans.values()),
        io_in_arena=arena.with_io,
        optimize=arena.optimize,
        host_source=host.source,
        host_flash=host.constant_bytes,
        numerics=report.numerics or "relay",
        tuning={name: vars(one) | {"choices": one.choices.plain()} for name, one in (tuned or {}).items()},
        report=report.plain(),
        versions=model.versions,
    )


def _with_copies_ahead(parts: Parts) -> Parts:
    """The parts with regions that start copies for the next one, if their tables fit flash."""
    hardware = parts.accelerator
    if isinstance(hardware, Soc) or hardware.library is not None:
        return parts
    found = replace(parts, regions=with_copies_ahead(parts.program, parts.regions, hardware))
    return parts if flash_problem(_flash_owners(found), hardware.flash, "") else found


def _planning(arena: BuildArena, replanned: int) -> str:
    """What the report says of the objective, and of plans that are not the fastest because of RAM or flash."""
    if arena.optimize != "speed":
        return f"planned for {arena.optimize}"
    return f"{replanned} of {len(arena.plans)} regions planned to fit RAM and flash" if replanned else ""


def _placing(arena: BuildArena, objective: Objective | None) -> str:
    """What the report says of the objective that regions and layers are placed for, with the energy of the regions."""
    if not isinstance(objective, Energy):
        return "" if objective is None else f"placed for {objective}"
    plans = (plan for plan in arena.plans.values() if not isinstance(plan, LibraryPlan))
    spent = (region_energy(plan, arena.hardware, objective) for plan in plans)
    return f"placed for energy: regions {sum(spent, NO_ENERGY)}"


def _engines(plans: Mapping[str, PlannedRegion], hardware: Hardware | None) -> dict[str, str]:
    return {} if hardware is None else engines_of(plans, hardware)


def _check_budgets(parts: Parts) -> None:
    """Raise `PlanError` if the project does not fit the accelerator's RAM or flash: with all that is short."""
    tiled = is_tiled(parts.accelerator) and parts.regions
    smallest = "by the smallest plan" if tiled else ""
    problems = (
        ram_problem(parts.memory, parts.accelerator.ram, smallest),
        flash_problem(_flash_owners(parts), parts.accelerator.flash, smallest),
    )
    if any(problems):
        raise PlanError("\n".join(filter(None, problems)))


def _flash_owners(parts: Parts) -> dict[str, int]:
    owners = {"host constants": parts.host_flash}
    for name, region in parts.regions.items():
        owners |= {f"{name}: {owner}": nbytes for owner, nbytes in flash_owners(region).items()}
    return owners


def _report(model: Model) -> Report:
    label = None if model.accelerator is None else model.accelerator.label
    return Report(model.mod_name, label, model.numerics, model.outcomes)


def _tuning(
    given: Tuning | str | Path | None,
    model: Model,
    place: Mapping[str, str] | None,
    objective: Objective | None,
) -> Tuning | None:
    if given is None:
        return None
    if model.accelerator is None:
        raise InvalidInput("a tuning is for a partitioned module: all of this one runs on the host")
    placed = [f"place={{{name!r}: {wish!r}}}" for name, wish in on_accelerators(place or {}).items()]
    placed += ["an Energy"] if isinstance(objective, Energy) else []
    if placed and isinstance(model.accelerator, Soc):
        rule = f"a tuning says which accelerators of {model.accelerator.label} run a layer, for the fewest cycles"
        raise InvalidInput(f"{rule}: got {', '.join(placed)} as well")
    tuning = given if isinstance(given, Tuning) else Tuning.load(given)
    tuning.check(model.accelerator)
    return tuning
