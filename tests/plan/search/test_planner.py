"""What the planner chooses by itself."""

from dataclasses import replace

import pytest
from plan_check import check
from plan_choices import choose, evaluate, lay_out, layer_by_layer
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE, TuningSpace
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import lay_out_region, plan_region
from byoc_hw.plan.search import planner
from byoc_hw.plan.search.all_held import all_fit
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.stages import lay_out as lay_out_stages
from byoc_hw.plan.steps import SCRATCH, Copy, Job

SAME = (1, 1, 1, 1)


def separable(blocks=2, height=16, channels=16):
    """Depthwise convolutions with pointwise ones behind."""
    samples = Samples()
    ifm = samples.tensor((1, height, height, channels))
    layers = []
    for _ in range(blocks):
        layers.append(samples.depthwise(layers[-1].ofm if layers else ifm, padding=SAME))
        layers.append(samples.conv2d(layers[-1].ofm, channels, (1, 1)))
    return graph_of([ifm], layers, [layers[-1].ofm])


def residual():
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(ifm, 16, padding=SAME)
    second = samples.conv2d(first.ofm, 16, padding=SAME)
    last = samples.add(second.ofm, first.ofm)
    return graph_of([ifm], [first, second, last], [last.ofm])


@pytest.mark.parametrize("graph", [separable(), residual()], ids=["chain", "residual"])
def test_what_fits_stays(graph):
    plan = check(graph, REFERENCE)
    assert (plan.scratch_bytes, plan.moved["spilled"]) == (0, 0)
    assert plan.moved["inputs"] == sum(tensor.nbytes for tensor in graph.inputs)
    assert plan.moved["outputs"] == sum(tensor.nbytes for tensor in graph.outputs)


def test_branch_stays_where_three_tensors_are_live_at_once():
    graph = residual()
    enough = 3 * graph.outputs[0].nbytes
    assert check(graph, accelerator(enough)).moved["spilled"] == 0
    for memory, fits in ((enough, True), (enough - 1, False)):
        hardware = accelerator(memory)
        assert all_fit(map_graph(graph, hardware)) == fits


def test_what_does_not_fit_is_fused_in_stripes_and_is_faster_than_layer_by_layer():
    graph, hardware = separable(), accelerator(5000)  # a tensor has 4096 bytes
    groups = choose(graph, hardware).groups
    assert any(group.layers > 1 and group.stripes > 1 for group in groups)
    plan = check(graph, hardware)
    apart = plan_region(graph, hardware, layer_by_layer(graph, hardware))
    assert plan.moved["spilled"] < apart.moved["spilled"]
    assert best_layout(graph, hardware).cycles < 0.8 * evaluate(graph, layer_by_layer(graph, hardware), hardware)


@pytest.mark.slow
def test_what_is_stored_transposed_is_made_in_stripes_though_all_of_it_fits():
    """The stores of a stripe hide behind the dense layer's jobs of the next: the addition has few."""
    samples = Samples(1)
    tokens = samples.tensor((64, 96))
    layers = [samples.dense(tokens, 384)]
    layers.append(samples.dense(layers[-1].ofm, 96))
    layers.append(samples.add(layers[-1].ofm, tokens))
    turned = samples.transpose(layers[-1].ofm, (1, 0))
    layers += [turned, samples.dense(turned.ofm, 64)]
    graph = graph_of([tokens], layers, [layers[-1].ofm])
    layout = lay_out_region(graph, REFERENCE)
    assert any(group.layers == 3 and group.stripes > 1 for group in layout.choices.groups)
    plan = check(graph, REFERENCE)
    assert timeline(plan, REFERENCE).total < 1.2 * cycles_bound(graph, REFERENCE)


@pytest.mark.parametrize(
    "memory", [5000, *(pytest.param(one, marks=pytest.mark.slow) for one in (9000, REFERENCE.activation_memory))]
)
def test_space_without_holding_and_groups_is_one_layer_at_a_time_through_main_memory(memory):
    graph = separable()
    hardware = accelerator(memory, tuning=TuningSpace(hold=False, longest_group=1))
    groups = choose(graph, hardware).groups
    assert [(group.layers, group.held) for group in groups] == [(1, frozenset())] * 4
    plan = check(graph, hardware)
    assert [plan.tensors[layer.ofm].space for layer in graph.layers[:-1]] == [SCRATCH] * 3


@pytest.mark.parametrize(("height", "width", "swapped"), [(40, 4, True), (4, 40, False), (40, 40, False)])
def test_height_and_width_are_swapped_only_where_it_pays(height, width, swapped):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, height, width, 8)), 16, padding=SAME)
    plan = check(single(layer), accelerator(array_columns=16))
    assert (plan.layers[0].ofm.shape[1:3] == (width, height)) == (swapped or height == width)
    assert choose(single(layer), accelerator(array_columns=16)).swapped == (swapped,)


@pytest.mark.slow
def test_layer_that_cannot_fit_is_named():
    graph = separable()
    with pytest.raises(PlanError, match=graph.layers[0].name):
        choose(graph, accelerator(weights=16))


@pytest.mark.slow
def test_inverted_bottleneck_that_does_not_fit_is_computed_in_slices_of_channels():
    """The expanded tensor is eight times local memory; without patches and slices it goes to main memory and back."""
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 32, 32, 8)), 96, (1, 1))
    deep = samples.depthwise(wide.ofm, strides=(2, 2), padding=SAME)
    narrow = samples.conv2d(deep.ofm, 16, (1, 1))
    graph = graph_of([wide.ifm], [wide, deep, narrow], [narrow.ofm])
    tight = accelerator(12 * 1024, 16 * 1024, dma_width=4)
    found, without = (
        lay_out_region(graph, replace(tight, tuning=replace(tight.tuning, patches=patches, halos=False)))
        for patches in (True, False)
    )
    assert any(group.slices > 1 for group in found.choices.groups)
    assert not any(group.patched for group in without.choices.groups)
    assert found.cycles < 0.9 * without.cycles
    check(graph, tight, choices=found.choices)


def test_the_planner_s_own_cycles_are_those_of_its_choices():
    graph, hardware = separable(3), accelerator(5000)
    found = best_layout(graph, hardware)
    choices = found.choices
    assert found.cycles == evaluate(graph, choices, hardware) == lay_out(graph, choices, hardware).cycles


@pytest.mark.slow
def test_jobs_and_rows_that_cost_much_to_start_are_fewer():
    """The plan that knows what they cost is faster there than the plan that takes them for nothing."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 40, 16)), 32, padding=SAME)
    graph, cheap = single(layer), accelerator(2500)
    unaware = plan_region(graph, cheap)
    for cost, number in (
        ("job_setup", lambda plan: sum(isinstance(step, Job) for step in plan.steps)),
        ("dma_row_setup", lambda plan: sum(step.rows for step in plan.steps if isinstance(step, Copy))),
    ):
        dear = replace(cheap, **{cost: 300})
        plan = check(graph, dear)
        assert number(plan) < 0.5 * number(unaware)
        assert timeline(plan, dear).total < timeline(unaware, dear).total


def test_no_choices_are_laid_out_twice(monkeypatch):
    """Patches and slices do not fit here either: the groups that are found without them are found again."""
    graph, hardware = separable(3), accelerator(1500, 600)
    made = []

    def recorded(mapped, choices, **limits):
        found = lay_out_stages(mapped, choices, **limits)
        made.append(choices)
        return found

    monkeypatch.setattr(planner, "lay_out", recorded)
    found = planner.laid_out(graph, hardware)
    assert len(made) == len(set(made))
    assert len(found) > len(made)


def test_mappings_whose_jobs_alone_take_as_long_as_a_good_plan_are_not_tried():
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 64)), 64, padding=SAME)]
    layers.append(samples.conv2d(layers[0].ofm, 64, padding=SAME))
    graph = graph_of([layers[0].ifm], layers, [layers[1].ofm])
    packed, plain = [], []
    for one in planner.laid_out(graph, REFERENCE):
        (packed if one.choices.packed else plain).append(one)
    fastest = min(one.cycles for one in packed)
    assert fastest < min(one.mapped.array_cycles for one in plain)
    choices = [one.choices for one in packed]
    assert [one.choices for one in planner.laid_out(graph, REFERENCE, enough=fastest)] == choices
    assert len(planner.laid_out(graph, REFERENCE, enough=fastest - 1)) == len(packed) + len(plain)
