"""Commands for who writes patterns: new-pattern, check-pattern."""

from __future__ import annotations

import argparse
from pathlib import Path

from byoc_hw.commands.options import Commands, add_command
from byoc_hw.graph import LAYER_KINDS


def add_patterns(commands: Commands) -> None:
    """Add `new-pattern`."""
    new = add_command(
        commands,
        "new-pattern",
        "write a pattern and its test, both green, to edit",
        "my_conv2d --layer Conv2d",
    )
    new.add_argument("name", metavar="NAME", help="of the composite, an identifier")
    kinds = ", ".join(cls.__name__ for cls in LAYER_KINDS.values())
    new.add_argument("--layer", required=True, metavar="KIND", help=f"what it becomes: {kinds}")
    text = "where both go (in a clone: patterns/ and tests/patterns/)"
    new.add_argument("--output-dir", type=Path, metavar="DIR", help=text)
    new.set_defaults(command=_new_pattern)


def _new_pattern(options: argparse.Namespace) -> None:
    from byoc_hw.authoring.new_pattern import new_pattern

    pattern, test, golden = new_pattern(options.name, options.layer, options.output_dir)
    print(f"The pattern is in {pattern}, its test in {test}, and the C that it is compared with in {golden}.")
    print(f"Edit them, and run\n  python -m pytest {test}")
