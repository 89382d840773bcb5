"""Plans of small networks under a limit of RAM: the smallest scratch found, and the cycles that less RAM costs.

`fastest` is the scratch of the fastest plan, `smallest` that of the smallest one found. `at 75%` and `at 50%` are the
cycles beyond the fastest plan's with so much of its scratch, or with the smallest if that is more; `at least` those of
the smallest plan. A goal is the most that may be lost at each. With --check the exit code is 1 if one is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import tvm
from networks import chain, mobilenet_v2
from tables import show

import byoc_hw
from byoc_hw.accelerator import KIB, REFERENCE, Accelerator
from byoc_hw.compiler import region_graphs
from byoc_hw.plan.search.within import Border, SizedPlans

COLUMNS = ("network", "local", "fastest", "smallest", "at 75%", "at 50%", "at least", "seconds", "goal", "met")
GOALS = (0.05, 0.10, 0.30)
"""The most cycles that may be lost at 75 %, at 50 %, and with the smallest plan."""

STAGES = ((1, 8, 1, 1), (6, 16, 2, 2), (6, 24, 2, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    given = parser.parse_args()
    missed: list[object] = []

    def rows() -> Iterator[tuple[object, ...]]:
        for name, mod in networks():
            for local in (16, 64, 256):
                row = measured(name, mod, replace(REFERENCE, label="LOCAL", activation_memory=local * KIB))
                missed.extend([name] if row[-1] == "no" else [])
                yield row

    show("limits", COLUMNS, rows(), into_document=False)
    if given.check and missed:
        sys.exit(1)


def networks() -> Iterator[tuple[str, tvm.IRModule]]:
    """Networks whose tensors are larger than local memory, or not."""
    yield "chain of 12", chain(12)
    for size in (64, 96, 160):
        yield f"blocks at {size}", mobilenet_v2(size, STAGES)
    yield "MobileNetV2 at 224", mobilenet_v2()


def measured(name: str, mod: tvm.IRModule, accelerator: Accelerator) -> tuple[object, ...]:
    """One row: the regions of a network one by one, the largest scratch and the sum of cycles of all."""
    graphs = region_graphs(byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)).values()
    start = time.perf_counter()
    plans = [SizedPlans(graph, accelerator, Border({}, {})) for graph in graphs]
    fastest = [one.within(1 << 40) for one in plans]
    ram, cycles = max(one.ram for one in fastest if one), sum(one.cycles for one in fastest if one)
    smallest = [one.smallest() for one in plans]
    least = max(one.ram for one in smallest)
    lost = []
    for part in (3 * ram // 4, ram // 2, least):
        found = [one.within(max(part, least)) for one in plans]
        lost.append(sum(one.cycles for one in found if one) / cycles - 1)
    met = all(found <= goal for found, goal in zip(lost, GOALS, strict=True))
    goal = " ".join(f"{goal:.0%}" for goal in GOALS)
    shown = [f"{found:.1%}" for found in lost]
    seconds = f"{time.perf_counter() - start:.1f}"
    local = f"{accelerator.activation_memory // KIB} KiB"
    return (name, local, ram, least, *shown, seconds, goal, "yes" if met else "no")


if __name__ == "__main__":
    main()
