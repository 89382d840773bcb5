"""The command for the team before tape-out: explore."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import byoc_hw
from byoc_hw.accelerator import Accelerator
from byoc_hw.commands.options import (
    Commands,
    add_accelerator,
    add_command,
    add_shapes,
    hardware_named,
    ignore_interrupts,
    picture_path,
    shape_of_option,
    size_in_bytes,
)
from byoc_hw.errors import InvalidInput
from byoc_hw.exploration import ARRAY, OBJECTIVE
from byoc_hw.names import distinct
from byoc_hw.report.variations import METRICS
from byoc_hw.soc import Soc
from byoc_hw.whole_file import check_file


def add_exploring(commands: Commands) -> None:
    """Add `explore`."""
    explore = add_command(
        commands,
        "explore",
        "compare variations of an accelerator: cycles against memory and array",
        "model.tflite --vary activation_memory=16K,32K,64K --vary dma_width=4,8,16 --vary array=8x8,16x16",
    )
    text = "models, as for build: their cycles are compared by the geometric mean"
    explore.add_argument("models", type=Path, nargs="+", metavar="MODEL", help=text)
    add_shapes(explore)
    add_accelerator(explore, explore)
    text = "values of a field of the accelerator, of a chip as dsp.dma_width=4,8; all combinations are tried"
    explore.add_argument("--vary", action="append", required=True, metavar="FIELD=VALUE,...", help=text)
    text = f"what is to be little on the front, of {', '.join(METRICS)} (%(default)s)"
    explore.add_argument("--objective", default=",".join(OBJECTIVE), metavar="WHAT,...", help=text)
    explore.add_argument("--jobs", type=int, default=1, help="processes that plan (%(default)s)")
    text = "draw cycles over memory: .svg, .png, .pdf"
    explore.add_argument("--picture", type=picture_path, metavar="FILE", help=text)
    explore.add_argument("--json", action="store_true", help="for programs")
    explore.set_defaults(command=_explore)


def _explore(options: argparse.Namespace) -> None:
    if options.jobs < 1:
        raise InvalidInput(f"--jobs is at least 1: got {options.jobs}")
    variations: dict[str, tuple[Any, ...]] = {}
    for text in options.vary:
        name, values = _values(text)
        if name in variations:
            raise InvalidInput(f"--vary has each field once: got {name} twice")
        variations[name] = values
    if options.picture is not None:
        check_file(options.picture)
    shapes = dict(map(shape_of_option, options.shape))
    names = distinct(path.stem for path in options.models)
    models = {name: byoc_hw.load(path, shapes=shapes) for name, path in zip(names, options.models, strict=True)}
    with ProcessPoolExecutor(options.jobs, None, ignore_interrupts) if options.jobs > 1 else nullcontext() as pool:
        found = byoc_hw.what_if(
            models,
            None,
            hardware_named(options.accelerator),
            variations,
            options.objective.split(","),
            numerics=options.numerics,
            deny=options.deny,
            executor=pool,
        )
    if options.picture is not None:
        found.picture().savefig(options.picture)
    print(found.to_json() if options.json else found)


_TYPES = {one.name: str(one.type) for cls in (Soc, Accelerator) for one in fields(cls)}


def _values(text: str) -> tuple[str, tuple[Any, ...]]:
    """An option --vary."""
    name, equals, values = text.partition("=")
    if not equals:
        raise InvalidInput(f"--vary is FIELD=VALUE,..., as in dma_width=4,8: got {text!r}")
    field = name.rpartition(".")[2]
    try:
        return name, tuple(_value(field, value) for value in values.split(","))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise InvalidInput(f"--vary {name} has values that the field can have: got {values!r}: {error}") from error


def _value(field: str, text: str) -> Any:
    if field == ARRAY:
        rows, columns = text.split("x")
        return int(rows), int(columns)
    kind = _TYPES.get(field, "int")
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError("true or false")
        return text == "true"
    if kind == "float":
        return float(text)
    if kind == "int":
        return size_in_bytes(text)
    raise ValueError(f"{field} is no number")
