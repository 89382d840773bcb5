"""Shuffles of channels whose order the weights of later layers take up: the same outputs, without the shuffles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_reference import assert_same_outputs
from plan_samples import Growing, Samples, accelerator, kinds

from byoc_hw.plan.channel_orders import MOST_READ, with_orders_in_weights
from byoc_hw.plan.region import lay_out_region


def rewritten(graph, plannable=lambda layer: True):
    """The graph without its shuffles: every output is the same."""
    found = with_orders_in_weights(graph, plannable)
    assert_same_outputs(graph, found, [Samples(1).values(tensor.shape) for tensor in graph.inputs])
    return found


class Blocks(Growing):
    """A graph as it grows, with shuffles of channels."""

    def __init__(self, shape=(1, 4, 4, 8)):
        super().__init__(shape)

    def conv(self, ifm, channels=8):
        return self.add(self.samples.conv2d(ifm, channels, (3, 3), padding=(1, 1, 1, 1)))

    def shuffled(self, ifm, groups=2):
        """Channel g * K + k becomes channel k * groups + g."""
        *pixels, channels = ifm.shape
        apart = self.add(self.samples.reshape(ifm, (*pixels, groups, channels // groups)))
        turned = self.add(self.samples.transpose(apart, (0, 1, 2, 4, 3)))
        return self.add(self.samples.reshape(turned, ifm.shape))

    def cut(self, ifm, first, count):
        return self.add(self.samples.slice(ifm, (0, 0, 0, first), (*ifm.shape[:3], count), (1,) * 4))

    def joined(self, *parts):
        return self.add(self.samples.concat(parts, 3))


def test_a_convolution_reads_halves_of_others_in_place_of_a_half_of_shuffled_channels():
    one = Blocks()
    parts = one.conv(one.ifm), one.conv(one.ifm)
    half = one.cut(one.shuffled(one.joined(*parts)), 8, 8)
    graph = one.graph(one.conv(half))
    found = rewritten(graph)
    assert kinds(found) == ["conv2d", "conv2d", "slice", "slice", "concat", "conv2d"]
    *_, first, last, joined, _ = found.layers
    assert [first.ifm, last.ifm] == list(parts)
    assert first.begin[3] == last.begin[3] == 4
    assert joined.ofm.name == half.name + "_arranged"


@pytest.mark.slow
def test_what_passes_a_block_by_is_never_put_together():
    """Three blocks of ShuffleNet, and a dense layer behind the mean of all channels."""
    one = Blocks()
    value = one.shuffled(one.joined(one.conv(one.ifm), one.conv(one.ifm)))
    for _ in range(3):
        kept, inside = one.cut(value, 0, 8), one.cut(value, 8, 8)
        inside = one.conv(one.add(one.samples.depthwise(one.conv(inside), padding=(1, 1, 1, 1))))
        value = one.shuffled(one.joined(kept, inside))
    pooled = one.add(one.samples.pool(value, kernel=(4, 4)))
    flat = one.add(one.samples.reshape(pooled, (1, 16)))
    graph = one.graph(one.add(one.samples.dense(flat, 5)))
    found = rewritten(graph)
    assert "transpose" not in kinds(found)
    assert kinds(found).count("concat") == 4  # for the second half of each block, and for the mean
    assert kinds(found).count("conv2d") == kinds(graph).count("conv2d")
    check(found, accelerator(1024))
    plans = [lay_out_region(each, accelerator(1024)) for each in (found, graph)]
    assert plans[0].cycles < 0.9 * plans[1].cycles


@pytest.mark.parametrize("kind", ["depthwise", "pool", "lookup", "tables"])
def test_layers_of_each_channel_by_itself_take_channels_in_any_order(kind):
    one = Blocks()
    value = one.shuffled(one.conv(one.ifm))
    make = {
        "depthwise": lambda: one.samples.depthwise(value, padding=(1, 1, 1, 1)),
        "pool": lambda: one.samples.pool(value, "avg", (2, 2), (2, 2), rescaled=True),
        "lookup": lambda: one.samples.lookup(value),
        "tables": lambda: one.samples.lookup(value, True),
    }
    layer = make[kind]()
    found = rewritten(one.graph(one.conv(one.add(layer))))
    assert kinds(found) == ["conv2d", layer.kind, "conv2d"]
    assert found.layers[1].name == found.layers[1].ofm.name == layer.name + "_arranged"


@pytest.mark.parametrize("last", ["output", "add", "groups", "rows"])
def test_a_shuffle_stays_where_its_order_is_needed(last):
    one = Blocks()
    first = one.conv(one.ifm)
    value = one.shuffled(first)
    outputs = [one.conv(value)]
    if last == "output":
        outputs.append(value)
    elif last == "add":
        outputs.append(one.add(one.samples.add(value, first)))
    elif last == "groups":
        outputs.append(one.add(one.samples.conv2d(value, 8, (1, 1), groups=2)))
    else:
        outputs.append(one.add(one.samples.reshape(value, (1, 128))))
    assert kinds(rewritten(one.graph(*outputs))) == kinds(one.graph(*outputs))


def test_of_two_shuffles_the_one_whose_order_is_needed_stays():
    one = Blocks()
    first = one.shuffled(one.conv(one.ifm))
    last = one.shuffled(one.conv(first))
    found = rewritten(one.graph(last))
    assert kinds(found) == ["conv2d", "conv2d", "reshape", "transpose", "reshape"]


def test_shuffles_that_cancel_need_no_weights():
    one = Blocks()
    first = one.conv(one.ifm)
    again = one.shuffled(one.shuffled(first, 2), 4)
    found = rewritten(one.graph(one.add(one.samples.add(again, first))))
    assert kinds(found) == ["conv2d", "add"]


def test_a_transposition_of_pixels_is_no_shuffle_of_channels():
    one = Blocks()
    apart = one.add(one.samples.reshape(one.conv(one.ifm), (1, 4, 2, 2, 8)))
    turned = one.add(one.samples.transpose(apart, (0, 1, 3, 2, 4)))
    graph = one.graph(one.conv(one.add(one.samples.reshape(turned, (1, 4, 4, 8)))))
    assert with_orders_in_weights(graph, lambda layer: True) is graph


def test_a_graph_stays_where_a_new_layer_has_no_plan_or_is_of_a_new_kind():
    one = Blocks()
    half = one.cut(one.shuffled(one.joined(one.conv(one.ifm), one.conv(one.ifm))), 8, 8)
    graph = one.graph(one.conv(half))
    assert with_orders_in_weights(graph, lambda layer: layer.kind != "slice") is graph
    other = Blocks()
    whole = other.shuffled(other.joined(other.conv(other.ifm), other.conv(other.ifm)))
    assert kinds(rewritten(other.graph(other.conv(whole)))) == ["conv2d", "conv2d", "concat", "conv2d"]


def test_a_layer_reads_no_more_runs_than_are_worth_a_copy_each():
    one = Blocks()
    value = one.conv(one.ifm, 4 * MOST_READ)
    half = one.cut(one.shuffled(value, 2 * MOST_READ), 0, 2 * MOST_READ)  # every second channel
    graph = one.graph(one.conv(half))
    assert kinds(rewritten(graph)) == kinds(graph)


KINDS = [
    "conv",
    "conv",
    "depthwise",
    "pool",
    "tables",
    "shuffle",
    "shuffle",
    "shuffle",
    "cut",
    "joined",
    "joined",
    "add",
]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_networks_have_the_same_outputs(data):
    one = Blocks()
    values = [one.conv(one.ifm), one.conv(one.ifm, 12)]
    for _ in range(data.draw(st.integers(2, 12))):
        value = data.draw(st.sampled_from(values[-4:]))
        kind, channels = data.draw(st.sampled_from(KINDS)), value.shape[3]
        if kind == "conv":
            values.append(one.conv(value, data.draw(st.sampled_from([4, 6, 8]))))
        elif kind == "depthwise":
            values.append(one.add(one.samples.depthwise(value, padding=(1, 1, 1, 1))))
        elif kind == "pool":
            values.append(one.add(one.samples.pool(value, "max", (3, 3), (1, 1), (1, 1, 1, 1))))
        elif kind == "tables":
            values.append(one.add(one.samples.lookup(value, True)))
        elif kind == "shuffle":
            groups = [count for count in (2, 3, 4) if channels % count == 0 and channels > count]
            if groups:
                values.append(one.shuffled(value, data.draw(st.sampled_from(groups))))
        elif kind == "cut":
            first = data.draw(st.integers(0, channels - 1))
            values.append(one.cut(value, first, data.draw(st.integers(1, channels - first))))
        elif kind == "joined":
            values.append(one.joined(value, data.draw(st.sampled_from(values))))
        else:
            same = [other for other in values if other.shape == value.shape]
            values.append(one.add(one.samples.add(value, data.draw(st.sampled_from(same)))))
    read = {tensor for layer in one.layers for tensor in layer.inputs}
    outputs = [tensor for tensor in values if tensor not in read]
    outputs += [one.conv(outputs.pop())] if data.draw(st.booleans()) else []
    rewritten(one.graph(*outputs))
