"""Commands for who writes a HAL: hal-test, new-hal."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import byoc_hw
from byoc_hw.commands.options import Commands, add_command, add_preset, hardware_named
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.run.hal_test import hal_test, write_kit
from byoc_hw.run.new_hal import MODEL, new_hal
from byoc_hw.run.toolchain import DEFAULT_CFLAGS


def add_hals(commands: Commands) -> None:
    """Add `hal-test` and `new-hal`."""
    test = add_command(
        commands, "hal-test", "check every function of a HAL (needs no TVM)", "--hal my_hal --cflags=-O1"
    )
    test.add_argument("--hal", type=Path, metavar="DIR", help="the C files of a HAL (the simulator)")
    add_preset(test, "")
    test.add_argument("--cc", default="gcc", help="the compiler, for this machine (%(default)s)")
    test.add_argument("--cflags", default=DEFAULT_CFLAGS, help="its options (%(default)s)")
    test.add_argument(
        "--refusals",
        action=argparse.BooleanOptionalAction,
        help="whether to check error returns: that it refuses what the accelerator cannot do (for the simulator only)",
    )
    test.add_argument("--events", type=int, default=0, help="events of the chip, which it checks as well (%(default)s)")
    test.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="of the run (%(default)s)")
    test.add_argument("--write", type=Path, metavar="DIR", help="write the kit's C there, for a chip; run nothing")
    test.set_defaults(command=_hal_test)

    new = add_command(commands, "new-hal", "write a HAL to start from (needs no TVM)", "my_hal --accelerator SMALL")
    new.add_argument("directory", type=Path, metavar="DIR", help="a directory that is new or empty")
    new.add_argument(
        "--registers",
        type=_address,
        metavar="ADDRESS",
        help="one that drives a chip by memory-mapped registers from there on, as 0x40000000",
    )
    add_preset(new, "")
    new.set_defaults(command=_new_hal)


def _hal_test(options: argparse.Namespace) -> None:
    accelerator = _accelerator_of_hal(options)
    if options.write is not None:
        write_kit(options.write, accelerator, refusals=bool(options.refusals), events=options.events)
        print(f"The kit is in {options.write}: build it with your HAL, and provide hal_kit_print of hal_kit.h")
        return
    report = hal_test(
        options.hal,
        accelerator=accelerator,
        cc=options.cc,
        cflags=options.cflags,
        refusals=options.refusals,
        events=options.events,
        timeout=options.timeout,
    )
    print(report)
    if not report.passed:
        raise RunError(f"the HAL fails in {', '.join(report.failed)}")


def _new_hal(options: argparse.Namespace) -> None:
    new_hal(options.directory, _accelerator_of_hal(options), registers=options.registers)
    directory = shlex.quote(str(options.directory if options.registers is None else options.directory / MODEL))
    check = f"python -m byoc_hw hal-test --hal {directory} --accelerator {options.accelerator}"
    print(f"The HAL is in {options.directory}: check it with\n  {check}")


def _accelerator_of_hal(options: argparse.Namespace) -> byoc_hw.Accelerator:
    found = hardware_named(options.accelerator)
    if isinstance(found, byoc_hw.Soc):
        raise InvalidInput(f"a HAL is for one accelerator, also on a chip: got {options.accelerator}")
    return found


def _address(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is a number, such as 0x40000000: got {text!r}") from error
