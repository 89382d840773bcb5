"""The bound of a chip: what latencies add to it, exactly where there is nothing to choose."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from plan_chips import DLA, PAIR, TWINS, with_library
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import DSP, REFERENCE
from byoc_hw.plan.array.kinds import geometry
from byoc_hw.plan.array.tiling import Tiler
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound import latency, prefetch, prices
from byoc_hw.plan.bound.latency import made_in_full
from byoc_hw.plan.bound.needs import all_of, begun, read
from byoc_hw.plan.bound.prices import cycles_bound, known_bound
from byoc_hw.plan.bound.spills import Spill, spills
from byoc_hw.plan.bound.ways import LayerWork, _most_outputs, cover, least_alone, least_in_blocks
from byoc_hw.plan.choices import Tiling
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

COPY = DLA.dma_setup + 1
"""The shortest copy."""


def only(accelerator, *kinds):
    """The accelerator with the limits of some layer kinds alone."""
    return replace(accelerator, limits={kind: accelerator.limits[kind] for kind in kinds})


def latencies(graph, chip):
    works = [LayerWork(layer, chip) for layer in graph.layers]
    return latency.latencies(graph, chip, works, [True] * len(works))


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
    assert cycles_bound(graph, PAIR) == plan_region(graph, PAIR).cycles == 3 * COPY + job


def test_a_bound_is_counted_once_for_a_graph_and_hardware(monkeypatch):
    graph, asked = pixel(["conv2d"]), []
    monkeypatch.setattr(prices, "cycles_bound", lambda *given: asked.append(given) or len(asked))
    assert [known_bound(graph, PAIR), known_bound(graph, PAIR), known_bound(graph, DLA)] == [1, 1, 2]
    assert asked == [(graph, PAIR), (graph, DLA)]


def test_a_layer_on_another_lane_waits_for_a_copy_out_and_a_copy_in():
    graph = pixel(["conv2d", "add"])
    chip = Soc((only(DLA, "conv2d"), only(DSP, "add")))
    times = latencies(graph, chip)
    job = 1 + 2 + DLA.job_overhead
    assert times.before == [{0: 2 * COPY}, {1: 2 * COPY + job + 2 * COPY}]
    assert times.behind == [{0: 2 * COPY + 1 + COPY}, {1: COPY}]
    assert cycles_bound(graph, chip) == times.least == 2 * COPY + job + 2 * COPY + 1 + COPY
    assert plan_region(graph, chip).cycles == times.least


def test_a_layer_on_the_same_lane_waits_for_no_copy():
    times = latencies(pixel(["conv2d", "add"]), Soc((DLA,)))
    assert times.before[1][0] - times.before[0][0] == 1 + 2 + DLA.job_overhead


def test_a_library_copies_nothing():
    chip = Soc((only(DLA, "conv2d"), with_library(DSP, ["add"], each=7)))
    times = latencies(pixel(["add"]), chip)
    assert (times.before, times.behind, times.least) == ([{1: 0}], [{1: 0}], 7)


def test_what_copies_do_is_no_work_of_an_array():
    """A slice that the one lane loads, or the library of the other one makes, before two sums that either can make."""
    samples = Samples(1)
    image = samples.tensor((1, 8))
    layers = [samples.slice(image, (0, 2), (1, 4), (1, 1))]
    layers += [samples.add(layers[0].ofm, layers[0].ofm)]
    layers += [samples.add(layers[1].ofm, layers[1].ofm)]
    graph = graph_of([image], layers, [layers[-1].ofm])
    chip = Soc((only(DLA, "slice", "add"), with_library(DSP, ["slice", "add"], each=10)))
    assert cycles_bound(graph, chip) == plan_region(graph, chip).cycles == COPY + 1 + 1 + COPY


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
    assert cycles_bound(graph, chip) == pytest.approx(COPY + 1 + 2 * COPY + jobs + COPY, abs=2)
    assert plan_region(graph, chip).cycles >= cycles_bound(graph, chip)


def test_an_input_that_no_layer_reads_is_not_copied():
    samples = Samples(1)
    image, unread = samples.tensor((1, 1, 1, 8)), samples.tensor((1, 1, 1, 800))
    layer = samples.add(image, image)
    graph = graph_of([image, unread], [layer], [layer.ofm])
    assert cycles_bound(graph, PAIR) <= plan_region(graph, PAIR).cycles


# ---------------------------------------------------------------- what is copied


def excited(size=16, channels=8):
    """A tensor by its own averages: the product needs all of it before it can begin."""
    samples = Samples(1)
    image = samples.tensor((1, size, size, channels))
    first = samples.depthwise(image, (3, 3), padding=(1, 1, 1, 1))
    pool = samples.pool(first.ofm, kernel=(size, size))
    scale = samples.conv2d(pool.ofm, channels, (1, 1))
    product = samples.mul(first.ofm, scale.ofm)
    return graph_of([image], [first, pool, scale, product], [product.ofm])


def test_what_local_memory_has_no_room_for_is_stored_and_loaded_again():
    graph = excited()
    nbytes = graph.layers[0].ofm.nbytes
    for room in (nbytes, nbytes - 1, 700):
        found = list(spills(graph, Soc((replace(REFERENCE, activation_memory=room),))))
        beyond = nbytes - room
        assert found == ([Spill(beyond, beyond)] if beyond else [])


def test_an_input_that_is_read_twice_is_loaded_again_and_not_stored():
    samples = Samples(1)
    image = samples.tensor((1, 16, 16, 8))
    pool = samples.pool(image, kernel=(16, 16))
    scale = samples.conv2d(pool.ofm, 8, (1, 1))
    product = samples.mul(image, scale.ofm)
    graph = graph_of([image], [pool, scale, product], [product.ofm])
    hardware = replace(REFERENCE, activation_memory=1000, dma_width=1)
    assert list(spills(graph, Soc((hardware,)))) == [Spill(2048 - 1000, 0)]
    assert plan_region(graph, hardware).moved["inputs"] >= 2 * 2048 - 1000
    assert timeline(plan_region(graph, hardware), hardware).total >= cycles_bound(graph, hardware) >= 2048 + 1048 + 2048


def heavy_end():
    """Much work on few weights, and behind all of it many weights with little work."""
    samples = Samples(1)
    image = samples.tensor((1, 16, 16, 1))
    layers = [samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))]
    layers += [samples.conv2d(layers[-1].ofm, 16, (3, 3), padding=(1, 1, 1, 1))]
    layers += [samples.pool(layers[-1].ofm, kernel=(16, 16))]
    layers += [samples.conv2d(layers[-1].ofm, 16, (1, 1))]
    layers += [samples.conv2d(layers[-1].ofm, 512, (1, 1))]
    return graph_of([image], layers, [layers[-1].ofm])


@pytest.mark.parametrize("room", [2500, 4096])
def test_what_weight_memory_has_no_room_for_is_loaded_behind_the_work(room):
    graph = heavy_end()
    slow = replace(REFERENCE, weight_memory=room, dma_width=2)
    before = least_alone(graph.layers[:3], slow)
    behind = (512 * (16 + 12) - room) / 2
    assert before + behind < cycles_bound(graph, slow) <= timeline(plan_region(graph, slow), slow).total
    assert cycles_bound(graph, replace(slow, weight_memory=1 << 16)) < before + behind


def test_weights_are_finished_behind_what_they_need_in_full_or_by_channel():
    graph = heavy_end()
    needed = [[np.flatnonzero(flags).tolist() for flags in one] for one in prefetch._needed(graph, REFERENCE)]
    full = [[], [], [], [0], [0, 1, 2]]  # a channel of a sum needs all channels of its input
    linked = [[], [0], [], [1, 2], [3]]  # the sum itself is needed channel by channel
    assert needed == [list(one) for one in zip(full, linked, strict=True)]


def shortcut():
    """A convolution whose output a shortcut reads every second pixel of, last, beside two with many weights."""
    samples = Samples(1)
    layers = [samples.conv2d(samples.tensor((1, 16, 16, 16)), 16, (3, 3), padding=(1, 1, 1, 1))]
    layers += [samples.conv2d(layers[-1].ofm, 16, (3, 3), padding=(1, 1, 1, 1))]
    layers += [samples.conv2d(layers[1].ofm, 64, (3, 3), strides=(2, 2), padding=(0, 0, 1, 1))]
    layers += [samples.conv2d(layers[-1].ofm, 64, (3, 3), padding=(1, 1, 1, 1))]
    layers += [samples.conv2d(layers[1].ofm, 64, (1, 1), strides=(2, 2))]
    layers += [samples.add(layers[3].ofm, layers[4].ofm)]
    return graph_of([layers[0].ifm], layers, [layers[-1].ofm])


def test_windows_that_lie_apart_need_what_all_of_the_pixels_around_them_are_made_of():
    _, first, _, _, last, _ = shortcut().layers
    need = read(last, all_of(last.ofm), first.ofm)
    assert need.least == (8, 8, 16)
    assert not need.all
    assert read(first, need, first.ifm).all


@pytest.mark.slow
def test_weights_beside_a_late_shortcut_are_finished_behind_what_they_need():
    graph = shortcut()
    slow = replace(REFERENCE, weight_memory=4096, dma_width=1)
    before = least_alone(graph.layers[:1], slow)  # of the second one and those behind, each channel may be for itself
    behind = 64 * (9 * 64 + 12) + 64 * (9 * 16 + 12) + 64 * (16 + 12) - slow.weight_memory
    assert before + behind < cycles_bound(graph, slow) <= timeline(plan_region(graph, slow), slow).total
    curves = prefetch._needed(graph, slow)
    assert [np.flatnonzero(flags).tolist() for flags in curves[4]] == [[0], []]


def test_weights_take_as_many_copies_as_weight_memory_needs():
    samples = Samples(1)
    layer = samples.dense(samples.tensor((1, 64)), 64)
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    slow = replace(REFERENCE, weight_memory=1024, dma_width=1)
    nbytes = 64 * (64 + 12)
    assert cycles_bound(graph, slow) >= nbytes + nbytes / 1024 * 70 + 2 * (70 + 64) - 1


def test_a_late_layer_waits_for_the_weights_of_those_before():
    """A job of the third layer reads one channel of the second at least, which sums over all of the first. The weights
    of all three may come in one copy."""
    samples = Samples(1)
    image = samples.tensor((1, 1, 1, 32))
    layers = [samples.conv2d(image, 32, (1, 1))]
    for _ in range(2):
        layers.append(samples.conv2d(layers[-1].ofm, 32, (1, 1)))
    graph = graph_of([image], layers, [layers[-1].ofm])
    slow = replace(REFERENCE, dma_width=1)
    channel = 32 + 12
    loads = 70 + 32, 70 + 32 * channel + channel + 1
    assert min(latencies(graph, Soc((slow,))).before[2].values()) >= sum(loads)


def test_rows_that_no_reader_needs_are_not_counted_on_a_chip():
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(image, 16, (1, 1))
    last = samples.conv2d(first.ofm, 16, (1, 1), strides=(2, 2))
    half = samples.slice(first.ofm, (0, 0, 0, 0), (1, 8, 8, 8), (1, 1, 1, 1))
    other = samples.slice(first.ofm, (0, 0, 0, 8), (1, 8, 8, 8), (1, 1, 1, 1))
    assert made_in_full(graph_of([image], [first, last], [last.ofm])) == [False, True]
    assert made_in_full(graph_of([image], [first, half], [half.ofm])) == [False, True]
    assert made_in_full(graph_of([image], [first, half, other], [half.ofm, other.ofm])) == [True, True, True]
    twice, rest = ([row // 2 for row in range(rows)] for rows in (16, 14))
    for rows, counted in ((twice, True), (rest, False)):
        resized = samples.resize(first.ofm, rows, twice)
        assert made_in_full(graph_of([image], [first, resized], [resized.ofm])) == [counted, True]


@pytest.mark.parametrize(
    ("rows", "length", "apart", "columns"), [(8, 8, 9, 16), (3, 5, 7, 4), (2, 2, 9, 4), (1, 7, 7, 4)]
)
def test_no_fewer_runs_cover_the_rows(rows, length, apart, columns):
    wanted = {row * apart + place for row in range(rows) for place in range(length)}
    runs, left = 0, set(wanted)
    while left:  # each run begins at the first output that is left: any other cover has one there or before
        left -= set(range(min(left), min(left) + columns))
        runs += 1
    assert cover(rows, length, apart, columns) == runs


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("size", [2, 4, 7, 8, 16])
def test_no_packing_has_more_outputs_in_a_run(size, before, after):
    """Of whole rows or of some columns of them: between two rows is what the padding that they share leaves."""
    samples, reach = Samples(1), 3
    image = samples.tensor((1, size, size, 4))
    layer = samples.conv2d(image, 4, (reach, reach), padding=(before, before, after, after))
    height, width, _ = extents(layer.ofm)
    for first in range(width):
        for stop in range(first + 1, width + 1):
            left, right = max(before - first, 0), max(stop + reach - 1 - before - size, 0)
            apart = stop - first + reach - 1 - min(left, right)
            line = [place % apart < stop - first for place in range(height * apart)]
            for places in (4, 16):
                most = max(sum(line[start : start + places]) for start in range(len(line)))
                assert most <= _most_outputs(layer, places, False)


def test_a_packed_layer_is_shared_in_whole_groups():
    """16 outputs of 4 rows do not fit one group of 16 columns: there is one place between two rows."""
    samples = Samples(1)
    image = samples.tensor((1, 4, 4, 8))
    layer = samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))
    group = 8 * 9 + 2 * 8 * 3 + REFERENCE.job_overhead
    ways = LayerWork(layer, TWINS).ways_of_channels
    assert {tuple(way) for way in ways.tolist()} == {(0, 2 * group), (group, group), (2 * group, 0)}


@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
@pytest.mark.parametrize(("side", "bits"), [(1, 8), (3, 8), (3, 4), (5, 8)])
def test_no_tiles_take_fewer_cycles_of_the_array_than_weight_memory_has_room_for(kind, side, bits):
    samples = Samples(side)
    image, pad = samples.tensor((1, 7, 8, 24)), (side // 2,) * 4
    if kind == "conv2d":
        layer = samples.conv2d(image, 20, (side, side), padding=pad, bits=bits)
    else:
        layer = samples.depthwise(image, (side, side), padding=pad)
    plain = replace(REFERENCE, array_rows=8, array_columns=8, depthwise_rows=4, packed_rows=False)
    nearest = []
    for room in (400, 800, 1600, 1 << 16):
        tiny = replace(plain, weight_memory=room)
        tiler = Tiler(layer, geometry(layer), tiny)
        found = [
            tiler.cost(Tiling(7, columns, channels, depth)).jobs
            for columns, channels, depth in product((3, 8), range(1, 21), range(1, 25))
            if tiler.fits(Tiling(7, columns, channels, depth))
        ]
        if found:
            assert min(found) >= least_in_blocks(layer, tiny) - 1e-6
            nearest.append(min(found) / least_in_blocks(layer, tiny))
    assert min(nearest) < 1.5


def test_a_job_has_no_more_weights_than_weight_memory():
    """Sixteen channels of 64 inputs, of which there is room for sixteen: four passes for each group of outputs."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 16, 16, 64)), 16, (1, 1))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    tiny = replace(REFERENCE, array_rows=16, array_columns=16, weight_memory=16 * 16)
    groups = 16 * (3 * 64 + 4 * REFERENCE.job_overhead)
    assert least_in_blocks(layer, tiny) == groups > least_alone([layer], tiny)
    assert cycles_bound(graph, tiny) > groups
    large = replace(tiny, weight_memory=16 * 64)
    assert least_in_blocks(layer, large) == least_alone([layer], large)


def test_rows_in_one_line_fill_the_array():
    assert cover(8, 8, 9, 16) == 5
    assert cover(18, 24, 25, 16) == 28  # 9 rows of 25 are 224 columns
    assert cover(3, 16, 17, 16) == 3


# ---------------------------------------------------------------- ways to share a layer


def rectangles(lines, length, channels, sizes, turns):
    """For each accelerator's numbers of groups, whether they cover an image: tried out, group by group. Those of an
    accelerator that is turned run along columns."""

    whole = frozenset(product(range(lines), range(length), range(channels)))

    def group(at, line, pixel, channel):
        rows, columns = sizes[at]
        along = {(line + x, pixel, channel + c) for x in range(columns) for c in range(rows)}
        across = {(line, pixel + x, channel + c) for x in range(columns) for c in range(rows)}
        return whole & (along if turns[at] else across)

    groups = [{group(at, *cell) for cell in product(*(range(-3, 6) for _ in range(3)))} for at in range(len(sizes))]

    @cache
    def covered(cells, left):
        """Some group has the first cell that is left."""
        return not cells or any(
            many and min(cells) in one and covered(cells - one, (*left[:at], many - 1, *left[at + 1 :]))
            for at, many in enumerate(left)
            for one in groups[at]
        )

    return lambda counts: covered(whole, counts)


@pytest.mark.parametrize(
    ("lines", "length", "channels", "sizes"),
    [
        (1, 5, 3, ((2, 2), (1, 3))),
        (2, 3, 2, ((2, 2), (1, 1))),
        (1, 4, 4, ((3, 3), (2, 1))),
        (2, 2, 3, ((2, 2), (3, 1))),
        (4, 2, 1, ((1, 3), (1, 2))),  # three rows by groups along columns, the last one by a group along it
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
    for turns in product((False, True), repeat=len(sizes)):
        covers = rectangles(lines, length, channels, sizes, turns)
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
    assert 2 * group + 3 * COPY <= cycles_bound(graph, TWINS) < 2.2 * group + 3 * COPY


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


@pytest.mark.slow
def test_a_layer_begins_after_the_work_that_it_needs():
    """Both arrays share the first two layers. The last one needs all pixels of one channel of the second, and with that
    all of the first."""
    graph = chain(8)
    twins = Soc(tuple(replace(REFERENCE, name=name, packed_rows=False) for name in ("one", "two")))
    pointwise = 4 * 2 * (16 + 2 * 16 + REFERENCE.job_overhead)
    times = latencies(graph, twins)
    assert min(times.before[2].values()) >= 2 * COPY + pointwise / 2
    assert plan_region(graph, twins).bound > times.before[2][0]
