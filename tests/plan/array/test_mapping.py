"""Which layers are swapped, together with which others, and how their tensors then lie."""

from dataclasses import replace

import numpy as np
import pytest
from plan_check import check
from plan_choices import choose, evaluate
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.mapping import is_line, map_layers
from byoc_hw.plan.choices import Choices, Group, Tiling
from byoc_hw.plan.steps import ARGUMENT, Copy, Job


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


def as_it_lies(graph, *groups):
    """A plan whose jobs read swapped inputs as these lie in main memory; the copies that load them, and the jobs."""
    chosen = Choices((True,), groups, (None,) * len(graph.layers), jobs_transpose=True)
    steps = check(graph, REFERENCE, choices=chosen).steps
    loads = [one for one in steps if isinstance(one, Copy) and one.source.space == ARGUMENT]
    return loads, [one for one in steps if isinstance(one, Job)]


@pytest.mark.parametrize("stripes", [1, 3])
def test_jobs_read_a_swapped_input_that_one_copy_has_loaded(stripes):
    graph = single(upright(Samples(), 33, 5))
    loads, jobs = as_it_lies(graph, Group(1, stripes))
    (load,) = loads
    assert (load.rows, load.nbytes) == (1, graph.inputs[0].nbytes)
    assert {(job.ifm_row, job.ifm_pixel) for job in jobs} == {(8, 5 * 8)}
    assert len(jobs) == stripes


def test_several_windows_read_an_input_as_it_lies_and_what_adds_to_it_does_not():
    samples = Samples()
    first = upright(samples)
    second = samples.depthwise(first.ifm, padding=(1, 1, 1, 1))
    third = samples.pool(first.ifm, "max", (2, 2), (2, 2))
    windows = graph_of([first.ifm], [first, second, third], [first.ofm, second.ofm, third.ofm])
    assert len(as_it_lies(windows, Group(3))[0]) == 1
    added = samples.add(first.ofm, first.ifm)
    graph = graph_of([first.ifm], [first, added], [added.ofm])
    assert not map_graph(graph, REFERENCE, [True], jobs_transpose=True).turns
    assert len(as_it_lies(graph, Group(2))[0]) == 4


def test_planner_lets_jobs_read_an_input_as_it_lies_where_copies_take_longer():
    samples = Samples()
    graph = single(samples.conv2d(samples.tensor((1, 98, 10, 1)), 32, (10, 4), (2, 2)))
    found = choose(graph, SMALL)
    assert found.jobs_transpose
    by_copies = replace(SMALL, packed_rows=False)
    assert evaluate(graph, found, SMALL) < evaluate(graph, choose(graph, by_copies), by_copies)


def test_input_as_it_lies_is_refused_where_rows_do_not_overlap():
    with pytest.raises(PlanError, match="has no packed_rows"):
        map_layers(single(upright(Samples())), replace(REFERENCE, packed_rows=False), [True], jobs_transpose=True)


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
