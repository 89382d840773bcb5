"""Blocks of weights, and tiles, forward and backward in turn: what the last one has used is not loaded again."""

import random
from dataclasses import replace

import pytest
from plan_check import check
from plan_choices import lay_out
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.params.pack import PARAMS_BYTES
from byoc_hw.plan.array.kinds import geometry
from byoc_hw.plan.array.tiling import Tiler
from byoc_hw.plan.array.weight_blocks import local_blocks, staying
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling, from_plain
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, FLASH, WEIGHTS, Copy

SAME = (1, 1, 1, 1)
BLOCK = 4 * (3 * 3 * 8 + PARAMS_BYTES)
"""Bytes of a block of 4 output channels of the convolution below."""


def convolution(channels=16):
    samples = Samples()
    return single(samples.conv2d(samples.tensor((1, 12, 6, 8)), channels, padding=SAME))


def loads(plan, space):
    """The addresses from which the copies to a local memory load."""
    copies = [step for step in plan.steps if isinstance(step, Copy) and step.target.space == space]
    return [step.source.offset for step in copies if step.source.space in (FLASH, ARGUMENT)]


def in_stripes(graph, blocks, count=4, **options):
    layers = len(graph.layers)
    group = Group(layers, count, resident=False, **options)
    return Choices((False,), (group,), blocks)


@pytest.mark.parametrize("stay", [1, 2, 3, 4, 5])
def test_all_blocks_of_a_layer_that_fit_stay_from_stripe_to_stripe(stay):
    """In the reverse order each of them is used up before another one is loaded in its place."""
    graph, hardware = convolution(24), accelerator(weights=stay * BLOCK, array_rows=4)
    blocks = Blocks(4, 8)
    assert staying([local_blocks(graph.layers[0], blocks, hardware)], hardware) == [stay]
    found = [
        loads(check(graph, hardware, choices=in_stripes(graph, (blocks,), alternating=alternating)), WEIGHTS)
        for alternating in (False, True)
    ]
    assert [len(one) for one in found] == [4 * 6, 6 + 3 * (6 - stay)]
    assert found[1][: 6 + 1] == [*sorted(set(found[1])), sorted(set(found[1]))[6 - stay - 1]]


def test_the_parameters_beside_slices_of_input_channels_stay_with_them():
    graph, blocks = convolution(8), Blocks(4, 4)  # four blocks and the parameters of all channels
    hardware = accelerator(weights=3 * 4 * 3 * 3 * 4 + 8 * PARAMS_BYTES, array_rows=4)
    assert staying([local_blocks(graph.layers[0], blocks, hardware)], hardware) == [3]
    plan = check(graph, hardware, choices=in_stripes(graph, (blocks,), alternating=True))
    assert len(loads(plan, WEIGHTS)) == 1 + 4 + 3 * 1


def test_all_weights_of_the_smallest_layers_stay_first():
    samples = Samples()
    one = samples.conv2d(samples.tensor((1, 12, 6, 8)), 16, padding=SAME)
    other = samples.conv2d(one.ofm, 8, (1, 1))
    graph = graph_of([one.ifm], [one, other], [other.ofm])
    small = 8 * (16 + PARAMS_BYTES)
    hardware = accelerator(weights=small + 2 * BLOCK, array_rows=4)
    blocks = Blocks(4, 8), None
    assert staying([local_blocks(*one, hardware) for one in zip(graph.layers, blocks, strict=True)], hardware) == [2, 1]
    plan = check(graph, hardware, choices=in_stripes(graph, blocks, alternating=True))
    assert len(loads(plan, WEIGHTS)) == 4 + 3 * 2 + 1


def test_blocks_of_several_layers_stay_beside_two_others():
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 12, 6, 8)), 16, padding=SAME)]
    layers.append(samples.conv2d(layers[0].ofm, 8, padding=SAME))
    graph = graph_of([layers[0].ifm], layers, [layers[1].ofm])
    hardware = accelerator(weights=5 * BLOCK, array_rows=4)
    blocks = Blocks(4, 8), Blocks(4, 16)
    assert staying([local_blocks(*one, hardware) for one in zip(layers, blocks, strict=True)], hardware) == [1, 0]
    plan = check(graph, hardware, choices=in_stripes(graph, blocks, alternating=True))
    assert len(loads(plan, WEIGHTS)) == 4 + 3 * 3 + 4 * 2


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_blocks_is_exact(seed):
    drawn, samples = random.Random(seed), Samples(seed)
    value, layers = samples.tensor((1, drawn.randint(4, 9), 5, drawn.randint(2, 8))), []
    for _ in range(drawn.randint(1, 3)):
        layers.append(samples.conv2d(layers[-1].ofm if layers else value, drawn.randint(4, 12), padding=SAME))
    graph = graph_of([value], layers, [layers[-1].ofm])
    blocks = tuple(Blocks(drawn.randint(1, 5), drawn.randint(1, layer.in_channels)) for layer in layers)
    hardware = accelerator(weights=drawn.choice((1200, 2000, 4000)), array_rows=4, array_columns=4)
    choices = in_stripes(graph, blocks, drawn.randint(2, 5), alternating=True, overlap=drawn.random() < 0.5)
    assert from_plain(choices.plain()) == choices
    check(graph, hardware, seed, choices)


def expanding(project=False):
    """A convolution of single pixels and a depthwise one, and another convolution that may sum what they make."""
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 12, 6, 8)), 32, (1, 1))
    deep = samples.depthwise(wide.ofm, padding=SAME)
    layers = [wide, deep, *([samples.conv2d(deep.ofm, 8, (1, 1))] if project else [])]
    return graph_of([wide.ifm], layers, [layers[-1].ofm])


SLICE = 4 * (8 + PARAMS_BYTES) + 4 * (3 * 3 + PARAMS_BYTES)
"""Bytes of the weights of 4 channels of the first two of these layers."""


@pytest.mark.parametrize(("room", "stay"), [(2, 0), (3, 1), (5, 3), (7, 5)])
@pytest.mark.parametrize("columns", [1, 2])
def test_slices_that_fit_beside_two_blocks_stay_from_patch_to_patch(room, stay, columns):
    graph, slices, patches = expanding(), 8, 3 * columns
    layers, blocks = len(graph.layers), (Blocks(4, 8), Blocks(4, 1))
    hardware = accelerator(weights=room * SLICE + 32, array_rows=4, depthwise_rows=4)
    group = Group(layers, 3, resident=False, columns=columns, slices=slices)
    one, other = (
        loads(check(graph, hardware, choices=Choices((False,), (made,), blocks)), WEIGHTS)
        for made in (group, replace(group, alternating=True))
    )
    assert len(one) == patches * 2 * slices
    assert 0 <= patches * 2 * slices - (patches - 1) * 2 * stay - len(other) <= 2 * patches
    assert other[: 2 * slices] == one[: 2 * slices]
    assert len(set(other)) == 2 * slices


def test_slices_that_are_summed_stay_with_their_parameters():
    graph, blocks = expanding(project=True), (Blocks(4, 8), Blocks(4, 1), Blocks(8, 4))
    hardware = accelerator(weights=2048, array_rows=4, depthwise_rows=4)
    group = Group(3, 4, resident=False, slices=8, summed=True)
    found = [
        loads(check(graph, hardware, choices=Choices((False,), (made,), blocks)), WEIGHTS)
        for made in (group, replace(group, alternating=True))
    ]
    assert [len(one) for one in found] == [4 * (8 * 3 + 1), 8 * 3 + 1]  # all of them have room
    tight = replace(hardware, weight_memory=1024)
    found = loads(check(graph, tight, choices=Choices((False,), (replace(group, alternating=True),), blocks)), WEIGHTS)
    assert 8 * 3 + 1 < len(found) < 3 * (8 * 3 + 1)
    parameters = found[3]
    assert found.count(parameters) == 1


def in_tiles(graph, tiling):
    group = Group(1, overlap=False, resident=False, tiling=tiling)
    return Choices((False,), (group,), (None,), copies_transpose=False)


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5])
def test_the_last_blocks_of_a_tile_that_fit_are_the_first_ones_of_the_next(room):
    graph, hardware = convolution(), accelerator(weights=room * BLOCK, array_rows=4)
    plan = check(graph, hardware, choices=in_tiles(graph, Tiling(3, 6, 4, 8, rows_outer=True)))
    found = loads(plan, WEIGHTS)
    left = max(4 - room, 0)
    assert len(found) == 4 + 3 * left
    assert found[4 : 4 + left] == found[:left][::-1]


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("room", [1, 2, 3, 7, 8])
def test_slices_of_tiles_that_fit_beside_the_parameters_stay(room, outer):
    """Two blocks of each of four runs of channels, which follow each other in each of four tiles. The parameters of all
    channels stay, too, but those of one run where they would take more than a quarter of weight memory."""
    graph, once = convolution(), room > 3
    parameters = PARAMS_BYTES * (16 if once else 4)
    hardware = accelerator(weights=room * 4 * 3 * 3 * 4 + parameters, array_rows=4)
    tiling = Tiling(3, 6, 4, 4, rows_outer=outer, whole_ifm=outer)
    found = loads(check(graph, hardware, choices=in_tiles(graph, tiling)), WEIGHTS)
    of_parameters = 1 if once else 4 + 3 * 3 * outer
    assert len(found) == of_parameters + 8 + 3 * (max(8 - room, 0) if outer else 4 * max(2 - room, 0))


def test_the_last_block_of_tiles_may_be_smaller():
    """Its place is as large as that of the others, so any of them fits there later."""
    graph, hardware = convolution(18), accelerator(weights=3 * BLOCK, array_rows=4)
    plan = check(graph, hardware, choices=in_tiles(graph, Tiling(2, 6, 4, 8, rows_outer=True)))
    assert len(loads(plan, WEIGHTS)) == 5 + 5 * 2


def test_the_last_rows_of_some_channels_are_the_first_ones_of_the_next():
    graph, hardware = convolution(), accelerator(array_rows=4)
    plan = check(graph, hardware, choices=in_tiles(graph, Tiling(3, 6, 4, 8)))
    assert len(loads(plan, ACTIVATIONS)) == 4 + 3 * 3
    assert len(loads(plan, WEIGHTS)) == 4


@pytest.mark.parametrize("room", [1, 2, 4, 100])
@pytest.mark.parametrize(
    "tiling",
    [
        Tiling(3, 6, 4, 8),
        Tiling(3, 6, 4, 8, rows_outer=True),
        Tiling(12, 6, 4, 4, rows_outer=True, whole_ifm=True),
        Tiling(12, 6, 4, 4, whole_ifm=True),
        Tiling(12, 6, 4, 4),
    ],
)
def test_the_cost_of_a_tiling_counts_what_stays(tiling, room):
    graph, hardware = convolution(), accelerator(weights=room * BLOCK, array_rows=4)
    (layer,) = graph.layers
    tiler = Tiler(layer, geometry(layer), hardware)
    work = lay_out(graph, in_tiles(graph, tiling), hardware).work
    busy = sum(op.cycles for op in work.ops)
    beside = PARAMS_BYTES * layer.out_channels if tiler.sliced(tiling) else 0
    assert abs(tiler.cycles(tiling) - busy) <= (hardware.dma_setup + beside) * 4
    assert tiler.cycles(tiling) >= busy * 0.97
