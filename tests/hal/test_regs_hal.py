"""The HAL over memory-mapped registers, on the device in software: the kit passes, and models run on it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw.accelerator import REFERENCE, REGISTERS, SMALL
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.limits import Limits
from byoc_hw.run.hal_test import hal_test, write_kit
from byoc_hw.run.new_hal import new_hal
from byoc_hw.soc import Soc

SANITIZED = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
POLLS = "-DREGS_MODEL_POLLS"
MUL = replace(
    REFERENCE, activation_memory=1024, weight_memory=1024, queue=3, limits={"mul": Limits(accumulator_bits=32)}
)
ADDRESS = 0x40000000


def device(directory, accelerator=REFERENCE):
    """A HAL over registers and the device in software: the folder of the latter."""
    new_hal(directory / "regs", accelerator, registers=ADDRESS)
    return directory / "regs" / "model"


# ---------------------------------------------------------------- the kit


@pytest.mark.slow
@pytest.mark.parametrize("waits", ["", POLLS], ids=["sleeps", "polls"])
def test_the_kit_passes(tmp_path, waits):
    report = hal_test(device(tmp_path, MUL), accelerator=MUL, cflags=f"{SANITIZED} {waits}")
    assert report.passed, str(report)


@pytest.mark.slow
def test_the_kit_passes_for_all_kinds_of_jobs(tmp_path):
    report = hal_test(device(tmp_path), cflags=SANITIZED)
    assert report.passed, str(report)


@pytest.mark.slow
def test_the_kit_passes_with_events(tmp_path):
    adds = replace(MUL, limits={"add": Limits()})
    model = device(tmp_path, adds)
    (model / "hwlib_sim_config.h").write_text(sim_config(adds, chip=Soc((adds,), name="chip_of_one", events=4)))
    report = hal_test(model, accelerator=adds, cflags="-O1", events=4)
    assert report.passed, str(report)
    assert any(line.startswith("ok hwlib_hal_await") for line in report.lines)


@pytest.mark.slow
def test_a_start_into_a_full_queue_is_found(tmp_path):
    model = device(tmp_path, MUL)
    numbers = tmp_path / "regs" / "chip_numbers.h"
    numbers.write_text(numbers.read_text().replace("CHIP_QUEUE 3u", "CHIP_QUEUE 4u"))
    assert not hal_test(model, accelerator=MUL, cflags="-O0").passed


# ---------------------------------------------------------------- models


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(replace(SMALL, queue=2), id="a queue of two"),
        pytest.param(REFERENCE, id="reference", marks=pytest.mark.slow),
    ],
)
def digits(request, tmp_path_factory):
    """A project, an image, and the device for it."""
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, accelerator=request.param))
    return project, heldout().images[:1], device(tmp_path_factory.mktemp("hal"), request.param)


@pytest.mark.slow
def test_a_model_runs_through_registers(digits):
    project, image, model = digits
    found = project.run(image, toolchain=byoc_hw.Toolchain(hal=model, cflags=f"{SANITIZED} {POLLS}"))
    np.testing.assert_array_equal(found.outputs[0], project.run(image).outputs[0])


@pytest.mark.slow
def test_a_wait_that_does_not_look_is_found(digits, tmp_path):
    """What a job reads may not be there yet: the device knows when the core has seen that it is."""
    project, image, model = digits
    shutil.copytree(model.parent, tmp_path / "regs")
    source = tmp_path / "regs" / "regs_hal.c"
    source.write_text(
        source.read_text().replace("while (!reached(engine, token)) {", "while (0 && !reached(engine, token)) {")
    )
    with pytest.raises(RunError, match="HWLIB_ERROR_RACE"):
        project.run(image, toolchain=byoc_hw.Toolchain(hal=tmp_path / "regs" / "model", cflags="-O0"))


@needs_riscv32
@pytest.mark.slow
def test_the_bare_metal_core_writes_registers(digits):
    """Its instructions for that are counted; a core that polls is as fast as one that sleeps, but for some cycles."""
    project, image, model = digits
    expected = project.run(image, on="riscv32")
    sleeps, polls = (
        project.run(image, on="riscv32", toolchain=byoc_hw.Toolchain(hal=model, cflags=f"-O2 -DHWLIB_SIM {waits}"))
        for waits in ("", POLLS)
    )
    for found in (sleeps, polls):
        np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
        assert found.end_to_end.total > expected.end_to_end.total
    assert polls.host_instructions.total > sleeps.host_instructions.total > expected.host_instructions.total
    assert sleeps.host_instructions.host_operators == expected.host_instructions.host_operators
    assert abs(polls.end_to_end.total / sleeps.end_to_end.total - 1) < 0.02


# ---------------------------------------------------------------- on the chip


@needs_riscv32
def test_compiles_for_the_chip(tmp_path):
    """Where the registers are memory."""
    device(tmp_path)
    write_kit(tmp_path / "kit")
    command = ["riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "-std=c11", "-O2", "-ffreestanding"]
    command += ["-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{tmp_path / 'kit'}", "-S", "-o", "-"]
    assembly = subprocess.run(
        [*command, tmp_path / "regs" / "regs_hal.c"], capture_output=True, text=True, check=True
    ).stdout
    assert assembly.count("fence") >= 4
    assert "1073741" in assembly  # 0x40000000 and a part of the offset


PICOLIBC = "--specs=picolibc.specs --crt0=semihost --oslib=semihost"
PLACES = "__flash=0x80000000,__flash_size=32M,__ram=0x82000000,__ram_size=32M,__stack_size=64K"
MACHINE = "-machine virt -m 1G -display none -bios none -serial none -monitor none -icount shift=0,sleep=off"


@needs_riscv32
@pytest.mark.slow
def test_takes_the_core_what_is_said(tmp_path):
    """On memory in place of registers."""
    new_hal(tmp_path / "regs", registers=0x84000000)
    write_kit(tmp_path / "kit")
    symbols = [f"-Wl,--defsym={one}" for one in PLACES.split(",")]
    command = ["riscv64-unknown-elf-gcc", "-march=rv32imc", "-misa-spec=2.2", "-mabi=ilp32", "-std=c11", "-O2"]
    command += [*PICOLIBC.split(), *symbols, "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command += [f"-I{tmp_path / 'regs'}", f"-I{tmp_path / 'kit'}", tmp_path / "regs" / "regs_hal.c", "-o", "count"]
    subprocess.run([*command, Path(__file__).parents[1] / "hal_instructions.c"], cwd=tmp_path, check=True)
    semihosting = ["-chardev", "stdio,id=sh0,signal=off", "-semihosting-config", "enable=on,target=native,chardev=sh0"]
    emulated = ["qemu-system-riscv32", *MACHINE.split(), *semihosting, "-kernel", "count"]
    said = subprocess.run(emulated, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    found = {name: int(count) for name, count in (line.rsplit(" ", 1) for line in said.splitlines())}
    expected = {name: getattr(REGISTERS, name) for name in ("copy", "job", "wait", "event")}
    expected |= {"rows": REGISTERS.copy + REGISTERS.rows, "done": REGISTERS.wait, "not done": REGISTERS.wait}
    assert found.keys() == expected.keys()
    for name, count in found.items():  # compilers differ
        assert 0.7 * expected[name] <= count <= 1.3 * expected[name], f"{name}: {count}"


@pytest.mark.parametrize(
    ("address", "message"), [(2, "registers start at a multiple of 4: got 0x2"), (-4, "at least 0")]
)
def test_refuses_an_address_that_no_registers_have(tmp_path, address, message):
    with pytest.raises(InvalidInput, match=message):
        new_hal(tmp_path / "hal", registers=address)
    assert not (tmp_path / "hal").exists()
