"""Build a project with the host's compiler and run it there, the accelerator simulated."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from byoc_hw.errors import RunError, ToolchainMissing
from byoc_hw.run.files import Inputs, check_inputs, read_model, read_results, write_inputs
from byoc_hw.run.result import Result

DEFAULT_CFLAGS = "-O2"
BUILD_TIMEOUT = 600.0


def run_on_host(
    directory: Path | str,
    inferences: Sequence[Inputs],
    *,
    trace: bool = False,
    timeout: float = 120.0,
    cc: str = "gcc",
    cflags: str = DEFAULT_CFLAGS,
) -> list[Result]:
    """Build the project (where anything changed) and run all inferences in one process.

    Reads what it needs from the project's metadata. `timeout` is in seconds, for the run. Each set
    of `cc`, `cflags` and `trace` has a build directory of its own. Raises `InvalidInput` for inputs
    that do not fit the model, `ToolchainMissing` without compiler or make, `RunError` with what
    compiler or program said.
    """
    directory = Path(directory)
    model = read_model(directory)
    arrays = [check_inputs(model.inputs, inputs) for inputs in inferences]
    if not arrays:
        return []
    program = build_on_host(directory, trace=trace, cc=cc, cflags=cflags)
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as name:
        files = [Path(name, part) for part in ("inputs.bin", "outputs.bin", "profile.jsonl", "trace.bin")]
        inputs_file, outputs, profile, traces = files
        write_inputs(inputs_file, arrays)
        _run([program, *(files if trace else files[:3])], timeout, f"{model.name} failed")
        return read_results(model, len(arrays), outputs, profile, traces if trace else None)


def build_on_host(directory: Path | str, *, trace: bool = False, cc: str = "gcc", cflags: str = DEFAULT_CFLAGS) -> Path:
    """Run make in the project; the path of the program."""
    directory = Path(directory)
    model = read_model(directory)
    for tool, package in (("make", "make"), (cc.split()[0], "gcc")):
        if shutil.which(tool) is None:
            raise ToolchainMissing(f"{tool} is not installed: install the package {package}")
    variables = {"CC": cc, "CFLAGS": cflags, "TRACE": "1" if trace else ""}
    variables["BUILD"] = _build_directory(variables)
    assignments = [f"{name}={value}" for name, value in variables.items()]
    jobs = f"-j{os.cpu_count() or 1}"
    _run(["make", "-s", "-C", directory, jobs, *assignments], BUILD_TIMEOUT, f"{model.name} does not build")
    return directory.resolve() / variables["BUILD"] / model.name


def _build_directory(variables: dict[str, str]) -> str:
    if variables == {"CC": "gcc", "CFLAGS": DEFAULT_CFLAGS, "TRACE": ""}:
        return "build"
    return f"build-{hashlib.sha256(repr(sorted(variables.items())).encode()).hexdigest()[:8]}"


def _run(command: Sequence[str | Path], timeout: float, what: str) -> None:
    # An outer make must not hand its own variables to the project's.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{what}: it did not end within {timeout:g} seconds") from error
    if done.returncode != 0:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise RunError(f"{what} ({ended}):\n{done.stdout}{done.stderr}".rstrip())
