"""Plans that are made better by choices near them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE, SMALL, TuningSpace
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.search import estimate
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.measured import MeasuredRuns
from byoc_hw.plan.search.planner import best_layout, map_choices
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.stages import lay_out
from byoc_hw.plan.tune import near_choices, nearby, own_plan
from byoc_hw.plan.tune.nearby import better_nearby
from byoc_hw.plan.tune.own_plan import own_layout
from byoc_hw.plan.tune.space import SearchSpace


def late_weights():
    """The second layer's weights take longer to load than the first one has to compute."""
    samples = Samples()
    ifm = samples.tensor((1, 6, 6, 16))
    first = samples.pool(ifm)
    second = samples.conv2d(ifm, 32, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([ifm], [first, second], [first.ofm, second.ofm])


SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8)


def test_an_array_that_waits_for_weights_gets_them_in_blocks():
    graph = late_weights()
    estimated, found = best_layout(graph, SLOW), own_layout(graph, SLOW)
    assert estimated.choices.blocks[1] is None
    assert found.choices.blocks[1] is not None
    assert cycles_bound(graph, SLOW) <= found.cycles < 0.95 * estimated.cycles
    check(graph, SLOW)


def test_a_layer_in_tiles_has_no_other_blocks_of_weights():
    graph = late_weights()
    space = SearchSpace(graph, SLOW)
    (tiling, *_) = tilings(graph.layers[1], SLOW, ((1, 1),))
    blocks = {True: 0, False: 0}
    for tiled in blocks:
        groups = Group(1), Group(1, tiling=tiling if tiled else None)
        blocks[tiled] = len(list(near_choices._cuts(space, Choices((False,), groups, (None, None)), 1, 1, 2)))
    assert blocks[True] == 0 < blocks[False]


def halves(graph, hardware, groups, blocks):
    """The blocks of each layer in choices with halves of some, but for the layers that keep theirs."""
    choices = Choices((False,), groups, blocks)
    found = lay_out(map_choices(graph, hardware, choices), choices)
    others = near_choices.halved_blocks(SearchSpace(graph, hardware), found)
    return [[(at, one) for at, one in enumerate(other.blocks) if one != blocks[at]] for other in others]


def test_blocks_have_half_the_channels():
    """Half the input channels where the weights are a large part of weight memory. A pooling layer has no weights."""
    graph, groups = late_weights(), (Group(1), Group(1))
    large = replace(SLOW, weight_memory=12 * 1024)
    assert halves(graph, SLOW, groups, (None, None)) == [[(1, Blocks(16, 16))]]
    assert halves(graph, large, groups, (None, None)) == [[(1, Blocks(16, 16))], [(1, Blocks(32, 8))]]
    assert halves(graph, large, groups, (None, Blocks(5, 1))) == [[(1, Blocks(3, 1))]]


def test_a_depthwise_layer_begins_with_the_first_channels():
    samples = Samples()
    ifm = samples.tensor((1, 6, 6, 8))
    first = samples.depthwise(ifm, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 8, (1, 1))
    graph = graph_of([ifm], [first, second], [second.ofm])
    hardware = replace(REFERENCE, array_rows=8, array_columns=16, depthwise_rows=1, dma_width=2, dma_setup=10)
    found = own_layout(graph, hardware)
    assert found.choices.blocks[0] == Blocks(2, 1)
    check(graph, hardware)


def test_weights_of_all_layers_are_in_smaller_blocks_where_the_last_ones_are_waited_for():
    """Four of the planner's blocks have no room in weight memory, and the array waits for the last layer alone."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 64))
    layers = [samples.conv2d(ifm, 64, (1, 1))]
    for channels in (64, 64, 64, 128, 256):
        layers.append(samples.conv2d(layers[-1].ofm, channels, (1, 1)))
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    hardware = replace(REFERENCE, weight_memory=16384, dma_width=2)
    estimated, found = best_layout(graph, hardware), own_layout(graph, hardware)
    assert estimated.choices.blocks[1] is None
    assert found.choices.blocks[1] is not None
    assert found.cycles < 0.97 * estimated.cycles


@pytest.mark.slow
def test_blocks_of_all_input_channels_leave_room_for_larger_patches(monkeypatch):
    """Three blocks of the first layer fit weight memory in slices of input channels alone: partial sums take four bytes
    an output. Larger slices, which are another way out, are left alone."""
    monkeypatch.setattr(estimate, "_LARGER", 0)
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 16, 16, 16)), 96, (1, 1))
    between = samples.depthwise(wide.ofm, (3, 3), (2, 2), (1, 1, 1, 1))
    layers = [wide, between, samples.conv2d(between.ofm, 32, (1, 1))]
    graph = graph_of([wide.ifm], layers, [layers[-1].ofm])
    sizes = {"array_rows": 32, "array_columns": 16, "depthwise_rows": 32, "dma_width": 1}
    tiny = replace(REFERENCE, activation_memory=2048, weight_memory=1024, **sizes)
    found = own_layout(graph, tiny)
    check(graph, tiny)
    monkeypatch.setattr(Grouping, "without_sums", lambda grouping: grouping)
    assert found.cycles < 0.7 * own_layout(graph, tiny).cycles


@pytest.mark.slow
def test_tiles_that_take_turns_come_in_pieces():
    """Two tiles have no room side by side, and smaller ones would load many rows twice."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 20, 20, 48)), 96, padding=(1, 1, 1, 1))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    hardware = accelerator(8192, 16384, dma_width=1, dma_setup=70, array_columns=32)
    found = own_layout(graph, hardware)
    assert found.choices.groups[0].pieces > 1
    assert found.cycles < 0.9 * 208871  # of the best plan whose tiles are copied as a whole
    check(graph, hardware)


def test_layers_are_grouped_where_the_outputs_would_be_stored_at_the_end():
    samples = Samples()
    ifm = samples.tensor((1, 16, 16, 16))
    layers = [samples.depthwise(ifm, padding=(1, 1, 1, 1))]
    layers.append(samples.add(layers[0].ofm, ifm))
    layers.append(samples.add(layers[1].ofm, ifm))
    graph = graph_of([ifm], layers, [layers[1].ofm, layers[2].ofm])
    hardware = replace(REFERENCE, dma_width=4)
    estimated, found = best_layout(graph, hardware), own_layout(graph, hardware)
    assert len(estimated.choices.groups) == 3
    assert any(group.layers > 1 for group in found.choices.groups)
    assert found.cycles < 0.95 * estimated.cycles


def space_to_depth(axes=(0, 1, 3, 2, 4, 5)):
    """Pixels that become channels of a convolution's input, eight rows of them."""
    samples = Samples(1)
    apart = samples.reshape(samples.tensor((1, 32, 32, 4)), (1, 8, 4, 8, 4, 4))
    turned = samples.transpose(apart.ofm, axes)
    image = samples.reshape(turned.ofm, (1, 8, 8, 64))
    layers = [apart, turned, image, samples.conv2d(image.ofm, 32, (3, 3), padding=(1, 1, 1, 1))]
    return graph_of([apart.ifm], layers, [layers[-1].ofm])


def test_a_layer_waits_for_the_first_stripes_of_a_transposition_alone():
    graph = space_to_depth()
    found = own_layout(graph, REFERENCE)
    turned = found.choices.groups[0]
    assert turned.stripes > 1
    whole = lay_out(found.mapped, found.choices.with_group(0, replace(turned, stripes=1)))
    assert found.cycles < whole.cycles
    check(graph, REFERENCE)


@pytest.mark.parametrize(("axes", "stripes"), [((0, 1, 3, 2, 4, 5), 8), ((0, 3, 1, 2, 4, 5), 1)])
def test_a_transposition_has_stripes_of_what_is_outermost_on_both_sides(axes, stripes):
    space = SearchSpace(space_to_depth(axes), REFERENCE)
    choices = Choices(space.unswapped, (Group(3, stripes=32), Group(1)), (None,) * 4)
    assert space.canonical(choices).groups[0] == Group(3, stripes=stripes)


def late_rows():
    """The input takes longer to load than the first layer has to compute. The layer that reads it has no weights."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 48, 48, 4)), 8, (3, 3), (2, 2), (1, 1, 1, 1))
    layers = [first, samples.depthwise(first.ofm, (3, 3), padding=(1, 1, 1, 1))]
    for _ in range(3):
        layers.append(samples.conv2d(layers[-1].ofm, 8, (1, 1)))
    return graph_of([first.ifm], layers, [layers[-1].ofm])


def test_a_layer_that_waits_for_its_input_takes_turns_with_the_next_one(monkeypatch):
    graph, hardware = late_rows(), replace(REFERENCE, dma_width=2)
    found = best_layout(graph, hardware)
    monkeypatch.setattr(nearby, "MOST_WORK", 10 * len(found.work.ops))
    assert found.choices.groups[0].layers == 1
    better = better_nearby(found, 0)
    assert better.choices.groups[0].layers == 2
    assert better.cycles < 0.97 * found.cycles


def test_behind_a_better_plan_the_search_goes_on_where_it_was(monkeypatch):
    graph = late_weights()
    start = best_layout(graph, SLOW)
    better = better_nearby(start, 0).choices
    kinds = []

    def kind(name, *found):
        def choices(space, layout):
            kinds.append(name)
            yield from found

        return choices

    given = (kind("first"), kind("better", better), kind("last"))
    monkeypatch.setattr(nearby, "choices_by_kind", lambda layout: given)
    assert better_nearby(start, 0).choices == better
    assert kinds == ["first", "better", "better", "last", "first", "better", "last"]


@pytest.mark.slow
@given(regions())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_plan_gets_worse_and_the_same_one_is_found_again(region):
    hardware, graph = region
    estimated = best_layout(graph, hardware)
    found = better_nearby(estimated, 0)
    assert found.cycles <= estimated.cycles
    assert better_nearby(estimated, 0).choices == found.choices


@pytest.mark.parametrize(
    "space",
    [TuningSpace(hold=False), TuningSpace(longest_group=1), TuningSpace(overlap=False, resident=False)],
    ids=["hold", "longest_group", "overlap and resident"],
)
def test_choices_stay_in_the_tuning_space(space):
    graph, hardware = late_weights(), replace(accelerator(1500, 2500, dma_width=2), tuning=space)
    for group in own_layout(graph, hardware).choices.groups:
        assert space.hold or not group.held
        assert group.layers <= space.longest_group
        assert group.stripes == 1 or space.overlap or not (group.overlap or group.resident)


def test_a_plan_near_the_bound_is_left_alone():
    graph = late_weights()
    estimated = best_layout(graph, SLOW)
    assert better_nearby(estimated, estimated.cycles) is estimated


@pytest.mark.parametrize(("columns", "searched"), [(16, [True]), (8, [False])])
def test_a_mapping_whose_jobs_alone_take_longer_than_a_plan_of_another_is_not_searched(monkeypatch, columns, searched):
    """Where the array has as many columns as a row has pixels, there is nothing to pack."""
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 32)), 32, (3, 3), padding=(1, 1, 1, 1))]
    layers.append(samples.conv2d(layers[-1].ofm, 32, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    packed = []

    class Noted(MeasuredRuns):
        def __init__(self, mapped, *others):
            packed.append(bool(mapped.mapping.packed))
            super().__init__(mapped, *others)

    monkeypatch.setattr(own_plan, "_LONG", 0)
    monkeypatch.setattr(own_plan, "MeasuredRuns", Noted)
    found = own_layout(graph, accelerator(6 * 1024, dma_width=8, array_columns=columns))
    assert packed[:1] == searched
    assert len(packed) == 1
    assert bool(found.mapped.mapping.packed) == searched[0]


def test_both_mappings_are_searched_where_the_dma_takes_longer_than_the_jobs(monkeypatch):
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 32)), 32, (3, 3), padding=(1, 1, 1, 1))]
    graph = graph_of([layers[0].ifm], [*layers, samples.conv2d(layers[0].ofm, 8, (1, 1))], [])
    graph = replace(graph, outputs=(graph.layers[-1].ofm,))
    known = []

    class Noted(MeasuredRuns):
        def __init__(self, mapped, *others):
            known.append(others[-1])
            super().__init__(mapped, *others)

    monkeypatch.setattr(own_plan, "_LONG", 0)
    monkeypatch.setattr(own_plan, "MeasuredRuns", Noted)
    own_layout(graph, accelerator(6 * 1024, dma_width=1))
    assert len(known) >= 2
    assert known[0] is known[1]  # what is alike is estimated once


def test_both_mappings_are_searched_where_their_plans_take_about_as_long():
    """With packed rows more copies are in the way at first, and once they come at other times fewer cycles are left."""
    samples = Samples(100)
    layers = [samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, (1, 1))]
    layers.append(samples.depthwise(layers[-1].ofm, (3, 3), padding=(1, 1, 1, 1)))
    layers.append(samples.add(layers[-1].ofm, layers[0].ofm))
    layers.append(samples.conv2d(layers[-1].ofm, 8, (1, 1)))
    layers.append(samples.depthwise(layers[-1].ofm, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    array = {"array_rows": 8, "array_columns": 32, "depthwise_rows": 8}
    hardware = replace(REFERENCE, activation_memory=8192, weight_memory=16384, dma_width=4, **array)
    estimated, found = best_layout(graph, hardware), own_layout(graph, hardware)
    assert not estimated.choices.packed
    assert found.choices.packed
    assert found.cycles < 0.95 * estimated.cycles


def test_inputs_that_jobs_may_read_swapped_make_no_plan_slower():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 25, 5, 64)), 64, (1, 1))
    deep = samples.depthwise(first.ofm, padding=(1, 1, 1, 1))
    last = samples.conv2d(deep.ofm, 64, (1, 1))
    pool = samples.pool(last.ofm, kernel=(25, 5))
    graph = graph_of([first.ifm], [first, deep, last, pool], [pool.ofm])
    hardware = replace(SMALL, dma_width=1)
    found = best_layout(graph, hardware)
    assert found.choices.jobs_transpose, "the fastest plan by estimates reads them so"
    plain = own_layout(graph, replace(hardware, packed_rows=False))
    assert own_layout(graph, hardware).cycles <= plain.cycles < found.cycles


def test_a_layer_that_packed_rows_keep_the_array_from_filling_is_in_tiles():
    """A window of three rows takes packed ones in two groups instead of four, and single pixels behind it as many,
    where one would do. By themselves they take these from main memory, where nothing lies between rows."""
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 4, 4, 16)), 16, (3, 3), padding=(1, 1, 1, 1))
    flat = samples.conv2d(wide.ofm, 64, (1, 1))
    graph = graph_of([wide.ifm], [wide, flat], [flat.ofm])
    hardware = replace(REFERENCE, array_rows=4, array_columns=16, dma_setup=10)
    found = own_layout(graph, hardware)
    assert found.choices.packed
    assert [group.tiling is not None for group in found.choices.groups] == [False, True]
    assert sum(found.work.ops[index].cycles for index in found.order.jobs) < found.mapped.array_cycles
    check(graph, hardware)


@pytest.mark.parametrize("packed", [frozenset(), frozenset({0}), frozenset({0, 1})])
def test_one_of_several_bands_is_packed_or_not(packed):
    """The planner packs all that are worth it, or none; first come those that take the array fewer cycles."""
    samples = Samples()
    ifm = samples.tensor((1, 4, 4, 8))
    one = samples.conv2d(ifm, 16, (3, 3), padding=(1, 1, 1, 1))
    half = samples.pool(one.ofm, strides=(2, 2))
    other = samples.conv2d(half.ofm, 16, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([ifm], [one, half, other], [other.ofm])
    space = SearchSpace(graph, REFERENCE)
    choices = Choices((False,) * len(space.unswapped), (Group(3),), (None,) * 3, packed=packed)
    layout = lay_out(space.groups_of(choices).mapped, choices)
    faster, slower = (near_choices._bands(space, layout, faster=which) for which in (True, False))
    assert {*faster} == {replace(choices, packed=packed | {band}) for band in {0, 1} - packed}
    assert {*slower} == {replace(choices, packed=packed - {band}) for band in packed}


def test_a_band_from_which_a_slice_is_stored_stays_as_it_is():
    """Packed rows lie apart, and the slice is stored from rows as they are."""
    samples = Samples(0)
    images = [samples.tensor((1, 9, 9, 8)) for _ in range(2)]
    bands = []
    for image in images:
        bands.append(samples.conv2d(image, 8, (3, 3), padding=(1, 1, 1, 1)))
        bands.append(samples.conv2d(bands[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
    part = samples.slice(bands[1].ofm, (0, 4, 4, 0), (1, 2, 2, 8), (1, 1, 1, 1))
    graph, hardware = graph_of(images, [*bands, part], [part.ofm, bands[-1].ofm]), accelerator(packed_rows=True)
    choices = replace(own_layout(graph, hardware).choices, stored=frozenset({4}), packed=frozenset())
    space = SearchSpace(graph, hardware)
    assert len(space.packable(choices.stored)) == 2
    layout = lay_out(map_choices(graph, hardware, choices), choices)
    found = [one.packed for which in (True, False) for one in near_choices._bands(space, layout, faster=which)]
    assert found == [frozenset({1})]
    check(graph, hardware, choices=choices)
