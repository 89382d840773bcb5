"""The benchmark's floor and its plan without a schedule, on graphs small enough to count by hand."""

import pytest
from floor import Floor, floor
from layer_by_layer import layer_by_layer
from plan_samples import Samples, accelerator, graph_of, single
from plans import alone, compiled

import byoc_hw
from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.demo import model_path
from byoc_hw.plan.order.timeline import timeline


def plain(nbytes):
    """One transfer of `nbytes` on REFERENCE."""
    return 70 + -(-nbytes // 16)


def test_a_pointwise_convolution_runs_over_flattened_pixels():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 5, 5, 8)), 16, kernel=(1, 1))
    # 25 pixels are 2 groups of columns, where 5 rows of 5 would be 5.
    found = floor(single(layer), REFERENCE)
    assert found.array == 2 * (8 + 2 * 8 + 23)
    assert found.dma == plain(16 * 8 + 16 * 12) + plain(200) + plain(400)
    assert layer_by_layer(single(layer), REFERENCE) == 5 * (8 + 2 * 8 + 23) + found.dma


@pytest.mark.parametrize(("kernel", "strides"), [((2, 2), (1, 1)), ((1, 1), (2, 2))])
def test_other_convolutions_are_not_flattened(kernel, strides):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, kernel, strides)
    rows = layer.ofm.shape[1]
    depth = kernel[0] * kernel[1]
    assert floor(single(layer), REFERENCE).array == rows * (8 * depth + 2 * 8 * kernel[0] + 23)


def swappable(*, pooled):
    """Images of 32 x 2 pixels, upright 32 groups of columns, swapped 2 x 2; then a reshape of one pixel or of all."""
    samples = Samples()
    ifm = samples.tensor((1, 32, 2, 4))
    conv = samples.conv2d(ifm, 4, kernel=(3, 1), padding=(1, 0, 1, 0))
    depthwise = samples.depthwise(conv.ofm, kernel=(3, 1), padding=(1, 0, 1, 0))
    layers = [conv, depthwise]
    if pooled:
        layers.append(samples.pool(depthwise.ofm, kernel=(32, 2)))
    last = layers[-1].ofm
    layers.append(samples.reshape(last, (1, last.elements)))
    return graph_of([ifm], layers, [layers[-1].ofm])


def test_a_chain_is_swapped_and_its_input_transposed():
    found = floor(swappable(pooled=True), REFERENCE)
    conv, depthwise, pool = 4 * (3 * 4 + 2 * 4 + 23), 4 * (3 + 2 + 23), 64 * 4 // 16
    assert found.array == conv + depthwise + pool
    weights = 4 * 3 * 4 + 4 * 3 + 8 * 12
    assert found.dma == plain(weights) + 2 * (70 + 32) + plain(4)  # 2 copies of a column of 32 pixels


def test_a_reshape_keeps_its_images_upright():
    found = floor(swappable(pooled=False), REFERENCE)
    assert found.array == 32 * (3 * 4 + 6 * 4 + 23) + 32 * (3 + 6 + 23)
    assert found.dma == plain(4 * 3 * 4 + 4 * 3 + 8 * 12) + plain(256) + plain(256)


def test_a_swap_that_its_transposition_outweighs_is_left():
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 8, 4, 16)), kernel=(1, 1))
    found = floor(single(layer), REFERENCE)
    assert found.array == 8 * (1 + 2 + 23)  # 4 groups of 26 fewer, but both images take 4 x (70 + 8) to transpose
    assert found.dma == plain(16 + 16 * 12) + 2 * plain(512)


def test_a_dense_layer_on_a_slow_dma_is_bound_by_its_weights():
    samples = Samples()
    layer = samples.dense(samples.tensor((1, 64)), 64)
    slow = accelerator(weights=1024, dma_width=1)
    nbytes = 64 * (64 + 12)
    found = floor(single(layer), slow)
    assert found == Floor(4 * (64 + 128 + 23), 5 * 70 + nbytes + 2 * (70 + 64))
    assert found.cycles == found.dma
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


@pytest.mark.parametrize("preset", [REFERENCE, DIANA_DIGITAL, SMALL], ids=lambda preset: preset.label)
def test_no_plan_of_the_demo_is_below_its_floor(preset):
    made = compiled(*byoc_hw.load_tflite(model_path()), preset)
    assert made.project.memory.arena + 64 + 10 >= made.ram >= made.ram_around >= 64
    assert 0 < made.planning < made.seconds
    for plan in made.plans:
        assert timeline(plan, preset).total >= floor(plan.graph, preset).cycles
        for layer in plan.graph.layers:
            single_plan = alone(layer, preset)
            if single_plan is not None:
                assert timeline(single_plan, preset).total >= floor(single_plan.graph, preset).cycles
