"""The bound of small regions on several accelerators: each lane has whole shares, and what it needs for them."""

import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from effort import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from plan_chips import PAIR, TWINS
from plan_graphs import accelerators, graphs
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.graph import Weighted
from byoc_hw.plan.array.kinds import rows_at_a_time
from byoc_hw.plan.bound import prices, sharing
from byoc_hw.plan.bound.latency import latencies
from byoc_hw.plan.bound.needs import whole_sums
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.sharing_copies import CopyRules
from byoc_hw.plan.bound.ways import LayerWork
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import WEIGHTS, Copy, Job
from byoc_hw.soc import Soc

WORDS = Soc(tuple(replace(one, dma_alignment=4) for one in TWINS.accelerators))
TRIPLETS = Soc(tuple(replace(REFERENCE, name=name) for name in ("one", "two", "three")))


def small(seed):
    """A few layers in a row or beside each other."""
    samples, random = Samples(seed), np.random.default_rng(seed)
    image = samples.tensor((1, int(random.integers(3, 9)), 6, 8))
    layers = []
    for _ in range(int(random.integers(1, 4))):
        value = random.choice([image, *(layer.ofm for layer in layers)][-2:])
        kind = random.integers(3)
        if kind == 0:
            layers.append(samples.conv2d(value, 16, (1, 1)))
        elif kind == 1:
            layers.append(samples.depthwise(value, padding=(1, 1, 1, 1)))
        else:
            layers.append(samples.conv2d(value, 8, (3, 3), padding=(1, 1, 1, 1)))
    read = {tensor for layer in layers for tensor in layer.inputs}
    return graph_of([image], layers, [layer.ofm for layer in layers if layer.ofm not in read])


@functools.cache
def planned(seed, chip):
    return plan_region(small(seed), chip)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("chip", [PAIR, TWINS, TRIPLETS], ids=["pair", "twins", "triplets"])
def test_no_plan_is_below_the_bound(seed, chip):
    plan = planned(seed, chip)
    assert 0 < plan.bound <= plan.cycles


@st.composite
def small_regions(draw):
    """Two or three accelerators that may differ, and a graph of up to four layers."""
    names = ("one", "two", "three")[: draw(st.integers(2, 3))]
    one, *others = (replace(draw(accelerators()), name=name) for name in names)
    chip = Soc((one, *(replace(other, dma_alignment=one.dma_alignment) for other in others)))
    return chip, draw(graphs(one, draw(st.integers(1, 4))))


@pytest.mark.slow
@given(small_regions())
@settings(max_examples=examples(30))
def test_no_plan_of_random_layers_is_below_the_bound(region):
    chip, graph = region
    try:
        plan = plan_region(graph, chip)
    except PlanError:
        reject()
    assert plan.bound <= plan.cycles


def test_a_pooling_is_shared_in_any_parts():
    """Half of the channels each: two copies and half of the work, which is not in whole groups."""
    samples = Samples(1)
    image = samples.tensor((1, 1, 5, 8))
    layer = samples.pool(image, kernel=(3, 3), strides=(1, 1), padding=(0, 0, 2, 0))
    small = {"array_rows": 2, "array_columns": 2, "depthwise_rows": 1, "elementwise_width": 16}
    lane = replace(REFERENCE, dma_setup=70, dma_width=4, dma_alignment=1, local_alignment=4, **small)
    plan = plan_region(
        graph_of([image], [layer], [layer.ofm]), Soc(tuple(replace(lane, name=name) for name in ("one", "two")))
    )
    assert plan.bound <= plan.cycles < 2 * (lane.dma_setup + 1) + 9 * layer.ofm.elements / 16


@pytest.mark.parametrize("seed", range(3))
def test_layers_that_may_be_summed_at_once_are_in_no_slices(seed):
    """What the bound takes for granted: no job of such a layer adds to partial sums."""
    graph = planned(seed, TWINS).graph
    for part in planned(seed, TWINS).parts:
        for call in part.plan.calls:
            layer = graph.layers[part.layers[call.index]]
            if isinstance(layer, Weighted) and whole_sums(layer, REFERENCE, TWINS):
                assert all(step.first and step.last for step in call.steps if isinstance(step, Job))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("chip", [PAIR, TWINS, WORDS], ids=["pair", "twins", "words"])
def test_a_lane_has_one_part_of_a_layer_whose_weights_come_in_one_copy(seed, chip):
    """What the bound takes for granted of layers of no more channels than a group has."""
    plan = planned(seed, chip)
    graph, copied = plan.graph, Counter()
    for part in plan.parts:
        one, begun = chip.accelerators[part.lane], set()
        for call in part.plan.calls:
            index = part.layers[call.index]
            begun |= {index} if any(isinstance(step, Job) for step in call.steps) else set()
        copied.update((part.lane, index) for index in begun)
        small_ones = [at for at in begun if isinstance(graph.layers[at], Weighted)]
        if all(graph.layers[at].out_channels <= rows_at_a_time(graph.layers[at], one) for at in small_ones):
            loads = [step for step in part.plan.steps if isinstance(step, Copy) and step.target.space == WEIGHTS]
            assert len(loads) <= len(small_ones)
    assert copied
    assert set(copied.values()) == {1}


def bound_of(layers, outputs, chip=TWINS):
    return cycles_bound(graph_of([layers[0].ifm], layers, outputs), chip)


def test_weights_of_layers_before_come_before_the_weights_of_a_layer():
    """A lane loads weights for each of three layers, or something of what a layer reads: one copy after the other."""
    samples = Samples(1)
    layers = [samples.depthwise(samples.tensor((1, 4, 4, 8)), padding=(1, 1, 1, 1))]
    for _ in range(2):
        layers.append(samples.depthwise(layers[-1].ofm, padding=(1, 1, 1, 1)))
    copy, weights = REFERENCE.dma_setup + 1, REFERENCE.dma_setup + 9 * 8 // REFERENCE.dma_width
    least = min(copy + 3 * weights, 2 * copy + weights)
    assert bound_of(layers, [layers[-1].ofm]) > least + copy


def test_a_group_of_all_pixels_begins_when_the_layer_before_is_complete(monkeypatch):
    """16 pixels of 16 channels are one group of each of three layers, whose jobs follow one another."""
    samples = Samples(1)
    layers = [samples.conv2d(samples.tensor((1, 4, 4, 64)), 16, (1, 1))]
    for _ in range(2):
        layers.append(samples.conv2d(layers[-1].ofm, 16, (1, 1)))
    bound = bound_of(layers, [layers[-1].ofm])
    monkeypatch.setattr(sharing, "whole_sums", lambda *_: False)
    assert bound_of(layers, [layers[-1].ofm]) < bound


def program_of(layers, outputs, chip):
    """The program of the shares of all layers."""
    graph = graph_of([layers[0].ifm], layers, outputs)
    works, counted = [LayerWork(layer, chip) for layer in layers], [True] * len(layers)
    times = latencies(graph, chip, works, counted)
    return sharing._Program(graph, chip, works, list(range(len(layers))), times, 1)


@pytest.mark.parametrize(("chip", "may_have_more"), [(TWINS, "INFEASIBLE"), (PAIR, "OPTIMAL")], ids=["twins", "pair"])
def test_the_second_of_two_equal_lanes_has_no_larger_share_of_the_first_layer(chip, may_have_more):
    samples = Samples(1)
    layer = samples.pool(samples.tensor((1, 4, 4, 8)), "max", (2, 2))
    program = program_of([layer], [layer.ofm], chip)
    elements = program.of_layer[0].elements
    program.model.add(elements[0] < elements[1])
    assert program._meets(program.most, 1.0)[0] == may_have_more


def test_equal_lanes_among_others_have_shares_of_the_first_layer_in_their_order():
    samples = Samples(1)
    layer = samples.pool(samples.tensor((1, 4, 4, 8)), "max", (2, 2))
    chip = Soc((*TWINS.accelerators, replace(REFERENCE, name="other", dma_width=8)))
    for larger, may_be in ((1, "INFEASIBLE"), (2, "OPTIMAL")):
        program = program_of([layer], [layer.ofm], chip)
        elements = program.of_layer[0].elements
        program.model.add(elements[0] < elements[larger])
        assert program._meets(program.most, 1.0)[0] == may_be


def test_a_pixel_that_two_of_three_lanes_lack_is_whole_on_the_third():
    """Two lanes have something of less than all pixels, and the third one less than all channels: something is missing,
    though there are enough elements."""
    layer = Samples(1).depthwise(Samples(1).tensor((1, 4, 4, 8)), padding=(1, 1, 1, 1))
    for missing, status in ((1, "INFEASIBLE"), (0, "OPTIMAL")):
        program = program_of([layer], [layer.ofm], TRIPLETS)
        share = program.of_layer[0]
        program.model.add(share.pixels[0] + share.pixels[1] <= 16 - 1)
        program.model.add(share.channels[2] <= 8 - missing)
        assert program._meets(program.most, 1.0)[0] == status


def test_what_a_lane_reads_of_several_others_is_stored_by_these():
    """Of the first layer the last lane computes nothing, of the second one everything."""
    samples = Samples(1)
    first = samples.pool(samples.tensor((1, 4, 4, 8)), "max", (2, 2))
    last = samples.pool(first.ofm, "max", (2, 2))
    chip = replace(TRIPLETS, accelerators=(*TWINS.accelerators, replace(REFERENCE, name="other", dma_width=8)))
    ends = []
    for own in (0, first.ofm.elements):
        program = program_of([first, last], [last.ofm], chip)
        program.model.add(program.of_layer[0].elements[2] == own)
        program.model.add(program.of_layer[1].elements[2] == last.ofm.elements)
        program.model.add(sum(program.of_layer[1].elements[:2]) == 0)
        ends.append(program.solved())
    handed, alone = ends
    assert handed >= alone + REFERENCE.dma_setup


def test_three_lanes_have_a_higher_bound_than_any_parts_of_layers(monkeypatch):
    """Weights of each lane that has a share, and what it copies before its first job."""
    samples = Samples(1)
    first = samples.depthwise(samples.tensor((1, 8, 8, 8)), padding=(1, 1, 1, 1))
    last = samples.pool(first.ofm, "max", (2, 2))
    bound = bound_of([first, last], [last.ofm], TRIPLETS)
    monkeypatch.setattr(prices, "cycles_of_sharing", lambda *given: given[-1])
    assert bound > 1.05 * bound_of([first, last], [last.ofm], TRIPLETS)


def test_an_array_has_nothing_to_do_before_its_first_job():
    """Two layers beside each other, on the only lane that can run them: all of the first one's many weights come before
    its first job, and both layers follow."""
    samples = Samples(1)
    image = samples.tensor((1, 4, 4, 16))
    layers = [samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1)) for _ in range(2)]
    limits = {kind: REFERENCE.limits[kind] for kind in ("conv2d", "add")}
    one = replace(REFERENCE, name="one", limits={"conv2d": limits["conv2d"]}, packed_rows=False)
    two = replace(REFERENCE, name="two", limits={"add": limits["add"]})
    weights, group = 16 * 9 * 16 + 16 * 12, 9 * 16 + 2 * 16 * 3 + REFERENCE.job_overhead
    copies = REFERENCE.dma_setup + weights // 16 + REFERENCE.dma_setup
    assert bound_of(layers, [layer.ofm for layer in layers], Soc((one, two))) >= copies + 2 * 4 * group


def test_one_copy_may_bring_the_weights_of_several_layers():
    """Five layers of one group each on one lane: a copy of the image, one of all weights, the jobs and the store are a
    legal plan."""
    samples, many = Samples(1), 5
    layers = [samples.depthwise(samples.tensor((1, 1, 16, 16)), (1, 1))]
    for _ in range(many - 1):
        layers.append(samples.depthwise(layers[-1].ofm, (1, 1)))
    setup, width = REFERENCE.dma_setup, REFERENCE.dma_width
    image, weights = setup + 256 // width, setup + many * (16 + 16 * 12) // width
    assert bound_of(layers, [layers[-1].ofm]) <= image + weights + many * (1 + 2 + REFERENCE.job_overhead) + image


def test_copies_need_not_take_time_to_start():
    """Layers whose weights come in blocks, on accelerators whose copies take as long as their bytes."""
    samples = Samples(1)
    layers = [samples.conv2d(samples.tensor((1, 4, 4, 32)), 32, (1, 1))]
    for _ in range(3):
        layers.append(samples.conv2d(layers[-1].ofm, 32, (1, 1)))
    quick = Soc(tuple(replace(one, dma_setup=0) for one in TWINS.accelerators))
    plan = plan_region(graph_of([layers[0].ifm], layers, [layers[-1].ofm]), quick)
    assert 4 * (32 + 2 * 32 + REFERENCE.job_overhead) <= plan.bound <= plan.cycles


def test_sums_may_be_in_slices_where_memory_is_small_or_there_is_one_accelerator():
    layer = small(0).layers[0]
    layer = Samples(1).conv2d(layer.ifm, 16, (3, 3))
    assert whole_sums(layer, REFERENCE, TWINS)
    assert not whole_sums(layer, REFERENCE, Soc((REFERENCE,)))
    assert not whole_sums(layer, replace(REFERENCE, weight_memory=4096), TWINS)
    assert not whole_sums(layer, replace(REFERENCE, activation_memory=256), TWINS)


def test_shares_in_whole_numbers_cost_more_than_mixtures(monkeypatch):
    """Weights of each lane that has a share, and what it copies before its first job, are in the one bound only."""
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 8))
    first = samples.depthwise(image, padding=(1, 1, 1, 1))
    last = samples.pool(first.ofm, "max", (2, 2))
    graph = graph_of([image], [first, last], [last.ofm])
    plan = plan_region(graph, TWINS)
    monkeypatch.setattr(prices, "cycles_of_sharing", lambda *given: given[-1])
    assert 1.1 * cycles_bound(graph, TWINS) < plan.bound <= plan.cycles < 1.1 * plan.bound


def test_a_lane_with_all_layers_takes_as_long_as_the_only_one_of_a_chip():
    """The rules for one accelerator know that it saves nothing before all that a group needs is there."""
    samples = Samples(1)
    first = samples.depthwise(samples.tensor((1, 4, 4, 16)), padding=(1, 1, 1, 1))
    last = samples.pool(first.ofm, "max", (2, 2))
    small = replace(REFERENCE, array_rows=8, depthwise_rows=8, dma_width=4, dma_setup=10)
    lanes = [replace(small, name="one"), replace(REFERENCE, name="two", dma_setup=5000)]
    alone = cycles_bound(graph_of([first.ifm], [first, last], [last.ofm]), lanes[0])
    assert bound_of([first, last], [last.ofm], Soc(tuple(lanes))) == alone


def test_a_layer_with_groups_begins_with_the_weights_of_one():
    """Weights come in blocks of a group, though the array has rows for the channels of all."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 4, 4, 16)), 32, (3, 3), padding=(1, 1, 1, 1), groups=2)
    fast = replace(REFERENCE, name="one", array_rows=32, array_columns=8, dma_width=1, dma_setup=10, packed_rows=False)
    chip = Soc((fast, replace(fast, name="two", dma_setup=20000)))
    plan = plan_region(graph_of([layer.ifm], [layer], [layer.ofm]), chip)
    assert 0.9 * plan.cycles < plan.bound <= plan.cycles


def test_what_comes_in_one_copy_is_there_before_the_first_job(monkeypatch):
    """A pooling of a large image on lanes whose copies take long to start."""
    samples = Samples(1)
    layer = samples.pool(samples.tensor((1, 16, 16, 16)), "max", (2, 2))
    slow = Soc(tuple(replace(one, dma_setup=500, dma_width=4) for one in TWINS.accelerators))
    bound = bound_of([layer], [layer.ofm], slow)
    monkeypatch.setattr(CopyRules, "_again", lambda *_: 0)
    assert bound > 1.05 * bound_of([layer], [layer.ofm], slow)


def test_other_chips_and_large_regions_have_the_bound_of_prices(monkeypatch):
    def unexpected(*_):
        raise AssertionError("no program is made")

    monkeypatch.setattr(sharing, "_Program", unexpected)
    graph = small(1)
    many = Soc(tuple(replace(REFERENCE, name=f"lane{at}") for at in range(sharing.MOST_LANES + 1)))
    for chip in (Soc((REFERENCE,)), replace(TWINS, shared=(("one", "two"),)), many):
        assert cycles_bound(graph, chip) > 0
    monkeypatch.setattr(sharing, "MOST_LAYERS", 0)
    assert cycles_bound(graph, TWINS) > 0
