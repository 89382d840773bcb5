"""Several models in one program: an inference that would disturb the one that is on the accelerator is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from relay_samples import Conv, module, variable
from sanitizers import FLAGS, SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.run.new_hal import new_hal

HERE = Path(__file__).parent
ONE = replace(byoc_hw.DIANA_DIGITAL, name="one", label="ONE")
OTHER = replace(ONE, name="other", label="OTHER")
APART = byoc_hw.Soc((ONE, OTHER))
SHARED = replace(APART, shared=(("one", "other"),))
EVENTS = replace(APART, events=4)
INPUT = (1, 8, 8, 8)
BYTES = 1024


def convolution(seed):
    conv = Conv(8, 8, 8, 16, seed=seed)
    x, *weights = conv.variables()
    return module(relay.reverse(conv.expr(relay.reverse(x, axis=1), *weights), axis=1), x, *weights)


def reversed_input():
    x = variable(INPUT)
    return module(relay.reverse(x, axis=1), x)


def program(directory, chip, hal=""):
    """The four models in one program: where it is, and the projects."""
    polled = {"first": True, "second": True, "third": False, "host": True}
    on = {"first": "one", "second": "other", "third": "one"}
    projects, libraries = {}, []
    for name, poll in polled.items():
        mod = reversed_input() if name == "host" else convolution(seed=len(projects))
        place = {"conv2d": on[name]} if name in on and isinstance(chip, byoc_hw.Soc) else None
        if name != "host":
            mod = byoc_hw.partition_for_hwlib(mod, accelerator=chip, mod_name=name)
        project = byoc_hw.build(mod, output_dir=directory / name, mod_name=name, poll=poll, place=place)
        flags = ["CC=gcc", f"CFLAGS={SANITIZED}", *([f"HAL={hal}"] if hal and name != "host" else [])]
        subprocess.run(["make", "-s", "-C", project.directory, *flags, "lib"], check=True)
        projects[name] = project
        libraries.append(project.directory / "build" / f"lib{name}.a")
    return projects, libraries


def test_accelerators_with_common_memory_or_events_are_claimed_as_one():
    names = ("one", "other", "third", "fourth")
    chip = byoc_hw.Soc(tuple(replace(ONE, name=name) for name in names))

    def claims(chip):
        return [chip.claimed_with(lane) for lane in range(len(names))]

    assert claims(chip) == [0, 1, 2, 3]
    assert claims(replace(chip, shared=(("fourth", "other"),))) == [0, 1, 2, 1]
    events = {"events": 1, "with_events": ("third", "fourth")}
    assert claims(replace(chip, **events)) == [0, 1, 2, 2]
    assert claims(replace(chip, shared=(("fourth", "one"),), **events)) == [0, 1, 0, 0]


@pytest.mark.parametrize(
    "chip",
    [
        REFERENCE,
        pytest.param(APART, marks=pytest.mark.slow),
        pytest.param(SHARED, marks=pytest.mark.slow),
        pytest.param(EVENTS, marks=pytest.mark.slow),
    ],
    ids=["one accelerator", "apart", "one memory", "events"],
)
def test_an_inference_that_would_disturb_another_one_is_refused(chip, tmp_path):
    check(tmp_path, chip)


@pytest.mark.slow
def test_on_a_hal_over_registers(tmp_path):
    new_hal(tmp_path / "regs", REFERENCE, registers=0x40000000)
    check(tmp_path, REFERENCE, hal=str(tmp_path / "regs" / "model"))


def check(directory, chip, hal=""):
    projects, libraries = program(directory, chip, hal)
    strict = [*FLAGS, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-DBYTES={BYTES}"]
    strict += ["-DAPART"] if chip is APART else []
    strict += [f"-I{project.directory / 'include'}" for project in projects.values()]
    built = directory / "program"
    subprocess.run(["gcc", *strict, HERE / "side_by_side.c", *libraries, *libraries, "-lm", "-o", built], check=True)
    done = subprocess.run([built], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    image = (np.arange(np.prod(INPUT)) * 37).astype(np.uint8).view(np.int8).reshape(INPUT)
    for name, project in projects.items():
        expected = project.run([image])
        lines = {line.split()[1] for line in done.stdout.splitlines() if line.startswith(name)}
        outputs = expected.outputs[0].tobytes()
        assert lines == {outputs.hex().ljust(2 * BYTES, "0")}
