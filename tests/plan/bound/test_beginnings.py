"""When the array can begin to work on a layer: marks that prove the least groups, tried out on small lines."""

from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product

import pytest
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.bound.beginnings import Beginnings, Pace, _rate_of_rows, lost, marks, pixels_at_once
from byoc_hw.plan.bound.packed_images import Lying, PackedImages, sees_zeros
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.ways import cover, groups, packed_line
from byoc_hw.plan.bound.windows import AtOnce
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_region

SETUP = REFERENCE.dma_setup
NOT_AT_ONCE, UNDECIDED = AtOnce(), Lying()


def runs_over(places, columns):
    """The fewest runs of so many columns over some places: each begins at the first one that is left."""
    runs, left = 0, sorted(places)
    while left:
        runs, left = runs + 1, [place for place in left if place >= left[0] + columns]
    return runs


@pytest.mark.parametrize(
    ("rows", "length", "apart", "columns"),
    [(1, 7, 7, 4), (1, 8, 8, 4), (2, 5, 6, 4), (3, 4, 5, 8), (3, 3, 4, 5), (4, 3, 5, 4), (2, 2, 9, 4)],
)
def test_fewer_outputs_than_sets_of_marks_save_no_group(rows, length, apart, columns):
    places = {row * apart + place for row in range(rows) for place in range(length)}
    sets, needed = marks(rows, length, apart, columns), runs_over(places, columns)
    assert needed == cover(rows, length, apart, columns)
    assert sets >= 1
    for count in range(1, sets):
        assert all(runs_over(places - set(done), columns) == needed for done in combinations(sorted(places), count))


@pytest.mark.parametrize(("length", "columns"), [(5, 4), (8, 4), (11, 4), (3, 4)])
def test_as_many_outputs_as_sets_of_marks_save_a_group(length, columns):
    """Those at the end of a line: one set of marks less would be too few."""
    done = marks(1, length, length, columns)
    assert runs_over(set(range(length - done)), columns) == cover(1, length, length, columns) - 1


def rectangles_over(cells, columns, rows):
    """The fewest groups of pixels next to each other and channels next to each other over some cells: tried out."""

    @cache
    def least(left):
        if not left:
            return 0
        pixel, channel = min(left)
        corners = product(range(pixel - columns + 1, pixel + 1), range(channel - rows + 1, channel + 1))
        return 1 + min(
            least(frozenset(cell for cell in left if not (0 <= cell[0] - x < columns and 0 <= cell[1] - y < rows)))
            for x, y in corners
        )

    return least(frozenset(cells))


def test_few_pixels_or_few_channels_save_no_group():
    """6 pixels and 3 channels in groups of 4 and 2: one pixel of all channels saves no group, wherever it lies. The
    last two pixels of the last channel save one."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 1, 6, 2)), 3, (1, 1))
    small = replace(REFERENCE, array_rows=2, array_columns=4, packed_rows=False)
    pixels = pixels_at_once(layer, small, False)
    assert pixels == 6 - 4
    cells = set(product(range(6), range(3)))
    needed = rectangles_over(cells, 4, 2)
    assert needed == groups(layer, small, False).count
    for done in range(6):
        assert rectangles_over(cells - set(product([done], range(3))), 4, 2) == needed
    assert rectangles_over(cells - set(product([4, 5], range(2, 3))), 4, 2) == needed - 1


def test_an_image_of_millions_of_pixels_has_a_bound():
    samples = Samples(1)
    layer = samples.depthwise(samples.tensor((1, 64, 1 << 16, 1)), (3, 3), padding=(1, 1, 1, 1))
    work = layer.ofm.elements / REFERENCE.array_columns * (9 + 2 * 3 + REFERENCE.job_overhead)
    assert work < cycles_bound(graph_of([layer.ifm], [layer], [layer.ofm]), REFERENCE) < 1.01 * work


@pytest.mark.parametrize(("size", "columns"), [(4, 16), (6, 16), (5, 8), (6, 4)])
def test_rows_by_themselves_save_no_more_groups_than_their_rate(size, columns):
    samples = Samples(1)
    layer = samples.depthwise(samples.tensor((1, size, size, 1)), (3, 3), padding=(1, 1, 1, 1))
    hardware = replace(REFERENCE, array_columns=columns)
    rows, length, apart = packed_line(layer, False)
    rate, each = _rate_of_rows(layer, hardware, False), -(-length // columns)
    needed = cover(rows, length, apart, columns)
    for count in range(1, rows + 1):
        for done in combinations(range(rows), count):
            places = {row * apart + at for row in set(range(rows)) - set(done) for at in range(length)}
            assert needed - runs_over(places, columns) <= rate * count * each + 1e-9


def test_cycles_are_lost_until_all_count():
    slow, fast = (Pace(10, 0.0), Pace(20, 0.5), Pace(40, 1.0)), (Pace(30, 1.0),)
    assert lost([slow], 100) == 20 + 20 * 0.5
    assert lost([slow, fast], 100) == 20 + 10 * 0.5
    assert lost([slow], 4) == 20 + 8 - 4  # 8 cycles that count half
    assert lost([fast], 1) == 30


def test_each_copy_more_has_a_setup():
    """Half of the cycles count from 20 on, if what comes until 40 is two copies; or none does before 40."""
    steps = (Pace(20, 0.5, 2), Pace(40, 1.0, 2))
    assert lost([steps], 100, setup=8) == 20 + (20 + 8) * 0.5
    assert lost([steps], 100, setup=24) == 40
    assert lost([steps], 4, setup=24) == 20 + 4
    with_fill = (Pace(20, 0.5, 2), Pace(40, 1.0, 3))
    assert lost([with_fill], 100, setup=8) == 20 + 20 * 0.5  # its own copies are enough
    waits_for_a_job = (Pace(20, 0.5), Pace(40, 1.0))
    assert lost([waits_for_a_job], 100, setup=8) == 20 + 20 * 0.5


def one_layer(**changes):
    samples = Samples(1)
    image = samples.tensor((1, 6, 6, 8))
    layer = samples.depthwise(image, (3, 3), padding=(1, 1, 1, 1))
    hardware = replace(REFERENCE, dma_width=1, depthwise_rows=1, array_columns=16, **changes)
    return graph_of([image], [layer], [layer.ofm]), hardware


def steps_of(graph, hardware, at_once=NOT_AT_ONCE, lying=UNDECIDED):
    (steps,) = Beginnings(PackedImages(graph, hardware)).rates(lying, [0.0], at_once)
    return steps


def test_a_layer_begins_with_the_pixels_and_the_weights_of_a_group():
    """Rows of 6 fill 16 columns once: all 6 pixels of a row are needed, in one channel, and its 9 weights."""
    graph, hardware = one_layer(packed_rows=False)
    assert steps_of(graph, hardware) == (Pace(SETUP + 6 + SETUP + 9 + 12, 1.0, 2),)
    assert steps_of(graph, hardware, AtOnce(tuple(graph.inputs), 168)) == (
        Pace(SETUP + 6 * 6 * 8 + SETUP + 168, 1.0, 2),
    )


def test_packed_rows_begin_behind_a_copy_of_zero_points():
    graph, hardware = one_layer()
    (layer,) = graph.layers
    assert sees_zeros(layer, hardware)
    pixels = min(pixels_at_once(layer, hardware, turned) for turned in (False, True))
    loaded = SETUP + pixels + SETUP + 9 + 12
    before, behind = steps_of(graph, hardware)
    assert behind == Pace(loaded + SETUP + 1, 1.0, 3)
    assert before.time == loaded
    assert 0 < before.rate < 1
    before, behind = steps_of(graph, hardware, lying=Lying(packed=frozenset(graph.inputs)))
    assert before.rate == 0


def test_jobs_over_some_input_channels_count_but_for_their_overhead():
    samples = Samples(1)
    image = samples.tensor((1, 4, 4, 8))
    layer = samples.conv2d(image, 8, (1, 1))
    graph, hardware = graph_of([image], [layer], [layer.ofm]), replace(REFERENCE, dma_width=1, limits={})
    *_, before, last = steps_of(graph, hardware)
    products = 7 * (1 + 2)  # of 7 channels of 8: a weight each, and the two cycles of each row of the kernel
    assert before.rate == pytest.approx(products / (products + hardware.job_overhead))
    assert last == Pace(SETUP + 16 * 8 + SETUP + 8 * (8 + 12), 1.0, 2)


def test_more_and_earlier_copies_have_more_setups():
    """One copy of the input, the weights and the output each: the array works behind all loads and before the store.
    Each copy more has a setup. The least of these ways is more than either engine takes."""
    graph, hardware = one_layer(packed_rows=False, dma_setup=200)
    (layer,) = graph.layers
    work = groups(layer, hardware, False)
    copied = 3 * 200 + 2 * graph.inputs[0].nbytes + 8 * (9 + 12)
    bound = cycles_bound(graph, hardware)
    assert copied < bound <= copied + work.cycles * work.count
    assert bound <= timeline(plan_region(graph, hardware), hardware).total


def test_zero_points_are_copied_or_rows_are_apart():
    graph, hardware = one_layer(dma_setup=300)
    found = cycles_bound(graph, hardware)
    apart = cycles_bound(graph, replace(hardware, packed_rows=False))
    without = cycles_bound(graph, replace(hardware, packed_rows=True, dma_setup=0)) + 3 * 300
    assert without < found <= apart
    assert found <= timeline(plan_region(graph, hardware), hardware).total


def test_a_region_without_jobs_has_a_bound():
    samples = Samples(1)
    layer = samples.transpose(samples.tensor((1, 4, 5, 3)), (0, 2, 1, 3))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    assert 0 < cycles_bound(graph, REFERENCE) <= timeline(plan_region(graph, REFERENCE), REFERENCE).total


def test_nothing_counts_before_a_kernel_is_there_that_the_array_takes_at_once():
    """All plans take it at once, though the accelerator could sum over a part of it."""
    samples = Samples()
    image = samples.tensor((1, 16, 16, 1))
    layer = samples.conv2d(image, 16, (3, 3))
    graph = graph_of([image], [layer], [layer.ofm])
    assert REFERENCE.limits["conv2d"].kernel_parts
    steps = steps_of(graph, REFERENCE)
    assert [step.rate for step in steps if step.rate] == [1.0]


def test_a_few_input_channels_count_early():
    samples = Samples()
    image = samples.tensor((1, 16, 16, 64))
    layer = samples.conv2d(image, 16, (1, 1))
    graph = graph_of([image], [layer], [layer.ofm])
    steps = steps_of(graph, REFERENCE)
    assert len(steps) == 8  # up to 1, 2, 4, 8, 16, 32, 48 and 64 channels
    assert all(one.time < other.time and one.rate < other.rate for one, other in pairwise(steps))
