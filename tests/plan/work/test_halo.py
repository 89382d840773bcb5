"""Rows that two stripes share: kept in main memory from one to the next, they are computed once."""

import random
from dataclasses import replace
from math import prod

import pytest
from plan_check import check
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.mapping import bands
from byoc_hw.plan.choices import Blocks, Choices, Group, from_plain
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.steps import SCRATCH, Copy, Job

SAME = (1, 1, 1, 1)


def chain(layers=3, height=12, strides=(1, 1)):
    samples = Samples()
    ifm = samples.tensor((1, height, 6, 4))
    made = []
    for _ in range(layers):
        made.append(samples.conv2d(made[-1].ofm if made else ifm, 4, strides=strides, padding=SAME))
    return graph_of([ifm], made, [made[-1].ofm])


def in_stripes(graph, count, kept, **options):
    layers = len(graph.layers)
    return Choices((False,), (Group(layers, count, kept=frozenset(kept), **options),), (None,) * layers)


def computed(plan):
    """The elements that jobs compute, for each layer."""
    return [
        sum(prod(step.ofm_shape) for call in plan.calls if call.index == index for step in call.steps if is_job(step))
        for index in range(len(plan.layers))
    ]


def is_job(step):
    return isinstance(step, Job)


def bytes_kept(plan):
    """The bytes that go to scratch, and those that come from it."""
    copies = [step for step in plan.steps if isinstance(step, Copy)]
    stores = sum(step.rows * step.nbytes for step in copies if step.target.space == SCRATCH)
    return stores, sum(step.rows * step.nbytes for step in copies if step.source.space == SCRATCH)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_no_row_is_computed_twice_where_its_halo_is_kept(strides):
    graph = chain(3, 24, strides)
    elements = [layer.ofm.elements for layer in graph.layers]
    again, once = (computed(check(graph, REFERENCE, choices=in_stripes(graph, 3, kept))) for kept in ((), (1, 2)))
    assert once == elements
    assert again[2] == elements[2]
    assert again[0] > elements[0]
    assert again[1] > elements[1]


def test_only_the_halo_of_what_is_kept_goes_to_main_memory():
    graph = chain(3)
    row = 6 * 4
    plan = check(graph, REFERENCE, choices=in_stripes(graph, 3, (1,)))
    assert computed(plan)[0] == graph.layers[0].ofm.elements < computed(plan)[1]
    # Stripes of 4 rows: the last layer reads 5 rows, 6 and 5 of what is before it, and so of what is kept 6, 8 and 6.
    assert bytes_kept(plan) == (2 * 4 * row, 2 * 4 * row)
    assert [block.nbytes for block in plan.memory.scratch] == [4 * row]  # the rows of one stripe are gone by the next
    assert bytes_kept(check(graph, REFERENCE, choices=in_stripes(graph, 3, (1, 2)))) == (4 * 2 * row, 4 * 2 * row)


def test_rows_of_a_halo_that_is_higher_than_a_stripe_are_stored_once():
    graph = chain(2)
    row = 6 * 4
    plan = check(graph, REFERENCE, choices=in_stripes(graph, 12, (1,)))
    assert bytes_kept(plan) == (12 * row, 11 * 2 * row)


def test_what_cannot_be_kept_is_computed_again_or_held():
    graph = chain(2)
    inputs_and_output = in_stripes(graph, 3, (0, 2))
    assert computed(check(graph, REFERENCE, choices=inputs_and_output)) == computed(
        check(graph, REFERENCE, choices=in_stripes(graph, 3, ()))
    )
    held = check(graph, REFERENCE, choices=in_stripes(graph, 3, (1,), held=frozenset({1})))
    assert bytes_kept(held) == (0, 0)


@pytest.mark.slow
def test_residual_block_in_a_small_memory_keeps_its_halo_and_is_faster():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 24, 3)), 16, padding=SAME)
    second = samples.conv2d(first.ofm, 16, padding=SAME)
    third = samples.conv2d(second.ofm, 16, padding=SAME)
    added = samples.add(first.ofm, third.ofm)
    graph = graph_of([first.ifm], [first, second, third, added], [added.ofm])
    hardware = accelerator(5 * 1024, 16 * 1024, dma_width=4, packed_rows=False)
    found = lay_out_region(graph, hardware)
    without = lay_out_region(graph, replace(hardware, tuning=replace(hardware.tuning, halos=False)))
    assert any(group.kept for group in found.choices.groups)
    assert not any(group.kept for group in without.choices.groups)
    assert found.cycles < 0.97 * without.cycles
    check(graph, hardware, choices=found.choices)


def network(seed):
    """Layers of random kinds, sizes, strides and paddings, with sums of what lies behind one another."""
    drawn, samples = random.Random(seed), Samples(seed)
    ifm = samples.tensor((1, drawn.randint(6, 24), drawn.randint(2, 12), drawn.randint(1, 9)))
    layers, sums = [], []
    for _ in range(drawn.randint(2, 6)):
        value = layers[-1].ofm if layers else ifm
        alike = [one for one in (ifm, *(layer.ofm for layer in layers[:-1])) if one.shape == value.shape]
        kind = drawn.choice(("conv", "conv", "depthwise", "pointwise", "pool", "add", "add", "reshape"))
        kernel = tuple(min(drawn.choice((1, 2, 3, 5)), size) for size in value.shape[1:3])
        padding = tuple(drawn.randint(0, kernel[side % 2] - 1) for side in range(4))
        strides = drawn.choice(((1, 1), (1, 1), (2, 2), (2, 1)))
        if drawn.random() < 0.5:
            kernel, padding, strides = (3, 3), SAME, (1, 1)
        if kind == "conv":
            made = samples.conv2d(value, drawn.randint(1, 12), kernel, strides, padding)
        elif kind == "depthwise":
            made = samples.depthwise(value, kernel, strides, padding)
        elif kind == "pool":
            made = samples.pool(value, drawn.choice(("avg", "max")), kernel, strides, padding)
        elif kind == "add" and alike:
            made = samples.add(value, drawn.choice(alike))
            sums.append(made)
        elif kind == "reshape" and value.shape[1] % 2 == 0:
            made = samples.reshape(value, (1, value.shape[1] // 2, 2 * value.shape[2], value.shape[3]))
        else:
            made = samples.conv2d(value, drawn.randint(1, 12), (1, 1))
        layers.append(made)
    outputs = {layers[-1].ofm, drawn.choice(layers).ofm} if drawn.random() < 0.3 else {layers[-1].ofm}
    return graph_of([ifm], layers, [layer.ofm for layer in layers if layer.ofm in outputs])


def random_choices(graph, seed):
    drawn = random.Random(seed)
    layers, hardware = len(graph.layers), accelerator(array_rows=4, array_columns=4)
    storages = range(layers + 1)
    group = Group(
        layers,
        drawn.randint(2, 9),
        frozenset(one for one in storages if drawn.random() < 0.15),
        overlap=drawn.random() < 0.7,
        resident=drawn.random() < 0.7,
        kept=frozenset(one for one in storages if drawn.random() < 0.8),
        alternating=seed % 2 == 0,
    )
    blocks = tuple(drawn.choice((None, None, Blocks(3, 5))) for _ in graph.layers)
    swapped = tuple(False for _ in map_graph(graph, hardware).mapping.swapped)
    packed = frozenset(number for number in bands(graph.layers) if number is not None and drawn.random() < 0.4)
    return hardware, Choices(swapped, (group,), blocks, packed=packed)


@pytest.mark.parametrize("seed", range(40))
def test_any_layers_are_exact_with_any_of_their_halos_kept(seed):
    graph = network(seed)
    hardware, choices = random_choices(graph, seed + 1000)
    assert from_plain(choices.plain()) == choices
    check(graph, hardware, seed, choices)
