"""The command that compares a project with TVM or TFLite, layer by layer: validate."""

from __future__ import annotations

import argparse
from pathlib import Path

import byoc_hw
from byoc_hw.arguments import check_whole
from byoc_hw.commands.arrays import given_samples, random_samples
from byoc_hw.commands.options import Commands, add_accelerator, add_command, add_model, partitioned_model
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.project import RUNNERS
from byoc_hw.run.toolchain import DEFAULT_CFLAGS

_REFERENCES = ("tvm", "tflite")


def add_validating(commands: Commands) -> None:
    """Add `validate`."""
    validate = add_command(
        commands,
        "validate",
        "compare the C of a model with TVM's or TFLite's results, layer by layer",
        "model.tflite --samples inputs.npy --on riscv32",
    )
    add_model(validate)
    inputs = validate.add_mutually_exclusive_group(required=True)
    text = "inputs of several inferences: .npy, or .npz with an array for each input"
    inputs.add_argument("--samples", type=Path, metavar="FILE", help=text)
    inputs.add_argument("--random", type=int, metavar="SEED", help="random inputs")
    validate.add_argument("--count", type=int, default=1, help="inferences with random inputs (%(default)s)")
    add_accelerator(validate, validate)
    text = "a project of the model that build made with the same --numerics (a new one)"
    validate.add_argument("--project", type=Path, metavar="DIR", help=text)
    text = "whose results: TVM's, or TFLite's reference kernels' (that of --numerics)"
    validate.add_argument("--reference", choices=_REFERENCES, help=text)
    validate.add_argument("--on", choices=RUNNERS, default=RUNNERS[0], help="where it runs (%(default)s)")
    validate.add_argument("--hal", type=Path, metavar="DIR", help="the C files of your HAL (the simulator)")
    validate.add_argument("--cc", help="the compiler (that of the target)")
    validate.add_argument("--cflags", default=DEFAULT_CFLAGS, help="its options (%(default)s)")
    validate.add_argument("--tolerance", type=float, default=0.0, help="differences that do not count (%(default)s)")
    validate.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="of the run (%(default)s)")
    form = validate.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the layers and outputs as a table")
    form.add_argument("--json", action="store_true", help="for programs")
    validate.set_defaults(command=_validate)


def _validate(options: argparse.Namespace) -> None:
    check_whole("--count", options.count, 1)
    if options.samples is not None and options.count != 1:
        raise InvalidInput("--count is for --random: --samples has as many inferences as are in its file")
    tflite = options.model.suffix.lower() == ".tflite"
    wanted = options.reference or ("tflite" if options.numerics == "tflite" and tflite else "tvm")
    if wanted == "tflite" and not tflite:
        raise InvalidInput(f"--reference tflite is for a .tflite file: got {options.model.name}")
    toolchain = byoc_hw.Toolchain(cc=options.cc, cflags=options.cflags, hal=options.hal)
    known = None if options.project is None else byoc_hw.Project(options.project)
    own = None if known is None else known.report.numerics  # None: all of it runs on the host
    if own not in (None, options.numerics) and options.reference is None:
        rule = f"--numerics is that of the project, {own}, unless --reference says whose results"
        raise InvalidInput(f"{rule}: got {options.numerics}")
    mod = partitioned_model(options)
    project = byoc_hw.build(mod) if known is None else known
    if options.samples is None:
        samples = random_samples(project.inputs, options.random, options.count)
    else:
        samples = given_samples(project.inputs, options.samples)
    found = byoc_hw.validate(
        project,
        samples,
        options.model if wanted == "tflite" else mod,
        on=options.on,
        tolerance=options.tolerance,
        timeout=options.timeout,
        toolchain=toolchain,
    )
    if options.csv:
        print(found.to_csv(), end="")
    else:
        print(found.to_json() if options.json else f"{found.summary()}\n{found.table()}")
    if not found:
        raise RunError(f"{project.mod_name} on {options.on}: {found.headline()}")
