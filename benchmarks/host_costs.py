"""What layers cost on the host, and regions the core that drives them: counted under QEMU, fitted, checked.

    python benchmarks/host_costs.py --update

Random layers of each kind are compiled as a project has them on the host, and their instructions are counted on the
emulated rv32imc core. Instructions for each unit of work are fitted to one half of them by least squares of the
relative error; the other half, other shapes, is what the table's errors are of: `worst` and `mean` are factors between
measured and predicted. So it is with random chains of layers in regions, where `time` is the cycles from call to
return. With `--update`, `byoc_hw/host_cost_table.py` is written. With `--details`, every check is printed. No model has
a part in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from random import Random

import numpy as np
from scipy.optimize import nnls
from tables import ROOT

import byoc_hw
from byoc_hw.host_cost_table import INSTRUCTIONS, REGIONS
from byoc_hw.host_costs import host_function, host_work
from byoc_hw.plan.core import core_driver, core_work, plan_cycles

sys.path.insert(0, str(ROOT / "tests"))

from host_samples import CHIP, NUMERICS, SAMPLES, chain, counts, layers_of, regions

TABLE = ROOT / "byoc_hw" / "host_cost_table.py"
HEAD = '''"""Instructions of an rv32imc core for each unit of work. Written by benchmarks/host_costs.py --update."""

from collections.abc import Mapping

'''
BATCH = 14
"""Samples in one program."""

Row = tuple[Mapping[str, int], int]
"""Units of work, and the instructions that were counted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write byoc_hw/host_cost_table.py")
    parser.add_argument("--details", action="store_true", help="print every layer that is checked")
    parser.add_argument("--rows", nargs="+", choices=[*SAMPLES, "regions"], help="measure these alone, keep the others")
    parser.add_argument("--samples", type=int, default=20, help="layers of each kind to fit, and as many to check")
    given = parser.parse_args()
    print(f"{'function':<26}{'checked':>8}{'worst':>8}{'mean':>8}")
    layers, drivers = ({}, {}) if given.rows is None else (dict(INSTRUCTIONS), REGIONS)
    for name in given.rows or SAMPLES:
        for numerics in NUMERICS.get(name, ()):
            row, fitted, checked = measured(name, numerics, given.samples)
            layers[row] = fit(fitted)
            report(row, layers[row], checked, given.details)
    if given.rows is None or "regions" in given.rows:
        drivers = of_regions(given.samples, given.details)
    if given.update:
        text = f"{HEAD}{table('INSTRUCTIONS', 'Of layers on the host.', layers)}\n"
        TABLE.write_text(text + table("REGIONS", "Of the core that drives a region.", drivers), encoding="utf-8")


def measured(name: str, numerics: str, count: int) -> tuple[str, list[Row], list[Row]]:
    """The row of the table, and what was counted for random layers: half of them to fit, the others to check."""
    drawn = layers_of(name, Random(f"{name} {numerics}"), 2 * count, numerics)
    executed: list[int] = []
    for first in range(0, len(drawn), BATCH):
        executed += counts([sample for sample, _ in drawn[first : first + BATCH]], numerics)
    rows = [(host_work(layer), number) for (_, layer), number in zip(drawn, executed, strict=True)]
    return host_function(drawn[0][1]), rows[:count], rows[count:]


def of_regions(count: int, details: bool) -> dict[str, dict[str, float]]:
    """What the core executes for a region, and the cycles of a call in which it alone is at work."""
    rows: dict[str, list[tuple[Row, int, int]]] = {}
    rng = Random("regions")
    for chip in (byoc_hw.REFERENCE, CHIP, replace(CHIP, events=4)):
        for _ in range(-(-2 * count // BATCH)):
            for plan, core, time in regions([chain(rng) for _ in range(BATCH)], chip):
                rows.setdefault(core_driver(plan), []).append(((core_work(plan), core), plan_cycles(plan, chip), time))
    found = {}
    for driver, entries in sorted(rows.items()):
        fitted, checked = entries[::2], entries[1::2]
        costs = fit([row for row, _, _ in fitted])
        costs["alone"], costs["shared"] = of_the_time([(core, cycles, time) for (_, core), cycles, time in fitted])
        found[driver] = costs
        report(driver, costs, [row for row, _, _ in checked], details)
        times = [(guessed(costs, predicted(costs, work), cycles), time) for (work, _), cycles, time in checked]
        print(line(f"{driver}: time", [guess / time for guess, time in times]))
    return found


def of_the_time(rows: Sequence[tuple[int, int, int]]) -> tuple[float, float]:
    """What a call takes beyond the cycles of its engines: so many cycles, and a share of the core's instructions. Of
    calls that last longer than the core's work; `rows` have instructions, cycles of the engines, and the time."""
    longer = [row for row in rows if row[2] > 1.02 * row[0]]
    if not longer:
        return 0.0, 0.0
    amounts = np.array([[1, core] for core, _, _ in longer], float)
    beyond = np.array([time - cycles for _, cycles, time in longer], float)
    weights = 1 / np.array([time for _, _, time in longer], float)
    found, _ = nnls(amounts * weights[:, None], beyond * weights)
    return round(float(found[0]), 1), round(float(found[1]), 2)


def guessed(costs: Mapping[str, float], core: float, cycles: int) -> float:
    """The time of a call."""
    return max(core, cycles + costs["alone"] + costs["shared"] * core)


def fit(rows: Sequence[Row]) -> dict[str, float]:
    """Instructions for each unit, none below 0."""
    units = sorted({unit for work, _ in rows for unit in work})
    amounts = np.array([[work.get(unit, 0) for unit in units] for work, _ in rows], float)
    found, _ = nnls(amounts / np.array([[number] for _, number in rows], float), np.ones(len(rows)))
    return {unit: round(float(value), 2) for unit, value in zip(units, found, strict=True) if value >= 0.005}


def predicted(costs: Mapping[str, float], work: Mapping[str, int]) -> float:
    return sum(costs.get(unit, 0.0) * amount for unit, amount in work.items())


def report(row: str, costs: Mapping[str, float], checked: Sequence[Row], details: bool) -> None:
    print(line(row, [predicted(costs, work) / number for work, number in checked]), flush=True)
    for work, number in checked if details else ():
        print(f"    measured {number:>9}, predicted {predicted(costs, work):>11.0f}  {dict(work)}")


def line(name: str, ratios: Sequence[float]) -> str:
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    mean = exp(sum(map(log, factors)) / len(factors))
    return f"{name:<26}{len(factors):>8}{max(factors):>8.2f}{mean:>8.2f}"


def table(name: str, document: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"{name}: Mapping[str, Mapping[str, float]] = {{"]
    for row, costs in sorted(rows.items()):
        lines += [f'    "{row}": {{', *(f'        "{unit}": {value},' for unit, value in costs.items()), "    },"]
    return "\n".join([*lines, "}", f'"""{document}"""', ""])


if __name__ == "__main__":
    main()
