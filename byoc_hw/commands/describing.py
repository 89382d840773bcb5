"""The command for descriptions of hardware: accelerator."""

from __future__ import annotations

import argparse
from pathlib import Path

from byoc_hw.accelerator_file import save_accelerator, toml_of
from byoc_hw.commands.options import Commands, add_command, add_preset, hardware_named


def add_describing(commands: Commands) -> None:
    """Add `accelerator`."""
    accelerator = add_command(
        commands,
        "accelerator",
        "show the description of an accelerator, or write it to a file to edit (needs no TVM)",
        "--accelerator SMALL --write chip.toml",
    )
    add_preset(accelerator, ", or a chip of several, as in DIANA_DIGITAL+DSP")
    text = "a .toml or .json file, for --accelerator of every command"
    accelerator.add_argument("--write", type=Path, metavar="FILE", help=text)
    accelerator.set_defaults(command=_accelerator)


def _accelerator(options: argparse.Namespace) -> None:
    found = hardware_named(options.accelerator)
    if options.write is None:
        print(toml_of(found), end="")
        return
    save_accelerator(found, options.write)
    print(f"The description is in {options.write}: edit it, and give it as --accelerator {options.write}")
