"""The quality of plans: their cycles, compared with a lower bound and with two simpler ways of planning.

All figures are accelerator cycles of one inference's regions, from the cost model that the simulator
uses too. `array` and `DMA` are the fewest cycles of each (`floor.py`), the floor is the larger. `by layer`
has no overlap: copy in, compute, copy out (`layer_by_layer.py`). `alone` plans each layer by itself, its
copies overlapped with its own jobs. `plan` is the plan of the whole region.

The second table: bytes that the DMA moves in `plan` and in `alone`; RAM with the model's inputs and
outputs, and the same if regions had no scratch; code and tables of HWlib and of the regions, without
weights, compiled for riscv32 ("-" without its tools); seconds of partitioning and building, and the
planner's share of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from floor import floor
from layer_by_layer import layer_by_layer
from plans import Compiled, alone, compiled, dma_bytes
from tables import models, options, show

import byoc_hw
from byoc_hw.accelerator import Accelerator
from byoc_hw.plan.order.timeline import timeline

ACCELERATORS = (byoc_hw.REFERENCE, byoc_hw.DIANA_DIGITAL, byoc_hw.SMALL)

GOALS = {
    ("REFERENCE", "pretrainedResnet_quant"): ("plan / floor", 1.02),
    ("REFERENCE", "kws_ref_model"): ("plan / floor", 1.05),
    ("REFERENCE", "vww_96_int8"): ("plan / floor", 1.02),
    ("REFERENCE", "ad01_int8"): ("plan / floor", 1.02),
    ("SMALL", "pretrainedResnet_quant"): ("plan / floor", 1.15),
    ("SMALL", "kws_ref_model"): ("plan / floor", 1.15),
    ("SMALL", "ad01_int8"): ("plan / floor", 1.15),
    ("SMALL", "vww_96_int8"): ("alone / plan", 1.15),  # its images do not fit: the floor cannot be reached
}
"""The goal for a model: a ratio, and its limit (at most for `plan / floor`, at least for others)."""

CYCLES = (
    *("model", "built for", "array", "DMA", "by layer", "alone", "plan"),
    *("plan / floor", "by layer / plan", "alone / plan", "goal", "met"),
)
RESOURCES = (
    *("model", "built for", "DMA bytes", "alone bytes", "RAM", "without scratch", "code"),
    *("compile s", "planning share"),
)


def main() -> None:
    given = options(__doc__).parse_args()
    measured = []

    def cycles() -> Iterator[tuple[object, ...]]:
        for path in models(given.models):
            for accelerator in ACCELERATORS:
                measured.append(measure(path, accelerator))
                yield measured[-1].cycles()

    show("schedule", CYCLES, cycles(), into_readme=given.update)
    print()
    show("schedule", RESOURCES, (one.resources() for one in measured), into_readme=given.update, part="resources")


@dataclass(frozen=True)
class Measured:
    """One model on one accelerator: cycles, bytes that the DMA moves, and how it was compiled."""

    name: str
    label: str
    array: int
    dma: int
    by_layer: int
    alone: int
    plan: int
    alone_bytes: int
    plan_bytes: int
    compiled: Compiled

    def cycles(self) -> tuple[object, ...]:
        ratios = {
            "plan / floor": self.plan / max(self.array, self.dma),
            "by layer / plan": self.by_layer / self.plan,
            "alone / plan": self.alone / self.plan,
        }
        shown = (self.name, self.label, self.array, self.dma, self.by_layer, self.alone, self.plan)
        return (*shown, *(f"{ratio:.3f}" for ratio in ratios.values()), *self._goal(ratios))

    def _goal(self, ratios: dict[str, float]) -> tuple[str, str]:
        if (self.label, self.name) not in GOALS:
            return "-", "-"
        which, bound = GOALS[self.label, self.name]
        met = ratios[which] <= bound if which == "plan / floor" else ratios[which] >= bound
        return f"{which} {bound}", "yes" if met else "no"

    def resources(self) -> tuple[object, ...]:
        made = self.compiled
        times = (f"{made.seconds:.2f}", f"{made.planning / made.seconds:.3f}")
        code = code_bytes(made.project.directory)
        moved = (self.plan_bytes, self.alone_bytes)
        return (self.name, self.label, *moved, made.ram, made.ram_around, "-" if code is None else code, *times)


def measure(path: Path, accelerator: Accelerator) -> Measured:
    made = compiled(*byoc_hw.load_tflite(path), accelerator)
    graphs = [plan.graph for plan in made.plans]
    floors = [floor(graph, accelerator) for graph in graphs]
    singles = [plan for layer in made.layers if (plan := alone(layer, accelerator)) is not None]
    return Measured(
        name=path.stem,
        label=accelerator.label,
        array=sum(one.array for one in floors),
        dma=sum(one.dma for one in floors),
        by_layer=sum(layer_by_layer(graph, accelerator) for graph in graphs),
        alone=sum(timeline(plan, accelerator).total for plan in singles),
        plan=sum(timeline(plan, accelerator).total for plan in made.plans),
        alone_bytes=sum(map(dma_bytes, singles)),
        plan_bytes=sum(map(dma_bytes, made.plans)),
        compiled=made,
    )


def code_bytes(project: Path) -> int | None:
    """Flash bytes of HWlib and the regions without weights; None if they cannot be compiled."""
    if not all(map(shutil.which, ("make", "awk", "riscv64-unknown-elf-gcc"))):
        return None
    command = ["make", "-s", "-C", str(project), "TARGET=riscv32", "size"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    total, section = 0, ""
    for name, nbytes in re.findall(r"^(.+?) +(\d+)$", done.stdout, re.M):
        if not name.startswith(" "):
            section = name
        elif name.strip() in ("HWlib", "model") and section not in (".data", ".bss"):
            total += int(nbytes)
    return total


if __name__ == "__main__":
    main()
