"""Operations that are cut where an engine waits."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import estimated
from plan_graphs import choices, regions
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Group
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.steps import Copy, Job

SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8, packed_rows=False)


def wide():
    """A convolution of 32 channels over 16 x 16 pixels: its input and its output take long to copy."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 16, 16, 16)), 32, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([layer.ifm], [layer], [layer.ofm])


def finely_cut(graph, hardware):
    """The plan of one copy of everything and one job, and with cuts."""
    chosen = replace(estimated(graph, hardware), groups=(Group(1),), blocks=(None,))
    plain, fine = (lay_out_region(graph, hardware, replace(chosen, fine=one)) for one in (False, True))
    check(graph, hardware, choices=replace(chosen, fine=True))
    return plain, fine


def test_the_array_begins_when_the_first_rows_and_weights_are_there():
    plain, fine = finely_cut(wide(), SLOW)
    begins = [min(one.order.start[index] for index in one.order.jobs) for one in (plain, fine)]
    assert begins[1] < 0.5 * begins[0]
    assert fine.cycles < plain.cycles


def test_the_last_copy_has_little_to_do_behind_the_last_job():
    plain, fine = finely_cut(wide(), SLOW)
    behind = [one.cycles - max(one.order.end[index] for index in one.order.jobs) for one in (plain, fine)]
    assert behind[1] < 0.5 * behind[0]


def test_what_costs_more_than_it_saves_is_not_cut():
    plain, fine = finely_cut(wide(), replace(SLOW, dma_setup=100_000))
    assert len(fine.work.ops) == len(plain.work.ops)
    assert fine.cycles == plain.cycles


def test_cuts_are_the_same_each_time():
    graph = wide()
    chosen = replace(estimated(graph, SLOW), fine=True)
    one, other = (lay_out_region(graph, SLOW, chosen) for _ in range(2))
    assert [op.step for op in one.work.ops] == [op.step for op in other.work.ops]
    assert {type(op.step) for op in one.work.ops} == {Copy, Job}


@pytest.mark.slow
@given(regions(most=5), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_plan_gets_slower(region, data):
    hardware, graph = region
    chosen = replace(data.draw(choices(graph, hardware)), apart=False, fine=False)
    try:
        plain = lay_out_region(graph, hardware, chosen)
    except PlanError:
        assume(False)
    assert lay_out_region(graph, hardware, replace(chosen, fine=True)).cycles <= plain.cycles
