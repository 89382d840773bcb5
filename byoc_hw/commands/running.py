"""Commands for a project that was built: run, schedule."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from byoc_hw.commands.arrays import given_inputs, save_outputs
from byoc_hw.commands.options import Commands, add_command, picture_path, print_note
from byoc_hw.errors import InvalidInput
from byoc_hw.project import RUNNERS, Project
from byoc_hw.report.cycles import profile
from byoc_hw.whole_file import check_directory


def add_running(commands: Commands) -> None:
    """Add `run` and `schedule`."""
    run = add_command(
        commands, "run", "run one inference of a project (needs no TVM)", "out/model --random 0 --profile"
    )
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

    schedule = add_command(
        commands,
        "schedule",
        "show when each layer works, as planned (needs no TVM)",
        "out/model --timeline timeline.svg --memory memory.svg",
    )
    schedule.add_argument("directory", type=Path, metavar="DIR", help="a project that build made")
    schedule.add_argument(
        "--timeline", type=picture_path, metavar="FILE", help="draw DMA, array and core: .svg, .png, .pdf"
    )
    schedule.add_argument("--memory", type=picture_path, metavar="FILE", help="draw what lies in memory, and when")
    text = "the numbers of the layers whose time the timeline shows, as 10-19"
    schedule.add_argument("--layers", type=_numbers, metavar="FIRST-LAST", help=text)
    text = "another project of the model: its timeline is drawn above, as before a tuning"
    schedule.add_argument("--before", type=Path, metavar="DIR", help=text)
    schedule.set_defaults(command=_schedule)


def _run(options: argparse.Namespace) -> None:
    project = Project(options.directory)
    inputs = given_inputs(project.inputs, options.input, options.random, options.quantize)
    if options.output_dir is not None:
        check_directory(options.output_dir)
    result = project.run(inputs, on=options.on, quantize=options.quantize)
    outputs = [output.real if options.quantize else output for output in project.outputs]
    if result.changed:
        print_note(f"files of {options.directory} are not as build wrote them: {', '.join(result.changed)}")
    if options.output_dir is not None:
        save_outputs(outputs, result, options.output_dir)
    for interface, output in zip(outputs, result.outputs, strict=True):
        print(f"{interface.name} {interface.dtype}{list(interface.shape)}")
        print(np.array2string(output, threshold=64))
    if options.profile:
        print(profile(result))


def _schedule(options: argparse.Namespace) -> None:
    schedule = Project(options.directory).schedule
    for name in ("layers", "before"):
        if getattr(options, name) is not None and options.timeline is None:
            raise InvalidInput(f"--{name} is for a picture: --timeline says where it goes")
    if options.layers is not None and options.before is not None:
        raise InvalidInput("--before is for whole timelines: it stands without --layers")
    if options.timeline is not None:
        before = None if options.before is None else Project(options.before).schedule
        drawn = schedule.timeline(options.layers) if before is None else before.beside(schedule)
        drawn.savefig(options.timeline)
    if options.memory is not None:
        schedule.memory().savefig(options.memory)
    print(schedule)


def _numbers(text: str) -> range:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else True)) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"is a number, or a first and a last one, as in 10-19: got {text!r}")
    return range(int(first), int(last or first) + 1)
