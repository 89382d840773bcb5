"""Regions on several accelerators: exact whichever is the faster one, in the cycles foreseen, above the bound."""

from dataclasses import replace
from itertools import permutations

import numpy as np
from chip_machine import check_chip_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_graphs import accelerators, graphs
from plan_reference import run_graph

from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

EXAMPLES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large], deadline=None
)


@st.composite
def chip_regions(draw, most=6):
    """A chip of two or three accelerators, and a graph that the first of them can plan."""
    one = replace(draw(accelerators()), name="one", label="ONE", queue=64)
    count = draw(st.sampled_from([1, 1, 1, 2]))
    others = [
        replace(draw(accelerators()), name=f"other{at}", dma_alignment=one.dma_alignment, queue=64)
        for at in range(count)
    ]
    return Soc((one, *others)), draw(graphs(one, most))


def values_of(graph, seed=0):
    random = np.random.default_rng(seed)
    inputs = [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
    return inputs, run_graph(graph, inputs)


@given(chip_regions())
@settings(EXAMPLES, max_examples=30)
def test_any_graph_is_exact_on_any_chip_in_the_cycles_foreseen(region):
    chip, graph = region
    plan = plan_region(graph, chip)
    inputs, expected = values_of(graph)
    check_chip_plan(plan, expected, inputs, permutations(range(len(plan.parts))))
    assert lanes_timeline(plan).total == plan.cycles
    assert plan.bound <= plan.cycles
