"""Replaces the directory of a project as a whole. What a person put there, or changed, stays.

The new project is written to `.<name>.byoc_hw-new` beside the directory. Then the old one is renamed to
`.<name>.byoc_hw-old`, the new one takes its place, and what is not the old project's own moves over. If that
stops anywhere, the old project or the new one is whole, and `settle` ends it: at the next build, or when the
project is opened. Builds into one parent directory take turns.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from byoc_hw.errors import InvalidInput
from byoc_hw.schema import read_json

GENERATOR = "byoc_hw"
METADATA = "metadata.json"
LARGEST_METADATA = 2**28

PROGRAM = "app"
"""The folder of the example program, which is there to be edited."""

_SOURCES = (".c", ".h", ".S")


def digest(data: bytes) -> str:
    """The hash of a file's contents, as recorded in the metadata."""
    return hashlib.sha256(data).hexdigest()


def replace_project(directory: Path, files: Mapping[str, bytes], force: bool) -> None:
    """Put a project where a directory is new, empty or holds an earlier project. See `write_project`."""
    with _failing_clearly(directory):
        target = _place(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target.parent):
            _check_is_directory(target)
            _settle(target)
            _check_is_ours(target)
            kept = _kept(target, files, force)
            try:
                _write(_new(target), target, files, kept)
                if target.exists() and any(target.iterdir()):
                    target.rename(_old(target))
                _new(target).rename(target)
                _move_over(target)
            except BaseException:
                with suppress(OSError):  # what cannot be ended now is ended before the next build
                    _settle(target)
                raise


def settle(directory: Path) -> None:
    """End what an interrupted build began: its old project is back in place, or its new one complete."""
    with _failing_clearly(directory):
        target = directory.resolve()
        if target.name and os.path.lexists(_old(target)):
            with alone(target.parent):
                _settle(target)


def changed_files(directory: Path) -> tuple[str, ...]:
    """The files of a project that are not as they were written: changed, missing, or added among its sources."""
    recorded = recorded_digests(directory)
    changed = {name for name, found in recorded.items() if name != METADATA and _digest(directory / name) != found}
    for folder in sorted({PurePosixPath(name).parts[0] for name in recorded if "/" in name}):
        for place, folders, names in os.walk(directory / folder):
            links = [name for name in folders if Path(place, name).is_symlink()]
            added = [name for name in names if name.endswith(_SOURCES)]
            found = (Path(place, name).relative_to(directory).as_posix() for name in (*links, *added))
            changed |= {name for name in found if name not in recorded}
    return tuple(sorted(changed))


def recorded_digests(directory: Path) -> dict[str, str | None]:
    """The files of the project in a directory, with their hashes; None for a file without one. Empty for no project."""
    try:
        metadata = read_json(directory / METADATA, LARGEST_METADATA)
    except InvalidInput:
        return {}
    if not isinstance(metadata, dict) or metadata.get("generator") != GENERATOR:
        return {}
    names, digests = metadata.get("files"), metadata.get("sha256")
    known = digests if isinstance(digests, dict) else {}
    listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return {name: known.get(name) for name in [METADATA, *listed] if inside(name)}


def inside(name: str) -> bool:
    """Whether a file's name stays inside the directory that it is relative to."""
    return str(PurePosixPath(name)) == name and not name.startswith("/") and ".." not in name.split("/")


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Wait for a lock on a directory, and hold it. It ends with the process at the latest, and leaves no file."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # also if a forked process still has it open
    finally:
        os.close(handle)


# ---------------------------------------------------------------- before anything is written


@contextmanager
def _failing_clearly(directory: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # also links in a circle, or a path with a zero byte
        raise InvalidInput(f"the output directory can be written: {directory}: {error}") from error


def _place(directory: Path) -> Path:
    if directory.name in ("", ".."):  # the parent of `.` is known only when it is resolved
        directory = directory.resolve()
    if not directory.name:
        raise InvalidInput(f"the output directory has a name: got {directory}")
    return directory.parent.resolve() / directory.name


def _new(target: Path) -> Path:
    return target.with_name(f".{target.name}.byoc_hw-new")


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.byoc_hw-old")


def _check_is_directory(target: Path) -> None:
    if target.is_symlink():
        raise InvalidInput(f"the output directory is no symbolic link: {target} leads to {os.readlink(target)}")
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"the output directory is a directory: {target} is a file")


def _check_is_ours(target: Path) -> None:
    if not target.exists():
        return
    if any(target.iterdir()) and not recorded_digests(target):
        raise InvalidInput(
            f"the output directory is new, empty or a project of {GENERATOR}: {target} holds other files"
        )
    with suppress(OSError):  # no current directory is not inside the target
        if Path.cwd().is_relative_to(target):
            raise InvalidInput(f"the output directory is replaced as a whole: leave {target} first, then build")


def _kept(target: Path, files: Mapping[str, bytes], force: bool) -> set[str]:
    """The files that a person has changed and that stay: of the program, or where the new project has the old contents.

    `InvalidInput` for others, which would not fit the new ones.
    """
    blocked = [name for name in files if _is_blocked(target, name)]
    if blocked:
        raise InvalidInput(
            f"a project is written to files, not through links or over directories: got {_some(blocked)}"
        )
    if force:
        return set()
    recorded = recorded_digests(target)
    kept, refused = set(), []
    for name, data in files.items():
        own, wanted = recorded.get(name), digest(data)
        found = _digest(target / name)
        if name == METADATA or not os.path.lexists(target / name) or (found and found in (own, wanted)):
            continue
        if name.startswith(f"{PROGRAM}/") or own == wanted:
            kept.add(name)
        else:
            refused.append(name)
    if refused:
        raise InvalidInput(
            f"files that a build replaces are as an earlier one wrote them: {_some(refused)} in {target} "
            "would be lost: move them away, or replace them with --force (force=True)"
        )
    return kept


def _is_blocked(target: Path, name: str) -> bool:
    """Whether something that is no directory stands in place of a file's folder, or no file or link in place of it."""
    path = target / name
    folders = [target / parent for parent in PurePosixPath(name).parents][:-1]
    if any(os.path.lexists(folder) and not stat.S_ISDIR(os.lstat(folder).st_mode) for folder in folders):
        return True
    return os.path.lexists(path) and not (path.is_symlink() or path.is_file())


def _some(names: Sequence[str]) -> str:
    """Names for a message: the first few."""
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])


def _digest(path: Path) -> str | None:
    """The hash of a regular file; None for anything else."""
    try:
        return digest(path.read_bytes()) if stat.S_ISREG(os.lstat(path).st_mode) else None
    except OSError:
        return None


# ---------------------------------------------------------------- writing


def _write(new: Path, target: Path, files: Mapping[str, bytes], kept: Collection[str]) -> None:
    """Write the new project. Unchanged files keep their time stamps, so that make need not build them again."""
    new.mkdir()
    if target.exists():
        shutil.copymode(target, new)
    for name, data in files.items():
        path, before = new / name, target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in kept:
            shutil.copy2(before, path, follow_symlinks=False)
            continue
        path.write_bytes(data)
        if _digest(before) == digest(data):
            shutil.copystat(before, path)


def _settle(target: Path) -> None:
    """End what was begun, given the lock. While `_new` is there, the new project has not taken its place."""
    new, old = _new(target), _old(target)
    for path in (new, old):
        if path.is_symlink():
            path.unlink()  # nobody's project
    if old.exists() and new.exists():
        if target.exists():
            raise InvalidInput(f"an interrupted build has left the project of {target} in {old}: move one of them away")
        old.rename(target)
    elif old.exists():
        target.mkdir(exist_ok=True)
        _move_over(target)
    if new.exists():
        shutil.rmtree(new)


def _move_over(target: Path) -> None:
    """Move what the old project did not write to the new one, and remove the rest of the old one."""
    old = _old(target)
    if old.exists():
        _move_rest(old, target, recorded_digests(old), "")


def _move_rest(old: Path, new: Path, recorded: Mapping[str, str | None], folder: str) -> None:
    # The metadata last: until then it says what is left to do.
    for path in sorted(old.iterdir(), key=lambda path: (folder + path.name == METADATA, path.name)):
        name, there = folder + path.name, new / path.name
        if path.is_dir() and not path.is_symlink():
            generated = any(other.startswith(f"{name}/") for other in recorded)
            if generated or os.path.lexists(there):
                _move_rest(path, there, recorded, f"{name}/")
                continue
        elif name == METADATA or os.path.lexists(there) or _is_as_written(path, recorded.get(name)):
            path.unlink()
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        path.rename(there)
    old.rmdir()


def _is_as_written(path: Path, recorded: str | None) -> bool:
    return recorded is not None and _digest(path) == recorded
