"""Several accelerators under one host: cycles of one inference's regions, against one accelerator and against turns.

`alone` is the fastest of the accelerators by itself. `in turn` has every layer where it is fastest, and the
accelerators run one after the other: what a placement of whole layers gives. `together` is the plan; the simulator
gives the same cycles (tests hold that true). A goal is at least so much faster than `in turn` or `alone`, and every
plan is within 1.25 of its bound. `seconds` are of this process, for the plan. With --check the exit code is 1 if a
goal is missed.

With --core the table is of whole inferences on the emulated core, in cycles from call to return: by the best of the
accelerators alone, by the chip with the plan of the fewest cycles of its engines, planned for latency, which counts the
core's work as well, and so on the chip with events that order its engines; with the core's instructions. `faster` is
the last against the first.

With --ram, what plans take with less main memory than the fastest one: its bytes, and of the fastest plans that were
found within a part of them the bytes, and the cycles over those of the fastest. Inputs and outputs are in the arena.

With --search, instead, how well and how fast parts are found: the seconds for a chain of 200 large layers, and 200
random graphs of up to 8 layers against all plans of a kind (`tests/plan/lanes/exhaustive.py` says which). Beginnings of
plans that no end makes faster than the plan are passed over, so that kinds with millions of plans are gone through.
Most of the time goes into the plans, some six seconds of a core for each graph; a line every 20 graphs says how far it
is, and --graphs has fewer.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np
from tables import models, options, show

import byoc_hw
from byoc_hw.accelerator import Accelerator
from byoc_hw.compiler import region_graphs
from byoc_hw.graph import Graph
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.lanes.within import SizedChipPlan, SizedChipPlans, sized_on_chip
from byoc_hw.plan.region import lay_out_region, plan_region
from byoc_hw.plan.search.within import Border
from byoc_hw.soc import Hardware, Soc

CORE_COLUMNS = (
    *("model", "chip", "alone", "its core", "fewest cycles", "its core", "for latency", "its core"),
    *("with events", "its core", "faster"),
)
COLUMNS = ("model", "chip", "alone", "in turn", "together", "faster", "plan / bound", "seconds", "goal", "met")
RAM_PARTS = (0.75, 0.5, 0.25)
RAM_COLUMNS = ("model", "chip", "RAM", *(text for part in RAM_PARTS for text in (f"within {part}", "cycles")))
DLA = replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA")
PAIR = Soc((DLA, byoc_hw.DSP), label="DLA + DSP")
NAMES = ("one", "two")


def two_of(one: Accelerator) -> tuple[Accelerator, ...]:
    return tuple(replace(one, name=name, label=name.upper()) for name in NAMES)


TWINS = Soc(two_of(byoc_hw.REFERENCE), label="2 x REFERENCE")
ONE_MEMORY = Soc(two_of(byoc_hw.SMALL), shared=(NAMES,), label="2 x SMALL, one memory")
"""As a cluster has them: both have the activation memory that one of them has otherwise."""

GOALS = {
    (PAIR.label, "kws_ref_model"): ("in turn", 1.55),
    (PAIR.label, "vww_96_int8"): ("in turn", 1.55),
    (PAIR.label, "pretrainedResnet_quant"): ("alone", 1.2),
    (PAIR.label, "ad01_int8"): ("alone", 1.2),
    **{
        (TWINS.label, model): ("alone", 1.8)
        for model in ("kws_ref_model", "vww_96_int8", "pretrainedResnet_quant", "ad01_int8")
    },
}
EVENTS = 4
"""Events of a chip that has them: as many as engines."""

MOST = 1.25
"""The most that a plan may take of its bound."""


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument("--core", action="store_true", help="whole inferences on the emulated core")
    parser.add_argument("--ram", action="store_true", help="plans with less main memory, instead")
    parser.add_argument("--search", action="store_true", help="a chain of 200 layers, and random graphs, instead")
    parser.add_argument("--graphs", type=int, default=GRAPHS, help=f"with --search: the first of the {GRAPHS} graphs")
    given = parser.parse_args()
    if given.core:
        found = (with_core(path, chip) for path in models(given.models) for chip in (PAIR, TWINS))
        show("soc", CORE_COLUMNS, found, into_document=given.update, flag="--core")
        return 0
    if given.ram:
        found = (with_less_ram(path, chip) for path in models(given.models) for chip in (PAIR, TWINS))
        show("soc", RAM_COLUMNS, found, into_document=given.update, flag="--ram")
        return 0
    if given.search:
        return 1 if not searched(given.graphs) and given.check else 0
    missed = []

    def rows() -> Iterator[tuple[object, ...]]:
        for path in models(given.models):
            for chip in (PAIR, TWINS, ONE_MEMORY):
                row = measured(path, chip)
                if row[-1] == "no":
                    missed.append(f"{row[0]} on {row[1]}")
                yield row

    show("soc", COLUMNS, rows(), into_document=given.update)
    for name in missed:
        print(f"missed: {name}")
    return 1 if given.check and missed else 0


LONGEST = 30
"""The most seconds for the plan of 200 layers."""

WITHIN = 1.02
"""The most that the plan of a small graph may take of the best one."""

GRAPHS = 200
"""The small graphs."""

_BEGINNINGS = 10_000
"""The most beginnings of plans that are looked at for a kind of plans; where there are more, the next kind is tried."""


def searched(graphs: int) -> bool:
    """Print how fast a long chain is planned, and how small graphs compare with all of their plans; whether both goals
    are met."""
    from soc_graphs import long_chain, small_graphs

    chain = long_chain(200)
    before = time.process_time()
    plan = plan_region(chain, PAIR)
    seconds = time.process_time() - before
    print(f"{len(chain.layers)} layers on {PAIR.label}: {plan.cycles:,} cycles, {plan.cycles / plan.bound:.2f} of the")
    print(f"bound, in {seconds:.1f} s; goal {LONGEST} s; {'met' if seconds <= LONGEST else 'missed'}")
    found: list[_Compared] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for one in pool.map(_against_every_plan, small_graphs(graphs), cycle((PAIR, TWINS))):
            found.append(one)
            if len(found) % _TOLD == 0:
                print(f"{len(found)} graphs after {time.perf_counter() - began:.0f} s", flush=True)
    ratios = [one.ratio for one in found if one.kind is not None]
    far = [at for at, one in enumerate(found) if one.ratio > WITHIN]
    kinds = Counter(one.kind for one in found)
    print(f"{len(ratios)} of {len(found)} random graphs, against every plan of a kind: worst {max(ratios):.3f},")
    print(f"{len(far)} beyond {WITHIN}; {'met' if not far else 'missed'}{': graphs ' if far else ''}{far or ''}")
    print("layers of a part and layouts, graphs:", ", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    print(
        f"{sum(one.plans for one in found):.2g} plans; seconds of processors: {sum(one.planning for one in found):.0f}"
    )
    print(f"for the plans, {sum(one.comparing for one in found):.0f} for all others")
    return seconds <= LONGEST and not far


_TOLD = 20
"""After so many graphs a line says so."""


@dataclass(frozen=True)
class _Compared:
    """A graph's plan against every one of a kind, of which there are so many `plans`: None where each kind takes too
    long. `ratio` is what the plan takes of the best of them, and there are the seconds for both."""

    kind: tuple[int, int] | None
    ratio: float
    plans: int
    planning: float
    comparing: float


def _against_every_plan(graph: Graph, chip: Soc) -> _Compared:
    """A graph's plan against every one of a kind."""
    from soc_graphs import Exhaustive

    before = time.process_time()
    cycles = plan_region(graph, chip).cycles
    between = time.process_time()
    every = Exhaustive(graph, chip, _BEGINNINGS)
    fewest = every.fewest_of_many(cycles, _BEGINNINGS)
    plans = 0 if every.kind is None else every.count(*every.kind)
    ratio = 1.0 if fewest is None else cycles / fewest
    return _Compared(every.kind, ratio, plans, between - before, time.process_time() - between)


def measured(path: Path, chip: Soc) -> tuple[object, ...]:
    """One row: the regions of a model, added up."""
    graphs = region_graphs(byoc_hw.partition_for_hwlib(*byoc_hw.load(path), accelerator=chip)).values()
    lanes = range(len(chip.accelerators))
    alone = min(sum(lay_out_region(graph, chip.accelerators[lane]).cycles for graph in graphs) for lane in lanes)
    turns = sum(in_turn(graph, chip) for graph in graphs)
    before = time.process_time()
    plans = [plan_region(graph, chip) for graph in graphs]
    seconds = time.process_time() - before
    cycles = sum(plan.cycles for plan in plans)
    against, least = GOALS.get((chip.label, path.stem), ("alone", 1.0))
    faster = {"alone": alone, "in turn": turns}[against] / cycles
    of_bound = cycles / sum(plan.bound for plan in plans)
    met = faster >= least and of_bound <= MOST and cycles <= alone
    figures = f"{alone:,}", f"{turns:,}", f"{cycles:,}", f"{faster:.2f}", f"{of_bound:.2f}", f"{seconds:.1f}"
    return path.stem, chip.label, *figures, f"{least:.2f} x {against}", "yes" if met else "no"


def with_less_ram(path: Path, chip: Soc) -> tuple[object, ...]:
    """One row: the regions of a model, each within a part of the bytes of its fastest plan."""
    graphs = region_graphs(byoc_hw.partition_for_hwlib(*byoc_hw.load(path), accelerator=chip)).values()
    fastest, searches = list[SizedChipPlan](), list[SizedChipPlans]()
    for graph in graphs:
        nbytes = dict(enumerate(tensor.nbytes for tensor in (*graph.inputs, *graph.outputs)))
        inputs = {index: nbytes.pop(index) for index in range(len(graph.inputs))}
        plan, border = known_plan(graph, chip), Border(inputs, nbytes)
        fastest.append(sized_on_chip(plan, border))
        searches.append(SizedChipPlans(graph, chip, border, {}))
    cycles = sum(one.cycles for one in fastest)
    figures = [f"{max(one.ram for one in fastest):,}"]
    for part in RAM_PARTS:
        found = [search.within(int(part * one.ram)) for search, one in zip(searches, fastest, strict=True)]
        plans = [one for one in found if one is not None]
        if len(plans) == len(found):
            figures += [f"{max(one.ram for one in plans):,}", f"{sum(one.cycles for one in plans) / cycles:.3f}"]
        else:
            figures += ["-", "-"]
    return path.stem, chip.label, *figures


def with_core(path: Path, chip: Soc) -> tuple[object, ...]:
    """One row: cycles from call to return, and instructions of the core."""
    alone = min((on_the_core(path, one) for one in chip.accelerators), key=lambda found: found[0])
    first, latency = on_the_core(path, chip), on_the_core(path, chip, "latency")
    events = on_the_core(path, replace(chip, events=EVENTS), "latency")
    figures = [f"{one:,}" for found in (alone, first, latency, events) for one in found]
    return path.stem, chip.label, *figures, f"{alone[0] / events[0]:.2f}"


def on_the_core(path: Path, hardware: Hardware, objective: Literal["latency"] | None = None) -> tuple[int, int]:
    """Cycles of an inference from call to return, and instructions of the core."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(*byoc_hw.load(path), accelerator=hardware), objective=objective)
    inputs = [np.zeros(one.shape, one.dtype) for one in project.inputs]
    result = project.run(inputs, on="riscv32", timeout=600)
    assert result.end_to_end is not None
    assert result.host_instructions is not None
    return result.end_to_end.total, result.host_instructions.total


def in_turn(graph: Graph, chip: Soc) -> int:
    """Cycles with each layer where it is fastest by itself, layers of one accelerator in a row planned together."""
    region = Region(graph)

    def cycles(cut: PartCut) -> int:
        part = region.part(cut, "part")
        assert part is not None
        return lay_out_region(part.graph, chip.accelerators[cut.lane]).cycles

    cuts: list[PartCut] = []
    for index, layer in enumerate(graph.layers):
        able = [lane for lane, one in enumerate(chip.accelerators) if one in chip.supporting(layer)]
        fastest = min(able, key=lambda lane: cycles(PartCut(lane, (index,))))
        if cuts and cuts[-1].lane == fastest:
            cuts[-1] = PartCut(fastest, (*cuts[-1].layers, index))
        else:
            cuts.append(PartCut(fastest, (index,)))
    return sum(map(cycles, cuts))


if __name__ == "__main__":
    sys.exit(main())
