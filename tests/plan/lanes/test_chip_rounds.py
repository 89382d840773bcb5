"""Tuning one region on a chip: every plan on the way is right, the best one is never worse, whoever evaluates."""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import permutations
from random import Random

import pytest
from chip_machine import check_chip_plan
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_chips import PAIR, TWINS, VECTOR
from plan_samples import Samples, graph_of
from test_chip_plans import EXAMPLES, chip_regions, values_of
from test_shared_memory import shared_chips

from byoc_hw.accelerator import SMALL, TuningSpace
from byoc_hw.errors import InvalidInput
from byoc_hw.plan.lanes.chip_rounds import ChipScores, ChipSpace, chip_search
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.search.within import Border, Room
from byoc_hw.plan.steps import Started
from byoc_hw.plan.tune.scores import evaluated, packed
from byoc_hw.soc import Soc

TIGHT = Soc(tuple(replace(SMALL, name=name, activation_memory=4096, dma_width=2) for name in ("one", "two")))


def branches(seed=0):
    """Two branches of different sizes, added up, and a convolution behind."""
    samples = Samples(seed)
    ifm = samples.tensor((1, 12, 12, 16))
    first = samples.conv2d(ifm, 16, (3, 3), padding=(1, 1, 1, 1))
    left = samples.conv2d(first.ofm, 24, (3, 3), padding=(1, 1, 1, 1))
    right = samples.conv2d(first.ofm, 24, (1, 1))
    both = samples.add(left.ofm, right.ofm)
    last = samples.conv2d(both.ofm, 16, (1, 1))
    return graph_of([ifm], [first, left, right, both, last], [last.ofm])


@cache
def tight_plan():
    """The planner's plan of these."""
    return plan_region(branches(), TIGHT)


def walk(space, choices, count, seed=0):
    random = Random(seed)
    for _ in range(count):
        choices = space.moved(choices, random)
        yield choices


@pytest.mark.slow
@given(st.one_of(chip_regions(), chip_regions(), shared_chips()), st.integers(0, 99))
@settings(EXAMPLES, max_examples=examples(6))
def test_any_choices_on_the_way_give_an_exact_plan_in_the_cycles_of_their_score_above_the_bound(region, seed):
    check_choices_on_the_way(*region, seed)


def check_choices_on_the_way(chip, graph, seed):
    own = plan_region(graph, chip)
    inputs, expected = values_of(graph)
    scores = ChipScores(graph, chip)
    for choices in walk(ChipSpace(graph, chip), own.choices, 6, seed):
        score = scores(choices)
        if score is not None:
            plan = plan_region(graph, chip, choices)
            check_chip_plan(plan, expected, inputs, permutations(range(len(plan.parts))))
            started = [step for part in plan.parts for step in part.plan.steps if isinstance(step, Started)]
            assert score == (plan.cycles, len(started), plan.scratch_bytes)
            assert plan.bound <= plan.cycles == lanes_timeline(plan).total
            assert plan.choices.parts == choices.parts


def test_moves_lead_to_all_that_can_be_chosen():
    graph = branches()
    own = tight_plan().choices
    met = list(walk(ChipSpace(graph, TIGHT), own, 400, seed=2))
    parts = [part for choices in met for part in choices.parts]
    assert {len(part.cut.layers) for part in parts} >= {1, 2, 3}
    assert {part.cut.lane for part in parts} == {0, 1}
    assert {part.cut.axis for part in parts if part.cut.rows} >= {1, 3}
    assert {part.pieces for part in parts} == {part.choices.fine for part in parts} == {False, True}
    cuts = Counter((cut.layers, cut.axis, cut.lane) for cut in {part.cut for part in parts})
    assert max(cuts.values()) > 3  # borders of shares move
    assert len({group.stripes for part in parts for group in part.choices.groups}) > 2
    orders = {tuple(part.cut.layers for part in choices.parts) for choices in met}
    assert any(list(order) != sorted(order) for order in orders)
    assert {choices.order for choices in met} == {own.order}


def test_moves_change_which_tensors_share_blocks_where_any_do():
    graph = branches()
    space, own = ChipSpace(graph, TIGHT), tight_plan().choices
    assert not any(choices.blocks for choices in walk(space, own, 100))
    shared = replace(own, blocks=((0, 1), (2, 3)))
    found = {space.moved(shared, Random(seed)).blocks for seed in range(300)}
    joined = {((0, 1),), ((2, 3),), ((1, 2, 3),), ((0, 2, 3),), ((0, 1, 2),), ((0, 1, 3),)}
    assert found == {shared.blocks} | joined


def test_steps_of_all_layers_on_one_accelerator_are_those_of_that_accelerator():
    chip = Soc(TIGHT.accelerators[:1])
    own = plan_region(branches(), chip).choices
    assert own.alone
    met = list(walk(ChipSpace(branches(), chip), own, 50))
    assert all(choices.alone for choices in met)
    assert len({choices.parts[0].choices for choices in met}) > 20


def test_steps_stay_in_the_space_that_the_vendor_describes():
    narrow = TuningSpace(longest_group=1, stripes=(1, 2, 4), overlap=False, tile=False, patches=False, halos=False)
    chip = Soc(tuple(replace(one, tuning=narrow, activation_memory=6144) for one in TIGHT.accelerators))
    own = plan_region(branches(), chip).choices
    met = [own, *walk(ChipSpace(branches(), chip), own, 200)]
    groups = {group for choices in met for part in choices.parts for group in part.choices.groups}
    assert {1, 2, 4} <= {group.stripes for group in groups} <= {1, 2, 3, 4}  # 3 of 2 rows each, where 4 were meant
    assert not any(group.patched or group.kept or group.tiling or group.pieces > 1 for group in groups)
    assert not any(group.overlap and group.stripes > 1 for group in groups)


@pytest.mark.slow
@pytest.mark.parametrize("chip", [PAIR, TWINS, VECTOR], ids=["pair", "twins", "library"])
def test_the_best_plan_is_never_worse_than_the_planners_and_takes_the_cycles_it_says(chip):
    tuned = chip_search(branches(), chip).best(budget=60)
    assert tuned.after <= tuned.before == plan_region(branches(), chip).cycles
    check_tuned(tuned, chip)


def check_tuned(tuned, chip):
    graph = branches()
    plan = plan_region(graph, chip, tuned.choices)
    assert plan.cycles == tuned.after
    inputs, expected = values_of(graph)
    check_chip_plan(plan, expected, inputs, permutations(range(len(plan.parts))))


@pytest.mark.slow
def test_finds_a_better_plan_the_same_whoever_evaluates_and_whatever_the_weights():
    alone = chip_search(branches(), TIGHT).best(budget=30, seed=3)
    assert alone.after < alone.before == tight_plan().cycles
    check_tuned(alone, TIGHT)
    with ProcessPoolExecutor(2) as pool:
        other = chip_search(branches(seed=1), TIGHT).best(budget=30, seed=3, executor=pool)
    assert other == alone


def test_a_region_that_is_sent_gets_the_score_that_it_has_here():
    samples = Samples()
    ifm = samples.tensor((1, 12, 12, 16))
    first = samples.conv2d(ifm, 32, (3, 3), padding=(1, 1, 1, 1))
    both = samples.add(first.ofm, samples.constant(first.ofm.shape))
    graph = graph_of([ifm], [first, both], [both.ofm])
    own = plan_region(graph, TIGHT).choices
    assert evaluated(packed(ChipScores, graph, TIGHT), own) == ChipScores(graph, TIGHT)(own)


def test_a_library_whose_functions_cannot_be_sent_has_no_workers():
    rule = "executor: the description of SOC is sent to its workers, so each function in it is one of a module"
    with ProcessPoolExecutor(1) as pool, pytest.raises(InvalidInput, match=rule):
        chip_search(branches(), VECTOR).best(budget=10, executor=pool)


def test_a_plan_that_needs_more_main_memory_or_flash_than_there_is_does_not_count():
    plan = tight_plan()
    assert plan.scratch_bytes > 0
    scores = ChipScores(branches(), TIGHT)
    assert scores(plan.choices) is not None
    assert ChipScores(branches(), replace(TIGHT, ram=plan.scratch_bytes - 1))(plan.choices) is None
    border, most = Border({}, {}), 1 << 30
    assert ChipScores(branches(), TIGHT, Room(border, most, most))(plan.choices) is not None
    for ram, flash in ((plan.scratch_bytes - 1, most), (most, 100)):
        assert ChipScores(branches(), TIGHT, Room(border, ram, flash))(plan.choices) is None


def test_constants_that_are_copied_to_main_memory_count():
    chip = replace(TIGHT, accelerators=tuple(replace(one, dma_reads_flash=False) for one in TIGHT.accelerators))
    plan = plan_region(branches(), chip)
    needed = plan.scratch_bytes + plan.memory.constants
    assert needed > plan.scratch_bytes
    assert ChipScores(branches(), replace(chip, ram=needed))(plan.choices) is not None
    assert ChipScores(branches(), replace(chip, ram=needed - 1))(plan.choices) is None


def test_plans_with_many_more_copies_and_jobs_do_not_count():
    plan = tight_plan()
    assert ChipScores(branches(), TIGHT)(plan.choices, most=1000) is not None
    assert ChipScores(branches(), TIGHT)(plan.choices, most=10) is None
