"""RAM and flash of the shipped model and of the MLPerf Tiny ones, offloaded and on the host alone.

`placed` is the arena, `bound` the largest sum of what is alive at once, `gap` what a better placement
could save at most. `TVM` is the arena that each of TVM's planners makes of the same module: greedy
by size (its default), greedy by conflicts, hill climbing; with a piece of scratch for each region.
Flash is constant data, without code.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tvm

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import model_path
from byoc_hw.frontend.relay import host
from byoc_hw.project import Memory

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))
PLANNERS = ("greedy_by_size", "greedy_by_conflicts", "hill_climb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    paths = parser.parse_args().models or [model_path(), *sorted(MODELS.glob("*.tflite"))]
    print(f"{'':<36}{'RAM, bytes':>27}  {'TVM, bytes':>26}  flash, bytes")
    print(
        f"{'model':<24}{'built for':<12}{'placed':>9}{'bound':>9}{'gap':>9}  "
        f"{'size':>8} {'conflicts':>9} {'hill':>7}  {'regions':>9}{'host':>9}  alive at the peak"
    )
    for path in paths:
        mod, params = byoc_hw.load_tflite(path)
        for label, accelerator in (("REFERENCE", REFERENCE), ("SMALL", SMALL), ("host", None)):
            built = mod if accelerator is None else byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator)
            with tvm_planners() as arenas:
                memory = byoc_hw.build(built, params if accelerator is None else None).memory
            print(row(path.stem, label, memory, arenas), flush=True)


def row(name: str, label: str, memory: Memory, arenas: dict[str, int]) -> str:
    scratch = memory.tvm - arenas.get("greedy_by_size", 0)
    tvm_bytes = [arenas.get(planner, 0) + scratch for planner in PLANNERS]
    owners = ", ".join(f"{owner} {nbytes}" for owner, nbytes in memory.owners.items())
    regions = memory.flash_bytes - memory.flash["host"]
    return (
        f"{name:<24}{label:<12}{memory.arena:>9}{memory.lower_bound:>9}{memory.gap:>9}  "
        f"{tvm_bytes[0]:>8} {tvm_bytes[1]:>9} {tvm_bytes[2]:>7}  {regions:>9}{memory.flash['host']:>9}  {owners}"
    )


@contextmanager
def tvm_planners() -> Iterator[dict[str, int]]:
    """What each of TVM's planners says to the buffers that it would plan during a build."""
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
