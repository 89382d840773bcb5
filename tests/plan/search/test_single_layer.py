"""Which tiles a layer by itself is cut into."""

import random
from dataclasses import replace

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import KIB, REFERENCE
from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.kinds import geometry
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.tiling import Tiler, TilingCost, tile_geometry
from byoc_hw.plan.choices import Choices, Group, Tiling
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.single_layer import _cheapest, single_tiling, tilings
from byoc_hw.plan.stages import lay_out


def test_whole_layer_where_it_fits():
    samples = Samples()
    tiling = single_tiling(samples.conv2d(samples.tensor((1, 20, 30, 8)), 24), accelerator())
    assert (tiling.rows, tiling.columns, tiling.channels, tiling.depth) == (18, 28, 24, 8)


def test_tiles_along_an_axis_are_as_high_as_each_other():
    samples = Samples()
    tiling = single_tiling(samples.conv2d(samples.tensor((1, 32, 16, 16)), 16, padding=(1, 1, 1, 1)), accelerator(8000))
    assert tiling.rows == 11  # three tiles of 11, 11 and 10; 14 rows fit


def test_rows_are_outer_where_weights_are_cheaper_to_load_again_than_inputs():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 40, 40, 64)), 64, kernel=(1, 1))
    tiling = single_tiling(layer, accelerator(60000, 3000))
    assert tiling.rows_outer
    assert tiling.channels < 64


@pytest.mark.parametrize("weights", [64, 4096])
@pytest.mark.parametrize("depth", [3, 8])
@pytest.mark.parametrize("memory", [300, 1111, 5000, 1 << 20])
def test_most_rows_are_the_last_that_fit(memory, depth, weights):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 24, 12, 8)), 16, padding=(1, 1, 1, 1))
    tiler = Tiler(layer, geometry(layer), accelerator(memory, weights))
    higher = [Tiling(rows, 6, 4, depth) for rows in range(1, 25)]
    assert tiler.most_rows(higher[0]) == sum(map(tiler.fits, higher))


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("weights", [100, 300, 4096])
@pytest.mark.parametrize("memory", [300, 700, 1500, 1 << 20])
def test_most_depth_is_the_last_slice_that_fits(memory, weights, whole, inputs):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 24, 12, 40)), 16, padding=(1, 1, 1, 1))
    tiler = Tiler(layer, geometry(layer), accelerator(memory, weights), inputs=inputs)
    deeper = [Tiling(1, 6, 4, depth, whole_ifm=whole) for depth in range(1, 40)]
    assert tiler.most_depth(deeper[-1]) == sum(map(tiler.fits, deeper))


def test_blocks_of_weights_lie_beside_the_parameters_of_all_channels_once():
    layer = Samples().conv2d(Samples().tensor((1, 12, 6, 16)), 16, padding=(1, 1, 1, 1))
    room = 16 * PARAMS_BYTES + 2 * (8 * 3 * 3 * 8)
    tilers = [Tiler(layer, geometry(layer), accelerator(5000, weights), blocks=2) for weights in (room - 1, room)]
    assert [tiler.fits(Tiling(4, 6, 8, 8)) for tiler in tilers] == [False, True]


def test_cost_is_the_same_whatever_memories_the_layer_was_tiled_for_before():
    """What does not depend on them is known of the layer; blocks of weights that stay do."""
    samples, tiling = Samples(), Tiling(4, 6, 4, 8, rows_outer=True)
    layer = samples.conv2d(samples.tensor((1, 24, 12, 40)), 16, padding=(1, 1, 1, 1))
    costs = []
    for weights in (1000, 1 << 20, 1000):
        costs.append(Tiler(layer, geometry(layer), accelerator(1 << 16, weights)).cost(tiling))
    assert costs[0] == costs[2]
    assert costs[0].weights > costs[1].weights
    assert costs[0][:2] == costs[1][:2]


def test_same_layer_gives_the_same_tiling():
    found = {
        single_tiling(Samples(7).conv2d(Samples(7).tensor((1, 30, 30, 20)), 50), accelerator(5000, 3000))
        for _ in range(3)
    }
    assert len(found) == 1


def test_sum_of_a_tensor_with_itself_has_longer_tiles_than_one_of_two_tensors():
    """It is in local memory once, though the sizes are those of the other sum."""
    samples = Samples()
    one, other = samples.tensor((1, 8, 8, 16)), samples.tensor((1, 8, 8, 16))
    twice, both = (single_tiling(samples.add(one, second), accelerator(1200)).columns for second in (one, other))
    assert (twice, both) == (600, 400)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("add", {1364, 1024, 680}), ("lookup", {2048, 1364, 1024}), ("double", {2048, 1364, 1024})],
)
def test_runs_of_element_wise_layers_leave_room_for_none_or_one_or_all_of_the_next_one(kind, sizes):
    samples = Samples()
    one, other = samples.tensor((1, 40, 40, 16)), samples.tensor((1, 40, 40, 16))
    made = {"add": lambda: samples.add(one, other), "double": lambda: samples.add(one, one)}
    layer = made.get(kind, lambda: samples.lookup(one))()
    found = {tiling.columns for tiling in tilings(layer, accelerator(4096), ((1, 1), (2, 1)))}
    assert found == sizes


@pytest.mark.parametrize(("setup", "run"), [(70, 1024), (2000, 1364)])
def test_runs_are_as_long_as_suits_the_setup_of_a_copy(setup, run):
    """Long ones have fewer setups, shorter ones are loaded while the array computes."""
    samples = Samples()
    one, other = samples.tensor((1, 40, 40, 16)), samples.tensor((1, 40, 40, 16))
    layer = samples.add(one, other)
    hardware = replace(accelerator(4096), dma_setup=setup, dma_width=8)
    (group,) = lay_out_region(graph_of([one, other], [layer], [layer.ofm]), hardware).choices.groups
    assert group.tiling == Tiling(1, run, 1, 1)


def test_tiles_come_in_turn_where_those_beside_jobs_cost_more():
    """Half of a tiny memory has room for small tiles alone, whose copies take longer than tiles in turn."""
    samples, hardware = Samples(), replace(REFERENCE, activation_memory=4 * KIB, weight_memory=KIB, array_columns=8)
    hardware = replace(
        hardware, dma_width=16, dma_setup=10, depthwise_rows=1, tuning=replace(hardware.tuning, hold=False)
    )
    layer = samples.conv2d(samples.tensor((1, 40, 40, 16)), 64, (3, 3), (2, 2), (1, 1, 1, 1))
    (found,) = Grouping(map_graph(graph_of([layer.ifm], [layer], [layer.ofm]), hardware)).path()
    tiling, tiler = found.group.tiling, Tiler(layer, geometry(layer), hardware)
    beside = single_tiling(layer, replace(hardware, activation_memory=2 * KIB, weight_memory=KIB // 2))
    assert found.cycles in (tiler.cycles(tiling, 1, 2), tiler.cycles(tiling))
    assert found.cycles < tiler.cycles(beside, 2, 2)
    assert not found.group.overlap


@pytest.mark.parametrize("seed", range(6))
def test_inputs_of_slices_lie_beside_one_output(seed):
    """Two inputs, the output and its partial sums have room: so slices are copied while others are computed, though two
    such tiles have no room."""
    samples, draw = Samples(seed), random.Random(seed)
    layer = samples.conv2d(samples.tensor((1, 12, 12, 32)), 32, padding=(1, 1, 1, 1))
    hardware = accelerator(6000, 2000)
    one, two = (Tiler(layer, geometry(layer), hardware, inputs=inputs) for inputs in (1, 2))
    tilings = [Tiling(*(draw.randint(1, most) for most in (12, 12, 16, 16))) for _ in range(400)]
    slices = [tiling for tiling in tilings if two.fits(tiling) and 2 * one.layout(tiling).activation_bytes > 6000]
    assert len(slices) >= 5
    assert any(one.fits(tiling) and not two.fits(tiling) for tiling in tilings)
    plain = map_graph(graph_of([layer.ifm], [layer], [layer.ofm]), hardware, copies_transpose=False)
    for tiling in slices[:5]:
        group = Group(1, overlap=True, resident=False, tiling=tiling)
        lay_out(plain, Choices(plain.mapping.swapped, (group,), (None,), copies_transpose=False))


@pytest.mark.slow
def test_slices_are_copied_while_others_are_computed():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 24, 24, 64)), 64, padding=(1, 1, 1, 1))
    tiny = replace(REFERENCE, array_rows=4, array_columns=32, depthwise_rows=4, activation_memory=4 * KIB)
    tiny = replace(tiny, weight_memory=2 * KIB, dma_width=2, dma_setup=200)
    found = lay_out_region(graph_of([layer.ifm], [layer], [layer.ofm]), tiny)
    (group,) = found.choices.groups
    tiler = Tiler(layer, geometry(layer), tiny, inputs=2)
    assert group.overlap
    assert tiler.fits(group.tiling)
    assert 2 * tiler.layout(group.tiling).activation_bytes > tiny.activation_memory
    assert found.cycles < 1.01 * found.work.busy.cycles


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [3, 1])
@pytest.mark.parametrize("seed", range(3))
def test_tiles_for_a_slow_dma_are_as_good_as_others_that_fit(seed, kernel):
    """The plan of a layer that takes many tiles is compared with that of random tilings."""
    samples, draw = Samples(seed), random.Random(seed)
    size, inputs, outputs = draw.choice((8, 12)), draw.choice((24, 32, 48)), draw.choice((24, 48))
    hardware = replace(REFERENCE, activation_memory=2 * KIB, weight_memory=2 * KIB, dma_width=1, array_rows=32)
    layer = samples.conv2d(
        samples.tensor((1, size, size, inputs)), outputs, (kernel, kernel), padding=(kernel // 2,) * 4
    )
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    plan, plain = lay_out_region(graph, hardware), map_graph(graph, hardware, copies_transpose=False)
    tiler = Tiler(layer, tile_geometry(layer), hardware)
    others, limits = [], (tiler.window.rows.ofm, tiler.window.columns.ofm, outputs, inputs)
    while len(others) < 15:
        tiling = Tiling(*(draw.randint(1, limit) for limit in limits), rows_outer=draw.random() < 0.5)
        if tiler.fits(tiling):
            group = Group(1, overlap=False, resident=False, tiling=tiling)
            others.append(lay_out(plain, Choices(plain.mapping.swapped, (group,), (None,), copies_transpose=False)))
    assert plan.cycles <= min(other.cycles for other in others)


def layer_on_a_slow_dma(seed, kernel):
    """A layer that takes many tiles, and its tiler."""
    samples, draw = Samples(seed), random.Random(seed)
    size, outputs = draw.choice((8, 13)), draw.choice((24, 48))
    ifm = samples.tensor((1, size, size, draw.choice((24, 40))))
    layer = samples.conv2d(ifm, outputs, (kernel, kernel), padding=(kernel // 2,) * 4)
    hardware = replace(REFERENCE, activation_memory=2 * KIB, weight_memory=2 * KIB, dma_width=1, array_rows=32)
    return layer, Tiler(layer, tile_geometry(layer), hardware)


@pytest.mark.parametrize("kernel", [3, 1])
def test_no_tiling_costs_less_than_is_said_before_its_jobs_are_counted(kernel):
    _, tiler = layer_on_a_slow_dma(1, kernel)
    draw, window = random.Random(2), tiler.window
    limits = window.rows.ofm, window.columns.ofm, window.out_channels, window.in_channels
    more = 0
    for _ in range(60):
        tiling = Tiling(*(draw.randint(1, most) for most in limits), rows_outer=draw.random() < 0.5)
        least, cost = tiler.least_cost(tiling), tiler.cost(tiling)
        assert least[1:] == cost[1:]
        assert least.jobs <= cost.jobs
        more += least.jobs < cost.jobs
    assert more > 0


@pytest.mark.parametrize("kernel", [3, 1])
def test_the_tilings_that_are_found_are_the_same_where_all_are_counted(kernel, monkeypatch):
    layers, counted, cost = [layer_on_a_slow_dma(seed, kernel) for seed in range(4)], [], Tiler.cost
    monkeypatch.setattr(Tiler, "cost", lambda self, tiling: counted.append(tiling) or cost(self, tiling))

    def found():
        _cheapest.cache_clear()
        counted.clear()
        some = [list(tilings(layer, tiler.accelerator, ((1, 1), (2, 2)))) for layer, tiler in layers]
        return some, len(counted)

    some, few = found()
    monkeypatch.setattr(Tiler, "least_cost", lambda self, tiling, weights=True: TilingCost(0, 0, 0))
    every, many = found()
    assert some == every
    assert few < many


def test_memory_that_has_room_for_one_input_alone_has_no_tilings_for_two():
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 6, 6, 8)), 8, padding=(1, 1, 1, 1))
    found = [
        len(list(tilings(layer, replace(REFERENCE, activation_memory=nbytes), ((2, 1),))))
        for nbytes in range(8, 512, 8)
    ]
    assert found[0] == 0 < found[-1]


def test_there_are_no_tilings_where_so_many_blocks_of_weights_do_not_fit():
    layer = Samples().depthwise(Samples().tensor((1, 5, 8, 16)), padding=(1, 1, 1, 1))
    hardware = accelerator(528, 64, array_rows=4, array_columns=8)
    assert [bool(list(tilings(layer, hardware, [(1, blocks)]))) for blocks in (1, 3)] == [True, False]
