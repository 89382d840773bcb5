"""Tensors between parts that share a block of main memory: no byte is taken too early, and less memory is needed."""

import json
from dataclasses import replace
from functools import cache
from itertools import combinations, permutations

import pytest
from chip_machine import check_chip_plan
from effort import examples
from engine_machine import check_engines
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_chips import PAIR, TWINS
from plan_samples import Samples, graph_of
from test_chip_plans import EXAMPLES, check_without_each_event, chip_regions, separable, values_of
from test_shared_memory import shared_chips

from byoc_hw.errors import PlanError
from byoc_hw.plan.chip_choices import chip_choices_from_plain
from byoc_hw.plan.lanes.carried_out import CarriedOut
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.shared_blocks import SharedBlocks, TouchedTensor, layers_of_blocks, places_in_blocks
from byoc_hw.plan.lanes.within import sized_on_chip
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.search.within import Border

NO_BORDER = Border({}, {})


def inner(graph):
    """The layers whose outputs stay in the region."""
    return [index for index, layer in enumerate(graph.layers) if layer.ofm not in graph.outputs]


def check_with_blocks(chip, plan, blocks):
    """The plan with shared blocks, exact whichever lanes or engines are the faster ones, in the cycles foreseen."""
    shared = plan_region(plan.graph, chip, replace(plan.choices, blocks=blocks))
    inputs, expected = values_of(plan.graph)
    if chip.events:
        check_engines(shared, expected, inputs, 8)
    else:
        check_chip_plan(shared, expected, inputs, permutations(range(len(shared.parts))))
    assert lanes_timeline(shared).total == shared.cycles
    assert shared.choices.blocks == tuple(sorted(tuple(sorted(block)) for block in blocks))
    return shared


@cache
def smallest(chip):
    """A chain of layers on a chip, and the same with as many shared blocks as save bytes."""
    graph = separable(blocks=3, size=12, channels=16)
    plan = plan_region(graph, chip)
    region, parts = CarriedOut(graph, chip).parts(plan.choices)
    found = SharedBlocks(region, chip, parts, NO_BORDER).smallest()
    return plan, layers_of_blocks(found.blocks, region)


@pytest.mark.slow
@pytest.mark.parametrize("chip", [PAIR, replace(PAIR, events=4)], ids=["core", "events"])
def test_a_chain_needs_little_more_than_its_largest_tensor(chip):
    """Depthwise layers store a row or two before the one that they read, in hardly more cycles."""
    plan, blocks = smallest(chip)
    shared = check_with_blocks(chip, plan, blocks)
    largest = max(plan.graph.layers[index].ofm.nbytes for index in inner(plan.graph))
    assert sized_on_chip(plan, NO_BORDER).ram >= 2 * largest
    assert sized_on_chip(shared, NO_BORDER).ram < 1.4 * largest
    assert shared.cycles < 1.02 * plan.cycles


@pytest.mark.slow
def test_every_event_is_needed():
    """Those before a copy to bytes that another lane has read among them."""
    plan, blocks = smallest(PAIR)
    shared = check_with_blocks(PAIR, plan, blocks)
    assert check_without_each_event(shared) > 0


@pytest.mark.slow
@pytest.mark.parametrize("events", [0, 4])
def test_a_tensor_is_stored_when_the_one_before_was_read(events):
    """The DLA could store its second output while the DSP still reads the first one, which has the same place."""
    samples, same = Samples(), {"padding": (1, 1, 1, 1)}
    image = samples.tensor((1, 12, 12, 16))
    made = [samples.conv2d(image, 16, (3, 3), **same) for _ in range(2)]
    read = [samples.depthwise(one.ofm, (3, 3), **same) for one in made]
    graph = graph_of([image], [made[0], read[0], made[1], read[1]], [one.ofm for one in read])
    chip = replace(PAIR, events=events)
    plan = plan_region(graph, chip, place={"conv2d": "dla", "depthwise_conv2d": "dsp"})
    order = plan.choices.order
    shared = check_with_blocks(chip, plan, ((order.index(0), order.index(2)),))
    assert shared.scratch_bytes == made[0].ofm.nbytes < plan.scratch_bytes


@st.composite
def regions_with_blocks(draw):
    """A chip, a graph, and a way to share out some of the tensors to blocks."""
    chip, graph = draw(st.one_of(chip_regions(most=8), shared_chips(most=8)))
    chip = replace(chip, events=draw(st.sampled_from([0, 0, 3])))
    return chip, graph, draw(st.lists(st.integers(0, 2), min_size=16, max_size=16))


@pytest.mark.slow
@given(regions_with_blocks())
@settings(EXAMPLES, max_examples=examples(6))
def test_any_tensors_of_any_graph_can_share_blocks(region):
    chip, graph, numbers = region
    plan = plan_region(graph, chip)
    assume(not plan.choices.alone)
    assume(len(plan.parts) <= 4)  # all orders of them are tried
    order = plan.choices.order
    layers = [index for index in range(len(order)) if graph.layers[order[index]].ofm not in graph.outputs]
    among = [[index for index, number in zip(layers, numbers, strict=False) if number == one] for one in range(2)]
    assume(any(among))
    there = {life.name.rpartition(" ")[2] for life in plan.memory.scratch}
    names = [[index for index in block if graph.layers[order[index]].ofm.name in there] for block in among]
    check_with_blocks(chip, plan, tuple(tuple(block) for block in names if block))


# ---------------------------------------------------------------- places


def rows(first):
    """What touches six rows of eight bytes, one after the other, every second operation."""
    return [(first + 2 * row, 8 * row, 8 * row + 8) for row in range(6)]


def placed(tensors, touched):
    places = places_in_blocks([tensors], touched, 4)
    return [places[tensor].offset for tensor in tensors]


@pytest.mark.parametrize("halo", [0, 1, 3])
def test_rows_are_written_before_those_that_are_still_read(halo):
    """When a row of the later tensor is written, so many rows above it are still to be read of the earlier one."""
    samples = Samples()
    one, other = (samples.tensor((1, 6, 1, 8)) for _ in range(2))
    touched = {one: TouchedTensor([(0, 0, 48), *rows(2 + 2 * halo)]), other: TouchedTensor(rows(3))}
    assert placed((one, other), touched) == [8 * halo, 0]


def test_a_tensor_that_is_read_to_the_end_lies_beside_the_other():
    samples = Samples()
    one, other = (samples.tensor((1, 2, 1, 6)) for _ in range(2))
    touched = {one: TouchedTensor([(0, 0, 12), (9, 0, 12)]), other: TouchedTensor([(4, 0, 6), (5, 6, 12)])}
    assert sorted(placed((one, other), touched)) == [0, 12]


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 11), st.integers(1, 12)), min_size=1, max_size=8)


@given(st.lists(SPANS, min_size=2, max_size=4), st.sampled_from([1, 4, 16]))
@settings(deadline=None)
def test_no_byte_is_touched_behind_the_first_touch_of_another_tensor(found, unit):
    samples = Samples()
    tensors = tuple(samples.tensor((1, 1, 1, 12)) for _ in found)
    spans = [[(op, start, min(start + count, 12)) for op, start, count in sorted(some)] for some in found]
    touched = {tensor: TouchedTensor(some) for tensor, some in zip(tensors, spans, strict=True)}
    places = places_in_blocks([tensors], touched, unit)
    assert {place.block for place in places.values()} == {tensors[0]}
    assert min(place.offset for place in places.values()) == 0
    assert all(place.offset % unit == 0 for place in places.values())
    first = sorted((some[0][0], at) for at, some in enumerate(spans))
    for (_, at), (_, other) in combinations(first, 2):
        for later, start, stop in spans[other]:
            for op, begin, end in spans[at]:
                shift = places[tensors[other]].offset - places[tensors[at]].offset
                assert op < later or start + shift >= end or stop + shift <= begin


# ---------------------------------------------------------------- choices


@pytest.fixture(scope="module")
def chain():
    graph = separable(blocks=1, size=8, channels=8)
    return graph, plan_region(graph, TWINS).choices


def test_choices_say_which_tensors_share_a_block(chain):
    _, choices = chain
    blocks = replace(choices, order=(1, 0, 2), blocks=((0, 1),))
    assert str(blocks).endswith("\none block of main memory: %1, %0")
    assert chip_choices_from_plain(json.loads(json.dumps(blocks.plain()))) == blocks


def test_tensors_that_are_not_in_main_memory_share_none():
    """All layers are one part, as the tuner may make of those that were several."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8, (1, 1))
    graph = graph_of([first.ifm], [first, second := samples.conv2d(first.ofm, 8, (1, 1))], [second.ofm])
    plan = plan_region(graph, TWINS, place={"conv2d": "one"})
    shared = plan_region(graph, TWINS, replace(plan.choices, blocks=((0,),)))
    assert shared.choices.blocks == ()
    assert shared.cycles == plan.cycles


@pytest.mark.parametrize(
    ("blocks", "found"), [(((0, 0),), r"\[0, 0\]"), (((0,), (0,)), r"\[0, 0\]"), (((9,),), r"\[9\]")], ids=str
)
def test_layers_that_are_not_there_or_there_twice_are_refused(chain, blocks, found):
    graph, choices = chain
    with pytest.raises(PlanError, match=f"no outputs of the region, each once, of .*: got {found}"):
        plan_region(graph, TWINS, replace(choices, blocks=blocks))


def test_outputs_of_the_region_are_refused(chain):
    graph, choices = chain
    last = len(graph.layers) - 1
    with pytest.raises(PlanError, match=rf"no outputs of the region, each once, of .*: got \[{last}\]"):
        plan_region(graph, TWINS, replace(choices, blocks=((last,),)))
