"""What a run built: a program is executed only if it is the one that `run` built from the files at hand.

A record beside the program holds the program's hash with its inode and time of change, which a copy does not share,
and the hash of all that it was made of. Without a fitting record everything is built anew.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from byoc_hw.emit.directory import digest, recorded_digests
from byoc_hw.errors import InvalidInput
from byoc_hw.schema import read_json

_RECORD = "run.json"
_PRODUCTS = (".o", ".d")


def made_of(directory: Path, variables: Mapping[str, str]) -> str:
    """The hash of a project's files, as they are, and of the variables given to make."""
    found: list[tuple[str, str]] = sorted(variables.items())
    for name in sorted(recorded_digests(directory)):
        path = directory / name
        found.append((name, digest(path.read_bytes()) if path.is_file() else ""))
    return digest(repr(found).encode())


def is_recorded(program: Path, made_from: str) -> bool:
    """Whether a run built this very program from that."""
    try:
        return bool(read_json(program.with_name(_RECORD), 10_000) == _recorded(program, made_from))
    except (InvalidInput, OSError):
        return False


def note(program: Path, made_from: str) -> None:
    """Note that a run has just built the program."""
    program.with_name(_RECORD).write_text(json.dumps(_recorded(program, made_from)), encoding="utf-8")


def remove_links(directory: Path) -> None:
    """Remove the links in a build directory: make would write through them, to anywhere."""
    for place, folders, names in os.walk(directory):
        for path in (Path(place, name) for name in (*folders, *names)):
            if path.is_symlink():
                path.unlink()


def remove_products(program: Path) -> None:
    """Remove what make would take for its own: the program, objects, and the makefiles of their dependencies."""
    for place, _, names in os.walk(program.parent):
        for name in names:
            if name.endswith(_PRODUCTS):
                Path(place, name).unlink()
    for path in (program, program.with_name(_RECORD)):
        path.unlink(missing_ok=True)


def _recorded(program: Path, made_from: str) -> dict[str, str | int]:
    status = os.lstat(program)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"the program is a file that make wrote: {program} is something else")
    return {
        "made_of": made_from,
        "program": digest(program.read_bytes()),
        "inode": status.st_ino,
        "changed": status.st_ctime_ns,
    }
