"""Work in pieces that share nothing in local memory: joined, it takes no more cycles than one piece after the other."""

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from plan_check import check
from plan_choices import lay_out, layer_by_layer
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.planner import map_choices
from byoc_hw.plan.stages import cycles_of_groups
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, Copy
from byoc_hw.plan.work.merges import loads_weights
from byoc_hw.plan.work.ops import LocalBuffer


def by_themselves(graph, choices, hardware):
    """Cycles of each group by itself."""
    mapped = map_choices(graph, hardware, choices)
    return [cycles_of_groups(mapped, choices, at, at + 1)[0] for at in range(len(choices.groups))]


@given(regions(most=6))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_groups_apart_take_no_more_cycles_than_one_after_the_other(region):
    hardware, graph = region
    made = {layer.ofm for layer in graph.layers if layer.kind != "reshape"}
    graph = replace(graph, outputs=tuple(dict.fromkeys(one for one in graph.outputs if one in made)))
    choices = replace(layer_by_layer(graph, hardware), apart=True)
    assert lay_out(graph, choices, hardware).cycles <= sum(by_themselves(graph, choices, hardware))


def test_the_order_of_a_group_apart_is_its_own():
    """The jobs and copies of either convolution take turns as they do alone, on the same bytes."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 16, 16, 16)), 16)
    second = samples.conv2d(first.ofm, 16)
    graph, hardware = graph_of([first.ifm], [first, second], [second.ofm]), accelerator(5000)
    choices = replace(layer_by_layer(graph, hardware), apart=True)
    together = lay_out(graph, choices, hardware)
    for number, layer in enumerate(graph.layers):
        alone = lay_out(single(layer), layer_by_layer(single(layer), hardware), hardware)
        mine = [index for index, op in enumerate(together.work.ops) if op.layer == number]
        for engine in ("copies", "jobs"):
            order = [mine.index(index) for index in getattr(together.order, engine) if index in mine]
            assert order == getattr(alone.order, engine)
        assert [place for buffer, place in alone.places.items()] == [
            together.places[buffer] for buffer in dict.fromkeys(_buffers(together, mine)) if buffer in together.places
        ]
    check(graph, hardware, choices=choices)


def _buffers(layout, operations):
    """The local buffers of some operations, those in activation memory first, each in order of its first use."""
    found = [access.place for index in operations for access in layout.work.ops[index].accesses]
    return sorted((one for one in found if isinstance(one, LocalBuffer)), key=lambda one: one.space)


@given(regions(most=6))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_groups_apart_that_are_cut_finely_take_no_more_cycles_than_each_cut_finely_alone(region):
    hardware, graph = region
    made = [layer for layer in graph.layers if layer.kind != "reshape"]
    assume(len(graph.layers) == len(made))
    graph = replace(graph, outputs=tuple(dict.fromkeys(one for one in graph.outputs if one in {a.ofm for a in made})))
    choices = replace(layer_by_layer(graph, hardware), apart=True, fine=True)
    alone = 0
    for layer in made:
        one = replace(layer_by_layer(single(layer), hardware), fine=True)
        alone += lay_out(single(layer), one, hardware).cycles
    assert lay_out(graph, choices, hardware).cycles <= alone
    check(graph, hardware, choices=choices)


def test_constants_of_a_group_move_with_those_of_the_groups_before_that_are_joined():
    """In either group the blocks of weights of two convolutions come in one copy, and lie together in flash: what the
    other group loads is elsewhere then."""
    samples = Samples()
    layers, value = [], samples.tensor((1, 4, 4, 8))
    for channels in (10, 6, 14, 8):
        layers.append(samples.conv2d(value, channels, (1, 1)))
        value = layers[-1].ofm
    layers.append(samples.add(value, samples.constant(value.shape)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    hardware = accelerator(4096, 16384, local_alignment=64, dma_setup=70)
    chosen = replace(layer_by_layer(graph, hardware), groups=(Group(2), Group(3)), blocks=(None,) * 5, apart=True)
    plain, fine = (lay_out(graph, replace(chosen, fine=one), hardware) for one in (False, True))
    loads = [sum(map(loads_weights, one.work.ops)) for one in (plain, fine)]
    assert loads == [4, 2]
    assert fine.cycles < plain.cycles
    check(graph, hardware, choices=replace(chosen, fine=True))


def test_what_fills_the_room_around_images_moves_with_weights_of_a_later_group_that_are_joined():
    """The zero points around several images are new constants, behind the weights of all groups."""
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 7, 8)), 8, (3, 3), padding=(1, 1, 1, 1))]
    for _ in range(3):
        layers.append(samples.conv2d(layers[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
    one = samples.conv2d(samples.tensor((1, 4, 4, 8)), 10, (1, 1))
    other = samples.conv2d(one.ofm, 6, (1, 1))
    graph = graph_of([layers[0].ifm, one.ifm], [*layers, one, other], [layers[-1].ofm, other.ofm])
    hardware = accelerator(8192, 16384, local_alignment=64, dma_width=8, dma_setup=70, packed_rows=True)
    storages = map_graph(graph, hardware).storages.of
    held = [{storages[tensor].index for tensor in (layer.ifm, layer.ofm)} for layer in layers]
    held[-1] -= {storages[layers[-1].ofm].index}
    groups = (*(Group(1, held=frozenset(some)) for some in held), Group(2))
    chosen = replace(layer_by_layer(graph, hardware), groups=groups, packed=frozenset({0}), apart=True)
    plain, fine = (lay_out(graph, replace(chosen, fine=one), hardware) for one in (False, True))
    loads, fills = (
        [sum(is_one(op) for op in layout.work.ops) for layout in (plain, fine)] for is_one in (loads_weights, _fills)
    )
    assert loads[1] < loads[0]
    assert fills[1] < fills[0]
    check(graph, hardware, choices=replace(chosen, fine=True))


def _fills(op):
    return isinstance(op.step, Copy) and op.step.source.space == FLASH and op.step.target.space == ACTIVATIONS


def test_first_loads_of_a_group_come_before_the_last_stores_of_the_one_before_where_that_takes_fewer_cycles():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 16, 16, 8)), 8, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(samples.tensor((1, 8, 8, 8)), 64, (5, 5))
    graph = graph_of([first.ifm, second.ifm], [first, second], [first.ofm, second.ofm])
    hardware = accelerator(8192, 1 << 16, dma_width=1)
    choices = Choices((False, False), (Group(1, 8), Group(1)), (None, None), apart=True)
    together = lay_out(graph, choices, hardware)
    owners = [together.work.ops[index].layer for index in together.order.copies]
    assert owners.index(1) < len(owners) - 1 - owners[::-1].index(0)
    assert together.cycles < sum(by_themselves(graph, choices, hardware))
    check(graph, hardware, choices=choices)
