"""Plans that are made better by choices near them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE, TuningSpace
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.tune.nearby import better_nearby, own_layout


def late_weights():
    """The second layer's weights take longer to load than the first one has to compute."""
    samples = Samples()
    ifm = samples.tensor((1, 6, 6, 16))
    first = samples.pool(ifm)
    second = samples.conv2d(ifm, 32, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([ifm], [first, second], [first.ofm, second.ofm])


SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8)


def test_an_array_that_waits_for_weights_gets_them_in_blocks():
    graph = late_weights()
    estimated, found = best_layout(graph, SLOW), own_layout(graph, SLOW)
    assert estimated.choices.blocks[1] is None
    assert found.choices.blocks[1] is not None
    assert cycles_bound(graph, SLOW) <= found.cycles < 0.95 * estimated.cycles
    check(graph, SLOW)


def test_weights_of_all_layers_are_in_smaller_blocks_where_the_last_ones_are_waited_for():
    """Four of the planner's blocks have no room in weight memory, and the array waits for the last layer alone."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 64))
    layers = [samples.conv2d(ifm, 64, (1, 1))]
    for channels in (64, 64, 64, 128, 256):
        layers.append(samples.conv2d(layers[-1].ofm, channels, (1, 1)))
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    hardware = replace(REFERENCE, weight_memory=16384, dma_width=2)
    estimated, found = best_layout(graph, hardware), own_layout(graph, hardware)
    assert estimated.choices.blocks[1] is None
    assert found.choices.blocks[1] is not None
    assert found.cycles < 0.97 * estimated.cycles


def test_layers_are_grouped_where_the_outputs_would_be_stored_at_the_end():
    samples = Samples()
    ifm = samples.tensor((1, 16, 16, 16))
    layers = [samples.depthwise(ifm, padding=(1, 1, 1, 1))]
    layers.append(samples.add(layers[0].ofm, ifm))
    layers.append(samples.add(layers[1].ofm, ifm))
    graph = graph_of([ifm], layers, [layers[1].ofm, layers[2].ofm])
    hardware = replace(REFERENCE, dma_width=4)
    estimated, found = best_layout(graph, hardware), own_layout(graph, hardware)
    assert len(estimated.choices.groups) == 3
    assert any(group.layers > 1 for group in found.choices.groups)
    assert found.cycles < 0.95 * estimated.cycles


@pytest.mark.slow
@given(regions())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_plan_gets_worse_and_the_same_one_is_found_again(region):
    hardware, graph = region
    estimated = best_layout(graph, hardware)
    found = better_nearby(estimated, 0)
    assert found.cycles <= estimated.cycles
    assert better_nearby(estimated, 0).choices == found.choices


@pytest.mark.parametrize(
    "space",
    [TuningSpace(hold=False), TuningSpace(longest_group=1), TuningSpace(overlap=False, resident=False)],
    ids=["hold", "longest_group", "overlap and resident"],
)
def test_choices_stay_in_the_tuning_space(space):
    graph, hardware = late_weights(), replace(accelerator(1500, 2500, dma_width=2), tuning=space)
    for group in own_layout(graph, hardware).choices.groups:
        assert space.hold or not group.held
        assert group.layers <= space.longest_group
        assert group.stripes == 1 or space.overlap or not (group.overlap or group.resident)


def test_a_plan_near_the_bound_is_left_alone():
    graph = late_weights()
    estimated = best_layout(graph, SLOW)
    assert better_nearby(estimated, estimated.cycles) is estimated
