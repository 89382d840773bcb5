"""Shared by the benchmarks: the choice of models, and tables for the terminal and the documents."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from byoc_hw.demo import model_path
from byoc_hw.report.marks import begin, markdown, update

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser for the models, and for `--update`, which puts the table into its document."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    parser.add_argument(
        "--update", action="store_true", help="put the table into README.md or docs/benchmarks.md as well"
    )
    return parser


def models(given: Sequence[Path]) -> list[Path]:
    """The given models; by default the one that ships with the project and those of MLPerf Tiny."""
    return list(given) or [model_path(), *sorted(MODELS.glob("*.tflite"))]


def show(
    script: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    into_document: bool,
    part: str = "",
    flag: str = "",
) -> None:
    """Print each row at once. With `into_document`, then replace the table of the script where its mark stands.

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
    if into_document:
        command = f"python benchmarks/{script}.py {flag and f'{flag} '}--update{part and f' # {part}'}"
        update(document_of(command), command, markdown(columns, kept))


def document_of(command: str) -> Path:
    """The document with the table of a command, such as `python benchmarks/soc.py --update`."""
    (document,) = (document for document in DOCUMENTS if begin(command) in document.read_text(encoding="utf-8"))
    return document
