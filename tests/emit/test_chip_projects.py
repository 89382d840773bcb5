"""A project for a chip of several accelerators: its C, its files, and what it computes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import sanitizers
from chip_samples import CHIP, DSP, NPU, TWO_BRANCHES, activation, chip_plan, two_branches
from emit_samples import place_all, sample_parts

from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.emit.region import code
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.graph import Add, Graph
from byoc_hw.plan.chip_plan import ChipPlan, plan_of_one
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.planned import table_bytes
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, RegionPlan
from byoc_hw.program import Buffer, Program, RegionCall, WaitCall
from byoc_hw.project import Project
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Hardware, Soc

GOLDEN = Path(__file__).parent / "golden" / "two_adds_on_a_chip.c"
SANITIZED = Toolchain(cflags=sanitizers.SANITIZED)
REPORT = {"mod_name": "demo", "accelerator": "TWIN", "numerics": "relay", "tuning": "", "outcomes": []}
IMAGE = np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 4)).astype(np.int8)


def two_adds() -> ChipPlan:
    """An addition on each accelerator; the second has another input of the region as well."""
    x, z = activation("x", 1, 2, 4, 8), activation("z", 1, 2, 4, 8)
    y, out = activation("y", 1, 2, 4, 8), activation("out", 1, 2, 4, 8)
    layers = (Add("first", ("add",), x, y, x), Add("second", ("add",), y, out, z))
    graph = Graph("tvmgen_two_twin_main_0", (x, z), (out,), layers)
    return chip_plan(graph, CHIP, ((0, (0,)), (1, (1,))))


def parts_of(plan: ChipPlan | RegionPlan, hardware: Hardware, *, early: bool = False) -> Parts:
    """A model of one region, which with `early` returns while it runs, and is waited for."""
    graph = plan.graph
    x, y = (
        Buffer(tensor.name, tensor.nbytes, role, tensor.shape, quantization=tensor.quantization)
        for tensor, role in ((graph.inputs[0], "input"), (graph.outputs[0], "output"))
    )
    waits = (WaitCall(graph, (x, y)),) if early else ()
    program = Program("demo", (x,), (y,), (RegionCall(graph, (x, y)), *waits))
    memory, regions = place_all(program, {graph.name: plan})
    return Parts(program, hardware, regions, memory, report=REPORT)


def project_of(directory: Path, plan: ChipPlan | RegionPlan, hardware: Hardware = CHIP) -> Project:
    write_project(directory, project_files(parts_of(plan, hardware)))
    return Project(directory)


@pytest.fixture(scope="module")
def plan() -> ChipPlan:
    return chip_plan(two_branches())


@pytest.fixture(scope="module")
def project(tmp_path_factory, plan) -> Project:
    return project_of(tmp_path_factory.mktemp("chip") / "project", plan)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one accelerator computes, with every layer's output."""
    alone = project_of(tmp_path_factory.mktemp("one") / "project", plan_region(two_branches(), NPU), NPU)
    return alone.run([IMAGE], trace=True)


def test_region_reads_as_the_golden_file():
    text = code(two_adds(), first_layer=3)
    if os.environ.get("BYOC_HW_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.slow
def test_computes_what_one_accelerator_does_in_the_planned_cycles(project: Project, plan: ChipPlan, expected):
    found = project.run([IMAGE], trace=True, toolchain=SANITIZED)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    timed = lanes_timeline(plan)
    assert found.cycles.total == timed.total == sum(layer.cycles for layer in found.cycles.by_layer)
    jobs = sum(event.engine == "array" for part in timed.parts for event in part.events)
    assert sum(layer.jobs for layer in found.cycles.by_layer) == jobs


@pytest.mark.slow
def test_region_may_return_while_it_runs(tmp_path: Path, plan: ChipPlan, expected):
    write_project(tmp_path / "project", project_files(parts_of(plan, CHIP, early=True)))
    first, second = Project(tmp_path / "project").run_batch([[IMAGE], [IMAGE]], toolchain=Toolchain(cflags="-O0"))
    assert first.cycles == second.cycles
    assert first.cycles.total == lanes_timeline(plan).total
    np.testing.assert_array_equal(second.outputs[0], expected.outputs[0])


ALONE = ((0, tuple(range(7))),)
"""All layers of `two_branches` on one accelerator."""


def test_a_region_of_one_accelerator_is_written_as_without_the_others():
    region = plan_of_one(chip_plan(two_branches(), CHIP, ALONE))
    plain = replace(region, on=None)
    assert code(region, 3).replace("npu_hwlib_", "hwlib_") == code(plain, 3)
    assert table_bytes(chip_plan(two_branches(), CHIP, ALONE)) == table_bytes(plain)


@pytest.mark.slow
def test_regions_of_one_accelerator_run_before_and_behind_those_of_several(tmp_path: Path, expected):
    """Each is exact in every layer, takes its planned cycles, and may return before its end."""
    graph = two_branches("begins")
    begins = replace(graph, layers=graph.layers[:2], outputs=(graph.layers[1].ofm,))
    plans = [chip_plan(begins, CHIP, ((1, (0, 1)),))]
    plans += [chip_plan(two_branches(f"all_{at}"), CHIP, parts) for at, parts in enumerate((TWO_BRANCHES, ALONE))]
    x = Buffer("x", IMAGE.nbytes, "input", IMAGE.shape)
    made = [plan.graph.outputs[0] for plan in plans]
    outputs = tuple(Buffer(f"y{at}", one.nbytes, "output", one.shape) for at, one in enumerate(made))
    calls = [RegionCall(plan.graph, (x, y)) for plan, y in zip(plans, outputs, strict=True)]
    waits = [WaitCall(call.graph, call.arguments) for call in calls]
    program = Program("demo", (x,), outputs, tuple(chain(*zip(calls, waits, strict=True))))
    memory, regions = place_all(program, {plan.graph.name: plan for plan in plans})
    files = project_files(Parts(program, CHIP, regions, memory, report=REPORT))
    assert {"hwlib/src/hwlib_lanes.c", "hwlib/src/hwlib_steps.c"} <= set(files)
    write_project(tmp_path / "project", files)
    found = Project(tmp_path / "project").run([IMAGE], trace=True, toolchain=SANITIZED)
    np.testing.assert_array_equal(found.outputs[1:], [expected.outputs[0]] * 2)
    every = [expected.trace[layer] for layer in sorted(expected.trace)]
    assert [found.trace[layer] for layer in sorted(found.trace)] == [*every[:2], *every, *every]
    assert found.outputs[0].tobytes() == every[1]
    assert found.cycles.total == sum(lanes_timeline(plan).total for plan in plans)


def test_layers_of_one_accelerator_may_be_planned_in_another_order(tmp_path: Path, expected):
    """Their descriptors are in the order of the region, and their numbers the region's."""
    planned = chip_plan(two_branches(), CHIP, ALONE)
    (part,) = planned.parts
    turned = tuple(reversed(range(7)))
    plan = replace(
        part.plan,
        graph=replace(part.plan.graph, layers=tuple(reversed(part.plan.graph.layers))),
        layers=tuple(reversed(part.plan.layers)),
        calls=tuple(replace(call, index=turned[call.index]) for call in part.plan.calls),
    )
    other = replace(planned, parts=(replace(part, plan=plan, layers=turned),))
    assert code(plan_of_one(other), 0) == code(plan_of_one(planned), 0)


QUEUES = Soc((replace(NPU, queue=2), replace(DSP, queue=3)), name="short")
THREE = Soc((DSP, NPU, replace(NPU, name="third", dma_setup=7)), name="three")
TIMED = {
    "short queues": (QUEUES, TWO_BRANCHES),
    "one of three is not used": (THREE, ((2, (0, 1)), (0, (2,)), (2, (3, 4, 5, 6)))),
}


@pytest.mark.parametrize(("chip", "placed"), TIMED.values(), ids=TIMED)
def test_takes_the_planned_cycles(tmp_path: Path, expected, chip: Soc, placed):
    planned = chip_plan(two_branches(), chip, placed)
    found = project_of(tmp_path / "project", planned, chip).run([IMAGE], toolchain=Toolchain(cflags="-O0"))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.cycles.total == lanes_timeline(planned).total


def test_a_missing_event_is_a_race(tmp_path: Path, plan: ChipPlan):
    def without(steps):
        return tuple(step for step in steps if not isinstance(step, Await))

    parts = []
    for part in plan.parts:
        calls = tuple(replace(call, steps=without(call.steps)) for call in part.plan.calls)
        parts.append(replace(part, plan=replace(part.plan, calls=calls, local=())))
    project = project_of(tmp_path / "project", replace(plan, parts=tuple(parts)))
    message = r"HWLIB_ERROR_RACE\)\ndemo:   copy: touches, at \d+ of main memory, bytes of another accelerator's copy"
    with pytest.raises(RunError, match=message):
        project.run([IMAGE])


@pytest.mark.slow
def test_runs_on_riscv32_and_counts_what_the_core_executes(project: Project, plan: ChipPlan, expected):
    found = project.run([IMAGE], on="riscv32", trace=True)
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert found.trace == expected.trace
    assert found.cycles.total == lanes_timeline(plan).total
    counted = found.host_instructions
    assert 0 < counted.regions < 300 * sum(len(part.plan.steps) for part in plan.parts)
    plain = project.run([IMAGE], on="riscv32", toolchain=Toolchain(startup="plain"))
    np.testing.assert_array_equal(plain.outputs[0], expected.outputs[0])


def test_runs_on_hals_of_the_users_own(tmp_path: Path, project: Project, expected):
    """One that has no optional functions, beside a simulator; and in place of both simulators."""
    for one in (NPU, DSP):
        new_hal(tmp_path / one.name, one)
    for source in (tmp_path / "npu").glob("*.[ch]"):  # other global names of two HALs differ
        source.write_text(source.read_text().replace("chip_", "npu_chip_").replace("npu_chip_numbers", "chip_numbers"))
    for names in (["dsp"], ["npu", "dsp"]):
        toolchain = Toolchain(hal={name: tmp_path / name for name in names})
        found = project.run([IMAGE], trace=True, toolchain=toolchain)
        np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
        assert found.trace == expected.trace
        assert found.cycles is None


def test_refuses_hals_that_do_not_fit_the_project(tmp_path: Path, project: Project):
    new_hal(tmp_path / "hal", NPU)
    single = project_of(tmp_path / "project", plan_region(two_branches(), NPU), NPU)
    with pytest.raises(InvalidInput, match="hal is one directory, for a project of one accelerator: got npu"):
        single.build(toolchain=Toolchain(hal={"npu": tmp_path / "hal"}))
    for hal, found in ((tmp_path / "hal", "hal"), ({"gpu": tmp_path / "hal"}, "gpu")):
        with pytest.raises(InvalidInput, match=f"by accelerator, for a chip of npu, dsp: got .*{found}$"):
            project.build(toolchain=Toolchain(hal=hal))


def test_a_project_has_the_interpreter_that_it_needs():
    chip = project_files(parts_of(chip_plan(two_branches()), CHIP))
    assert {"hwlib/src/hwlib_lanes.c", "hwlib/npu/hwlib_names.h", "hwlib/dsp/hwlib_sim_config.h"} <= set(chip)
    assert "hwlib/src/hwlib_steps.c" not in chip
    assert "hwlib/include/hwlib_accelerator.h" not in chip
    assert not {name for name in project_files(sample_parts()) if "lanes" in name or "table" in name}
    alone = set(project_files(parts_of(chip_plan(two_branches(), CHIP, ALONE), CHIP)))
    assert {"hwlib/src/hwlib_steps.c", "hwlib/npu/hwlib_names.h"} <= alone
    assert not {name for name in alone if "dsp" in name or name.endswith("hwlib_lanes.c")}


def test_refuses_an_accelerator_named_as_a_folder_of_hwlib():
    chip = Soc((replace(NPU, name="Sim"), DSP))
    with pytest.raises(
        InvalidInput, match=r"is none of include, src, sim, library, which name other folders.*: got Sim"
    ):
        project_files(parts_of(chip_plan(two_branches(), chip), chip))


def test_the_schedule_has_each_accelerator(project: Project, plan: ChipPlan):
    schedule = project.schedule
    assert schedule.cycles == lanes_timeline(plan).total
    assert {region.accelerator for region in schedule.regions} == {"npu", "dsp"} == set(schedule.accelerators)
    assert schedule.moved["inputs"] == IMAGE.nbytes
    assert (schedule.moved["outputs"], schedule.moved["spilled"] > 0) == (5, True)
    assert all(0 < share < 1 for share in schedule.busy.values())
    assert schedule.waiting["event"] > 0


def test_the_timeline_and_the_metadata_have_each_accelerator(project: Project):
    figure = project.schedule.timeline()
    assert [axes.get_ylabel() for axes in figure.axes] == ["npu", "dsp"]
    assert all(
        {label.get_text().strip() for label in axes.get_yticklabels()} >= {"DMA", "array"} for axes in figure.axes
    )
    metadata = json.loads((project.directory / "metadata.json").read_text())
    found = [(one["name"], one["activations"]) for one in metadata["accelerators"]]
    assert found == [(one.name, one.activation_memory) for one in CHIP.accelerators]
