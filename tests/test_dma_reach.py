"""A DMA that cannot read flash: constants lie in RAM, count there, and start-up code brings them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sanitizers
from relay_samples import Conv, module, variable
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput, PlanError, RunError

APART = replace(byoc_hw.REFERENCE, label="APART", dma_reads_flash=False)
DLA = replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA", dma_reads_flash=False)
CHIP = byoc_hw.Soc((DLA, byoc_hw.DSP), label="DLA + DSP")
SANITIZED = byoc_hw.Toolchain(cflags=sanitizers.SANITIZED)


def built(hardware, **options):
    return byoc_hw.build(
        byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=hardware), **options
    )


@pytest.fixture(scope="module")
def projects():
    return {one.label: built(one) for one in (byoc_hw.REFERENCE, APART, CHIP)}


def weights(project) -> str:
    return (Path(project.directory) / "src" / "default_weights.h").read_text("utf-8")


@pytest.mark.slow
def test_a_dma_reads_flash_unless_said_otherwise(projects):
    assert "HWLIB_IN_RAM" not in weights(projects["REFERENCE"])
    assert projects["REFERENCE"].memory.constants == 0


@pytest.mark.parametrize("label", ["APART", "DLA + DSP"])
def test_constants_count_in_ram_and_in_flash(projects, label):
    project, other = projects[label], projects["REFERENCE"]
    arrays = re.findall(r"^static (const|HWLIB_IN_RAM) uint8_t \w+_flash\[(\d+)\]", weights(project), re.MULTILINE)
    in_ram = sum(int(size) for place, size in arrays if place != "const")
    memory = project.memory
    assert 0 < in_ram == memory.constants
    assert memory.ram_bytes == memory.arena + in_ram
    assert memory.flash_bytes >= in_ram
    assert f"{memory.constants}  constants for a DMA that cannot read flash, together {memory.ram_bytes}" in str(memory)
    if label == "APART":
        assert memory.flash == other.memory.flash
    else:  # the other accelerator's stay
        assert {place for place, _ in arrays} == {"const", "HWLIB_IN_RAM"}


@pytest.mark.slow
@pytest.mark.parametrize("label", ["APART", "DLA + DSP"])
def test_results_and_cycles_are_as_with_another_dma(projects, label):
    image = heldout().images[:1]
    found = projects[label].run(image, toolchain=SANITIZED)
    other = projects["REFERENCE"].run(image)
    np.testing.assert_array_equal(found.outputs[0], other.outputs[0])
    if label == "APART":
        assert found.cycles.total == other.cycles.total


@needs_riscv32
@pytest.mark.parametrize("startup", ["picolibc", "plain"])
@pytest.mark.parametrize("label", ["APART", pytest.param("DLA + DSP", marks=pytest.mark.slow)])
def test_start_up_code_copies_them_on_riscv32(projects, label, startup):
    image = heldout().images[:1]
    toolchain = byoc_hw.Toolchain(startup=startup)
    found = projects[label].run(image, on="riscv32", toolchain=toolchain)
    np.testing.assert_array_equal(found.outputs[0], projects["REFERENCE"].run(image).outputs[0])


@pytest.fixture(scope="module", params=[APART, CHIP], ids=["one", "several"])
def in_flash(request):
    """A project whose constants have been left in flash."""
    project = built(request.param)
    path = Path(project.directory) / "src" / "default_weights.h"
    path.write_text(path.read_text("utf-8").replace("static HWLIB_IN_RAM", "static const"), "utf-8")
    return project


@pytest.mark.slow
@needs_riscv32
@pytest.mark.parametrize(("on", "startup"), [("host", "picolibc"), ("riscv32", "picolibc"), ("riscv32", "plain")])
def test_the_simulated_dma_refuses_flash(in_flash, on, startup):
    with pytest.raises(RunError, match=r"copy: from .* in flash, .* which the DMA cannot read"):
        in_flash.run(heldout().images[:1], on=on, toolchain=byoc_hw.Toolchain(startup=startup))


@pytest.mark.slow
def test_they_have_to_fit_ram():
    with pytest.raises(PlanError) as told:
        built(replace(APART, ram=4096))
    assert re.search(r"RAM is 4096 bytes: \d+ bytes needed by the smallest plan", str(told.value))
    assert re.search(r"\d+  constants for a DMA that cannot read flash", str(told.value))
    assert built(replace(byoc_hw.REFERENCE, ram=4096)).memory.arena <= 4096


@pytest.mark.slow
def test_a_chip_is_told_what_is_short_in_ram():
    apart = tuple(replace(one, dma_reads_flash=False) for one in CHIP.accelerators)
    with pytest.raises(PlanError, match="constants for a DMA that cannot read flash"):
        built(replace(CHIP, accelerators=apart, ram=2048))


@pytest.mark.slow
def test_a_chip_with_little_ram_leaves_constants_in_flash():
    """Where another accelerator can read them there."""
    project = built(replace(CHIP, ram=2048))
    assert project.memory.ram_bytes <= 2048


def convolutions(accelerator, **options):
    """Three convolutions whose intermediates do not fit local memory, but for stripes of them."""
    x = variable((1, 48, 48, 8))
    y = x
    for seed in range(3):
        y = Conv(channels=8, seed=seed).expr(y)
    return byoc_hw.build(byoc_hw.partition_for_hwlib(module(y, x), accelerator=accelerator), **options)


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_plans_are_searched_for_the_ram_that_is_left(optimize):
    small = replace(APART, activation_memory=8192, weight_memory=8192)
    fastest = convolutions(small)
    assert fastest.memory.arena > 1024
    room = fastest.memory.ram_bytes - fastest.memory.arena // 2
    smaller = convolutions(replace(small, ram=room), optimize=optimize)
    assert smaller.memory.ram_bytes <= room
    assert smaller.schedule.cycles > fastest.schedule.cycles
    inputs = [np.random.default_rng(0).integers(-128, 128, (1, 48, 48, 8)).astype(np.int8)]
    np.testing.assert_array_equal(smaller.run(inputs).outputs[0], fastest.run(inputs).outputs[0])


@pytest.mark.slow
def test_a_polled_model_has_them_in_ram_too(projects):
    project = built(APART, poll=True)
    assert "static HWLIB_IN_RAM uint8_t" in weights(project)
    np.testing.assert_array_equal(
        project.run(heldout().images[:1]).outputs[0], projects["APART"].run(heldout().images[:1]).outputs[0]
    )


def test_it_is_yes_or_no():
    with pytest.raises(InvalidInput, match="accelerator hwlib: dma_reads_flash is"):
        replace(APART, dma_reads_flash=1)
