"""Projects for accelerators that share an activation memory: what they compute, and what the simulators refuse."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chip_samples import DSP, NPU, two_branches
from riscv32_tools import needs_riscv32
from test_chip_projects import IMAGE, SANITIZED, expected, project_of  # noqa: F401

from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, Signal
from byoc_hw.project import Project
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Soc

KIB = 1024


def chip(memory=32 * KIB, *, word=4, **options) -> Soc:
    """Two accelerators that share their memory, and one beside them; `options` are of the first."""
    one = replace(NPU, dma_width=2, activation_memory=memory, dma_alignment=word, **options)
    other = replace(DSP, dma_width=2, activation_memory=memory, dma_alignment=word)
    third = replace(NPU, name="third", label="THIRD", array_rows=4, dma_width=1)
    return Soc((third, one, other), name="twin", label="TWIN", shared=(("npu", "dsp"),))


PLACED = {"first": "npu", "left": "npu", "right": "dsp", "both": "dsp", "pool2d": "npu", "dense": "third"}
"""What the sum reads is handed over, from both; what the third one reads is not."""


@pytest.fixture(scope="module")
def plan():
    return plan_region(two_branches(), chip(), place=PLACED)


@pytest.fixture(scope="module")
def project(tmp_path_factory, plan) -> Project:
    return project_of(tmp_path_factory.mktemp("shared") / "project", plan, plan.chip)


@pytest.mark.slow
def test_every_layer_is_exact_in_the_planned_cycles(project, plan, expected):  # noqa: F811
    assert plan.handed_over
    found = project.run([IMAGE], trace=True, toolchain=SANITIZED)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert found.cycles.total == lanes_timeline(plan).total == plan.cycles


CHIPS = {
    "little memory": (chip(2 * KIB), PLACED),
    "short queues": (chip(queue=1), PLACED),
    "words of 8 bytes": (chip(word=8), PLACED),
    "one array is slow": (chip(array_rows=2, array_columns=2), PLACED),
}


@pytest.mark.slow
@pytest.mark.parametrize(("hardware", "place"), CHIPS.values(), ids=CHIPS)
def test_other_chips_are_exact_in_the_planned_cycles(tmp_path: Path, expected, hardware, place):  # noqa: F811
    planned = plan_region(two_branches(), hardware, place=place)
    found = project_of(tmp_path / "project", planned, hardware).run([IMAGE], toolchain=Toolchain(cflags="-O0"))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.cycles.total == planned.cycles


@pytest.mark.slow
@needs_riscv32
def test_runs_on_riscv32(project, plan, expected):  # noqa: F811
    found = project.run([IMAGE], on="riscv32", trace=True)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert found.cycles.total == plan.cycles


def awaited_jobs(plan):
    """The waits for jobs of another accelerator."""
    jobs = {step.event for part in plan.parts for step in part.plan.steps if isinstance(step, Signal) and step.job}
    steps = [step for part in plan.parts for step in part.plan.steps]
    return [step for step in steps if isinstance(step, Await) and step.event in jobs]


@pytest.mark.slow
def test_each_missing_event_of_a_job_is_refused(tmp_path: Path, plan):
    """The reader comes too early: to bytes that a job may still write, or that nothing has written."""
    assert awaited_jobs(plan)
    for number, left_out in enumerate(awaited_jobs(plan)):
        parts = []
        for part in plan.parts:
            calls = tuple(
                replace(call, steps=tuple(step for step in call.steps if step is not left_out))
                for call in part.plan.calls
            )
            parts.append(replace(part, plan=replace(part.plan, calls=calls, local=())))
        damaged = project_of(tmp_path / f"project{number}", replace(plan, parts=tuple(parts)), plan.chip)
        message = (
            r"HWLIB_ERROR_RACE\)\ndemo:   \w+: touches, at \d+ of a shared memory, bytes of another accelerator's work"
            r"|HWLIB_ERROR_UNWRITTEN"
        )
        with pytest.raises(RunError, match=message):
            damaged.run([IMAGE], toolchain=Toolchain(cflags="-O0"))


@pytest.mark.slow
def test_the_project_says_what_is_shared(project, plan):
    metadata = json.loads((project.directory / "metadata.json").read_text("utf-8"))
    shares = {one["name"]: one.get("shares") for one in metadata["accelerators"]}
    assert shares == {"third": None, "npu": ["npu", "dsp"], "dsp": ["npu", "dsp"]}
    schedule = project.schedule
    assert [(one.accelerators, one.nbytes) for one in schedule.shared] == [(("npu", "dsp"), 32 * KIB)]
    assert "npu and dsp share local activations" in str(schedule)
    assert "npu and dsp share local activations" in schedule._repr_html_()
    titles = [axes.get_title(loc="left") for axes in schedule.memory().axes]
    assert any(re.match(r"local activations, shared by npu and dsp: .* of 32 KiB", title) for title in titles)
    assert any(title.startswith("local activations of third: ") for title in titles)


def test_a_hal_of_ones_own_is_for_all_that_share_a_memory(tmp_path: Path, project):
    new_hal(tmp_path / "hal", NPU)
    with pytest.raises(
        InvalidInput, match="hal: npu and dsp share their activation memory: got one for npu, none for dsp"
    ):
        project.build(toolchain=Toolchain(hal={"npu": tmp_path / "hal"}))
