"""Engines that await each other's events: what is ordered so, that it is ordered, and what is left to the core."""

from collections import Counter
from dataclasses import replace

import pytest
from effort import examples
from engine_machine import check_engines
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_chips import DLA, PAIR, VECTOR
from plan_machine import RefusedError
from test_chip_plans import EXAMPLES, chip_regions, ordered_regions, separable, values_of, without
from test_shared_memory import SHARED, shared_chips

from byoc_hw.accelerator import DSP
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.price import prices
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import Await, CopyWait, EngineAwait, EngineSignal, JobWait, Signal, Turn
from byoc_hw.soc import Soc

WITH_EVENTS = replace(PAIR, events=4)


def kinds(plan):
    return Counter(type(step) for part in plan.parts for step in part.plan.steps)


def steps_of(plan, *types):
    return [step for part in plan.parts for step in part.plan.steps if isinstance(step, types)]


def check_with_events(chip, graph, most=8):
    plan = plan_region(graph, chip)
    inputs, expected = values_of(graph)
    check_engines(plan, expected, inputs, most)
    assert lanes_timeline(plan).total == plan.cycles
    assert plan.counters <= chip.events
    return plan


@st.composite
def with_events(draw, regions):
    """A chip with few or many events, of which one accelerator may know nothing; its queues may be short."""
    chip, graph = draw(regions)
    engines = [
        one if one.library else replace(one, queue=draw(st.sampled_from([1, 3, 8, 64]))) for one in chip.accelerators
    ]
    able = [one.name for one in engines if one.library is None]
    reached = tuple(able[: draw(st.integers(1, len(able)))]) if draw(st.booleans()) else ()
    chip = replace(chip, accelerators=tuple(engines))
    return replace(chip, events=draw(st.sampled_from([1, 2, 3, 8])), with_events=reached), graph


@pytest.mark.slow
@given(with_events(st.one_of(chip_regions(most=9), ordered_regions(most=6), shared_chips(most=8))))
@settings(EXAMPLES, max_examples=examples(7))
def test_any_graph_is_exact_in_the_cycles_foreseen(region):
    check_with_events(*region, most=24)


@pytest.mark.slow
def test_the_core_only_waits_for_the_end():
    """As many events as engines order all of them, in no more cycles."""
    graph = separable(blocks=2, size=8)
    plan, before = check_with_events(WITH_EVENTS, graph), plan_region(graph, PAIR)
    found = kinds(plan)
    assert found[CopyWait] == found[JobWait] == 2  # the last operation of each engine: it may have failed
    assert not found[Await]
    assert not found[Signal]
    assert found[EngineAwait] == found[EngineSignal] > 10
    assert found[Turn]
    assert plan.cycles <= before.cycles
    assert not {EngineAwait, EngineSignal, Turn} & kinds(before).keys()


@pytest.mark.slow
def test_the_core_does_what_events_are_too_few_for():
    graph = separable(blocks=2, size=8)
    plans = [check_with_events(replace(PAIR, events=events), graph) for events in (1, 2, 3, 4, 64)]
    waits = [kinds(plan)[CopyWait] + kinds(plan)[JobWait] + kinds(plan)[Await] for plan in plans]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[3] == waits[4]
    assert [plan.counters for plan in plans] == [1, 2, 3, 4, 4]


@pytest.mark.slow
def test_an_event_goes_from_engine_to_engine():
    """Several signal it, each after it has waited for those before."""
    plan = check_with_events(replace(PAIR, events=1), separable(blocks=2, size=8))
    engines = {
        (part.lane, step.job) for part in plan.parts for step in part.plan.steps if isinstance(step, EngineSignal)
    }
    assert len(engines) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "chip",
    [WITH_EVENTS, replace(PAIR, events=1), replace(SHARED, events=3), replace(PAIR, events=4, with_events=("dla",))],
    ids=["enough", "one event", "a shared memory", "one accelerator"],
)
def test_every_await_is_needed(chip):
    """Without any one of them, some engine is too early in some order."""
    graph = separable(blocks=2, size=8)
    plan = plan_region(graph, chip, place={"conv2d": "dla", "depthwise_conv2d": "dsp"})
    inputs, expected = values_of(graph)
    check_engines(plan, expected, inputs)
    awaits = steps_of(plan, EngineAwait)
    assert awaits
    for left_out in awaits:
        parts = tuple(replace(part, plan=without(part.plan, left_out)) for part in plan.parts)
        with pytest.raises((RefusedError, AssertionError)):
            check_engines(replace(plan, parts=parts), expected, inputs)


@pytest.fixture(scope="module")
def plan():
    return plan_region(separable(blocks=2, size=8), WITH_EVENTS)


@pytest.mark.slow
def test_an_await_that_nobody_signals_is_named(plan):
    left_out = steps_of(plan, EngineSignal)[-1]
    parts = tuple(replace(part, plan=without(part.plan, left_out)) for part in plan.parts)
    with pytest.raises(
        PlanError, match=rf"is signalled: not so .*EngineAwait\(event={left_out.event}, value=\d+, job="
    ):
        lanes_timeline(replace(plan, parts=parts))


@pytest.mark.slow
def test_a_library_and_an_accelerator_without_events_are_the_cores():
    chips = replace(VECTOR, events=4), replace(PAIR, events=4, with_events=("dla",))
    for chip in chips:
        plan = plan_region(separable(blocks=2, size=8), chip, place={"conv2d": "dla", "depthwise_conv2d": "dsp"})
        inputs, expected = values_of(plan.graph)
        check_engines(plan, expected, inputs)
        other = next(part for part in plan.parts if part.lane == 1)
        assert not [step for step in other.plan.steps if isinstance(step, EngineAwait | EngineSignal | Turn)]
        assert {Await, Signal, EngineAwait} <= kinds(plan).keys()


@pytest.mark.slow
def test_a_queue_is_never_full():
    """The core waits for an operation when half of the places would do; never before one that is not started."""
    short = replace(PAIR, events=4, accelerators=tuple(replace(one, queue=16) for one in PAIR.accelerators))
    plan = check_with_events(short, separable(blocks=3, size=8))
    long = plan_region(separable(blocks=3, size=8), WITH_EVENTS)
    assert kinds(plan)[CopyWait] + kinds(plan)[JobWait] > kinds(long)[CopyWait] + kinds(long)[JobWait]
    assert not [wait for part in lanes_timeline(plan).parts for wait in part.waits if wait.reason == "room"]


REFUSED = {
    "below 0": ({"events": -1}, "chip soc: events is at least 0: got -1"),
    "too many": ({"events": 65}, "chip soc: events is at most 64: got 65"),
    "no tuple": ({"events": 1, "with_events": "dla"}, "with_events is a tuple of accelerators' names"),
    "unknown": (
        {"events": 1, "with_events": ("npu",)},
        "with_events names accelerators of the chip, dla, dsp: got 'npu'",
    ),
    "twice": ({"events": 1, "with_events": ("dla", "dla")}, "with_events has each accelerator once: got dla twice"),
    "none": ({"with_events": ("dla",)}, "events is at least 1 where accelerators have them: got 0"),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_events_that_cannot_be_are_refused(fields, message):
    with pytest.raises(InvalidInput) as found:
        replace(PAIR, **fields)
    assert message in str(found.value)


def test_a_library_has_no_events():
    with pytest.raises(InvalidInput, match="with_events: accelerators with events have a HAL: dsp has a library"):
        replace(VECTOR, events=2, with_events=("dla", "dsp"))


@pytest.mark.slow
def test_the_text_of_a_plan_names_them(plan):
    text = "\n".join(str(part.plan) for part in plan.parts)
    assert "array awaits event 0, 1 times" in text
    assert "dma signals event 0" in text
    assert "turn" in text


def test_one_accelerator_of_a_chip_has_them_too():
    """Its DMA and its array order each other."""
    plan = check_with_events(Soc((DSP,), events=2), separable(blocks=2, size=8))
    assert kinds(plan)[EngineAwait]
    assert DLA.name not in {one.name for one in plan.chip.accelerators}


def test_a_copy_costs_the_core_less_where_engines_have_events():
    with_core, with_events = ([price.action for price in prices("latency", chip)] for chip in (PAIR, WITH_EVENTS))
    assert with_events[-1] < 0.8 * with_core[-1]
