"""The plan that a region has by default is searched once for regions that are equal but for their names."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import SMALL, TuningSpace
from byoc_hw.errors import PlanError
from byoc_hw.plan.stages import written
from byoc_hw.plan.tune import own_plan
from byoc_hw.plan.tune.own_plan import known_layout, own_layout
from byoc_hw.remembered import Remembered


def region(seed=0, names=0):
    samples = Samples(seed)
    samples.count = names
    image = samples.tensor((1, 16, 16, 8))
    first = samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))
    second = samples.depthwise(first.ofm, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([image], [first, second], [second.ofm])


@pytest.fixture
def searched(monkeypatch):
    """The regions that are searched, none of which is known before."""
    found = []

    def noted(graph, hardware):
        found.append(graph)
        return own_layout(graph, hardware)

    monkeypatch.setattr(own_plan, "own_layout", noted)
    monkeypatch.setattr(own_plan, "_choices", Remembered(own_plan._REMEMBERED))
    return found


def plain(layout):
    """What is written of a plan, without the layers and tensors, which are those of its graph."""
    plan = written(layout)
    tensors = [plan.tensors.get(tensor) for tensor in layout.mapped.graph.tensors]
    return plan.calls, plan.tail, plan.flash, plan.scratch_bytes, plan.memory, plan.local, tensors, layout.cycles


def test_a_plan_that_was_just_made_is_not_laid_out_again():
    """That of an equal region is: its steps are about other tensors."""
    graph, other = region(), region()
    found = known_layout(graph, SMALL)
    assert known_layout(graph, SMALL) is found
    assert known_layout(other, SMALL).mapped.graph is other


def test_an_equal_region_is_not_searched_again(searched):
    first, second = known_layout(region(), SMALL), known_layout(region(names=40), SMALL)
    assert len(searched) == 1
    assert second.mapped.graph.layers[0].name != first.mapped.graph.layers[0].name
    assert plain(second)[2:] == plain(own_layout(region(names=40), SMALL))[2:]
    assert second.cycles == first.cycles


def test_another_region_is(searched):
    """Of other weights, or for another accelerator: fills and blocks of equal bytes are copied once."""
    known_layout(region(), SMALL)
    graph = region()
    first, *others = graph.layers
    weights = replace(first.weights, data=np.roll(first.weights.data, 1))
    known_layout(replace(graph, layers=(replace(first, weights=weights), *others)), SMALL)
    known_layout(region(), replace(SMALL, dma_width=2))
    known_layout(region(seed=1), SMALL)
    assert len(searched) == 4


def test_a_region_that_does_not_fit_is_named_each_time(searched):
    tiny = accelerator(16, 16)
    for names in (0, 40):
        graph = region(names=names)
        with pytest.raises(PlanError, match=graph.layers[0].name):
            known_layout(graph, tiny)


def test_the_oldest_is_forgotten(searched, monkeypatch):
    monkeypatch.setattr(own_plan, "_choices", Remembered(2))
    for seed in (0, 1, 2, 2, 1, 0):
        known_layout(region(seed), SMALL)
    assert len(searched) == 4
    assert len(own_plan._choices) == 2


@given(regions(most=4))
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_what_is_known_is_the_plan_that_a_search_finds(region):
    hardware, graph = region
    found = plain(known_layout(graph, hardware))
    assert plain(known_layout(graph, hardware)) == found == plain(own_layout(graph, hardware))


@pytest.mark.parametrize("name", ["overlap", "tile"])
def test_a_plan_has_no_choices_that_the_vendor_rules_out(name):
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 20, 12, 16)), 16, padding=(1, 1, 1, 1))
    second = samples.depthwise(first.ofm, padding=(1, 1, 1, 1))
    third = samples.conv2d(second.ofm, 16, (1, 1))
    add = samples.add(third.ofm, first.ofm)
    graph = graph_of([first.ifm], [first, second, third, add], [add.ofm])
    hardware = replace(SMALL, activation_memory=2048, weight_memory=2048, packed_rows=False)
    wide = known_layout(graph, hardware).choices.groups
    narrow = known_layout(graph, replace(hardware, tuning=replace(TuningSpace(), **{name: False}))).choices.groups
    ruled_out = {"overlap": takes_turns, "tile": lambda group: group.tiling is not None}[name]
    assert any(map(ruled_out, wide))
    assert not any(map(ruled_out, narrow))


def takes_turns(group):
    several = group.stripes > 1 or group.patched or group.tiling is not None
    return several and (group.overlap or group.pieces > 1)
