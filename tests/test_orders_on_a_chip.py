"""A model that puts in order what an accelerator computes: TVM's bits however it is built, placed and run."""

from dataclasses import replace

import numpy as np
import pytest
from order_checks import CHIP, check_on_chip, with_ties
from relay_samples import Conv, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference


def sorted_pixels():
    """The best pixels of each channel of a convolution, with their places, beside its pooling."""
    x = variable((1, 10, 10, 4))
    convolved = Conv(10, 10, 4, 8).expr(x)
    best = relay.topk(relay.reshape(convolved, (100, 8)), k=3, axis=0)
    pooled = relay.nn.max_pool2d(convolved, (2, 2), (2, 2), layout="NHWC")
    return module(relay.Tuple([best[0], best[1], pooled]), x)


@pytest.fixture(scope="module")
def model():
    """The partitioned module, an input, and TVM's results."""
    mod = sorted_pixels()
    given = with_ties(mod, 8)
    return byoc_hw.partition_for_hwlib(mod, accelerator=CHIP), given, Reference(mod).run(given)


BUILDS = {
    "as by default": ({}, {"order": "dsp", "gather": "dsp"}),
    "polled, with inputs and outputs in the arena": (
        {"poll": True, "io_in_arena": True},
        {"order": "dsp", "gather": "dsp"},
    ),
    "ordered on the host": ({"place": {"order": "host"}}, {"gather": "dsp"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("options", "where"), BUILDS.values(), ids=BUILDS)
def test_has_tvms_bits_in_the_planned_cycles(model, options, where):
    partitioned, given, expected = model
    project = byoc_hw.build(partitioned, **options)
    result = project.run(given)
    for found, want in zip(result.outputs, expected, strict=True):
        np.testing.assert_array_equal(found, want, strict=True)
    assert result.cycles.total == project.schedule.cycles
    kinds = {layer["kind"] for layer in project.layers}
    assert kinds & {"order", "gather"} == where.keys()


@pytest.mark.slow
def test_has_tvms_bits_when_placed_for_latency(model):
    partitioned, given, expected = model
    for found, want in zip(byoc_hw.build(partitioned, objective="latency").run(given).outputs, expected, strict=True):
        np.testing.assert_array_equal(found, want, strict=True)


def test_the_pooling_does_not_wait_for_the_order(model):
    """The order is on the DSP's array, while the DLA pools."""
    partitioned, _, _ = model
    schedule = str(byoc_hw.build(partitioned).schedule)
    spans = {
        line.split()[1]: line.split()[2:4] for line in schedule.splitlines() if line.startswith(("  topk", "  nn"))
    }
    ordered, pooled = ([int(cycle.replace(",", "")) for cycle in spans[kind]] for kind in ("order", "pool2d"))
    assert pooled[0] < ordered[1]
    assert ordered[0] < pooled[1]


def test_the_report_says_where_and_why_not_elsewhere(model):
    said = str(byoc_hw.explain(model[0]))
    assert "on dsp; alone dla not: layer kind is one of" in said
    assert "got order, dsp 600 cycles, host " in said


@pytest.mark.slow
def test_a_chip_of_one_orders_too():
    mod = sorted_pixels()
    project = check_on_chip(
        mod,
        [*["qnn_conv2d"] * 3, "reshape", "topk", "gather", "max_pool2d"],
        [with_ties(mod, 8)],
        byoc_hw.Soc((byoc_hw.DSP,)),
    )
    assert {layer["kind"] for layer in project.layers} >= {"order", "gather"}


WRONG = {
    "a cost that is no function": ({"order": 7}, "whole_cycles of order is a function of the layer: got 7"),
    "a kind with tiles": ({"add": len}, "whole_cycles are of order, gather, suppression: got 'add'"),
    "a kind without a cost": ({"order": len, "gather": len}, "a kind without tiles has whole_cycles: none for suppre"),
}


@pytest.mark.parametrize(("costs", "message"), WRONG.values(), ids=WRONG)
def test_costs_of_layers_without_tiles_are_checked(costs, message):
    with pytest.raises(byoc_hw.InvalidInput, match=f"accelerator dsp: {message}"):
        replace(byoc_hw.DSP, whole_cycles=costs)


def test_a_cost_is_a_whole_number(model):
    half = replace(byoc_hw.DSP, whole_cycles={kind: lambda layer: 0.5 for kind in byoc_hw.DSP.whole_cycles})
    message = r"accelerator dsp: whole_cycles of gather topk_1 is a whole number: got 0\.5"
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.partition_for_hwlib(sorted_pixels(), accelerator=byoc_hw.Soc((half,)))
