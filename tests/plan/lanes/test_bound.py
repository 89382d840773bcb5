"""The bound of a chip: what latencies add to it, exactly where there is nothing to choose."""

from dataclasses import replace
from itertools import product

import pytest
from plan_samples import Samples, graph_of
from test_chip_plans import DLA, PAIR, with_library

from byoc_hw.accelerator import DSP, REFERENCE
from byoc_hw.plan.lanes import latency
from byoc_hw.plan.lanes.bound import chip_bound
from byoc_hw.plan.lanes.needs import begun, read
from byoc_hw.plan.lanes.ways import LayerWork
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

COPY = DLA.dma_setup + 1
"""The shortest copy."""


def only(accelerator, *kinds):
    """The accelerator with the limits of some layer kinds alone."""
    return replace(accelerator, limits={kind: accelerator.limits[kind] for kind in kinds})


def latencies(graph, chip):
    return latency.latencies(graph, chip, [LayerWork(layer, chip) for layer in graph.layers])


def pixel(layers):
    """Layers on one pixel of one channel, one behind the other: "conv2d" of one weight, or "add" of the input to it."""
    samples = Samples(1)
    image = value = samples.tensor((1, 1, 1, 1))
    made = []
    for kind in layers:
        made.append(samples.conv2d(value, 1, (1, 1)) if kind == "conv2d" else samples.add(value, image))
        value = made[-1].ofm
    return graph_of([image], made, [value])


def test_one_job_takes_its_copies_and_itself():
    """The input and the weights are copied in, the output out: the bound is the plan."""
    graph = pixel(["conv2d"])
    job = 1 + 2 + DLA.job_overhead
    assert chip_bound(graph, PAIR) == plan_region(graph, PAIR).cycles == 3 * COPY + job


def test_a_layer_on_another_lane_waits_for_a_copy_out_and_a_copy_in():
    graph = pixel(["conv2d", "add"])
    chip = Soc((only(DLA, "conv2d"), only(DSP, "add")))
    times = latencies(graph, chip)
    job = 1 + 2 + DLA.job_overhead
    assert times.before == [{0: 2 * COPY}, {1: 2 * COPY + job + 2 * COPY}]
    assert times.behind == [{0: 2 * COPY + 1 + COPY}, {1: COPY}]
    assert chip_bound(graph, chip) == times.least == 2 * COPY + job + 2 * COPY + 1 + COPY
    assert plan_region(graph, chip).cycles == times.least


def test_a_layer_on_the_same_lane_waits_for_no_copy():
    times = latencies(pixel(["conv2d", "add"]), Soc((DLA,)))
    assert times.before[1][0] - times.before[0][0] == 1 + 2 + DLA.job_overhead


def test_a_library_copies_nothing():
    chip = Soc((only(DLA, "conv2d"), with_library(DSP, ["add"], each=7)))
    times = latencies(pixel(["add"]), chip)
    assert (times.before, times.behind, times.least) == ([{1: 0}], [{1: 0}], 7)


def test_work_behind_a_late_layer_is_bounded_by_what_is_before_it():
    """A small layer on one lane, a large one behind it on the other: the array of the large one works from the first
    moment on at which there is anything to read for it."""
    samples = Samples(1)
    image = samples.tensor((1, 16, 16, 16))
    layers = [samples.add(image, image)]
    layers.append(samples.conv2d(layers[0].ofm, 64, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([image], layers, [layers[-1].ofm])
    chip = Soc((only(DLA, "conv2d"), only(DSP, "add")))
    jobs = 16 * 4 * (16 * 9 + 2 * 16 * 3 + DLA.job_overhead)
    assert chip_bound(graph, chip) == pytest.approx(COPY + 1 + 2 * COPY + jobs + COPY, abs=2)
    assert plan_region(graph, chip).cycles >= chip_bound(graph, chip)


def test_an_input_that_no_layer_reads_is_not_copied():
    samples = Samples(1)
    image, unread = samples.tensor((1, 1, 1, 8)), samples.tensor((1, 1, 1, 800))
    layer = samples.add(image, image)
    graph = graph_of([image, unread], [layer], [layer.ofm])
    assert chip_bound(graph, PAIR) <= plan_region(graph, PAIR).cycles


# ---------------------------------------------------------------- ways to share a layer


def rectangles(lines, length, channels, sizes):
    """For each accelerator's numbers of groups, whether they cover an image: tried out, group by group."""

    def covered(cells, left):
        if not cells:
            return True
        line, pixel, channel = min(cells)  # some group has its first pixel and channel at or before this one
        for at, (many, (rows, columns)) in enumerate(zip(left, sizes, strict=True)):
            if many:
                less = (*left[:at], many - 1, *left[at + 1 :])
                for first, low in product(
                    range(pixel - columns + 1, pixel + 1), range(channel - rows + 1, channel + 1)
                ):
                    group = {(line, x, c) for x in range(first, first + columns) for c in range(low, low + rows)}
                    if covered(cells - group, less):
                        return True
        return False

    cells = frozenset(product(range(lines), range(length), range(channels)))
    return lambda counts: covered(cells, counts)


@pytest.mark.parametrize(
    ("lines", "length", "channels", "sizes"),
    [
        (1, 5, 3, ((2, 2), (1, 3))),
        (2, 3, 2, ((2, 2), (1, 1))),
        (1, 4, 4, ((3, 3), (2, 1))),
        (2, 2, 3, ((2, 2), (3, 1))),
    ],
)
def test_no_fewer_groups_cover_a_layer(lines, length, channels, sizes):
    """Each number of groups that covers the outputs, in whatever places, has as many as one of the ways."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, lines, length, 4)), channels, (3, 3), padding=(1, 1, 1, 1))
    chip = Soc(
        tuple(
            replace(DLA, name=f"lane{at}", array_rows=rows, array_columns=columns)
            for at, (rows, columns) in enumerate(sizes)
        )
    )
    cycles = 4 * 9 + 2 * 4 * 3 + DLA.job_overhead
    found = LayerWork(layer, chip).ways((lines, length, channels)) / cycles
    covers = rectangles(lines, length, channels, sizes)
    for counts in product(range(5), range(7)):
        if covers(counts):
            assert any(all(one <= many for one, many in zip(way, counts, strict=True)) for way in found), counts


def test_whole_groups_are_shared():
    """Three groups on two equal arrays take as long as two."""
    samples = Samples(1)
    image = samples.tensor((1, 1, 16, 16))
    layers = [samples.conv2d(image, 48, (3, 3), padding=(1, 1, 1, 1))]
    graph = graph_of([image], layers, [layers[-1].ofm])
    group = 16 * 9 + 2 * 16 * 3 + REFERENCE.job_overhead
    twins = Soc(tuple(replace(REFERENCE, name=name) for name in ("one", "two")))
    assert 2 * group + 3 * COPY <= chip_bound(graph, twins) < 2.2 * group + 3 * COPY


# ---------------------------------------------------------------- what is needed first


def chain(size):
    """A pointwise layer, one by channel, and one whose window is all of the image."""
    samples = Samples(1)
    image = samples.tensor((1, size, size, 16))
    layers = [samples.conv2d(image, 32, (1, 1))]
    layers.append(samples.depthwise(layers[-1].ofm, (3, 3), padding=(1, 1, 1, 1)))
    layers.append(samples.conv2d(layers[-1].ofm, 16, (size, size)))
    return graph_of([image], layers, [layers[-1].ofm])


def test_a_window_over_everything_needs_everything():
    graph = chain(4)
    last = graph.layers[-1]
    need = begun(last, last.ifm, whole=False, parts=False)
    assert need.least == (4, 4, 1)  # a job may sum over one channel only
    made = graph.layers[1]
    need = read(made, need, made.ifm)
    assert (need.least, need.all) == ((4, 4, 1), False)
    made = graph.layers[0]
    need = read(made, need, made.ifm)
    assert (need.least, need.all) == ((4, 4, 16), True)


def test_rows_that_the_least_window_sees_are_needed():
    """Of four rows that a window of three sees with padding, an output at the border sees two."""
    samples = Samples(1)
    image = samples.tensor((1, 4, 4, 8))
    layer = samples.depthwise(image, (3, 3), padding=(1, 1, 1, 1))
    assert begun(layer, image, whole=False, parts=False).least == (2, 2, 1)
    assert begun(layer, image, whole=True, parts=False).all


def test_a_layer_begins_after_the_work_that_it_needs():
    """Both arrays share the first two layers. The last one needs all pixels of one channel of the second, and with that
    all of the first."""
    graph = chain(8)
    twins = Soc(tuple(replace(REFERENCE, name=name) for name in ("one", "two")))
    pointwise = 4 * 2 * (16 + 2 * 16 + REFERENCE.job_overhead)
    times = latencies(graph, twins)
    assert min(times.before[2].values()) >= 2 * COPY + pointwise / 2
    assert plan_region(graph, twins).bound > times.before[2][0]
