"""Stripes, patches and tiles in pieces: what comes next is loaded over what is used up, row by row."""

import random

import pytest
from plan_check import check
from plan_choices import lay_out
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.kinds import Window, geometry
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling, from_plain

SAME = (1, 1, 1, 1)


def convolution(channels=8):
    samples = Samples()
    return single(samples.conv2d(samples.tensor((1, 16, 8, 8)), channels, padding=SAME))


def in_turn(graph, pieces, blocks=(None,), **options):
    group = Group(len(graph.layers), overlap=False, pieces=pieces, **options)
    return Choices((False,), (group,), blocks, copies_transpose=False)


@pytest.mark.parametrize("options", [{"stripes": 4}, {"tiling": Tiling(4, 8, 8, 8)}])
def test_the_next_rows_come_while_the_array_computes_the_last_ones_of_the_stripe_before(options):
    graph, hardware = convolution(), accelerator(activations=6 * 64 + 4 * 64, array_columns=8, dma_width=1)
    whole, pieces = (lay_out(graph, in_turn(graph, count, **options), hardware) for count in (1, 4))
    check(graph, hardware, choices=pieces.choices)
    assert pieces.cycles < 0.9 * whole.cycles
    alone = sum(op.cycles for op in whole.work.ops)
    assert whole.cycles > 0.9 * alone


def test_rows_that_are_stored_leave_room_for_the_next_ones():
    graph = convolution()
    room = 6 * 64 + 64  # the input of a stripe of 4 rows, and one row of output
    hardware = accelerator(activations=room, array_columns=8)
    with pytest.raises(PlanError, match="local activation memory"):
        lay_out(graph, in_turn(graph, 1, stripes=4), hardware)
    check(graph, hardware, choices=in_turn(graph, 4, stripes=4))


def test_all_blocks_of_weights_that_stay_are_used_for_a_piece_before_the_next_one():
    graph, blocks = convolution(16), (Blocks(4, 8),)
    hardware = accelerator(activations=6 * 64 + 128, array_columns=8, array_rows=4)
    check(graph, hardware, choices=in_turn(graph, 4, blocks, stripes=4))
    with pytest.raises(PlanError, match="local activation memory"):
        lay_out(graph, in_turn(graph, 4, blocks, stripes=4, resident=False), hardware)


def test_a_piece_of_a_copy_ends_where_that_of_a_job_does():
    graph, hardware = convolution(), accelerator(array_columns=8)
    work = lay_out(graph, in_turn(graph, 4, stripes=4), hardware).work
    stores = [op.step.nbytes for op in work.ops if not op.is_job and not op.step.inward]
    assert stores == [64] * 16


def test_sums_that_several_tiles_add_up_stay_where_they_are():
    graph, hardware = convolution(), accelerator(array_columns=8)
    check(graph, hardware, choices=in_turn(graph, 4, tiling=Tiling(8, 8, 8, 3)))


def test_what_a_later_group_reads_in_local_memory_stays_whole():
    samples = Samples()
    one = samples.conv2d(samples.tensor((1, 16, 8, 8)), 8, padding=SAME)
    other = samples.conv2d(one.ofm, 8, padding=SAME)
    graph = graph_of([one.ifm], [one, other], [one.ofm, other.ofm])
    groups = (
        Group(1, 2, frozenset({1}), overlap=False, pieces=4),
        Group(1, 2, frozenset({1}), overlap=False, pieces=2),
    )
    check(graph, accelerator(array_columns=8), choices=Choices((False,), groups, (None, None)))


def network(seed):
    drawn, samples = random.Random(seed), Samples(seed)
    layers = []
    value = samples.tensor((1, drawn.randint(5, 14), drawn.randint(3, 9), drawn.randint(1, 9)))
    first = value
    for _ in range(drawn.randint(1, 3)):
        kind = drawn.choice(("conv", "depthwise", "pool", "pointwise", "add"))
        strides = drawn.choice(((1, 1), (1, 1), (2, 2)))
        if kind == "conv":
            made = samples.conv2d(value, drawn.randint(1, 12), (3, 3), strides, SAME)
        elif kind == "depthwise":
            made = samples.depthwise(value, (3, 3), strides, SAME)
        elif kind == "pool":
            made = samples.pool(value, drawn.choice(("avg", "max")), (3, 3), strides, SAME)
        elif kind == "add":
            made = samples.add(value, value)
        else:
            made = samples.conv2d(value, drawn.randint(1, 12), (1, 1))
        layers.append(made)
        value = made.ofm
    return graph_of([first], layers, [value])


@pytest.mark.parametrize("seed", range(40))
def test_any_layers_are_exact_in_any_pieces(seed):
    graph, drawn = network(seed), random.Random(seed + 1000)
    layers, hardware = len(graph.layers), accelerator(array_rows=4, array_columns=4)
    storages = range(layers + 1)
    group = Group(
        layers,
        drawn.randint(1, 5),
        frozenset(one for one in storages if drawn.random() < 0.15),
        overlap=drawn.random() < 0.4,
        resident=drawn.random() < 0.6,
        columns=drawn.choice((1, 1, 2)) if layers > 1 else 1,
        kept=frozenset(one for one in storages if drawn.random() < 0.3),
        alternating=drawn.random() < 0.3,
        pieces=drawn.choice((2, 3, 4, 8)),
    )
    form = geometry(graph.layers[0])
    if layers == 1 and isinstance(form, Window) and drawn.random() < 0.5:
        sizes = drawn.randint(1, 6), drawn.randint(2, 6), drawn.randint(1, 6), drawn.randint(1, form.in_channels)
        group = Group(1, overlap=drawn.random() < 0.5, resident=False, tiling=Tiling(*sizes), pieces=group.pieces)
    blocks = tuple(drawn.choice((None, None, Blocks(3, 5))) for _ in graph.layers)
    swapped = tuple(False for _ in map_graph(graph, hardware).mapping.swapped)
    choices = Choices(swapped, (group,), blocks)
    assert from_plain(choices.plain()) == choices
    check(graph, hardware, seed, choices)
