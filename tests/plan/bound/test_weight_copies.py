"""How many copies bring weights: no way to cut them is below the bound, and the best one is at it."""

from dataclasses import replace
from itertools import pairwise

import pytest
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.plan.array.kinds import job_cycles
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.ways import weight_bytes
from byoc_hw.plan.bound.weight_copies import WeightCopies, copies_behind, weight_copies
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_tiles

ROOM = 4
"""Weight memory: an array of one byte a cycle, and copies of one byte a cycle."""


def in_copies(nbytes):
    """All ways to cut so many bytes into copies for which there is room."""
    if not nbytes:
        yield ()
    for first in range(1, min(nbytes, ROOM) + 1):
        yield from ((first, *rest) for rest in in_copies(nbytes - first))


def cycles_of(copies, setup, others):
    """Of each pair of copies, what has no room beside the other is done in between, or others are copied."""
    between = sum(max(one + other - ROOM, 0) for one, other in pairwise(copies))
    return sum(copies) + len(copies) * setup + max(others, between)


@pytest.mark.parametrize("others", [0, 3, 9])
@pytest.mark.parametrize("setup", [1, 3, 9])
@pytest.mark.parametrize("nbytes", [3, 8, 12, 14])
def test_no_copies_are_faster_than_the_bound_and_the_best_ones_are_near(nbytes, setup, others):
    one = replace(REFERENCE, weight_memory=ROOM, dma_width=1, dma_setup=setup)
    bound = WeightCopies(nbytes, nbytes, 1.0, one).cycles(others)
    best = min(cycles_of(copies, setup, others) for copies in in_copies(nbytes))
    assert bound <= best <= bound + max(setup, ROOM)


def test_more_copies_of_other_things_never_take_fewer_cycles():
    one = replace(REFERENCE, weight_memory=64, dma_width=4, dma_setup=70)
    copies = WeightCopies(1000, 1200, 5.3, one)
    found = [copies.cycles(others) for others in range(0, 2000, 7)]
    assert found == sorted(found)


def test_what_is_in_weight_memory_before_needs_no_copy():
    one = replace(REFERENCE, weight_memory=64)
    assert WeightCopies(64, 64, 1.0, one).setups(there=64) == 0
    assert WeightCopies(65, 65, 1.0, one).setups(there=64) == one.dma_setup


def test_no_job_uses_more_bytes_of_weights_a_cycle():
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 24))
    for layer in (samples.conv2d(image, 40, (3, 3)), samples.depthwise(image), samples.conv2d(image, 40, (1, 1))):
        rate, channels = weight_copies([layer], REFERENCE).rate, layer.out_channels
        each = layer.weights.nbytes / channels
        window = (*layer.filter, layer.in_channels)
        jobs = {count: job_cycles(layer, window, (1, 1, count), REFERENCE) for count in range(1, channels + 1)}
        assert max(count * each / cycles for count, cycles in jobs.items()) == pytest.approx(rate)


def test_copies_behind_each_layer_are_those_of_the_layers_behind_it():
    samples = Samples(3)
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 24)), 40, (3, 3))]
    layers.append(samples.pool(layers[-1].ofm))
    layers.append(samples.depthwise(layers[-1].ofm))
    layers.append(samples.conv2d(layers[-1].ofm, 8, (1, 1)))
    assert copies_behind(layers, SMALL) == [weight_copies(layers[at + 1 :], SMALL) for at in range(len(layers))]


def test_blocks_of_a_chain_of_dense_layers_lie_side_by_side():
    """The DMA is busy all the time, with twice as many copies as weight memory needs."""
    samples = Samples(2)
    value = samples.tensor((1, 256))
    layers = [samples.dense(value, 256)]
    for _ in range(3):
        layers.append(samples.dense(layers[-1].ofm, 256))
    graph = graph_of([value], layers, [layers[-1].ofm])
    one = replace(SMALL, dma_setup=400)
    copied = sum(weight_bytes(layer) for layer in layers) / one.dma_width
    assert cycles_bound(graph, one) > copied + 1.8 * one.dma_setup * copied * one.dma_width / one.weight_memory
    assert cycles_bound(graph, one) <= timeline(plan_tiles(graph, one), one).total
