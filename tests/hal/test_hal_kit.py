"""The kit passes on both HALs, and names the function and the check for each planted fault."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import planted as planted_faults
import pytest

from byoc_hw.accelerator import DSP, KIB, REFERENCE, SMALL
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.limits import Limits
from byoc_hw.run.hal_test import HalReport, hal_test, run_kit, write_kit
from byoc_hw.run.new_hal import new_hal

SANITIZED = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
OTHERS = {
    "1 KiB": replace(REFERENCE, activation_memory=1024, weight_memory=1024),
    "aligned DMA": replace(REFERENCE, activation_memory=1024, weight_memory=4096, dma_alignment=64),
    "one rounding": replace(REFERENCE, roundings=("tflite",)),
    "no limits, no weights": replace(REFERENCE, limits={"pool2d": Limits(), "add": Limits()}),
    "products only": replace(REFERENCE, limits={"mul": Limits(accumulator_bits=32)}),
    "tables only": replace(REFERENCE, limits={"lookup": Limits()}, ram=16 * KIB),
}
WHOLE = replace(DSP, limits={kind: DSP.limits[kind] for kind in ("add", "order", "gather", "suppression")})
MUL = replace(REFERENCE, limits={"mul": Limits(accumulator_bits=32, broadcast=True)})


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The template HAL of the package."""
    directory = tmp_path_factory.mktemp("hal") / "template"
    new_hal(directory)
    return directory


def planted(fault, directory, accelerator=REFERENCE, **options):
    """The report of the template HAL with a fault in it."""
    new_hal(directory / "hal", accelerator)
    fault.plant(directory / "hal")
    return hal_test(directory / "hal", accelerator=accelerator, **options)


def failures(report, fault):
    """The lines in which the kit says what it is to say of the fault."""
    return [line for line in report.lines if line.startswith(f"FAILED {fault.function}: ") and fault.what in line]


# ---------------------------------------------------------------- two HALs


@pytest.mark.slow
def test_simulator_passes_with_its_error_returns():
    report = hal_test(cflags=SANITIZED)
    assert report.passed, str(report)
    assert not [line for line in report.lines if line.startswith("skipped")]


@pytest.mark.slow
def test_template_passes_without_error_returns(template):
    report = hal_test(template, cflags=SANITIZED)
    assert report.passed, str(report)
    assert [line for line in report.lines if line.startswith("skipped")] == [
        "skipped hwlib_hal_copy_done: this HAL does not have it",
        "skipped hwlib_hal_job_done: this HAL does not have it",
        "skipped hwlib_hal_idle: this HAL does not have it",
        "skipped hwlib_hal_*: error returns: this HAL does not say that it checks",
    ]


@pytest.mark.slow
def test_every_function_of_the_hal_is_checked():
    ok = {line.split()[1].rstrip(":") for line in hal_test(cflags="-O0").lines if line.startswith("ok")}
    names = ["init", "copy_1d", "copy_2d", "copy_wait", "job_start", "job_wait", "cycles", "mark"]
    names += ["copy_done", "job_done", "idle"]
    assert ok == {f"hwlib_hal_{name}" for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    "accelerator",
    [
        pytest.param(SMALL, id="SMALL"),
        pytest.param(replace(REFERENCE, activation_memory=5003, weight_memory=3001), id="odd sizes"),
        pytest.param(
            replace(REFERENCE, limits={"conv2d": Limits(max_kernel=(1, 3), strides=(2, 3), weight_bits=(4,))}),
            id="narrow limits",
        ),
        pytest.param(
            replace(REFERENCE, activation_memory=8192, weight_memory=4096, shift_only=True), id="shifts alone"
        ),
        *(pytest.param(accelerator, id=name) for name, accelerator in OTHERS.items()),
    ],
)
def test_checks_follow_the_accelerator(accelerator):
    report = hal_test(accelerator=accelerator, cflags="-O0 -fsanitize=undefined -fno-sanitize-recover=all")
    assert report.passed, str(report)


@pytest.mark.slow
def test_memories_of_4_mib_take_seconds():
    large = replace(REFERENCE, activation_memory=4096 * KIB, weight_memory=4096 * KIB, ram=8192 * KIB)
    report = hal_test(accelerator=large, cflags="-O1")
    assert report.passed, str(report)


# ---------------------------------------------------------------- planted faults


class Kit:
    """The kit for an accelerator, compiled once, and fast, as it runs for each fault."""

    def __init__(self, directory, accelerator, events=0):
        self.directory, self.accelerator = directory, accelerator
        write_kit(directory, accelerator, events=events)
        self.objects = [compiled(directory, source.name, "-O3") for source in sorted(directory.glob("*.c"))]

    def report(self, fault, directory):
        """The report of the template HAL with a fault in it."""
        new_hal(directory / "hal", self.accelerator)
        fault.plant(directory / "hal")
        for header in self.directory.glob("*.h"):
            shutil.copyfile(header, directory / header.name)
        of_hal = [compiled(directory, f"hal/{source.name}") for source in sorted((directory / "hal").glob("*.c"))]
        subprocess.run(["gcc", *self.objects, *of_hal, "-o", directory / "program"], check=True)
        return HalReport(tuple(run_kit(directory / "program", timeout=60.0)))


def compiled(directory, source, flags="-O1"):
    """The object of a source. Paths are relative, so that equal files are compiled once (compile_cache.py)."""
    target = Path(source).with_suffix(".o")
    subprocess.run(["gcc", flags, "-w", "-I.", "-c", source, "-o", target], cwd=directory, check=True)
    return directory / target


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    return Kit(tmp_path_factory.mktemp("kit"), REFERENCE)


@pytest.fixture(scope="module")
def kit_of_mul(tmp_path_factory):
    return Kit(tmp_path_factory.mktemp("kit_of_mul"), MUL)


@pytest.mark.parametrize("name", planted_faults.JOBS_OF_MUL)
def test_planted_fault_of_a_multiplication_is_named(name, kit_of_mul, tmp_path):
    fault = planted_faults.JOBS_OF_MUL[name]
    report = kit_of_mul.report(fault, tmp_path)
    assert failures(report, fault), str(report)


FAULTS = planted_faults.WAITS | planted_faults.COPIES | planted_faults.JOBS_OF_REFERENCE | planted_faults.QUESTIONS
OF_SIZE = ("half of local", "a counter of", "a token")
"""Faults that show with large addresses and numbers only, of which there are many: tested as slow ones."""


@pytest.mark.slow
def test_a_hal_that_ends_its_work_when_it_is_asked_for_passes(kit, tmp_path):
    report = kit.report(planted_faults.Fault(planted_faults.LATE_AND_ASKED, "", ""), tmp_path)
    assert report.passed, str(report)


@pytest.mark.slow
def test_layers_without_tiles_are_checked(tmp_path):
    """On the simulator, and on the template."""
    new_hal(tmp_path / "hal", DSP)
    for hal in (None, tmp_path / "hal"):
        report = hal_test(hal, accelerator=WHOLE, cflags=SANITIZED)
        assert report.passed, str(report)
        for kind in ("order of float32", "gather of words", "suppression"):
            assert [line for line in report.lines if line.startswith(f"ok hwlib_hal_job_start: {kind}, ")]


@pytest.mark.slow
@pytest.mark.parametrize("events", [1, 3])
def test_events_are_checked(tmp_path, events):
    """On the simulator, with error returns, and on the template."""
    new_hal(tmp_path / "hal")
    for hal in (None, tmp_path / "hal"):
        report = hal_test(hal, events=events, cflags=SANITIZED)
        assert report.passed, str(report)
        for what in ("signal: each engine awaits the other", "await: more values", "await: an event that has come"):
            assert [line for line in report.lines if line.startswith(f"ok hwlib_hal_{what}")]
    assert [line for line in hal_test(events=events).lines if line.startswith("ok hwlib_hal_await: refuses, a value")]


@pytest.fixture(scope="module")
def kit_of_events(tmp_path_factory):
    return Kit(tmp_path_factory.mktemp("kit_of_events"), REFERENCE, events=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", planted_faults.EVENTS)
def test_planted_fault_of_an_event_is_named(name, kit_of_events, tmp_path):
    fault = planted_faults.EVENTS[name]
    report = kit_of_events.report(fault, tmp_path)
    assert failures(report, fault), str(report)
    assert len(report.failed) == 1


def test_the_kit_has_as_many_events_as_a_chip():
    with pytest.raises(InvalidInput, match="events is at most 64: got 65"):
        hal_test(events=65)


@pytest.mark.slow
@pytest.mark.parametrize("name", planted_faults.WHOLE)
def test_planted_fault_of_a_layer_without_tiles_is_named(name, tmp_path):
    fault = planted_faults.WHOLE[name]
    report = planted(fault, tmp_path, WHOLE, cflags="-O0 -Wno-unused-function")
    assert failures(report, fault), str(report)


@pytest.mark.slow
def test_a_core_that_is_idle_for_ever_is_named(tmp_path):
    report = planted(planted_faults.NEVER_IDLE, tmp_path, timeout=1.0)
    assert report.lines[-1].endswith("where nothing was asked for: it did not end within 1 seconds")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name.startswith(OF_SIZE) else []) for name in FAULTS]
)
def test_planted_fault_is_named(name, kit, tmp_path):
    fault = FAULTS[name]
    report = kit.report(fault, tmp_path)
    assert failures(report, fault), str(report)
    copies = {"hwlib_hal_copy_1d", "hwlib_hal_copy_2d"}  # one calls the other
    assert set(report.failed) <= (copies if fault.function in copies else {fault.function})


@pytest.mark.slow
@pytest.mark.parametrize("function", ["copy_1d", "copy_wait"])
def test_a_hang_is_one_of_the_function_that_was_checked(function, tmp_path):
    body = {"copy_1d": "  return hwlib_hal_copy_2d(", "copy_wait": f"{planted_faults.COPY_WAIT}  (void)token;\n"}[
        function
    ]
    hang = "  for (volatile int on = 1; on;) {\n  }\n"
    hung = f"{hang}{body}" if function == "copy_1d" else f"{body}{hang}"
    fault = planted_faults.Fault(((planted_faults.HAL, body, hung),), f"hwlib_hal_{function}", "within 1 seconds")
    report = planted(fault, tmp_path, timeout=1.0)
    assert report.failed == (fault.function,)
    assert report.lines[-1].endswith("it did not end within 1 seconds")


@pytest.mark.slow
def test_a_layer_kind_without_checks_fails(tmp_path):
    """A kind that a later version adds to the header and to the simulator, and not to the kit."""
    write_kit(tmp_path)
    new_hal(tmp_path / "hal")
    for header in (tmp_path / "hwlib_accelerator.h", tmp_path / "hal" / "chip_numbers.h"):
        kinds = re.search(r"_KINDS 0x(\w+)u", header.read_text())[1]
        header.write_text(header.read_text().replace(f"_KINDS 0x{kinds}u", f"_KINDS 0x{int(kinds, 16) | 1 << 31:x}u"))
    sources = [*tmp_path.glob("*.c"), *(tmp_path / "hal").glob("*.c")]
    subprocess.run(["gcc", "-O1", f"-I{tmp_path}", *sources, "-o", tmp_path / "program"], check=True)
    report = HalReport(tuple(run_kit(tmp_path / "program", timeout=60.0)))
    assert [line for line in report.lines if line.startswith("FAILED")] == [
        "FAILED hwlib_hal_job_start: every layer kind of the accelerator has checks, in each rounding: "
        "roundings of layer kind 31: expected 3 got 0"
    ]


def test_a_program_for_another_machine_does_not_run_here(template):
    with pytest.raises(RunError, match="does not run here"):
        hal_test(template, cflags="-O0 -r")  # an object file: no program of any machine


@pytest.mark.slow
def test_a_hal_that_promises_error_returns_must_give_them(template):
    report = hal_test(template, refusals=True)
    assert "hwlib_hal_copy_1d" in report.failed
    assert any("refuses, a copy beyond the end of a local memory" in line for line in report.lines)


# ---------------------------------------------------------------- what is refused, and for a chip


def test_refuses_directory_without_sources(tmp_path):
    with pytest.raises(InvalidInput, match="hal is a directory with C files"):
        hal_test(tmp_path)


@pytest.mark.slow
def test_a_hal_that_does_not_compile_says_why(tmp_path):
    (tmp_path / "hal.c").write_text("#error no silicon yet\n")
    with pytest.raises(RunError, match="no silicon yet"):
        hal_test(tmp_path)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"dma_alignment": 128}, "power of two of at most 64: got 128"),
        ({"weight_memory": 1023}, "weight_memory is at least 1024 bytes: got 1023"),
        ({"activation_memory": 512}, "activation_memory is at least 1024 bytes: got 512"),
    ],
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
