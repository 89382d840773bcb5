"""How weights are cut into blocks, and what the blocks take."""

import pytest
from plan_check import check
from plan_samples import Samples, accelerator, single

from byoc_hw.accelerator import DIANA_DIGITAL, TuningSpace
from byoc_hw.integers import round_up
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.weight_blocks import (
    all_bytes,
    cut,
    cut_without_sums,
    fits,
    load_cycles,
    params_together,
    psum_bytes,
)
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.steps import FLASH, WEIGHTS, Copy

SAMPLES = Samples()
CONV = SAMPLES.conv2d(SAMPLES.tensor((1, 6, 6, 64)), 64)
LAYERS = {
    "conv2d": CONV,
    "dense": SAMPLES.dense(SAMPLES.tensor((1, 256)), 120, bits=4),
    "pointwise": SAMPLES.conv2d(SAMPLES.tensor((1, 6, 6, 250)), 16, (1, 1)),
    "depthwise": SAMPLES.depthwise(SAMPLES.tensor((1, 6, 6, 64))),
}
MEMORIES = 40000, 20000, 9000, 6000, 3000, 2000
by_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
by_memory = pytest.mark.parametrize("memory", MEMORIES)


def whole(layer):
    return Blocks(layer.out_channels, layer.in_channels)


@by_layer
@by_memory
def test_three_blocks_fit_where_they_can(layer, memory):
    hardware = accelerator(weights=memory)
    assert fits(layer, cut(layer, hardware) or whole(layer), 3, hardware)


def test_fewer_blocks_fit_where_three_cannot():
    layer, hardware = LAYERS["depthwise"], accelerator(weights=60)  # a channel takes 32 bytes with its parameters
    assert [fits(layer, cut(layer, hardware), part, hardware) for part in (1, 2, 3)] == [True, True, False]


def test_parameters_of_all_channels_are_loaded_at_once_where_they_leave_room_for_weights():
    all_at_once = 4 * 64 * PARAMS_BYTES
    assert params_together(CONV, 16, all_at_once) == 64
    assert params_together(CONV, 16, all_at_once - 1) == 16


@by_layer
def test_layer_that_fits_as_often_is_one_block(layer):
    assert cut(layer, accelerator(weights=150000)) is None
    space = TuningSpace(weight_shares=(1,))
    enough = next(size for size in range(4, 150000, 4) if fits(layer, whole(layer), 1, accelerator(weights=size)))
    assert cut(layer, accelerator(weights=enough, tuning=space)) is None
    assert cut(layer, accelerator(weights=enough - 4, tuning=space)) is not None
    assert cut(layer, accelerator(weights=enough)) is not None


@by_layer
@by_memory
def test_depth_is_sliced_only_where_one_array_of_channels_does_not_fit(layer, memory):
    hardware = accelerator(weights=memory)
    blocks = cut(layer, hardware) or whole(layer)
    sliced = blocks.depth < layer.in_channels
    assert sliced <= (not fits(layer, Blocks(hardware.array_rows, layer.in_channels), 3, hardware))


@by_layer
@by_memory
def test_blocks_without_sums_have_all_input_channels_where_these_fit(layer, memory):
    hardware = accelerator(weights=memory)
    known, found = cut(layer, hardware), cut_without_sums(layer, hardware)
    if known is None or known.depth == layer.in_channels:
        assert found == known
    elif fits(layer, Blocks(1, layer.in_channels), 1, hardware):
        assert found.depth == layer.in_channels
        assert fits(layer, found, 1, hardware)
        assert psum_bytes(layer, known, 36, hardware) > psum_bytes(layer, found, 36, hardware) == 0


def test_blocks_have_sums_where_no_weights_of_all_input_channels_fit():
    layer, hardware = LAYERS["dense"], accelerator(weights=100)  # an output has 256 weights of 4 bits
    assert cut_without_sums(layer, hardware) == cut(layer, hardware)
    assert cut(layer, hardware).depth < layer.in_channels


def test_convolution_is_cut_by_channels_first():
    found = [cut(CONV, accelerator(weights=memory)) for memory in (64000, 40000, 20000, 700)]
    assert found == [Blocks(32, 64), Blocks(16, 64), Blocks(16, 32), Blocks(16, 1)]


def test_layer_without_weights_has_no_blocks():
    layer = SAMPLES.pool(SAMPLES.tensor((1, 4, 4, 8)))
    hardware = accelerator()
    assert (cut(layer, hardware), all_bytes(layer, None, hardware), load_cycles(layer, None, hardware)) == (None, 0, 0)


def test_partial_sums_are_only_there_where_depth_is_sliced_or_the_kernel_is_in_parts():
    cuts = (None, Blocks(16, 64), Blocks(16, 63))
    assert [psum_bytes(CONV, blocks, 5, accelerator()) for blocks in cuts] == [0, 0, 320]
    layer = SAMPLES.depthwise(SAMPLES.tensor((1, 15, 1, 24)), (15, 1))
    assert [psum_bytes(layer, blocks, 5, accelerator()) for blocks in (None, Blocks(16, 1))] == [480, 320]
    assert psum_bytes(layer, None, 5, DIANA_DIGITAL) == 0


@by_layer
@pytest.mark.parametrize("alignment_of_dma", [1, 8])
@pytest.mark.parametrize("memory", [40000, 9000, 2000])
def test_bytes_and_cycles_are_those_of_the_blocks_that_a_plan_loads(layer, alignment_of_dma, memory):
    hardware = accelerator(weights=memory, dma_alignment=alignment_of_dma)
    blocks = cut(layer, hardware)
    choices = Choices((False,), (Group(1, held=frozenset({0, 1})),), (blocks,))
    plan = check(single(layer), hardware, choices=choices)
    loads = [step for step in plan.steps if isinstance(step, Copy) and step.source.space == FLASH]
    assert load_cycles(layer, blocks, hardware) == sum(copy_cycles(step.nbytes, 1, hardware) for step in loads)
    buffers = [buffer.nbytes for buffer in plan.local if buffer.space == WEIGHTS]
    assert all_bytes(layer, blocks, hardware) == sum(round_up(nbytes, hardware.buffer_alignment) for nbytes in buffers)
