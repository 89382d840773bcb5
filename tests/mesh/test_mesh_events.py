"""The simulator against what is worked out without it: to the cycle where nothing is in the way."""

import random

import pytest
from flows import chain_flow, small_mesh

from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.flow import Flow, FlowStep, Lane
from byoc_hw.mesh.machine import Link
from byoc_hw.mesh.predict import first_starts, period_of


def test_a_chain_is_simulated_to_the_cycle():
    flow = chain_flow([700, 1000, 400, 900], nbytes=320)
    run = simulate(flow, 30)
    assert run.period() == 1000 == period_of(flow)
    assert tuple(starts[0] for starts in run.starts) == first_starts(flow)
    assert run.latency() == 3000 + 3 * (20 + 5)
    assert run.utilisation(1) == pytest.approx(1.0, abs=0.01)


def test_random_flows_without_shared_links_start_their_first_frame_as_predicted():
    drawn = random.Random(11)
    for _ in range(20):
        flow = chain_flow([drawn.randint(1, 500) for _ in range(6)], nbytes=drawn.randint(0, 5000))
        assert tuple(starts[0] for starts in simulate(flow, 3).starts) == first_starts(flow)


def test_periods_of_random_flows_are_those_predicted():
    drawn = random.Random(5)
    for _ in range(8):
        skips = [tuple(sorted(drawn.sample(range(6), 2)))]
        flow = chain_flow([drawn.randint(300, 900) for _ in range(6)], 64, drawn.randint(1, 3), skips)
        assert simulate(flow, 400).period() == pytest.approx(period_of(flow), rel=0.01)


def test_messages_that_share_a_link_wait_for_each_other():
    mesh = small_mesh(link=Link(1, 0))
    steps = tuple(FlowStep(f"s{at}", (at, 0), 10) for at in range(4))
    flow = Flow(mesh, steps, (Lane(0, 3, 300, 4), Lane(1, 3, 300, 4), Lane(2, 3, 300, 4)))
    assert period_of(flow) == 900
    assert simulate(flow, 80).period() == pytest.approx(900, rel=0.01)


def test_without_room_for_messages_steps_wait():
    fast, slow = (simulate(chain_flow([100, 100], nbytes=1600, credits=count), 50).period() for count in (3, 1))
    assert fast == 101 or fast == 100
    assert slow > 200


def test_pipelines_are_counted_by_themselves():
    mesh = small_mesh()
    steps = tuple(FlowStep(f"s{at}", mesh.alive[at], 100 * (at + 1), group=at) for at in range(3))
    run = simulate(Flow(mesh, steps, ()), 10)
    assert [run.period(group) for group in range(3)] == [100, 200, 300]
    assert run.rate == pytest.approx(1 / 100 + 1 / 200 + 1 / 300)


def test_a_step_that_waits_for_a_message_does_not_hold_up_another_one_of_its_pe():
    mesh = small_mesh(link=Link(hop_cycles=0))
    here, there = mesh.alive[:2]
    steps = (FlowStep("far", there, 500), FlowStep("waits", here, 100), FlowStep("free", here, 200))
    run = simulate(Flow(mesh, steps, (Lane(0, 1, 0, 2),)), 4)
    assert run.starts[1] == (600, 1000, 1500, 2000)
    assert run.starts[2] == (0, 200, 400, 700)  # at 600 the other one has the older frame


def test_the_same_flow_runs_the_same():
    flow = chain_flow([300, 200, 500], skips=[(0, 2)])
    assert simulate(flow, 20) == simulate(flow, 20)


def test_refuses_a_step_on_a_dead_pe():
    with pytest.raises(InvalidInput, match=r"s0: its PE is one of the mesh that is not dead: got \(0, 0\)"):
        Flow(small_mesh(dead={(0, 0)}), (FlowStep("s0", (0, 0), 5),), ())
