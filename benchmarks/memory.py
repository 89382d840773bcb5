"""RAM and flash of the shipped model and of the MLPerf Tiny ones, offloaded and on the host alone.

`placed` is the arena, `bound` the largest sum of the bytes that are live at once, `gap` the most that a
better placement could save. `TVM` is the arena of each of TVM's planners for the same module: greedy
by size (its default), greedy by conflicts, hill climbing; with one block of scratch for each region.
Flash is constant data, without code and tables of copies, tiles and steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm
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


def main() -> None:
    given = options(__doc__).parse_args()

    def rows() -> Iterator[tuple[object, ...]]:
        for path in models(given.models):
            mod, params = byoc_hw.load_tflite(path)
            yield row(path.stem, "REFERENCE", byoc_hw.partition_for_hwlib(mod, params), None)
            yield row(path.stem, "host", mod, params)

    show("memory", COLUMNS, rows(), into_readme=given.update)


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
    main()
