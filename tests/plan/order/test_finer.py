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
from byoc_hw.plan.choices import Blocks, Group
from byoc_hw.plan.order.finer import ChainCuts, chain_waits
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


def test_copies_are_cut_that_a_job_waits_for_and_not_those_that_filled_its_place_before():
    samples = Samples()
    layer = samples.dense(samples.tensor((1, 128)), 640)
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    hardware = replace(REFERENCE, weight_memory=14_000, dma_width=4)
    chosen = estimated(graph, hardware)
    found = lay_out_region(graph, hardware, replace(chosen, groups=(Group(1),), blocks=(Blocks(48, 128),), fine=False))
    ops, known = found.work.ops, found.order
    waits = [one for one in chain_waits(ops, [0] * len(ops), known) if ops[one.then].is_job]
    cuts = ChainCuts(ops, found.mapped.mapping.layers, found.places, hardware, known)
    last = max(waits, key=lambda one: one.then)
    assert {last.first, last.then} in [set(parts) for parts in cuts.of(waits)]
    assert lay_out_region(graph, hardware, replace(found.choices, fine=True)).cycles < 0.99 * found.cycles


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
