"""Accelerators that share an activation memory: what stays there, what it saves, and that nobody is too early."""

from dataclasses import replace
from itertools import permutations

import pytest
from chip_machine import check_chip_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import accelerators, graphs
from plan_machine import RefusedError
from plan_samples import Samples, graph_of
from test_chip_plans import DLA, EXAMPLES, PAIR, check_on_chip, separable, values_of, without

from byoc_hw.accelerator import DSP
from byoc_hw.errors import InvalidInput
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, Copy, Signal
from byoc_hw.soc import Soc

SHARED = replace(PAIR, shared=(("dla", "dsp"),))


def copied(plan):
    return sum(step.nbytes * step.rows for part in plan.parts for step in part.plan.steps if isinstance(step, Copy))


@st.composite
def shared_chips(draw, most=6):
    """A chip of two to four accelerators, of which the first two or three share their memory, and a graph."""
    one = replace(draw(accelerators()), name="one", label="ONE", queue=draw(st.sampled_from([2, 64])))
    same = {name: getattr(one, name) for name in ("activation_memory", "dma_alignment", "local_alignment")}
    group = [
        replace(draw(accelerators()), name=f"group{at}", queue=64, **same)
        for at in range(draw(st.sampled_from([1, 1, 2])))
    ]
    others = [
        replace(draw(accelerators()), name="other", dma_alignment=one.dma_alignment, queue=64)
        for _ in range(draw(st.sampled_from([0, 0, 1])))
    ]
    names = ("one", *(other.name for other in group))
    return Soc((one, *others, *group), shared=(names,)), draw(graphs(one, most))


@given(shared_chips())
@settings(EXAMPLES, max_examples=8)
def test_any_graph_is_exact_on_any_chip_in_the_cycles_foreseen(region):
    check_on_chip(*region)


@pytest.mark.slow
@given(shared_chips(most=9))
@settings(EXAMPLES, max_examples=40)
def test_larger_graphs_are_exact_on_any_chip(region):
    check_on_chip(*region)
