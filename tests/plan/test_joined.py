"""Concatenations and slices: tensors inside one another, in local memory or in main memory."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import choose
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import SMALL
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.mapping import map_layers
from byoc_hw.plan.array.packing import bands
from byoc_hw.plan.array.storage import NotInPlace
from byoc_hw.plan.choices import Choices, Group, Tiling, from_plain
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.search.planner import map_choices
from byoc_hw.plan.steps import Copy


def branches(samples, height=8, after=True):
    """Three branches of one input, joined by channel, and a convolution behind it: 0 to 2, the concatenation 3, 4."""
    ifm = samples.tensor((1, height, 8, 16))
    parts = [
        samples.conv2d(ifm, 16, (1, 1)),
        samples.conv2d(ifm, 8, (3, 3), padding=(1, 1, 1, 1)),
        samples.pool(ifm, "max", (3, 3), (1, 1), (1, 1, 1, 1)),
    ]
    joined = samples.concat([part.ofm for part in parts], 3)
    layers = [*parts, joined]
    if after:
        layers.append(samples.conv2d(joined.ofm, 8, (3, 3)))
    return graph_of([ifm], layers, [layers[-1].ofm])


def copies(plan):
    return sum(isinstance(step, Copy) for step in plan.steps)


def test_branches_are_written_into_one_tensor():
    graph, slow = branches(Samples()), replace(accelerator(), dma_width=2)  # main memory is a long way
    plan = check(graph, slow)
    assert choose(graph, slow).placed == {3}
    assert plan.moved["spilled"] == 0
    assert 3 not in {call.index for call in plan.calls}


def test_an_output_is_put_together_in_local_memory_and_stored_once():
    graph = branches(Samples(), after=False)
    plan = check(graph, accelerator())
    assert plan.moved["outputs"] == graph.outputs[0].nbytes
    assert plan.moved["spilled"] == 0


@pytest.mark.slow
def test_what_does_not_fit_is_put_together_in_main_memory():
    """The concatenated tensor is larger than local memory: it is stored once, part by part, and loaded."""
    graph = branches(Samples(), height=64)
    small = accelerator(activations=16 * 1024)
    chosen = choose(graph, small)
    assert chosen.stored == {3}
    assert graph.layers[3].ofm.nbytes > small.activation_memory
    plan, copied = check(graph, small), check(graph, small, choices=without(graph, small))
    assert plan.moved["spilled"] < 0.6 * copied.moved["spilled"]
    assert lay_out_region(graph, small).cycles < lay_out_region(graph, small, without(graph, small)).cycles


def without(graph, hardware):
    """The best choices without tensors inside one another."""
    return choose(graph, replace(hardware, tuning=replace(hardware.tuning, hold=False)))


def test_a_slice_is_read_where_it_lies():
    """Channels and rows, every second column, of a tensor that is in local memory anyway."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 8, 9, 4)), 16, (1, 1))
    part = samples.slice(first.ofm, (0, 2, 1, 4), (1, 5, 4, 8), (1, 1, 2, 1))
    last = samples.conv2d(part.ofm, 8, (1, 1))
    graph = graph_of([first.ifm], [first, part, last], [last.ofm])
    plan = check(graph, accelerator())
    assert choose(graph, accelerator()).placed == {1}
    assert plan.moved["spilled"] == 0
    assert not [step for call in plan.calls if call.index == 1 for step in call.steps]


def test_a_dense_block_grows_in_one_tensor():
    """Each convolution reads all that is there, and adds its channels to it."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 4)), 8, (1, 1))
    layers, value = [first], first.ofm
    for _ in range(3):
        conv = samples.conv2d(value, 4, (3, 3), padding=(1, 1, 1, 1))
        joined = samples.concat([value, conv.ofm], 3)
        layers, value = [*layers, conv, joined], joined.ofm
    last = samples.conv2d(value, 8, (1, 1))
    graph = graph_of([first.ifm], [*layers, last], [last.ofm])
    assert choose(graph, accelerator()).placed == {2, 4, 6}
    assert check(graph, accelerator()).moved["spilled"] == 0


def joined_with_its_input(shape=None):
    """A convolution whose output is put together with its input; `shape` is that of the output."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 4))
    conv = samples.conv2d(ifm, 8, (1, 1))
    layers = [conv, samples.concat([conv.ofm, ifm], 3)]
    if shape is not None:
        layers.append(samples.reshape(layers[-1].ofm, shape))
    return graph_of([ifm], layers, [layers[-1].ofm])


@settings(max_examples=30)
@given(
    st.sampled_from([1, 3]),
    st.integers(2, 7),
    st.integers(2, 9),
    st.sampled_from([(4, 12), (5, 8)]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.booleans(),
)
def test_tiles_are_stored_where_a_concatenation_is_put_together(kernel, rows, columns, channels, axis, last, ends):
    """Of the first part or of the last, of all windows and of single pixels, joined by rows or channels, which is an
    output or is read again."""
    samples, pad = Samples(), kernel // 2
    ifm = samples.tensor((1, 8, 9, 8))
    parts = [samples.conv2d(ifm, channels[axis == 3 and one], (kernel,) * 2, padding=(pad,) * 4) for one in (0, 1)]
    joined = samples.concat([part.ofm for part in parts], axis)
    layers = [*parts, joined, *([] if ends else [samples.conv2d(joined.ofm, 4, (1, 1))])]
    graph = graph_of([ifm], layers, [layers[-1].ofm])
    tiles = Tiling(1, rows * columns, 4, 8) if kernel == 1 else Tiling(rows, columns, 4, 8)
    groups = [Group(1)] * len(layers)
    groups[last] = Group(1, tiling=tiles, resident=False)
    choices = Choices((False,), tuple(groups), (None,) * len(layers), stored=frozenset({2}))
    plan = check(graph, accelerator(), choices=choices)
    assert [one.index for one in plan.calls if one.index == 2] == []


def test_tiles_are_not_stored_where_rows_are_wider():
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 4))
    parts = [samples.conv2d(ifm, 4, (1, 1)), samples.conv2d(ifm, 4, (3, 3), padding=(1, 1, 1, 1))]
    joined = samples.concat([part.ofm for part in parts], 2)
    graph = graph_of([ifm], [*parts, joined], [joined.ofm])
    groups = Group(1, tiling=Tiling(4, 4, 4, 4)), Group(1), Group(1)
    with pytest.raises(PlanError, match="a layer by itself is computed from main memory to main memory"):
        lay_out_region(graph, accelerator(), Choices((False,), groups, (None,) * 3, stored=frozenset({2})))


@pytest.mark.slow
def test_layers_in_front_of_a_concatenation_take_packed_tiles():
    """Two branches, of which one has narrow images and more weights than there is room for: in packed rows it takes the
    array about half the cycles. What is put together would fit local memory, but neither beside such tiles, nor do all
    images of a band with packed rows."""
    samples = Samples()
    ifm = samples.tensor((1, 6, 6, 48))
    parts = [samples.conv2d(ifm, 192, (1, 1)), samples.conv2d(ifm, 192, (3, 3), padding=(1, 1, 1, 1))]
    joined = samples.concat([part.ofm for part in parts], 3)
    last = samples.conv2d(joined.ofm, 16, (1, 1))
    graph = graph_of([ifm], [*parts, joined, last], [last.ofm])
    chosen = choose(graph, replace(SMALL, activation_memory=16 * 1024))
    assert chosen.stored == {2}
    assert [group.tiling.packed for group in chosen.groups if group.tiling] == [True]


def upsampled(samples, height=8, joined=True):
    """A transposed convolution: pixels from the channels of another one; with a tensor of that size joined to it. The
    transposition is layer 2, the concatenation 5."""
    ifm = samples.tensor((1, height, 8, 16))
    layers, inputs = samples.upsampled(ifm, 8, kernel=(1, 1)), [ifm]
    if joined:
        inputs.append(samples.tensor((1, 2 * height, 16, 4)))
        layers.append(samples.conv2d(inputs[1], 8, (3, 3), padding=(1, 1, 1, 1)))
        layers.append(samples.concat([layers[4].ofm, layers[3].ofm], 3))
    layers.append(samples.conv2d(layers[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of(inputs, layers, [layers[-1].ofm])


@pytest.mark.slow
@pytest.mark.parametrize("joined", [False, True])
def test_a_transposed_convolution_is_stored_where_it_is_read(joined):
    """Also as a part of a concatenation: what it makes is nowhere in another order."""
    graph, hardware = upsampled(Samples(), joined=joined), accelerator(activations=4096, packed_rows=False)
    plan, chosen, copies = check(graph, hardware), choose(graph, hardware), without(graph, hardware)
    assert chosen.stored == ({2, 5} if joined else {2})
    assert not [step for call in plan.calls if call.index in (2, 5) for step in call.steps]
    assert plan.scratch_bytes == graph.layers[-1].ifm.nbytes
    stripes = max(one.groups[-1].stripes for one in (chosen, copies))  # no fewer share rows
    last = replace(copies.groups[-1], stripes=stripes)
    copied = check(graph, hardware, choices=copies.with_group(len(copies.groups) - 1, last))
    assert plan.moved["spilled"] < copied.moved["spilled"] / 1.9


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 32), st.sampled_from([False, True]), st.integers(1, 5), st.booleans())
def test_stripes_and_tiles_of_pixels_are_stored_in_another_order(pixels, channels, joined, stripes, tiled):
    graph = upsampled(Samples(), height=5, joined=joined)
    groups = [Group(1)] * len(graph.layers)
    groups[0] = Group(1, tiling=Tiling(1, pixels, channels, 16), resident=False) if tiled else Group(1, stripes)
    stored = frozenset({2, 5}) if joined else frozenset({2})
    unswapped, blocks = (False,) * len(map_layers(graph, accelerator()).swapped), (None,) * len(groups)
    check(graph, accelerator(), choices=Choices(unswapped, tuple(groups), blocks, stored=stored))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.booleans(), st.integers(1, 5), st.integers(1, 30), st.booleans(), st.booleans())
def test_channels_of_two_layers_are_stored_shuffled(pairs, stripes, pixels, tiled, read):
    """As ShuffleNet puts two halves together, and mixes their channels; what is put together may be read as well."""
    samples = Samples()
    ifm = samples.tensor((1, 5, 6, 8))
    parts = [samples.conv2d(ifm, 6, (1, 1)), samples.depthwise(ifm, padding=(1, 1, 1, 1))]
    joined = samples.concat([part.ofm for part in parts], 3)
    depth = joined.ofm.shape[3]
    apart = samples.reshape(joined.ofm, (1, 5, 6, depth // 2, 2) if pairs else (1, 5, 6, 2, depth // 2))
    mixed = samples.transpose(apart.ofm, (0, 1, 2, 4, 3))
    last = samples.conv2d(samples.reshape(mixed.ofm, joined.ofm.shape).ofm, 4, (1, 1))
    layers = [*parts, joined, apart, mixed, replace(samples.reshape(mixed.ofm, joined.ofm.shape), ofm=last.ifm), last]
    outputs = [last.ofm]
    if read:
        layers.append(samples.conv2d(joined.ofm, 4, (1, 1)))
        outputs.append(layers[-1].ofm)
    graph = graph_of([ifm], layers, outputs)
    groups = [Group(1)] * len(layers)
    groups[0] = Group(1, tiling=Tiling(1, pixels, 4, 8), resident=False) if tiled else Group(1, stripes)
    unswapped = (False,) * len(map_layers(graph, accelerator()).swapped)
    choices = Choices(unswapped, tuple(groups), (None,) * len(layers), stored=frozenset({2, 4}))
    plan = check(graph, accelerator(), choices=choices)
    assert not [step for call in plan.calls if call.index in (2, 4) for step in call.steps]
    assert plan.scratch_bytes == joined.ofm.nbytes * (1 + read)


def test_a_half_that_is_copied_is_stored_shuffled_with_the_other_one():
    """As ShuffleNetV2 has it: one half of the channels comes from the block before."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, (1, 1))
    halves = [samples.slice(first.ofm, (0, 0, 0, at), (1, 6, 6, 8), (1, 1, 1, 1)) for at in (0, 8)]
    conv = samples.conv2d(halves[1].ofm, 8, (3, 3), padding=(1, 1, 1, 1))
    joined = samples.concat([halves[0].ofm, conv.ofm], 3)
    apart = samples.reshape(joined.ofm, (1, 6, 6, 2, 8))
    mixed = samples.transpose(apart.ofm, (0, 1, 2, 4, 3))
    flat = samples.reshape(mixed.ofm, (1, 6, 6, 16))
    last = samples.conv2d(flat.ofm, 4, (1, 1))
    graph = graph_of([first.ifm], [first, *halves, conv, joined, apart, mixed, flat, last], [last.ofm])
    plan = check(graph, accelerator())
    assert choose(graph, accelerator()).stored == {4, 6}
    assert not [step for call in plan.calls if call.index in (4, 6) for step in call.steps]


def test_copies_store_only_channels_that_are_all_equally_far_apart():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, (1, 1))
    half = samples.slice(first.ofm, (0, 0, 0, 0), (1, 6, 6, 8), (1, 1, 1, 1))
    apart = samples.reshape(half.ofm, (1, 6, 6, 2, 4))
    mixed = samples.transpose(apart.ofm, (0, 1, 2, 4, 3))
    graph = graph_of([first.ifm], [first, half, apart, mixed], [mixed.ofm])
    unswapped = (False,) * len(map_layers(graph, accelerator()).swapped)
    choices = Choices(unswapped, (Group(1),) * 4, (None,) * 4, stored=frozenset({3}))
    with pytest.raises(PlanError, match=f"copies store all channels of {half.ofm.name} equally far apart"):
        lay_out_region(graph, accelerator(), choices)


def shuffled(samples, copied):
    """Two halves of channels, of which one may be copied, shuffled: what is made, and the layers."""
    first = samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, (1, 1))
    half = samples.slice(first.ofm, (0, 0, 0, 0), (1, 6, 6, 8), (1, 1, 1, 1))
    parts = [half if copied else samples.conv2d(first.ofm, 8, (1, 1)), samples.conv2d(first.ofm, 8, (1, 1))]
    joined = samples.concat([part.ofm for part in parts], 3)
    apart = samples.reshape(joined.ofm, (1, 6, 6, 2, 8))
    mixed = samples.transpose(apart.ofm, (0, 1, 2, 4, 3))
    flat = samples.reshape(mixed.ofm, (1, 6, 6, 16))
    return flat.ofm, [first, *parts, joined, apart, mixed, flat]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", ["transposed again", "put together"])
def test_what_is_stored_shuffled_is_copied_where_it_lies_in_yet_another_order(copied, kind):
    samples = Samples()
    made, layers = shuffled(samples, copied)
    if kind == "transposed again":
        layers.append(samples.transpose(made, (0, 2, 1, 3)))
    else:
        layers.append(samples.concat([made, layers[0].ofm], 3))
    layers.append(samples.conv2d(layers[-1].ofm, 4, (1, 1)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    check(graph, accelerator())
    check(graph, accelerator(activations=4096))


def test_transpositions_one_after_the_other_are_stored_as_one():
    """The values of an attention: in heads, and transposed as a product reads them."""
    samples = Samples()
    first = samples.dense(samples.tensor((49, 16)), 64)
    heads = samples.reshape(first.ofm, (1, 49, 2, 32))
    apart = samples.transpose(heads.ofm, (0, 2, 1, 3))
    values = samples.reshape(apart.ofm, (2, 49, 32))
    turned = samples.transpose(values.ofm, (0, 2, 1))
    graph = graph_of([first.ifm], [first, heads, apart, values, turned], [turned.ofm])
    hardware = accelerator(dma_setup=10)  # 64 copies, one for each channel
    plan = check(graph, hardware)
    assert choose(graph, hardware).stored == {2, 4}
    assert plan.moved["spilled"] == plan.scratch_bytes == 0
    assert choose(graph, accelerator(dma_setup=70)).stored == {2}  # loads and stores that do a part each are fewer


def test_what_copies_transpose_is_not_stored_in_yet_another_order():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8, (1, 1))
    apart = samples.transpose(first.ofm, (0, 2, 3, 1))
    turned = samples.transpose(apart.ofm, (0, 2, 1, 3))
    last = samples.conv2d(turned.ofm, 8, (3, 3))
    graph = graph_of([first.ifm], [first, apart, turned, last], [last.ofm])
    unswapped = (False,) * len(map_layers(graph, accelerator()).swapped)
    choices = Choices(unswapped, (Group(1),) * 4, (None,) * 4, stored=frozenset({2}))
    with pytest.raises(PlanError, match=f"{apart.ofm.name} is not stored in another order by what makes it"):
        lay_out_region(graph, accelerator(), choices)


TURNS = [(0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3)]


def turned_at_the_end(*turns):
    """A convolution, and transpositions of its image up to the output of the region."""
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 6, 4, 8)), 5, (3, 3), padding=(1, 1, 1, 1))]
    for axes in turns:
        layers.append(samples.transpose(layers[-1].ofm, axes))
    return graph_of([layers[0].ifm], layers, [layers[-1].ofm])


@pytest.mark.parametrize("last", TURNS)
@pytest.mark.parametrize("first", TURNS)
def test_an_output_is_turned_twice(first, last):
    check(turned_at_the_end(first, last), accelerator())
    check(turned_at_the_end(first, last, first), accelerator(activations=700))


def test_what_is_stored_in_another_order_is_not_copied_in_yet_another_one():
    graph = turned_at_the_end(*TURNS[:2])
    swapped = (False,) * len(map_layers(graph, accelerator()).swapped)
    choices = Choices(swapped, (Group(1),) * 3, (None,) * 3, copies_transpose=True, stored=frozenset({1}))
    with pytest.raises(PlanError, match=f"{graph.layers[2].name}: what is put together is stored in its own order"):
        lay_out_region(graph, accelerator(), choices)


def test_an_input_of_the_region_is_copied_into_a_concatenation():
    graph = joined_with_its_input()
    check(graph, accelerator())
    chosen = Choices((False,), (Group(2, held=frozenset({0, 1, 2})),), (None, None), placed=frozenset({1}))
    with pytest.raises(PlanError, match="is not one layer's output by itself"):
        lay_out_region(graph, accelerator(), chosen)


@pytest.mark.parametrize("turned", [True, False], ids=["another order", "a concatenation"])
def test_what_is_stored_as_a_part_is_not_part_of_another_tensor_in_local_memory_too(turned):
    """One layer's output is stored in another order, or in a concatenation, and read by way of a second one."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 16))
    made = samples.conv2d(ifm, 16, (1, 1))
    if turned:
        apart = samples.reshape(made.ofm, (1, 8, 8, 1, 2, 8))
        first = [apart, samples.transpose(apart.ofm, (0, 1, 3, 2, 4, 5))]
    else:
        other = samples.conv2d(ifm, 8, (1, 1))
        first = [other, samples.concat([made.ofm, other.ofm], 3)]
    joined = samples.concat([made.ofm], 2)
    layers = [made, *first, joined, samples.depthwise(joined.ofm)]
    graph = graph_of([ifm], layers, [first[-1].ofm, layers[-1].ofm])
    check(graph, accelerator())
    swapped = (False,) * len(map_layers(graph, accelerator()).swapped)
    choices = Choices(swapped, (Group(4), Group(1)), (None,) * 5, stored=frozenset({2}), placed=frozenset({3}))
    with pytest.raises(PlanError, match=f"{joined.name}: {made.ofm.name} is not one layer's output by itself"):
        lay_out_region(graph, accelerator(), choices)


@pytest.mark.parametrize(
    ("begin", "shape"),
    [
        pytest.param((0, 3, 0, 0), (1, 5, 24, 16), marks=pytest.mark.slow),
        pytest.param((0, 0, 20, 0), (1, 24, 4, 16), marks=pytest.mark.slow),
        ((0, 7, 1, 4), (1, 9, 6, 8)),
    ],
)
def test_a_slice_that_is_an_output_is_stored_from_its_input(begin, shape):
    """What makes the whole tensor in stripes stores the box: it is not copied from there."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 24, 16)), 16, (3, 3), padding=(1, 1, 1, 1))
    part = samples.slice(first.ofm, begin, shape, (1, 1, 1, 1))
    last = samples.conv2d(first.ofm, 8, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, part, last], [part.ofm, last.ofm])
    small = accelerator(activations=12 * 1024)
    assert choose(graph, small).stored == {1}
    plan, copied = check(graph, small), check(graph, small, choices=without(graph, small))
    steps = [[step for call in one.calls if call.index == 1 for step in call.steps] for one in (plan, copied)]
    assert list(map(bool, steps)) == [False, True]


def test_a_slice_that_is_two_outputs_is_stored_to_both():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 6, 6, 8)), 8, (1, 1))
    part = samples.slice(first.ofm, (0, 1, 0, 0), (1, 2, 6, 8), (1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, part], [part.ofm, part.ofm])
    assert choose(graph, accelerator(4096)).stored == {1}
    check(graph, accelerator(4096))


def rows_of_a_large_image():
    """A convolution, all rows of its output but one, and a convolution of these: they do not fit 8 KiB."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 24, 16)), 16, (1, 1))
    part = samples.slice(first.ofm, (0, 1, 0, 0), (1, 23, 24, 16), (1, 1, 1, 1))
    last = samples.conv2d(part.ofm, 8, (3, 3))
    return graph_of([first.ifm], [first, part, last], [last.ofm])


@pytest.mark.slow
def test_a_slice_larger_than_local_memory_is_loaded_from_its_input_in_main_memory():
    graph, small = rows_of_a_large_image(), accelerator(activations=8 * 1024)
    assert choose(graph, small).stored == {1}
    plan, copied = check(graph, small), check(graph, small, choices=without(graph, small))
    assert not [step for call in plan.calls if call.index == 1 for step in call.steps]
    assert plan.moved["spilled"] < 0.6 * copied.moved["spilled"]


def test_a_slice_larger_than_local_memory_may_be_read_in_place():
    graph, small = rows_of_a_large_image(), accelerator(activations=8 * 1024)
    placed = Choices((False,), (Group(3, stripes=8),), (None,) * 3, placed=frozenset({1}))
    plan = check(graph, small, choices=placed)
    assert plan.moved["spilled"] == 0


def halves(samples, width=6, channels=16):
    """A convolution 0 whose output's halves are slices 1 and 2; a convolution 3 of the second; all three are put
    together (4) for a last convolution 5."""
    ifm = samples.tensor((1, 6, width, 8))
    first = samples.conv2d(ifm, 2 * channels, (1, 1))
    shape = 1, 6, width, channels
    kept, part = (samples.slice(first.ofm, (0, 0, 0, begin), shape, (1, 1, 1, 1)) for begin in (0, channels))
    inside = samples.conv2d(part.ofm, channels, (3, 3), padding=(1, 1, 1, 1))
    joined = samples.concat([kept.ofm, part.ofm, inside.ofm], 3)
    last = samples.conv2d(joined.ofm, 8, (1, 1))
    return graph_of([ifm], [first, kept, part, inside, joined, last], [last.ofm])


STORED = frozenset({1, 2, 4})
"""The slices and the concatenation of `halves`."""


@pytest.mark.parametrize("packed", [False, True])
def test_channels_are_stored_where_they_are_put_together_with_others(packed):
    """Nothing is copied for the slices and the concatenation; the second half is loaded from among all channels, also
    with packed rows."""
    graph, hardware = halves(Samples()), accelerator(packed_rows=packed)
    together = frozenset(bands_of(graph)) if packed else frozenset()
    chosen = Choices((False,), (Group(1),) * 6, (None,) * 6, stored=STORED, packed=together)
    plan = check(graph, hardware, choices=chosen)
    assert {call.index for call in plan.calls if call.steps} == {0, 3, 5}
    mapped = map_choices(graph, hardware, chosen)
    assert bool(mapped.storages.of[graph.layers[2].ofm].packing) == packed
    size = graph.layers[1].ofm.nbytes
    assert plan.moved["spilled"] == 2 * size + size + 3 * size + 3 * size  # of 0; what 3 reads; put together; read by 5


def bands_of(graph):
    return {number for number in bands(graph.layers) if number is not None}


@given(
    st.integers(2, 9),
    st.sampled_from([1, 4, 7]),
    st.sampled_from([1, 2, 3, 6]),
    st.booleans(),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.sampled_from([1, 2, 4]),
)
@settings(max_examples=40, deadline=None)
def test_halves_in_stripes_are_exact(width, channels, stripes, packed, held, alignment):
    channels = -(-channels // alignment) * alignment
    graph = halves(Samples(), width, channels)
    hardware = accelerator(packed_rows=packed, dma_alignment=alignment, local_alignment=max(4, alignment))
    together = frozenset(bands_of(graph)) if packed else frozenset()
    held = frozenset(index for index, kept in enumerate(held) if kept)
    groups = (Group(1, stripes), Group(3, stripes, held & {1, 2, 3}), Group(2, stripes, held))
    chosen = Choices((False,), groups, (None,) * 6, stored=STORED, packed=together)
    check(graph, hardware, choices=chosen)


@pytest.mark.parametrize(("begin", "steps"), [((0, 0), (2, 2)), ((1, 0), (2, 2)), ((1, 2), (1, 3))])
def test_every_second_pixel_is_loaded_from_its_input(begin, steps):
    """Of an input of the region as well, and of a slice of a slice."""
    samples = Samples()
    ifm = samples.tensor((1, 9, 9, 4))
    shape = 1, *(-(-(9 - first) // step) for first, step in zip(begin, steps, strict=True)), 4
    some = samples.slice(ifm, (0, *begin, 0), shape, (1, *steps, 1))
    inner = samples.slice(some.ofm, (0, 1, 0, 2), (1, 2, 2, 2), (1, 1, 2, 1))
    layers = [some, inner, samples.conv2d(some.ofm, 8, (1, 1)), samples.conv2d(inner.ofm, 8, (1, 1))]
    graph = graph_of([ifm], layers, [layers[2].ofm, layers[3].ofm])
    chosen = Choices((False,), (Group(3), Group(1)), (None,) * 4, stored=frozenset({0, 1}))
    plan = check(graph, accelerator(), choices=chosen)
    assert plan.moved["inputs"] == some.ofm.nbytes + inner.ofm.nbytes


def test_a_slice_that_is_an_output_under_another_shape_is_copied():
    """It is loaded from nowhere else: an output lies by itself."""
    samples = Samples()
    total = samples.add(*(samples.tensor((1, 1, 1, 10)) for _ in range(2)))
    part = samples.slice(total.ofm, (0, 0, 0, 0), (1, 1, 1, 2), (1, 1, 1, 1))
    flat = samples.reshape(part.ofm, (1, 2))
    graph = graph_of(total.inputs, [total, part, flat], [flat.ofm])
    check(graph, accelerator())
    chosen = Choices((False,) * 3, (Group(1),) * 3, (None,) * 3, stored=frozenset({1}))
    with pytest.raises(PlanError, match="an output of the region lies by itself"):
        lay_out_region(graph, accelerator(), chosen)


def test_rows_are_not_stored_where_they_are_put_together_with_others():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 8, 8, 4)), 8, (1, 1))
    part = samples.slice(first.ofm, (0, 2, 0, 0), (1, 4, 8, 8), (1, 1, 1, 1))
    joined = samples.concat([part.ofm, first.ofm], 1)
    last = samples.conv2d(joined.ofm, 4, (1, 1))
    graph = graph_of([first.ifm], [first, part, joined, last], [last.ofm])
    chosen = Choices((False,), (Group(1),) * 4, (None,) * 4, stored=frozenset({1, 2}))
    with pytest.raises(PlanError, match=r"channels of .* cannot be stored as a part"):
        lay_out_region(graph, accelerator(), chosen)
    check(graph, accelerator())


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("made_later", [False, True])
def test_the_first_rows_of_a_tensor_are_put_together_with_others_and_all_of_it_is_read(rank, made_later):
    samples = Samples()
    before, behind = ((1,), (4, 8)) if rank == 4 else ((), (8,))
    ifm, other = samples.tensor((*before, 12, *behind)), samples.tensor((*before, 6, *behind))
    all_rows, last_rows = samples.lookup(ifm), samples.lookup(other)
    first_rows = samples.slice(all_rows.ofm, [0] * rank, other.shape, [1] * rank)
    both = samples.concat([first_rows.ofm, last_rows.ofm], rank // 4)
    again = samples.lookup(all_rows.ofm)
    made = [last_rows, all_rows, first_rows] if made_later else [all_rows, first_rows, last_rows]
    graph = graph_of([ifm, other], [*made, both, again], [both.ofm, again.ofm])
    check(graph, SMALL)
    places = frozenset(map(graph.layers.index, (first_rows, both)))
    with pytest.raises(NotInPlace, match=f"{first_rows.ofm.name} is not one layer's output by itself"):
        map_graph(graph, SMALL, placed=places)


def test_a_tensor_that_is_concatenated_with_itself_has_two_places():
    samples = Samples()
    conv = samples.conv2d(samples.tensor((1, 8, 8, 4)), 8, (1, 1))
    joined = samples.concat([conv.ofm, conv.ofm], 3)
    last = samples.conv2d(joined.ofm, 4, (1, 1))
    graph = graph_of([conv.ifm], [conv, joined, last], [last.ofm])
    check(graph, accelerator())
    assert choose(graph, accelerator()).placed == frozenset()


def test_choices_are_read_back_as_they_were_written():
    chosen = Choices((False,), (Group(1),), (None,), placed=frozenset({2, 1}), stored=frozenset({4}))
    assert chosen.plain()["placed"] == [1, 2]
    assert from_plain(chosen.plain()) == chosen
    assert "placed" not in Choices((), (), ()).plain()
    assert "placed %1, %2; stored %4" in str(chosen)
