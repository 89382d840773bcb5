"""The gain of tuning on SMALL, and on a DLA beside a DSP: accelerator cycles of the planner's plans, and of the tuned
plans.

The cycles are those of one inference's regions; `bound` is what no plan goes below. Plans are evaluated
by one process per core, which does not change the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import product
from pathlib import Path

from soc import PAIR
from tables import models, options, show

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.plan.bound.prices import cycles_bound

COLUMNS = (
    "model",
    "accelerator",
    "before",
    "after",
    "fewer",
    "before / bound",
    "after / bound",
    "plans tried",
    "seconds",
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--budget", type=int, default=200, help="plans to try for each region (%(default)s)")
    given = parser.parse_args()
    with ProcessPoolExecutor() as executor:
        show("tuning", COLUMNS, rows(models(given.models), given.budget, executor), into_document=given.update)


def rows(paths: Sequence[Path], budget: int, executor: Executor) -> Iterator[tuple[object, ...]]:
    for path, hardware in product(paths, (byoc_hw.SMALL, PAIR)):
        mod = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(path), accelerator=hardware)
        least = sum(cycles_bound(graph, hardware) for graph in region_graphs(mod).values())
        start = time.perf_counter()
        tuning = byoc_hw.tune(mod, executor=executor, budget=budget, progress=False)
        seconds = time.perf_counter() - start
        ratios = (tuning.before / least, tuning.after / least)
        tried = sum(region.evaluations for region in tuning.regions)
        fewer = f"{1 - tuning.after / tuning.before:.1%}"
        shown = (path.stem, hardware.label, tuning.before, tuning.after, fewer, *(f"{ratio:.3f}" for ratio in ratios))
        yield (*shown, tried, f"{seconds:.0f}")


if __name__ == "__main__":
    main()
