"""Parts of several layers that local memory has no room for are in measured runs, near the best plan."""

from dataclasses import replace

import pytest
from plan_samples import Samples, accelerator, graph_of
from test_chip_plans import check_on_chip

from byoc_hw.plan.bound import needs
from byoc_hw.plan.lanes import search
from byoc_hw.plan.lanes.beam import plain_plans
from byoc_hw.plan.lanes.changes import Improvement
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.plan.lanes.parts_in_runs import PartsInRuns, is_tight
from byoc_hw.plan.lanes.price import PlanCosts, Price
from byoc_hw.plan.lanes.together import Together
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

SMALL = accelerator(6 * 1024, 16 * 1024, dma_width=4, array_rows=16, array_columns=16)
CHIP = Soc((replace(SMALL, name="one"), replace(SMALL, name="two")))


def block(side=32, channels=16, expanded=64):
    """Channels that are more between two pointwise convolutions."""
    samples = Samples(3)
    wide = samples.conv2d(samples.tensor((1, side, side, channels)), expanded, (1, 1))
    each = samples.depthwise(wide.ofm, (3, 3), padding=(1, 1, 1, 1))
    narrow = samples.conv2d(each.ofm, channels, (1, 1))
    return graph_of([wide.ifm], [wide, each, narrow], [narrow.ofm])


def options_of(graph, chip):
    """The layouts of all layers on the first accelerator."""
    (form, *_) = LayerForms(Region(graph), chip, costs_on(graph, chip)).of(0, len(graph.layers), whole=True)
    return form[0]


def costs_on(graph, chip):
    """The same for each layer on each accelerator."""
    return [dict.fromkeys(range(len(chip.accelerators)), 1)] * len(graph.layers)


def alone(graph):
    """The first layer of a graph by itself."""
    first = graph.layers[0]
    return graph_of([first.ifm], [first], [first.ofm])


def test_measured_runs_take_fewer_cycles_than_the_layouts_of_a_part():
    options = options_of(block(), CHIP)
    assert all(map(is_tight, options))
    (faster,) = PartsInRuns(SMALL).faster(options)
    assert faster.profile.cycles < min(one.profile.cycles for one in options)
    assert faster.placed.layout.cycles == faster.profile.cycles


@pytest.mark.parametrize("graph", [block(side=4), alone(block())], ids=["fits", "one layer"])
def test_parts_that_fit_and_single_layers_have_none(graph):
    assert not PartsInRuns(SMALL).faster(options_of(graph, CHIP))


@pytest.mark.parametrize("sums_whole", [False, True])
def test_layers_with_whole_sums_are_in_no_slices(monkeypatch, sums_whole):
    """What the bound takes for granted: the layers of this part would be in slices that are summed."""
    monkeypatch.setattr(needs, "_sums_at_once", lambda *_: sums_whole)
    hardware = accelerator(4 * 1024, 64 * 1024, dma_width=16, array_rows=16, array_columns=16)
    chip = Soc((replace(hardware, name="one"), replace(hardware, name="two")))
    (faster,) = PartsInRuns(hardware).faster(options_of(block(16, 8, 128), chip))
    groups = faster.profile.choices.groups
    assert any(group.summed for group in groups) != sums_whole
    assert any(group.slices > 1 for group in groups) != sums_whole


def test_layers_of_several_forms_are_joined_where_they_are_faster_as_one_part():
    graph = block(16, 8, 64)
    forms = LayerForms(Region(graph), CHIP, costs_on(graph, CHIP))
    costs = PlanCosts(Price(), Together())
    plan = min((one for one in plain_plans(forms) if len(one) == len(graph.layers)), key=costs.of)
    found = {}
    for forms.measures in (False, True):
        found[forms.measures] = Improvement(forms, costs).joined(plan, costs.together.work + 100_000)
    assert [form[0].span for form in found[True]] == [(0, 3)]
    assert costs.of(found[True]) < costs.of(found[False]) <= costs.of(plan)


@pytest.mark.slow
def test_in_regions_of_many_layers_the_first_plan_is_joined_too_and_the_best_goes_on(monkeypatch):
    joined, costs = Improvement.joined, []

    def recorded(improvement, plan, most):
        found = joined(improvement, plan, most)
        costs.append(improvement._costs.of(found))
        return found

    monkeypatch.setattr(Improvement, "joined", recorded)
    monkeypatch.setattr(search, "_MANY", 0)
    plan_region(block(16, 8, 64), CHIP)
    assert costs
    assert len(costs) % 3 == 0
    for at in range(0, len(costs), 3):
        assert costs[at + 2] <= min(costs[at : at + 2])


@pytest.mark.slow
def test_a_chip_with_little_memory_is_faster_with_them_and_gives_the_same_bytes(monkeypatch):
    graph = block(16, 8, 64)
    found = check_on_chip(CHIP, graph)
    monkeypatch.setattr(PartsInRuns, "faster", lambda *_: [])
    assert found.cycles < plan_region(graph, CHIP).cycles
