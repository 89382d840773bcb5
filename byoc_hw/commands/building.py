"""Commands that make something of a model: build, quantize, tune."""

from __future__ import annotations

import argparse
import shlex
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np

import byoc_hw
from byoc_hw.commands.arrays import given_once, loaded_arrays
from byoc_hw.commands.options import (
    Commands,
    accelerator_of_options,
    add_accelerator,
    add_command,
    add_limits,
    add_model,
    add_optimize,
    hardware_named,
    ignore_interrupts,
    loaded_model,
    name_of_model,
    partitioned_model,
    print_note,
)
from byoc_hw.compiler import OBJECTIVES
from byoc_hw.emit.weight_file import WEIGHTS
from byoc_hw.errors import InvalidInput
from byoc_hw.objective import Objective
from byoc_hw.quantizer import TOLERANCE, WIDTHS
from byoc_hw.tensor import Array
from byoc_hw.tuner import TuningInterrupted
from byoc_hw.whole_file import check_file, write_whole


def add_building(commands: Commands) -> None:
    """Add `build`, `quantize` and `tune`."""
    build = add_command(commands, "build", "compile a model to a C project", "model.tflite --output-dir out/model")
    add_model(build)
    build.add_argument("--output-dir", type=Path, required=True, help="a new or empty directory, or an earlier project")
    build.add_argument("--mod-name", metavar="NAME", help="what every C name starts with (that of the model's file)")
    target = build.add_mutually_exclusive_group()
    add_accelerator(build, target)
    add_limits(build)
    add_optimize(build)
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

    quantize = add_command(
        commands,
        "quantize",
        "make an integer model of a float one, with weights of 8, 4 or 2 bits",
        'float.tflite --calibration samples.npy --objective "flash<=32KiB" -o model.tflite',
    )
    add_model(quantize)
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
    add_accelerator(quantize, quantize)
    quantize.set_defaults(command=_quantize)

    tune = add_command(commands, "tune", "search for better plans", "model.tflite -o model.tuning --accelerator SMALL")
    add_model(tune)
    tune.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="what `build --tuning` takes")
    add_accelerator(tune, tune)
    add_limits(tune)
    tune.add_argument("--budget", type=int, default=1000, help="plans to try for each region (%(default)s)")
    tune.add_argument("--jobs", type=int, default=1, help="processes that try them (%(default)s)")
    tune.add_argument("--seed", type=int, default=0, help="of the search; the same one finds the same (%(default)s)")
    tune.set_defaults(command=_tune)


def _build(options: argparse.Namespace) -> None:
    mod, params = loaded_model(options)
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
        accelerator = accelerator_of_options(options)
        mod = byoc_hw.partition_for_hwlib(
            mod, params, name_of_model(options), accelerator=accelerator, numerics=options.numerics, deny=options.deny
        )
    project = byoc_hw.build(
        mod,
        params,
        mod_name=name_of_model(options),
        output_dir=options.output_dir,
        tuning=options.tuning,
        optimize=options.optimize,
        place=given_once("--place", "name", map(_wish, options.place)),
        objective=_objective(options.objective),
        poll=options.poll,
        weights=options.weights,
        force=options.force,
    )
    print(project.report)
    print(project.memory)
    if project.changed:
        print_note(f"edited, and kept (--force replaces what the project has): {', '.join(project.changed)}")
    print(f"The C project is in {project.directory}: make -C {shlex.quote(str(project.directory))}")


def _quantize(options: argparse.Namespace) -> None:
    if options.output.suffix.lower() not in _QUANTIZED:
        raise InvalidInput(f"--output ends in {' or '.join(_QUANTIZED)}: got {options.output.name}")
    check_file(options.output)
    model, params = (options.model, None) if options.model.suffix.lower() == ".tflite" else loaded_model(options)
    quantized = byoc_hw.quantize(
        model,
        _calibration(options.calibration),
        params=params,
        accelerator=hardware_named(options.accelerator),
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


def _tune(options: argparse.Namespace) -> None:
    if options.jobs < 1:
        raise InvalidInput(f"--jobs is at least 1: got {options.jobs}")
    check_file(options.output)
    mod = partitioned_model(options)
    try:
        with ProcessPoolExecutor(options.jobs, None, ignore_interrupts) if options.jobs > 1 else nullcontext() as pool:
            tuning = byoc_hw.tune(mod, executor=pool, budget=options.budget, seed=options.seed)
    except TuningInterrupted as stopped:
        stopped.tuning.save(options.output)
        print_note(f"interrupted: the best plans so far are in {options.output}")
        raise
    tuning.save(options.output)
    print(tuning)
    quoted = shlex.quote(str(options.output))
    print(f"The tuning is in {options.output}: python -m byoc_hw build --tuning {quoted}")


_QUANTIZED = (".tflite", ".json")


def _calibration(path: Path) -> Array | dict[str, Array]:
    """The samples of a file: of the only input, or of each by name."""
    arrays = loaded_arrays(path, "--calibration is an .npy file, or an .npz file with an array for each input")
    if isinstance(arrays, np.ndarray) or len(arrays) != 1:
        return arrays
    return next(iter(arrays.values()))


def _grid(text: str) -> tuple[str, tuple[float, int]]:
    """An option --input-grid: name, scale and zero point."""
    name, _, numbers = text.rpartition("=")
    scale, _, zero_point = numbers.partition(",")
    try:
        return name, (float(scale), int(zero_point))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is NAME=SCALE,ZERO_POINT, such as x=0.5,-3: got {text!r}") from error


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
