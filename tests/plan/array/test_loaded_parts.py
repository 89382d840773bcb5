"""What is put together, padded, repeated or taken out of an input as it is loaded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import choose
from plan_samples import Samples, accelerator, graph_of
from test_joined import bands_of, joined_with_its_input, without

from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.region import lay_out_region


@pytest.mark.slow
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_region_input_is_put_together_with_a_layers_output_as_both_are_loaded(axis):
    """The concatenation is larger than local memory: it is nowhere as a whole, and only the layer's output spills."""
    check_put_together(with_input(Samples(), axis), times=2)


def check_put_together(graph, times):
    """Layer 1 is not copied: only the output of layer 0 is stored, and far fewer bytes are moved than with copies."""
    small = accelerator(activations=8 * 1024, packed_rows=False)
    plan = check(graph, small)
    assert choose(graph, small).stored == {1}
    assert not [step for call in plan.calls if call.index == 1 for step in call.steps]
    assert plan.scratch_bytes == graph.layers[0].ofm.nbytes
    copied = check(graph, small, choices=without(graph, small))
    assert plan.moved["spilled"] < copied.moved["spilled"] / times


def with_input(samples, axis):
    """A convolution, its output between two parts of a tensor that come from outside, and a convolution on all."""
    own, others = [1, 24, 24, 16], [1, 24, 24, 16]
    others[axis] = 8
    first = samples.conv2d(samples.tensor((1, 24, 24, 16)), own[3], (1, 1))
    outer = [samples.tensor(tuple(others)) for _ in range(2)]
    joined = samples.concat([outer[0], first.ofm, outer[1]], axis)
    last = samples.conv2d(joined.ofm, 8, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([first.ifm, *outer], [first, joined, last], [last.ofm])


def padded(samples, before, after, value=3, channels=16, width=9):
    """A convolution, its output with `value` around it, and a convolution on all: 0, the padding 1, 2."""
    first = samples.conv2d(samples.tensor((1, 2 * width, width, 8)), channels, (1, 1))
    wider = samples.pad(first.ofm, (0, *before), (0, *after), value)
    last = samples.conv2d(wider.ofm, 8, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([first.ifm], [first, wider, last], [last.ofm])


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [((0, 0, 0), (0, 0, 8)), ((1, 2, 4), (2, 0, 4)), ((0, 0, 1), (0, 0, 0))])
def test_the_value_around_a_tensor_is_filled_in_as_it_is_loaded(before, after):
    """No copy makes the padded tensor: it is in main memory neither as it is read nor as a whole."""
    check_put_together(padded(Samples(), before, after, width=24), times=1.5)


@given(
    *(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 4, 8])) for _ in range(2)),
    st.integers(-128, 127),
    st.sampled_from([1, 2, 3, 6]),
    st.booleans(),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.sampled_from([1, 4]),
)
@settings(max_examples=40, deadline=None)
def test_padding_in_stripes_is_exact(before, after, value, stripes, packed, held, alignment):
    graph = padded(Samples(), before, after, value, channels=4)
    hardware = accelerator(packed_rows=packed, dma_alignment=alignment, local_alignment=max(4, alignment))
    together = frozenset(bands_of(graph)) if packed else frozenset()
    held = frozenset(index for index, kept in enumerate(held, 1) if kept)
    groups = (Group(1, stripes, held & {1}), Group(2, stripes, held))
    check(graph, hardware, choices=Choices((False,), groups, (None,) * 3, stored=frozenset({1}), packed=together))


def test_what_is_padded_and_has_another_shape_is_not_put_together_with_others():
    """Its pixels are not those of the padded image."""
    samples = Samples()
    image = samples.tensor((1, 2, 8, 4))
    wider = samples.pad(image, (0, 0, 0, 0), (0, 0, 0, 4))
    turned = samples.reshape(wider.ofm, (1, 8, 4, 4))
    joined = samples.concat([turned.ofm, samples.tensor((1, 8, 4, 4))], 3)
    last = samples.conv2d(joined.ofm, 8, (1, 1))
    graph = graph_of([image, joined.inputs[1]], [wider, turned, joined, last], [last.ofm])
    check(graph, accelerator())
    chosen = Choices((False,), (Group(3), Group(1)), (None,) * 4, stored=frozenset({0, 2}))
    with pytest.raises(PlanError, match=f"{turned.ofm.name} is not an input or one layer's output by itself"):
        lay_out_region(graph, accelerator(), chosen)


def test_an_output_that_is_padded_is_copied():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 8, 8, 8)), 16, (1, 1))
    wider = samples.pad(first.ofm, (0, 0, 0, 0), (0, 0, 0, 8))
    graph = graph_of([first.ifm], [first, wider], [wider.ofm])
    check(graph, accelerator())
    chosen = Choices((False,), (Group(2),), (None,) * 2, stored=frozenset({1}))
    with pytest.raises(PlanError, match="an output of the region lies by itself"):
        lay_out_region(graph, accelerator(), chosen)


def repeated(samples, rows, columns, *, given=False, joined=False, channels=8, size=(7, 5)):
    """A convolution, rows and columns of its output or of an input (1, `size`, `channels`), and a convolution on all,
    with another tensor if `joined`."""
    first = samples.conv2d(samples.tensor((1, *size, 4)), channels, (1, 1))
    image = samples.tensor(first.ofm.shape) if given else first.ofm
    inputs, layers = ([image], []) if given else ([first.ifm], [first])
    layers.append(samples.resize(image, rows, columns))
    if joined:
        inputs.append(samples.tensor((1, len(rows), len(columns), 4)))
        layers.append(samples.concat([inputs[-1], layers[-1].ofm], 3))
    layers.append(samples.conv2d(layers[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of(inputs, layers, [layers[-1].ofm])


def times(count, size):
    return [index // count for index in range(count * size)]


@pytest.mark.slow
def test_columns_are_repeated_as_they_are_stored_and_rows_as_they_are_loaded():
    """No copy makes the larger tensor: half of it is stored, and it is loaded once."""
    graph = repeated(Samples(), times(2, 16), times(2, 16), size=(16, 16), channels=16)
    small = accelerator(activations=6 * 1024, packed_rows=False)
    plan = check(graph, small)
    assert choose(graph, small).stored == {1}
    assert not [step for call in plan.calls if call.index == 1 for step in call.steps]
    made, larger = graph.layers[0].ofm.nbytes, graph.layers[1].ofm.nbytes
    assert plan.scratch_bytes == 2 * made
    assert 2 * made + larger <= plan.moved["spilled"] < 2 * made + 1.7 * larger  # stripes load some rows twice
    assert plan.moved["spilled"] < check(graph, small, choices=without(graph, small)).moved["spilled"] / 1.5


@given(
    st.sampled_from([times(2, 7), times(1, 7), times(3, 7), [0, 0, 1, 2, 2, 3, 4, 4, 5, 6], [1, 3, 5], [6] * 4]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 3, 6]),
    st.booleans(),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([1, 4]),
)
@settings(max_examples=60, deadline=None)
def test_repeated_rows_and_columns_in_stripes_are_exact(rows, factor, given, joined, stripes, packed, held, alignment):
    graph = repeated(Samples(), rows, times(factor, 5), given=given, joined=joined)
    hardware = accelerator(packed_rows=packed, dma_alignment=alignment, local_alignment=max(4, alignment))
    together = frozenset(bands_of(graph)) if packed else frozenset()
    kept = frozenset(index for index, one in enumerate(held) if one)
    layers = len(graph.layers)
    groups = Group(layers - 1, stripes, kept), Group(1, stripes, kept)
    stored = frozenset(index for index, layer in enumerate(graph.layers) if layer.kind in ("resize", "concat"))
    check(graph, hardware, choices=Choices((False,), groups, (None,) * layers, stored=stored, packed=together))


@pytest.mark.parametrize("joined", [False, True])
def test_what_is_repeated_as_it_is_loaded_is_read_by_a_later_group(joined):
    graph = repeated(Samples(), times(2, 7), times(2, 5), joined=joined)
    count = len(graph.layers)
    chosen = Choices((False,), (Group(count),), (None,) * count, stored=frozenset(range(1, count - 1)))
    with pytest.raises(PlanError, match="what is put together in main memory is read by a later group"):
        lay_out_region(graph, accelerator(), chosen)


def test_columns_that_no_store_repeats_as_often_are_copied():
    """A store has all columns of a row equally far apart."""
    graph = repeated(Samples(), times(2, 7), [0, 1, 1, 2, 3, 4, 4])
    check(graph, accelerator())
    chosen = Choices((False,), (Group(1), Group(2)), (None,) * 3, stored=frozenset({1}))
    with pytest.raises(PlanError, match=r"no layer stores .* with each column repeated as often"):
        lay_out_region(graph, accelerator(), chosen)


@pytest.mark.parametrize("shape", [(1, 4, 24), (1, 4, 6, 24)])
def test_a_slice_of_a_region_input_is_loaded_beside_what_a_layer_makes(shape):
    """Steps of a recurrent layer, each of which reads one slice of the input and what the last one has made."""
    samples = Samples()
    ifm = samples.tensor(shape)
    pixels = shape[2] if len(shape) == 4 else 1
    state = samples.tensor((1, 16) if pixels == 1 else (1, 1, pixels, 16))
    layers, made = [], state
    for step in range(shape[1]):
        begin = (0, step) + (0,) * (len(shape) - 2)
        part = samples.slice(ifm, begin, (1, 1, *shape[2:]), (1,) * len(shape))
        like = samples.reshape(part.ofm, (1, 24)) if pixels == 1 else part
        layers += [part] if pixels > 1 else [part, like]
        joined = samples.concat([like.ofm, made], len(made.shape) - 1)
        dense = samples.dense(joined.ofm, 16) if pixels == 1 else samples.conv2d(joined.ofm, 16, (1, 1))
        layers += [joined, dense]
        made = dense.ofm
    graph = graph_of([ifm, state], layers, [made])
    moved = {index for index, layer in enumerate(layers) if layer.kind in ("slice", "concat")}
    assert choose(graph, accelerator()).stored == moved
    plan = check(graph, accelerator())
    assert not [step for call in plan.calls if call.index in moved for step in call.steps]


def test_parts_that_are_put_together_in_local_memory_need_not_be_in_main_memory():
    graph = with_input(Samples(), 1)
    assert check(graph, accelerator()).scratch_bytes <= graph.layers[0].ofm.nbytes


@pytest.mark.parametrize("shape", [None, (1, 768)])
def test_what_is_put_together_as_it_is_loaded_is_no_output(shape):
    graph = joined_with_its_input(shape)
    check(graph, accelerator())
    check(graph, accelerator(activations=512, weights=256))
    layers = len(graph.layers)
    chosen = Choices((False,), (Group(layers),), (None,) * layers, stored=frozenset({1}))
    with pytest.raises(PlanError, match="an output of the region lies by itself"):
        lay_out_region(graph, accelerator(), chosen)
