from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of, single

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.cost import best_cycles, copy_cycles
from byoc_hw.plan.array.kinds import job_cycles
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import SCRATCH, Address, Copy, CopyWait, Job, JobWait, LayerCall, RegionPlan


def test_a_copy_costs_its_setup_and_each_row_rounded_up():
    assert copy_cycles(160, 1, REFERENCE) == 70 + 10
    assert copy_cycles(17, 3, REFERENCE) == 70 + 3 * 2
    assert copy_cycles(1, 1, REFERENCE) == 71
    assert copy_cycles(17, 3, SMALL) == 70 + 3 * 5


@pytest.mark.parametrize(("bits", "products"), [(8, 144), (4, 72), (2, 36)])
def test_a_convolution_costs_by_groups_of_the_array_in_every_row(bits, products):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 10, 40, 16)), 40, bits=bits)
    each = products + 2 * 16 * 3 + 23
    assert job_cycles(layer, (10, 40, 16), (8, 38, 40), REFERENCE) == 8 * 3 * 3 * each
    # A slice of the input channels costs its own share.
    assert job_cycles(layer, (3, 18, 8), (1, 16, 16), REFERENCE) == products // 2 + 2 * 8 * 3 + 23


def test_narrow_weights_are_rounded_up_to_whole_cycles():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 3, 3, 1)), 1, bits=4)
    assert job_cycles(layer, (3, 3, 1), (1, 1, 1), REFERENCE) == 5 + 2 * 3 + 23


def test_depthwise_channels_are_grouped_as_the_accelerator_groups_them():
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 10, 18, 32)))
    assert job_cycles(layer, (10, 18, 32), (8, 16, 32), REFERENCE) == 8 * 2 * (9 + 6 + 23)
    assert job_cycles(layer, (10, 18, 32), (8, 16, 32), DIANA_DIGITAL) == 8 * 32 * (9 + 6 + 23)


def test_dense_is_a_convolution_of_one_column():
    samples = Samples()
    layer = samples.dense(samples.tensor((1, 100)), 20)
    assert job_cycles(layer, (1, 1, 100), (1, 1, 20), REFERENCE) == 2 * (100 + 200 + 23)


def test_element_wise_and_pooling_cost_what_they_read():
    samples = Samples()
    ifm = samples.tensor((1, 5, 5, 3))
    assert job_cycles(samples.add(ifm, ifm), (1, 75, 1), (1, 75, 1), REFERENCE) == 10
    assert job_cycles(samples.pool(ifm), (5, 5, 3), (2, 2, 3), REFERENCE) == 3
    assert job_cycles(samples.softmax(ifm), (1, 25, 3), (1, 25, 3), REFERENCE) == 15  # three passes
    assert job_cycles(samples.lookup(ifm), (1, 75, 1), (1, 75, 1), REFERENCE) == 5


def test_copies_only_layers_have_no_jobs():
    layer = Samples().reshape(Samples().tensor((1, 4)), (1, 2, 2))
    with pytest.raises(PlanError, match="a reshape layer has no jobs"):
        job_cycles(layer, (1, 1, 1), (1, 1, 1), REFERENCE)


def test_each_job_and_each_further_row_of_a_copy_has_a_start():
    samples = Samples()
    ifm = samples.tensor((1, 9, 9, 8))
    hardware = replace(REFERENCE, job_setup=150, dma_row_setup=7)
    assert copy_cycles(17, 1, hardware) == 70 + 2
    assert copy_cycles(17, 3, hardware) == 70 + 2 * 7 + 3 * 2
    layers = samples.conv2d(ifm, 4), samples.add(ifm, ifm), samples.pool(ifm), samples.softmax(ifm)
    for layer in layers:
        shapes = (3, 3, 8), (1, 1, 4)
        assert job_cycles(layer, *shapes, hardware) == 150 + job_cycles(layer, *shapes, REFERENCE)
    narrow = {**REFERENCE.limits, "conv2d": replace(REFERENCE.limits["conv2d"], max_kernel=(2, 3))}
    parts = [replace(one, limits=narrow) for one in (hardware, REFERENCE)]  # of 3 rows: two jobs
    assert job_cycles(layers[0], *shapes, parts[0]) == 2 * 150 + job_cycles(layers[0], *shapes, parts[1])
    assert best_cycles(samples.conv2d(ifm, 4, groups=2), hardware) == 2 * 150 + best_cycles(
        samples.conv2d(ifm, 4, groups=2), REFERENCE
    )


# ---------------------------------------------------------------- the timeline

HARDWARE = replace(REFERENCE, dma_setup=100)


def copy(slot):
    return Copy(Address(0), Address(SCRATCH), 16, slot=slot)  # 101 cycles


def job(slot):
    return Job(0, 0, (1, 800, 1), (1, 800, 1), 800, 800, 1, 1, slot=slot)  # 100 cycles of an addition


def time_of(*layers, tail=()):
    samples = Samples()
    ifm = samples.tensor((1, 800))
    calls = tuple(LayerCall(index, steps) for index, steps in enumerate(layers))
    added = tuple(samples.add(ifm, ifm) for _ in layers)
    return timeline(RegionPlan(graph_of([], [], []), added, calls, b"", 0, {}, tail), HARDWARE)


def test_copies_run_one_after_the_other_and_beside_a_job():
    assert time_of((copy(0), copy(1))).total == 202
    assert time_of((copy(0), job(1), copy(2))).total == 202


def test_a_wait_holds_up_what_the_host_starts_next():
    assert time_of((copy(0), CopyWait(0), job(1), JobWait(1), copy(2))).total == 302


def test_a_wait_for_work_that_is_done_costs_nothing():
    assert time_of((copy(0), copy(1), CopyWait(1), CopyWait(0), job(2))).total == 302


def test_a_layer_is_charged_with_how_far_it_moves_the_latest_end():
    line = time_of((copy(0),), (job(1),), (copy(2), job(3)), tail=(CopyWait(0), copy(4)))
    assert line.layers == (0, 100, 100)  # copies to local memory may be for any layer
    assert line.total == 303


def test_a_job_in_the_tail_is_refused():
    with pytest.raises(PlanError, match="a job belongs to a layer"):
        time_of(tail=(job(0),))


def test_single_layer_fills_the_whole_timeline():
    plan = plan_region(single(Samples().pool(Samples().tensor((1, 4, 4, 4)))), REFERENCE)
    assert timeline(plan, REFERENCE).layers == (timeline(plan, REFERENCE).total,)
