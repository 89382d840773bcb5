"""Models that are run in steps: the bits of `<mod_name>_run`, work in between, and calls that do not fit."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bit_exact import input_arrays
from relay_samples import module, variable
from riscv32_tools import needs_riscv32
from sanitizers import FLAGS, SANITIZED
from test_failing_calls import residual
from test_overlap import two_branches
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.demo import heldout, model_path
from byoc_hw.report.cycles import profile
from byoc_hw.run.new_hal import new_hal

HERE = Path(__file__).parent
DLA = replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA")
CHIP = byoc_hw.Soc((DLA, byoc_hw.DSP), label="DLA + DSP")
SMALL = replace(REFERENCE, activation_memory=3072, weight_memory=2048)
CHECKED = byoc_hw.Toolchain(cflags=SANITIZED)


def digits():
    mod, params = byoc_hw.load_tflite(model_path())
    return mod, params, [heldout().images[:1]]


def relay_model(mod):
    return mod, None, list(input_arrays(mod))[-1]


MODELS = {
    "digits on one accelerator": (digits, REFERENCE),
    "digits on a chip": (digits, CHIP),
    "two regions and the host between them": (lambda: relay_model(residual()), SMALL),
    "a region of a chip beside the host": (lambda: relay_model(two_branches()), CHIP),
    "events on one of two": (lambda: relay_model(two_branches()), replace(CHIP, events=3, with_events=("dla",))),
}
SLOW = ("digits on one accelerator", "digits on a chip")


@pytest.fixture(
    scope="module",
    params=[pytest.param(model, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, model in MODELS.items()],
)
def built(request):
    """A partitioned model, its inputs, what it gives without polls, and its project with them."""
    make, accelerator = request.param
    mod, params, inputs = make()
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator)
    expected = byoc_hw.build(partitioned).run(inputs)
    return partitioned, inputs, expected, byoc_hw.build(partitioned, poll=True)


def same(found, expected):
    for one, other in zip(found.outputs, expected.outputs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_polls_give_the_same_bits_in_the_cycles_of_the_plan(built):
    partitioned, inputs, expected, project = built
    found = project.run(inputs, toolchain=CHECKED)
    same(found, expected)
    assert found.cycles.total == project.schedule.cycles >= expected.cycles.total  # which may copy ahead
    assert found.polls.count > 2
    assert expected.polls is None
    assert not byoc_hw.validate(project, inputs, partitioned).differences


@pytest.mark.slow
@needs_riscv32
def test_the_core_says_how_long_the_longest_poll_took(built):
    _, inputs, expected, project = built
    found = project.run(inputs, on="riscv32")
    same(found, expected)
    counts = {layer.name: layer.count for layer in found.host_instructions.by_layer}
    longest = max(counts[layer["name"]] for layer in project.layers if layer["kind"] == "host")
    assert longest <= found.polls.longest < found.host_instructions.total
    assert found.polls.longest < 1.4 * longest
    line = profile(found).splitlines()[-1]
    assert re.fullmatch(r"\d+ polls, longest time between two returns: [\d,]+ instructions \(in .+\)", line), line
    assert str(found.polls.layer) in line


@pytest.mark.slow
def test_a_hal_that_cannot_be_asked_gives_the_same_bits(built, tmp_path):
    """On the chip it is one of the two."""
    _, inputs, expected, project = built
    on_a_chip = len(project.schedule.accelerators) > 1
    new_hal(tmp_path / "hal", byoc_hw.DSP if on_a_chip else REFERENCE)
    hal = {"dsp": tmp_path / "hal"} if on_a_chip else tmp_path / "hal"
    found = project.run(inputs, toolchain=byoc_hw.Toolchain(cflags=SANITIZED, hal=hal))
    same(found, expected)
    assert found.polls.count > steps_of(project)  # no poll makes more than one call of a HAL


def steps_of(project):
    """How many calls of the HAL that start or wait for something the regions have."""
    (regions,) = (path for path in (project.directory / "src").glob("*.c") if "hwlib_step_t" in path.read_text())
    return len(re.findall(r"HWLIB_STEP_(?:COPY|JOB)(?:_WAIT)?,", regions.read_text()))


@pytest.mark.slow
def test_a_poll_waits_for_room_in_a_queue_once():
    mod, params, inputs = digits()
    counts = {}
    for queue in (2, 64):
        partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=replace(REFERENCE, queue=queue))
        project = byoc_hw.build(partitioned, poll=True)
        found = project.run(inputs, toolchain=byoc_hw.Toolchain(cflags="-O0"))
        same(found, byoc_hw.build(partitioned).run(inputs, toolchain=byoc_hw.Toolchain(cflags="-O0")))
        counts[queue] = found.polls.count - steps_of(project)
    assert counts[2] > 0 > counts[64]


def bytes_of(interfaces):
    return sum(one.nbytes for one in interfaces)


def misuse(project, directory, least_polls):
    """The lines that the program prints which calls everything at the wrong time."""
    subprocess.run(["make", "-s", "-C", project.directory, "CC=gcc", f"CFLAGS={SANITIZED}", "lib"], check=True)
    flags = [f"-I{project.directory / 'include'}", f"-DINPUT_BYTES={bytes_of(project.inputs)}"]
    flags += [f"-DOUTPUT_BYTES={bytes_of(project.outputs)}", f"-DLEAST_POLLS={least_polls}"]
    strict = [*FLAGS, "-std=c11", "-Wall", "-Wextra", "-Werror"]
    library = project.directory / "build" / "libdefault.a"
    program = directory / "misuse"
    subprocess.run(["gcc", *strict, *flags, HERE / "misuse_of_polls.c", library, "-lm", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def small_model():
    x = variable((1, 8, 8, 4))
    pooled = relay.nn.max_pool2d(relay.reverse(x, axis=1), pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    return module(relay.reverse(pooled, axis=1), x)


@pytest.mark.slow
@pytest.mark.parametrize("on", [REFERENCE, CHIP, None], ids=["one accelerator", "a chip", "the host"])
def test_calls_that_do_not_fit_return_a_status_and_do_nothing(on, tmp_path):
    mod = small_model()
    built = byoc_hw.partition_for_hwlib(mod, accelerator=on) if on else mod
    lines = misuse(byoc_hw.build(built, poll=True), tmp_path, least_polls=2 if on else 0)
    assert len(lines) == 4
    assert len(set(lines)) == 1
    assert set(re.findall("..", lines[0])) != {"55"}


def test_without_polls_nothing_of_them_is_in_the_project():
    mod, params, _ = digits()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    named = [path for path in project.directory.rglob("*") if "lanes" in path.name]
    assert named == []
    for source in ("include/default.h", "src/default_main.c", "app/main.c", "app/count.c"):
        assert "poll" not in (project.directory / source).read_text()


def test_poll_is_a_flag():
    x = variable((1, 8, 8, 4))
    with pytest.raises(byoc_hw.InvalidInput, match="poll is True or False: got 'yes'"):
        byoc_hw.build(module(relay.reverse(x, axis=1), x), poll="yes")
