"""Which layers are swapped, together with which others, and how their tensors then lie."""

import numpy as np
import pytest
from plan_check import check
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapping import is_line, map_layers
from byoc_hw.plan.choices import Choices, Group, Tiling


def upright(samples, height=32, width=4):
    """A layer whose rows are too short for the array: far fewer cycles swapped."""
    return samples.conv2d(samples.tensor((1, height, width, 8)), 8, padding=(1, 1, 1, 1))


def test_layer_is_swapped_where_that_pays_and_left_where_it_does_not():
    samples = Samples()
    assert map_layers(single(upright(samples)), REFERENCE).swapped == (True,)
    assert map_layers(single(upright(samples, 4, 32)), REFERENCE).swapped == (False,)
    assert map_layers(single(upright(samples, 32, 4)), accelerator(array_columns=2)).swapped == (False,)


def test_swapped_layer_is_its_mirror_image():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 9, 5, 2)), 3, (3, 2), (2, 1), (1, 0, 2, 1))
    mapped = map_layers(single(layer), REFERENCE, [True]).layers[0]
    assert mapped.ifm.shape == (1, 5, 9, 2)
    assert (mapped.kernel, mapped.strides, mapped.padding) == ((2, 3), (1, 2), (0, 1, 1, 2))
    np.testing.assert_array_equal(mapped.weights.data, layer.weights.data.transpose(0, 2, 1, 3))


def test_layers_that_share_an_image_are_swapped_together():
    samples = Samples()
    first = upright(samples)
    second = samples.conv2d(first.ofm, 8, padding=(1, 1, 1, 1))
    added = samples.add(first.ofm, second.ofm)
    mapping = map_layers(graph_of([first.ifm], [first, second, added], [added.ofm]), REFERENCE)
    assert mapping.component == (0, 0, 0)
    assert mapping.swapped == (True,)


def test_a_line_parts_components():
    samples = Samples()
    first = upright(samples)
    line = samples.pool(first.ofm, kernel=(1, 4), strides=(1, 1))
    second = samples.conv2d(line.ofm, 8, kernel=(3, 1))
    mapping = map_layers(graph_of([first.ifm], [first, line, second], [second.ofm]), REFERENCE)
    assert is_line(line.ofm)
    assert mapping.component == (0, 0, 1)


@pytest.mark.parametrize("kind", ["reshape", "transpose", "softmax"])
def test_layer_that_reads_the_order_of_pixels_keeps_its_images_upright(kind):
    samples = Samples()
    first = upright(samples)
    second = {
        "reshape": lambda: samples.reshape(first.ofm, (1, first.ofm.elements)),
        "transpose": lambda: samples.transpose(first.ofm, (0, 3, 1, 2)),
        "softmax": lambda: samples.softmax(first.ofm),
    }[kind]()
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    assert map_layers(graph, REFERENCE).swapped == (False,)
    with pytest.raises(PlanError, match=f"{first.name}: its height and width cannot be swapped"):
        map_layers(graph, REFERENCE, [True])


def test_square_that_is_swapped_lies_transposed():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 6, 3)), 4)
    mapping = map_layers(single(layer), REFERENCE, [True])
    assert mapping.is_swapped(mapping.layers[0].ifm)
    check(single(layer), REFERENCE, choices=Choices((True,), (Group(1),), (None,)))


@pytest.mark.parametrize("swapped", [False, True])
def test_line_is_transposed_on_its_way_out_however_it_lies(swapped):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 5, 1, 4)), 6, (2, 1))
    moved = samples.transpose(layer.ofm, (0, 2, 1, 3))
    graph = graph_of([layer.ifm], [layer, moved], [moved.ofm])
    check(graph, REFERENCE, choices=Choices((swapped, False), (Group(2),), (None, None)))


def test_transposition_of_a_reshape_has_copies_of_its_own():
    samples = Samples()
    first = samples.softmax(samples.tensor((1, 12)))
    second = samples.reshape(first.ofm, (1, 2, 3, 2))
    last = samples.transpose(second.ofm, (0, 3, 1, 2))
    graph = graph_of([first.ifm], [first, second, last], [last.ofm])
    assert map_layers(graph, REFERENCE).copied == frozenset()
    check(graph, REFERENCE)


def test_runs_of_an_addition_are_in_the_model_s_order():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 3, 2)), 4, (1, 1))
    added = samples.add(first.ofm, samples.constant(first.ofm.shape))
    last = samples.conv2d(added.ofm, 4, (1, 1))
    groups = Group(1), Group(1, tiling=Tiling(1, 5, 1, 1)), Group(1)
    graph = graph_of([first.ifm], [first, added, last], [last.ofm])
    check(graph, REFERENCE, choices=Choices((False,), groups, (None,) * 3))
    with pytest.raises(PlanError, match=f"{added.name}: a layer by itself"):
        check(graph, REFERENCE, choices=Choices((True,), groups, (None,) * 3))


def test_asks_for_one_value_a_component():
    with pytest.raises(PlanError, match="1 groups of layers are swapped or not: got 2 values"):
        map_layers(single(upright(Samples())), REFERENCE, [True, False])
