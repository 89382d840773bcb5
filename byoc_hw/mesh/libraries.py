"""The programs of PEs as shared libraries for this computer: with the simulator, and rings as links."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from byoc_hw.emit.directory import digest, recorded_digests
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.mesh.manifest import ProgramEntry
from byoc_hw.mesh.pe_source import LINK_FOLDER
from byoc_hw.run.built import made_of
from byoc_hw.run.toolchain import BUILD_TIMEOUT, require, run_command
from byoc_hw.schema import read_json

CFLAGS = "-O3 -fPIC -fno-semantic-interposition"
_BUILD = "build"
_LINK, _RANK = (Path(__file__).parent / name for name in (LINK_FOLDER, "rank"))
_STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def library_of(directory: Path, program: ProgramEntry) -> Path:
    """Where the library of a program is."""
    return directory / _BUILD / f"{program.name}.so"


def rings_library(directory: Path) -> Path:
    """Where the library with the rings alone is, for what feeds the PEs."""
    return directory / _BUILD / "rings.so"


def rank_program(directory: Path) -> Path:
    """Where the program is that runs some PEs in a process."""
    return directory / _BUILD / "rank"


def build_libraries(directory: Path, programs: Sequence[ProgramEntry], progress: Callable[[str], None]) -> list[str]:
    """Build the library of each program that is not there yet, as many at a time as there are cores.

    The names of those that were built. Raises `ToolchainMissing` without make or gcc, `RunError` with what the
    compiler said, `InvalidInput` for a program without a project.
    """
    for tool in ("make", "gcc"):
        require(tool)
    (directory / _BUILD).mkdir(exist_ok=True)
    wanted = {one.name: _made_of(directory, one) for one in programs}
    missing = [one for one in programs if not _is_built(directory, one, wanted[one.name])]
    _build_tools(directory)
    if missing:
        progress(f"{len(programs) - len(missing)} of {len(programs)} programs are built already")
    first = {_hwlib_of(directory, one): one for one in reversed(missing)}
    done = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for group in ([*first.values()], [one for one in missing if one not in first.values()]):
            same = [first[_hwlib_of(directory, one)] for one in group]
            for name in pool.map(lambda one, like: _built(directory, one, wanted[one.name], like), group, same):
                done += 1
                progress(f"built {done} of {len(missing)}: {name}")
    return [one.name for one in missing]


def check_libraries(directory: Path, programs: Sequence[ProgramEntry]) -> None:
    """Raise `RunError` unless the library of each program is the one that was built of its project as it is now."""
    for one in programs:
        if not _is_built(directory, one, _made_of(directory, one)):
            raise RunError(f"{one.name}: its library is not the one that was built of {one.directory}: build the mesh")


def _made_of(directory: Path, program: ProgramEntry) -> str:
    place = directory / program.directory
    if not recorded_digests(place):
        raise InvalidInput(f"{place} holds the project of {program.name}: it holds none")
    return made_of(place, {"CFLAGS": CFLAGS})


def _record(directory: Path, program: ProgramEntry) -> Path:
    return directory / _BUILD / f"{program.name}.json"


def _is_built(directory: Path, program: ProgramEntry, made_from: str) -> bool:
    library, record = library_of(directory, program), _record(directory, program)
    if not library.is_file() or not record.is_file():
        return False
    return bool(read_json(record, 10_000) == {"made_of": made_from, "library": digest(library.read_bytes())})


def _hwlib_of(directory: Path, program: ProgramEntry) -> str:
    """The hash of a program's HWlib: its objects are the same for all programs with the same one."""
    return _made_of_folder(directory / program.directory / "hwlib")


def _made_of_folder(folder: Path) -> str:
    """The hash of the files in a folder, with their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest("".join(f"{path.relative_to(folder)} {digest(path.read_bytes())}\n" for path in files).encode())


def _take_objects(source: Path, target: Path) -> None:
    """Copy HWlib's objects, with the flags that they were compiled with, so that make has them already."""
    target.mkdir(exist_ok=True)
    shutil.copyfile(source / "flags", target / "flags")
    for folder in ("hal", "hwlib"):
        if (source / folder).is_dir():
            shutil.copytree(source / folder, target / folder, copy_function=shutil.copyfile, dirs_exist_ok=True)


def _built(directory: Path, program: ProgramEntry, made_from: str, like: ProgramEntry) -> str:
    place, library = directory / program.directory, library_of(directory, program)
    _record(directory, program).unlink(missing_ok=True)
    what = f"{program.name} does not build"
    folder = f"{_BUILD}-library"
    if like is not program:
        _take_objects(directory / like.directory / folder, place / folder)
    variables = [f"BUILD={folder}", f"CFLAGS={CFLAGS}", "CC=gcc", "WERROR=1"]
    run_command(["make", "-s", "-C", place, "-f", "Makefile", "lib", *variables], BUILD_TIMEOUT, what)
    sources = sorted((place / LINK_FOLDER).glob("*.c"))
    archive = place / folder / f"lib{program.name}.a"
    includes = [f"-iquote{place / 'include'}", f"-I{place / 'hwlib/include'}", f"-I{place / 'hwlib/sim'}"]
    shared = ["-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs"]
    new = library.with_suffix(".new")
    parts = [*map(str, sources), str(archive), "-lm", "-o", str(new)]
    run_command(["gcc", *_STRICT, *CFLAGS.split(), "-DHWLIB_SIM", *includes, *shared, *parts], BUILD_TIMEOUT, what)
    new.replace(library)
    record = {"made_of": made_from, "library": digest(library.read_bytes())}
    _record(directory, program).write_text(json.dumps(record), encoding="utf-8")
    return program.name


def _build_tools(directory: Path) -> None:
    """Build what feeds and runs the PEs: the rings, and the program of a rank."""
    sources = sorted(path for folder in (_LINK, _RANK) for path in folder.glob("*.[ch]"))
    made_from = digest(b"".join(path.read_bytes() for path in sources))
    record = directory / _BUILD / "tools.txt"
    tools = rings_library(directory), rank_program(directory)
    if record.is_file() and record.read_text(encoding="utf-8") == made_from and all(one.is_file() for one in tools):
        return
    rings, rank = [_LINK / "link_rings.c", "-shared"], [_RANK / "rank.c", f"-I{_LINK}", "-ldl", "-lpthread"]
    for parts, tool in zip((rings, rank), tools, strict=True):
        command = ["gcc", *_STRICT, *CFLAGS.split(), *map(str, parts), "-o", str(tool)]
        run_command(command, BUILD_TIMEOUT, f"{tool.name} of the mesh does not build")
    record.write_text(made_from, encoding="utf-8")
