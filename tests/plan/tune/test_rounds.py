"""Tuning one region: the same result for a seed whoever evaluates, never worse, exact where small, inside its space."""

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from random import Random

import pytest
from plan_check import check
from plan_choices import choose, evaluate
from plan_samples import Samples, accelerator, graph_of, hard_lifetimes, single

from byoc_hw.accelerator import TuningSpace
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.plan.choices import Choices, Group, from_plain
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.place.local import place_local
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.rounds import fingerprint, region_search
from byoc_hw.plan.tune.scores import RegionScores, evaluated, packed
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.plan.work.ops import Access, Op, activations

HARDWARE = accelerator(6 * 1024, 4 * 1024, dma_width=4)
"""Images that do not fit, and weights that fit in part."""


def residual(seed=0, height=20):
    """conv -> depthwise -> conv + shortcut -> pool -> reshape -> dense"""
    samples = Samples(seed)
    ifm = samples.tensor((1, height, 12, 16))
    first = samples.conv2d(ifm, 16, padding=(1, 1, 1, 1))
    second = samples.depthwise(first.ofm, padding=(1, 1, 1, 1))
    third = samples.conv2d(second.ofm, 16, kernel=(1, 1))
    add = samples.add(third.ofm, first.ofm)
    pool = samples.pool(add.ofm, kernel=(4, 4), strides=(2, 2))
    flat = samples.reshape(pool.ofm, (1, pool.ofm.elements))
    dense = samples.dense(flat.ofm, 24)
    return graph_of([ifm], [first, second, third, add, pool, flat, dense], [dense.ofm])


def dense_layer(seed=0):
    samples = Samples(seed)
    return single(samples.dense(samples.tensor((1, 300)), 30))


class Counting(Executor):
    """An executor that evaluates in this thread, and counts."""

    def __init__(self):
        self.count = 0

    def map(self, function, *arguments, timeout=None, chunksize=1):
        for given in zip(*arguments, strict=True):
            self.count += 1
            yield function(*given)


# ---------------------------------------------------------------- the outcome


@pytest.mark.slow
def test_finds_the_same_whoever_evaluates():
    graph = residual(height=10)
    alone = region_search(graph, HARDWARE).best(budget=15, seed=3)
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert region_search(graph, HARDWARE).best(budget=15, seed=3, executor=pool) == alone


@pytest.mark.slow
def test_finds_a_better_plan_that_is_right_and_takes_the_cycles_it_says():
    sizes = {"dma_width": 4, "dma_setup": 200, "array_rows": 8, "array_columns": 16}
    graph, tight = residual(), accelerator(1200, 1500, **sizes)
    tuned = region_search(graph, tight).best(budget=60)
    assert tuned.before == evaluate(graph, choose(graph, tight), tight)
    assert tuned.after < tuned.before
    plan = check(graph, tight, choices=from_plain(tuned.choices.plain()))
    assert timeline(plan, tight).total == tuned.after


@pytest.mark.slow
def test_a_smaller_budget_is_never_worse_than_none_and_a_larger_one_never_worse_than_it():
    found = [region_search(residual(), HARDWARE).best(budget=budget).after for budget in (1, 8, 16)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= evaluate(residual(), choose(residual(), HARDWARE), HARDWARE)


@pytest.mark.slow
def test_tries_no_more_plans_than_the_budget_and_none_twice_and_tells_after_each_round_how_far_it_is():
    counting, told = Counting(), []
    tuned = region_search(residual(), HARDWARE).best(
        budget=30, executor=counting, watch=lambda *state: told.append(state)
    )
    assert counting.count == tuned.evaluations == 30
    evaluations = [done for done, _, _ in told]
    assert evaluations == sorted(set(evaluations))
    assert evaluations[-1] == 30
    assert told[-1][2].cycles == tuned.after


@pytest.mark.slow
def test_weights_and_names_do_not_matter_to_what_is_found():
    one, other = residual(0, height=10), replace(residual(1, height=10), name="another")
    assert region_search(other, HARDWARE).best(budget=15) == replace(
        region_search(one, HARDWARE).best(budget=15), name="another"
    )


# ---------------------------------------------------------------- small regions


@pytest.mark.slow
def test_a_small_region_is_searched_in_full():
    graph = dense_layer()
    tuned = region_search(graph, HARDWARE).best(budget=5000)
    assert tuned.exact
    layer = graph.layers[0]
    space = SearchSpace(graph, HARDWARE)
    possible = []
    groups = [Group(1, 1, frozenset(held)) for held in ((), (0,), (1,), (0, 1))]
    flags = product(space.groups_of(choose(graph, HARDWARE)).tilings(0, 1), (True, False), (True, False))
    groups += [Group(1, 1, frozenset(), overlap, resident, tiling) for tiling, overlap, resident in flags]
    for group, blocks, fine in product(groups, space.blocks(layer), (False, True)):
        try:
            possible.append(evaluate(graph, Choices((False,), (group,), (blocks,), fine=fine), HARDWARE))
        except PlanError:
            continue
    assert tuned.after == min(possible)
    assert tuned.evaluations < 5000


def test_a_budget_that_is_too_small_for_all_is_searched_from_the_best():
    tuned = region_search(dense_layer(), HARDWARE).best(budget=10)
    assert not tuned.exact
    assert tuned.evaluations <= 10


@pytest.mark.slow
def test_a_larger_search_of_a_small_region_finds_nothing_better_than_all():
    graph = dense_layer()
    exact = region_search(graph, HARDWARE).best(budget=5000)
    assert region_search(graph, HARDWARE).best(budget=exact.evaluations // 2).after >= exact.after


# ---------------------------------------------------------------- the space

NARROW = TuningSpace(
    longest_group=2,
    stripes=(1, 2, 5),
    weight_shares=(1, 2),
    swap=False,
    hold=False,
    overlap=False,
    resident=False,
    patches=False,
    halos=False,
)


def walk(space, graph, hardware, count=300):
    choices, random = space.canonical(choose(graph, hardware)), Random(0)
    for _ in range(count):
        choices = step(space, choices, random)
        yield choices


def test_every_step_stays_in_the_space_that_the_vendor_describes():
    graph = residual()
    hardware = replace(HARDWARE, tuning=replace(NARROW, tile=False))
    for choices in walk(SearchSpace(graph, hardware), graph, hardware):
        held = frozenset()
        assert not any(choices.swapped)
        first = 0
        for group in choices.groups:
            layers = graph.layers[first : first + group.layers]
            assert sum(layer.kind != "reshape" for layer in layers) <= 2
            assert group.stripes <= 5
            assert not group.patched
            assert not group.kept
            assert not (group.overlap or group.resident) or group.stripes == 1
            assert not group.held & held
            held, first = group.held, first + group.layers
        assert first == len(graph.layers)


@pytest.mark.slow
def test_steps_lead_to_columns_and_slices_that_are_carried_out():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 12, 20, 8)), 48, (1, 1))
    deep = samples.depthwise(wide.ofm, padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, deep], [deep.ofm])
    hardware = accelerator(4096, array_columns=8)
    space = SearchSpace(graph, hardware)
    met = [choices for choices in walk(space, graph, hardware, 1500) if len(choices.groups) == 1]
    found = {(choices.groups[0].columns > 1, choices.groups[0].slices > 1): choices for choices in met}
    assert len(found) == 4
    assert {group.slices for choices in met for group in choices.groups} == {1, 2, 3, 6, 12}
    for choices in found.values():
        with suppress(PlanError):
            check(graph, hardware, choices=choices)


def test_steps_lead_to_stripes_that_keep_what_they_share():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 12, 6, 4)), 4, padding=(1, 1, 1, 1))
    second = samples.depthwise(first.ofm, padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    space = SearchSpace(graph, HARDWARE)
    met = [choices for choices in walk(space, graph, HARDWARE) if choices.groups[0].kept]
    assert met
    for choices in met:
        (group,) = choices.groups
        assert group.kept == {1}
        assert group.stripes > 1
        assert not group.patched
    check(graph, HARDWARE, choices=met[0])


@pytest.mark.slow
def test_tuning_obeys_the_space():
    tuned = region_search(residual(), replace(HARDWARE, tuning=NARROW)).best(budget=60)
    work = [layer.kind != "reshape" for layer in residual().layers]
    first = 0
    for group in tuned.choices.groups:
        assert sum(work[first : first + group.layers]) <= 2
        first += group.layers


@pytest.mark.slow
def test_choices_without_what_has_no_effect_take_the_same_cycles():
    graph = residual()
    space, problem = SearchSpace(graph, HARDWARE), packed(RegionScores, graph, HARDWARE)
    everything = frozenset(range(len(space.groups_of(choose(graph, HARDWARE)).storages.all)))
    for choices in walk(space, graph, HARDWARE, 40):
        assert space.canonical(choices) == choices
        # What is not live in a group cannot be held by it.
        added = [replace(group, held=group.held | everything) for group in choices.groups]
        more = replace(choices, groups=tuple(added))
        assert evaluated(problem, more) == evaluated(problem, space.canonical(more))


def test_a_region_that_is_sent_to_be_evaluated_has_all_inputs_of_a_concatenation():
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 8))
    layers = [samples.conv2d(ifm, channels, padding=(1, 1, 1, 1)) for channels in (8, 16)]
    joined = samples.concat([*(layer.ofm for layer in layers), ifm], 3)
    last = samples.conv2d(joined.ofm, 8)
    graph = graph_of([ifm], [*layers, joined, last], [last.ofm])
    choices = choose(graph, HARDWARE)
    assert choices.placed | choices.stored
    assert evaluated(packed(RegionScores, graph, HARDWARE), choices).cycles == evaluate(graph, choices, HARDWARE)


def test_a_region_that_is_sent_to_be_evaluated_has_its_constants():
    """Packed rows, and a constant that is loaded with its zero point around it."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 12, 12, 8)), 8, padding=(1, 1, 1, 1))
    both = samples.add(first.ofm, samples.constant(first.ofm.shape))
    last = samples.conv2d(both.ofm, 8, padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, both, last], [last.ofm])
    for hardware in (HARDWARE, accelerator(3000, 4096, dma_width=4), replace(HARDWARE, packed_rows=True)):
        choices = choose(graph, hardware)
        cycles = evaluate(graph, choices, hardware)
        assert evaluated(packed(RegionScores, graph, hardware), choices).cycles == cycles
        assert RegionScores(graph, hardware)(choices).cycles == cycles


@pytest.mark.slow
def test_a_plan_for_more_main_memory_than_there_is_does_not_count():
    graph, choices = residual(), choose(residual(), HARDWARE)
    assert evaluated(packed(RegionScores, graph, HARDWARE), choices) is not None
    assert evaluated(packed(RegionScores, graph, replace(HARDWARE, ram=64)), choices) is None


@pytest.mark.slow
def test_operations_are_cut_finely_only_in_plans_that_are_near():
    graph = residual()
    choices, problem = replace(choose(graph, HARDWARE), fine=True), packed(RegionScores, graph, HARDWARE)
    whole, fine = (evaluated(problem, replace(choices, fine=one)) for one in (False, True))
    assert fine.cycles < whole.cycles
    assert evaluated(problem, choices, near=whole.cycles) == fine
    assert evaluated(problem, choices, near=whole.cycles - 1) == whole


@pytest.mark.slow
@pytest.mark.parametrize("alignment", [1, 4])
def test_every_plan_of_the_space_that_fits_is_right(alignment):
    samples = Samples()
    ifm = samples.tensor((1, 9, 14, 8))
    conv = samples.conv2d(ifm, 16, kernel=(3, 1), strides=(1, 2))
    pool = samples.pool(conv.ofm)
    turned = samples.transpose(pool.ofm, (0, 2, 1, 3))
    flat = samples.reshape(turned.ofm, (1, 3 * 3 * 16))
    dense = samples.dense(flat.ofm, 20)
    hardware = replace(HARDWARE, dma_alignment=alignment)
    for graph in (residual(), graph_of([ifm], [conv, pool, turned, flat, dense], [dense.ofm, conv.ofm])):
        problem = packed(RegionScores, graph, hardware)
        for choices in walk(SearchSpace(graph, hardware), graph, hardware, 8):
            score = evaluated(problem, choices)
            if score is not None:
                assert timeline(check(graph, hardware, choices=choices), hardware).total == score.cycles


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"longest_group": 0}, "longest_group is at least 1: got 0"),
        ({"stripes": (2, 4)}, "stripes are numbers of at least 1, and 1 is one"),
        ({"weight_shares": (1, 0)}, "weight_shares are numbers of at least 1"),
        ({"stripes": ()}, "stripes are numbers"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(changes, rule):
    with pytest.raises(InvalidInput, match=rule):
        TuningSpace(**changes)


# ---------------------------------------------------------------- regions, recognised


def test_a_region_is_known_by_its_structure_alone():
    marks = {fingerprint(residual(seed)) for seed in (0, 1)}
    assert len(marks) == 1
    samples = Samples()
    ifm = samples.tensor((1, 9, 9, 8))
    others = [
        samples.conv2d(ifm, 8),
        samples.conv2d(ifm, 8, strides=(2, 2)),
        samples.conv2d(ifm, 8, padding=(1, 1, 1, 1)),
        samples.conv2d(ifm, 8, bits=4),
        samples.conv2d(ifm, 16),
        samples.depthwise(ifm),
        samples.add(ifm, ifm),
        samples.add(ifm, samples.constant(ifm.shape)),
        samples.pool(ifm),
    ]
    assert len({fingerprint(single(layer)) for layer in others}) == len(others)


def test_regions_keep_the_names_that_tuning_files_have_for_them():
    """A change here makes every tuning file that was ever saved one of another model."""
    assert fingerprint(residual()) == "d5df1d7a0130bdc8"


def test_a_connection_elsewhere_makes_another_region():
    samples = Samples()
    ifm = samples.tensor((1, 6, 6, 4))
    first = samples.pool(ifm, kernel=(1, 1), strides=(1, 1))
    adds = [samples.add(first.ofm, other) for other in (ifm, first.ofm)]
    assert len({fingerprint(graph_of([ifm], [first, add], [add.ofm])) for add in adds}) == 2


# ---------------------------------------------------------------- places that only the exact search finds


def test_what_fits_only_in_an_exact_packing_is_a_plan():
    lifetimes = hard_lifetimes()
    buffers = {life.name: activations(life.name, life.nbytes) for life in lifetimes}
    steps = range(max(life.last for life in lifetimes) + 1)
    touched = [[buffers[life.name] for life in lifetimes if life.first <= step <= life.last] for step in steps]
    ops = [Op(None, 0, tuple(Access(one, 0, one.nbytes, True) for one in now), {}, 1) for now in touched]
    hardware = accelerator(max(sum(buffer.nbytes for buffer in now) for now in touched))
    with pytest.raises(PlanError, match="what is live at once fits local activation memory"):
        place_local(ops, hardware)
    offsets = place_local(ops, hardware, exact=True)
    for now in touched:
        spans = sorted((offsets[buffer], offsets[buffer] + buffer.nbytes) for buffer in now)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
        assert spans[-1][1] <= hardware.activation_memory


def test_the_tuner_packs_rows_and_leaves_them():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 6, 16)), 16, padding=(1, 1, 1, 1))
    space = SearchSpace(single(layer), HARDWARE)
    assert space.packable() == [0]
    assert SearchSpace(single(layer), replace(HARDWARE, packed_rows=False)).packable() == []
    start = choose(space.graph, HARDWARE)
    random, found = Random(0), set()
    for _ in range(200):
        start = step(space, start, random)
        found.add(start.packed)
    assert found == {frozenset(), frozenset({0})}
    check_tuned_by_packing(space)


def check_tuned_by_packing(space):
    """The tuned plan is exact, and faster than without packed rows."""
    tuned = region_search(space.graph, HARDWARE).best(budget=60)
    check(space.graph, HARDWARE, choices=tuned.choices)
    assert tuned.after < region_search(space.graph, replace(HARDWARE, packed_rows=False)).best(budget=60).after


def test_the_tuner_packs_rows_beside_a_transposition_where_stores_do_it():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 16)), 16, padding=(1, 1, 1, 1))
    moved = samples.blocks_apart(first.ofm, (2, 2))
    graph = graph_of([first.ifm], [first, *moved], [moved[-1].ofm])
    space = SearchSpace(graph, HARDWARE)
    assert (space.packable(), space.packable(frozenset({2}))) == ([], [0])
    start = replace(choose(graph, HARDWARE), stored=frozenset({2}), packed=frozenset())
    random, found = Random(0), set()
    for _ in range(100):
        start = step(space, start, random)
        found.add(bool(space.groups_of(start).mapped.mapping.rows.layers))
    assert found == {False, True}
    check_tuned_by_packing(space)
