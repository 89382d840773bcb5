"""The table of supported operators, made from the patterns and the limits of an accelerator.

`python -m byoc_hw.report.capabilities` prints it; with `--update FILE` it replaces the one between
the marks in that file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args, get_type_hints

import byoc_hw
from byoc_hw.accelerator import DSP, REFERENCE, Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.pattern import Pattern, patterns
from byoc_hw.report.marks import markdown, update

COMMAND = "python -m byoc_hw.report.capabilities"


def capabilities(table: Iterable[Pattern], accelerator: Accelerator = REFERENCE) -> str:
    """A Markdown table: each composite, the layer that it becomes, what it covers and its limits."""
    rows = []
    for pattern in sorted(table, key=lambda pattern: pattern.name):
        kind = layer_kind(pattern)
        limits, others = accelerator.limits.get(kind), DSP.limits.get(kind)
        texts = [rule.text for rule in (*(limits.rules() if limits is not None else ()), *pattern.limits)]
        if limits is None and others is not None:
            texts = [
                f"on a chip, by an accelerator like `{DSP.label}`",
                *(rule.text for rule in others.rules()),
                *texts,
            ]
        rows.append((f"`{pattern.name}`", f"`{kind}`", pattern.document, "<br>".join(texts) or "none"))
    return markdown(("composite", "layer", "covers", "limits"), rows)


def layer_kind(pattern: Pattern) -> str:
    """The layer kind that a pattern's `parse` returns, by its annotation."""
    returned = get_type_hints(pattern.parse).get("return")
    for kind in (returned, *get_args(returned)):
        if hasattr(kind, "kind"):
            return str(kind.kind)
    raise InvalidInput(f"parse of pattern {pattern.name} is annotated with the layer that it returns: got {returned}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or update it in a file."""
    parser = argparse.ArgumentParser(prog="python -m byoc_hw.report.capabilities", description=__doc__)
    parser.add_argument("--update", type=Path, metavar="FILE", help="put the table between the marks of a file")
    options = parser.parse_args(arguments)
    len(byoc_hw.pattern_table())  # loads the patterns, which are written in TVM's pattern language
    table = capabilities(patterns())
    if options.update is None:
        print(table)
        return 0
    try:
        update(options.update, COMMAND, table)
    except (InvalidInput, OSError) as error:
        print(f"byoc_hw: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
