"""Layers that are alike, and what is known of them."""

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.search.alike import AlikeLayers, Known
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import packings

HARDWARE = accelerator(6 * 1024, 8 * 1024, dma_width=4)


def blocks(*channels, last=8):
    """Residual blocks, one for each number of channels in the middle, then a pointwise layer."""
    samples, layers = Samples(), []
    first = tensor = samples.tensor((1, 16, 16, 8))
    for count in channels:
        wide = samples.conv2d(tensor, count, (1, 1))
        deep = samples.depthwise(wide.ofm, padding=(1, 1, 1, 1))
        narrow = samples.conv2d(deep.ofm, 8, (1, 1))
        added = samples.add(narrow.ofm, tensor)
        layers += [wide, deep, narrow, added]
        tensor = added.ofm
    layers.append(samples.conv2d(tensor, last, (1, 1)))
    return graph_of([first], layers, [layers[-1].ofm])


def numbers(graph, *spans):
    alike = AlikeLayers(map_graph(graph, HARDWARE), Known())
    return [alike.span(*span).number for span in spans]


def test_blocks_of_the_same_sizes_are_alike():
    first, second, third, other = numbers(blocks(32, 32, 48, 32), (4, 7), (12, 15), (8, 11), (4, 8))
    assert first == second
    assert len({first, third, other}) == 3


def test_layers_that_read_an_argument_are_not_alike_those_that_read_scratch():
    first, second = numbers(blocks(32, 32, 32), (0, 4), (4, 8))
    assert first != second


def test_layers_whose_input_is_read_later_are_not_alike_those_whose_is_not():
    """A copy of it may have to stay in local memory, or in main memory."""
    samples = Samples()
    one = samples.conv2d(samples.tensor((1, 8, 8, 8)), 8, (1, 1))
    two = samples.conv2d(one.ofm, 8, (1, 1))
    three = samples.conv2d(two.ofm, 8, (1, 1))
    added = samples.add(three.ofm, one.ofm)
    last = samples.conv2d(added.ofm, 8, (1, 1))
    graph = graph_of([one.ifm], [one, two, three, added, last], [last.ofm])
    second, third = numbers(graph, (1, 2), (2, 3))
    assert second != third


def test_storages_are_named_in_the_order_of_their_first_use():
    mapped = map_graph(blocks(32, 32, 32), HARDWARE)
    layers = AlikeLayers(mapped, Known()).span(4, 8)
    of = mapped.storages.of
    used = [of[tensor].index for layer in mapped.mapping.layers[4:8] for tensor in (*layer.inputs, layer.ofm)]
    assert layers.storages == tuple(dict.fromkeys(used))
    assert layers.named(layers.plain({used[0], used[1], 0})) == {used[0], used[1]}


@pytest.mark.parametrize(
    "kinds",
    [{"halos": True}, *(pytest.param(one, marks=pytest.mark.slow) for one in ({}, {"fine": True}))],
    ids=["halos", "patches", "fine"],
)
def test_estimates_of_groups_do_not_depend_on_what_is_known_of_others(kinds):
    """The same best groups, with their estimates, from a search that knows all others, and one that knows nothing."""
    known = Known()
    for graph in (blocks(32, 32, 48), blocks(48, 32, 32, last=16)):
        for mapped in packings(map_graph(graph, HARDWARE)):
            for others in ({}, {"halos": True}, {"fine": True}):
                Grouping(mapped, known=known).further(**others).path()
            found = Grouping(mapped, known=known).further(**kinds).path()
            alone = Grouping(mapped).further(**kinds).path()
            assert found
            assert [(one.group, one.cycles) for one in found] == [(one.group, one.cycles) for one in alone]
    assert len(known.numbers) < len(known.forms)
