"""Builds a project for a RISC-V core without an operating system, and runs it in QEMU."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from byoc_hw.errors import RunError
from byoc_hw.run.elf import function_at, symbols
from byoc_hw.run.files import Inputs, ProjectModel, check_inputs, read_model, read_results, write_inputs
from byoc_hw.run.result import Result
from byoc_hw.run.toolchain import Toolchain, build_program, ended, require

QEMU = "qemu-system-riscv32"
_MACHINE = ["-machine", "virt", "-m", "1G", "-display", "none", "-bios", "none", "-serial", "none"]
# Instructions are counted exactly: each takes one tick of the emulated clock.
_COUNTED = ["-icount", "shift=0,sleep=off", "-chardev", "stdio,id=sh0,signal=off"]
_FILES = ("inputs.bin", "outputs.bin", "profile.jsonl", "trace.bin")
_CURRENT_LAYER = "count_layer"  # of app/count.c
_CAUSES = {
    0: "instruction address misaligned",
    1: "instruction access fault",
    2: "illegal instruction",
    3: "breakpoint",
    4: "load address misaligned",
    5: "load access fault",
    6: "store address misaligned",
    7: "store access fault",
    11: "environment call",
}


def run_on_riscv32(
    directory: Path | str,
    inferences: Sequence[Inputs],
    toolchain: Toolchain = Toolchain(),
    *,
    trace: bool = False,
    timeout: float = 120.0,
) -> list[Result]:
    """As `run_on_host`, on an emulated rv32imc core. The results also count what the core executed.

    A trap or a time-out is a `RunError` with cause, address, function and layer.
    """
    directory = Path(directory)
    model = read_model(directory)
    arrays = [check_inputs(model.inputs, inputs) for inputs in inferences]
    if not arrays:
        return []
    require(QEMU)
    program = build_program(directory, "riscv32", toolchain, trace=trace)
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as name:
        workplace = Path(name)
        names = _FILES[: 4 if trace else 3]
        write_inputs(workplace / names[0], arrays)
        _emulate(model, program, workplace, names, timeout)
        outputs, profile, traces = (workplace / part for part in _FILES[1:])
        timed = not toolchain.hals
        return read_results(model, arrays, outputs, profile, traces if trace else None, timed=timed)


def _emulate(model: ProjectModel, program: Path, workplace: Path, names: Sequence[str], timeout: float) -> None:
    # Relative paths, because QEMU's options have no quotes for commas and spaces.
    words = ",".join(["enable=on", "target=native", "chardev=sh0", *(f"arg={name}" for name in names)])
    command = [QEMU, *_MACHINE, *_COUNTED, "-semihosting-config", words]
    command += ["-monitor", "unix:monitor,server=on,wait=off", "-kernel", str(program)]
    with subprocess.Popen(
        command, cwd=workplace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            said = process.communicate(timeout=timeout)[0].decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            where = _where_now(model, program, workplace / "monitor")
            process.kill()
            raise RunError(f"{model.name} failed: it did not end within {timeout:g} seconds{where}") from error
    trap = re.search(r"trap: mcause (\w+) mepc (\w+) mtval (\w+)(?: layer (\w+))?", said)
    if trap:
        raise RunError(_trap_in_words(model, program, trap))
    if process.returncode != 0:
        raise RunError(f"{model.name} failed ({ended(process.returncode)}):\n{said}".rstrip())


def _trap_in_words(model: ProjectModel, program: Path, trap: re.Match[str]) -> str:
    cause, pc, value = (int(trap[group], 16) for group in (1, 2, 3))
    layer = int(trap[4], 16) if trap[4] else None
    named = _CAUSES.get(cause, "trap")
    place = f"mepc {pc:#010x}{_function(program, pc)}"
    return f"{model.name} failed: {named} (mcause {cause}, mtval {value:#x}) at {place}{_layer(model, layer)}"


def _where_now(model: ProjectModel, program: Path, monitor: Path) -> str:
    """Where a program is that did not end: its function and layer, if QEMU's monitor answers."""
    address = symbols(program).get(_CURRENT_LAYER)
    commands = ["info registers", *([f"xp /1hx {address:#x}"] if address is not None else [])]
    try:
        said = _ask(monitor, commands)
    except OSError:
        return ""
    pc = re.search(r"\bpc\s+([0-9a-f]+)", said)
    layer = re.search(rf"{address:08x}: 0x([0-9a-f]+)", said) if address is not None else None
    function = f": it was at {int(pc[1], 16):#010x}{_function(program, int(pc[1], 16))}" if pc else ""
    return f"{function}{_layer(model, int(layer[1], 16) if layer else None)}"


def _ask(monitor: Path, commands: Sequence[str]) -> str:
    """What QEMU's monitor answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(str(monitor))
        connection.sendall("".join(f"{command}\n" for command in ["stop", *commands, "quit"]).encode())
        said = b""
        with suppress(OSError):  # QEMU may close the connection at any time
            while received := connection.recv(4096):
                said += received
    return said.decode(errors="replace")


def _function(program: Path, address: int) -> str:
    found = function_at(program, address)
    return f" in {found}" if found else ""


def _layer(model: ProjectModel, number: int | None) -> str:
    if number is None:
        return ""
    if number >= len(model.layers):
        return ", between the layers"
    layer = model.layers[number]
    return f", layer {layer.id} ({layer.kind}): {layer.name}"
