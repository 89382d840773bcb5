"""Projects for chips with events: what they compute, how little the core does, and what the simulators refuse."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chip_samples import CHIP, DSP, NPU, two_branches
from riscv32_tools import needs_riscv32
from test_chip_projects import IMAGE, SANITIZED, expected, parts_of, project_of, two_adds  # noqa: F401
from test_library_lanes import VEC

from byoc_hw.emit.files import project_files
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import EngineAwait
from byoc_hw.project import Project
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Soc

EVENTS = replace(CHIP, events=4)
THIRD = replace(NPU, name="third", label="THIRD", array_rows=4, dma_width=1)
QUICK = Toolchain(cflags="-O0")
SOURCE = "src/demo_twin.c"


def short(chip, queue):
    return replace(chip, accelerators=tuple(replace(one, queue=queue) for one in chip.accelerators))


@functools.cache
def planned(chip):
    return plan_region(two_branches(), chip, place=placed(chip))


@pytest.fixture(scope="module")
def plan():
    return planned(EVENTS)


@pytest.fixture(scope="module")
def project(tmp_path_factory, plan) -> Project:
    return project_of(tmp_path_factory.mktemp("events") / "project", plan, EVENTS)


@pytest.mark.slow
def test_every_layer_is_exact_in_the_planned_cycles(project, plan, expected):  # noqa: F811
    assert len(plan.parts) == 2
    assert plan.counters > 1
    plain = project.run([IMAGE], toolchain=SANITIZED)
    traced = project.run([IMAGE], trace=True, toolchain=SANITIZED)
    for found in (plain, traced):
        np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert traced.trace == expected.trace
    assert plain.cycles.total == lanes_timeline(plan).total == plan.cycles


CHIPS = {
    "one event": replace(CHIP, events=1),
    "two events": replace(CHIP, events=2),
    "one accelerator has them": replace(CHIP, events=4, with_events=("dsp",)),
    "a third one has none": Soc((THIRD, NPU, DSP), events=3, with_events=("npu", "dsp"), name="three"),
    "a queue for one": short(EVENTS, 1),
    "a queue for five": short(EVENTS, 5),
    "a shared memory": Soc(
        (replace(NPU, activation_memory=8192, dma_alignment=4), replace(DSP, activation_memory=8192)),
        shared=(("npu", "dsp"),),
        events=3,
        name="shared",
    ),
    "one accelerator": Soc((NPU,), events=2, name="one"),
    "beside a library": Soc((NPU, VEC), events=2, name="mixed"),
}
PLACED = {"third": {"add": "third"}, "vec": {"add": "vec"}}


def placed(chip):
    wishes = (PLACED.get(one.name, {}) for one in chip.accelerators)
    return {layer: name for wish in wishes for layer, name in wish.items()}


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_other_chips_are_exact_in_the_planned_cycles(tmp_path: Path, expected, chip):  # noqa: F811
    plan = planned(chip)
    assert plan.counters
    project = project_of(tmp_path / "project", plan, chip)
    found = project.run([IMAGE], toolchain=QUICK)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.cycles.total == plan.cycles


@pytest.mark.slow
def test_events_begin_again_with_each_inference(project, expected):  # noqa: F811
    first, second = project.run_batch([[IMAGE], [IMAGE]], toolchain=QUICK)
    assert first.cycles == second.cycles
    np.testing.assert_array_equal(second.outputs[0], expected.outputs[0])


@pytest.mark.slow
@needs_riscv32
def test_the_core_takes_fewer_instructions(tmp_path: Path, project, plan, expected):  # noqa: F811
    found = project.run([IMAGE], on="riscv32", trace=True)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    quick = project.run([IMAGE], on="riscv32")
    before = project_of(tmp_path / "project", planned(CHIP)).run([IMAGE], on="riscv32")
    assert quick.cycles.total == plan.cycles <= before.cycles.total
    assert quick.host_instructions.regions < 0.75 * before.host_instructions.regions
    assert quick.end_to_end.total < 0.9 * before.end_to_end.total


def without(plan, left_out):
    def kept(steps):
        return tuple(step for step in steps if step is not left_out)

    parts = []
    for part in plan.parts:
        calls = tuple(replace(call, steps=kept(call.steps)) for call in part.plan.calls)
        parts.append(replace(part, plan=replace(part.plan, calls=calls, tail=kept(part.plan.tail), local=())))
    return replace(plan, parts=tuple(parts))


def steps_of(plan, kind):
    return [step for part in plan.parts for step in part.plan.steps if isinstance(step, kind)]


FAULTY = {"events": EVENTS, "two events": CHIPS["two events"], "a shared memory": CHIPS["a shared memory"]}


@pytest.mark.slow
@pytest.mark.parametrize("chip", FAULTY.values(), ids=FAULTY)
def test_each_missing_await_is_refused(tmp_path: Path, chip):
    """Some engine may be too early: at bytes that another one may still be at, or that nothing has written."""
    plan = planned(chip)
    awaits = steps_of(plan, EngineAwait)
    assert len(awaits) > 8
    for number, left_out in enumerate(awaits):
        damaged = project_of(tmp_path / f"project{number}", without(plan, left_out), chip)
        with pytest.raises(RunError, match=r"HWLIB_ERROR_(RACE|UNWRITTEN)"):
            damaged.run([IMAGE], toolchain=QUICK)


@pytest.mark.slow
def test_a_missing_await_is_a_race_with_a_message(tmp_path: Path, plan):
    messages = []
    for number, left_out in enumerate(steps_of(plan, EngineAwait)[-3:]):
        damaged = project_of(tmp_path / f"project{number}", without(plan, left_out), EVENTS)
        with pytest.raises(RunError) as found:
            damaged.run([IMAGE], toolchain=QUICK)
        messages.append(str(found.value))
    assert all("bytes of a job in flight at" in text or "bytes of a copy in flight at" in text for text in messages)


def changed(directory: Path, plan, change) -> Project:
    """A project whose C is another than was planned."""
    source = project_of(directory, plan, EVENTS).directory / SOURCE
    text = source.read_text()
    source.write_text(change(text))
    assert source.read_text() != text
    return Project(directory)


@pytest.mark.slow
@pytest.mark.parametrize("event", [0, 3])
def test_an_await_that_never_comes_is_named(tmp_path: Path, plan, event):
    """The region fails, with an event of the first lane that is stuck, in place of hanging."""

    def without_a_signal(text):
        return re.sub(rf"{{HWLIB_STEP_\w+_SIGNAL, 0, {event}}}", "{HWLIB_STEP_TURN, 0, 0}", text, count=1)

    damaged = changed(tmp_path / "project", plan, without_a_signal)
    message = r"HWLIB_ERROR_STEP\)\ndemo:   await: event \d never comes \d+ times: it was signalled \d+ times"
    with pytest.raises(RunError, match=message):
        damaged.run([IMAGE], toolchain=QUICK)


@pytest.mark.slow
def test_signals_in_no_order_are_refused(tmp_path: Path, plan):
    """An event of two engines of which neither has waited for the other one says nothing."""
    damaged = changed(tmp_path / "project", plan, lambda text: re.sub(r"(_SIGNAL, 0, )[1-3]}", r"\g<1>0}", text))
    with pytest.raises(RunError, match=r"HWLIB_ERROR_RACE\)\ndemo:   signal: event 0 may come before its signal \d+"):
        damaged.run([IMAGE], toolchain=QUICK)


@pytest.mark.slow
def test_hals_of_ones_own_order_themselves(tmp_path: Path, project, expected):  # noqa: F811
    for one in (NPU, DSP):
        new_hal(tmp_path / one.name, one)
    for source in (tmp_path / "npu").glob("*.[ch]"):  # other global names of two HALs differ
        source.write_text(source.read_text().replace("chip_", "npu_chip_").replace("npu_chip_numbers", "chip_numbers"))
    toolchain = Toolchain(hal={name: tmp_path / name for name in ("npu", "dsp")})
    found = project.run([IMAGE], trace=True, toolchain=toolchain)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    with pytest.raises(InvalidInput, match="hal: npu and dsp have events: got one for dsp, none for npu"):
        project.build(toolchain=Toolchain(hal={"dsp": tmp_path / "dsp"}))


@pytest.mark.slow
def test_a_hal_without_them_fails(tmp_path: Path, project):
    for one in (NPU, DSP):
        new_hal(tmp_path / one.name, one)
    for source in (tmp_path / "npu").glob("*.[ch]"):
        source.write_text(source.read_text().replace("chip_", "npu_chip_").replace("npu_chip_numbers", "chip_numbers"))
    hal = tmp_path / "npu" / "chip_hal.c"
    hal.write_text(hal.read_text().replace("hwlib_hal_signal", "no_signal").replace("hwlib_hal_await", "no_await"))
    toolchain = Toolchain(hal={name: tmp_path / name for name in ("npu", "dsp")}, cflags="-O1 -Wno-error")
    with pytest.raises(RunError, match="undefined reference to `npu_hal_signal'"):
        project.run([IMAGE], toolchain=toolchain)


@pytest.mark.slow
def test_only_a_chip_with_events_has_their_code():
    found = project_files(parts_of(planned(EVENTS), EVENTS))
    before = project_files(parts_of(planned(CHIP), CHIP))
    assert found.keys() - before.keys() == {"hwlib/sim/sim_events.c", "hwlib/sim/sim_signal.c"}
    assert "hwlib_hal_signal" not in before["app/count.c"]
    assert "EVENTS" not in before["hwlib/npu/hwlib_sim_config.h"]
    assert "counter" not in before[SOURCE]
    metadata = json.loads(found["metadata.json"])
    assert [one.get("events") for one in metadata["accelerators"]] == [4, 4]


@pytest.mark.slow
def test_code_reads_well(plan):
    text = project_files(parts_of(plan, EVENTS))[SOURCE]
    assert ".counter_count = 4," in text
    assert "{HWLIB_STEP_JOB_AWAIT, 0, 1}," in text
    assert f"static uint16_t {plan.graph.name}_counters[4];" in text
