"""Plans that move fewer bytes and take hardly more cycles."""

import pytest
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.plan.tune import fewer_bytes, own_plan
from byoc_hw.plan.tune.nearby import NEAR
from byoc_hw.plan.tune.own_plan import own_layout


def residual(channels=16, side=32):
    """The first stage of a ResNet: three of its tensors do not fit the local memory of `SMALL`."""
    samples = Samples()
    image = samples.tensor((1, side, side, 3))
    first = samples.conv2d(image, channels, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, channels, (3, 3), padding=(1, 1, 1, 1))
    third = samples.conv2d(second.ofm, channels, (3, 3), padding=(1, 1, 1, 1))
    last = samples.add(first.ofm, third.ofm)
    pooled = samples.pool(last.ofm, kernel=(side, side))
    return graph_of([image], [first, second, third, last, pooled], [pooled.ofm])


def both_plans(graph, hardware, monkeypatch):
    """The plan with the fewest cycles, and the one that is taken."""
    with monkeypatch.context() as patched:
        patched.setattr(own_plan, "with_fewer_bytes", lambda found, bound: found)
        fastest = own_layout(graph, hardware)
    return fastest, own_layout(graph, hardware)


def moved(layout):
    return sum(op.step.nbytes * op.step.rows for op in layout.work.ops if not op.is_job)


def test_what_stripes_share_is_kept_in_place_of_whole_tensors(monkeypatch):
    graph = residual()
    fastest, found = both_plans(graph, SMALL, monkeypatch)
    assert moved(found) < 0.7 * moved(fastest)
    assert found.cycles <= NEAR * fastest.cycles
    assert any(group.kept for group in found.choices.groups)
    check(graph, SMALL)


def test_a_plan_that_moves_little_is_taken_as_it_is(monkeypatch):
    graph = residual(side=8)
    tried = []
    monkeypatch.setattr(fewer_bytes, "layouts_of_slower_dma", lambda *some: tried.append(some) or [])
    own_layout(graph, REFERENCE)
    assert not tried


def test_copies_that_are_worth_nothing_cost_no_cycles(monkeypatch):
    graph = residual()
    monkeypatch.setattr(fewer_bytes, "_SAVED", float("inf"))
    fastest, found = both_plans(graph, SMALL, monkeypatch)
    assert found.cycles <= fastest.cycles


@pytest.mark.slow
@given(regions(most=6))
@settings(max_examples=20, deadline=None, suppress_health_check=[*HealthCheck])
def test_of_any_region_fewer_bytes_take_at_most_a_hundredth_more_cycles(region):
    hardware, graph = region
    with pytest.MonkeyPatch.context() as patched:
        fastest, found = both_plans(graph, hardware, patched)
    assert found.cycles <= NEAR * fastest.cycles
    assert moved(found) <= moved(fastest) or found.cycles < fastest.cycles
    check(graph, hardware, choices=found.choices)
