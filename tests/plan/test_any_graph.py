"""Whatever the graph and the accelerator: a plan that is exact, in every layer, in the cycles foreseen."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import layer_by_layer
from plan_graphs import choices, joined_regions, regions, regions_of_any_rank

from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import from_plain

EXAMPLES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
)


@pytest.mark.slow
@given(regions())
@settings(EXAMPLES, max_examples=40)
def test_graph_of_layers_that_can_be_planned_can_be_planned(region):
    hardware, graph = region
    check(graph, hardware)


@pytest.mark.slow
@given(joined_regions())
@settings(EXAMPLES, max_examples=30)
def test_tensors_inside_one_another_are_exact(region):
    hardware, graph = region
    check(graph, hardware)


@given(regions_of_any_rank())
@settings(EXAMPLES, max_examples=40)
def test_tensors_of_any_rank_inside_one_another_are_exact(region):
    hardware, graph = region
    check(graph, hardware)


@given(regions())
@settings(EXAMPLES, max_examples=30)
def test_layers_one_by_one_are_always_possible(region):
    hardware, graph = region
    check(graph, hardware, choices=layer_by_layer(graph, hardware))


@pytest.mark.slow
@given(regions(most=6), st.data())
@settings(EXAMPLES, max_examples=150)
def test_any_choices_are_refused_or_give_an_exact_plan(region, data):
    hardware, graph = region
    chosen = data.draw(choices(graph, hardware))
    assert from_plain(chosen.plain()) == chosen
    with suppress(PlanError):
        check(graph, hardware, choices=chosen)
