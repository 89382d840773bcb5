"""No plan is slower by more than 2 % than its layers one after the other, each planned by itself."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from plan_graphs import regions
from plan_samples import single

from byoc_hw.graph import Reshape
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.tune.nearby import NEAR, own_layout

EXAMPLES = settings(deadline=None, suppress_health_check=list(HealthCheck))


def alone(graph, hardware):
    """Cycles of each layer by itself: nothing lies otherwise than in the model, or stays in local memory."""
    plainer = replace(hardware, tuning=replace(hardware.tuning, swap=False, hold=False, pack=False))
    layers = [layer for layer in graph.layers if not isinstance(layer, Reshape)]
    return sum(own_layout(single(layer), plainer).cycles for layer in layers)


@pytest.mark.slow
@given(regions())
@settings(EXAMPLES, max_examples=30)
def test_no_plan_is_slower_than_its_layers_alone(region):
    hardware, graph = region
    made = {layer.ofm for layer in graph.layers if not isinstance(layer, Reshape)}
    assume(len(set(graph.outputs)) == len(graph.outputs) and made >= set(graph.outputs))  # others are copied besides
    enough = max(alone(graph, hardware), cycles_bound(graph, hardware))  # where the search ends
    assert own_layout(graph, hardware).cycles <= NEAR**2 * enough  # less is copied, and nothing stored between layers
