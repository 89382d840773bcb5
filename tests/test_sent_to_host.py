"""Regions and layers that go back to the host: the same bits, the figures in the report, and less time under QEMU."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from fuzz_networks import networks
from relay_samples import Conv, module, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path
from byoc_hw.plan.core import region_energy
from byoc_hw.plan.region import plan_region

CHIP = byoc_hw.Soc((replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA"), byoc_hw.DSP), label="DLA + DSP")


def pooled_beside_a_convolution():
    """A region that saves much time, and one of 12 bytes that costs more than it saves."""
    x, y = variable((1, 12, 12, 8)), variable((1, 2, 2, 3), name="y")
    large = Conv(12, 12, 8, 16).expr(x)
    tiny = relay.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC")
    return module(relay.Tuple([large, tiny]), x, y)


@pytest.fixture(scope="module")
def digits():
    return byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()))


@needs_riscv32
def test_a_tiny_region_goes_back_and_the_inference_is_faster():
    partitioned = byoc_hw.partition_for_hwlib(pooled_beside_a_convolution())
    offloaded, placed = byoc_hw.build(partitioned), byoc_hw.build(partitioned, objective="latency")
    assert [outcome.placement for outcome in placed.report.outcomes].count("host") == 1
    assert "(placed for latency)" in str(placed.report)
    (outcome,) = placed.report.host
    assert " cycles, its region on REFERENCE " in str(outcome.rejections[0])
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, one.shape).astype(np.int8) for one in offloaded.inputs]
    before, after = (project.run(inputs, on="riscv32") for project in (offloaded, placed))
    for one, other in zip(before.outputs, after.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert after.end_to_end.total < before.end_to_end.total


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pool2d", "model_1/max_pooling2d_1/MaxPool"])
def test_a_layer_is_sent_to_the_host_by_kind_or_operator(digits, name):
    project = byoc_hw.build(digits, place={name: "host"})
    moved = [outcome for outcome in project.report.host if "by place=" in str(outcome.rejections)]
    assert "model_1/max_pooling2d_1/MaxPool" in [outcome.name for outcome in moved]
    assert len(moved) == (2 if name == "pool2d" else 1)
    assert not byoc_hw.validate(project, heldout().images[:1], digits).differences


@pytest.mark.slow
def test_kinds_are_sent_to_the_host_and_to_one_of_a_chip():
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=CHIP)
    project = byoc_hw.build(mod, place={"dense": "host", "add": "dsp"})
    texts = project.report.engines.values()
    assert any(text.startswith("on dsp; alone dla ") for text in texts)
    assert all(", host " in text for text in texts)
    assert not byoc_hw.validate(project, heldout().images[:1], mod).differences


def test_the_report_has_the_cost_on_each_candidate(digits):
    said = byoc_hw.explain(digits)
    layers = [layer for graph in region_graphs(digits).values() for layer in graph.layers if layer.kind != "reshape"]
    assert set(said.engines) == {name for layer in layers for name in layer.source}
    assert all(text.startswith("alone hwlib ") and ", host " in text for text in said.engines.values())
    assert said.engines == byoc_hw.build(digits).report.engines


@pytest.mark.slow
@needs_riscv32
def test_a_chip_is_planned_for_the_core_that_drives_it():
    twins = byoc_hw.Soc(tuple(replace(byoc_hw.REFERENCE, name=name) for name in ("one", "two")))
    x = variable((1, 12, 12, 8))
    layers = Conv(12, 12, 8, 8, seed=1).expr(Conv(12, 12, 8, 8).expr(x))
    mod = byoc_hw.partition_for_hwlib(module(layers, x), accelerator=twins)
    image = np.random.default_rng(0).integers(-128, 128, (1, 12, 12, 8)).astype(np.int8)
    before, after = (
        byoc_hw.build(mod, objective=objective).run([image], on="riscv32") for objective in (None, "latency")
    )
    np.testing.assert_array_equal(before.outputs[0], after.outputs[0])
    assert after.cycles.total > before.cycles.total
    assert after.end_to_end.total < 0.75 * before.end_to_end.total


def test_energy_decides_which_accelerator_of_a_chip_works():
    graph = next(
        iter(region_graphs(byoc_hw.partition_for_hwlib(Conv(12, 12, 8, 16).module(), accelerator=CHIP)).values())
    )
    for cheap, dear in (("dla", "dsp"), ("dsp", "dla")):
        energy = byoc_hw.Energy({cheap: 1.0, dear: 100.0}, copied=0.1, host=0.1)
        plan = plan_region(graph, CHIP, objective=energy)
        assert [CHIP.accelerators[part.lane].name for part in plan.parts] == [cheap]
        assert region_energy(plan, CHIP, energy).total < region_energy(plan_region(graph, CHIP), CHIP, energy).total


def test_energy_is_in_the_report():
    partitioned = byoc_hw.partition_for_hwlib(pooled_beside_a_convolution())
    project = byoc_hw.build(partitioned, objective=byoc_hw.Energy({"hwlib": 10.0}, copied=1.0, host=1.0))
    assert "placed for energy: regions " in project.report.planning
    assert "(hwlib " in project.report.planning
    (outcome,) = project.report.host
    assert " of energy, its region on REFERENCE " in str(outcome.rejections[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("chip", [byoc_hw.REFERENCE, CHIP], ids=["accelerator", "chip"])
@pytest.mark.parametrize("layouts", [["NHWC"], ["NHWC", "NCHW"]], ids=["NHWC", "NCHW"])
def test_random_layers_go_to_the_host_and_the_bits_stay(seed, chip, layouts):
    """By random wishes, which split regions anywhere, also where branches join again."""
    rng = Random(f"{seed} {layouts}")
    made = networks(rng, 1, layouts)
    partitioned = byoc_hw.partition_for_hwlib(made.mod, accelerator=chip)
    names = [layer.name for graph in region_graphs(partitioned).values() for layer in graph.layers]
    place = {name: "host" for name in dict.fromkeys(names) if rng.random() < 0.3}
    project = byoc_hw.build(partitioned, place=place, objective=rng.choice([None, "latency"]))
    arrays = [np.random.default_rng(seed).integers(-128, 128, one.shape).astype(np.int8) for one in project.inputs]
    for found, expected in zip(project.run(arrays).outputs, made.expected(arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


REFUSED = {
    "objective": ({"objective": "speed"}, "objective is None, \"latency\" or an Energy: got 'speed'"),
    "no weight": (
        {"objective": byoc_hw.Energy({}, 1.0, 1.0)},
        "energy: array has a weight for each of hwlib: none for",
    ),
    "weight of none": (
        {"objective": byoc_hw.Energy({"hwlib": 1.0, "gpu": 1.0}, 1.0, 1.0)},
        "energy: array has weights for hwlib: got one for 'gpu'",
    ),
    "no operator": ({"place": {"conv7": "host"}}, "place names offloaded operators, or kinds of layers"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_there_is_refused(digits, given, message):
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.build(digits, **given)


def test_a_module_without_regions_has_nothing_to_place():
    with pytest.raises(byoc_hw.InvalidInput, match="objective is for a partitioned module"):
        byoc_hw.build(Conv().module(), objective="latency")


@pytest.mark.parametrize("weight", [-1.0, float("nan"), "1"])
def test_a_weight_of_energy_is_a_number(weight):
    with pytest.raises(byoc_hw.InvalidInput, match="energy: copied is a finite number of at least 0"):
        byoc_hw.Energy({}, copied=weight, host=1.0)
