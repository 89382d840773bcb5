"""Checks a HAL: compiles it with the test kit in `hwlib/kit`, runs that here, and reads what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import byoc_hw.hwlib
from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_whole
from byoc_hw.emit.whole_source import WHOLE_SOURCE, whole_source
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, accelerator_header
from byoc_hw.hwlib.kit_config import kit_config
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.run.toolchain import BUILD_TIMEOUT, DEFAULT_CFLAGS, ended, require, run_command, split_words
from byoc_hw.soc import MOST_EVENTS, Soc

_HWLIB = Path(byoc_hw.hwlib.__file__).parent
_STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion")
_LINE = re.compile(r"(checking|ok|FAILED|skipped) (hwlib_hal_[\w*]+): (.*)")


@dataclass(frozen=True)
class HalReport:
    """What the test kit printed: a line for each check, "ok" or "FAILED", and one for what it skipped."""

    lines: tuple[str, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The functions of the HAL that failed, in the order in which they were checked."""
        found = (_LINE.fullmatch(line) for line in self.lines)
        return tuple(dict.fromkeys(match[2] for match in found if match and match[1] == "FAILED"))

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __repr__(self) -> str:
        found = f"failed in {', '.join(self.failed)}" if self.failed else "passed"
        return f"<HalReport: {found}, {len(self.lines)} lines>"

    def __str__(self) -> str:
        return "\n".join(self.lines)


def hal_test(
    hal: Path | str | None = None,
    *,
    accelerator: Accelerator = REFERENCE,
    cc: str = "gcc",
    cflags: str = DEFAULT_CFLAGS,
    refusals: bool | None = None,
    events: int = 0,
    timeout: float = 60.0,
) -> HalReport:
    """Compile the C files of directory `hal` (default: the simulator) with the kit, and run all checks.

    With `refusals` the kit also checks that the HAL returns an error for what the accelerator cannot do;
    by default that is checked for the simulator only. With `events`, the number of those of its chip, the kit
    checks its functions for them. `timeout` is in seconds, for the run. If the HAL
    crashes or hangs, the check that was running has failed.

    Raises `InvalidInput` for a directory without C files and for an accelerator without HAL,
    `ToolchainMissing` if the compiler is not installed, `RunError` with the compiler's messages or if
    the program is for another machine (`write_kit` is for that).
    """
    directory = _hal_directory(hal)
    compiler = split_words("cc", cc)
    if not compiler:
        raise InvalidInput("cc is a command: got an empty one")
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as name:
        kit = Path(name)
        write_kit(kit, accelerator, refusals=hal is None if refusals is None else refusals, events=events)
        if hal is None:
            chip = Soc((accelerator,), name="chip_of_one", events=events) if events else None
            (kit / "hwlib_sim_config.h").write_text(sim_config(accelerator, chip=chip), encoding="utf-8")
        require(compiler[0])
        command = [*compiler, *_STRICT, *split_words("cflags", cflags), f"-I{kit}", f"-I{directory}"]
        return HalReport(tuple(run_kit(_built(command, [kit, directory], kit), timeout)))


def _built(command: list[str], sources: list[Path], directory: Path) -> Path:
    """The program of all C files in some directories, which are compiled side by side."""
    program, failed = directory / "hal_test", "the HAL does not build with the kit"
    files = [file for place in sources for file in sorted(place.glob("*.c"))]
    objects = [directory / f"{number}_{file.stem}.o" for number, file in enumerate(files)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [
            pool.submit(run_command, [*command, "-c", file, "-o", into], BUILD_TIMEOUT, failed)
            for file, into in zip(files, objects, strict=True)
        ]
        for run in runs:
            run.result()
    run_command([*command, *objects, "-o", program], BUILD_TIMEOUT, failed)
    return program


def write_kit(
    directory: Path, accelerator: Accelerator = REFERENCE, *, refusals: bool = False, events: int = 0
) -> None:
    """Write the kit's sources, its configuration and the HAL's header, to be built for a chip."""
    check_whole("events", events, 0, MOST_EVENTS)
    config = kit_config(accelerator, refusals=refusals, events=events)
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted([*_HWLIB.glob("kit/*.[ch]"), _HWLIB / "include" / "hwlib_hal.h"]):
        shutil.copyfile(file, directory / file.name)
    if accelerator.has_whole:
        (directory / WHOLE_SOURCE).write_text(whole_source(), encoding="utf-8")
    (directory / ACCELERATOR_HEADER).write_text(accelerator_header(accelerator), encoding="utf-8")
    (directory / "hal_kit_config.h").write_text(config, encoding="utf-8")


def _hal_directory(hal: Path | str | None) -> Path:
    directory = _HWLIB / "sim" if hal is None else Path(hal).resolve()
    if not any(directory.glob("*.c")):
        raise InvalidInput(f"hal is a directory with C files: {hal} has none")
    return directory


def run_kit(program: Path, timeout: float) -> list[str]:
    """The lines that a run of the kit prints. A check that a crash or a hang interrupts has failed."""
    try:
        process = subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:  # built for another machine
        raise RunError(f"the kit was built, but does not run here ({error.strerror}): write it for the chip") from error
    try:
        said, _ = process.communicate(timeout=timeout)
        end = ended(process.returncode)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        end = f"it did not end within {timeout:g} seconds"
    lines = said.decode(errors="replace").splitlines()
    return _finished(lines, end)


def _finished(lines: list[str], end: str) -> list[str]:
    kept: list[str] = []
    checking = None
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and match[1] == "checking":
            checking = f"{match[2]}: {match[3]}"
            continue
        if match:
            checking = None
        kept.append(line)
    whole = bool(lines) and re.fullmatch(r"\d+ checks, \d+ failed", lines[-1])
    if not whole:  # a crash before the first check is one of the first call
        kept.append(f"FAILED {checking or 'hwlib_hal_init: the first call'}: {end}")
    return kept
