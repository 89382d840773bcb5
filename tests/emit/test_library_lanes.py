"""A chip with a vendor's library beside a HAL: its C, its simulated calls, and the library's own engine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chip_samples import NPU, two_branches
from emit_samples import graph_without_pooling
from riscv32_tools import needs_riscv32
from test_chip_projects import IMAGE, SANITIZED, parts_of, project_of, two_adds
from vendor_library import QUEUED, QUEUED_CONVOLUTION, conv_arguments

from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.region import code
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, JobWait
from byoc_hw.project import Project
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Soc

GOLDEN = Path(__file__).parent / "golden" / "two_adds_on_a_library.c"
VEC = replace(QUEUED, name="vec", label="VEC")
CHIP = Soc((NPU, VEC), name="mixed", label="MIXED")


@pytest.fixture(scope="module")
def plan() -> ChipPlan:
    """Additions and the second convolution are the library's."""
    graph = two_branches()
    return plan_region(graph, CHIP, place={"add": "vec", "left": "vec"})


@pytest.fixture(scope="module")
def project(tmp_path_factory, plan) -> Project:
    return project_of(tmp_path_factory.mktemp("chip") / "project", plan, CHIP)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one accelerator computes, with every layer's output."""
    alone = project_of(tmp_path_factory.mktemp("one") / "project", plan_region(two_branches(), NPU), NPU)
    return alone.run([IMAGE], trace=True)


def on_the_chip(project: Project) -> Toolchain:
    """The vendor's engine itself in place of its simulator: it is as late as it may be."""
    return Toolchain(hal={"vec": project.directory / "hwlib" / "library"}, cflags=SANITIZED.cflags)


def test_region_reads_as_the_golden_file():
    text = code(plan_region(two_adds().graph, CHIP, place={"first": "npu", "second": "vec"}), first_layer=3)
    if os.environ.get("BYOC_HW_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.slow
def test_computes_what_one_accelerator_does_in_the_planned_cycles(project: Project, plan: ChipPlan, expected):
    found = project.run([IMAGE], trace=True, toolchain=SANITIZED)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert found.cycles.total == lanes_timeline(plan).total == plan.cycles
    assert found.cycles.total == sum(layer.cycles for layer in found.cycles.by_layer)
    costs = {layer.name: VEC.library.cycles(layer) for layer in plan.graph.layers}
    array = {layer.name: layer.array_cycles for layer in found.cycles.by_layer}
    assert {name: array[name] for name in ("left", "right", "both")} == {
        name: costs[name] for name in ("left", "right", "both")
    }


def test_region_may_return_while_it_runs(tmp_path: Path, plan: ChipPlan, expected):
    write_project(tmp_path / "project", project_files(parts_of(plan, CHIP, early=True)))
    first, second = Project(tmp_path / "project").run_batch([[IMAGE], [IMAGE]], toolchain=Toolchain(cflags="-O0"))
    assert first.cycles == second.cycles
    np.testing.assert_array_equal(second.outputs[0], expected.outputs[0])


@pytest.mark.parametrize("queue", [1, 2])
def test_a_full_queue_holds_the_core_as_planned(tmp_path: Path, expected, queue: int):
    chip = replace(CHIP, accelerators=(NPU, replace(VEC, queue=queue)))
    planned = plan_region(two_branches(), chip, place={"conv2d": "vec", "add": "vec", "out": "vec"})
    found = project_of(tmp_path / "project", planned, chip).run([IMAGE], toolchain=Toolchain(cflags="-O0"))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.cycles.total == lanes_timeline(planned).total


@needs_riscv32
def test_runs_on_riscv32(project: Project, plan: ChipPlan, expected):
    found = project.run([IMAGE], on="riscv32", trace=True)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert found.cycles.total == plan.cycles


@pytest.mark.slow
@pytest.mark.parametrize("trace", [False, True])
def test_the_librarys_own_engine_takes_the_place_of_its_simulator(project: Project, expected, trace: bool):
    found = project.run([IMAGE], trace=trace, toolchain=on_the_chip(project))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == (expected.trace if trace else None)
    assert found.cycles is None


@pytest.mark.slow
def test_a_trace_of_words_of_the_dma_leaves_the_library_out(tmp_path: Path, expected):
    """Local memory is filled before a trace where copies are of whole words: a library has none."""
    words = replace(NPU, dma_alignment=4)
    chip = replace(CHIP, accelerators=(VEC, words))
    project = project_of(tmp_path / "project", plan_region(two_branches(), chip, place={"add": "vec"}), chip)
    new_hal(tmp_path / "npu", words)
    hal = {"vec": project.directory / "hwlib" / "library", "npu": tmp_path / "npu"}
    found = project.run([IMAGE], trace=True, toolchain=Toolchain(hal=hal))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert project.run([IMAGE], trace=True).trace == expected.trace


@pytest.mark.slow
def test_a_library_without_a_done_query_is_waited_for(tmp_path: Path, expected):
    chip = replace(CHIP, accelerators=(NPU, replace(VEC, library=replace(VEC.library, done=None))))
    planned = plan_region(two_branches(), chip, place={"add": "vec"})
    project = project_of(tmp_path / "project", planned, chip)
    found = project.run([IMAGE], toolchain=on_the_chip(project))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert project.run([IMAGE]).cycles.total == planned.cycles


def test_a_library_alone_has_its_cycles_as_a_chip_of_one(tmp_path: Path):
    graph, chip = graph_without_pooling(), Soc((VEC,), name="alone")
    planned = plan_region(graph, chip)
    project = project_of(tmp_path / "project", planned, chip)
    image = np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    found = project.run([image], trace=True, toolchain=SANITIZED)
    expected = project_of(tmp_path / "one", plan_region(graph, NPU), NPU).run([image], trace=True)
    assert found.trace == expected.trace
    assert found.cycles.total == planned.cycles == sum(VEC.library.cycles(layer) for layer in graph.layers)
    assert "bytes moved: none" in str(project.schedule)
    constants = 288 + sum(prepared.flash_bytes for part in planned.parts for prepared in part.prepared)
    assert project.memory.flash[graph.name] == constants


def without_awaits(plan: ChipPlan, lane: int) -> ChipPlan:
    """The plan with a lane that awaits nothing."""

    def kept(steps):
        return tuple(step for step in steps if not isinstance(step, Await))

    parts = []
    for part in plan.parts:
        if part.lane == lane:
            calls = tuple(replace(call, steps=kept(call.steps)) for call in part.plan.calls)
            part = replace(part, plan=replace(part.plan, calls=calls, tail=kept(part.plan.tail), local=()))
        parts.append(part)
    return replace(plan, parts=tuple(parts))


@pytest.mark.parametrize("lane", [0, 1])
def test_a_missing_event_is_a_race(tmp_path: Path, plan: ChipPlan, lane: int):
    """Found where the second of the two starts, a copy or a call."""
    project = project_of(tmp_path / "project", without_awaits(plan, lane), CHIP)
    message = r"(copy|call): touches, at \d+ of main memory, bytes of another accelerator's copy"
    with pytest.raises(RunError, match=rf"HWLIB_ERROR_RACE\)\ndemo:   {message}"):
        project.run([IMAGE])


def test_a_missing_wait_at_the_end_is_seen(tmp_path: Path):
    chip = Soc((VEC,), name="alone")
    planned = plan_region(graph_without_pooling(), chip)
    (part,) = planned.parts
    call = part.plan.calls[-1]
    assert part.plan.tail or isinstance(call.steps[-1], JobWait)
    kept = tuple(step for step in call.steps if not isinstance(step, JobWait))
    calls = (*part.plan.calls[:-1], replace(call, steps=kept))
    left_out = replace(part, plan=replace(part.plan, calls=calls, tail=()))
    project = project_of(tmp_path / "project", replace(planned, parts=(left_out,)), chip)
    with pytest.raises(RunError, match="a region ended before 3 copies and jobs that it had started"):
        project.run([np.zeros((1, 6, 6, 4), np.int8)])


@pytest.mark.slow
def test_a_missing_event_gives_wrong_results_on_the_librarys_own_engine(tmp_path: Path, plan: ChipPlan, expected):
    project = project_of(tmp_path / "project", without_awaits(plan, 0), CHIP)
    found = project.run([IMAGE], toolchain=on_the_chip(project))
    assert not np.array_equal(found.outputs[0], expected.outputs[0])


@pytest.mark.slow
def test_a_status_of_the_library_reaches_the_caller(tmp_path: Path):
    def wrong_geometry(layer, operands):
        return [
            *conv_arguments(layer, operands)[:2],
            "&(const vendor_conv_t){.channels = 5000, .out_height = 1}",
            *"000",
        ]

    calls = {**VEC.library.calls, "dense": replace(QUEUED_CONVOLUTION, arguments=wrong_geometry)}
    chip = replace(CHIP, accelerators=(NPU, replace(VEC, library=replace(VEC.library, calls=calls))))
    project = project_of(tmp_path / "project", plan_region(two_branches(), chip, place={"dense": "vec"}), chip)
    quiet = "-O1 -Wno-unused-const-variable"
    message = r"layer 6 failed:\n.*out\n.*status 8 \(HWLIB_ERROR_HARDWARE\)"
    with pytest.raises(RunError, match=rf"{message}\ndemo:   call: the library returned 7"):
        project.run([IMAGE], toolchain=Toolchain(cflags=quiet))
    with pytest.raises(RunError, match=message):
        project.run([IMAGE], toolchain=replace(on_the_chip(project), cflags=quiet))


def test_the_project_has_the_library_once_and_both_ways_to_run_it():
    twins = Soc((NPU, VEC, replace(VEC, name="twin")), name="three")
    both = plan_region(two_branches(), twins, place={"conv2d": "vec", "dense": "twin"})
    files = project_files(parts_of(both, twins))
    assert {"library/vendor_queue.h", "library/vendor_nn.c", "hwlib/library/library_hal.c"} <= set(files)
    assert {"hwlib/sim/library/library_sim.c", "hwlib/vec/hwlib_library.h", "hwlib/twin/hwlib_names.h"} <= set(files)
    assert "hwlib/vec/hwlib_accelerator.h" not in files
    assert not {name for name in project_files(parts_of(plan_region(two_branches(), NPU), NPU)) if "library" in name}


def test_refuses_libraries_whose_files_have_one_name(tmp_path: Path):
    (tmp_path / "vendor_nn.c").write_text("")
    other = replace(VEC, name="other", library=replace(VEC.library, sources=(tmp_path / "vendor_nn.c",)))
    chip = Soc((NPU, VEC, other), name="three")
    with pytest.raises(InvalidInput, match="the files of a library have names of their own"):
        project_files(parts_of(plan_region(two_branches(), chip, place={"conv2d": "vec", "dense": "other"}), chip))


def test_the_schedule_has_the_calls_of_the_library(project: Project, plan: ChipPlan):
    (library,) = (region for region in project.schedule.regions if region.accelerator == "vec")
    assert [one.engine for one in library.work] == ["array"] * 3
    assert [one.end - one.start for one in library.work] == [
        VEC.library.cycles(plan.graph.layers[index]) for index in plan.of_lane(1)[0].layers
    ]
    assert not any(library.moved.values())
    assert all(block.offset % 16 == 0 for block in project.schedule.main_memory.blocks)
    assert {wait.reason for wait in library.waits} <= {"event", "job"}
