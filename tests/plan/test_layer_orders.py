"""Orders of a region's layers."""

from plan_check import check
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.layer_orders import graph_in_order, orders


def two_branches():
    """Two branches of an input, whose layers alternate: 0 and 2, 1 and 3."""
    samples = Samples()
    ifm = samples.tensor((1, 16, 16, 16))
    starts = [samples.conv2d(ifm, 32, (1, 1)), samples.conv2d(ifm, 32, (1, 1))]
    ends = [samples.conv2d(start.ofm, 16, (3, 3), padding=(1, 1, 1, 1)) for start in starts]
    return graph_of([ifm], [*starts, *ends], [end.ofm for end in ends])


def test_a_chain_has_one_order():
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(ifm, 16, (1, 1))
    second = samples.conv2d(first.ofm, 16, (1, 1))
    assert list(orders(graph_of([ifm], [first, second], [second.ofm]))) == [(0, 1)]


def test_other_orders_go_along_branches():
    assert list(orders(two_branches())) == [(0, 1, 2, 3), (0, 2, 1, 3), (1, 3, 0, 2)]


def test_a_region_in_each_order_computes_the_same():
    graph = two_branches()
    for order in orders(graph):
        other = graph_in_order(graph, order)
        other.verify()
        assert (other.inputs, other.outputs) == (graph.inputs, graph.outputs)
        check(other, accelerator(activations=4096))
