"""Shares of layers as boxes: rows, columns, channels or pixels in a row, and what follows from how many there are."""

from dataclasses import replace

import numpy as np
import pytest
from plan_chips import PAIR
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.graph import Weighted
from byoc_hw.plan.array.cost import is_pointwise
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound import prices, sharing
from byoc_hw.plan.bound.boxes import cuts_of, cycles_of_boxes, ways_in_boxes
from byoc_hw.plan.bound.latency import latencies, made_in_full
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.ways import LayerWork
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

NARROW = replace(REFERENCE, array_columns=8, dma_setup=10, job_setup=50)
TWINS = Soc(tuple(replace(NARROW, name=name) for name in ("one", "two")))
WORDS = Soc(tuple(replace(one, dma_alignment=4, packed_rows=False) for one in TWINS.accelerators))
ROWS, COLUMNS, CHANNELS, PIXELS = range(4)


def chain(seed):
    """Windows of some kinds in a row, all of whose outputs are read, and in every other one a sum behind them."""
    samples, random = Samples(seed), np.random.default_rng(seed)
    layers, value = [], samples.tensor((1, int(random.integers(5, 11)), int(random.integers(5, 11)), 16))
    image = value
    for kind in random.integers(4, size=3):
        padding, channels = (1, 1, 1, 1), int(random.choice([8, 16, 24]))
        if kind == 0:
            layers.append(samples.conv2d(value, channels, (1, 1)))
        elif kind == 1:
            layers.append(samples.depthwise(value, (3, 3), padding=padding))
        elif kind == 2:
            layers.append(samples.conv2d(value, channels, (3, 3), (2, 2), padding))
        else:
            layers.append(samples.conv2d(value, channels, (3, 3), padding=padding))
        value = layers[-1].ofm
    if seed % 2:
        layers.append(samples.add(value, value))
    return graph_of([image], layers, [layers[-1].ofm])


def cut_of(layer, axis):
    (found,) = (cut for cut in cuts_of(layer) if cut.axis == axis)
    return found


def box_of(layer, piece):
    """How a lane's piece of a layer is cut, and of how many rows, columns, channels or pixels it is."""
    whole, its = extents(layer.ofm), extents(piece.ofm)
    if its[2] < whole[2]:
        assert its[0] * its[1] == whole[0] * whole[1]
        return cut_of(layer, CHANNELS), its[2]
    if is_pointwise(layer):
        return cut_of(layer, PIXELS), its[0] * its[1]
    if its[1] < whole[1]:
        assert its[0] == whole[0]
        return cut_of(layer, COLUMNS), its[1]
    return cut_of(layer, ROWS), its[0]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize("chip", [PAIR, TWINS, WORDS], ids=["pair", "twins", "words"])
def test_lanes_have_boxes_of_layers_and_take_no_fewer_cycles_than_these(seed, chip):
    """What the bound takes for granted: one box of a layer for a lane, cut along one axis."""
    graph = chain(seed)
    plan = plan_region(graph, chip)
    assert 0 < plan.bound <= plan.cycles
    seen = set()
    for timed in lanes_timeline(plan).parts:
        part, one = timed.part, chip.accelerators[timed.part.lane]
        for at, (index, piece) in enumerate(zip(part.layers, part.plan.graph.layers, strict=True)):
            assert (part.lane, index) not in seen
            seen.add((part.lane, index))
            cut, many = box_of(graph.layers[index], piece)
            cycles = sum(e.end - e.start for e in timed.events if e.engine == "array" and e.layer == at)
            if isinstance(graph.layers[index], Weighted):
                assert cycles >= cycles_of_boxes(graph.layers[index], cut, one)[many]
    assert {index for _, index in seen} == set(range(len(graph.layers)))


def test_rows_that_fill_no_group_cost_a_whole_one():
    """Five rows of five on eight columns: four groups, but three of two of the rows and of three of them five."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 5, 5, 16)), 16, (3, 3), padding=(1, 1, 1, 1))
    group = 9 * 16 + 2 * 16 * 3 + NARROW.job_overhead
    cycles = cycles_of_boxes(layer, cut_of(layer, ROWS), NARROW)
    assert [(one - NARROW.job_setup) / group for one in cycles[1:]] == [1, 2, 3, 3, 4]
    ways = ways_in_boxes(layer, TWINS)
    assert ways[:, :2].sum(axis=1).min() == 4 * group + NARROW.job_setup  # all of it on one
    assert ways[:, :2].max(axis=1).min() == 3 * group + NARROW.job_setup  # two rows here, three there


def test_a_share_of_some_channels_loads_their_weights_alone():
    layer = Samples(1).dense(Samples(1).tensor((1, 256)), 64)
    nbytes = 64 * 256 + 64 * 12
    loaded = ways_in_boxes(layer, TWINS)[:, 2:].sum(axis=1) * NARROW.dma_width
    assert loaded == pytest.approx(np.full(len(loaded), nbytes))


def test_rows_on_both_sides_of_a_border_are_loaded():
    """Of two layers each lane has half of the rows: of the first one it loads the row beside its own."""
    samples = Samples(1)
    first = samples.conv2d(samples.tensor((1, 8, 8, 16)), 16, (3, 3), padding=(1, 1, 1, 1))
    last = samples.conv2d(first.ofm, 16, (3, 3), padding=(1, 1, 1, 1))
    for loaded, status in ((8 * 16 - 1, "INFEASIBLE"), (8 * 16, "OPTIMAL")):
        program = program_of([first, last], TWINS)
        for share in program.of_layer.values():
            for lane in (0, 1):
                program.model.add(share.elements[lane] == 4 * 8 * 16)
                program.model.add(share.channels[lane] == 16)
                program.model.add(share.pixels[lane] == 4 * 8)
        program.model.add(program.loaded[first.ofm][0][0] <= loaded)
        assert program._meets(program.most, 1.0)[0] == status


def program_of(layers, chip):
    """The program of the shares of some layers in a row."""
    graph, works = graph_of([layers[0].ifm], layers, [layers[-1].ofm]), [LayerWork(layer, chip) for layer in layers]
    return sharing._Program(graph, chip, works, [0, 1], latencies(graph, chip, works, made_in_full(graph)), 1)


@pytest.mark.parametrize("kind", ["conv2d", "add"])
def test_what_others_made_of_a_share_along_another_axis_is_loaded(kind):
    """Of the first layer each lane has half of the channels, of the last one half of the pixels: it loads the other
    half of the channels of these."""
    samples = Samples(1)
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 16, (1, 1))
    last = samples.conv2d(first.ofm, 16, (1, 1)) if kind == "conv2d" else samples.add(first.ofm, first.ofm)
    for loaded, status in ((8 * 8 - 1, "INFEASIBLE"), (8 * 8, "OPTIMAL")):
        program = program_of([first, last], TWINS)
        for share, pixels in zip(program.of_layer.values(), (16, 8), strict=True):
            for lane in (0, 1):
                program.model.add(share.elements[lane] == 8 * 16)
                program.model.add(share.pixels[lane] == pixels)
                program.model.add(share.channels[lane] == 8 * 16 // pixels)
        program.model.add(program.loaded[first.ofm][0][0] <= loaded)
        assert program._meets(program.most, 1.0)[0] == status


def test_a_share_of_channels_of_an_element_wise_layer_reads_as_much_of_its_inputs():
    layer = Samples(1).add(*(Samples(1).tensor((1, 3, 4, 5)) for _ in range(2)))
    assert [(cut.axis, cut.extent) for cut in cuts_of(layer)] == [(ROWS, 3), (COLUMNS, 4), (CHANNELS, 5)]
    assert list(cut_of(layer, CHANNELS).reads) == [0, 12, 24, 36, 48, 60]


def test_a_group_has_all_pixels_where_there_is_one_for_so_many_channels():
    """Four groups have 16 channels of all 16 pixels each; with a fifth one, some group may have a pixel."""
    samples = Samples(1)
    wide = Soc(tuple(replace(one, array_columns=16) for one in TWINS.accelerators))
    layers = [samples.conv2d(samples.tensor((1, 4, 4, 64)), 64, (1, 1))]
    layers.append(samples.conv2d(layers[-1].ofm, 64, (1, 1)))
    for groups, status in ((4, "INFEASIBLE"), (5, "OPTIMAL")):
        program = program_of(layers, wide)
        share = program.of_layer[1]
        program.model.add(share.elements[0] == 16 * 64)
        program.model.add(share.elements[1] == 0)
        program.model.add(share.pixels[0] == 16)
        program.model.add(share.channels[0] == 64)
        program.model.add(share.groups[0] <= groups)
        program.model.add(program.at_first[1, 0, layers[0].ofm] <= 15 * 64)
        assert program._meets(program.most, 1.0)[0] == status


@pytest.mark.parametrize(("channels_apart", "status"), [(1, "INFEASIBLE"), (2, "OPTIMAL")])
def test_a_job_of_a_layer_with_groups_needs_the_channels_of_one_alone(channels_apart, status):
    """Of the first layer each lane has half of the channels. Those of its own are all that a lane's first job reads, if
    the last layer has two groups of channels; four jobs of eight pixels or fewer have no other pixels."""
    samples = Samples(1)
    first = samples.conv2d(samples.tensor((1, 8, 4, 8)), 16, (1, 1))
    last = samples.conv2d(first.ofm, 16, (1, 1), groups=channels_apart)
    program = program_of([first, last], TWINS)
    for lane in (0, 1):
        for share, pixels in zip(program.of_layer.values(), (32, 16), strict=True):
            program.model.add(share.elements[lane] == 8 * 32)
            program.model.add(share.pixels[lane] == pixels)
            program.model.add(share.channels[lane] == 8 * 32 // pixels)
    program.model.add(program.of_layer[1].groups[0] <= 2 * channels_apart)
    program.model.add(program.parts_at_first[1, 0, first.ofm][1][0] == 0)
    assert program._meets(program.most, 1.0)[0] == status


def test_a_share_that_is_in_no_whole_groups_raises_the_bound_of_a_region_of_many_layers(monkeypatch):
    """Arrays of 32 and of 8 rows, and 40 channels: no array has rows of all channels, or channels, in full groups."""
    samples = Samples(1)
    layers = [samples.conv2d(samples.tensor((1, 6, 10, 40)), 40, (3, 3), padding=(1, 1, 1, 1))]
    while len(layers) < 10:
        layers.append(samples.conv2d(layers[-1].ofm, 40, (3, 3), padding=(1, 1, 1, 1)))
    lane = replace(NARROW, packed_rows=False)
    chip = Soc((replace(lane, name="one", array_rows=32), replace(lane, name="two", array_rows=8)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    bound = cycles_bound(graph, chip)
    monkeypatch.setattr(prices, "ways_in_boxes", lambda *_: None)
    assert bound > 1.1 * cycles_bound(graph, chip)


def test_a_share_of_whole_rows_raises_the_bound_of_a_small_region(monkeypatch):
    """Two of five rows here, three there: not two groups each."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 5, 5, 16)), 16, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    bound = cycles_bound(graph, TWINS)
    monkeypatch.setattr(sharing, "BoxRules", lambda *_: None)
    assert bound > 1.2 * cycles_bound(graph, TWINS)
