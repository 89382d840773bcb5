"""Commands for who writes patterns: new-pattern, check-pattern."""

from __future__ import annotations

import argparse
from pathlib import Path

from byoc_hw.authoring.closed_kinds import CLOSED_KINDS
from byoc_hw.commands.options import Commands, add_command, add_preset, hardware_named
from byoc_hw.errors import RunError
from byoc_hw.frontend.installed import HAS_RELAY, needs_relay
from byoc_hw.graph import LAYER_KINDS


def add_patterns(commands: Commands) -> None:
    """Add `new-pattern` and `check-pattern`."""
    new = add_command(
        commands,
        "new-pattern",
        "write a pattern and its test, both green, to edit",
        "my_conv2d --layer Conv2d",
    )
    new.add_argument("name", metavar="NAME", help="of the composite, an identifier")
    kinds = ", ".join(cls.__name__ for cls in LAYER_KINDS.values() if cls.__name__ not in CLOSED_KINDS)
    new.add_argument("--layer", required=True, metavar="KIND", help=f"what it becomes: {kinds}")
    text = "where both go (in a clone: patterns/ and tests/patterns/)"
    new.add_argument("--output-dir", type=Path, metavar="DIR", help=text)
    new.set_defaults(command=_new_pattern)

    check = add_command(
        commands,
        "check-pattern",
        "try a pattern with random operators inside and just outside of every limit",
        "qnn_conv2d --accelerator SMALL",
    )
    check.add_argument("name", metavar="NAME", help="a pattern that is registered")
    text = "the Python file that registers it, where it is neither in a clone nor installed"
    check.add_argument("--file", type=Path, metavar="FILE", help=text)
    add_preset(check, ", or a chip of several, as in DIANA_DIGITAL+DSP")
    check.add_argument("--seed", type=int, default=0, help="of the random operators (%(default)s)")
    check.add_argument("--count", type=int, default=4, help="operators on each side of a limit (%(default)s)")
    check.set_defaults(command=_check_pattern)


def _new_pattern(options: argparse.Namespace) -> None:
    if not HAS_RELAY:
        needs_relay("new-pattern")
    from byoc_hw.authoring.new_pattern import new_pattern

    pattern, test, golden = new_pattern(options.name, options.layer, options.output_dir)
    print(f"The pattern is in {pattern}, its test in {test}, and the C that it is compared with in {golden}.")
    print(f"Edit them, and run\n  python -m pytest {test}")


def _check_pattern(options: argparse.Namespace) -> None:
    if not HAS_RELAY:
        needs_relay("check-pattern")
    from byoc_hw.authoring.fuzzing import check_pattern
    from byoc_hw.authoring.new_pattern import load_pattern_file

    if options.file is not None:
        load_pattern_file(options.file)
    found = check_pattern(options.name, hardware_named(options.accelerator), seed=options.seed, count=options.count)
    print(found)
    if not found:
        raise RunError(f"{options.name}: wrong in {', '.join(one.limit for one in found.limits if one.failure)}")
