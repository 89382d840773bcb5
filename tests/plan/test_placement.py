"""What goes back to the host, and where the rest runs: by place, by time, by energy."""

from dataclasses import replace

import pytest
from chip_samples import CHIP, DSP, NPU, activation, two_branches

from byoc_hw.accelerator import REFERENCE
from byoc_hw.graph import Add, Graph, Pool2d, Transpose
from byoc_hw.host_costs import host_instructions, total_host_instructions
from byoc_hw.objective import Energy
from byoc_hw.plan.core import core_instructions, region_cycles, region_energy
from byoc_hw.plan.placement import connected_parts, sent_to_host, without
from byoc_hw.plan.region import plan_region

ANYWHERE: dict[str, str] = {}


def pooled(size):
    """A region of one average over 2 x 2 pixels."""
    ifm, ofm = activation("x", 1, size, size, 4), activation("pooled", 1, size // 2, size // 2, 4)
    return Graph("region", (ifm,), (ofm,), (Pool2d("pooled", ("pool",), ifm, ofm, kernel=(2, 2), strides=(2, 2)),))


def test_a_tiny_region_goes_back_with_both_costs():
    graph = pooled(2)
    found = sent_to_host({"region": graph}, REFERENCE, ANYWHERE, "latency")
    here, there = total_host_instructions(graph.layers), region_cycles(plan_region(graph, REFERENCE), REFERENCE)
    assert here < there
    text = f"on the host: {here:,} cycles, its region on REFERENCE {there:,} cycles"
    assert found == {"region": {"pooled": text}}


@pytest.mark.parametrize(("size", "objective"), [(64, "latency"), (2, None)])
def test_a_region_stays_that_saves_time_or_without_an_objective(size, objective):
    assert not sent_to_host({"region": pooled(size)}, REFERENCE, ANYWHERE, objective)


def test_a_slow_core_keeps_less():
    slow = replace(REFERENCE, host_cycles_per_instruction=20.0)
    fast = replace(REFERENCE, host_cycles_per_instruction=0.01)
    graphs = {"region": pooled(16)}
    assert not sent_to_host(graphs, slow, ANYWHERE, "latency")
    assert sent_to_host(graphs, fast, ANYWHERE, "latency")


def test_a_wish_comes_before_the_objective():
    graphs = {"region": pooled(2)}
    assert not sent_to_host(graphs, REFERENCE, {"pool2d": "hwlib"}, "latency")
    large = {"region": pooled(64)}
    (text,) = sent_to_host(large, REFERENCE, {"pool": "host"}, "latency")["region"].values()
    assert text.startswith("on the host by place={'pool': 'host'}, ")


def test_a_layer_at_an_end_leaves_alone():
    """An addition is worth its copies; one copy for each element of a small transpose behind it is not."""
    x, wide, small = activation("x", 1, 32, 32, 8), activation("sum", 1, 32, 32, 8), activation("small", 1, 4, 4, 8)
    turned = activation("turned", 1, 8, 4, 4)
    layers = (
        Add("sum", ("add",), x, wide, x),
        Pool2d("small", ("pool",), wide, small, kernel=(8, 8), strides=(8, 8)),
        Transpose("turned", ("turn",), small, turned, axes=(0, 3, 1, 2)),
    )
    graph = Graph("region", (x,), (turned,), layers)
    slow = replace(REFERENCE, dma_setup=200)
    gone = sent_to_host({"region": graph}, slow, ANYWHERE, "latency")["region"]
    assert set(gone) == {"turned"}
    left = without(graph, set(gone))
    before, after = (region_cycles(plan_region(one, slow), slow) for one in (graph, left))
    assert after + host_instructions(layers[-1]) < before
    assert gone["turned"].endswith(f" in its region on REFERENCE {before - after:,} cycles")


def test_without_keeps_what_others_read():
    graph = two_branches()
    left = without(graph, {"both", "pooled", "flat", "out"})
    left.verify()
    assert [tensor.name for tensor in left.outputs] == ["left", "right"]
    assert len(connected_parts(left)) == 1
    assert without(graph, {layer.name for layer in graph.layers} - {"flat"}) is None


def test_layers_that_no_value_joins_are_no_region():
    """What two layers read is an argument of each: TVM makes two regions of them."""
    graph = without(two_branches(), {"first", "both", "pooled", "flat", "out"})
    parts = connected_parts(graph)
    assert [[layer.name for layer in part.layers] for part in parts] == [["left"], ["right"]]
    assert [tensor.name for part in parts for tensor in (*part.inputs, *part.outputs)] == ["y", "left", "y", "right"]


# ---------------------------------------------------------------- energy


def test_energy_is_counted_by_array_copy_and_core():
    graph = pooled(16)
    plan = plan_region(graph, REFERENCE)
    spent = region_energy(plan, REFERENCE, Energy({"hwlib": 2.0}, copied=3.0, host=5.0))
    assert spent.array == {"hwlib": 2.0 * 16 * 16 * 4 / 16}
    assert spent.copies == 3.0 * (16 * 16 * 4 + 8 * 8 * 4)
    assert spent.core == 5.0 * core_instructions(plan, REFERENCE)
    assert spent.total == sum(spent.array.values()) + spent.copies + spent.core


@pytest.mark.slow
def test_all_layers_go_where_a_cycle_costs_nothing():
    graph = without(two_branches(size=8), {"left", "pooled", "flat", "out"})
    for one, other in ((NPU, DSP), (DSP, NPU)):
        energy = Energy({one.name: 0.0, other.name: 1e6}, copied=0.0, host=0.0)
        assert not sent_to_host({graph.name: graph}, CHIP, {"first": one.name}, energy)
        plan = plan_region(graph, CHIP, place={"first": one.name}, objective=energy)
        assert region_energy(plan, CHIP, energy).total == 0
        assert {CHIP.accelerators[part.lane].name for part in plan.parts} == {one.name}


def test_everything_goes_to_a_host_that_costs_nothing():
    graph = without(two_branches(size=8), {"left", "both", "pooled", "flat", "out"})
    found = sent_to_host({graph.name: graph}, CHIP, ANYWHERE, Energy({"npu": 1.0, "dsp": 1.0}, copied=1.0, host=0.0))
    assert set(found[graph.name]) == {layer.name for layer in graph.layers}


@pytest.mark.slow
def test_no_assignment_of_whole_layers_takes_less_energy():
    """Against all assignments of a small graph, each with its plan."""
    graph = without(two_branches(size=8), {"pooled", "flat", "out"})
    energy = Energy({"npu": 3.0, "dsp": 2.0}, copied=4.0, host=0.5)
    best = region_energy(plan_region(graph, CHIP, place={"first": "npu"}, objective=energy), CHIP, energy).total
    for number in range(8):
        place = {layer.name: ("npu", "dsp")[number >> at & 1] for at, layer in enumerate(graph.layers[1:])}
        plan = plan_region(graph, CHIP, place={"first": "npu", **place})
        assert best <= region_energy(plan, CHIP, energy).total
