"""Transpositions one after the other that are one: the same outputs, in fewer cycles of the DMA."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_reference import assert_same_outputs
from plan_samples import Samples, graph_of, kinds

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.plan.merged_transpositions import with_merged_transpositions
from byoc_hw.plan.region import lay_out_region


def merged(graph, accelerator=SMALL):
    """The graph with its transpositions merged: every output is the same."""
    found = with_merged_transpositions(graph, accelerator)
    assert_same_outputs(graph, found, [Samples(1).values(tensor.shape) for tensor in graph.inputs])
    return found


class Attention:
    """The values of an attention with two heads over windows of pixels, from a convolution to a matrix product."""

    def __init__(self, windows=4, pixels=36):
        self.samples = samples = Samples()
        self.windows, self.pixels = windows, pixels
        self.ifm, self.layers = samples.tensor((1, windows * pixels, 1, 32)), []
        self.scores = samples.tensor((2 * windows, pixels, 1, pixels))
        tokens = self.add(samples.conv2d(self.ifm, 32, (1, 1)))
        self.apart = self.add(samples.reshape(tokens, (windows, pixels, 2, 16)))
        self.heads = self.add(samples.transpose(self.apart, (0, 2, 1, 3)))
        items = self.add(samples.reshape(self.heads, (2 * windows, pixels, 16)))
        self.turned = self.add(samples.transpose(items, (0, 2, 1)))

    def add(self, layer):
        self.layers.append(layer)
        return layer.ofm

    def graph(self, *outputs):
        product = self.add(self.samples.matmul(self.scores, self.turned))
        return graph_of([self.ifm, self.scores], self.layers, [product, *outputs])


def test_values_in_heads_are_turned_in_one_transposition():
    one = Attention()
    graph = one.graph()
    found = merged(graph)
    assert kinds(found) == ["conv2d", "reshape", "reshape", "transpose", "reshape", "matmul"]
    assert found.layers[3].ifm.shape == (4, 36, 2, 16)
    assert found.layers[3].axes == (0, 2, 3, 1)
    assert found.layers[4].ofm.shape == one.turned.shape
    assert lay_out_region(found, SMALL).cycles < lay_out_region(graph, SMALL).cycles


@pytest.mark.parametrize("reader", ["output", "layer"])
def test_what_lies_between_stays_where_it_is_read(reader):
    one = Attention()
    other = one.heads if reader == "output" else one.add(one.samples.lookup(one.heads))
    graph = one.graph(other)
    assert merged(graph) is graph


def test_transpositions_of_inputs_and_to_outputs_are_merged():
    samples = Samples()
    ifm = samples.tensor((1, 6, 8, 4))
    first = samples.transpose(ifm, (0, 3, 1, 2))
    last = samples.transpose(first.ofm, (0, 2, 1, 3))
    conv = samples.conv2d(last.ofm, 4, (1, 1))
    before = samples.transpose(conv.ofm, (0, 3, 1, 2))
    end = samples.transpose(before.ofm, (0, 1, 3, 2))
    graph = graph_of([ifm], [first, last, conv, before, end], [end.ofm])
    found = merged(graph)
    assert kinds(found).count("transpose") == 2
    assert found.outputs == graph.outputs
    assert lay_out_region(found, SMALL).cycles < lay_out_region(graph, SMALL).cycles


def test_transpositions_that_share_no_dimensions_stay():
    samples = Samples()
    conv = samples.conv2d(samples.tensor((1, 6, 6, 4)), 8, (1, 1))
    first = samples.transpose(conv.ofm, (0, 3, 1, 2))
    flat = samples.reshape(first.ofm, (1, 32, 9, 1))  # 9 pixels are no rows of 6
    last = samples.transpose(flat.ofm, (0, 2, 1, 3))
    end = samples.lookup(last.ofm)
    graph = graph_of([conv.ifm], [conv, first, flat, last, end], [end.ofm])
    assert merged(graph) is graph


def test_two_stay_where_they_take_fewer_cycles_than_one():
    """A transposition of three dimensions takes a copy for each index of one of them, each with its setup."""
    found = [kinds(merged(Attention().graph(), replace(SMALL, dma_setup=setup))) for setup in (70, 2000)]
    assert [one.count("transpose") for one in found] == [1, 2]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_transpositions_give_the_same(data):
    samples = Samples()
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=3, max_size=4)))
    ifm = samples.tensor((1, 1, 1, int(np.prod(shape))))
    layers = [samples.lookup(ifm)]
    for _ in range(data.draw(st.integers(2, 4))):
        layers.append(samples.reshape(layers[-1].ofm, shape))
        layers.append(samples.transpose(layers[-1].ofm, tuple(data.draw(st.permutations(range(len(shape)))))))
        shape = layers[-1].ofm.shape
        if len(shape) > 2 and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(shape) - 2))
            shape = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    layers.append(samples.lookup(layers[-1].ofm))
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    hardware = replace(data.draw(st.sampled_from([SMALL, REFERENCE])), dma_setup=data.draw(st.sampled_from([0, 70])))
    found = merged(graph, hardware)
    assert kinds(found).count("transpose") <= kinds(graph).count("transpose")
