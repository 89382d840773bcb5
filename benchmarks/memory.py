"""RAM and flash of the shipped model and of the MLPerf Tiny ones, offloaded and on the host alone.

`placed` is the arena, `bound` the largest sum of the bytes that are live at once, `gap` the most that a
better placement could save. `TVM` is the arena of each of TVM's planners for the same module: greedy
by size (its default), greedy by conflicts, hill climbing; with one block of scratch for each region.
Flash is constant data, without code and tables of copies, tiles and steps.

With --code another table alone: code and tables of HWlib, of the regions and of main on riscv32, without weights, with
the names of layers and without (`make NAMES=0`), and the core's instructions for one inference. The goals are half of
the bytes, names included, and 3 % more than the instructions that there were when tiles took 72 bytes and copies 32.
With --check the exit code is 1 if one is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from end_to_end import instructions, run
from schedule import code_bytes
from tables import models, options, show

import byoc_hw
from byoc_hw.frontend.relay import host
from byoc_hw.plan.planned import TABLES

PLANNERS = ("greedy_by_size", "greedy_by_conflicts", "hill_climb")
COLUMNS = (
    "model",
    "built for",
    "RAM placed",
    "bound",
    "gap",
    "TVM by size",
    "TVM by conflicts",
    "TVM hill climb",
    "flash regions",
    "flash host",
)


CODE_COLUMNS = (
    *("model", "built for", "code", "with names", "goal", "met"),
    *("instructions", "at most", "met instructions"),
)

BEFORE = {
    ("ad01_int8", "REFERENCE"): (4507, 3722),
    ("ad01_int8", "SMALL"): (10431, 7845),
    ("kws_ref_model", "REFERENCE"): (5820, 6168),
    ("kws_ref_model", "SMALL"): (6256, 6233),
    ("pretrainedResnet_quant", "REFERENCE"): (5956, 6977),
    ("pretrainedResnet_quant", "SMALL"): (13128, 15039),
    ("vww_96_int8", "REFERENCE"): (13472, 11277),
    ("vww_96_int8", "SMALL"): (21248, 19821),
}
"""Bytes of code and tables with names, and instructions, with a row for each tile and copy. Measured values; the bytes
are of the plans that there were first, the instructions of those of today."""

MORE_INSTRUCTIONS = 1.03


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--code", action="store_true", help="code and tables alone")
    parser.add_argument("--check", action="store_true", help="with --code: exit 1 if a goal is missed")
    given = parser.parse_args()
    if given.code:
        return code_table(models(given.models), given.check)

    def rows() -> Iterator[tuple[object, ...]]:
        for path in models(given.models):
            mod, params = byoc_hw.load_tflite(path)
            yield row(path.stem, "REFERENCE", byoc_hw.partition_for_hwlib(mod, params), None)
            yield row(path.stem, "host", mod, params)

    show("memory", COLUMNS, rows(), into_document=given.update)
    return 0


def code_table(paths: Sequence[Path], check: bool) -> int:
    """Print the bytes and instructions of each model that has goals; with `check` 1 if one is missed, else 0."""
    missed: list[str] = []

    def rows() -> Iterator[tuple[object, ...]]:
        for path in paths:
            for accelerator in (byoc_hw.REFERENCE, byoc_hw.SMALL):
                before = BEFORE.get((path.stem, accelerator.label))
                if before is not None:
                    mod, params = byoc_hw.load_tflite(path)
                    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator)
                    found = code_row(mod, byoc_hw.build(partitioned), *before)
                    missed.extend([f"{path.stem} on {accelerator.label}"] if "no" in found else [])
                    yield (path.stem, accelerator.label, *found)

    show("memory", CODE_COLUMNS, rows(), into_document=False)
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if check and missed else 0


def code_row(mod: tvm.IRModule, project: byoc_hw.Project, nbytes: int, executed: int) -> tuple[object, ...]:
    """The bytes of a project, its instructions, and whether both are within the goals."""
    named, code = code_bytes(project.directory), code_bytes(project.directory, names=False)
    if named is None or code is None:
        raise SystemExit("riscv64-unknown-elf-gcc, make and awk are needed")
    goal, most = nbytes // 2, int(executed * MORE_INSTRUCTIONS)
    count = instructions(run(mod, project)).total
    return (code, named, goal, "yes" if code <= goal else "no", count, most, "yes" if count <= most else "no")


def row(name: str, label: str, mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tuple[object, ...]:
    with tvm_planners() as arenas:
        memory = byoc_hw.build(mod, params).memory
    scratch = memory.tvm - arenas.get("greedy_by_size", 0)
    tvm_bytes = [arenas.get(planner, 0) + scratch for planner in PLANNERS]
    regions = memory.flash_bytes - memory.flash["host"] - memory.flash.get(TABLES, 0)
    return (name, label, memory.arena, memory.lower_bound, memory.gap, *tvm_bytes, regions, memory.flash["host"])


@contextmanager
def tvm_planners() -> Iterator[dict[str, int]]:
    """The arena sizes of TVM's planners for the buffers of each build inside the context."""
    arenas: dict[str, int] = {}
    plain = host.tvm_arena

    def every(infos: object, pressure: object) -> int:
        for planner in PLANNERS:
            placed = tvm.get_global_func(f"tir.usmp.algo.{planner}")(infos, pressure)
            ends = (int(pool.byte_offset) + int(info.size_bytes) for info, pool in placed.items())
            arenas[planner] = max(ends, default=0)
        return arenas["greedy_by_size"]

    host.tvm_arena = every
    try:
        yield arenas
    finally:
        host.tvm_arena = plain


if __name__ == "__main__":
    sys.exit(main())
