"""Builds a project with make: the compiler and its flags, and clear errors."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_hw.errors import InvalidInput, RunError, ToolchainMissing
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


@dataclass(frozen=True)
class Toolchain:
    """How a project is built: the compiler and what it is given. By default the target's usual build.

    `cc` is the compiler's command, with options if it needs any; None is gcc for the host, and
    riscv64-unknown-elf-gcc for riscv32. `cflags` and `ldflags` are options as on a command line, for
    compiling and for linking. `ldscript` is the file of a linker script. `hal` is a directory with the
    C files of your own HAL, which takes the place of the simulator. `startup` is for riscv32: "picolibc"
    (the C library's start-up code and linker script) or "plain" (the project's own, with the sizes of the
    accelerator's RAM and flash).

    Raises `InvalidInput` for an empty `cc`, an `ldscript` that is no file, a `hal` without C files, and
    another `startup`. What the compiler refuses is a `RunError` of the build, a compiler that is not
    installed a `ToolchainMissing`.
    """

    cc: str | None = None
    cflags: str = DEFAULT_CFLAGS
    ldflags: str = ""
    ldscript: str | Path | None = None
    hal: str | Path | None = None
    startup: str = "picolibc"

    def __post_init__(self) -> None:
        if self.cc is not None and not self.cc.split():
            raise InvalidInput("cc is a command: got an empty one")
        if self.startup not in STARTUPS:
            raise InvalidInput(f"startup is one of {', '.join(STARTUPS)}: got {self.startup!r}")
        if self.hal is not None and not any(Path(self.hal).glob("*.c")):
            raise InvalidInput(f"hal is a directory with C files: {self.hal} has none")
        if self.ldscript is not None and not Path(self.ldscript).is_file():
            raise InvalidInput(f"ldscript is a file: {self.ldscript} is none")

    def variables(self, target: str, *, trace: bool) -> dict[str, str]:
        """The Makefile's variables, without those that keep their default."""
        chosen = {
            "TARGET": "" if target == "host" else target,
            "STARTUP": "" if target == "host" or self.startup == STARTUPS[0] else self.startup,
            "CC": self.cc or "",
            "CFLAGS": "" if self.cflags == DEFAULT_CFLAGS else self.cflags,
            "LDFLAGS": self.ldflags,
            "LDSCRIPT": str(Path(self.ldscript).resolve()) if self.ldscript is not None else "",
            "HAL": str(Path(self.hal).resolve()) if self.hal is not None else "",
            "TRACE": "1" if trace else "",
        }
        return {name: value for name, value in chosen.items() if value}


def build_program(directory: Path, target: str, toolchain: Toolchain, *, trace: bool) -> Path:
    """Run make in the project; the path of the program.

    Each set of variables has a build directory of its own. Raises `ToolchainMissing` without compiler
    or make, `RunError` with what the compiler said, or with the memory that the program does not fit.
    """
    model = read_model(directory)
    if trace and toolchain.hal is not None and model.simulated:
        raise InvalidInput("a trace reads what is in the simulator's local memories: got a HAL to run on instead")
    compiler = toolchain.cc or COMPILERS[target]
    for tool in ("make", compiler.split()[0]):
        require(tool)
    variables = toolchain.variables(target, trace=trace)
    build = _build_directory(target, variables)
    if toolchain.cc is None and target == "host":
        variables["CC"] = compiler  # not what the environment says
    variables["CFLAGS"] = toolchain.cflags
    if target != "host":
        variables["LDFLAGS"] = toolchain.ldflags
    assignments = [f"{name}={value}" for name, value in {**variables, "BUILD": build}.items()]
    command: list[str | Path] = ["make", "-s", "-C", directory, f"-j{os.cpu_count() or 1}", *assignments]
    try:
        run_command(command, BUILD_TIMEOUT, f"{model.name} does not build")
    except RunError as error:
        raise _clearer(model, target, toolchain, str(error)) from error
    return directory.resolve() / build / model.name


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
    # The variables of a make that runs this must not reach the project's make.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
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
