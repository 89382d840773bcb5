"""Credits: the fewest with which nothing hangs, what hangs below them, and those with which nothing waits."""

import random

import pytest
from flows import chain_flow, folded_flow, small_mesh

from byoc_hw.errors import PlanError
from byoc_hw.integers import ceil_div
from byoc_hw.mesh.credits import blocking_cycle, check_credits, held_cycles, least_credits
from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.flow import OUTPUT_BUFFERS, Flow, FlowStep, Lane
from byoc_hw.mesh.predict import first_starts, period_of


def one_less(credits, lane):
    return [count - (number == lane) for number, count in enumerate(credits)]


@pytest.mark.parametrize("lag", [1, 2, 3, 5])
def test_a_skip_over_a_lag_needs_a_credit_for_each_frame_of_it(lag):
    least = least_credits(folded_flow(lag))
    assert least[2] == lag + 1
    check_credits(folded_flow(lag, least))


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_one_credit_less_on_any_channel_blocks_and_is_refused_with_the_circle(lag):
    least = least_credits(folded_flow(lag))
    for lane in range(3):
        flow = folded_flow(lag, one_less(least, lane))
        assert blocking_cycle(flow)
        with pytest.raises(PlanError, match=r"too few credits: .*waits for a credit of"):
            check_credits(flow)
        with pytest.raises(PlanError, match="block each other"):
            simulate(flow)


def test_the_steps_that_wait_for_each_other_are_named():
    flow = folded_flow(3, (9, 9, 3))
    assert blocking_cycle(flow) == ("first waits for a credit of first -> last, which has 3",)


def test_steps_that_need_each_other_in_one_frame_are_refused_whatever_the_credits():
    mesh = small_mesh()
    steps = tuple(FlowStep(f"s{number}", mesh.alive[number], 10) for number in range(2))
    with pytest.raises(PlanError, match="no number of credits helps: s0 waits for a message of s1; s1 waits"):
        least_credits(Flow(mesh, steps, (Lane(0, 1, 16, 4), Lane(1, 0, 16, 4))))


def test_random_flows_run_with_the_least_credits_and_block_with_one_less():
    drawn = random.Random(3)
    needed = 0
    for _ in range(25):
        flow = random_flow(drawn)
        least = least_credits(flow)
        assert not blocking_cycle(flow.with_credits(least))
        simulate(flow.with_credits(least), 12)
        for lane, count in enumerate(least):
            needed += count > 1
            assert blocking_cycle(flow.with_credits(one_less(least, lane)))
    assert needed, "some flow needs more than one credit"


def random_flow(drawn):
    """Steps on few PEs, with lags that grow along the lanes as those of a folded pipeline do."""
    mesh = small_mesh()
    count = drawn.randint(3, 7)
    lags = sorted(drawn.randint(0, 3) for _ in range(count))
    places = [mesh.alive[drawn.randrange(3)] for _ in range(count)]
    steps = tuple(FlowStep(f"s{at}", places[at], drawn.randint(1, 50), lags[at]) for at in range(count))
    ends = {(at, at + 1) for at in range(count - 1)}
    ends |= {tuple(sorted(drawn.sample(range(count), 2))) for _ in range(2)}
    return Flow(mesh, steps, tuple(Lane(*each, drawn.randint(1, 64), 1) for each in sorted(ends)))


def run_in_any_order(flow, drawn, frames):
    """The frames that each step computes if a PE takes any of its steps that can start, and links any time."""
    arrived, credits = [0] * len(flow.lanes), [lane.credits for lane in flow.lanes]
    computed, sent = [0] * len(flow.steps), [0] * len(flow.lanes)

    def can_start(index):
        unsent = max((computed[index] - sent[lane] for lane in flow.outgoing[index]), default=0)
        return computed[index] < frames and unsent < OUTPUT_BUFFERS and all(arrived[at] for at in flow.incoming[index])

    def can_leave(lane):
        return sent[lane] < computed[flow.lanes[lane].source] and credits[lane] > 0

    while True:
        starts = [index for index in range(len(flow.steps)) if can_start(index)]
        messages = [lane for lane in range(len(flow.lanes)) if can_leave(lane)]
        if not starts and not messages:
            return computed
        at = drawn.randrange(len(starts) + len(messages))
        if at < len(starts):
            computed[starts[at]] += 1
            for lane in flow.incoming[starts[at]]:
                arrived[lane] -= 1
                credits[lane] += 1
        else:
            lane = messages[at - len(starts)]
            credits[lane] -= 1
            sent[lane] += 1
            arrived[lane] += 1


def test_credits_with_which_turns_do_not_block_are_enough_for_any_order_of_a_pes_steps():
    drawn = random.Random(23)
    for _ in range(30):
        flow = random_flow(drawn)
        flow = flow.with_credits(least_credits(flow))
        assert run_in_any_order(flow, drawn, 20) == [20] * len(flow.steps)
        assert run_in_any_order(flow.with_credits([0] * len(flow.lanes)), drawn, 20) != [20] * len(flow.steps)


def test_a_long_skip_waits_for_credits_unless_it_has_one_for_each_stage():
    flow = chain_flow([1000] * 6, skips=[(0, 5)])
    held = held_cycles(flow, first_starts(flow))
    full = [ceil_div(cycles, 1000) for cycles in held]
    assert full[-1] == 6
    assert simulate(flow.with_credits(full), 60).period() == 1000 == period_of(flow.with_credits(full))
    slow = flow.with_credits([*full[:-1], 3])
    assert simulate(slow, 60).period() > 1100  # of the five frames between them two lie in the source
    assert period_of(slow) == pytest.approx(simulate(slow, 601).period(), rel=0.01)
