"""The bound of a chip: what latencies add to it, exactly where there is nothing to choose."""

from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of
from test_chip_plans import DLA, PAIR, with_library

from byoc_hw.accelerator import DSP
from byoc_hw.plan.lanes import latency
from byoc_hw.plan.lanes.bound import chip_bound
from byoc_hw.plan.lanes.ways import Work
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

COPY = DLA.dma_setup + 1
"""The shortest copy."""


def only(accelerator, *kinds):
    """The accelerator with the limits of some layer kinds alone."""
    return replace(accelerator, limits={kind: accelerator.limits[kind] for kind in kinds})


def latencies(graph, chip):
    return latency.latencies(graph, chip, [Work(layer, chip) for layer in graph.layers])


def pixel(layers):
    """Layers on one pixel of one channel, one behind the other: "conv2d" of one weight, or "add" of the input to it."""
    samples = Samples(1)
    image = value = samples.tensor((1, 1, 1, 1))
    made = []
    for kind in layers:
        made.append(samples.conv2d(value, 1, (1, 1)) if kind == "conv2d" else samples.add(value, image))
        value = made[-1].ofm
    return graph_of([image], made, [value])


def test_one_job_takes_its_copies_and_itself():
    """The input and the weights are copied in, the output out: the bound is the plan."""
    graph = pixel(["conv2d"])
    job = 1 + 2 + DLA.job_overhead
    assert chip_bound(graph, PAIR) == plan_region(graph, PAIR).cycles == 3 * COPY + job


def test_a_layer_on_another_lane_waits_for_a_copy_out_and_a_copy_in():
    graph = pixel(["conv2d", "add"])
    chip = Soc((only(DLA, "conv2d"), only(DSP, "add")))
    times = latencies(graph, chip)
    job = 1 + 2 + DLA.job_overhead
    assert times.before == [{0: 2 * COPY}, {1: 2 * COPY + job + 2 * COPY}]
    assert times.behind == [{0: 2 * COPY + 1 + COPY}, {1: COPY}]
    assert chip_bound(graph, chip) == times.least == 2 * COPY + job + 2 * COPY + 1 + COPY
    assert plan_region(graph, chip).cycles == times.least


def test_a_layer_on_the_same_lane_waits_for_no_copy():
    times = latencies(pixel(["conv2d", "add"]), Soc((DLA,)))
    assert times.before[1][0] - times.before[0][0] == 1 + 2 + DLA.job_overhead


def test_a_library_copies_nothing():
    chip = Soc((only(DLA, "conv2d"), with_library(DSP, ["add"], each=7)))
    times = latencies(pixel(["add"]), chip)
    assert (times.before, times.behind, times.least) == ([{1: 0}], [{1: 0}], 7)


def test_work_behind_a_late_layer_is_bounded_by_what_is_before_it():
    """A small layer on one lane, a large one behind it on the other: the array of the large one works from the first
    moment on at which there is anything to read for it."""
    samples = Samples(1)
    image = samples.tensor((1, 16, 16, 16))
    layers = [samples.add(image, image)]
    layers.append(samples.conv2d(layers[0].ofm, 64, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([image], layers, [layers[-1].ofm])
    chip = Soc((only(DLA, "conv2d"), only(DSP, "add")))
    jobs = 16 * 4 * (16 * 9 + 2 * 16 * 3 + DLA.job_overhead)
    assert chip_bound(graph, chip) == pytest.approx(COPY + 1 + 2 * COPY + jobs + COPY, abs=2)
    assert plan_region(graph, chip).cycles >= chip_bound(graph, chip)
