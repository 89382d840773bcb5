"""Commands that say what becomes of a model: explain, report, plan."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import byoc_hw
from byoc_hw.commands.options import (
    Commands,
    accelerator_of_options,
    add_accelerator,
    add_command,
    add_limits,
    add_model,
    add_optimize,
    add_shapes,
    hardware_named,
    name_of_model,
    partitioned_model,
    picture_path,
)
from byoc_hw.compiler import OBJECTIVES, region_graphs, region_rooms
from byoc_hw.errors import InvalidInput
from byoc_hw.plan.chip_plan import CHIP_STAGES
from byoc_hw.plan.region import stage_of
from byoc_hw.plan.stages import STAGES
from byoc_hw.report.offload_graph import write_graph


def add_explaining(commands: Commands) -> None:
    """Add `explain`, `report` and `plan`."""
    explain = add_command(commands, "explain", "say what is offloaded, and why the rest is not", "model.tflite --json")
    add_model(explain)
    explain.add_argument("--json", action="store_true", help="for programs")
    text = "draw the operators by where they run: .svg, .png, .pdf by Graphviz, or .dot"
    explain.add_argument("--graph", type=_graph_path, metavar="FILE", help=text)
    add_accelerator(explain, explain)
    explain.set_defaults(command=_explain)

    report = add_command(
        commands,
        "report",
        "one page: what is offloaded, cycles, memory, and the costliest layers",
        "model.tflite --clock 200M",
    )
    text = "a model, as for build, or the directory of a project (needs no TVM)"
    report.add_argument("model", type=Path, metavar="MODEL", help=text)
    add_shapes(report)
    add_accelerator(report, report)
    add_limits(report)
    report.add_argument(
        "--clock", type=_frequency, metavar="HZ", help="of the accelerator, as in 200M: for milliseconds"
    )
    text = "draw the layers' rates below what array and DMA allow: .svg, .png, .pdf"
    report.add_argument("--roofline", type=picture_path, metavar="FILE", help=text)
    form = report.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the layers as a table")
    form.add_argument("--json", action="store_true", help="for programs")
    report.set_defaults(command=_report)

    plan = add_command(
        commands, "plan", "show a stage of planning as text", "model.tflite --stage choices --accelerator SMALL"
    )
    add_model(plan)
    plan.add_argument("--stage", choices=STAGES, default="choices", help="what to show (%(default)s)")
    add_accelerator(plan, plan)
    add_limits(plan)
    add_optimize(plan)
    plan.set_defaults(command=_plan)


def _explain(options: argparse.Namespace) -> None:
    if options.model.suffix.lower() == ".tflite" and not options.shape:  # the whole of it, whatever stops the import
        report = byoc_hw.explain_tflite(
            options.model,
            name_of_model(options),
            accelerator=hardware_named(options.accelerator),
            numerics=options.numerics,
            deny=options.deny,
        )
    else:
        report = byoc_hw.explain(partitioned_model(options))
    if options.graph is not None:
        write_graph(report, options.graph)
    print(report.to_json() if options.json else report)


def _graph_path(text: str) -> Path:
    return Path(text) if text.endswith(".dot") else picture_path(text)


def _report(options: argparse.Namespace) -> None:
    if options.model.is_dir():
        given = {"ram": options.ram, "flash": options.flash, "deny": options.deny or None}
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(f"--{name} is for a model: {options.model} is a project that was built")
        project = byoc_hw.Project(options.model)
    else:
        project = byoc_hw.build(partitioned_model(options))
    summary = project.summary(options.clock)
    if options.roofline is not None:
        summary.roofline().savefig(options.roofline)
    if options.csv:
        print(summary.to_csv(), end="")
    else:
        print(summary.to_json() if options.json else summary)


_FREQUENCY = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(?:Hz)?", re.ASCII)


def _frequency(text: str) -> float:
    """A clock such as 200M, 200MHz or 1.5G."""
    found = _FREQUENCY.fullmatch(text)
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"a clock is above 0, in Hz, as in 200000000, 200M, 1.5GHz: got {text!r}")
    return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def _plan(options: argparse.Namespace) -> None:
    accelerator = accelerator_of_options(options)
    if isinstance(accelerator, byoc_hw.Soc) and options.stage not in CHIP_STAGES:
        raise InvalidInput(f"--stage of a chip is one of {', '.join(CHIP_STAGES)}: got {options.stage}")
    mod = partitioned_model(options)
    graphs = region_graphs(mod)
    if not graphs:
        raise InvalidInput(f"planning is of regions: nothing of the model runs on accelerator {accelerator.label}")
    limited = (options.ram, options.flash, options.optimize) != (None, None, OBJECTIVES[0])
    rooms = region_rooms(mod, None, options.optimize) if limited else {}
    shown = (
        stage_of(options.stage, graph, accelerator, rooms[name].choices if name in rooms else None)
        for name, graph in graphs.items()
    )
    print("\n\n".join(map(str, shown)))
