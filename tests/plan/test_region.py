from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE, Library
from byoc_hw.errors import GraphError, PlanError
from byoc_hw.plan import ARGUMENT, FLASH, SCRATCH, Copy, plan_region

TINY = accelerator(900, 1200)


def chain(samples, layers=3):
    """Convolutions one after the other."""
    ifm = samples.tensor((1, 10, 10, 4))
    made = []
    for _ in range(layers):
        made.append(samples.conv2d(made[-1].ofm if made else ifm, 8, padding=(1, 1, 1, 1)))
    return ifm, made


@pytest.mark.parametrize("hardware", [REFERENCE, TINY], ids=["reference", "tiny"])
def test_chain_keeps_its_intermediates_in_scratch(hardware):
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[-1].ofm]), hardware)
    spaces = [plan.tensors[tensor].space for tensor in (ifm, *(layer.ofm for layer in layers))]
    assert spaces == [ARGUMENT, SCRATCH, SCRATCH, ARGUMENT + 1]
    assert plan.scratch_bytes == 2 * 800
    assert plan.tail == ()


def test_intermediates_that_are_never_live_together_share_scratch():
    ifm, layers = chain(Samples(), 6)
    plan = check(graph_of([ifm], layers, [layers[-1].ofm]), REFERENCE)
    assert plan.scratch_bytes == 2 * 800


@pytest.mark.parametrize("hardware", [REFERENCE, TINY], ids=["reference", "tiny"])
def test_residual_stays_until_its_last_reader(hardware):
    samples = Samples()
    ifm, layers = chain(samples)
    layers.append(samples.add(layers[-1].ofm, layers[0].ofm))
    layers.append(samples.pool(layers[-1].ofm))
    plan = check(graph_of([ifm], layers, [layers[-1].ofm]), hardware)
    assert plan.scratch_bytes == 3 * 800


@pytest.mark.parametrize("hardware", [REFERENCE, TINY], ids=["reference", "tiny"])
def test_addition_writes_over_an_input_that_nothing_reads_later(hardware):
    samples = Samples()
    ifm, (first, second) = chain(samples, 2)
    added = samples.add(second.ofm, first.ofm)
    last = samples.conv2d(added.ofm, 8)
    plan = check(graph_of([ifm], [first, second, added, last], [last.ofm]), hardware)
    assert plan.tensors[added.ofm] == plan.tensors[second.ofm]
    assert plan.scratch_bytes == 2 * 800


def test_addition_spares_an_input_that_is_read_later_and_takes_the_other():
    samples = Samples()
    ifm, (first, second) = chain(samples, 2)
    added = samples.add(first.ofm, second.ofm)
    again = samples.add(added.ofm, first.ofm)
    last = samples.conv2d(again.ofm, 8)
    plan = check(graph_of([ifm], [first, second, added, again, last], [last.ofm]), REFERENCE)
    assert plan.tensors[added.ofm] == plan.tensors[second.ofm] != plan.tensors[first.ofm]
    assert plan.scratch_bytes == 2 * 800


def test_addition_spares_an_input_whose_bytes_a_reshape_hands_on():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    added = samples.add(first.ofm, first.ofm)
    last = samples.dense(flat.ofm, 10)
    pooled = samples.pool(added.ofm)
    plan = check(graph_of([first.ifm], [first, flat, added, last, pooled], [last.ofm, pooled.ofm]), REFERENCE)
    assert plan.tensors[added.ofm] != plan.tensors[first.ofm]


def test_addition_of_arguments_leaves_them_alone():
    samples = Samples()
    one, two = samples.tensor((1, 4, 4, 8)), samples.tensor((1, 4, 4, 8))
    added = samples.add(one, two)
    pooled = samples.pool(added.ofm)
    plan = check(graph_of([one, two], [added, pooled], [pooled.ofm]), REFERENCE)
    assert plan.tensors[added.ofm].space == SCRATCH


def test_arguments_are_live_from_their_first_layer_to_their_last():
    ifm, layers = chain(Samples(), 4)
    plan = check(graph_of([ifm], layers, [layers[1].ofm, layers[3].ofm]), REFERENCE)
    assert plan.memory.arguments == ((0, 0), (1, 2), (3, 3))
    assert len(plan.memory.moments) == 5


def test_intermediate_that_is_an_output_lives_in_its_argument():
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[1].ofm, layers[2].ofm]), TINY)
    assert plan.tensors[layers[1].ofm].space == ARGUMENT + 1
    assert plan.tensors[layers[2].ofm].space == ARGUMENT + 2
    assert plan.scratch_bytes == 800


def test_reshape_between_layers_has_no_steps():
    samples = Samples()
    ifm = samples.tensor((1, 4, 4, 8))
    first = samples.conv2d(ifm, 8)
    flat = samples.reshape(first.ofm, (1, 32))
    last = samples.dense(flat.ofm, 10)
    plan = check(graph_of([ifm], [first, flat, last], [last.ofm]), TINY)
    assert plan.calls[1].steps == ()
    assert plan.tensors[flat.ofm] == plan.tensors[first.ofm]
    assert plan.scratch_bytes == 32


def test_reshape_of_an_intermediate_that_ends_a_region_has_no_steps():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    plan = check(graph_of([first.ifm], [first, flat], [flat.ofm]), TINY)
    assert plan.calls[1].steps == ()
    assert plan.scratch_bytes == 0


def test_reshape_of_an_input_that_ends_a_region_is_copied_in_chunks():
    samples = Samples()
    flat = samples.reshape(samples.tensor((1, 20, 20, 8)), (1, 3200))
    plan = check(single(flat), TINY)
    assert len([step for step in plan.calls[0].steps if isinstance(step, Copy)]) == 8


def test_reshape_and_its_input_may_both_be_outputs():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    check(graph_of([first.ifm], [first, flat], [flat.ofm, first.ofm]), TINY)


def test_two_reshapes_of_one_tensor_may_both_be_outputs():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    reshapes = [samples.reshape(first.ofm, shape) for shape in ((1, 32), (4, 8))]
    last = samples.dense(reshapes[0].ofm, 5)
    outputs = [*(layer.ofm for layer in reshapes), last.ofm]
    check(graph_of([first.ifm], [first, *reshapes, last], outputs), TINY)


def test_tensor_listed_twice_is_copied_to_the_second_output_at_the_end():
    ifm, layers = chain(Samples())
    plan = check(graph_of([ifm], layers, [layers[-1].ofm, layers[-1].ofm]), TINY)
    assert any(isinstance(step, Copy) and step.target.space == ARGUMENT + 2 for step in plan.tail)


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


@st.composite
def networks(draw):
    """A random graph: each layer reads any tensors before it, and any tensors are outputs."""
    samples = Samples(draw(st.integers(0, 2**32 - 1)))
    known = [samples.tensor((1, *draw(st.tuples(*[st.integers(4, 9)] * 2)), draw(st.integers(1, 12))))]
    inputs, layers = list(known), []
    for _ in range(draw(st.integers(1, 7))):
        layer = draw_layer(draw, samples, draw(st.sampled_from(known)), known)
        layers.append(layer)
        known.append(layer.ofm)
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    return graph_of(inputs, layers, outputs)


def draw_layer(draw, samples, ifm, known):
    if len(ifm.shape) == 2:
        if draw(st.booleans()):
            return samples.dense(ifm, draw(st.integers(1, 30)))
        return samples.add(ifm, ifm)
    kinds = {
        "conv2d": lambda: samples.conv2d(ifm, draw(st.integers(1, 20)), padding=(1, 1, 1, 1)),
        "pointwise": lambda: samples.conv2d(ifm, draw(st.integers(1, 20)), kernel=(1, 1)),
        "depthwise": lambda: samples.depthwise(ifm, padding=(1, 1, 1, 1)),
        "add": lambda: samples.add(ifm, draw(st.sampled_from([one for one in known if one.shape == ifm.shape]))),
        "pool": lambda: samples.pool(ifm, draw(st.sampled_from(["avg", "max"])), strides=(1, 1), padding=(1, 1, 0, 0)),
        "reshape": lambda: samples.reshape(ifm, (1, ifm.elements)),
        "transpose": lambda: samples.transpose(ifm, (0, *draw(st.permutations([1, 2, 3])))),
    }
    return kinds[draw(st.sampled_from(sorted(kinds)))]()


@given(networks(), st.sampled_from([REFERENCE, TINY, accelerator(2500, 700, array_rows=4, array_columns=8)]))
@settings(max_examples=80, deadline=None)
def test_network_gives_the_reference_in_every_layer_and_output(graph, hardware):
    check(graph, hardware)


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
    library = Library(header=__file__, sources=(), calls={})
    ifm, layers = chain(Samples(), 1)
    with pytest.raises(PlanError, match="whole-layer calls"):
        plan_region(graph_of([ifm], layers, [layers[0].ofm]), replace(REFERENCE, limits={}, library=library))
