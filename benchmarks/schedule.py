"""The quality of plans: their cycles, compared with a bound that no plan goes below, and with simpler ways of planning.

All figures are accelerator cycles of one inference's regions, from the cost model that the simulator uses too. `bound`
is `project.schedule.bound`. `by layer` has no overlap: copy in, compute, copy out (`layer_by_layer.py`). `alone` plans
each layer by itself, its copies overlapped with its own jobs. `plan` is the plan of the whole region.

The second table: bytes that the DMA moves in `plan` and in `alone`; RAM with the model's inputs and outputs, and the
same if regions had no scratch; code and tables of HWlib and of the regions, without weights, compiled for riscv32 ("-"
without its tools); seconds of the processor for partitioning and building, and the planner's share of them.

The third table, with --others alone: less local memory, slower DMAs, wider and larger networks and other forms, and on
accelerators of random sizes --random regions of two to eight layers and networks of the forms of real ones: the
median, the 95th percentile and the worst. `bytes` are those that the DMA moves over the least possible: weights,
inputs and outputs once. `seconds` are what planning takes of one core. With --check the exit code is 1 if a goal is
missed.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import tvm
from layer_by_layer import layer_by_layer
from networks import (
    blazeface,
    fastdepth,
    mixer,
    mobilenet_v2,
    poses,
    resnet8,
    shufflenet,
    squeezenet,
    temporal,
    unet,
)
from plans import Compiled, alone, compiled, dma_bytes, least_bytes
from random_networks import random_networks
from soc_graphs import small_graphs
from tables import models, options, show

import byoc_hw
from byoc_hw.accelerator import KIB, Accelerator
from byoc_hw.compiler import region_graphs
from byoc_hw.graph import Graph
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_tiles, why_no_plan
from byoc_hw.plan.tune.best_order import in_best_order

ACCELERATORS = (byoc_hw.REFERENCE, byoc_hw.DIANA_DIGITAL, byoc_hw.SMALL)

NEAR = 1.03
"""The goal for `plan / bound` of the models."""

LEAST_BYTES = 1.2
"""The goal for `bytes` on SMALL."""

CYCLES = (
    *("model", "built for", "bound", "by layer", "alone", "plan"),
    *("plan / bound", "by layer / plan", "alone / plan", "goal", "met"),
)
RESOURCES = (
    *("model", "built for", "DMA bytes", "alone bytes", "RAM", "without scratch", "code"),
    *("compile s", "planning share"),
)
OTHERS = (
    *("network", "accelerator", "bound", "plan", "plan / bound", "goal", "met"),
    *("alone / plan", "bytes", "goal bytes", "met bytes", "seconds"),
)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--others", action="store_true", help="the third table alone")
    text = "random small regions, and a quarter as many networks (%(default)s)"
    parser.add_argument("--random", type=int, default=200, help=text)
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    given = parser.parse_args()
    missed: list[str] = []
    if given.others:
        rows = others([path for path in models(given.models) if path.stem in NETWORKS or given.models], given.random)
        show("schedule", OTHERS, noted(rows, missed, (6, 10)), into_document=given.update, flag="--others")
    else:
        measured: list[Measured] = []

        def cycles() -> Iterator[tuple[object, ...]]:
            for path in models(given.models):
                for accelerator in ACCELERATORS:
                    measured.append(measure(path, accelerator))
                    yield measured[-1].cycles()

        show("schedule", CYCLES, noted(cycles(), missed, (10,)), into_document=given.update)
        print()
        show("schedule", RESOURCES, (one.resources() for one in measured), into_document=given.update, part="resources")
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if given.check and missed else 0


def noted(
    rows: Iterator[tuple[object, ...]], missed: list[str], columns: Sequence[int]
) -> Iterator[tuple[object, ...]]:
    """The rows; the names of those that miss a goal, as one of the columns says, are added to `missed`."""
    for row in rows:
        if any(row[column] == "no" for column in columns):
            missed.append(f"{row[0]} on {row[1]}")
        yield row


# ---------------------------------------------------------------- models on the presets


@dataclass(frozen=True)
class Measured:
    """One model on one accelerator: cycles, bytes that the DMA moves, and how it was compiled."""

    name: str
    label: str
    bound: int
    by_layer: int
    alone: int
    plan: int
    alone_bytes: int
    plan_bytes: int
    compiled: Compiled

    def cycles(self) -> tuple[object, ...]:
        near = self.plan / self.bound
        ratios = (near, self.by_layer / self.plan, self.alone / self.plan)
        shown = (self.name, self.label, self.bound, self.by_layer, self.alone, self.plan)
        return (*shown, *(f"{ratio:.3f}" for ratio in ratios), f"{NEAR}", "yes" if near <= NEAR else "no")

    def resources(self) -> tuple[object, ...]:
        made = self.compiled
        times = (f"{made.seconds:.2f}", f"{made.planning / made.seconds:.3f}")
        code = code_bytes(made.project.directory)
        moved = (self.plan_bytes, self.alone_bytes)
        return (self.name, self.label, *moved, made.ram, made.ram_around, "-" if code is None else code, *times)


def measure(path: Path, accelerator: Accelerator) -> Measured:
    made = compiled(*byoc_hw.load_tflite(path), accelerator, time.process_time)
    graphs = [plan.graph for plan in made.plans]
    singles = [plan for layer in made.layers if (plan := alone(layer, accelerator)) is not None]
    return Measured(
        name=path.stem,
        label=accelerator.label,
        bound=made.project.schedule.bound,
        by_layer=sum(layer_by_layer(graph, accelerator) for graph in graphs),
        alone=sum(timeline(plan, accelerator).total for plan in singles),
        plan=made.project.schedule.cycles,
        alone_bytes=sum(map(dma_bytes, singles)),
        plan_bytes=sum(map(dma_bytes, made.plans)),
        compiled=made,
    )


def code_bytes(project: Path, names: bool = True) -> int | None:
    """Flash bytes of HWlib and the regions without weights, with the names of layers or without; None if they cannot
    be compiled."""
    if not all(map(shutil.which, ("make", "awk", "riscv64-unknown-elf-gcc"))):
        return None
    command = ["make", "-s", "-C", str(project), "TARGET=riscv32", f"NAMES={int(names)}", "size"]
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


# ---------------------------------------------------------------- other networks, other accelerators


NETWORKS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
"""The models of the third table."""


def small(text: str, **changes: int) -> Accelerator:
    return replace(byoc_hw.SMALL, label=f"SMALL, {text}", **changes)


SLOW = {
    f"{one.label}, DMA of {width}": replace(one, label=f"{one.label}, DMA of {width}", dma_width=width)
    for one in (byoc_hw.SMALL, byoc_hw.REFERENCE)
    for width in (1, 2)
}
TIGHT = [small(f"{size} KiB", activation_memory=size * KIB) for size in (8, 16)]
REAL = 4
"""The number of random small regions for each random network of the size of real ones."""

FORMS = {
    "U-Net": unet,
    "SqueezeNet": squeezenet,
    "ShuffleNetV2": shufflenet,
    "temporal convolutions": temporal,
    "MLP mixer": mixer,
    "BlazeFace": blazeface,
    "FastDepth": fastdepth,
    "poses": poses,
}
"""Networks that move channels and pixels: by concatenations, transposed convolutions, shuffles, dilations,
transpositions, padding and nearest pixels."""

LARGE = {"ram": 16 << 20, "flash": 64 << 20}
"""What large networks need beside the core; it does not change a region's cycles."""


def others(paths: Sequence[Path], count: int) -> Iterator[tuple[object, ...]]:
    for path in paths:
        mod = byoc_hw.load_tflite(path)
        for accelerator, goal in [(one, 1.15) for one in TIGHT] + [(one, 1.06) for one in SLOW.values()]:
            yield row(path.stem, *mod, accelerator, goal)
        if path.stem != "ad01_int8":
            yield row(path.stem, *mod, byoc_hw.SMALL, NEAR)
    wide, mobile = resnet8(wider=3), mobilenet_v2()
    yield row("ResNet-8, three times as wide", wide, {}, replace(byoc_hw.SMALL, **LARGE), 1.03)
    yield row("ResNet-8, three times as wide", wide, {}, replace(SLOW["SMALL, DMA of 1"], **LARGE), 1.15)
    yield row("MobileNetV2", mobile, {}, replace(byoc_hw.SMALL, **LARGE), 1.15)
    yield row("MobileNetV2", mobile, {}, replace(byoc_hw.REFERENCE, **LARGE), 1.01)
    for name, made in FORMS.items():
        for accelerator, goal in ((byoc_hw.SMALL, 1.15), (byoc_hw.REFERENCE, 1.06)):
            yield row(name, made(), {}, replace(accelerator, **LARGE), goal)
    yield from random_rows(small_graphs(count), "small regions")
    yield from random_rows(random_networks(count // REAL), "networks")


def row(
    name: str, mod: tvm.IRModule, params: dict[str, object], accelerator: Accelerator, goal: float
) -> tuple[object, ...]:
    """The regions of a network, planned."""
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator)
    start = time.process_time()  # with the search for the order of layers
    graphs = list(region_graphs(partitioned).values())
    plans = [plan_tiles(graph, accelerator) for graph in graphs]
    seconds = time.process_time() - start
    cycles = sum(timeline(plan, accelerator).total for plan in plans)
    bound = sum(cycles_bound(graph, accelerator) for graph in graphs)
    layers = [layer for graph in graphs for layer in graph.layers]
    singles = [plan for layer in layers if (plan := alone(layer, accelerator)) is not None]
    by_itself = sum(timeline(plan, accelerator).total for plan in singles)
    moved = sum(map(dma_bytes, plans)) / sum(map(least_bytes, graphs))
    of_small = accelerator.activation_memory == byoc_hw.SMALL.activation_memory and accelerator.dma_width == 4
    few = ("yes" if moved <= LEAST_BYTES else "no") if of_small else "-"
    met = "yes" if cycles / bound <= goal else "no"
    return (
        *(name, accelerator.label, bound, cycles, f"{cycles / bound:.3f}", goal, met, f"{by_itself / cycles:.3f}"),
        *(f"{moved:.2f}", LEAST_BYTES if of_small else "-", few, f"{seconds:.1f}"),
    )


def random_rows(graphs: Iterable[Graph], what: str) -> Iterator[tuple[object, ...]]:
    """Graphs on random accelerators: how far the median, the 95th percentile and the worst are from the bound."""
    start = time.process_time()
    found = sorted(random_ratios(graphs))
    if not found:
        return
    seconds = f"{time.process_time() - start:.0f}"
    for figure, ratio, goal in (
        ("median", median(found), 1.05),
        ("95th percentile", found[round(0.95 * (len(found) - 1))], 1.25),
        ("worst", found[-1], None),
    ):
        met = "-" if goal is None else "yes" if ratio <= goal else "no"
        shown = ("-", "-", f"{ratio:.3f}", goal or "-", met, "-", "-", "-", "-", seconds)
        yield (f"{len(found)} random {what}", figure, *shown)


def random_ratios(graphs: Iterable[Graph]) -> Iterator[float]:
    for number, graph in enumerate(graphs):
        accelerator = random_accelerator(random.Random(number))
        if any(why_no_plan(layer, accelerator) for layer in graph.layers):
            continue
        ordered = in_best_order(graph, accelerator)
        yield timeline(plan_tiles(ordered, accelerator), accelerator).total / cycles_bound(ordered, accelerator)


def random_accelerator(drawn: random.Random) -> Accelerator:
    return replace(
        byoc_hw.REFERENCE,
        label="RANDOM",
        array_rows=(rows := drawn.choice((4, 8, 16, 32))),
        array_columns=drawn.choice((4, 8, 16, 32)),
        depthwise_rows=drawn.choice((1, rows)),
        activation_memory=drawn.choice((4, 8, 16, 32, 64)) * KIB,
        weight_memory=drawn.choice((2, 4, 8, 16, 32)) * KIB,
        dma_width=drawn.choice((1, 2, 4, 8, 16)),
        dma_setup=drawn.choice((10, 70, 200)),
    )


if __name__ == "__main__":
    sys.exit(main())
