"""Images of narrow rows in local memory as one row: exact, in fewer cycles, never in more."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_graphs import accelerators, graphs
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.mapping import map_layers
from byoc_hw.plan.array.packing import bands
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
from byoc_hw.plan.region import lay_out_region, plan_region
from byoc_hw.plan.steps import FLASH, Copy, Job

PACKING = ["conv", "conv", "depthwise", "depthwise", "pointwise", "add", "mul", "lookup", "pool"]
SAME = (1, 1, 1, 1)


def unpacked(hardware):
    return replace(hardware, packed_rows=False)


def jobs(plan, layer):
    """The jobs of a layer, by its place."""
    return [step for call in plan.calls if call.index == layer for step in call.steps if isinstance(step, Job)]


def fills(plan):
    """The copies of anything but weights out of flash, into local activations."""
    return [
        step for step in plan.steps if isinstance(step, Copy) and step.source.space == FLASH and step.target.space == 0
    ]


def test_rows_of_8_pixels_fill_an_array_of_16_columns():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 8, 8, 64)), 64, padding=SAME)
    plan = check(single(layer), REFERENCE)
    assert lay_out_region(single(layer), REFERENCE).choices.packed == {0}
    plan = check(single(layer), REFERENCE, choices=Choices((False,), (Group(1),), (None,), packed=frozenset({0})))
    (job,) = jobs(plan, 0)
    assert job.ifm_shape == (3, 73, 64)  # with the padding on the left of the first row, and on the right of the last
    assert (job.ifm_row, job.ofm_shape) == (9 * 64, (1, 71, 64))
    assert least_alone([layer], REFERENCE) == 19660 < best_cycles(layer, REFERENCE) == 31456
    assert {job.ofm_shape[1] for job in jobs(check(single(layer), DIANA_DIGITAL), 0)} == {8}


def test_what_lies_between_rows_is_filled_while_other_rows_are_computed():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 8, 8, 16)), 16, padding=SAME)
    second = samples.conv2d(first.ofm, 16, padding=SAME)
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    held = frozenset({0, 1, 2})
    choices = Choices((False,), (Group(1, held=held),) * 2, (None,) * 2, packed=frozenset({0}))
    plan = check(graph, REFERENCE, choices=choices)
    assert [job.ofm_shape[1] for job in jobs(plan, 0)] == [64, 7]  # the last 7 outputs have nothing between rows
    assert [job.ofm_shape[1] for job in jobs(plan, 1)] == [71]
    # The input has room above, below and between its rows; so has what lies between the layers.
    assert sorted(copy.nbytes * copy.rows for copy in fills(plan)) == [7 * 16] * 2 + [2 * 10 * 16] * 2
    order, job = lay_out_region(graph, REFERENCE, choices).order, 16 * 9 + 2 * 16 * 3 + 23
    starts = [order.start[index] for index in order.jobs]
    assert starts == [starts[0], starts[0] + 4 * job, starts[0] + 5 * job]  # no job waits for what lies between rows


def test_additions_and_tables_run_over_packed_rows():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 7, 7, 16)), 16, padding=SAME)
    added = samples.add(first.ofm, first.ifm)
    table = samples.lookup(added.ofm)
    last = samples.depthwise(table.ofm, padding=SAME)
    graph = graph_of([first.ifm], [first, added, table, last], [last.ofm])
    choices = Choices((False,), (Group(4),), (None,) * 4, packed=frozenset({0}))
    plan = check(graph, REFERENCE, choices=choices)
    assert [job.ofm_shape for layer in (1, 2) for job in jobs(plan, layer)] == [(1, 55 * 16, 1)] * 2
    assert [job.ofm_shape[0] for job in jobs(plan, 3)] == [1]


def test_an_image_that_others_read_by_rows_is_packed_all_the_same():
    """A pool and a stride of 2 read rows that lie apart, and write such rows."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 14, 14, 16)), 32, strides=(2, 2), padding=SAME)
    second = samples.conv2d(first.ofm, 32, padding=SAME)
    last = samples.pool(second.ofm, kernel=(7, 7))
    plan = check(graph_of([first.ifm], [first, second, last], [last.ofm]), REFERENCE)
    assert jobs(plan, 0)[0].ofm_row == 8 * 32
    assert {job.ofm_shape[0] for job in jobs(plan, 1)} == {1}
    pool = jobs(plan, 2)[0]
    assert pool.ifm_row == 8 * pool.ifm_pixel


def test_stripes_are_packed_by_themselves():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 6, 16)), 16, padding=SAME)
    second = samples.conv2d(first.ofm, 16, padding=SAME)
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    choices = Choices((False,), (Group(2, 4),), (None, None), packed=frozenset({0}))
    plan = check(graph, replace(REFERENCE, activation_memory=4096), choices=choices)
    assert {job.ofm_shape[0] for job in jobs(plan, 1)} == {1}
    assert sum(job.ofm_shape[1] for job in jobs(plan, 1)) == 4 * (5 * 7 + 6)


def test_a_kernel_in_parts_and_slices_of_channels_share_sums_over_packed_rows():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 5, 32)), 16, kernel=(1, 5), padding=(0, 2, 0, 2))
    limits = REFERENCE.limits | {"conv2d": replace(REFERENCE.limits["conv2d"], max_kernel=(1, 3))}
    hardware = accelerator(8192, 65536, limits=limits)
    choices = Choices((False,), (Group(1),), (None,), packed=frozenset({0}))
    plan = check(single(layer), hardware, choices=choices)
    assert [job.kernel for job in jobs(plan, 0)] == [(1, 3), (1, 2)]
    sliced = check(single(layer), hardware, choices=replace(choices, blocks=(Blocks(8, 20),)))
    assert [job.ifm_shape[2] for job in jobs(sliced, 0)] == [20, 20, 12, 12] * 2


def test_padding_above_and_below_alone_packs_whole_images():
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 6, 6, 16)), kernel=(3, 1), padding=(1, 0, 1, 0))
    choices = Choices((False,), (Group(1),), (None,), packed=frozenset({0}))
    plan = check(single(layer), REFERENCE, choices=choices)
    assert [job.ofm_shape for job in jobs(plan, 0)] == [(1, 36, 16)]
    assert [copy.rows for copy in fills(plan)] == [2]


def test_a_packed_image_goes_to_main_memory_as_it_is():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 16)), 16, padding=SAME)
    second = samples.conv2d(first.ofm, 16, padding=SAME)
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    choices = Choices((False,), (Group(1), Group(1)), (None, None), packed=frozenset({0}))
    plan = check(graph, REFERENCE, choices=choices)
    assert plan.scratch_bytes == 6 * 6 * 16
    assert plan.moved["spilled"] == 2 * 6 * 6 * 16
    assert plan.moved["reordered"] == 0


def test_a_layer_in_tiles_reads_packed_images_from_main_memory():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 9, 9, 16)), 32, padding=SAME)
    last = samples.pool(first.ofm, kernel=(9, 9))
    graph = graph_of([first.ifm], [first, last], [last.ofm])
    tiles = Group(1, overlap=False, resident=False, tiling=Tiling(1, 1, 8, 8))
    choices = Choices((False,), (Group(1, 3), tiles), (None,) * 2, packed=frozenset({0}))
    plan = check(graph, accelerator(4096, 65536), choices=choices)
    assert {job.ofm_shape[0] for job in jobs(plan, 0)} == {1}
    assert [job.ifm_row for job in jobs(plan, 1)] == [9 * 8] * 4


def test_a_region_whose_largest_image_is_pooled_in_tiles_is_packed():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 20, 20, 8)), 64, padding=SAME)
    last = samples.pool(first.ofm, kernel=(20, 20))
    graph = graph_of([first.ifm], [first, last], [last.ofm])
    hardware = replace(REFERENCE, activation_memory=16384)
    layout = lay_out_region(graph, hardware)
    assert layout.choices.packed == {0}
    assert layout.cycles < 0.9 * lay_out_region(graph, unpacked(hardware)).cycles
    check(graph, hardware)


def test_bands_are_layers_of_stride_1_that_share_images():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 12, 12, 4)), 4, padding=SAME)
    second = samples.conv2d(first.ofm, 4, padding=SAME, strides=(2, 2))
    third = samples.depthwise(second.ofm, padding=SAME)
    added = samples.add(third.ofm, second.ofm)
    pool = samples.pool(added.ofm, kernel=(6, 6))
    layers: list[Layer] = [first, second, third, added, pool]
    assert bands(layers) == (0, None, 1, 1, None)


def test_packed_rows_are_refused_where_they_cannot_be():
    samples = Samples()
    graph = single(samples.conv2d(samples.tensor((1, 8, 8, 4)), 4, padding=SAME))
    choices = Choices((False,), (Group(1),), (None,), packed=frozenset({0}))
    with pytest.raises(PlanError, match="accelerator hwlib has no packed_rows"):
        plan_region(graph, DIANA_DIGITAL, choices)
    with pytest.raises(PlanError, match=r"bands whose rows are packed are some of its own: got \[3\]"):
        plan_region(graph, SMALL, replace(choices, packed=frozenset({3})))
    assert "packed bands: 0" in str(choices)


def test_an_image_that_is_reshaped_stays_as_it_is():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 6, 4)), 4, padding=SAME)
    reshaped = samples.reshape(layer.ofm, (1, 144))
    graph = graph_of([layer.ifm], [layer, reshaped], [reshaped.ofm])
    assert map_layers(graph, REFERENCE, packed=[0]).rows.images == {}
    check(graph, REFERENCE)


def upsampled(samples, shape=(1, 6, 5, 16), channels=16, by=(2, 2)):
    """A transposed convolution, whose transposition is layer 2, and a window behind it."""
    ifm = samples.tensor(shape)
    layers = samples.upsampled(ifm, channels, by)
    last = samples.conv2d(layers[-1].ofm, 8, padding=SAME)
    return graph_of([ifm], [*layers, last], [last.ofm])


def test_images_before_and_behind_a_transposition_that_stores_do_are_packed():
    graph = upsampled(Samples())
    assert map_layers(graph, REFERENCE, packed=[0, 1], stored=[2]).rows.layers == {0, 4}
    chosen = lay_out_region(graph, REFERENCE).choices
    assert (chosen.stored, chosen.packed) == ({2}, {0, 1})
    choices = Choices((False,) * 3, (Group(1),) * 5, (None,) * 5, stored=frozenset({2}), packed=frozenset({0, 1}))
    plan = check(graph, REFERENCE, choices=choices)
    assert [job.ofm_shape for layer in (0, 4) for job in jobs(plan, layer)] == [(1, 35, 64), (1, 131, 8)]
    assert lay_out_region(graph, REFERENCE).cycles < 0.8 * lay_out_region(graph, unpacked(REFERENCE)).cycles


def test_images_beside_a_transposition_that_copies_do_stay_as_they_are():
    graph = upsampled(Samples())
    assert map_layers(graph, REFERENCE, packed=[0, 1]).rows.layers == set()
    choices = Choices((False,) * 3, (Group(1),) * 5, (None,) * 5, packed=frozenset({0, 1}))
    plan = check(graph, REFERENCE, choices=choices)
    assert {job.ofm_shape[0] for layer in (0, 4) for job in jobs(plan, layer)} == {6, 12}


def test_images_whose_reshapes_others_use_stay_as_they_are():
    graph = upsampled(Samples())
    apart, between = graph.layers[1].ofm, graph.layers[2].ofm
    for tensor, layers in ((apart, {4}), (between, {0})):
        other = replace(graph, outputs=(*graph.outputs, tensor))
        assert map_layers(other, REFERENCE, packed=[0, 1], stored=[2]).rows.layers == layers


EXAMPLES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large], deadline=None
)


@settings(EXAMPLES, max_examples=40)
@given(
    st.integers(0, 99),
    st.tuples(st.just(1), st.integers(2, 7), st.integers(2, 7), st.sampled_from([4, 8])),
    st.sampled_from([(2, 2), (1, 2), (2, 1), (3, 2)]),
    st.lists(st.integers(1, 5), min_size=2, max_size=2),
    st.sampled_from([frozenset({0}), frozenset({1}), frozenset({0, 1})]),
    st.booleans(),
)
def test_stores_of_packed_rows_transpose_and_zero_points_lie_around_what_comes_of_them(
    seed, shape, by, stripes, packed, tiled
):
    graph = upsampled(Samples(seed), shape, 4, by)
    tiles = Group(1, tiling=Tiling(2, 3, 8, shape[3]), resident=False)
    groups = tiles if tiled else Group(1, stripes[0]), *[Group(1)] * 3, Group(1, stripes[1])
    choices = Choices((False,) * 3, groups, (None,) * 5, stored=frozenset({2}), packed=packed)
    check(graph, REFERENCE, seed, choices)


@st.composite
def packing_regions(draw):
    """Narrow images under windows of stride 1, often in memories that hold them."""
    hardware = replace(draw(accelerators()), packed_rows=True)
    if draw(st.booleans()):
        hardware = replace(hardware, activation_memory=65536, weight_memory=65536)
    return hardware, draw(graphs(hardware, 6, PACKING))


_OTHER_WAY = 1.1
"""How much slower a plan may be than one of an accelerator without packed rows. Both searches begin with what is the
fastest before copies and jobs are cut, and try no other mapping that is about as fast: so either may end elsewhere."""


@pytest.mark.slow
@given(packing_regions())
@settings(EXAMPLES, max_examples=30)
def test_packed_rows_are_exact_and_hardly_ever_slower(region):
    hardware, graph = region
    plan = check(graph, hardware)
    assert plan.graph is graph
    assert lay_out_region(graph, hardware).cycles <= _OTHER_WAY * lay_out_region(graph, unpacked(hardware)).cycles
