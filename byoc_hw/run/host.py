"""Builds a project with the host's compiler and runs it on the host, with the accelerator simulated."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from byoc_hw.run.files import Inputs, check_inputs, read_model, read_results, write_inputs
from byoc_hw.run.result import Result
from byoc_hw.run.toolchain import Toolchain, build_program, run_command


def run_on_host(
    directory: Path | str,
    inferences: Sequence[Inputs],
    toolchain: Toolchain = Toolchain(),
    *,
    trace: bool = False,
    timeout: float = 120.0,
) -> list[Result]:
    """Build the project (where anything changed) and run all inferences in one process.

    Reads what it needs from the project's metadata. `timeout` is in seconds, for the run. Each toolchain
    has a build directory of its own. Raises `InvalidInput` for inputs that do not fit the model,
    `ToolchainMissing` without compiler or make, `RunError` with what compiler or program said.
    """
    directory = Path(directory)
    model = read_model(directory)
    arrays = [check_inputs(model.inputs, inputs) for inputs in inferences]
    if not arrays:
        return []
    program = build_program(directory, "host", toolchain, trace=trace)
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as name:
        files = [Path(name, part) for part in ("inputs.bin", "outputs.bin", "profile.jsonl", "trace.bin")]
        inputs_file, outputs, profile, traces = files
        write_inputs(inputs_file, arrays)
        run_command([program, *(files if trace else files[:3])], timeout, f"{model.name} failed")
        return read_results(model, arrays, outputs, profile, traces if trace else None, timed=False)
