"""Rows that two stripes share: kept in main memory from one to the next, they are computed once."""

import random
from dataclasses import replace
from math import prod

import pytest
from plan_check import check
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.errors import PlanError
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
    )
    blocks = tuple(drawn.choice((None, None, Blocks(3, 5))) for _ in graph.layers)
    swapped = tuple(False for _ in lay_out_region(graph, hardware).mapped.mapping.swapped)
    packed = frozenset(number for number in bands(graph.layers) if number is not None and drawn.random() < 0.4)
    return hardware, Choices(swapped, (group,), blocks, packed=packed)


@pytest.mark.parametrize("seed", range(40))
def test_any_layers_are_exact_with_any_of_their_halos_kept(seed):
    graph = network(seed)
    hardware, choices = random_choices(graph, seed + 1000)
    assert from_plain(choices.plain()) == choices
    check(graph, hardware, seed, choices)
