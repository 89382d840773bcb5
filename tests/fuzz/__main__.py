"""`make fuzz`, or one case again: python tests/fuzz --class relay --seed 123."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "hwlib")]

from fuzz_case import CLASSES, OUT, Outcome, try_case  # noqa: E402 - where the tests' modules are, the line above says
from fuzz_coverage import try_file  # noqa: E402
from fuzz_runner import fuzz  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz byoc_hw, or run one case again (without --seconds).")
    parser.add_argument("--class", dest="classes", action="append", choices=CLASSES, help="all of them by default")
    parser.add_argument("--seed", type=int, default=0, help="of the first case (%(default)s)")
    parser.add_argument("--seconds", type=float, help="how long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes (%(default)s)")
    parser.add_argument("--file", type=Path, help="try a TFLite file of out/fuzz/found again")
    options = parser.parse_args()
    classes = options.classes or CLASSES
    if options.file is not None:
        return _shown(f"coverage {options.file}", try_file(options.file))
    if options.seconds is None:
        return max(_shown(f"{name} {options.seed}", try_case(name, options.seed)) for name in classes)
    if importlib.util.find_spec("atheris") is None and "coverage" in classes:
        print("coverage is left out: it needs atheris (pip install -e '.[fuzz]', as make fuzz does)")
        classes = [name for name in classes if name != "coverage"]
    for name in classes:
        importlib.import_module(f"fuzz_{name}")  # before the workers are forked
    report = fuzz(classes, seed=options.seed, jobs=options.jobs, seconds=options.seconds)
    print(report)
    OUT.mkdir(parents=True, exist_ok=True)
    details = "".join(f"\n\n{found}\n{found.outcome.detail}" for found in report.findings.values())
    crashed = "".join(f"\n{name}: {what} ({count} x)" for (name, what), count in report.outside.most_common())
    slowest = "".join(f"\n{name} --seed {seed}: {taken:.0f} s" for name, (taken, seed) in report.slowest.items())
    text = f"{report}\n\nThe slowest cases:{slowest}\n\nWhere TVM itself crashed, or took too long:{crashed}{details}\n"
    (OUT / "report.txt").write_text(text, encoding="utf-8")
    return 1 if report.findings else 0


def _shown(what: str, outcome: Outcome) -> int:
    for one in (outcome, *outcome.others):
        print(f"{what}: {one.kind or 'no finding'} {one.what} {one.tally or ''}\n{one.detail}".rstrip())
    return 1 if outcome.kind or outcome.others else 0


if __name__ == "__main__":
    sys.exit(main())
