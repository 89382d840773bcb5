"""Groups in patches of rows and columns, and in slices of channels."""

import random
from dataclasses import replace
from math import prod

import pytest
from plan_check import check
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.kinds import Run, geometry
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.packing import bands
from byoc_hw.plan.choices import Blocks, Choices, Group, from_plain
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import ACTIVATIONS, SCRATCH, Copy, Job
from byoc_hw.plan.work.patch_boxes import runs_of_channels


def inverted(seed, *, add=False):
    """Expand, depthwise, project, as MobileNetV2 has them, of random sizes, strides and paddings; with a sum behind."""
    drawn, samples = random.Random(seed), Samples(seed)
    ifm = samples.tensor((1, drawn.randint(3, 15), drawn.randint(3, 15), drawn.randint(1, 12)))
    wide = samples.conv2d(ifm, drawn.randint(2, 40), (1, 1), bits=drawn.choice((8, 4)))
    kernel = drawn.choice(((3, 3), (3, 1), (2, 3)))
    padding = tuple(drawn.randint(0, kernel[side % 2] - 1) for side in range(4))
    strides = (1, 1) if add else drawn.choice(((1, 1), (2, 2), (1, 2)))
    deep = samples.depthwise(wide.ofm, (3, 3) if add else kernel, strides, (1, 1, 1, 1) if add else padding)
    narrow = samples.conv2d(deep.ofm, ifm.shape[3] if add else drawn.randint(1, 20), (1, 1))
    layers = [wide, deep, narrow]
    if add:
        layers.append(samples.add(narrow.ofm, ifm))
    return graph_of([ifm], layers, [layers[-1].ofm])


def separable(seed):
    """Depthwise, pointwise and another depthwise layer, as MobileNetV1 has them, of random sizes and strides."""
    drawn, samples = random.Random(seed), Samples(seed)
    ifm = samples.tensor((1, drawn.randint(3, 15), drawn.randint(3, 15), drawn.randint(2, 40)))
    strides = drawn.choice(((1, 1), (2, 2), (1, 1)))
    layers = [samples.depthwise(ifm, (3, 3), strides, (1, 1, 1, 1))]
    layers.append(samples.conv2d(layers[0].ofm, drawn.randint(2, 40), (1, 1), bits=drawn.choice((8, 4))))
    layers.append(samples.depthwise(layers[1].ofm, (3, 3), (1, 1), (1, 1, 1, 1)))
    return graph_of([ifm], layers, [layers[-1].ofm])


def summing(seed):
    """A depthwise layer or a pooling, often behind a convolution, and a convolution of its output, often with another
    layer behind that."""
    drawn, samples = random.Random(seed), Samples(seed)
    value = ifm = samples.tensor((1, drawn.randint(3, 12), drawn.randint(3, 12), drawn.randint(1, 12)))
    layers = []

    def add(layer):
        layers.append(layer)
        return layer.ofm

    if drawn.random() < 0.5:
        value = add(
            samples.conv2d(value, drawn.randint(2, 40), drawn.choice(((1, 1), (2, 2))), bits=drawn.choice((8, 4)))
        )
    if drawn.random() < 0.8:
        value = add(samples.depthwise(value, (3, 3), drawn.choice(((1, 1), (2, 2))), (1, 1, 1, 1)))
    else:
        value = add(samples.pool(value, "max", (2, 2), (1, 1)))
    side = drawn.choice((1, 1, 3))
    value = add(
        samples.conv2d(value, drawn.randint(1, 24), (side, side), padding=(side // 2,) * 4, bits=drawn.choice((8, 4)))
    )
    if drawn.random() < 0.5:
        value = add(samples.depthwise(value, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of([ifm], layers, [value])


def residual(seed):
    """A convolution and a sum of its output and another image, often with a pooling or a convolution behind that."""
    drawn, samples = random.Random(seed), Samples(seed)
    ifm = samples.tensor((1, drawn.randint(3, 12), drawn.randint(3, 12), drawn.randint(1, 12)))
    layers = [samples.conv2d(ifm, drawn.randint(2, 40), (3, 3), padding=(1, 1, 1, 1), bits=drawn.choice((8, 4)))]
    other = samples.tensor(layers[0].ofm.shape)
    kind = drawn.choice((samples.add, samples.mul))
    layers.append(kind(*drawn.choice(((layers[0].ofm, other), (other, layers[0].ofm), (layers[0].ofm,) * 2))))
    if drawn.random() < 0.3:
        layers.append(samples.lookup(layers[-1].ofm))
    behind = drawn.choice((None, None, samples.pool, lambda value: samples.conv2d(value, drawn.randint(1, 24), (1, 1))))
    if behind is not None:
        layers.append(behind(layers[-1].ofm))
    inputs = [ifm, other] if other in layers[1].inputs else [ifm]
    return graph_of(inputs, layers, [layers[-1].ofm])


def alone(graph, *groups, blocks=None):
    layers = len(graph.layers)
    return Choices((False,), groups, blocks or (None,) * layers)


def array(**changes):
    return accelerator(array_rows=4, array_columns=4, depthwise_rows=2, **changes)


@pytest.mark.parametrize("seed", range(12))
def test_inverted_bottleneck_in_patches_and_slices_is_exact(seed):
    drawn, graph = random.Random(seed + 100), inverted(seed, add=seed % 3 == 0)
    group = Group(
        len(graph.layers),
        drawn.randint(1, 5),
        overlap=drawn.random() < 0.5,
        resident=drawn.random() < 0.5,
        columns=drawn.randint(1, 4),
        slices=drawn.randint(2, 9),
    )
    blocks = [drawn.choice((None, Blocks(3, 5), Blocks(8, 2))) for _ in graph.layers]
    check(graph, array(), seed, alone(graph, group, blocks=tuple(blocks)))


@pytest.mark.parametrize("seed", range(12))
def test_slices_of_packed_rows_are_exact(seed):
    """With the input or the output of the slices in local memory, or neither."""
    drawn, graph = random.Random(seed + 100), inverted(seed, add=seed % 3 == 0)
    layers = drawn.choice((2, len(graph.layers)))
    held = frozenset(drawn.choice(((), (0,), (layers,))))
    group = Group(layers, 1, held, overlap=drawn.random() < 0.5, slices=drawn.randint(2, 9))
    rest = (Group(1, 1, held & {layers}) for _ in graph.layers[layers:])
    packed = frozenset(band for band in bands(graph.layers) if band is not None)
    check(graph, array(), seed, replace(alone(graph, group, *rest), packed=packed))


@pytest.mark.parametrize("seed", range(16))
def test_slices_that_are_loaded_one_by_one_are_exact(seed):
    """In patches, or with packed rows; with two or three layers; and with an input that is in local memory instead."""
    drawn, graph = random.Random(seed + 100), separable(seed)
    layers, packs = drawn.choice((2, 3)), seed % 2 == 0
    group = Group(
        layers,
        1 if packs else drawn.randint(1, 4),
        drawn.choice((frozenset(), frozenset(), frozenset({0}))),
        overlap=drawn.random() < 0.5,
        resident=drawn.random() < 0.5,
        columns=1 if packs else drawn.randint(1, 3),
        slices=drawn.randint(2, 9),
    )
    packed = frozenset(band for band in bands(graph.layers) if band is not None) if packs else frozenset()
    check(graph, array(), seed, replace(alone(graph, group, *(Group(1),) * (3 - layers)), packed=packed))


def test_layers_behind_a_depthwise_one_have_slices_of_the_input_and_of_the_output_in_local_memory():
    samples = Samples()
    deep = samples.depthwise(samples.tensor((1, 8, 8, 32)), padding=(1, 1, 1, 1))
    point = samples.conv2d(deep.ofm, 32, (1, 1))
    graph = graph_of([deep.ifm], [deep, point], [point.ofm])
    tiny = array(activations=(32 + 4 * 4) * 64)  # all channels between the layers, of the others two slices
    with pytest.raises(PlanError, match=r"local activation memory: \d+ bytes needed, 3072 bytes there"):
        plan_region(graph, tiny, alone(graph, Group(2)))
    plan = check(graph, tiny, choices=alone(graph, Group(2, slices=8)))
    copies = [step for step in plan.steps if isinstance(step, Copy) and step.rows > 1]
    assert [(step.inward, step.nbytes, step.rows) for step in copies].count((True, 4, 64)) == 8
    assert [(step.inward, step.nbytes, step.rows) for step in copies].count((False, 4, 64)) == 8


@pytest.mark.parametrize(
    "seed", [*range(1, 5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 6, 7, 9, 10, 11))]
)
def test_outer_slices_are_exact(seed):
    """With a layer before the slices, or slices that are loaded, and with weights that stay or not."""
    drawn, graph = random.Random(seed + 100), (separable, inverted)[seed % 2](seed)
    wide, deep = graph.layers[:2] if seed % 2 else graph.layers[1:]
    first = Samples(seed).conv2d(wide.ifm, wide.ifm.shape[3], (3, 3), padding=(1, 1, 1, 1))
    layers = [first, replace(wide, ifm=first.ofm), deep] if seed % 4 < 2 else [wide, deep]
    graph = graph_of([layers[0].ifm], layers, [deep.ofm])
    group = Group(
        len(layers),
        drawn.randint(1, 4),
        overlap=drawn.random() < 0.5,
        resident=drawn.random() < 0.7,
        columns=drawn.randint(2, 4),
        slices=drawn.randint(2, 9),
        slices_outer=True,
        pieces=drawn.choice((1, 4)),
    )
    blocks = tuple(drawn.choice((None, Blocks(3, 5), Blocks(8, 2))) for _ in layers)
    check(graph, array(), seed, alone(graph, group, blocks=blocks))


def test_outer_slices_load_their_weights_once_and_the_input_for_each_slice():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 8, 8, 8)), 32, (1, 1))
    deep = samples.depthwise(wide.ofm, padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, deep], [deep.ofm])
    weights = 32 * 8 + 32 * 9 + 2 * 32 * 12
    tiny = array(weights=weights // 2)  # not those of both slices
    group = Group(2, 4, slices=2)
    known = plan_region(graph, tiny, alone(graph, replace(group, resident=False)))
    plan = check(graph, tiny, choices=alone(graph, replace(group, slices_outer=True)))
    assert known.moved["weights"] == 4 * plan.moved["weights"]
    assert plan.moved["weights"] == pytest.approx(weights, rel=0.1)
    assert plan.moved["inputs"] == 2 * known.moved["inputs"]
    with pytest.raises(PlanError, match="weight memory"):
        plan_region(graph, tiny, alone(graph, group))


def test_slices_that_do_not_end_a_group_are_not_outer():
    graph = inverted(0)
    with pytest.raises(PlanError, match="end a group with outer slices alone have slices"):
        plan_region(graph, array(), alone(graph, Group(3, 2, slices=2, slices_outer=True)))


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 24))])
def test_sums_of_slices_and_what_comes_beside_them_are_exact(seed):
    """In patches, or with packed rows, with outer slices, and with slices that are summed."""
    drawn, graph = random.Random(seed + 100), residual(seed)
    layers, numbers = len(graph.layers), bands(graph.layers)
    packs, sums = seed % 3 == 0, not isinstance(geometry(graph.layers[-1]), Run)
    of = map_graph(graph, array()).storages.of
    ends = [frozenset({of[tensor].index}) for tensor in (graph.inputs[-1], graph.layers[-1].ofm)]
    held = drawn.choice((frozenset(), frozenset(), *ends))
    group = Group(
        layers,
        1 if packs else drawn.randint(1, 4),
        held,
        overlap=drawn.random() < 0.5,
        resident=drawn.random() < 0.5,
        columns=1 if packs else drawn.randint(1, 3),
        slices=drawn.randint(2, 9),
        summed=sums and drawn.random() < 0.7,
        slices_outer=not sums and not packs and not held and drawn.random() < 0.5,
        pieces=drawn.choice((1, 4)),
    )
    blocks = tuple(drawn.choice((None, Blocks(3, 5), Blocks(8, 2), Blocks(4, 64))) for _ in graph.layers)
    packed = frozenset(band for band in numbers if band is not None) if packs else frozenset()
    check(graph, array(), seed, replace(alone(graph, group, blocks=blocks), packed=packed))


def test_what_is_added_to_slices_is_loaded_slice_by_slice():
    samples = Samples()
    conv = samples.conv2d(samples.tensor((1, 8, 8, 8)), 64, (1, 1))
    other = samples.tensor((1, 8, 8, 64))
    both = samples.add(conv.ofm, other)
    graph = graph_of([conv.ifm, other], [conv, both], [both.ofm])
    tiny = array(activations=(8 + 3 * 8) * 64)  # the input, and a slice of each of the others
    with pytest.raises(PlanError, match=r"local activation memory: \d+ bytes needed, 2048 bytes there"):
        plan_region(graph, tiny, alone(graph, Group(2, overlap=False)))
    plan = check(graph, tiny, choices=alone(graph, Group(2, overlap=False, slices=8)))
    copies = [step for step in plan.steps if isinstance(step, Copy) and step.rows > 1]
    assert [(step.inward, step.nbytes, step.rows) for step in copies].count((True, 8, 64)) == 8
    assert [(step.inward, step.nbytes, step.rows) for step in copies].count((False, 8, 64)) == 8


@pytest.mark.parametrize("held", [frozenset({1}), frozenset({3})])
def test_what_lies_in_local_memory_with_all_channels_is_not_added_to_slices(held):
    samples = Samples()
    conv = samples.conv2d(samples.tensor((1, 6, 6, 4)), 16, (1, 1))
    both = samples.add(conv.ofm, samples.tensor((1, 6, 6, 16)))
    graph = graph_of([conv.ifm, both.inputs[1]], [conv, both], [both.ofm])
    mapped = map_graph(graph, array())
    runs = runs_of_channels(graph.layers, mapped.storages.of, (0, 1), 4, held)
    assert [(run.layers, run.sliced, run.beside) for run in runs] == [((0,), False, ()), ((1,), False, ())]
    (run,) = runs_of_channels(graph.layers, mapped.storages.of, (0, 1), 4, frozenset())
    assert (run.layers, run.sliced, run.beside) == ((0, 1), True, (mapped.storages.of[both.inputs[1]],))


@pytest.mark.parametrize("seed", range(20))
def test_slices_that_are_summed_are_exact(seed):
    """In patches, or with packed rows, with weights in blocks of all kinds."""
    drawn, graph = random.Random(seed + 100), summing(seed)
    layers, packs = len(graph.layers), seed % 3 == 0
    group = Group(
        layers,
        1 if packs else drawn.randint(1, 4),
        frozenset(drawn.choice(((), (), (layers,), (0,)))),
        overlap=drawn.random() < 0.5,
        resident=drawn.random() < 0.5,
        columns=1 if packs else drawn.randint(1, 3),
        slices=drawn.randint(2, 9),
        summed=True,
    )
    blocks = tuple(drawn.choice((None, Blocks(3, 5), Blocks(8, 2), Blocks(4, 64))) for _ in graph.layers)
    choices = alone(graph, group, blocks=blocks)
    numbers = bands(graph.layers)
    if packs and len(set(numbers)) == 1:
        choices = replace(choices, packed=frozenset({0}))
    check(graph, array(), seed, choices)


@pytest.mark.parametrize("seed", range(24))
def test_patches_with_slices_in_alternating_order_are_exact(seed):
    """In a weight memory that has room for some blocks; in whole patches, or in pieces."""
    drawn = random.Random(seed + 100)
    graph = (inverted, separable, summing, residual)[seed % 4](seed)
    layers = len(graph.layers)
    group = Group(
        layers,
        drawn.randint(2, 4),
        overlap=drawn.random() < 0.5,
        resident=False,
        columns=drawn.randint(1, 2),
        slices=drawn.randint(1, 9),
        alternating=True,
        summed=drawn.random() < 0.5 and not isinstance(geometry(graph.layers[-1]), Run),
        pieces=drawn.choice((1, 4)),
    )
    blocks = tuple(drawn.choice((Blocks(3, 5), Blocks(8, 2), Blocks(4, 64))) for _ in graph.layers)
    choices = alone(graph, group, blocks=blocks)
    assert from_plain(choices.plain()) == choices
    check(graph, array(weights=drawn.choice((2048, 3072))), seed, choices)


def test_slices_that_are_summed_are_never_in_local_memory_with_all_channels():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 8, 8, 4)), 64, (1, 1))
    deep = samples.depthwise(wide.ofm, padding=(1, 1, 1, 1))
    narrow = samples.conv2d(deep.ofm, 4, (1, 1))
    graph = graph_of([wide.ifm], [wide, deep, narrow], [narrow.ofm])
    tiny = array(activations=3 * 1024)  # the input, the output and its partial sums are 1.5 KiB, two slices 512 bytes
    group = Group(3, slices=16)
    with pytest.raises(PlanError, match=r"local activation memory: \d+ bytes needed, 3072 bytes there"):
        plan_region(graph, tiny, alone(graph, group))
    plan = check(graph, tiny, choices=alone(graph, replace(group, summed=True)))
    sums = [step for step in plan.steps if isinstance(step, Job) and step.ofm_shape[2] == 4 and step.kernel == (1, 1)]
    assert [job.ifm_shape[2] for job in sums if not (job.first and job.last)] == [4] * 16
    assert [job.first for job in sums].count(True) >= 1


def test_depthwise_layers_in_slices_take_packed_rows_as_one():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 6, 6, 8)), 32, (1, 1))
    deep = samples.depthwise(wide.ofm, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, deep], [deep.ofm])
    plan = check(graph, array(), choices=replace(alone(graph, Group(2, slices=4)), packed=frozenset({0})))
    found = [step.ofm_shape for step in plan.steps if isinstance(step, Job)]
    assert {(rows, channels) for rows, _, channels in found} == {(1, 8)}
    assert sum(pixels for _, pixels, _ in found) == 4 * 2 * (5 * 7 + 6)
    two = replace(alone(graph, Group(2, 2, slices=4)), packed=frozenset({0}))
    with pytest.raises(PlanError, match="patches are of tensors that lie by themselves"):
        plan_region(graph, array(), two)


@pytest.mark.parametrize("held", [(), (0,)])
def test_an_input_whose_room_is_filled_with_its_rows_is_loaded_behind_that(held):
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 6, 6, 8)), 32, (3, 3), padding=(1, 1, 1, 1))
    deep = samples.depthwise(wide.ofm, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, deep], [deep.ofm])
    choices = replace(alone(graph, Group(2, held=frozenset(held), slices=4)), packed=frozenset({0}))
    plan = check(graph, array(dma_width=16, dma_setup=200), choices=choices)
    first, second = [step for step in plan.steps if isinstance(step, Copy) and step.target.space == ACTIVATIONS][:2]
    assert (first.rows, second.rows) == (1, 6), "the room with the rows, and the rows"


@pytest.mark.parametrize("stripes", [1, 3])
def test_depthwise_output_is_stored_slice_by_slice(stripes):
    graph = inverted(1)
    groups = Group(2, stripes, slices=100), Group(1)
    plan = check(graph, array(), choices=alone(graph, *groups))
    channels = graph.layers[1].ofm.shape[-1]
    jobs = [step for step in plan.steps if isinstance(step, Job)]
    stores = [step for step in plan.steps if isinstance(step, Copy) and step.target.space == SCRATCH]
    assert {job.ofm_shape[2] for job in jobs[:-1]} == {1}
    assert len(jobs) - 1 == 2 * len(stores) == 2 * stripes * channels
    assert sum(step.rows * step.nbytes for step in stores) == graph.layers[1].ofm.nbytes


def test_what_lies_between_layers_has_a_slice_of_its_channels_in_local_memory():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 8, 8, 4)), 64, (1, 1))
    deep = samples.depthwise(wide.ofm, padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, deep], [deep.ofm])
    tiny = array(activations=2048)
    with pytest.raises(PlanError, match=r"local activation memory: \d+ bytes needed, 2048 bytes there"):
        plan_region(graph, tiny, alone(graph, Group(2)))
    check(graph, tiny, choices=alone(graph, Group(2, slices=16)))


def test_patch_is_rows_and_columns_with_a_halo_in_both_directions():
    samples = Samples()
    one = samples.conv2d(samples.tensor((1, 8, 8, 4)), 4, (1, 1))
    other = samples.conv2d(one.ofm, 4, padding=(1, 1, 1, 1))
    graph = graph_of([one.ifm], [one, other], [other.ofm])
    plan = check(graph, array(), choices=alone(graph, Group(2, 2, columns=2)))
    jobs = [step for step in plan.steps if isinstance(step, Job)]
    assert [prod(job.ofm_shape) for job in jobs] == [5 * 5 * 4, 4 * 4 * 4] * 4
    assert [job.padding for job in jobs[1::2]] == [(1, 1, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 1, 1)]


@pytest.mark.parametrize("held", [{0}, {4}, {0, 4}])
def test_input_and_output_of_patches_may_stay_in_local_memory(held):
    graph = inverted(4, add=True)
    group = Group(4, 2, frozenset(held), columns=3, slices=2)
    check(graph, array(), choices=alone(graph, group))


def test_what_a_later_group_reads_is_not_computed_in_patches():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 8, 8, 4)), 8, (1, 1))
    deep = samples.depthwise(wide.ofm)
    graph = graph_of([wide.ifm], [wide, deep], [wide.ofm, deep.ofm])
    with pytest.raises(PlanError, match="what lies between layers in patches is read by them alone"):
        plan_region(graph, array(), alone(graph, Group(2, slices=2)))


def test_product_has_no_patches():
    samples = Samples()
    product = samples.matmul(samples.tensor((1, 6, 1, 4)), samples.tensor((1, 5, 4)))
    graph = graph_of([product.ifm, product.ifm2], [product], [product.ofm])
    with pytest.raises(PlanError, match="a matmul layer has no patches"):
        plan_region(graph, array(), alone(graph, Group(1, 2, columns=2)))
