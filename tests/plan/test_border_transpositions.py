"""Outputs that only regions read lie as these have them: fewer transpositions, the same results of all regions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_reference import run_graph
from plan_samples import Samples, graph_of, kinds
from test_moved_transpositions import TO_NCHW, TO_NHWC, Images

from byoc_hw.accelerator import SMALL
from byoc_hw.graph import Transpose
from byoc_hw.plan.array.permuting import transposing_cycles
from byoc_hw.plan.border_transpositions import with_borders_in_order
from byoc_hw.plan.merged_transpositions import with_merged_transpositions
from byoc_hw.plan.moved_transpositions import with_moved_transpositions

CHANNELS = (1, 8, 6, 6)


def tidied(graph):
    return with_merged_transpositions(with_moved_transpositions(graph, SMALL), SMALL)


def results(graphs, readers):
    """What each region gives, of random inputs but for those that another one gives."""
    given_to = {reader: border for border, read in readers.items() for reader in read}
    outputs = {}
    for name, graph in graphs.items():
        inputs = [
            outputs[given_to[name, index]] if (name, index) in given_to else Samples(index).values(tensor.shape)
            for index, tensor in enumerate(graph.inputs)
        ]
        values = run_graph(graph, inputs)
        outputs |= {(name, index): values[tensor] for index, tensor in enumerate(graph.outputs)}
    return outputs


def agreed(graphs, readers):
    """The graphs in which borders have one order: all other outputs are the same, and what is passed on is of the
    shape that its readers have."""
    found = with_borders_in_order(graphs, readers, tidied, SMALL)
    for (name, output), read in readers.items():
        for reader, index in read:
            assert found[reader].inputs[index].shape == found[name].outputs[output].shape
    before, after = (results(some, readers) for some in (graphs, found))
    assert before.keys() == after.keys()
    for border in before.keys() - readers.keys():
        np.testing.assert_array_equal(before[border], after[border])
    return found


def maker(finish=None, again=False):
    """A region that gives a convolution's image in NCHW, or what is made of that."""
    one = Images()
    image = one.branch()
    image = image if finish is None else one.add(finish(one.samples, image))
    return one.graph(image, *([one.end(image)] if again else []))


def reader(start=None):
    """A region that has a convolution of an image in NCHW, or of what is made of that."""
    one = Images(CHANNELS)
    image = one.ifm if start is None else one.add(start(one.samples, one.ifm))
    return one.graph(one.end(image))


TABLE = {"finish": lambda samples, image: samples.lookup(image)}


@pytest.mark.parametrize("first", [maker(), maker(**TABLE), maker(again=True)], ids=["", "of a table", "read again"])
@pytest.mark.parametrize("second", [reader(), reader(lambda samples, image: samples.lookup(image))], ids=["", "table"])
def test_what_one_region_makes_and_another_reads_is_not_transposed(first, second):
    found = agreed({"one": first, "two": second}, {("one", 0): [("two", 0)]})
    assert not [name for name, graph in found.items() if "transpose" in kinds(graph)]
    assert found["two"].inputs[0].shape == (1, 6, 6, 8)


def test_all_of_several_readers_have_it_in_the_same_order():
    graphs = {"one": maker(), "two": reader(), "three": reader()}
    found = agreed(graphs, {("one", 0): [("two", 0), ("three", 0)]})
    assert not [name for name, graph in found.items() if "transpose" in kinds(graph)]


def pooled():
    """A region that reads an image in NCHW as it is: a product for each of its rows."""
    samples = Samples()
    image = samples.tensor(CHANNELS)
    rows = samples.reshape(image, (48, 6))
    product = samples.dense(rows.ofm, 4)
    return graph_of([image], [rows, product], [product.ofm])


def test_it_stays_as_it_is_where_that_saves_nothing():
    graphs, readers = {"one": maker(), "two": pooled()}, {("one", 0): [("two", 0)]}
    found = agreed(graphs, readers)
    assert found["one"].outputs == graphs["one"].outputs
    assert found["two"].inputs == graphs["two"].inputs


def test_regions_in_nhwc_are_as_they_were():
    one, two = Images(), Images()
    graphs = {"one": one.graph(one.conv(one.ifm)), "two": two.graph(two.conv(two.ifm))}
    assert agreed(graphs, {("one", 0): [("two", 0)]}) == graphs


def test_inputs_that_are_outputs_and_outputs_that_are_given_twice_stay():
    one = Images()
    image = one.branch()
    twice = one.graph(image, image)
    through = graph_of([one.ifm], [], [one.ifm])
    for first in (twice, through):
        second = Images(first.outputs[0].shape)
        second = second.graph(second.end(second.ifm))
        found = agreed({"one": first, "two": second}, {("one", 0): [("two", 0)]})
        assert found["one"].outputs == first.outputs
        assert found["two"].inputs == second.inputs


def test_a_region_that_reads_an_output_twice_has_it_as_it_is():
    two = Images(CHANNELS)
    other = two.samples.tensor(CHANNELS)
    total = two.add(two.samples.add(two.ifm, other))
    second = graph_of([two.ifm, other], two.layers, [two.end(total)])
    first = maker()
    found = agreed({"one": first, "two": second}, {("one", 0): [("two", 0), ("two", 1)]})
    assert found["one"].outputs == first.outputs


@st.composite
def chains(draw):
    """Regions one after the other, each of some of the outputs before it, which are in NCHW or in NHWC."""
    made, graphs, readers = [], {}, {}
    for number in range(draw(st.integers(2, 4))):
        count = draw(st.integers(1, min(2, len(made)))) if made else 0
        chosen = draw(st.permutations(range(len(made))))[:count]
        shapes = [made[one][1] for one in chosen] or [(1, 6, 6, 8)]
        one = Images(shapes[0])
        inputs = [one.ifm, *(one.samples.tensor(shape) for shape in shapes[1:])]
        values = [value if value.shape == (1, 6, 6, 8) else one.turned(value, TO_NHWC) for value in inputs]
        image = values[0] if len(values) == 1 else one.add(one.samples.add(*values))
        if draw(st.booleans()):
            image = one.conv(image)
        outputs = []
        for _ in range(draw(st.integers(1, 2))):
            value = one.add(one.samples.lookup(image)) if draw(st.booleans()) else one.conv(image)
            value = one.turned(value, TO_NCHW) if draw(st.booleans()) else value
            outputs.append(one.add(one.samples.lookup(value)) if draw(st.booleans()) else value)
        graphs[str(number)] = graph_of(inputs, one.layers, outputs)
        for index, place in enumerate(chosen):
            readers.setdefault(made[place][0], []).append((str(number), index))
        made += [((str(number), index), tensor.shape) for index, tensor in enumerate(outputs)]
    return graphs, {border: read for border, read in readers.items() if draw(st.booleans())}


@given(chains())
@settings(max_examples=60)
def test_random_regions_give_the_same_with_no_more_transpositions(chain):
    graphs, readers = chain
    before, after = ({name: tidied(graph) for name, graph in graphs.items()}, agreed(graphs, readers))
    assert cycles(after) <= cycles(before)
    if not readers:
        assert [kinds(graph) for graph in after.values()] == [kinds(graph) for graph in before.values()]


def cycles(graphs):
    turned = [layer for graph in graphs.values() for layer in graph.layers if isinstance(layer, Transpose)]
    return sum(transposing_cycles(layer, SMALL, parted=True) for layer in turned)
