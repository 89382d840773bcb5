"""What images cost that lie packed, or apart: zero points, images that are loaded again, pixels with room between."""

import random
from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.bound.packed_images import Lying, PackedImages
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import lay_out
from byoc_hw.plan.steps import Copy
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.space import SearchSpace

ONE = replace(REFERENCE, array_columns=16, depthwise_rows=1, dma_width=1, dma_setup=100)

SETUP = ONE.dma_setup


def windows(count, side=6, channels=8):
    """So many depthwise layers, each of which reads the output of the one before."""
    samples = Samples(1)
    image = value = samples.tensor((1, side, side, channels))
    layers = []
    for _ in range(count):
        layers.append(samples.depthwise(value, (3, 3), padding=(1, 1, 1, 1)))
        value = layers[-1].ofm
    return graph_of([image], layers, [value])


def all_packed(graph):
    return Lying(packed=frozenset(PackedImages(graph, ONE).windows))


def fills(layout):
    return [op for op in layout.work.ops if isinstance(op.step, Copy) and layout.flash.filling(op.step) is not None]


ROOM = (2 * 6 + 5) * 8
"""Bytes above and below an image of 6 x 6 x 8, and between its rows."""


def test_one_image_is_filled_around_and_between_its_rows():
    graph = windows(1)
    images = PackedImages(graph, ONE)
    assert sum(images.copied(all_packed(graph))) == 2 * SETUP + ROOM
    assert sum(images.copied(Lying(apart=frozenset(graph.inputs)))) == 0


def test_one_copy_fills_the_place_of_an_image_where_setups_are_long():
    graph = windows(1)
    images = PackedImages(graph, replace(ONE, dma_setup=1000))
    place = (2 * 6 + 6 * 7 - 1) * 8
    assert sum(images.copied(all_packed(graph))) == 1000 + place


def test_images_along_a_chain_have_copies_of_their_own():
    graph = windows(3)
    images = PackedImages(graph, ONE)
    assert sum(images.copied(all_packed(graph))) == (3 + 1) * SETUP + 3 * ROOM
    first, _, third = images.windows
    assert sum(images.copied(Lying(packed=frozenset({first, third})))) == 2 * SETUP + 2 * ROOM


def test_an_image_that_lies_in_both_ways_is_stored_and_loaded():
    graph = windows(2)
    images = PackedImages(graph, ONE)
    first, second = images.windows
    both = Lying(apart=frozenset({first}), both=frozenset({second}))
    assert sum(images.copied(both)) == 2 * SETUP + ROOM + 2 * (SETUP + second.nbytes)
    assert images.later(graph.layers[1], both) == 2 * (SETUP + 1)


def test_an_image_that_one_window_reads_need_not_lie_in_both_ways():
    images = PackedImages(windows(2), ONE)
    first, second = images.windows
    assert [way.both for way in images.ways(Lying())] == [frozenset(), frozenset()]
    assert [way.both for way in images.ways(Lying(packed=frozenset({first})))] == [set(), set(), {second}]


def test_an_image_of_a_packed_band_lies_otherwise_only_if_it_is_loaded_again():
    """Of four windows the third output packed: the second one is in its band, the input is read by one layer."""
    graph = windows(4)
    images = PackedImages(graph, ONE)
    first, second, third, fourth = images.windows
    packed = frozenset({third, fourth})
    filled = sum(images.copied(Lying(packed=packed)))
    assert sum(images.copied(Lying(apart=frozenset({first}), packed=packed))) == filled
    again = 2 * (SETUP + second.nbytes)
    assert sum(images.copied(Lying(apart=frozenset({first, second}), packed=packed))) == filled + again


def test_an_image_of_a_packed_band_may_lie_otherwise_in_another_part_of_the_region():
    """Between the parts may be a smaller tensor of the band."""
    graph = windows(4)
    images = PackedImages(graph, ONE, parts=True)
    first, second, third, fourth = images.windows
    packed = frozenset({third, fourth})
    filled = sum(images.copied(Lying(packed=packed)))
    assert sum(images.copied(Lying(apart=frozenset({first, second}), packed=packed))) == filled


def test_an_image_whose_windows_take_more_groups_packed_lies_as_it_wants():
    """Rows of 8 outputs are two groups of 4; packed ones, 9 apart, are no fewer for 8 rows: 18 and not 16."""
    graph, narrow = windows(3, side=8), replace(ONE, array_columns=4)
    images = PackedImages(graph, narrow)
    _, second, third = images.windows
    packed = Lying(apart=frozenset({second}), packed=frozenset({third}))
    assert sum(images.copied(packed)) == sum(images.copied(Lying(packed=frozenset({third}))))


def test_many_images_are_packed_or_none_is():
    images = PackedImages(windows(5), ONE)
    some, none = images.ways(Lying())
    assert none.apart == set(images.windows)
    assert sum(images.copied(some)) == SETUP + 1
    assert not list(images.ways(none))
    assert not list(images.ways(some))


def test_a_convolution_of_single_pixels_takes_those_of_a_packed_image_where_they_lie():
    """4 x 4 pixels fill 16 columns once, and rows 5 apart twice."""
    samples = Samples(1)
    image = samples.tensor((1, 4, 4, 8))
    window = samples.depthwise(image, (3, 3), padding=(1, 1, 1, 1))
    single = samples.conv2d(image, 8, (1, 1))
    graph = graph_of([image], [window, single], [window.ofm, single.ofm])
    images = PackedImages(graph, ONE)
    group = 8 * (1 + 2) + ONE.job_overhead
    assert images.cycles(single, Lying(packed=frozenset({image}))) == 2 * group
    assert images.cycles(single, Lying(both=frozenset({image}))) == 0
    assert images.cycles(window, Lying(packed=frozenset({image}))) == 0


@pytest.mark.parametrize("side", [4, *(pytest.param(side, marks=pytest.mark.slow) for side in (6, 9))])
@pytest.mark.parametrize("count", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_plans_with_all_images_packed_fill_no_less(side, count):
    graph = windows(count, side)
    images, space = PackedImages(graph, ONE), SearchSpace(graph, ONE)
    choices, drawn, seen = lay_out_region(graph, ONE).choices, random.Random(side), 0
    for _ in range(60):
        one = space.canonical(replace(step(space, choices, drawn), packed=frozenset(space.packable()), apart=False))
        try:
            layout = lay_out(space.groups_of(one).mapped, replace(one, fine=drawn.random() < 0.5), most=300)
        except PlanError:
            continue
        choices = one
        tiled = any(group.tiling is not None for group in one.groups)  # rows lie as ever there, or each tile is packed
        if not tiled and all(layout.mapped.storages.of[tensor].packing for tensor in images.windows):
            seen += 1
            filled = sum(copy_cycles(op.step.nbytes, op.step.rows, ONE) for op in fills(layout))
            assert filled >= sum(images.copied(all_packed(graph)))
        assert layout.cycles >= cycles_bound(graph, ONE)
    assert seen > 5
