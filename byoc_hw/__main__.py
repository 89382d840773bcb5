"""The command line, `python -m byoc_hw` or `byoc-hw`: the commands of `byoc_hw.commands`, and how each ends."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence

import byoc_hw
from byoc_hw.commands.authoring import add_patterns
from byoc_hw.commands.building import add_building
from byoc_hw.commands.describing import add_describing
from byoc_hw.commands.explaining import add_explaining
from byoc_hw.commands.exploring import add_exploring
from byoc_hw.commands.hals import add_hals
from byoc_hw.commands.meshing import add_meshing
from byoc_hw.commands.options import EXIT_CODES
from byoc_hw.commands.running import add_running
from byoc_hw.commands.validating import add_validating
from byoc_hw.errors import ByocHwError, RunError, ToolchainMissing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of models and files may hold anything
    try:
        try:
            return _command_line(arguments)
        finally:
            if sys.stdout:  # None where it is closed
                sys.stdout.flush()
    except BrokenPipeError:  # whoever read it, such as `head`, has seen enough
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        _discard_output()
        return _fail(f"the output can be written: {error}", 1)


def _command_line(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except RunError as error:
        return _fail(error, 1)
    except ToolchainMissing as error:
        return _fail(error, 3)
    except ModuleNotFoundError as error:
        return _fail(f"the Python package {error.name} is missing: pip install byoc-hw brings it", 3)
    except BrokenPipeError:
        raise
    except (ByocHwError, OSError) as error:
        return _fail(error, 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 128 + signal.SIGINT)
    return 0


def _fail(error: object, code: int) -> int:
    print(f"byoc_hw: error: {error}", file=sys.stderr)
    return code


def _discard_output() -> None:
    """Send what is still to be written nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m byoc_hw",
        description="Compile quantized models to C projects for a neural accelerator, and run them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"byoc_hw {byoc_hw.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        add_building,
        add_running,
        add_validating,
        add_explaining,
        add_exploring,
        add_describing,
        add_meshing,
        add_hals,
        add_patterns,
    ):
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
