"""Every plan, whatever the tiles, gives what the whole layer gives."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import estimated
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
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
def windows(draw, largest_kernel=5, dilated=True):
    """Kernel, strides and padding of a window, and an input height and width that it fits."""
    kernel = draw(st.tuples(*[st.integers(1, largest_kernel)] * 2))
    strides = draw(st.tuples(*[st.sampled_from([1, 2])] * 2))
    most = draw(st.sampled_from([-1, -1, 5]))
    padding = tuple(draw(st.integers(0, kernel[side % 2] + most)) for side in range(4))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 3)])) if dilated else (1, 1)
    reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation, strict=True)]
    height, width = (draw(st.integers(extent, extent + 7)) for extent in reach)
    window = {"kernel": kernel, "strides": strides, "padding": padding}
    return window | ({"dilation": dilation} if dilated else {}), height, width


def check_or_refused(graph, hardware):
    """A plan that is right, or a refusal that says how much memory there would have to be."""
    try:
        check(graph, hardware)
    except PlanError as error:
        assert "bytes needed" in str(error)  # noqa: PT017


@pytest.mark.slow
@given(windows(), st.integers(1, 20), st.integers(1, 24), st.sampled_from([8, 4, 2]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=15, deadline=None)
def test_convolution_in_tiles_is_the_convolution(window, in_channels, channels, bits, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    layer = samples.conv2d(samples.tensor((1, height, width, in_channels)), channels, bits=bits, **geometry)
    check_or_refused(single(layer), hardware)


@pytest.mark.slow
@given(windows(), st.integers(1, 40), st.sampled_from([8, 4, 2]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=15, deadline=None)
def test_depthwise_in_tiles_is_the_depthwise(window, channels, bits, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    layer = samples.depthwise(samples.tensor((1, height, width, channels)), bits=bits, **geometry)
    check_or_refused(single(layer), hardware)


@pytest.mark.slow
@given(
    windows(largest_kernel=3),
    st.tuples(st.integers(2, 4), st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([8, 4, 2]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=15, deadline=None)
def test_grouped_convolution_in_tiles_is_the_convolution(window, sizes, bits, hardware, seed):
    geometry, height, width = window
    groups, inputs, outputs = sizes
    samples = Samples(seed)
    ifm = samples.tensor((1, height, width, groups * inputs))
    layer = samples.conv2d(ifm, groups * outputs, bits=bits, groups=groups, **geometry)
    check_or_refused(single(layer), hardware)


def test_a_block_of_weights_holds_whole_groups_or_a_part_of_one():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 6, 24)), 48, groups=8)
    copied = {}
    for channels in (48, 20, 6, 4):
        plan = check(single(layer), REFERENCE, choices=Choices((False,), (Group(1),), (Blocks(channels, 3),)))
        assert {job.ofm_shape[2] for job in plan.steps if isinstance(job, Job)} == ({4, 2} if channels == 4 else {6})
        copied[channels] = len(copies(plan, FLASH))
    assert copied == {48: 1, 20: 3, 6: 8, 4: 16}


@pytest.mark.slow
@given(
    st.sampled_from([1, 1, 2, 19]),
    st.integers(1, 300),
    st.integers(1, 40),
    st.sampled_from([8, 4, 2]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=15, deadline=None)
def test_dense_in_slices_is_the_dense(rows, depth, channels, bits, hardware, seed):
    samples = Samples(seed)
    check_or_refused(single(samples.dense(samples.tensor((rows, depth)), channels, bits)), hardware)


@pytest.mark.slow
@given(
    windows(largest_kernel=7, dilated=False),
    st.integers(1, 40),
    st.sampled_from(["avg", "max"]),
    st.booleans(),
    st.booleans(),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_pooling_in_tiles_is_the_pooling(window, channels, mode, rescaled, include, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    ifm = samples.tensor((1, height, width, channels))
    rescaled = rescaled and mode == "avg"
    check_or_refused(single(samples.pool(ifm, mode, rescaled=rescaled, include=include, **geometry)), hardware)


@pytest.mark.slow
@given(
    windows(largest_kernel=7, dilated=False),
    st.integers(1, 20),
    st.sampled_from(["sum", "avg"]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=20, deadline=None)
def test_sums_and_tflites_means_in_tiles_are_the_sums(window, channels, mode, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    ifm = samples.tensor((1, height + 7, width + 7, channels))
    rounding = "upward" if mode == "sum" else "tflite"
    geometry = {**geometry, "padding": (0, 0, 0, 0), "rescaled": True, "rounding": rounding}
    check_or_refused(single(samples.pool(ifm, mode, **geometry)), hardware)


@given(st.tuples(*[st.integers(1, 12)] * 3), st.sampled_from(["two", "same", "constant"]), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_addition_in_runs_is_the_addition(extents, second, hardware, seed):
    samples = Samples(seed)
    ifm = samples.tensor((1, *extents))
    others = {"two": samples.tensor(ifm.shape), "same": ifm, "constant": samples.constant(ifm.shape)}
    check(single(samples.add(ifm, others[second])), hardware)


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(1, 60), SMALL_ACCELERATORS, st.sampled_from([1, 2, 4]), SEEDS)
@settings(max_examples=40, deadline=None)
def test_softmax_and_tables_by_channel_in_tiles_of_whole_rows(rows, channels, hardware, dma_alignment, seed):
    samples = Samples(seed)
    channels = -(-channels // dma_alignment) * dma_alignment if rows * channels % dma_alignment else channels
    hardware = replace(hardware, dma_alignment=dma_alignment)
    check_or_refused(single(samples.softmax(samples.tensor((rows, channels)))), hardware)
    check_or_refused(single(samples.lookup(samples.tensor((1, rows, channels)), by_channel=True)), hardware)


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.data(), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=40, deadline=None)
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
    assert sum(copy.nbytes * copy.rows for copy in copies(plan, ARGUMENT)) == 8 * 8 * 64
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
    plan = check(single(layer), replace(accelerator(16384, 8192), packed_rows=False))
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
    with pytest.raises(PlanError, match=f"{layer.name}: .* local weight memory: 133 bytes needed, 100 bytes there"):
        plan_region(single(layer), accelerator(4096, 100))


@pytest.mark.parametrize("swapped", [False, True])
def test_tiles_of_a_pointwise_layer_end_inside_a_row(swapped):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 5, 16)), 8, (1, 1))
    tiles = Group(1, overlap=False, resident=False, tiling=Tiling(1, 16, 8, 16))
    choices = Choices((swapped,), (Group(1), tiles, Group(1)), (None,) * 3, copies_transpose=False)
    before, after = samples.conv2d(samples.tensor((1, 6, 5, 4)), 16, (1, 1)), samples.conv2d(layer.ofm, 4, (1, 1))
    layer = replace(layer, ifm=before.ofm)
    plan = check(graph_of([before.ifm], [before, layer, after], [after.ofm]), REFERENCE, choices=choices)
    jobs = [step.ofm_shape for step in plan.steps if isinstance(step, Job)]
    assert jobs[1:-1] == [(1, 16, 8), (1, 14, 8)]


@pytest.mark.parametrize(("share", "often"), [(4, 1), (3, 4)])
def test_parameters_of_all_channels_lie_beside_slices_where_they_take_a_quarter_at_most(share, often):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 128)), 16, (1, 1))
    tiles = Group(1, overlap=False, resident=False, tiling=Tiling(1, 16, 4, 32))
    hardware = accelerator(weights=PARAMS_BYTES * 16 * share)
    plan = check(single(layer), hardware, choices=Choices((False,), (tiles,), (None,), copies_transpose=False))
    assert len(copies(plan, FLASH)) == often + 4 * (128 // 32)


def test_tiles_that_see_nothing_but_padding_lie_before_an_input():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 2, 2, 1)), 1, kernel=(2, 2), padding=(4, 0, 3, 1))
    plan = check(single(layer), REFERENCE, choices=Choices((False,), (Group(1, tiling=Tiling(2, 2, 1, 1)),), (None,)))
    padded = [(job.ifm_shape[0], job.padding[0], job.padding[2]) for job in plan.steps if isinstance(job, Job)]
    assert padded == [(1, 3, 0), (1, 2, 0), (2, 0, 1), (1, 3, 0)]


def test_refuses_padding_beyond_a_byte():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 1)), 1, kernel=(1, 1), padding=(0, 256, 0, 0))
    with pytest.raises(PlanError, match="padding is at most 255: got 256"):
        plan_region(single(layer), REFERENCE)


def test_the_rows_of_a_dense_layer_are_cut_as_the_pixels_of_a_row():
    samples = Samples()
    layer = samples.dense(samples.tensor((37, 24)), 9)
    large = check(single(layer), REFERENCE, choices=estimated(single(layer), REFERENCE))
    assert [job.ofm_shape for job in large.steps if isinstance(job, Job)] == [(1, 37, 9)]
    small = [job.ofm_shape for job in check(single(layer), accelerator(512, 512)).steps if isinstance(job, Job)]
    assert max(width for _, width, _ in small) < 37


def test_refuses_a_batch_and_a_dilation_that_a_tile_cannot_say():
    samples = Samples()
    pool = samples.pool(samples.tensor((1, 4, 4, 1)))
    batched = replace(pool, ifm=samples.tensor((2, 4, 4, 1)), ofm=samples.tensor((2, 2, 2, 1)))
    with pytest.raises(PlanError, match=f"{pool.name}: batch is 1: got 2"):
        plan_region(single(batched), REFERENCE)
    dilated = replace(pool, dilation=(2, 2), ofm=samples.tensor((1, 1, 1, 1)))
    with pytest.raises(PlanError, match=f"{pool.name}: dilation is 1: got 2 x 2"):
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


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 30), st.integers(1, 20)),
    st.sampled_from(["upward", "tflite"]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_a_matrix_product_in_stripes_and_tiles_is_the_product(sizes, rounding, hardware, seed):
    items, rows, depth, channels = sizes
    samples = Samples(seed)
    ifm, ifm2 = samples.tensor((items, rows, 1, depth)), samples.tensor((items, channels, depth))
    check_or_refused(single(samples.matmul(ifm, ifm2, rounding)), hardware)


def test_a_matrix_product_of_few_rows_at_a_time_keeps_its_second_input():
    """One item of 40 x 40 bytes, and rows of 80: not all rows fit beside it."""
    samples = Samples(5)
    layer = samples.matmul(samples.tensor((2, 30, 1, 40)), samples.tensor((2, 40, 40)))
    plan = check(single(layer), accelerator(2600, 64))
    loads = [step for step in plan.steps if isinstance(step, Copy) and step.inward and step.nbytes == 1600]
    assert len(loads) >= 2
    message = "an item of the second input and one row fit local activation memory: 1680 bytes needed, 1600 bytes there"
    with pytest.raises(PlanError, match=message):
        plan_region(single(layer), accelerator(1600, 64))


@pytest.mark.slow
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(2, 24)),
    st.booleans(),
    st.sampled_from(["upward", "tflite"]),
    SMALL_ACCELERATORS,
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_a_broadcast_input_stays_while_runs_of_pixels_are_computed(sizes, by_channel, rounding, hardware, seed):
    samples = Samples(seed)
    ifm, ifm2 = samples.tensor((1, *sizes)), samples.tensor((1, 1, 1, sizes[2] if by_channel else 1))
    check_or_refused(single(samples.mul(ifm, ifm2, rounding)), hardware)
    check_or_refused(single(samples.add(ifm, ifm2, rounding, subtract="ifm")), hardware)


def test_a_broadcast_input_is_loaded_once():
    """A pixel of 40 bytes beside runs of 12 of 100: input and output of 480 bytes each."""
    samples = Samples(5)
    layer = samples.mul(samples.tensor((1, 10, 10, 40)), samples.tensor((1, 1, 1, 40)))
    plan = check(single(layer), accelerator(1000, 64))
    loads = [step.nbytes for step in plan.steps if isinstance(step, Copy) and step.inward]
    assert loads == [40, *[480] * 8, 160]
    message = "the smallest tile fits local activation memory: 120 bytes needed, 116 bytes there"
    with pytest.raises(PlanError, match=message):
        plan_region(single(layer), accelerator(116, 64))


@pytest.mark.parametrize(("nbytes", "there"), [(64, 64), (97, 96)])
def test_only_whole_words_of_local_memory_hold_a_tile(nbytes, there):
    samples, hardware = Samples(), replace(accelerator(nbytes), dma_alignment=8)
    layer = samples.conv2d(samples.tensor((1, 14, 8, 8)), 16, kernel=(4, 3), strides=(2, 2))
    message = f"the smallest tile fits local activation memory: 97 bytes needed, {there} bytes there"
    with pytest.raises(PlanError, match=message):
        plan_region(single(layer), hardware)
