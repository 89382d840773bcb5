"""Shared by the benchmarks: the choice of models, and tables for the terminal and the README."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from byoc_hw.demo import model_path
from byoc_hw.report.marks import markdown, update

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))
README = ROOT / "README.md"


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser for the models, and for `--update`, which puts the table into the README."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    parser.add_argument("--update", action="store_true", help="put the table into README.md as well")
    return parser


def models(given: Sequence[Path]) -> list[Path]:
    """The given models; by default the one that ships with the project and those of MLPerf Tiny."""
    return list(given) or [model_path(), *sorted(MODELS.glob("*.tflite"))]


def show(
    script: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    into_readme: bool,
    part: str = "",
    flag: str = "",
) -> None:
    """Print each row at once. With `into_readme`, then replace the table of the script in the README.

    `part` names the second table of a script, `flag` is the option that a table is made with.
    """
    widths = [max(len(column), 12) for column in columns]
    widths[0] = 24
    line = "{:<24}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    print(line.format(*columns))
    kept = []
    for row in rows:
        kept.append(row)
        print(line.format(*map(str, row)), flush=True)
    if into_readme:
        command = f"python benchmarks/{script}.py {flag and f'{flag} '}--update{part and f' # {part}'}"
        update(README, command, markdown(columns, kept))
