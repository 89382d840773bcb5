"""No plan is slower by more than 1 % than its layers one after the other, each planned by itself."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.graph import Reshape
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.tune.nearby import NEAR
from byoc_hw.plan.tune.own_plan import own_layout

EXAMPLES = settings(deadline=None, suppress_health_check=list(HealthCheck))


def alone(graph, hardware):
    """Cycles of each layer by itself: nothing lies otherwise than in the model, or stays in local memory."""
    plainer = replace(hardware, tuning=replace(hardware.tuning, swap=False, hold=False, pack=False))
    layers = [layer for layer in graph.layers if not isinstance(layer, Reshape)]
    return sum(own_layout(single(layer), plainer).cycles for layer in layers)


@pytest.mark.slow
def test_layers_one_after_the_other_are_cut_finely_as_alone():
    """The array waits for weights in either plan. One of measured runs as they are is slower, and so is one that keeps
    the tensor between the layers in local memory."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 16)), 8, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 24, padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    hardware = accelerator(1500, 512, dma_setup=70, dma_width=2, array_rows=8, array_columns=8)
    found = own_layout(graph, hardware)
    assert found.choices.apart
    assert found.choices.fine
    assert found.cycles <= alone(graph, hardware)
    check(graph, hardware, choices=found.choices)


def test_a_region_of_layers_without_work_has_a_plan():
    samples = Samples()
    inputs = [samples.tensor((1, 4, 6, 4)), samples.tensor((1, 96))]
    shaped = [samples.reshape(one, (1, 4, 6, 4)) for one in inputs]
    check(graph_of(inputs, shaped, [one.ofm for one in shaped]), accelerator(1024, 1024))


@pytest.mark.slow
@given(regions())
@settings(EXAMPLES, max_examples=30)
def test_no_plan_is_slower_than_its_layers_alone(region):
    hardware, graph = region
    made = {layer.ofm for layer in graph.layers if not isinstance(layer, Reshape)}
    assume(len(set(graph.outputs)) == len(graph.outputs) and made >= set(graph.outputs))  # others are copied besides
    enough = max(alone(graph, hardware), cycles_bound(graph, hardware))  # where the search ends
    assert own_layout(graph, hardware).cycles <= NEAR * enough
