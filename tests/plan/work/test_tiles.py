"""Every plan, whatever the tiles, gives what the whole layer gives."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, FLASH, WEIGHTS, Copy, Job

SEEDS = st.integers(0, 2**32 - 1)

# Mostly memories that do not hold the layers below.
MEMORIES = st.integers(150, 600) | st.integers(150, 2500) | st.integers(150, 20000) | st.just(262144)

SMALL_ACCELERATORS = st.builds(
    accelerator,
    MEMORIES,
    MEMORIES,
    array_rows=st.sampled_from([4, 8, 16]),
    array_columns=st.sampled_from([4, 8, 16]),
    depthwise_rows=st.sampled_from([1, 4, 16]),
    local_alignment=st.sampled_from([4, 8, 16]),
    dma_width=st.sampled_from([4, 16]),
)


@st.composite
def windows(draw, largest_kernel=5):
    """Kernel, strides and padding of a window, and an input height and width that it fits."""
    kernel = draw(st.tuples(*[st.integers(1, largest_kernel)] * 2))
    strides = draw(st.tuples(*[st.sampled_from([1, 2])] * 2))
    padding = tuple(draw(st.integers(0, kernel[side % 2] - 1)) for side in range(4))
    height, width = (draw(st.integers(kernel[axis], kernel[axis] + 14)) for axis in range(2))
    return {"kernel": kernel, "strides": strides, "padding": padding}, height, width


def check_or_refused(graph, hardware):
    """A plan that is right, or a refusal that says how much memory there would have to be."""
    try:
        check(graph, hardware)
    except PlanError as error:
        assert "bytes needed" in str(error)  # noqa: PT017


@given(windows(), st.integers(1, 24), st.integers(1, 40), st.sampled_from([8, 4, 2]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_convolution_in_tiles_is_the_convolution(window, in_channels, channels, bits, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    layer = samples.conv2d(samples.tensor((1, height, width, in_channels)), channels, bits=bits, **geometry)
    check_or_refused(single(layer), hardware)


@given(windows(), st.integers(1, 40), st.sampled_from([8, 4, 2]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=60, deadline=None)
def test_depthwise_in_tiles_is_the_depthwise(window, channels, bits, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    layer = samples.depthwise(samples.tensor((1, height, width, channels)), bits=bits, **geometry)
    check_or_refused(single(layer), hardware)


@given(
    st.sampled_from([1, 1, 2, 19]),
    st.integers(1, 300),
    st.integers(1, 40),
    st.sampled_from([8, 4, 2]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=25, deadline=None)
def test_dense_in_slices_is_the_dense(rows, depth, channels, bits, hardware, seed):
    samples = Samples(seed)
    check_or_refused(single(samples.dense(samples.tensor((rows, depth)), channels, bits)), hardware)


@given(
    windows(largest_kernel=7),
    st.integers(1, 40),
    st.sampled_from(["avg", "max"]),
    st.booleans(),
    st.booleans(),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=60, deadline=None)
def test_pooling_in_tiles_is_the_pooling(window, channels, mode, rescaled, include, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    ifm = samples.tensor((1, height, width, channels))
    rescaled = rescaled and mode == "avg"
    check_or_refused(single(samples.pool(ifm, mode, rescaled=rescaled, include=include, **geometry)), hardware)


@given(st.tuples(*[st.integers(1, 12)] * 3), st.sampled_from(["two", "same", "constant"]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_addition_in_runs_is_the_addition(extents, second, hardware, seed):
    samples = Samples(seed)
    ifm = samples.tensor((1, *extents))
    others = {"two": samples.tensor(ifm.shape), "same": ifm, "constant": samples.constant(ifm.shape)}
    check(single(samples.add(ifm, others[second])), hardware)


@given(st.integers(1, 30), st.integers(1, 60), SMALL_ACCELERATORS, st.sampled_from([1, 2, 4]), SEEDS)
@settings(max_examples=60, deadline=None)
def test_softmax_in_tiles_of_whole_rows_is_the_softmax(rows, channels, hardware, dma_alignment, seed):
    samples = Samples(seed)
    channels = -(-channels // dma_alignment) * dma_alignment if rows * channels % dma_alignment else channels
    hardware = replace(hardware, dma_alignment=dma_alignment)
    check_or_refused(single(samples.softmax(samples.tensor((rows, channels)))), hardware)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.data(), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=80, deadline=None)
def test_every_permutation_of_axes_is_made_by_copies(extents, data, hardware, seed):
    samples = Samples(seed)
    axes = data.draw(st.permutations(range(len(extents) + 1)))
    check(single(samples.transpose(samples.tensor((1, *extents)), axes)), hardware)


# ---------------------------------------------------------------- what a plan costs


def copies(plan, space):
    """The copies of a plan that read from the space."""
    return [step for step in plan.steps if isinstance(step, Copy) and step.source.space == space]


def test_every_byte_is_moved_once_where_a_layer_fits():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 32, 32, 16)), 16, padding=(1, 1, 1, 1))
    plan = check(single(layer), REFERENCE)
    moved = [sum(copy.nbytes for copy in copies(plan, space)) for space in (ARGUMENT, FLASH, ACTIVATIONS)]
    assert moved == [layer.ifm.nbytes, len(plan.flash), layer.ofm.nbytes]


def test_input_stays_in_local_memory_for_all_channel_tiles():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 8, 8, 64)), 64, padding=(1, 1, 1, 1))
    plan = check(single(layer), accelerator(262144, 16384))
    assert [copy.nbytes for copy in copies(plan, ARGUMENT)] == [8 * 8 * 64]
    assert len(copies(plan, FLASH)) > 1


def test_input_stays_although_the_weights_of_all_its_channels_do_not_fit():
    samples = Samples()
    plan = check(single(samples.dense(samples.tensor((1, 600)), 48)), accelerator(4096, 2048))
    assert [copy.nbytes for copy in copies(plan, ARGUMENT)] == [600]
    assert any(not step.first for step in plan.calls[0].steps if isinstance(step, Job))


def test_rows_that_no_output_needs_are_not_copied():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 8, 8, 4)), 4, kernel=(1, 1), strides=(2, 2))
    plan = check(single(layer), REFERENCE)
    assert sum(copy.nbytes * copy.rows for copy in copies(plan, ARGUMENT)) == 7 * 8 * 4


def test_several_channel_tiles_are_whole_groups_of_the_array():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 10, 10, 32)), 40, padding=(1, 1, 1, 1))
    plan = check(single(layer), accelerator(16384, 8192))
    channels = [step.ofm_shape[2] for step in plan.calls[0].steps if isinstance(step, Job)]
    assert set(channels) == {16, 8}


def test_transposition_of_planes_takes_a_copy_for_each_plane():
    samples = Samples()
    plan = check(single(samples.transpose(samples.tensor((1, 3, 16, 16)), (0, 2, 3, 1))), REFERENCE)
    assert len(copies(plan, ARGUMENT)) == 1
    assert len(copies(plan, ACTIVATIONS)) == 3


def test_packed_narrow_weights_take_fewer_bytes_of_flash():
    samples = Samples()
    sizes = [
        len(check(single(samples.dense(samples.tensor((1, 256)), 16, bits)), REFERENCE).flash) for bits in (8, 4, 2)
    ]
    assert sizes == [16 * (256 // divisor + 12) for divisor in (1, 2, 4)]


# ---------------------------------------------------------------- refusals


def test_names_the_memory_that_the_smallest_tile_does_not_fit():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 16, 16, 4)), 4, kernel=(11, 11))
    with pytest.raises(PlanError, match=f"{layer.name}: .* local activation memory: .* bytes needed, 100 bytes there"):
        plan_region(single(layer), accelerator(100, 4096))
    with pytest.raises(PlanError, match=f"{layer.name}: .* local weight memory: 169 bytes needed, 100 bytes there"):
        plan_region(single(layer), accelerator(4096, 100))


def test_refuses_a_window_that_sees_nothing_but_padding():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 1)), 1, kernel=(1, 1), padding=(1, 0, 0, 0))
    with pytest.raises(PlanError, match="padding is less than the kernel: got 1 for 1"):
        plan_region(single(layer), REFERENCE)


def test_the_rows_of_a_dense_layer_are_cut_as_the_pixels_of_a_row():
    samples = Samples()
    layer = samples.dense(samples.tensor((37, 24)), 9)
    assert [job.ofm_shape for job in check(single(layer), REFERENCE).steps if isinstance(job, Job)] == [(1, 37, 9)]
    small = [job.ofm_shape for job in check(single(layer), accelerator(512, 512)).steps if isinstance(job, Job)]
    assert max(width for _, width, _ in small) < 37


def test_refuses_a_batch_and_a_dilation_that_a_tile_cannot_say():
    samples = Samples()
    pool = samples.pool(samples.tensor((1, 4, 4, 1)))
    batched = replace(pool, ifm=samples.tensor((2, 4, 4, 1)), ofm=samples.tensor((2, 2, 2, 1)))
    with pytest.raises(PlanError, match=f"{pool.name}: batch is 1: got 2"):
        plan_region(single(batched), REFERENCE)
    conv = samples.conv2d(samples.tensor((1, 9, 9, 1)), 1)
    dilated = replace(conv, dilation=(2, 2), ofm=samples.tensor((1, 5, 5, 1)))
    with pytest.raises(PlanError, match=f"{conv.name}: dilation is 1: got 2 x 2"):
        plan_region(single(dilated), REFERENCE)


@pytest.mark.parametrize("channels", [4, 8, 12])
def test_unaligned_shapes_are_avoided_where_the_dma_has_an_alignment(channels):
    samples = Samples()
    hardware = accelerator(2048, 2048, dma_alignment=4)
    check(single(samples.conv2d(samples.tensor((1, 9, 9, channels)), 24, padding=(1, 1, 1, 1))), hardware)
    check(single(samples.add(*[samples.tensor((1, 33, 5, channels))] * 2)), hardware)
    check(single(samples.pool(samples.tensor((1, 20, 20, channels)))), hardware)


def test_names_the_memory_also_where_slices_are_whole_dma_words():
    samples = Samples()
    for channels in (3, 4, 9):
        layer = samples.conv2d(samples.tensor((1, 8, 8, channels)), 8)
        with pytest.raises(PlanError, match=f"{layer.name}: the smallest tile fits local activation memory"):
            plan_region(single(layer), accelerator(24, 4096, dma_alignment=4))


@pytest.mark.parametrize("alignment", [2, 4, 8, 32])
def test_tensors_that_end_inside_a_word_of_the_dma_are_padded(alignment):
    samples = Samples()
    hardware = accelerator(dma_alignment=alignment)
    conv = samples.conv2d(samples.tensor((1, 5, 5, 3)), 7)
    dense = samples.dense(samples.reshape(conv.ofm, (1, 63)).ofm, 10)
    check(single(conv), hardware)
    check(single(dense), hardware)
    check(single(samples.add(*[samples.tensor((1, 3, 5, 3))] * 2)), hardware)
    flat = samples.reshape(conv.ofm, (1, 63))
    dense = samples.dense(flat.ofm, 10)
    check(graph_of([conv.ifm], [conv, flat, dense], [conv.ofm, dense.ofm]), hardware)


def test_names_the_length_that_the_dma_cannot_take():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 40, 5, 3)), 8)  # too large for one tile
    with pytest.raises(PlanError, match=f"{layer.name}: a copy's .* are multiples of 32 bytes: got "):
        plan_region(single(layer), accelerator(700, dma_alignment=32))
    layer = samples.transpose(samples.tensor((1, 8, 8, 8)), (0, 3, 1, 2))
    with pytest.raises(PlanError, match=f"{layer.ofm.name}: a copy's .* are multiples of 4 bytes: got length 1"):
        plan_region(single(layer), accelerator(dma_alignment=4))


def test_copies_reach_only_what_the_spaces_say():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 5, 5, 3)), 8)
    plan = check(single(layer), REFERENCE)
    into_weights = [step for step in plan.calls[0].steps if isinstance(step, Copy) and step.target.space == WEIGHTS]
    assert all(copy.source.space == FLASH for copy in into_weights)
