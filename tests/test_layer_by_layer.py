"""The benchmark's plan without a schedule, on graphs small enough to count by hand."""

import pytest
from layer_by_layer import layer_by_layer
from plan_samples import Samples, accelerator, single
from plans import alone, compiled

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import model_path
from byoc_hw.plan.order.timeline import timeline


def plain(nbytes):
    """One transfer of `nbytes` on REFERENCE."""
    return 70 + -(-nbytes // 16)


def test_copies_and_jobs_follow_one_another():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 5, 5, 8)), 16, kernel=(1, 1))
    copies = plain(16 * 8 + 16 * 12) + plain(200) + plain(400)
    assert layer_by_layer(single(layer), REFERENCE) == 5 * (8 + 2 * 8 + 23) + copies


def test_weights_beyond_the_memory_are_cut_into_channels():
    samples = Samples()
    layer = samples.dense(samples.tensor((1, 64)), 64)
    slow = accelerator(weights=1024, dma_width=1)
    nbytes = 64 * (64 + 12)
    # 13 channels fit at a time, fewer than the array has rows: 5 jobs, and 5 stores of a slice each.
    assert layer_by_layer(single(layer), slow) == 5 * (64 + 128 + 23) + 5 * 70 + nbytes + 70 + 64 + 5 * 70 + 64


def test_a_layer_that_does_not_fit_is_cut_into_rows():
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 16, 16, 16)), kernel=(1, 1))
    halves = accelerator(activations=4096)
    weights = plain(16 + 16 * 12)
    assert layer_by_layer(single(layer), REFERENCE) == 16 * 26 + weights + 2 * plain(4096)
    assert layer_by_layer(single(layer), halves) == 16 * 26 + weights + 4 * plain(2048)


def test_an_addition_that_does_not_fit_is_cut_into_runs():
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 16))
    layer = samples.add(ifm, samples.constant((1, 8, 8, 16)))
    assert layer_by_layer(single(layer), REFERENCE) == 3 * plain(1024) + 128
    assert layer_by_layer(single(layer), accelerator(activations=1536)) == 6 * plain(512) + 128


@pytest.mark.slow
@pytest.mark.parametrize("preset", [REFERENCE, SMALL], ids=lambda preset: preset.label)
def test_a_plan_is_no_slower_than_its_layers_alone(preset):
    made = compiled(*byoc_hw.load_tflite(model_path()), preset)
    assert made.project.memory.arena + 64 + 10 >= made.ram >= made.ram_around >= 64
    assert 0 < made.planning < made.seconds
    singles = [plan for layer in made.layers if (plan := alone(layer, preset)) is not None]
    assert made.project.schedule.bound <= made.project.schedule.cycles
    assert made.project.schedule.cycles <= sum(timeline(plan, preset).total for plan in singles)
