"""Accelerators that share an activation memory: what stays there, what it saves, and that nobody is too early."""

import re
from dataclasses import replace
from itertools import permutations

import pytest
from chip_machine import check_chip_plan
from chip_samples import NPU, two_branches
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_chips import DLA, PAIR, VECTOR
from plan_graphs import accelerators, graphs
from plan_samples import Samples, graph_of
from test_chip_plans import EXAMPLES, check_on_chip, check_without_each_event, separable, values_of

from byoc_hw.accelerator import DSP, KIB
from byoc_hw.errors import InvalidInput
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import ARGUMENT, Await, Copy, Job, Signal
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
    chip = Soc((one, *others, *group), shared=(("one", *(other.name for other in group)),))
    graph = draw(graphs(one, most))
    assume(all(chip.supporting(layer) for layer in graph.layers))
    return chip, graph


@pytest.mark.slow
@given(shared_chips(most=8))
@settings(EXAMPLES, max_examples=examples(6))
def test_any_graph_is_exact_on_any_chip_in_the_cycles_foreseen(region):
    check_on_chip(*region)


@pytest.mark.slow
def test_tensors_stay_in_the_memory_that_both_share():
    """Only inputs, outputs and weights are copied, and the inference ends earlier."""
    graph = separable(blocks=2, size=12, channels=16)
    slow = replace(PAIR, accelerators=tuple(replace(one, dma_width=4) for one in PAIR.accelerators))
    apart, together = check_on_chip(slow, graph), check_on_chip(replace(slow, shared=SHARED.shared), graph)
    assert {part.lane for part in together.parts} == {0, 1}
    assert together.cycles < 0.8 * apart.cycles  # 0.84 if only the plan of the others is improved
    ends = sum(tensor.nbytes for tensor in (*graph.inputs, *graph.outputs))
    assert copied(together) == ends + sum(len(part.plan.flash) for part in together.parts)
    assert copied(together) < copied(apart)
    assert together.handed_over == tuple(layer.ofm.name for layer in graph.layers[:-1])
    assert together.scratch_bytes == 0
    assert any(step.job for part in together.parts for step in part.plan.steps if isinstance(step, Signal))


@pytest.mark.slow
def test_what_is_handed_over_to_a_reshape_is_made_before_it():
    """The third one has no part in the end of the region: pooling, reshape and dense are parts of one lane."""
    one = replace(NPU, dma_width=2, activation_memory=32 * KIB, dma_alignment=4, queue=1)
    other = replace(DSP, dma_width=2, activation_memory=32 * KIB, dma_alignment=4)
    third = replace(NPU, name="third", label="THIRD", array_rows=4, dma_width=1)
    check_on_chip(Soc((third, one, other), shared=(("npu", "dsp"),)), two_branches())


@pytest.mark.slow
def test_what_an_accelerator_outside_reads_is_stored_as_well():
    """Two of three share their memory. The third one adds what these make, so it is in main memory too."""
    third = replace(DSP, name="third", label="THIRD", activation_memory=8192)
    chip = Soc((DLA, third, DSP), shared=(("dsp", "dla"),))
    samples = Samples(5)
    value = samples.tensor((1, 16, 16, 32))
    first = samples.conv2d(value, 32, (1, 1))
    second = samples.depthwise(first.ofm, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([value], [first, second, samples.add(first.ofm, second.ofm)], [])
    graph = replace(graph, outputs=(graph.layers[-1].ofm,))
    plan = plan_region(graph, chip, place={"conv2d": "dla", "depthwise_conv2d": "dsp", "add": "third"})
    inputs, expected = values_of(graph)
    check_chip_plan(plan, expected, inputs, permutations(range(len(plan.parts))))
    assert lanes_timeline(plan).total == plan.cycles
    assert plan.handed_over == (first.ofm.name,)
    between = [(part, [ARGUMENT + at for at, one in enumerate(part.arguments) if one.block]) for part in plan.parts]
    assert (
        sum(part.plan.moved_in(spaces)["spilled"] for part, spaces in between) == 4 * value.nbytes
    )  # both are stored, and loaded by the third


@pytest.mark.slow
def test_channels_of_a_tensor_go_through_main_memory():
    """Each of two equal accelerators makes half of the channels of layers with few pixels."""
    twins = tuple(replace(DLA, name=name, label=name) for name in ("one", "two"))
    samples = Samples(6)
    value = samples.tensor((1, 2, 2, 256))
    first = samples.conv2d(value, 256, (1, 1))
    second = samples.conv2d(first.ofm, 256, (1, 1))
    plan = check_on_chip(Soc(twins, shared=(("one", "two"),)), graph_of([value], [first, second], [second.ofm]))
    assert len(plan.parts) == 2
    assert plan.handed_over == ()


@pytest.mark.slow
def test_what_does_not_fit_goes_through_main_memory():
    """A memory that holds stripes of the tensors, but no whole one."""
    small = tuple(replace(one, activation_memory=6 * 1024) for one in SHARED.accelerators)
    assert check_on_chip(replace(SHARED, accelerators=small), separable(blocks=2)).handed_over == ()


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_each_accelerator_has_a_share_of_a_memory_with_little_room(count):
    """Parts that fill the memory would take turns."""
    same = replace(NPU, activation_memory=8 * KIB * count, dma_width=16)
    chip = Soc(tuple(replace(same, name=f"npu{at}", label=f"NPU {at}") for at in range(count)))
    chip = replace(chip, shared=(tuple(one.name for one in chip.accelerators),))
    own = chip.divided()
    assert {one.activation_memory for one in own.accelerators} == {8 * KIB}
    graph = separable(blocks=1, size=32, channels=32)
    plan = check_on_chip(chip, graph)
    assert plan.choices.divided
    assert plan.cycles <= plan_region(graph, own).cycles
    for part in plan.parts:
        first, stop = chip.share_of(part.lane)
        jobs = [step for step in part.plan.steps if isinstance(step, Job)]
        assert jobs
        assert all(first <= min(job.ifm, job.ofm) and max(job.ifm, job.ofm) < stop for job in jobs)


def test_a_memory_is_divided_among_those_that_share_it():
    names = ("one", "two", "three", "four")
    alike = tuple(replace(NPU, name=name, activation_memory=1000, local_alignment=16) for name in names)
    chip = Soc(alike, shared=(("one", "four", "two"),))
    assert [chip.share_of(lane) for lane in range(4)] == [(0, 320), (640, 960), (0, 1000), (320, 640)]
    assert [chip.share_of(lane, (1, 2, 3)) for lane in range(4)] == [(0, 1000), (496, 992), (0, 1000), (0, 496)]
    assert [one.activation_memory for one in chip.divided((1, 3)).accelerators] == [1000, 496, 1000, 496]
    assert chip.divided().shared == ()


def test_a_memory_is_divided_no_further_than_buffers_go():
    tiny = tuple(replace(NPU, name=name, activation_memory=31, local_alignment=16) for name in ("one", "two"))
    assert Soc(tiny, shared=(("one", "two"),)).divided() is None
    assert Soc(tiny).divided() is None


@pytest.mark.slow
def test_every_event_is_needed():
    """Without any one of them, some lane reads or writes too early."""
    plan = plan_region(separable(blocks=2, size=8), SHARED)
    awaited = [step for part in plan.parts for step in part.plan.steps if isinstance(step, Await)]
    jobs = {step.event for part in plan.parts for step in part.plan.steps if isinstance(step, Signal) and step.job}
    assert jobs & {step.event for step in awaited}
    assert check_without_each_event(plan) == len(awaited)


@pytest.mark.slow
def test_a_chip_whose_accelerators_share_nothing_has_the_plan_that_it_had():
    graph = separable()
    third = replace(DSP, name="third", label="THIRD")
    place = {"conv2d": "dla", "depthwise_conv2d": "dla"}
    chip = Soc((*PAIR.accelerators, third), shared=(("dsp", "third"),))
    texts = [[str(part.plan) for part in plan_region(graph, one, place=place).parts] for one in (chip, PAIR)]
    assert texts[0] == texts[1]


REFUSED = {
    "no tuple": (["dla", "dsp"], "shared is a tuple of groups of accelerators' names"),
    "names": (("dla", "dsp"), "each group is a tuple of accelerators' names: got 'dla'"),
    "unknown": ((("dla", "npu"),), "shared names accelerators of the chip, dla, dsp: got 'npu'"),
    "one": ((("dla",),), "a group has at least two accelerators: got ('dla',)"),
    "twice": ((("dla", "dsp", "dla"),), "shared has each accelerator once: got dla twice"),
}


@pytest.mark.parametrize(("shared", "message"), REFUSED.values(), ids=REFUSED)
def test_a_group_that_cannot_be_is_refused(shared, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(PAIR, shared=shared)


@pytest.mark.parametrize(
    ("what", "value"), [("activation_memory", 4096), ("dma_alignment", 8), ("local_alignment", 16)]
)
def test_accelerators_with_different_memories_do_not_share_one(what, value):
    other = replace(DSP, **{what: value})
    message = f"accelerators that share a memory have the same {what}: got dla {getattr(DLA, what)}, dsp {value}"
    with pytest.raises(InvalidInput, match=message):
        Soc((DLA, other), shared=(("dla", "dsp"),))


def test_an_accelerator_with_a_library_has_no_memory_to_share():
    with pytest.raises(InvalidInput, match="accelerators that share a memory have a HAL: dsp has a library"):
        replace(VECTOR, shared=(("dla", "dsp"),))
