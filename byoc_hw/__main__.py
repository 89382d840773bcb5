"""The command line, `python -m byoc_hw`: from a model to a project, its runs and its figures."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import byoc_hw
from byoc_hw.accelerator import KIB, ROUNDINGS
from byoc_hw.compiler import OBJECTIVES, region_graphs, region_rooms
from byoc_hw.emit.weight_file import WEIGHTS
from byoc_hw.errors import ByocHwError, InvalidInput, RunError, ToolchainMissing
from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.mesh.pipelines import PIPELINE_OBJECTIVES
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.plan_file import plan_json
from byoc_hw.mesh_builder import build_mesh, mesh_network
from byoc_hw.mesh_commands import add_run, nodes_text, run_mesh
from byoc_hw.mesh_pipeline import pipeline
from byoc_hw.names import distinct
from byoc_hw.objective import Objective
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import STAGES
from byoc_hw.project import RUNNERS, Project
from byoc_hw.quantizer import TOLERANCE, WIDTHS
from byoc_hw.report.cycles import profile
from byoc_hw.run.files import read_array
from byoc_hw.run.hal_test import hal_test, write_kit
from byoc_hw.run.new_hal import MODEL, new_hal
from byoc_hw.run.real_values import Interface
from byoc_hw.run.result import Result
from byoc_hw.run.toolchain import DEFAULT_CFLAGS
from byoc_hw.soc import Hardware
from byoc_hw.tensor import Array
from byoc_hw.tuner import TuningInterrupted
from byoc_hw.whole_file import check_directory, check_file, write_whole

if TYPE_CHECKING:
    import tvm

ACCELERATORS = {
    preset.label: preset for preset in (byoc_hw.REFERENCE, byoc_hw.SMALL, byoc_hw.DIANA_DIGITAL, byoc_hw.DSP)
}

PICTURES = (".svg", ".png", ".pdf")

_LONGEST_NAME = 200
"""Characters of an output's name that are used for its file: file systems take 255 bytes."""

EXIT_CODES = """\
exit codes:
  0  done
  1  the generated program, or the HAL, could not be built, or failed
  2  a bad option or input: nothing was written
  3  a tool is missing: the message says what to install
  130  interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of models and files may hold anything
    try:
        try:
            return _command_line(arguments)
        finally:
            if sys.stdout:  # None where it is closed
                sys.stdout.flush()
    except BrokenPipeError:  # whoever read it, such as `head`, has seen enough
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        _discard_output()
        return _fail(f"the output can be written: {error}", 1)


def _command_line(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except RunError as error:
        return _fail(error, 1)
    except ToolchainMissing as error:
        return _fail(error, 3)
    except ModuleNotFoundError as error:
        return _fail(f"the Python package {error.name} is missing: pip install byoc-hw brings it", 3)
    except BrokenPipeError:
        raise
    except (ByocHwError, OSError) as error:
        return _fail(error, 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 128 + signal.SIGINT)
    return 0


def _fail(error: object, code: int) -> int:
    print(f"byoc_hw: error: {error}", file=sys.stderr)
    return code


def _note(text: str) -> None:
    print(f"byoc_hw: note: {text}", file=sys.stderr)


def _discard_output() -> None:
    """Send what is still to be written nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# ---------------------------------------------------------------- commands


def _build(options: argparse.Namespace) -> None:
    mod, params = _loaded(options)
    if options.cpu_only:
        if options.tuning is not None:
            raise InvalidInput("--tuning says how regions are planned: with --cpu-only there are none")
        if options.ram is not None or options.flash is not None or options.optimize != OBJECTIVES[0]:
            raise InvalidInput("--ram, --flash and --optimize are for plans of regions: with --cpu-only there are none")
        if options.objective is not None or options.place:
            raise InvalidInput("--objective and --place say where layers run: with --cpu-only all run on the host")
        if options.weights != WEIGHTS[0]:
            raise InvalidInput("--weights says how constants of regions are written: with --cpu-only there are none")
        if options.deny:
            raise InvalidInput("--deny says what is not offloaded: with --cpu-only nothing is")
    else:
        accelerator = _accelerator(options)
        mod = byoc_hw.partition_for_hwlib(
            mod, params, options.mod_name, accelerator=accelerator, numerics=options.numerics, deny=options.deny
        )
    project = byoc_hw.build(
        mod,
        params,
        mod_name=options.mod_name,
        output_dir=options.output_dir,
        tuning=options.tuning,
        optimize=options.optimize,
        place=dict(map(_wish, options.place)),
        objective=_objective(options.objective),
        poll=options.poll,
        weights=options.weights,
        force=options.force,
    )
    print(project.report)
    print(project.memory)
    if project.changed:
        _note(f"edited, and kept (--force replaces what the project has): {', '.join(project.changed)}")
    print(f"The C project is in {project.directory}: make -C {shlex.quote(str(project.directory))}")


def _tune(options: argparse.Namespace) -> None:
    if options.jobs < 1:
        raise InvalidInput(f"--jobs is at least 1: got {options.jobs}")
    check_file(options.output)
    mod = _partitioned(options)
    try:
        with ProcessPoolExecutor(options.jobs, None, _ignore_interrupts) if options.jobs > 1 else nullcontext() as pool:
            tuning = byoc_hw.tune(mod, executor=pool, budget=options.budget, seed=options.seed)
    except TuningInterrupted as stopped:
        stopped.tuning.save(options.output)
        _note(f"interrupted: the best plans so far are in {options.output}")
        raise
    tuning.save(options.output)
    print(tuning)
    quoted = shlex.quote(str(options.output))
    print(f"The tuning is in {options.output}: python -m byoc_hw build --tuning {quoted}")


def _ignore_interrupts() -> None:
    """In a worker: the search ends in the process that the interrupt is meant for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(options: argparse.Namespace) -> None:
    project = Project(options.directory)
    inputs = _inputs(project.inputs, options.input, options.random, options.quantize)
    if options.output_dir is not None:
        check_directory(options.output_dir)
    result = project.run(inputs, on=options.on, quantize=options.quantize)
    outputs = [output.real if options.quantize else output for output in project.outputs]
    if result.changed:
        _note(f"files of {options.directory} are not as build wrote them: {', '.join(result.changed)}")
    if options.output_dir is not None:
        _save(outputs, result, options.output_dir)
    for interface, output in zip(outputs, result.outputs, strict=True):
        print(f"{interface.name} {interface.dtype}{list(interface.shape)}")
        print(np.array2string(output, threshold=64))
    if options.profile:
        print(profile(result))


def _mesh_nodes(options: argparse.Namespace) -> None:
    print(nodes_text(mesh_network(_partitioned_for_mesh(options, MESH_7296.pe))))


def _mesh_plan(options: argparse.Namespace) -> None:
    if options.output is not None:
        check_file(options.output)
    plan = _planned_mesh(options)[1]
    if options.output is not None:
        write_whole(options.output, plan_json(plan).encode())
    print(plan)


def _mesh_build(options: argparse.Namespace) -> None:
    mod, plan = _planned_mesh(options)
    mesh = build_mesh(mod, plan, output_dir=options.output_dir, progress=_note)
    print(f"{mesh.directory}: {len(mesh.manifest.programs)} programs, {len(mesh.manifest.pes)} PEs")


def _planned_mesh(options: argparse.Namespace) -> tuple[tvm.IRModule, MeshPlan]:
    mesh = MESH_7296.of(options.pes)
    mod = _partitioned_for_mesh(options, mesh.pe)
    objective, count = options.objective, options.pipelines
    return mod, pipeline(mod, None, mesh, objective=objective, pipelines=count, mapping=options.mapping)


def _partitioned_for_mesh(options: argparse.Namespace, accelerator: Hardware) -> tvm.IRModule:
    mod, params = _loaded(options)
    return byoc_hw.partition_for_hwlib(
        mod, params, options.mod_name, accelerator=accelerator, numerics=options.numerics, deny=options.deny
    )


def _schedule(options: argparse.Namespace) -> None:
    schedule = Project(options.directory).schedule
    for file, picture in ((options.timeline, schedule.timeline), (options.memory, schedule.memory)):
        if file is not None:
            picture().savefig(file)
    print(schedule)


def _loaded(options: argparse.Namespace) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    return byoc_hw.load(options.model, shapes=dict(map(_shape, options.shape)))


def _partitioned(options: argparse.Namespace) -> tvm.IRModule:
    mod, params = _loaded(options)
    accelerator = _accelerator(options)
    return byoc_hw.partition_for_hwlib(
        mod, params, accelerator=accelerator, numerics=options.numerics, deny=options.deny
    )


def _accelerator(options: argparse.Namespace) -> Hardware:
    """The preset, or the chip of presets, with the given RAM and flash."""
    sizes = {name: getattr(options, name, None) for name in ("ram", "flash")}
    given = {name: nbytes for name, nbytes in sizes.items() if nbytes is not None}
    return replace(_hardware(options.accelerator), **given)


def _hardware(text: str) -> Hardware:
    """A preset by its label, or a chip of several: labels with + between them."""
    labels = text.split("+")
    for label in labels:
        if label not in ACCELERATORS:
            known = ", ".join(ACCELERATORS)
            raise InvalidInput(f"--accelerator is one of {known}, or several, as in DIANA_DIGITAL+DSP: got {text!r}")
    if len(labels) == 1:
        return ACCELERATORS[text]
    names = distinct(label.lower() for label in labels)
    presets = (ACCELERATORS[label] for label in labels)
    return byoc_hw.Soc(tuple(replace(one, name=name) for one, name in zip(presets, names, strict=True)), label=text)


def _accelerator_of_hal(options: argparse.Namespace) -> byoc_hw.Accelerator:
    found = _hardware(options.accelerator)
    if isinstance(found, byoc_hw.Soc):
        raise InvalidInput(f"a HAL is for one accelerator, also on a chip: got {options.accelerator}")
    return found


def _quantize(options: argparse.Namespace) -> None:
    if options.output.suffix.lower() not in _QUANTIZED:
        raise InvalidInput(f"--output ends in {' or '.join(_QUANTIZED)}: got {options.output.name}")
    check_file(options.output)
    if options.model.suffix.lower() == ".tflite":
        model, params = options.model, None
    else:
        model, params = byoc_hw.load(options.model, shapes=dict(options.shape or ()))
    quantized = byoc_hw.quantize(
        model,
        _calibration(options.calibration),
        params=params,
        accelerator=_hardware(options.accelerator),
        objective=options.objective,
        bits=options.bits,
        tolerance=options.tolerance,
        inputs=dict(options.input_grid),
        seed=options.seed,
    )
    if options.output.suffix.lower() == ".tflite":
        quantized.save_tflite(options.output)
    else:
        write_whole(options.output, quantized.to_json().encode())
    print(quantized)
    print(f"The model is in {options.output}: python -m byoc_hw build {shlex.quote(str(options.output))}")


_QUANTIZED = (".tflite", ".json")


def _calibration(path: Path) -> Array | dict[str, Array]:
    """The samples of a file: of the only input, or of each by name."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(
            f"--calibration is an .npy file, or an .npz file with an array for each input: {error}"
        ) from error
    if isinstance(found, np.ndarray):
        return found
    with found:
        arrays = {name: found[name] for name in found.files}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def _grid(text: str) -> tuple[str, tuple[float, int]]:
    """An option --input-grid: name, scale and zero point."""
    name, _, numbers = text.rpartition("=")
    scale, _, zero_point = numbers.partition(",")
    try:
        return name, (float(scale), int(zero_point))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is NAME=SCALE,ZERO_POINT, such as x=0.5,-3: got {text!r}") from error


def _explain(options: argparse.Namespace) -> None:
    if options.model.suffix.lower() == ".tflite" and not options.shape:  # the whole of it, whatever stops the import
        report = byoc_hw.explain_tflite(
            options.model, accelerator=_hardware(options.accelerator), numerics=options.numerics, deny=options.deny
        )
    else:
        report = byoc_hw.explain(_partitioned(options))
    print(report.to_json() if options.json else report)


def _plan(options: argparse.Namespace) -> None:
    accelerator = _accelerator(options)
    if isinstance(accelerator, byoc_hw.Soc):
        raise InvalidInput(f"the stages of planning are those of one accelerator: got {options.accelerator}")
    mod = _partitioned(options)
    graphs = region_graphs(mod)
    if not graphs:
        raise InvalidInput(f"planning is of regions: nothing of the model runs on accelerator {accelerator.label}")
    limited = (options.ram, options.flash, options.optimize) != (None, None, OBJECTIVES[0])
    rooms = region_rooms(mod, None, options.optimize) if limited else {}
    chosen = {name: room.choices for name, room in rooms.items()}
    layouts = (lay_out_region(graph, accelerator, chosen.get(name)) for name, graph in graphs.items())
    print("\n\n".join(str(STAGES[options.stage](layout)) for layout in layouts))


def _hal_test(options: argparse.Namespace) -> None:
    accelerator = _accelerator_of_hal(options)
    if options.write is not None:
        write_kit(options.write, accelerator, refusals=bool(options.refusals), events=options.events)
        print(f"The kit is in {options.write}: build it with your HAL, and provide hal_kit_print of hal_kit.h")
        return
    report = hal_test(
        options.hal,
        accelerator=accelerator,
        cc=options.cc,
        cflags=options.cflags,
        refusals=options.refusals,
        events=options.events,
        timeout=options.timeout,
    )
    print(report)
    if not report.passed:
        raise RunError(f"the HAL fails in {', '.join(report.failed)}")


def _new_hal(options: argparse.Namespace) -> None:
    new_hal(options.directory, _accelerator_of_hal(options), registers=options.registers)
    directory = shlex.quote(str(options.directory if options.registers is None else options.directory / MODEL))
    check = f"python -m byoc_hw hal-test --hal {directory} --accelerator {options.accelerator}"
    print(f"The HAL is in {options.directory}: check it with\n  {check}")


def _address(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is a number, such as 0x40000000: got {text!r}") from error


# ---------------------------------------------------------------- arrays


def _inputs(expected: Sequence[Interface], given: Sequence[str], seed: int | None, quantize: bool) -> dict[str, Array]:
    """The arrays of `--input`, and random ones for the rest if there is a seed; real values with `quantize`."""
    arrays = dict(_read(text, [one.real if quantize else one for one in expected]) for text in given)
    if seed is not None:
        rng = np.random.default_rng(seed)
        # Draw every input, used or not: the random values then do not depend on which inputs were given.
        random = {interface: _random(interface, rng) for interface in expected}
        if quantize:
            random = {one: values if one.scale is None else one.dequantize(values) for one, values in random.items()}
        arrays = {interface.name: values for interface, values in random.items()} | arrays
    return arrays


def _read(text: str, expected: Sequence[Interface]) -> tuple[str, Array]:
    # Names come from models and may hold anything, an equals sign too: the longest that fits is meant.
    known = [interface for interface in expected if text.startswith(f"{interface.name}=")]
    if not known:
        names = ", ".join(interface.name for interface in expected)
        raise InvalidInput(f"--input is NAME=FILE.npy with one of the names {names or '(none)'}: got {text!r}")
    interface = max(known, key=lambda interface: len(interface.name))
    return interface.name, read_array(Path(text[len(interface.name) + 1 :]), interface)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An option --shape; a name may hold an equals sign, extents do not."""
    name, _, extents = text.rpartition("=")
    try:
        return name, tuple(int(extent) for extent in extents.split(","))
    except ValueError:
        raise InvalidInput(f"--shape is NAME=EXTENTS, as in x=1,3,32,32: got {text!r}") from None


def _wish(text: str) -> tuple[str, str]:
    """An option --place; the name of an operator may hold an equals sign."""
    name, equals, where = text.rpartition("=")
    if not (name and equals and where):
        raise InvalidInput(f"--place is NAME=WHERE, as in softmax=host: got {text!r}")
    return name, where


def _objective(text: str | None) -> Objective | None:
    """An option --objective: "latency", or the weights of energy."""
    if text is None:
        return None
    if text == "latency":
        return "latency"
    rule = "--objective is latency, or weights of energy as in hwlib=12,copied=0.5,host=1"
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise InvalidInput(f"{rule}: got {text!r}") from None
    if not {"copied", "host"} <= weights.keys():
        raise InvalidInput(f"{rule}: got {text!r}, without {'copied' if 'copied' not in weights else 'host'}")
    copied, host = weights.pop("copied"), weights.pop("host")
    return byoc_hw.Energy(weights, copied, host)


def _random(interface: Interface, rng: np.random.Generator) -> Array:
    dtype = np.dtype(interface.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(interface.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, interface.shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, interface.shape, dtype, endpoint=True)


def _save(interfaces: Sequence[Interface], result: Result, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plain = (re.sub(r"[^A-Za-z0-9_.-]", "_", interface.name)[:_LONGEST_NAME] for interface in interfaces)
    for name, output in zip(distinct(plain, same=str.lower, longest=_LONGEST_NAME), result.outputs, strict=True):
        data = io.BytesIO()
        np.save(data, output)
        write_whole(directory / f"{name}.npy", data.getvalue())


# ---------------------------------------------------------------- options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m byoc_hw",
        description="Compile quantized models to C projects for a neural accelerator, and run them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"byoc_hw {byoc_hw.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    build = _command(commands, "build", "compile a model to a C project", "model.tflite --output-dir out/model")
    _add_model(build)
    build.add_argument("--output-dir", type=Path, required=True, help="a new or empty directory, or an earlier project")
    build.add_argument("--mod-name", default="default", help="what every C name starts with (%(default)s)")
    target = build.add_mutually_exclusive_group()
    _add_accelerator(build, target)
    _add_limits(build)
    _add_optimize(build)
    build.add_argument("--tuning", type=Path, metavar="FILE", help="plans that `tune` found")
    text = "what the fastest plans are: latency also counts the core; weights of energy, as hwlib=12,copied=0.5,host=1"
    build.add_argument("--objective", metavar="WHAT", help=text)
    text = "where an operator, or all layers of a kind, run: softmax=host; may be given again"
    build.add_argument("--place", action="append", default=[], metavar="NAME=WHERE", help=text)
    build.add_argument("--poll", action="store_true", help="start, poll and wait beside run: an inference in steps")
    text = "constants of regions as text of C, or bytes that the assembler includes; auto: binary from 1 MiB on"
    build.add_argument("--weights", choices=WEIGHTS, default=WEIGHTS[0], help=text)
    build.add_argument("--force", action="store_true", help="replace files of an earlier project that were edited")
    target.add_argument("--cpu-only", action="store_true", help="all of the model as TVM's C, nothing offloaded")
    build.set_defaults(command=_build)

    quantize = _command(
        commands,
        "quantize",
        "make an integer model of a float one, with weights of 8, 4 or 2 bits",
        'float.tflite --calibration samples.npy --objective "flash<=32KiB" -o model.tflite',
    )
    _add_model(quantize)
    text = "samples without labels: .npy, or .npz with an array for each input"
    quantize.add_argument("--calibration", type=Path, required=True, metavar="FILE", help=text)
    text = "the integer model: .json, of Relay, or .tflite, of a float .tflite file"
    quantize.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=text)
    quantize.add_argument("--bits", type=int, choices=WIDTHS, help="the width of all weights (8)")
    text = "accuracy; flash, ram or cycles: as little as the tolerance lets it be; or with a limit: flash<=32KiB"
    quantize.add_argument("--objective", default="accuracy", metavar="WHAT", help=text)
    text = "what a narrower model may lose: a share of the answers (%(default)s)"
    quantize.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="SHARE", help=text)
    text = "scale and zero point of an input, whose samples may be integers then; may be given again"
    quantize.add_argument(
        "--input-grid", action="append", type=_grid, default=[], metavar="NAME=SCALE,ZERO_POINT", help=text
    )
    quantize.add_argument("--seed", type=int, default=0, help="the same one gives the same bytes (%(default)s)")
    _add_accelerator(quantize, quantize)
    quantize.set_defaults(command=_quantize)

    tune = _command(commands, "tune", "search for better plans", "model.tflite -o model.tuning --accelerator SMALL")
    _add_model(tune)
    tune.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="what `build --tuning` takes")
    _add_accelerator(tune, tune)
    _add_limits(tune)
    tune.add_argument("--budget", type=int, default=1000, help="plans to try for each region (%(default)s)")
    tune.add_argument("--jobs", type=int, default=1, help="processes that try them (%(default)s)")
    tune.add_argument("--seed", type=int, default=0, help="of the search; the same one finds the same (%(default)s)")
    tune.set_defaults(command=_tune)

    run = _command(commands, "run", "run one inference of a project (needs no TVM)", "out/model --random 0 --profile")
    run.add_argument("directory", type=Path, metavar="DIR", help="a project that build made")
    run.add_argument("--on", choices=RUNNERS, default=RUNNERS[0], help="where it runs (%(default)s)")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; once for each of the model"
    )
    run.add_argument("--random", type=int, metavar="SEED", help="random values for inputs that are not given")
    run.add_argument("--quantize", action="store_true", help="inputs and outputs are real values, float32")
    run.add_argument("--output-dir", type=Path, help="write each output there, as <name>.npy")
    run.add_argument("--profile", action="store_true", help="show accelerator cycles by layer")
    run.set_defaults(command=_run)

    schedule = _command(
        commands,
        "schedule",
        "show when each layer works, as planned (needs no TVM)",
        "out/model --timeline timeline.svg --memory memory.svg",
    )
    schedule.add_argument("directory", type=Path, metavar="DIR", help="a project that build made")
    schedule.add_argument(
        "--timeline", type=_picture, metavar="FILE", help="draw DMA, array and core: .svg, .png, .pdf"
    )
    schedule.add_argument("--memory", type=_picture, metavar="FILE", help="draw what lies in memory, and when")
    schedule.set_defaults(command=_schedule)

    explain = _command(commands, "explain", "say what is offloaded, and why the rest is not", "model.tflite --json")
    _add_model(explain)
    explain.add_argument("--json", action="store_true", help="for programs")
    _add_accelerator(explain, explain)
    explain.set_defaults(command=_explain)

    plan = _command(
        commands, "plan", "show a stage of planning as text", "model.tflite --stage choices --accelerator SMALL"
    )
    _add_model(plan)
    plan.add_argument("--stage", choices=STAGES, default="choices", help="what to show (%(default)s)")
    _add_accelerator(plan, plan)
    _add_limits(plan)
    _add_optimize(plan)
    plan.set_defaults(command=_plan)

    test = _command(commands, "hal-test", "check every function of a HAL (needs no TVM)", "--hal my_hal --cflags=-O1")
    test.add_argument("--hal", type=Path, metavar="DIR", help="the C files of a HAL (the simulator)")
    _add_preset(test, "")
    test.add_argument("--cc", default="gcc", help="the compiler, for this machine (%(default)s)")
    test.add_argument("--cflags", default=DEFAULT_CFLAGS, help="its options (%(default)s)")
    test.add_argument(
        "--refusals",
        action=argparse.BooleanOptionalAction,
        help="whether to check error returns: that it refuses what the accelerator cannot do (for the simulator only)",
    )
    test.add_argument("--events", type=int, default=0, help="events of the chip, which it checks as well (%(default)s)")
    test.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="of the run (%(default)s)")
    test.add_argument("--write", type=Path, metavar="DIR", help="write the kit's C there, for a chip; run nothing")
    test.set_defaults(command=_hal_test)

    new = _command(commands, "new-hal", "write a HAL to start from (needs no TVM)", "my_hal --accelerator SMALL")
    new.add_argument("directory", type=Path, metavar="DIR", help="a directory that is new or empty")
    new.add_argument(
        "--registers",
        type=_address,
        metavar="ADDRESS",
        help="one that drives a chip by memory-mapped registers from there on, as 0x40000000",
    )
    _add_preset(new, "")
    new.set_defaults(command=_new_hal)
    _add_mesh(commands)
    return parser


def _add_mesh(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mesh = _command(commands, "mesh", "run a model on many PEs", "run out/mesh --random 100")
    steps = mesh.add_subparsers(title="commands", required=True, metavar="COMMAND")
    nodes = _command(steps, "nodes", "list the nodes of a model, which stages are made of", "model.tflite", "mesh ")
    plan = _command(steps, "plan", "plan a model for PEs of MESH_7296", "model.tflite --pes 8", "mesh ")
    example = "model.tflite --pes 8 --output-dir out/mesh"
    make = _command(steps, "build", "write and compile the programs of a mesh", example, "mesh ")
    for parser in (nodes, plan, make):
        _add_model(parser)
        _add_numerics(parser)
        parser.add_argument("--mod-name", default="default", help="what every C name starts with (%(default)s)")
    nodes.set_defaults(command=_mesh_nodes)
    for parser in (plan, make):
        parser.add_argument("--pes", type=int, required=True, metavar="N", help="the number of PEs")
        text = "most frames, or one inference as early as possible (%(default)s)"
        parser.add_argument("--objective", choices=PIPELINE_OBJECTIVES, default=PIPELINE_OBJECTIVES[0], help=text)
        text = "the copies of one pipeline (as many as give the most frames)"
        parser.add_argument("--pipelines", type=int, metavar="N", help=text)
        parser.add_argument("--mapping", type=Path, metavar="FILE", help="a plan that another mapper made")
    plan.add_argument("--output", type=Path, metavar="FILE", help="where the plan goes, as JSON")
    plan.set_defaults(command=_mesh_plan)
    make.add_argument("--output-dir", type=Path, required=True, help="a new or empty directory, or an earlier mesh")
    make.set_defaults(command=_mesh_build)
    run = _command(steps, "run", "send frames through a mesh", "out/mesh --random 100", "mesh ")
    add_run(run)
    run.set_defaults(command=run_mesh)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    example: str,
    above: str = "",
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  python -m byoc_hw {above}{name} {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


_SIZE = re.compile(r"(\d+)\s*(|k|K|Ki|KiB|M|Mi|MiB)B?", re.ASCII)


def _nbytes(text: str) -> int:
    """A size such as 65536, 64k or 64KiB."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a size is bytes, KiB or MiB, as in 65536, 64k, 64KiB, 2M: got {text!r}")
    return int(found[1]) * {"": 1, "k": KIB, "m": KIB * KIB}[found[2][:1].lower()]


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"a picture is one of {', '.join(PICTURES)}: got {text!r}")
    return path


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="a .tflite or .onnx file, or Relay as .relay, .txt or .json"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,32,32",
        help="of an input whose shape an ONNX file leaves open; once for each",
    )


def _add_accelerator(parser: argparse.ArgumentParser, group: argparse._ActionsContainer) -> None:
    _add_preset(group, ", or a chip of several, as in DIANA_DIGITAL+DSP")
    _add_numerics(parser)


def _add_numerics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--numerics",
        choices=ROUNDINGS,
        default="relay",
        help="whose arithmetic offloaded layers follow: TVM's, or TFLite's reference kernels' (%(default)s)",
    )
    parser.add_argument(
        "--deny",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="composites or operators to keep on the host",
    )


def _add_preset(group: argparse._ActionsContainer, several: str) -> None:
    text = f"{', '.join(ACCELERATORS)}{several} (%(default)s)"
    group.add_argument("--accelerator", default="REFERENCE", metavar="NAME", help=text)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for name, what in (("ram", "for all data that is written"), ("flash", "for constant data")):
        text = f"{what}, such as 320k (that of the preset)"
        parser.add_argument(f"--{name}", type=_nbytes, metavar="BYTES", help=text)


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    text = "what to plan for: the fastest plans that fit, or the smallest (%(default)s)"
    parser.add_argument("--optimize", choices=OBJECTIVES, default=OBJECTIVES[0], help=text)


if __name__ == "__main__":
    sys.exit(main())
