from dataclasses import replace
from pathlib import Path

import pytest
from plan_check import check
from plan_choices import layer_by_layer
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE, SMALL, TuningSpace
from byoc_hw.errors import GraphError, PlanError
from byoc_hw.library_calls import Library
from byoc_hw.plan.region import plan_region, plan_tiles, why_no_plan
from byoc_hw.plan.steps import ARGUMENT, FLASH, SCRATCH, Address, Copy

TINY = accelerator(900, 1200)


def chain(samples, layers=3):
    """Convolutions one after the other."""
    ifm = samples.tensor((1, 10, 10, 4))
    made = []
    for _ in range(layers):
        made.append(samples.conv2d(made[-1].ofm if made else ifm, 8, padding=(1, 1, 1, 1)))
    return ifm, made


def copies_to(plan, space):
    """The copies of a plan that write to the space."""
    return [step for step in plan.steps if isinstance(step, Copy) and step.target.space == space]


@pytest.mark.parametrize("hardware", [REFERENCE, SMALL], ids=["reference", "small"])
def test_chain_touches_main_memory_only_at_its_ends_where_it_fits(hardware):
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[-1].ofm]), hardware)
    assert plan.tensors[ifm] == Address(ARGUMENT)
    assert plan.tensors[layers[-1].ofm] == Address(ARGUMENT + 1)
    assert not any(layer.ofm in plan.tensors for layer in layers[:-1])
    assert plan.scratch_bytes == 0


def test_intermediates_that_are_never_live_together_share_scratch():
    ifm, layers = chain(Samples(), 6)
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    plan = check(graph, TINY, choices=layer_by_layer(graph, TINY))
    spaces = [plan.tensors[tensor].space for tensor in (ifm, *(layer.ofm for layer in layers))]
    assert spaces == [ARGUMENT, *[SCRATCH] * 5, ARGUMENT + 1]
    assert plan.scratch_bytes == 2 * 800


def test_residual_stays_in_scratch_until_its_last_reader():
    samples = Samples()
    ifm, layers = chain(samples)
    layers.append(samples.add(layers[-1].ofm, layers[0].ofm))
    layers.append(samples.pool(layers[-1].ofm))
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    plan = check(graph, TINY, choices=layer_by_layer(graph, TINY))
    assert plan.scratch_bytes == 3 * 800
    assert [(life.first, life.last) for life in plan.memory.scratch] == [(0, 3), (1, 2), (2, 3), (3, 4)]


def test_arguments_are_live_from_their_first_layer_to_their_last():
    ifm, layers = chain(Samples(), 4)
    hardware = replace(REFERENCE, tuning=TuningSpace(longest_group=1, stripes=(1,)))
    plan = check(graph_of([ifm], layers, [layers[1].ofm, layers[3].ofm]), hardware)
    first, (_, second), last = plan.memory.arguments
    assert (first, second, last) == ((0, 0), 2, (3, 3))
    assert len(plan.memory.moments) == 5


def test_intermediate_that_is_an_output_lives_in_its_argument():
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[1].ofm, layers[2].ofm]), TINY)
    assert plan.tensors[layers[1].ofm].space == ARGUMENT + 1
    assert plan.tensors[layers[2].ofm].space == ARGUMENT + 2


def test_reshape_has_no_call_and_shares_its_input_s_bytes():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    last = samples.dense(flat.ofm, 10)
    graph = graph_of([first.ifm], [first, flat, last], [last.ofm])
    plan = check(graph, TINY, choices=layer_by_layer(graph, TINY))
    assert {call.index for call in plan.calls} == {0, 2}
    assert plan.tensors[flat.ofm] == plan.tensors[first.ofm]
    assert plan.scratch_bytes == 32


def test_reshape_that_ends_a_region_has_no_call():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    plan = check(graph_of([first.ifm], [first, flat], [flat.ofm]), TINY)
    assert {call.index for call in plan.calls} == {0}
    assert plan.scratch_bytes == 0


def test_input_that_is_only_reshaped_is_copied_in_chunks_in_the_tail():
    samples = Samples()
    flat = samples.reshape(samples.tensor((1, 20, 20, 8)), (1, 3200))
    plan = check(single(flat), TINY)
    assert plan.calls == ()
    assert len([step for step in plan.tail if isinstance(step, Copy)]) == 2 * 4


def test_layer_that_is_two_outputs_is_stored_to_both():
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[-1].ofm, layers[-1].ofm]), TINY)
    stored = [sum(copy.nbytes * copy.rows for copy in copies_to(plan, ARGUMENT + sink)) for sink in (1, 2)]
    assert stored == [800, 800]


def test_input_that_is_an_output_is_copied_at_the_end():
    ifm, layers = chain(Samples(), 1)
    plan = check(graph_of([ifm], layers, [ifm, layers[0].ofm]), TINY)
    assert plan.tensors[ifm].space == ARGUMENT
    assert plan.tail != ()


def test_constant_activation_lies_in_flash():
    samples = Samples()
    layer = samples.add(samples.tensor((1, 5, 5, 3)), samples.constant((1, 5, 5, 3)))
    plan = check(single(layer), TINY)
    assert plan.tensors[layer.ifm2].space == FLASH
    assert len(plan.flash) == 76


def test_layers_of_one_name_and_tensors_of_one_name_are_kept_apart():
    samples = Samples()
    samples.name = lambda kind: "same"
    ifm, layers = chain(samples, 4)
    check(graph_of([ifm], layers, [layers[-1].ofm]), TINY)


def test_output_that_nothing_reads_and_unused_input_do_no_harm():
    samples = Samples()
    ifm, layers = chain(samples, 2)
    check(graph_of([samples.tensor((1, 7)), ifm], [*layers, samples.pool(ifm)], [layers[-1].ofm]), TINY)


@pytest.mark.slow
def test_same_graph_gives_the_same_plan():
    def plan():
        ifm, layers = chain(Samples(3))
        made = plan_region(graph_of([ifm], layers, [layers[-1].ofm]), TINY)
        return made.flash, made.scratch_bytes, [call.steps for call in made.calls]

    assert plan() == plan()


def test_graph_that_breaks_its_own_rules_is_refused_before_planning():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    with pytest.raises(GraphError, match="reads"):
        plan_region(graph_of([], [layer], [layer.ofm]), REFERENCE)


def test_accelerator_of_whole_layer_calls_has_nothing_to_tile():
    library = Library(header=Path(__file__), sources=(), calls={})
    ifm, layers = chain(Samples(), 1)
    with pytest.raises(PlanError, match="whole-layer calls"):
        plan_tiles(graph_of([ifm], layers, [layers[0].ofm]), replace(REFERENCE, limits={}, library=library))


def test_each_of_some_layers_that_are_alike_is_named_where_none_has_a_plan():
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 10, 10, 4)), 8) for _ in range(2)]
    assert [why_no_plan(layer, TINY) for layer in layers] == [None, None]
    for layer in layers:
        assert why_no_plan(layer, accelerator(16, 16)).startswith(f"{layer.name}: the smallest tile fits local")
    assert layers[0].name != layers[1].name
