"""Writes one file whole or not at all, and says before long work whether that will be possible."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from byoc_hw.errors import InvalidInput


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place, then put it there; an earlier file stays until then. `InvalidInput` on failure."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with new.open("xb") as file:
            try:
                file.write(data)
                file.flush()
                if path.exists():
                    shutil.copymode(path, new)
                new.replace(path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidInput(f"{path} can be written: {error}") from error


def check_file(path: Path) -> None:
    """Raise `InvalidInput` unless `write_whole` can write this file."""
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            kind = "a directory" if path.is_dir() else "none"
            raise InvalidInput(f"{path} is a new file or an earlier one: it is {kind}")
        tempfile.TemporaryFile(prefix=f".{path.name}.", dir=path.parent).close()
    except OSError as error:
        raise InvalidInput(f"{path} can be written: {error}") from error


def check_directory(path: Path) -> None:
    """Raise `InvalidInput` unless files can be written in a directory, which is there or can be made."""
    there = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    try:
        if not there.is_dir():
            raise InvalidInput(f"{path} is a directory: {there} is none")
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise InvalidInput(f"{path} can be written: {error}") from error
