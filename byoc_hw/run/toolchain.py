"""Builds a project with make: the compiler and its flags, and clear errors."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_hw.emit.directory import alone
from byoc_hw.errors import InvalidInput, RunError, ToolchainMissing
from byoc_hw.run import built
from byoc_hw.run.files import ProjectModel, read_model

DEFAULT_CFLAGS = "-O2"
BUILD_TIMEOUT = 600.0
STARTUPS = ("picolibc", "plain")

PACKAGES = {
    "make": "make",
    "gcc": "gcc",
    "clang": "clang",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf",
    "qemu-system-riscv32": "qemu-system-misc",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi",
}
"""The Debian or Ubuntu package of each tool that a run may need."""

COMPILERS = {"host": "gcc", "riscv32": "riscv64-unknown-elf-gcc"}
"""The default compiler of each target."""

_NOT_FOR_MAKE = re.compile(r"[^\w@+,./-]")
"""What splits or changes a file's name in a makefile, where nothing can be quoted."""

_OF_MAKE = {"MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKELEVEL"}
_OF_PROJECTS = {
    "CFLAGS",
    "LDFLAGS",
    "TRACE",
    "LDSCRIPT",
    "HAL",
    "APP_IO",
    "EXTRA",
    "INPUTS",
    "OUTPUTS",
    "PROFILE",
    "TRACES",
}
"""Variables that a project's Makefile takes from the environment, as those that begin with HAL_; a run gives it the
toolchain's, or none."""


@dataclass(frozen=True)
class Toolchain:
    """How a project is built: the compiler and what it is given. By default the target's usual build.

    `cc` is the compiler's command, with options if it needs any; None is gcc for the host, and
    riscv64-unknown-elf-gcc for riscv32. `cflags` and `ldflags` are options as on a command line, for
    compiling and for linking. `ldscript` is the file of a linker script. `hal` is a directory with the
    C files of your own HAL, which takes the place of the simulator; for a chip of several accelerators such directories
    by the accelerator's name, and the others are simulated. `startup` is for riscv32: "picolibc"
    (the C library's start-up code and linker script) or "plain" (the project's own, with the sizes of the
    accelerator's RAM and flash).

    Options reach the compiler as they stand: `cc`, `cflags` and `ldflags` are split into words as a shell splits
    them, and nothing in them is carried out or replaced. `ldscript` and `hal` have no spaces, nor other
    characters that make would read as its own.

    Raises `InvalidInput` for an empty `cc`, an `ldscript` that is no file, a `hal` without C files, another
    `startup`, and for what make cannot take. What the compiler refuses is a `RunError` of the build, a
    compiler that is not installed a `ToolchainMissing`.
    """

    cc: str | None = None
    cflags: str = DEFAULT_CFLAGS
    ldflags: str = ""
    ldscript: str | Path | None = None
    hal: str | Path | Mapping[str, str | Path] | None = None
    startup: str = "picolibc"

    def __post_init__(self) -> None:
        if self.cc is not None and not split_words("cc", self.cc):
            raise InvalidInput("cc is a command: got an empty one")
        split_words("cflags", self.cflags)
        split_words("ldflags", self.ldflags)
        if self.startup not in STARTUPS:
            raise InvalidInput(f"startup is one of {', '.join(STARTUPS)}: got {self.startup!r}")
        for hal in self.hals.values():
            if not any(Path(hal).glob("*.c")):
                raise InvalidInput(f"hal is a directory with C files: {hal} has none")
        if self.ldscript is not None and not Path(self.ldscript).is_file():
            raise InvalidInput(f"ldscript is a file: {self.ldscript} is none")
        for name, path in (*(("hal", hal) for hal in self.hals.values()), ("ldscript", self.ldscript)):
            odd = None if path is None else _NOT_FOR_MAKE.search(str(Path(path).resolve()))
            if odd:
                raise InvalidInput(
                    f"{name} is a path of letters, digits and any of _ @ + , . / -, which make can take: "
                    f"got {odd[0]!r} in {str(Path(path or '').resolve())!r}"
                )

    @property
    def hals(self) -> dict[str, str | Path]:
        """The directories of your own HALs by the accelerator's name, "" for that of a single accelerator."""
        if isinstance(self.hal, Mapping):
            return dict(self.hal)
        return {} if self.hal is None else {"": self.hal}

    def check_hals(
        self,
        accelerators: Sequence[str],
        shared: Sequence[Sequence[str]] = (),
        with_events: Sequence[str] = (),
    ) -> None:
        """Raise `InvalidInput` where `hal` does not fit a project on these accelerators of a chip, or a single one.

        A simulator and a HAL have no memory and no events in common: of those that are `shared` all have a HAL, or
        none, and so of those `with_events`.
        """
        if not accelerators and isinstance(self.hal, Mapping):
            raise InvalidInput(f"hal is one directory, for a project of one accelerator: got {', '.join(self.hal)}")
        for name in self.hals:
            if accelerators and name not in accelerators:
                known = ", ".join(accelerators)
                raise InvalidInput(f"hal is directories by accelerator, for a chip of {known}: got {name or self.hal}")
        groups = [*((group, "share their activation memory") for group in shared), (with_events, "have events")]
        for group, have in groups:
            missing = [name for name in group if name not in self.hals]
            if 0 < len(missing) < len(group):
                found = ", ".join(name for name in group if name in self.hals)
                rule = f"{' and '.join(group)} {have}"
                raise InvalidInput(f"hal: {rule}: got one for {found}, none for {', '.join(missing)}")

    def variables(self, target: str, *, trace: bool) -> dict[str, str]:
        """The Makefile's variables, without those that keep their default, quoted for make and its shell."""
        chosen = {
            "TARGET": "" if target == "host" else target,
            "STARTUP": "" if target == "host" or self.startup == STARTUPS[0] else self.startup,
            "CC": _quoted(self.cc or ""),
            "CFLAGS": "" if self.cflags == DEFAULT_CFLAGS else _quoted(self.cflags),
            "LDFLAGS": _quoted(self.ldflags),
            "LDSCRIPT": str(Path(self.ldscript).resolve()) if self.ldscript is not None else "",
            **{f"HAL_{name.upper()}" if name else "HAL": str(Path(hal).resolve()) for name, hal in self.hals.items()},
            "TRACE": "1" if trace else "",
        }
        return {name: value for name, value in chosen.items() if value}


def build_program(directory: Path, target: str, toolchain: Toolchain, *, trace: bool) -> Path:
    """Run make in the project; the path of the program.

    Each set of variables has a build directory of its own. Raises `ToolchainMissing` without compiler
    or make, `RunError` with what the compiler said, or with the memory that the program does not fit.
    """
    model = read_model(directory)
    toolchain.check_hals(model.accelerators, model.shared, model.with_events)
    compiler = toolchain.cc or COMPILERS[target]
    for tool in ("make", split_words("cc", compiler)[0]):
        require(tool)
    variables = toolchain.variables(target, trace=trace)
    build = _build_directory(target, variables)
    if toolchain.cc is None and target == "host":
        variables["CC"] = compiler  # not what the environment says
    variables["CFLAGS"] = _quoted(toolchain.cflags)
    variables["LDFLAGS"] = _quoted(toolchain.ldflags)
    program = directory.resolve() / build / model.name
    try:
        if program.parent.is_symlink():
            raise RunError(f"{model.name} does not build: {program.parent} is a directory, not a link")
        program.parent.mkdir(exist_ok=True)
        with alone(program.parent):
            _make(directory, program, variables)
    except OSError as error:
        raise RunError(f"{model.name} does not build: {error}") from error
    except RunError as error:
        raise _clearer(model, target, toolchain, str(error)) from error
    return program


def _make(directory: Path, program: Path, variables: Mapping[str, str]) -> None:
    """Run make, so that the program is one that a run built: anew, unless the record of the last build fits."""
    assignments = [f"{name}={value}" for name, value in {**variables, "BUILD": program.parent.name}.items()]
    command: list[str | Path] = [
        "make",
        "-s",
        "-C",
        directory,
        "-f",
        "Makefile",
        f"-j{os.cpu_count() or 1}",
        *assignments,
    ]
    built.remove_links(program.parent)
    made_of = built.made_of(directory, variables)
    known = built.is_recorded(program, made_of)
    if known:  # make has nothing to do, unless files elsewhere changed, such as those of a HAL
        run_command(command, BUILD_TIMEOUT, f"{program.name} does not build")
        known = built.is_recorded(program, made_of)
    if not known:
        built.remove_products(program)
        run_command(command, BUILD_TIMEOUT, f"{program.name} does not build")
        if not program.is_file():
            raise RunError(f"{program.name} does not build: make has made no {program}")
        built.note(program, made_of)


def split_words(name: str, options: str) -> list[str]:
    """The words of a command or of options, as a shell splits them; `InvalidInput` for what is no such text."""
    if not isinstance(options, str):
        raise InvalidInput(f"{name} are words as on a command line: got {options!r}")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise InvalidInput(f"{name} are words as on a command line: {error}: got {options!r}") from error
    if any(character in options for character in "\0\n"):
        raise InvalidInput(f"{name} are words on one line: got {options!r}")
    return words


def _quoted(options: str) -> str:
    """Words, so that they reach a command through make and its shell unchanged."""
    return " ".join(shlex.quote(word) for word in shlex.split(options)).replace("$", "$$")


def require(tool: str) -> None:
    """`ToolchainMissing`, with the package to install, if a tool is not installed."""
    if shutil.which(tool) is None:
        package = PACKAGES.get(Path(tool).name)
        advice = f"install the package {package}" if package else "it is the one that was asked for"
        raise ToolchainMissing(f"{tool} is not installed: {advice}")


def _build_directory(target: str, variables: Mapping[str, str]) -> str:
    usual = "build" if target == "host" else f"build-{target}"
    if set(variables) <= {"TARGET"}:
        return usual
    return f"{usual}-{hashlib.sha256(repr(sorted(variables.items())).encode()).hexdigest()[:8]}"


def _clearer(model: ProjectModel, target: str, toolchain: Toolchain, said: str) -> Exception:
    """A clearer error for two common causes: a memory that is too small, and a C library that is missing."""
    exceeded = dict(re.findall(r"region [`']([^']+)' overflowed by (\d+) bytes", said))
    if exceeded:
        listed = "; ".join(f"{region} is exceeded by {nbytes} bytes" for region, nbytes in sorted(exceeded.items()))
        where = toolchain.ldscript or ("app/riscv32/link.ld" if toolchain.startup == "plain" else "the C library's")
        return RunError(f"{model.name} does not fit its memories (linker script {where}): {listed}")
    if target == "riscv32" and re.search(r"cannot read spec file .?picolibc|picolibc.specs: No such file", said):
        return ToolchainMissing("picolibc is not installed: install the package picolibc-riscv64-unknown-elf")
    return RunError(said)


def run_command(command: Sequence[str | Path], timeout: float, what: str) -> None:
    """Run a program to its end; `RunError` with its output if it fails or takes longer than `timeout` seconds."""
    # The variables of a make that runs this, or of a shell, must not reach the project's make.
    theirs = _OF_MAKE | _OF_PROJECTS
    environment = {name: value for name, value in os.environ.items() if name not in theirs and name[:4] != "HAL_"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{what}: it did not end within {timeout:g} seconds") from error
    if done.returncode != 0:
        raise RunError(f"{what} ({ended(done.returncode)}):\n{done.stdout}{done.stderr}".rstrip())


def ended(returncode: int) -> str:
    """How a program ended, in words."""
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
