"""The search for parts against all plans of a kind, where these are few enough to be tried."""

import random
from itertools import combinations

import numpy as np
import pytest
from exhaustive import Beginning, Exhaustive
from hypothesis import assume, given, settings
from plan_chips import PAIR, TWINS
from plan_samples import Samples, graph_of
from test_chip_plans import EXAMPLES, check_on_chip, chip_regions

from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.chip_plan import ElementBox
from byoc_hw.plan.lanes.cut import Piece, Region, boxes_of_piece
from byoc_hw.plan.lanes.joint import joint_work, patient_order, side_by_side
from byoc_hw.plan.lanes.together import waits
from byoc_hw.plan.layer_orders import orders
from byoc_hw.plan.order.dependencies import TouchedBytes
from byoc_hw.plan.region import plan_region
from byoc_hw.tensor import Tensor

MOST = 2000
"""The plans of a graph that are tried."""


@pytest.mark.slow
@given(chip_regions(most=8))
@settings(EXAMPLES, max_examples=8)
def test_plan_is_near_the_best_of_every_plan(region):
    """Nearly all are within 2 %. No plan is below the bound either."""
    chip, graph = region
    assume(not Region(graph).copies)  # they are not among the plans that are tried
    every = Exhaustive(graph, chip, MOST)
    assume(every.kind is not None)
    plan = plan_region(graph, chip)
    fewest = every.fewest(plan.cycles)
    assert plan.bound <= fewest
    assert plan.cycles <= 1.1 * fewest + 16  # tiny regions take some hundred cycles


@pytest.mark.slow
def test_plan_of_a_small_graph_is_as_fast_as_every_plan():
    samples = Samples(3)
    value = samples.tensor((1, 8, 8, 16))
    layers = [samples.conv2d(value, 16, (1, 1)), samples.depthwise(value, padding=(1, 1, 1, 1))]
    layers.append(samples.add(layers[0].ofm, layers[1].ofm))
    graph = graph_of([value], layers, [layers[-1].ofm])
    every = Exhaustive(graph, PAIR, MOST)
    assert every.kind == (3, 4)
    assert every.fewest(1 << 30) < 1 << 30
    plan = plan_region(graph, PAIR)
    assert plan.bound <= plan.cycles <= every.fewest(1 << 30)


def branches():
    """Four layers, two of which read the first one."""
    samples = Samples(3)
    value = samples.tensor((1, 6, 6, 16))
    first = samples.conv2d(value, 16, (1, 1))
    second, third = samples.depthwise(first.ofm, padding=(1, 1, 1, 1)), samples.conv2d(first.ofm, 16, (1, 1))
    layers = [first, second, third, samples.add(second.ofm, third.ofm)]
    return graph_of([value], layers, [layers[-1].ofm])


def test_no_plan_is_faster_than_its_beginning_says():
    """Of plans that are drawn, and with the fewest cycles of all where these are tried without such a bound."""
    every, drawn = Exhaustive(branches(), TWINS, 0), random.Random(1)
    assert every.count(3, 4) > 0
    every.fewest(0)
    for _ in range(50):
        at, plan, begun, least = 0, [], Beginning([0, 0], [0, 0], 0, []), 0
        while at < every.stops[-1]:
            at, form = drawn.choice(
                [(stop, form) for (first, stop), forms in every.forms.items() if first == at for form in forms]
            )
            plan += form
            for option in form:
                begun = begun.with_part(option, every.costs.together)
            least = max(least, every._least(at, begun))
        parts = side_by_side([option.placed for option in plan])
        assert 0 < least <= patient_order(joint_work(parts, TWINS)).cycles


@pytest.mark.slow
def test_many_plans_are_passed_over():
    """The plan is held against more plans than are tried."""
    every = Exhaustive(branches(), TWINS, 0)
    cycles = plan_region(branches(), TWINS).cycles
    assert cycles <= 1.02 * every.fewest_of_many(cycles, 5000)
    assert every.kind == (8, 4)
    assert every.count(*every.kind) > 5000
    assert every.fewest_of_many(cycles, 0) is None


def left_by(accesses, jobs):
    """What some accesses leave, in their order: of an action, from, to, and whether it writes."""
    memory = TouchedBytes([0 if action in jobs else None for action in range(len(accesses))])
    memory.record(accesses, [set() for _ in accesses])
    return list(memory.touched())


@pytest.mark.parametrize("seed", range(20))
def test_parts_wait_for_each_other_as_for_every_pair_of_actions_on_the_same_bytes(seed):
    """Directly, or by others of the same part that wait, as those do that share bytes, and the jobs of an array."""
    drawn, count, moved = random.Random(seed), 12, 7
    spans = [[sorted(drawn.sample(range(30), 2)) for _ in range(count)] for _ in range(2)]
    one, other = ([(at, *span, drawn.random() < 0.5) for at, span in enumerate(some)] for some in spans)
    jobs = set(range(0, count, 3))
    behind = [(count + at, start + moved, stop + moved, writes) for at, start, stop, writes in other]
    every = [*one, *behind]

    def clash(a, b):
        return a[1] < b[2] and b[1] < a[2] and (a[3] or b[3])

    def is_job(action):
        return action % count in jobs

    follows = {
        (a[0], b[0])
        for a, b in combinations(every, 2)
        if (is_job(a[0]) and is_job(b[0])) or (clash(a, b) and (a[0] >= count or b[0] < count))
    }
    found = waits(left_by(one, jobs), left_by(other[::-1], jobs), moved)
    pairs = {(a, count + b) for a, b in found if not (a in jobs and b in jobs)}
    assert all(clash(every[a], every[b]) for a, b in pairs)
    reached = follows | pairs
    for middle in range(2 * count):
        reached |= {(a, b) for a, x in reached if x == middle for y, b in reached if y == middle}
    needed = {(a[0], b[0]) for a in one for b in behind if clash(a, b)}
    assert needed <= reached


def test_rows_of_layers_are_cut_though_others_read_one_of_them():
    """The first convolution is an output, too: each accelerator has its rows of both layers."""
    samples = Samples(4)
    value = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(value, 16, (1, 1))
    last = samples.add(first.ofm, value)
    graph = graph_of([value], [first, last], [first.ofm, last.ofm])
    part = Region(graph).part(PartCut(0, (0, 1), 1, (2, 6)), "part")
    assert [(part.whole(one).name, one.shape) for one in part.graph.outputs] == [
        (tensor.name, (1, 4, 8, 16)) for tensor in graph.outputs
    ]
    check_on_chip(TWINS, graph)
    halo = samples.depthwise(first.ofm, padding=(1, 1, 1, 1))  # reads more rows than are the part's own
    graph = graph_of([value], [first, halo], [first.ofm, halo.ofm])
    assert Region(graph).part(PartCut(0, (0, 1), 1, (2, 6)), "part") is None


def test_channels_are_not_cut_of_layers_of_which_one_reads_all_that_another_makes():
    """Each part would make its channels of the first convolution only: no other one hands it the rest."""
    samples = Samples(4)
    value = samples.tensor((1, 4, 4, 8))
    first = samples.conv2d(value, 16, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, (1, 1))
    both = samples.add(second.ofm, first.ofm)
    graph = graph_of([value], [first, second, both], [both.ofm])
    assert Region(graph).part(PartCut(0, (0, 1, 2), 3, (0, 8)), "part") is None
    assert Region(graph).part(PartCut(0, (1, 2), 3, (0, 8)), "part") is not None
    check_on_chip(TWINS, graph)


@pytest.mark.slow
def test_layers_that_follow_each_other_are_a_part_in_whatever_order_they_were_given():
    """Two chains, whose layers come in turns: each accelerator has one of them, and hands nothing to the other."""
    samples = Samples(5)
    value = samples.tensor((1, 6, 6, 16))
    chains = [[], []]
    for _ in range(2):
        for chain in chains:
            chain.append(samples.depthwise(chain[-1].ofm if chain else value, padding=(1, 1, 1, 1)))
    layers = [layer for both in zip(*chains, strict=True) for layer in both]
    graph = graph_of([value], layers, [chain[-1].ofm for chain in chains])
    assert list(orders(graph)) == [(0, 1, 2, 3), (0, 2, 1, 3), (1, 3, 0, 2)]
    plan = check_on_chip(TWINS, graph)
    assert sorted(part.layers for part in plan.parts) == [(0, 2), (1, 3)]
    assert plan.graph == graph


@pytest.mark.parametrize("swapped", [False, True])
def test_pixels_of_a_piece_lie_in_boxes(swapped):
    """Each element of a piece, in the array's order, is the one of the tensor in the model's order."""
    tensor = Tensor("t", (1, 5, 7, 3), "int8")
    elements = np.arange(105).reshape(5, 7, 3)
    pixels = (elements.swapaxes(0, 1) if swapped else elements).reshape(35, 3)
    for start, stop in ((0, 35), (0, 4), (3, 20), (7, 21), (5, 15), (33, 35)):
        boxes = boxes_of_piece(Piece(tensor, 1, start, flat=True), (1, stop - start, 1, 3), swapped)
        assert [one for box in boxes for one in places(box)] == pixels[start:stop].ravel().tolist()
    boxes = boxes_of_piece(Piece(tensor, 3, 1, flat=True), (1, 35, 1, 2), swapped)
    assert [one for box in boxes for one in places(box)] == pixels[:, 1:].ravel().tolist()


def test_pixels_of_a_tensor_without_rows_are_one_box():
    (box,) = boxes_of_piece(Piece(Tensor("t", (1, 9, 4), "int8"), 1, 3, flat=True), (1, 5, 4), False)
    assert places(box) == list(range(12, 32))


def places(box: ElementBox):
    """The elements of the tensor that a box is, one after the other."""
    steps = np.indices(box.counts).reshape(len(box.counts), -1).T
    return (box.start + steps @ np.array(box.strides)).tolist()
