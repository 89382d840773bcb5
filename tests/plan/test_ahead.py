"""Constants that the region in front copies: what moves there, that it is exact, and in the cycles foreseen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_faults import places, without
from plan_graphs import accelerators, graphs
from plan_machine import Machine, Memory, RefusedError, Touched
from plan_reference import run_graph
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan import ahead
from byoc_hw.plan.ahead import MOST_AHEAD, with_copies_ahead
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.bound.begun import bound_of_begun, bound_of_inference
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.order.timeline import timeline, timelines
from byoc_hw.plan.region import plan_tiles
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS, Copy, CopyWait
from byoc_hw.program import Buffer, HostCall, Program, RegionCall


class Following(Machine):
    """Goes on with what the machine of the region in front has copied, and has in flight: all else is unwritten."""

    def __init__(self, plan, hardware, inputs, flash=b"", before=None):
        super().__init__(plan, hardware, inputs)
        self.brought = Touched()
        self.ahead = []  # the copies for the next region
        if plan.ahead:
            self.memories[plan.ahead_space] = Memory("ahead", flash, written=True)
        if plan.after:
            self.slots, self.in_flight, self.started = before.slots, before.in_flight, before.started
            for space in (ACTIVATIONS, WEIGHTS):
                memory = self.memories[space] = before.memories[space]
                memory.written[:] = False
                for _, _, places in before.brought.get(memory, ()):
                    memory.written[places] = True

    def copy(self, copy):
        access = super().copy(copy)
        if self.plan.ahead and copy.source.space == self.plan.ahead_space:
            self.ahead.append(access)
            for memory, places in access.writes.items():
                self.brought.setdefault(memory, []).extend(places)
        return access

    def in_flight_at_the_end(self):
        """What is not for the next region."""
        return [access for _, access in self.in_flight if not any(access is other for other in self.ahead)]


def joined(graphs, hardware, host=True):
    """The plans of regions one after the other, each alone, and with copies ahead; `host` says what is between them."""
    graphs = [replace(graph, name=f"region_{at}") for at, graph in enumerate(graphs)]
    plans = {graph.name: plan_tiles(graph, hardware) for graph in graphs}
    buffer, calls = Buffer("x", 1), []
    for graph in graphs:
        calls += [RegionCall(graph, ()), *([HostCall("f", (buffer, buffer))] if host else [])]
    found = with_copies_ahead(Program("net", (), (), tuple(calls)), plans, hardware)
    return list(plans.values()), list(found.values())


def run(plans, hardware, seed=0):
    """Each layer and output of all regions is that of the reference."""
    random, before = np.random.default_rng(seed), None
    for plan, after in zip(plans, [*plans[1:], None], strict=True):
        inputs = [random.integers(-128, 128, one.shape).astype(one.dtype) for one in plan.graph.inputs]
        before = Following(plan, hardware, inputs, after.flash if after else b"", before)
        outputs = before.run()
        expected = run_graph(plan.graph, inputs)
        for tensor, (values, made) in before.layer_outputs.items():
            assert made.all()
            np.testing.assert_array_equal(values, expected[tensor].ravel())
        for tensor, value in zip(plan.graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(value, expected[tensor])


def cycles(plans, hardware):
    return [timed.total for timed in timelines(plans, hardware)]


def check(alone, found, hardware):
    """They are exact, no region takes more cycles, and none goes below its bound."""
    run(found, hardware)
    taken = cycles(found, hardware)
    for plan, before, mine, other in zip(found, [None, *found], taken, alone, strict=False):
        assert mine <= timeline(other, hardware).total
        copied = before.copied_ahead if plan.after else ()
        assert mine >= bound_of_begun(plan.graph, hardware, [copy_cycles(c.nbytes, c.rows, hardware) for c in copied])
        assert plan.after or mine >= cycles_bound(plan.graph, hardware)
    assert sum(taken) >= bound_of_inference([plan.graph for plan in found], hardware)


def convolutions(count=2, channels=16, size=8, seed=0):
    """A region of convolutions."""
    samples = Samples(seed)
    layers = [samples.conv2d(samples.tensor((1, size, size, channels)), channels, padding=(1, 1, 1, 1))]
    for _ in range(count - 1):
        layers.append(samples.conv2d(layers[-1].ofm, channels, padding=(1, 1, 1, 1)))
    return graph_of([layers[0].ifm], layers, [layers[-1].ofm])


def test_weights_come_while_the_last_jobs_of_the_region_in_front_run():
    hardware = accelerator()
    alone, found = joined([convolutions(), convolutions(seed=1)], hardware, host=False)
    check(alone, found, hardware)
    first, second = (timeline(plan, hardware).total for plan in alone)
    taken = cycles(found, hardware)
    assert taken[0] == first
    assert taken[1] < second
    store = places(found[0], Copy)[-1]
    assert found[0].steps[store] not in found[0].copied_ahead  # its own comes last: nothing is in flight at the end


def test_weights_come_ahead_of_regions_whose_rows_are_too_many_to_tell_apart(monkeypatch):
    monkeypatch.setattr(ahead, "_MOST_ROWS", 0)
    hardware = accelerator(weights=8192, dma_width=1)
    alone, found = joined([convolutions(), convolutions(seed=1)], hardware)
    check(alone, found, hardware)
    assert found[0].copied_ahead


def test_a_region_ends_with_copies_in_flight_where_the_host_is_next():
    hardware = accelerator(weights=8192, dma_width=1)
    alone, found = joined([convolutions(), convolutions(seed=1)], hardware)
    check(alone, found, hardware)
    assert found[0].steps[places(found[0], Copy)[-1]] in found[0].copied_ahead
    assert timeline(replace(found[0], ahead=""), hardware).total > cycles(found, hardware)[0]


def test_without_a_host_in_between_nothing_is_in_flight_at_the_end():
    hardware = accelerator(weights=8192, dma_width=1)
    _, found = joined([convolutions(), convolutions(seed=1)], hardware, host=False)
    assert found[0].steps[places(found[0], Copy)[-1]] not in found[0].copied_ahead


def test_a_missing_wait_for_a_copy_in_flight_is_refused():
    hardware = accelerator(weights=8192, dma_width=1)
    _, (first, second) = joined([convolutions(), convolutions(seed=1)], hardware)
    run([first, second], hardware)
    with pytest.raises(RefusedError, match="in flight on the same bytes"):
        run([first, without(second, places(second, CopyWait)[0])], hardware)


def test_weights_lie_where_the_region_in_front_leaves_room():
    """Both regions begin at the start of local weights: only elsewhere are bytes free while the first one runs."""
    hardware = accelerator(weights=8000, dma_width=64)
    alone, found = joined([convolutions(1, size=16), convolutions(1, size=16, seed=1)], hardware, host=False)
    check(alone, found, hardware)
    (own,), (other,) = ({held.offset for held in plan.local if held.space == WEIGHTS} for plan in (alone[1], found[1]))
    assert own == 0
    assert other >= 2496
    assert WEIGHTS in {copy.target.space for copy in found[0].copied_ahead}


def test_nothing_is_copied_ahead_to_bytes_that_are_in_use():
    hardware = accelerator(weights=2600)  # holds the weights of one layer
    alone, found = joined([convolutions(1), convolutions(1, seed=1)], hardware, host=False)
    check(alone, found, hardware)
    assert WEIGHTS not in {copy.target.space for copy in found[0].copied_ahead}


@pytest.mark.slow
def test_the_number_of_copies_in_flight_fits_the_queue():
    for queue in (1, 2, 64):
        hardware = accelerator(weights=30000, dma_width=1, queue=queue)
        alone, found = joined([convolutions(1), convolutions(3, seed=1)], hardware)
        check(alone, found, hardware)
        own = max(at for at in places(found[0], Copy) if found[0].steps[at] not in found[0].copied_ahead)
        assert 0 < len([at for at in places(found[0], Copy) if at > own]) <= min(queue, MOST_AHEAD)


def test_a_region_may_begin_with_copies_and_end_with_others():
    hardware = accelerator(weights=8192, dma_width=1)
    alone, found = joined([convolutions(seed=seed) for seed in range(3)], hardware)
    check(alone, found, hardware)
    assert [(plan.after, plan.ahead) for plan in found] == [
        ("", "region_1"),
        ("region_0", "region_2"),
        ("region_1", ""),
    ]


def test_a_single_region_stays_as_it_is():
    hardware = accelerator()
    alone, found = joined([convolutions()], hardware)
    assert found == alone


@st.composite
def chains(draw):
    hardware = replace(draw(accelerators()), label="RANDOM")
    return hardware, [draw(graphs(hardware, 4)) for _ in range(draw(st.integers(2, 3)))], draw(st.booleans())


RANDOM = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large])


@pytest.mark.slow
@given(chains())
@settings(RANDOM, max_examples=10)
def test_any_regions_are_exact_with_copies_ahead(chain):
    hardware, regions, host = chain
    check(*joined(regions, hardware, host), hardware)


@pytest.mark.slow
@given(chains())
@settings(RANDOM, max_examples=35)
def test_many_regions_are_exact_with_copies_ahead(chain):
    hardware, regions, host = chain
    check(*joined(regions, hardware, host), hardware)
