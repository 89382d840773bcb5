"""Layers without tiles among others on a chip: their cycles in C, and each wait that they need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chip_samples import NPU, activation, constant
from riscv32_tools import needs_riscv32
from test_chip_projects import IMAGE, SANITIZED, project_of

from byoc_hw.accelerator import DSP
from byoc_hw.errors import RunError
from byoc_hw.graph import Conv2d, Gather, Graph, Ordering
from byoc_hw.plan.chip_plan import ChipPlan
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, CopyWait, JobWait, WholeLayer
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Soc
from byoc_hw.tensor import Quantization, Tensor

CHIP = Soc((NPU, DSP), name="twin", label="TWIN")
SUMS = Quantization((0.125,), (0,))


def sorted_rows() -> Graph:
    """A convolution, its rows in order, and another convolution."""
    x, y, z = (activation(name, 1, 16, 16, channels) for name, channels in (("x", 4), ("y", 8), ("z", 8)))
    places, ordered = Tensor("places", y.shape, "int32"), activation("ordered", *y.shape)
    padding = {"padding": (1, 1, 1, 1)}
    layers = (
        Conv2d("first", ("conv",), x, y, constant(1, 8, 3, 3, 4), None, SUMS, -100, 100, **padding),
        Ordering("order", ("sort",), y, places, axis=2),
        Gather("gather", ("sort",), y, ordered, places, axis=2),
        Conv2d("last", ("conv",), ordered, z, constant(2, 8, 3, 3, 8), None, SUMS, -100, 100, **padding),
    )
    return Graph("tvmgen_demo_twin_main_0", (x,), (z,), layers)


def planned(where: str) -> ChipPlan:
    return plan_region(sorted_rows(), CHIP, place={"conv2d": where})


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> np.ndarray:
    """What the convolutions compute, by themselves, with rows that numpy sorts."""
    layers = sorted_rows().layers
    image = IMAGE
    for layer in (layers[0], layers[3]):
        graph = Graph("tvmgen_demo_hwlib_main_0", (layer.ifm,), (layer.ofm,), (layer,))
        alone = project_of(tmp_path_factory.mktemp("one") / "project", plan_region(graph, NPU), NPU)
        image = alone.run([image if layer is layers[0] else np.sort(image, axis=2)]).outputs[0]
    return image


@pytest.mark.slow
@pytest.mark.parametrize("where", ["npu", "dsp"])
def test_has_the_planned_cycles(tmp_path: Path, expected, where: str):
    plan = planned(where)
    project = project_of(tmp_path / "project", plan, CHIP)
    found = project.run([IMAGE], trace=True, toolchain=SANITIZED)
    np.testing.assert_array_equal(found.outputs[0], expected)
    assert found.cycles.total == lanes_timeline(plan).total == plan.cycles
    ordered = {layer.name: layer.array_cycles for layer in found.cycles.by_layer}
    assert (ordered["order"], ordered["gather"]) == tuple(DSP.cycles_of_whole(one) for one in plan.graph.layers[1:3])


@pytest.mark.slow
@needs_riscv32
def test_runs_on_riscv32(tmp_path: Path, expected):
    plan = planned("npu")
    found = project_of(tmp_path / "project", plan, CHIP).run([IMAGE], on="riscv32")
    np.testing.assert_array_equal(found.outputs[0], expected)
    assert found.cycles.total == plan.cycles


@pytest.mark.slow
def test_a_hal_of_the_users_own_runs_them(tmp_path: Path, expected):
    project = project_of(tmp_path / "project", planned("npu"), CHIP)
    new_hal(tmp_path / "dsp", DSP)
    found = project.run([IMAGE], toolchain=Toolchain(hal={"dsp": tmp_path / "dsp"}, cflags=SANITIZED.cflags))
    np.testing.assert_array_equal(found.outputs[0], expected)


def without(plan: ChipPlan, lane: int, left_out: object) -> ChipPlan:
    """The plan without one step of a lane."""
    parts = []
    for part in plan.parts:
        if part.lane == lane:
            kept = [tuple(one for one in call.steps if one is not left_out) for call in part.plan.calls]
            calls = tuple(replace(call, steps=steps) for call, steps in zip(part.plan.calls, kept, strict=True))
            tail = tuple(one for one in part.plan.tail if one is not left_out)
            part = replace(part, plan=replace(part.plan, calls=calls, tail=tail, local=()))
        parts.append(part)
    return replace(plan, parts=tuple(parts))


def fault(directory: Path, plan: ChipPlan) -> str:
    """What the simulators say of a damaged plan."""
    with pytest.raises(RunError) as raised:
        project_of(directory, plan, CHIP).run([IMAGE], toolchain=Toolchain(cflags="-O0"))
    return str(raised.value)


def steps_of(plan: ChipPlan, lane: int) -> list[object]:
    return [step for part in plan.of_lane(lane) for step in part.plan.steps]


def test_each_event_around_a_whole_layer_is_needed(tmp_path: Path):
    """Between accelerators; found where the second of the two starts, a copy or a layer."""
    plan = planned("npu")
    awaits = [(lane, step) for lane in (0, 1) for step in steps_of(plan, lane) if isinstance(step, Await)]
    assert {lane for lane, _ in awaits} == {0, 1}
    for number, (lane, step) in enumerate(awaits):
        said = fault(tmp_path / str(number), without(plan, lane, step))
        assert "HWLIB_ERROR_RACE" in said
        assert "of main memory, bytes of another accelerator's copy or whole layer in flight" in said


def test_each_wait_around_a_whole_layer_is_needed(tmp_path: Path):
    """On one accelerator: between its copies and the layer, and the layer and its copies."""
    plan = planned("dsp")
    steps = steps_of(plan, 1)
    whole = [index for index, step in enumerate(steps) if isinstance(step, WholeLayer)]
    before = next(step for step in reversed(steps[: whole[0]]) if isinstance(step, CopyWait))
    behind = next(step for step in steps[whole[-1] :] if isinstance(step, JobWait))
    said = fault(tmp_path / "before", without(plan, 1, before))
    assert "whole layer: touches, at " in said
    assert "of main memory, bytes of a copy in flight" in said
    said = fault(tmp_path / "behind", without(plan, 1, behind))
    assert "copy: touches, at " in said
    assert "of main memory, bytes of a whole layer in flight" in said
