"""The bound with what goes from lane to lane: what has to be copied, and that no plan is below it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from chip_samples import DSP, NPU, chip_plan, two_branches
from plan_samples import Samples, graph_of

from byoc_hw.plan.bound import prices
from byoc_hw.plan.bound.flows import _Program
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc


def only(accelerator, *kinds):
    """A slow DMA, and the limits of some layer kinds alone."""
    return replace(accelerator, dma_width=1, limits={kind: accelerator.limits[kind] for kind in kinds})


def in_turn():
    """A convolution, an addition and a convolution of 32 x 32 x 16, one behind the other."""
    samples = Samples(1)
    image = samples.tensor((1, 32, 32, 16))
    first = samples.conv2d(image, 16, (1, 1))
    second = samples.add(first.ofm, first.ofm)
    return graph_of([image], [first, second, third := samples.conv2d(second.ofm, 16, (1, 1))], [third.ofm])


def without_flows(monkeypatch):
    monkeypatch.setattr(prices, "cycles_of_flows", lambda *given: given[-1])
    monkeypatch.setattr(prices, "cycles_of_sharing", lambda *given: given[-1])


def test_what_each_lane_needs_of_the_other_is_stored_and_loaded(monkeypatch):
    """The DMA beside the convolutions copies image, both hand-overs and output; the other bound has half of that."""
    graph, chip = in_turn(), Soc((only(NPU, "conv2d"), only(DSP, "add")))
    copied = 4 * graph.inputs[0].nbytes
    monkeypatch.setattr(prices, "cycles_of_sharing", lambda *given: given[-1])
    assert copied <= cycles_bound(graph, chip) <= plan_region(graph, chip).cycles
    without_flows(monkeypatch)
    assert cycles_bound(graph, chip) < copied


@pytest.mark.parametrize("memory", ["shared", "apart"])
def test_lanes_that_share_a_memory_copy_nothing(monkeypatch, memory):
    lanes = (only(NPU, "conv2d"), replace(only(NPU, "add"), name="other"))
    chip = Soc(lanes, shared=(("npu", "other"),) if memory == "shared" else ())
    with_flows = cycles_bound(in_turn(), chip)
    without_flows(monkeypatch)
    assert (with_flows == cycles_bound(in_turn(), chip)) == (memory == "shared")


SLOW = replace(DSP, dma_width=1, name="slow")
CHIPS = {
    "two": Soc((NPU, SLOW)),
    "three": Soc((replace(NPU, dma_width=2), SLOW, DSP)),
}


@pytest.mark.parametrize("name", ["two", pytest.param("three", marks=pytest.mark.slow)])
def test_no_placement_of_whole_layers_is_below_the_bound(name):
    """Of three layers, with the others where the last of these is."""
    chip = CHIPS[name]
    graph = two_branches()
    bound = cycles_bound(graph, chip)
    for lanes in product(range(len(chip.accelerators)), repeat=3):
        placed = tuple((lane, (at,)) for at, lane in enumerate(lanes))
        plan = chip_plan(graph, chip, (*placed, (lanes[-1], (3, 4, 5, 6))))
        assert lanes_timeline(plan).total >= bound


def test_any_prices_prove_no_more_than_the_least():
    """Of random programs: prices of the rows, none of which need be the best, and a point that keeps all rows."""
    drawn = np.random.default_rng(5)
    for _ in range(30):
        program, count = _Program(), 6
        for _ in range(count):
            program.var(10.0)
        point = drawn.uniform(0, 10, count)
        for _ in range(8):
            row = drawn.uniform(-1, 1, count)
            program.at_least(dict(enumerate(row)), float(row @ point) - drawn.uniform(0, 2))
        least = program.solved()
        assert least <= point[0] + 1e-9
        for _ in range(10):
            assert program._proved(drawn.uniform(0, 1, len(program.rows))) <= least + 1e-6
