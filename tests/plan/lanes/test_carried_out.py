"""Choices of a region on a chip give the plan that they are of; what does not fit the region or the chip is refused."""

import json
from dataclasses import replace

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_chips import PAIR, TWINS
from plan_samples import Samples, graph_of, single
from test_chip_plans import EXAMPLES, chip_regions, separable
from test_shared_memory import shared_chips

from byoc_hw.accelerator import DSP, KIB
from byoc_hw.errors import PlanError
from byoc_hw.plan.chip_choices import PartCut, chip_choices_from_plain
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc


@pytest.mark.slow
@given(st.one_of(chip_regions(), chip_regions(), shared_chips()))
@settings(EXAMPLES, max_examples=examples(10))
def test_the_choices_of_any_plan_give_the_same_plan_from_a_file(region):
    chip, graph = region
    plan = plan_region(graph, chip)
    choices = chip_choices_from_plain(json.loads(json.dumps(plan.choices.plain())))
    assert choices == plan.choices
    again = plan_region(graph, chip, choices)
    assert replace(again, parts=plan.parts) == plan
    assert list(map(written, again.parts)) == list(map(written, plan.parts))


@pytest.mark.slow
def test_layers_beside_a_shared_memory_that_has_no_work_are_carried_out_the_same():
    """Shares of tensors stay in the memories of the two that have all of it."""
    few = {kind: DSP.limits[kind] for kind in ("softmax", "reshape")}
    idle = [replace(DSP, name=name, label=name, limits=few) for name in ("three", "four")]
    busy = [replace(one, activation_memory=64 * KIB, dma_width=8) for one in TWINS.accelerators]
    chip = Soc((*busy, *idle), shared=(("three", "four"),))
    graph = separable(blocks=2, size=16, channels=64)
    plan = plan_region(graph, chip)
    again = plan_region(graph, chip, plan.choices)
    assert list(map(written, again.parts)) == list(map(written, plan.parts))
    assert plan.cycles <= plan_region(graph, replace(chip, shared=())).cycles


def written(part):
    """All of a part but its tensors, which compare by identity."""
    return replace(part, plan=None), part.plan.calls, part.plan.tail, part.plan.flash, part.plan.scratch_bytes


def shared_by_two():
    """A convolution that two accelerators share, behind one that does not depend on it."""
    samples = Samples()
    ifm = samples.tensor((1, 24, 24, 16))
    first = samples.conv2d(ifm, 16, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([ifm], [first, second], [second.ofm])


@pytest.fixture(scope="module")
def shared():
    graph = shared_by_two()
    choices = plan_region(graph, TWINS).choices
    assert sum(part.cut.rows is not None for part in choices.parts) > 1
    return graph, choices


def changed(choices, at, **fields):
    """The choices with a part that is cut otherwise."""
    parts = list(choices.parts)
    parts[at] = replace(parts[at], cut=replace(parts[at].cut, **fields))
    return replace(choices, parts=tuple(parts))


def with_choices(part, **fields):
    return replace(part, choices=replace(part.choices, **fields))


TAMPERED = {
    "a part left out": (lambda one: replace(one, parts=one.parts[1:]), "shares of layers make 24 together"),
    "a part twice": (lambda one: replace(one, parts=(*one.parts, one.parts[0])), "one share of layers"),
    "another accelerator": (lambda one: changed(one, 0, lane=2), r"parts are on accelerators \(0, 1\)"),
    "accelerators that are not there": (lambda one: replace(one, lanes=(0, 2)), "accelerators of soc, by index"),
    "accelerators out of order": (lambda one: replace(one, lanes=(1, 0)), "accelerators of soc, by index"),
    "no accelerators": (lambda one: replace(one, lanes=()), "accelerators of soc, by index"),
    "fewer rows": (lambda one: changed(one, 0, rows=(0, 1)), "shares of layers make 24 together"),
    "no rows": (lambda one: changed(one, 0, rows=None), "shares of layers are along one axis"),
    "another axis": (lambda one: changed(one, 0, axis=3), "shares of layers are along one axis"),
    "pixels in one row": (lambda one: changed(one, 0, flat=True), "pixels in one row|along one axis"),
    "layers that are not there": (lambda one: changed(one, 0, layers=(5,)), "consecutive layers, and all of them"),
    "another order": (lambda one: replace(one, order=(1, 0)), "each layer once, behind what it reads"),
    "an order of fewer layers": (lambda one: replace(one, order=(0,)), "each layer once, behind what it reads"),
    "too few components": (lambda one: replace(one, swapped=()), "1 components of layers are swapped or not"),
    "a part that is swapped otherwise": (
        lambda one: replace(one, parts=(with_choices(one.parts[0], swapped=(True,)), *one.parts[1:])),
        "components of a part are swapped as those of the region",
    ),
    "memories that nobody shares, divided": (
        lambda one: replace(one, divided=True),
        r"accelerators \(0, 1\) of soc share local memory that is divided: got none",
    ),
    "a part alone that is not": (lambda one: replace(one, alone=True), "a part alone has all layers"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_choices_that_do_not_fit_are_refused(shared, name):
    graph, choices = shared
    change, rule = TAMPERED[name]
    with pytest.raises(PlanError, match=rule):
        plan_region(graph, TWINS, change(choices))


def test_a_part_that_reads_what_one_behind_it_makes_is_refused():
    graph = shared_by_two()
    place = {layer.name: one.name for layer, one in zip(graph.layers, TWINS.accelerators, strict=True)}
    choices = plan_region(graph, TWINS, place=place).choices
    assert [part.cut.lane for part in choices.parts] == [0, 1]
    with pytest.raises(PlanError, match="parts make all of what others read, and before"):
        plan_region(graph, TWINS, replace(choices, parts=choices.parts[::-1]))


def test_a_layer_on_an_accelerator_that_cannot_run_it_is_refused():
    samples = Samples()
    graph = single(samples.order(samples.tensor((1, 10)), 1, 10))
    choices = plan_region(graph, PAIR).choices
    (part,) = choices.parts
    other = replace(choices, lanes=(0,), parts=(replace(part, cut=replace(part.cut, lane=0)),))
    with pytest.raises(PlanError, match="accelerator dla runs its layers: got"):
        plan_region(graph, PAIR, other)


def test_choices_are_for_a_chip_or_for_an_accelerator(shared):
    graph, choices = shared
    with pytest.raises(PlanError, match="choices are for REFERENCE: got others"):
        plan_region(graph, TWINS.accelerators[0], choices)
    with pytest.raises(PlanError, match="choices are for SOC: got others"):
        plan_region(graph, TWINS, choices.parts[0].choices)


def test_choices_are_printed_part_by_part():
    cut = PartCut(1, (0, 1), 1, (0, 4))
    part = plan_region(shared_by_two(), TWINS).choices.parts[0]
    choices = replace(part, cut=cut, choices=Choices((False,), (Group(1), Group(1)), (None, None)))
    text = str(replace(plan_region(shared_by_two(), TWINS).choices, order=(1, 0), parts=(choices,)))
    headline, swapped, *groups = text.splitlines()
    assert headline == "accelerator 1: %1, %0, 0 to 4 of dimension 1"
    assert swapped.startswith("swapped components: none")
    assert len(groups) == 2


def test_what_is_no_choices_of_a_chip_is_refused(shared):
    _, choices = shared
    for name in choices.plain():
        plain = choices.plain()
        del plain[name]
        with pytest.raises(PlanError, match="choices of a plan are as byoc_hw wrote them: KeyError"):
            chip_choices_from_plain(plain)
