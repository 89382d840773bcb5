"""Plans of a region under a bound on main memory: they fit, are exact, and are faster the more memory there is."""

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.region import plan_region
from byoc_hw.plan.search import planner
from byoc_hw.plan.search.within import Border, SizedPlans

EXAMPLES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
)


def border(graph):
    """Every argument is in the arena only while the region uses it, unless several are the same tensor."""
    sizes = [tensor.nbytes for tensor in (*graph.inputs, *graph.outputs)]
    inputs = {index: sizes[index] for index in range(len(graph.inputs))}
    return Border(inputs, {index: sizes[index] for index in range(len(sizes)) if index not in inputs})


@pytest.mark.slow
@given(regions(most=7))
@settings(EXAMPLES, max_examples=8)
def test_plans_fit_are_exact_and_lose_cycles_as_memory_shrinks(region):
    hardware, graph = region
    limits = border(graph)
    plans = SizedPlans(graph, hardware, limits)
    smallest = plans.smallest()
    own = max(plan_region(graph, hardware).memory.peak(limits.inputs, limits.outputs), smallest.ram)
    bounds = [smallest.ram + (own - smallest.ram) * part // 4 for part in (4, 3, 2, 1, 0)]
    for bound in bounds:
        plans.within(bound)
    found = [plans.within(bound) for bound in bounds]  # of all that is known by then
    for bound, one in zip(bounds, found, strict=True):
        assert one.ram <= bound
        assert one.plan.memory.peak(limits.inputs, limits.outputs) == one.ram
        check(graph, hardware, choices=one.layout.choices)
    assert all(more.cycles <= less.cycles for more, less in pairwise(found))
    less = plans.with_less_flash(own)
    assert all(one.ram <= own for one in less)
    assert all(one.flash > other.flash and one.cycles <= other.cycles for one, other in pairwise(less))


def wide():
    """Three convolutions whose middle is six times as wide as their ends."""
    samples = Samples()
    ifm = samples.tensor((1, 16, 16, 4))
    layers = []
    for channels in (24, 24, 4):
        layers.append(samples.conv2d(layers[-1].ofm if layers else ifm, channels, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of([ifm], layers, [layers[-1].ofm])


def test_layers_take_turns_where_tensors_between_them_do_not_fit_main_memory():
    graph, hardware = wide(), accelerator(4096, 65536)
    plans = SizedPlans(graph, hardware, Border({}, {}))
    assert plans.smallest().ram == 0
    assert max(group.layers for group in plans.smallest().layout.choices.groups) > 1
    assert plans.within(-1) is None


def test_a_region_that_fits_is_laid_out_no_more_often(monkeypatch):
    graph, hardware = wide(), accelerator(4096, 65536)
    with patch.object(planner, "lay_out", wraps=planner.lay_out) as laid_out:
        plan_region(graph, hardware)
    assert laid_out.call_count <= len(planner.ROOM) + 1


@pytest.mark.parametrize("bound", [0, 2000, 10**6])
def test_the_bound_of_the_search_is_kept_by_its_plans(bound):
    graph, hardware = wide(), accelerator(4096, 65536)
    assert SizedPlans(graph, hardware, Border({}, {})).within(bound).ram <= bound
