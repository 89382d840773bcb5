"""Choices as JSON, and choices that cannot be carried out."""

import json
from dataclasses import replace

import pytest
from plan_choices import choose
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling, from_plain
from byoc_hw.plan.region import plan_region

CHOICES = Choices(
    (True, False),
    (Group(2, 3, frozenset({1, 0})), Group(1, 1, frozenset(), False, False, Tiling(1, 2, 3, 4, True, True))),
    (None, Blocks(16, 32), None),
    apart=True,
    fine=True,
)


@pytest.mark.parametrize("packed", [False, True])
def test_choices_survive_a_file(packed):
    tiled = Group(1, tiling=Tiling(1, 2, 3, 4, packed=packed))
    choices = replace(CHOICES, groups=(*CHOICES.groups, tiled))
    assert from_plain(json.loads(json.dumps(choices.plain()))) == choices


@pytest.mark.parametrize("missing", ["swapped", "groups", "blocks"])
def test_value_that_is_not_of_this_form_is_refused(missing):
    plain = CHOICES.plain()
    with pytest.raises(PlanError, match=f"choices of a plan are as byoc_hw wrote them: KeyError: '{missing}'"):
        from_plain({name: value for name, value in plain.items() if name != missing})
    with pytest.raises(PlanError, match="choices of a plan are as byoc_hw wrote them"):
        from_plain({**plain, missing: 5})


def chain():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 8, 8, 4)), 8)
    second = samples.conv2d(first.ofm, 8)
    return graph_of([first.ifm], [first, second], [second.ofm])


def test_the_planner_s_own_choices_given_again_are_the_same_plan():
    graph = chain()
    assert plan_region(graph, REFERENCE, choose(graph, REFERENCE)) == plan_region(graph, REFERENCE)


def test_choices_for_another_number_of_layers_are_refused():
    graph = chain()
    own = choose(graph, REFERENCE)
    for groups, blocks in (((Group(1),), own.blocks), (own.groups, own.blocks[:1])):
        with pytest.raises(PlanError, match="region: choices are for 2 layers: got"):
            plan_region(graph, REFERENCE, replace(own, groups=groups, blocks=blocks))


def test_tiling_of_two_layers_or_of_what_lies_in_local_memory_is_refused():
    graph = chain()
    tiling = Tiling(2, 6, 8, 4)
    for groups in ((Group(2, tiling=tiling),), (Group(1, held=frozenset({1}), tiling=tiling), Group(1))):
        with pytest.raises(PlanError, match="a layer by itself is computed from main memory to main memory"):
            plan_region(graph, REFERENCE, Choices((False,), groups, (None, None)))


def test_what_does_not_fit_is_refused_with_both_numbers():
    small = replace(REFERENCE, activation_memory=500)
    whole = Group(2, held=frozenset({0, 1, 2}))
    with pytest.raises(PlanError, match=r"local activation memory: \d+ bytes needed, 500 bytes there"):
        plan_region(chain(), small, Choices((False,), (whole,), (None, None)))
