"""What small local memories load again: small cases exactly, and no plan that copies less."""

from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from plan_check import check_both_engines, least_of_dma, of_dma
from plan_choices import lay_out, layer_by_layer
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.bound import reloads
from byoc_hw.plan.bound.halos import pixel_cycles
from byoc_hw.plan.bound.handed_over import HandedOver
from byoc_hw.plan.bound.known_layers import known_layers
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.ways import least_alone, weight_bytes
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import written
from byoc_hw.plan.tune.moves import step
from byoc_hw.plan.tune.space import SearchSpace

PLAIN = replace(REFERENCE, dma_setup=0, dma_width=1, packed_rows=False)
"""An accelerator whose DMA takes a cycle for each byte."""


def pointwise(*channels, size=8):
    """1x1 convolutions, one behind the other."""
    samples = Samples(1)
    image = value = samples.tensor((1, size, size, channels[0]))
    layers = []
    for count in channels[1:]:
        layers.append(samples.conv2d(value, count, (1, 1)))
        value = layers[-1].ofm
    return graph_of([image], layers, [value])


def conv(size, channels, side=3, stride=1):
    samples = Samples(1)
    image = samples.tensor((1, size, size, channels[0]))
    layer = samples.conv2d(image, channels[1], (side, side), (stride, stride), (side // 2,) * 4)
    return graph_of([image], [layer], [layer.ofm])


def loads_again(graph, one):
    """Cycles of the DMA beside those of all weights once, and of inputs and outputs that local memory has room for."""
    return reloads.both_engines(graph, one, [0.0] * len(graph.layers))[0]


def groups_before(stop, graph, one, array=None):
    """The groups that end before a layer, by what they cost the engines."""
    layers = known_layers(graph, one, array or [0.0] * len(graph.layers))
    return reloads._Groups(layers, HandedOver(graph, one.activation_memory), stop, one)


def copied(graph, one, stop):
    """What each of them copies at least."""
    groups = groups_before(stop, graph, one)
    return [float((once + groups.again())[0]) for once in groups.once()]


def test_what_fits_is_not_loaded_again():
    graph = pointwise(16, 16, 16)
    assert loads_again(graph, PLAIN) == 0
    assert loads_again(graph, replace(PLAIN, weight_memory=64)) == 0


def test_a_tensor_beyond_local_memory_is_read_and_stored_once():
    graph = pointwise(16, 16)
    tensors = 2 * 64 * 16
    assert loads_again(graph, replace(PLAIN, activation_memory=512)) == tensors


def test_layers_in_a_group_load_weights_for_each_stripe_or_copy_what_lies_between_them():
    """Of two layers the weights have no room together. In groups of one layer each, the tensor between them is stored
    and loaded. In one group, a patch has all channels of what a layer reads and makes: there are four of them."""
    graph = pointwise(32, 32, 32)
    weights = [int(weight_bytes(layer)) for layer in graph.layers]
    between, ends = 64 * 32, 2 * 64 * 32
    for room in (sum(weights), sum(weights) - 100, max(weights)):
        tiny = replace(PLAIN, activation_memory=1024, weight_memory=room)
        assert loads_again(graph, tiny) == ends + min(2 * between, 3 * (sum(weights) - room))


def test_an_inner_tensor_that_is_read_later_is_stored_and_loaded():
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 16))
    layers = [samples.conv2d(image, 16, (1, 1)), samples.conv2d(image, 16, (1, 1))]
    layers.append(samples.add(layers[0].ofm, layers[1].ofm))
    graph = graph_of([image], layers, [layers[2].ofm])
    read, made = 64 * 16, 64 * 16
    assert copied(graph, tiny := replace(PLAIN, activation_memory=512), 2) == [read + made, read + 2 * made]
    assert loads_again(graph, tiny) == read + made  # all in one group, whose weights fit


@pytest.mark.parametrize(
    ("side", "stride"), [(3, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 1), (5, 1), (3, 2)))]
)
def test_no_tiles_of_a_layer_load_less(side, stride):
    """Many tilings of a layer, and stripes and patches: none copies less, and the best is near."""
    graph = conv(4, (6, 8), side, stride)
    (layer,) = graph.layers
    height = layer.ofm.shape[1]
    tiny = replace(PLAIN, activation_memory=64, weight_memory=int(weight_bytes(layer)) // 2)
    flat = ((1,), (1, 4, 8, 16)) if side == 1 else ((1, 2, 4), (1, 2, 4))
    groups = [
        (Group(1, tiling=Tiling(*sizes, outer, whole), overlap=False, resident=False), None)
        for *sizes, outer, whole in product(*flat, (2, 4, 8), (2, 6), (False, True), (False, True))
        if not whole or sizes[3] < 6
    ]
    groups += [
        (Group(1, stripes, overlap=False, resident=False, alternating=wide == 1, columns=wide), Blocks(many, 6))
        for stripes, wide, many in product({1, 2, height}, {1, 2, height}, (2, 4))
    ]
    found = []
    for group, blocks in groups:
        with suppress(PlanError):
            layout = lay_out(graph, Choices((False,), (group,), (blocks,)), tiny)
            check_both_engines(layout, tiny)
            found.append(of_dma(written(layout), tiny))
    assert len(found) > 5
    assert 1 - 1e-9 <= min(found) / least_of_dma(graph, tiny) < 2


def test_a_layer_by_itself_takes_the_best_of_tiles():
    """Of 32 x 32 weights half have room, and of the input of 64 pixels a half. Pixels outside load half of the weights
    again, channels outside half of the input."""
    graph = pointwise(32, 32)
    weights = int(weight_bytes(graph.layers[0]))
    tiny = replace(PLAIN, activation_memory=1024, weight_memory=weights // 2)
    image = made = 64 * 32
    assert loads_again(graph, tiny) == image + made + min(weights - weights // 2, image - 1024)


def test_a_group_in_slices_loads_its_input_for_each():
    """A convolution and a depthwise one, whose weights have no room together: for each of two slices all of the input
    is loaded, or for each patch the weights."""
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 16))
    layers = [samples.conv2d(image, 64, (1, 1))]
    layers.append(samples.depthwise(layers[0].ofm, (3, 3), (1, 1), (1, 1, 1, 1)))
    graph = graph_of([image], layers, [layers[1].ofm])
    weights = int(sum(map(weight_bytes, layers)))
    tiny = replace(PLAIN, activation_memory=800, weight_memory=weights - 8)
    groups = copied(graph, tiny, 2)
    patches = 2  # of 8 x 4 outputs, which need 8 x 5 pixels of the input, 640 bytes
    halo = 2 * 8 * 16
    assert groups[1] == 64 * 16 + 64 * 64 + halo + (patches - 1) * 8
    smaller = replace(tiny, weight_memory=weights // 2)
    groups = copied(graph, smaller, 2)
    assert groups[1] == 64 * 16 + 64 * 64 + halo + min(weights - weights // 2, 64 * 16 + halo)


def test_a_sum_in_slices_needs_no_more_patches_than_the_layer_before_it():
    """Local memory has room for the input, and a slice of what is made, added and stored: so weights come once."""
    samples = Samples(1)
    image, other = samples.tensor((1, 8, 8, 8)), samples.tensor((1, 8, 8, 64))
    conv = samples.conv2d(image, 64, (1, 1))
    both = samples.add(conv.ofm, other)
    graph = graph_of([image, other], [conv, both], [both.ofm])
    weights = int(weight_bytes(conv))
    tiny = replace(PLAIN, activation_memory=(8 + 3 * 8) * 64, weight_memory=weights // 4)
    group = Group(2, overlap=False, resident=False, slices=8)
    layout = lay_out_region(graph, tiny, Choices((False,), (group,), (None,) * 2))
    plan = written(layout)
    assert plan.moved["weights"] == weights
    assert least_of_dma(graph, tiny) <= of_dma(plan, tiny) < least_of_dma(graph, tiny) + weights
    assert layout.cycles >= cycles_bound(graph, tiny)


def test_a_row_that_two_stripes_share_is_loaded_again_or_computed_again_or_kept():
    """Two convolutions of 3 x 3, whose weights have room. Stripes share two rows of what the second one reads."""
    samples = Samples(1)
    image = samples.tensor((1, 12, 12, 8))
    layers = [samples.conv2d(image, 8, (3, 3), padding=(1,) * 4)]
    layers.append(samples.conv2d(layers[0].ofm, 8, (3, 3), padding=(1,) * 4))
    graph = graph_of([image], layers, [layers[1].ofm])
    tiny = replace(PLAIN, activation_memory=800)
    array = [least_alone([layer], tiny) for layer in layers]
    groups = groups_before(2, graph, tiny, array)
    assert len(list(groups.once())) == 2
    copied, computed, both = (groups._in_stripes(tiny.weight_memory)[at] for at in (0, 8, 4))
    row, pixels = 12 * 8, pixel_cycles(layers[0], tiny) * 12
    borders = int(groups._stripes[1]) - 1
    assert borders == 3  # three rows of a layer, of five that it reads: eight rows of 96 bytes
    loaded = 2 * (int(groups._stripes[0]) - 1) * row
    kept = 2 * borders * row * 1.5  # each row is stored once and loaded twice
    again = 12 * pixels + 2 * borders * pixels - array[0]
    assert (copied, computed) == (loaded, 0)
    assert both == pytest.approx((loaded + min(kept, again)) / 2)


def test_neither_engine_alone_says_what_small_tiles_cost():
    """Few tiles load little again, and tiles of whole groups keep the array busy: local memory has no room for both."""
    graph = conv(16, (64, 64))
    wide = {"array_rows": 32, "array_columns": 32, "dma_width": 8, "dma_setup": 0}
    tiny = replace(REFERENCE, activation_memory=2048, weight_memory=8192, **wide)
    (layer,) = graph.layers
    alone = max(least_alone([layer], tiny), least_of_dma(graph, tiny))
    assert cycles_bound(graph, tiny) > 1.2 * alone


def test_groups_of_single_layers_hand_over_no_more_than_there_is_room_for(monkeypatch):
    """What the layer in the middle reads and makes has no room together: one of both is copied."""
    graph = pointwise(16, 16, 16, 16)
    one = replace(PLAIN, activation_memory=64 * 16 + 512, tuning=replace(PLAIN.tuning, longest_group=1))
    assert loads_again(graph, one) == 0  # all in one group
    monkeypatch.setattr(reloads, "_LONGEST", 1)
    assert loads_again(graph, one) == 64 * 16
    assert loads_again(graph, replace(one, activation_memory=2 * 64 * 16)) == 0


def test_layers_in_stripes_load_all_weights_as_often_as_one_of_them_needs():
    """Behind a residual block comes a layer whose weights have no room beside those of the block. The addition has
    four rows at a time, of what it reads and makes: so all have as many stripes."""
    samples = Samples(1)
    image = samples.tensor((1, 16, 4, 16))
    first = samples.conv2d(image, 16, (1, 1))
    second = samples.conv2d(first.ofm, 16, (1, 1))
    both = samples.add(first.ofm, second.ofm)
    last = samples.conv2d(both.ofm, 16, (1, 1))
    graph = graph_of([image], layers := [first, second, both, last], [last.ofm])
    weights = int(sum(map(weight_bytes, layers)))
    tiny = replace(PLAIN, activation_memory=3 * 4 * 4 * 16, weight_memory=weights - 1)
    groups = groups_before(4, graph, tiny)
    assert len(list(groups.once())) == 4
    assert groups._in_stripes(weights - 1)[0] == 3


def test_groups_have_no_more_layers_than_are_looked_at(monkeypatch):
    """All layers in one group load no weights again; in groups of two of them what lies between is copied."""
    graph = pointwise(*[16] * 6)
    tiny = replace(PLAIN, activation_memory=512, tuning=replace(PLAIN.tuning, longest_group=1))
    assert loads_again(graph, tiny) == 2 * 64 * 16
    monkeypatch.setattr(reloads, "_LONGEST", 2)
    assert loads_again(graph, tiny) == 3 * 2 * 64 * 16
    assert loads_again(graph, replace(tiny, tuning=replace(PLAIN.tuning, longest_group=3))) == 2 * 2 * 64 * 16


# ---------------------------------------------------------------- no plan copies less


def network(drawn, seed):
    """A few layers of the kinds that networks have."""
    samples, layers = Samples(seed), []
    size = drawn.choice((4, 5, 6, 8, 10))
    image = value = samples.tensor((1, size, drawn.choice((size, size + 3)), drawn.choice((3, 4, 8, 16))))

    def add(layer):
        layers.append(layer)
        return layer.ofm

    def conv2d(value, channels, side=3, stride=1):
        return add(samples.conv2d(value, channels, (side, side), (stride, stride), (side // 2,) * 4))

    def depthwise(value):
        return add(samples.depthwise(value, (3, 3), (drawn.choice((1, 2)),) * 2, (1,) * 4))

    for _ in range(drawn.randint(1, 3)):
        before, kind, channels = value, drawn.randrange(5), drawn.choice((4, 8, 12, 16, 24))
        if kind == 0:
            value = conv2d(value, channels, drawn.choice((1, 3, 5)), drawn.choice((1, 2)))
        elif kind == 1:
            value = depthwise(value)
        elif kind == 2 and min(value.shape[1:3]) >= 4:
            value = add(samples.pool(value, "max", (2, 2), (2, 2)))
        elif kind == 3:
            value = conv2d(conv2d(value, channels), channels)
            value = add(samples.add(value, before if value.shape == before.shape else conv2d(before, channels, 1)))
        else:
            value = conv2d(depthwise(conv2d(value, value.shape[3] * 3, 1)), channels, 1)
            value = add(samples.add(value, before)) if value.shape == before.shape else value
    return graph_of([image], layers, [value])


def memories(drawn, graph):
    """An accelerator whose memories hold a part of the largest tensor, and of all weights."""
    tensors = [tensor.nbytes for layer in graph.layers for tensor in (*layer.inputs, layer.ofm)]
    return replace(
        REFERENCE,
        label="RANDOM",
        array_rows=drawn.choice((4, 8)),
        array_columns=drawn.choice((4, 8)),
        activation_memory=max(64, int(max(tensors) * drawn.uniform(0.2, 0.95)) // 8 * 8),
        weight_memory=max(64, int(sum(map(weight_bytes, graph.layers)) * drawn.uniform(0.05, 0.9)) // 8 * 8),
        dma_width=drawn.choice((1, 2, 4)),
        dma_setup=drawn.choice((0, 1, 10, 70)),
        packed_rows=drawn.random() < 0.3,
    )


def copied_less(graph, hardware, drawn, moves):
    """The least that the plans of a search for few copied bytes copy, and how many plans there were."""
    space, choices = SearchSpace(graph, hardware), layer_by_layer(graph, hardware)
    least, tried = of_dma(written(lay_out(graph, choices, hardware)), hardware), 1
    for _ in range(moves):
        other = step(space, choices, drawn)
        with suppress(PlanError):
            layout = lay_out(graph, replace(other, fine=other.fine and drawn.random() < 0.1), hardware)
            assert layout.cycles >= cycles_bound(graph, hardware)
            check_both_engines(layout, hardware)
            found, tried = of_dma(written(layout), hardware), tried + 1
            if found <= least or drawn.random() < 0.1:
                choices, least = other, min(found, least)
    return least, tried


def checked(seeds, moves):
    tried = 0
    for seed in seeds:
        drawn = Random(seed)
        graph = network(drawn, seed)
        hardware = memories(drawn, graph)
        if not loads_again(graph, hardware):
            continue
        with suppress(PlanError):  # a layer may not fit
            least, many = copied_less(graph, hardware, drawn, moves)
            assert least >= least_of_dma(graph, hardware), seed
            tried += many
    return tried


@pytest.mark.slow
def test_no_plan_copies_less():
    assert checked(range(8), 8) > 10


@pytest.mark.slow
def test_no_plan_of_many_copies_less():
    assert checked(range(100, 120), 40) > 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_best_plan_copies_no_less(seed):
    drawn = Random(seed)
    graph = network(drawn, seed)
    hardware = memories(drawn, graph)
    with suppress(PlanError):
        layout = lay_out_region(graph, hardware)
        check_both_engines(layout, hardware)
        assert of_dma(written(layout), hardware) >= least_of_dma(graph, hardware)
        assert layout.cycles >= cycles_bound(graph, hardware)
