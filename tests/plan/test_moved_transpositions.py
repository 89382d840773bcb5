"""Transpositions that go through what computes each element by itself: the same outputs, in fewer cycles of the DMA."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_reference import assert_same_outputs, run_graph
from plan_samples import Growing, Samples, graph_of, kinds

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.plan.moved_transpositions import with_moved_transpositions
from byoc_hw.plan.region import lay_out_region

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def moved(graph, accelerator=SMALL, **options):
    """The graph with its transpositions moved: every output is the same, and every layer's output as it says."""
    found = with_moved_transpositions(graph, accelerator, **options)
    inputs = [Samples(1).values(tensor.shape) for tensor in graph.inputs]
    assert_same_outputs(graph, found, inputs)
    assert found.inputs == graph.inputs
    assert found.outputs == graph.outputs
    before, after = run_graph(graph, inputs), run_graph(found, inputs)
    old = {layer.name: layer for layer in graph.layers}
    for layer in found.layers:
        if layer.axes_of_model:
            expected = before[old[layer.name].ofm].transpose(layer.axes_of_model)
            np.testing.assert_array_equal(after[layer.ofm], expected)
    assert len({layer.name for layer in found.layers}) == len(found.layers)
    return found


class Images(Growing):
    """Convolutions in NHWC, and between them layers of NCHW."""

    def __init__(self, shape=(1, 6, 6, 8)):
        super().__init__(shape)

    def conv(self, ifm, channels=8):
        """In NHWC."""
        return self.add(self.samples.conv2d(ifm, channels, (1, 1)))

    def turned(self, ifm, axes=TO_NCHW):
        return self.add(self.samples.transpose(ifm, axes))

    def branch(self, channels=8):
        """A convolution's output in NCHW."""
        return self.turned(self.conv(self.ifm, channels))

    def end(self, image):
        """A convolution of an image in NCHW."""
        return self.conv(self.turned(image, TO_NHWC))


@pytest.mark.parametrize("kind", ["lookup", "add", "mul", "one value", "pad", "slice", "resized"])
def test_a_layer_of_nchw_between_convolutions_is_one_of_nhwc(kind):
    one = Images()
    samples, value = one.samples, one.branch()
    layer = {
        "lookup": lambda: samples.lookup(value),
        "add": lambda: samples.add(value, one.branch()),
        "mul": lambda: samples.mul(value, one.branch()),
        "one value": lambda: samples.add(value, samples.constant((1,))),
        "pad": lambda: samples.pad(value, (0, 2, 1, 0), (0, 2, 0, 3), 5),
        "slice": lambda: samples.slice(value, (0, 2, 1, 0), (1, 3, 2, 6), (1, 2, 2, 1)),
        "resized": lambda: samples.reshape(value, (1, 8, 36, 1)),
    }[kind]()
    found = moved(one.graph(one.end(one.add(layer))))
    assert "transpose" not in kinds(found)


def test_a_concatenation_of_channels_joins_the_last_dimension():
    one = Images()
    joined = one.add(one.samples.concat([one.branch(8), one.add(one.samples.lookup(one.branch(4)))], 1))
    graph = one.graph(one.end(joined))
    found = moved(graph)
    assert kinds(found) == ["conv2d", "conv2d", "lookup", "concat", "conv2d"]
    assert found.layers[3].axis == 3
    assert found.layers[3].axes_of_model == TO_NHWC
    assert found.layers[3].ofm.quantization is not None, "the convolution needs a scale"
    check(found, SMALL)
    assert lay_out_region(found, SMALL).cycles < lay_out_region(graph, SMALL).cycles


def test_what_a_transposed_convolution_makes_goes_to_nhwc_at_once():
    one = Images((1, 6, 6, 8))
    apart = one.add(one.samples.reshape(one.conv(one.ifm, 16), (6, 6, 2, 2, 4)))
    image = one.add(one.samples.reshape(one.turned(apart, (4, 0, 2, 1, 3)), (1, 4, 12, 12)))
    other = one.turned(one.conv(one.samples.constant((1, 12, 12, 3)), 4))
    graph = one.graph(one.end(one.add(one.samples.concat([image, other], 1))))
    found = moved(graph)
    assert kinds(found).count("transpose") == 1
    (layer,) = (layer for layer in found.layers if layer.kind == "transpose")
    assert layer.axes == (0, 2, 1, 3), "rows of two pixels of four channels"


def test_channels_that_are_shuffled_in_nchw_are_shuffled_in_nhwc():
    one = Images()
    joined = one.add(one.samples.concat([one.branch(4), one.branch(4)], 1))
    turned = one.turned(one.add(one.samples.reshape(joined, (1, 2, 4, 6, 6))), (0, 2, 1, 3, 4))
    image = one.turned(one.add(one.samples.reshape(turned, (1, 8, 6, 6))), TO_NHWC)
    found = moved(one.graph(one.add(one.samples.depthwise(image))))
    assert kinds(found) == ["conv2d", "conv2d", "concat", "reshape", "transpose", "reshape", "depthwise_conv2d"]
    assert found.layers[4].axes == (0, 2, 1)
    assert found.layers[4].ifm.shape == (36, 2, 4)


@pytest.mark.parametrize("reader", ["depthwise", "conv2d"])
def test_weights_take_up_a_shuffle_of_channels(reader):
    """Those of the layer that makes them, or of the one that reads them."""
    one = Images()
    value = one.add(one.samples.lookup(one.conv(one.ifm)))
    turned = one.turned(one.add(one.samples.reshape(value, (1, 6, 6, 2, 4))), (0, 1, 2, 4, 3))
    image = one.add(one.samples.reshape(turned, (1, 6, 6, 8)))
    last = one.add(one.samples.depthwise(image)) if reader == "depthwise" else one.conv(image)
    assert "transpose" not in kinds(moved(one.graph(last)))


def test_a_flattening_in_nchw_is_taken_up_by_the_weights_of_a_dense_layer():
    one = Images()
    image = one.add(one.samples.add(one.branch(), one.branch()))
    flat = one.add(one.samples.reshape(image, (1, 288)))
    found = moved(one.graph(one.add(one.samples.dense(flat, 5))))
    assert kinds(found) == ["conv2d", "conv2d", "add", "reshape", "dense"]


def test_a_dense_layer_makes_the_image_in_nhwc_that_the_model_has_in_nchw():
    """As the first layers of a decoder: its outputs come in the order in which a convolution reads them."""
    samples = Samples()
    first = samples.dense(samples.tensor((1, 9)), 96, bits=8)
    image = samples.reshape(first.ofm, (1, 6, 4, 4))
    turned = samples.transpose(image.ofm, TO_NHWC)
    last = samples.conv2d(turned.ofm, 8, (3, 3), padding=(1, 1, 1, 1))
    found = moved(graph_of([first.ifm], [first, image, turned, last], [last.ofm]))
    assert kinds(found) == ["dense", "reshape", "conv2d"]
    assert found.layers[0].source == (), "no operator of the model has such an output"


def test_weights_take_up_no_more_than_an_order_of_channels():
    one = Images()
    flat = one.add(one.samples.reshape(one.branch(), (6, 48)))  # rows of 48 have channels of several pixels
    graph = one.graph(one.add(one.samples.dense(flat, 5)))
    assert moved(graph) is graph


def test_halves_of_shuffled_channels_are_transposed_once_for_both():
    """Each half by itself would take a transposition more."""
    one = Images()
    samples = one.samples
    joined = one.add(samples.concat([one.branch(4), one.branch(4)], 1))
    apart = one.add(samples.reshape(joined, (1, 2, 4, 6, 6)))
    image = one.add(samples.reshape(one.turned(apart, (0, 2, 1, 3, 4)), (1, 8, 6, 6)))
    halves = [one.add(samples.slice(image, (0, first, 0, 0), (1, 4, 6, 6), (1,) * 4)) for first in (0, 4)]
    last = one.add(samples.lookup(halves[0]))
    found = moved(one.graph(one.end(halves[1]), one.end(last)))
    assert kinds(found).count("transpose") == 1
    assert [layer.begin for layer in found.layers if layer.kind == "slice"] == [(0, 0, 0, 0), (0, 0, 0, 4)]


def test_two_tables_that_are_equal_are_one():
    one = Images()
    value = one.conv(one.ifm)
    table = one.samples.lookup(value)
    again = replace(
        table, name="again", ifm=one.turned(value), ofm=replace(table.ofm, name="again", shape=(1, 8, 6, 6))
    )
    other = one.conv(one.add(table))
    both = one.add(one.samples.add(one.add(again), one.turned(other)))
    found = moved(one.graph(one.end(both)))
    assert kinds(found) == ["conv2d", "lookup", "conv2d", "add", "conv2d"]
    assert found.layers[3].ifm is found.layers[2].ifm


@pytest.mark.parametrize("kind", ["tables", "broadcast", "softmax"])
def test_what_needs_the_last_dimension_innermost_stays(kind):
    one = Images()
    value = one.branch()
    layer = {
        "tables": lambda: one.samples.lookup(value, True),
        "broadcast": lambda: one.samples.add(value, one.samples.constant((6,))),
        "softmax": lambda: one.samples.softmax(value),
    }[kind]()
    graph = one.graph(one.end(one.add(layer)))
    assert moved(graph) is graph


@pytest.mark.parametrize("kind", ["tables", "broadcast", "softmax"])
def test_rows_of_the_last_dimension_go_in_any_order(kind):
    one = Images()
    value = one.turned(one.conv(one.ifm), (0, 2, 1, 3))
    layer = {
        "tables": lambda: one.samples.lookup(value, True),
        "broadcast": lambda: one.samples.add(value, one.samples.constant((8,))),
        "softmax": lambda: one.samples.softmax(value),
    }[kind]()
    found = moved(one.graph(one.conv(one.turned(one.add(layer), (0, 2, 1, 3)))))
    assert "transpose" not in kinds(found)


def test_an_output_keeps_its_order_and_is_made_of_what_lies_in_another_one():
    one = Images()
    total = one.add(one.samples.add(one.branch(), one.branch()))
    found = moved(one.graph(total, one.end(total)))
    assert [layer.ofm for layer in found.layers if layer.kind == "transpose"] == [total]


def test_a_constant_is_reordered_at_compile_time():
    one = Images()
    total = one.add(one.samples.add(one.branch(), one.samples.constant((1, 8, 6, 6))))
    found = moved(one.graph(one.end(total)))
    assert kinds(found) == ["conv2d", "add", "conv2d"]
    assert found.layers[1].ifm2.shape == (1, 6, 6, 8)


def test_transpositions_that_leave_all_elements_in_place_are_reshapes():
    one = Images()
    tokens = one.add(one.samples.reshape(one.conv(one.ifm), (6, 6, 8)))
    same = one.add(one.samples.reshape(one.turned(tokens, (0, 1, 2)), (1, 36, 1, 8)))
    found = moved(one.graph(one.conv(same)))
    assert kinds(found) == ["conv2d", "reshape", "conv2d"]


def test_transpositions_that_share_no_dimensions_stay_between_what_moves():
    one = Images()
    flat = one.add(one.samples.reshape(one.branch(), (1, 32, 9, 1)))  # 9 pixels are no rows of 6
    turned = one.turned(flat, (0, 2, 1, 3))
    image = one.add(one.samples.reshape(one.add(one.samples.lookup(turned)), (1, 8, 6, 6)))
    found = moved(one.graph(one.end(one.add(one.samples.lookup(image))), turned))
    assert kinds(found).count("transpose") >= 2


def test_values_of_four_bytes_stay_as_they_are():
    one = Images()
    places = one.samples.order(one.branch(), 1, 8)
    layer = one.samples.transpose(one.add(places), TO_NHWC)
    turned = one.add(replace(layer, ofm=replace(layer.ofm, dtype="int32")))
    graph = one.graph(turned, one.end(one.add(one.samples.lookup(one.branch()))))
    found = with_moved_transpositions(graph, SMALL)
    found.verify()
    assert [layer for layer in found.layers if layer.ofm is turned] == [
        layer for layer in graph.layers if layer.ofm is turned
    ]


def test_a_graph_stays_where_nothing_is_saved_or_a_new_layer_has_no_plan():
    one = Images()
    plain = one.graph(one.branch())
    assert moved(plain) is plain
    graph = one.graph(one.end(one.add(one.samples.lookup(one.branch()))))
    assert moved(graph, plannable=lambda layer: layer.kind != "lookup") is graph


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_random_layers_of_any_orders_give_the_same(data):
    one = Images((1, 4, 3, 2))
    values = [one.conv(one.ifm, channels) for channels in (2, 4)]
    for _ in range(data.draw(st.integers(2, 9))):
        values.append(one.add(_random_layer(data.draw, one.samples, values)))
    outputs = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    moved(one.graph(*outputs), data.draw(st.sampled_from([SMALL, REFERENCE])))


def _random_layer(draw, samples, values):
    value = draw(st.sampled_from(values))
    same, rank = [other for other in values if other.shape == value.shape], len(value.shape)
    make = {
        "transpose": lambda: samples.transpose(value, draw(st.permutations(range(rank)))),
        "reshape": lambda: samples.reshape(value, draw(st.sampled_from(_shapes(value.shape)))),
        "lookup": lambda: samples.lookup(value, draw(st.booleans())),
        "add": lambda: samples.add(value, draw(st.sampled_from(same))),
        "constant": lambda: samples.add(value, samples.constant(value.shape)),
        "broadcast": lambda: samples.mul(value, samples.constant(value.shape[-1:])),
        "concat": lambda: samples.concat([value, *same[:1]], draw(st.integers(0, rank - 1))),
        "slice": lambda: samples.slice(value, (0,) * rank, [(size + 1) // 2 for size in value.shape], (1,) * rank),
        "pad": lambda: samples.pad(value, (1,) * rank, [at % 2 for at in range(rank)], 3),
    }
    return make[draw(st.sampled_from([*make, "transpose", "transpose"]))]()


def _shapes(shape):
    """Shapes with a dimension more, or one less."""
    found = [
        (*shape[:at], one, two // one, *shape[at + 1 :])
        for at, two in enumerate(shape)
        for one in (1, 2)
        if two % one == 0
    ]
    return [*found, *((*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]) for at in range(len(shape) - 1))]
