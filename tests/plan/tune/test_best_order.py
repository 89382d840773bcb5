"""The order of layers of which the plan takes the fewest cycles."""

from dataclasses import replace

import pytest
from effort import examples
from hypothesis import given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.layer_orders import orders
from byoc_hw.plan.tune import best_order
from byoc_hw.plan.tune.best_order import in_best_order
from byoc_hw.plan.tune.nearby import NEAR
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.remembered import Remembered

SLOW = replace(accelerator(activations=4096, weights=4096), dma_width=1)


def interrupted():
    """Layers 3 and 4 read what layer 1 makes, more than local memory of 4 KiB has room for; layer 2 is of another
    branch."""
    samples, around = Samples(), (1, 1, 1, 1)
    ifm = samples.tensor((1, 12, 12, 4))
    first = samples.conv2d(ifm, 8, (3, 3), padding=around)
    wide = samples.conv2d(first.ofm, 40, (1, 1))
    beside = samples.conv2d(ifm, 16, (3, 3), padding=around)
    readers = [samples.conv2d(wide.ofm, 16, (3, 3), padding=around), samples.conv2d(wide.ofm, 32, (1, 1))]
    return graph_of([ifm], [first, wide, beside, *readers], [beside.ofm, *(one.ofm for one in readers)])


def test_what_is_read_from_main_memory_is_read_by_the_layers_that_follow():
    graph = interrupted()
    best = in_best_order(graph, SLOW)
    assert best.layers.index(graph.layers[2]) in (0, 4)
    assert known_layout(best, SLOW).cycles < 0.95 * known_layout(graph, SLOW).cycles
    check(best, SLOW)


def test_an_order_is_searched_once_for_regions_that_are_equal(monkeypatch):
    monkeypatch.setattr(best_order, "_orders", Remembered(best_order._REMEMBERED))
    best = in_best_order(interrupted(), SLOW)
    monkeypatch.setattr(best_order, "known_layout", None)
    again = in_best_order(interrupted(), SLOW)
    assert [layer.name for layer in again.layers] == [layer.name for layer in best.layers]


def test_a_plan_near_the_bound_keeps_the_order_of_its_layers(monkeypatch):
    graph = interrupted()
    monkeypatch.setattr(best_order, "_orders", Remembered(best_order._REMEMBERED))
    monkeypatch.setattr(best_order, "known_bound", lambda *_: known_layout(graph, SLOW).cycles)
    assert in_best_order(graph, SLOW) is graph


@pytest.mark.parametrize(("far", "changes"), [(1.1, False), (1.3, True)])
def test_of_more_than_a_few_layers_other_orders_are_tried_far_from_the_bound(monkeypatch, far, changes):
    graph = interrupted()
    monkeypatch.setattr(best_order, "_orders", Remembered(best_order._REMEMBERED))
    monkeypatch.setattr(best_order, "_FEW", len(graph.layers) - 1)
    monkeypatch.setattr(best_order, "known_bound", lambda *_: known_layout(graph, SLOW).cycles / far)
    assert (in_best_order(graph, SLOW) is not graph) == changes


def test_of_many_layers_none_is_tried(monkeypatch):
    graph = interrupted()
    monkeypatch.setattr(best_order, "_MANY", len(graph.layers) - 1)
    assert in_best_order(graph, SLOW) is graph


@settings(max_examples=examples(10))
@given(regions())
def test_no_plan_is_slower_than_the_one_in_the_order_of_the_model(region):
    """But for 1 % where it stores less between layers."""
    hardware, graph = region
    best = in_best_order(graph, hardware)
    assert tuple(map(graph.layers.index, best.layers)) in set(orders(graph))
    assert known_layout(best, hardware).cycles <= NEAR * known_layout(graph, hardware).cycles
    check(best, hardware)
