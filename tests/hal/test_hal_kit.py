"""The kit passes on both HALs, and names the function and the check for each planted fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL, Limits
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.run.hal_test import hal_test, write_kit

PLAIN = Path(__file__).parent / "plain"
SANITIZED = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"


FAULTS = {
    "INIT_KEEPS_COPIES": ("hwlib_hal_init", "with copies in flight: none of them writes afterwards"),
    "COPY_WAIT_EARLY": ("hwlib_hal_copy_wait", "in the order of the starts: too early, copy 7"),
    "COPY_IN_WAIT_EARLY": ("hwlib_hal_copy_wait", "after the wait, the source in main memory may change"),
    "ONE_BYTE_TOO_MANY": ("hwlib_hal_copy_2d", "main memory to local activations, dense rows"),
    "HALF_THE_MEMORY": ("hwlib_hal_copy_1d", "local activations, every byte in, then every byte out"),
    "NO_SOURCE_STRIDE": ("hwlib_hal_copy_2d", "local weights to main memory, rows that lie apart in local memory"),
    "TOKEN_OF_ZERO": ("hwlib_hal_copy_1d", "tokens are not 0"),
    "JOB_WAIT_EARLY": ("hwlib_hal_job_wait", "in the opposite order: too early"),
    "NO_PADDING": ("hwlib_hal_job_start", "conv2d, upward, the most padding"),
    "HALVES_DOWN": ("hwlib_hal_job_start", "add, upward, rounding of halves"),
    "NO_ACT_MIN": ("hwlib_hal_job_start", "dense, tflite, act_min"),
    "PSUM_OVERWRITTEN": ("hwlib_hal_job_start", "dense, upward, slices of channels: first, middle, last"),
    "NIBBLES_SWAPPED": ("hwlib_hal_job_start", "conv2d, upward, weights of 4 bits"),
    "NO_WEIGHT_ZERO_POINT": ("hwlib_hal_job_start", "conv2d, upward, zero points at the lower rail"),
    "FIRST_CHANNEL_FOR_ALL": ("hwlib_hal_job_start", "depthwise_conv2d, upward, 1 x 1 over many channels"),
    "NO_STRIDE_W": ("hwlib_hal_job_start", "conv2d, upward, every stride across"),
    "POOL_CRASHES": ("hwlib_hal_job_start", "pool2d, maximum, upward, one pixel, one channel: signal 6"),
    "CYCLES_BACKWARDS": ("hwlib_hal_cycles", "never goes backwards"),
}


def planted(fault: str, **options):
    """The report of the plain HAL with a fault in it."""
    return hal_test(PLAIN, cflags=f"-O0 -DFAULT={fault}", **options)


# ---------------------------------------------------------------- two HALs


def test_simulator_passes_with_its_error_returns():
    report = hal_test(cflags=SANITIZED)
    assert report.passed, str(report)
    assert not [line for line in report.lines if line.startswith("skipped")]


def test_plain_hal_passes_without_error_returns():
    report = hal_test(PLAIN, cflags=SANITIZED)
    assert report.passed, str(report)
    assert [line for line in report.lines if line.startswith("skipped")] == [
        "skipped hwlib_hal_*: error returns: this HAL does not say that it checks"
    ]


def test_every_function_of_the_hal_is_checked():
    ok = {line.split()[1].rstrip(":") for line in hal_test(cflags="-O0").lines if line.startswith("ok")}
    names = ("init", "copy_1d", "copy_2d", "copy_wait", "job_start", "job_wait", "cycles", "mark")
    assert ok == {f"hwlib_hal_{name}" for name in names}


@pytest.mark.parametrize(
    "accelerator",
    [
        SMALL,
        replace(REFERENCE, dma_alignment=16),
        replace(REFERENCE, roundings=("tflite",)),
        replace(REFERENCE, limits={"pool2d": Limits(), "add": Limits()}),
        replace(REFERENCE, limits={"mul": Limits(accumulator_bits=32)}),
        replace(REFERENCE, limits={"conv2d": Limits(max_kernel=(1, 3), strides=(2, 3), weight_bits=(4,))}),
    ],
    ids=["SMALL", "aligned DMA", "one rounding", "no limits, no weights", "products only", "narrow limits"],
)
def test_checks_follow_the_accelerator(accelerator):
    report = hal_test(accelerator=accelerator, cflags="-O0 -fsanitize=undefined -fno-sanitize-recover=all")
    assert report.passed, str(report)


def test_digits_on_the_plain_hal_equal_the_simulators(tmp_path):
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params), output_dir=tmp_path / "digits")
    images = [image[np.newaxis] for image in heldout().images[:10]]
    toolchain = byoc_hw.Toolchain(hal=PLAIN)
    on_the_simulator, on_the_hal = project.run_batch(images), project.run_batch(images, toolchain=toolchain)
    for simulated, plain in zip(on_the_simulator, on_the_hal, strict=True):
        np.testing.assert_array_equal(plain.outputs[0], simulated.outputs[0])
        assert plain.cycles is None
    compared = byoc_hw.validate(project, images[0], byoc_hw.partition_for_hwlib(mod, params), toolchain=toolchain)
    assert compared.ok


# ---------------------------------------------------------------- planted faults


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("NO_IFM2_ZERO_POINT", "mul, upward, one element"),
        ("HALVES_DOWN", "mul, upward, rounding of halves"),
        ("NO_ACT_MIN", "mul, tflite, act_min"),
    ],
)
def test_planted_fault_of_a_multiplication_is_named(fault, what):
    report = planted(fault, accelerator=replace(REFERENCE, limits={"mul": Limits(accumulator_bits=32)}))
    assert [line for line in report.lines if line.startswith(f"FAILED hwlib_hal_job_start: {what}: ")], str(report)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_named(fault):
    function, what = FAULTS[fault]
    report = planted(fault)
    assert [line for line in report.lines if line.startswith(f"FAILED {function}: {what}")], str(report)
    assert set(report.failed) == {function}


def test_a_hang_is_one_of_the_function_that_was_checked():
    report = planted("COPY_WAIT_HANGS", timeout=1.0)
    assert report.failed == ("hwlib_hal_copy_wait",)
    assert report.lines[-1].endswith("it did not end within 1 seconds")


def test_a_program_for_another_machine_does_not_run_here():
    with pytest.raises(RunError, match="does not run here"):
        hal_test(PLAIN, cflags="-O0 -r")  # an object file: no program of any machine


def test_a_hal_that_promises_error_returns_must_give_them():
    report = planted("NONE", refusals=True)
    assert "hwlib_hal_copy_1d" in report.failed
    assert any("refuses, a copy beyond the end of a local memory" in line for line in report.lines)


# ---------------------------------------------------------------- what is refused, and for a chip


def test_refuses_directory_without_sources(tmp_path):
    with pytest.raises(InvalidInput, match="hal is a directory with C files"):
        hal_test(tmp_path)


def test_a_hal_that_does_not_compile_says_why(tmp_path):
    (tmp_path / "hal.c").write_text("#error no silicon yet\n")
    with pytest.raises(RunError, match="no silicon yet"):
        hal_test(tmp_path)


@pytest.mark.parametrize(
    ("change", "rule"),
    [({"dma_alignment": 32}, "power of two of at most 16: got 32"), ({"weight_memory": 4096}, "at least 16384 bytes")],
)
def test_refuses_accelerator_that_the_checks_do_not_fit(change, rule):
    with pytest.raises(InvalidInput, match=rule):
        hal_test(accelerator=replace(REFERENCE, **change))


def test_kit_for_a_chip_includes_freestanding_headers_and_memcpy_only(tmp_path):
    write_kit(tmp_path)
    allowed = {"<stdint.h>", "<stddef.h>", "<string.h>"}
    for file in tmp_path.iterdir():
        found = {line.split()[1] for line in file.read_text().splitlines() if line.startswith("#include <")}
        assert found <= allowed | ({"<stdio.h>"} if file.name == "kit_host.c" else set()), file.name
