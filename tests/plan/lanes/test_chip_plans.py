"""Regions on several accelerators: exact whichever is the faster one, in the cycles foreseen, above the bound."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from chip_machine import check_chip_plan
from effort import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plan_chips import DLA, PAIR, TWINS, VECTOR, elements, with_library
from plan_graphs import ANY_RANK, AnyRank, accelerators, graphs
from plan_machine import RefusedError
from plan_reference import run_graph
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import DSP, REFERENCE
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.lanes.lanes_clock import lanes_timeline
from byoc_hw.plan.lanes.planner import ChipPlanner
from byoc_hw.plan.region import plan_region, why_no_plan
from byoc_hw.plan.steps import Await, Job, WholeLayer
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

EXAMPLES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large], deadline=None
)
KINDS = ["conv2d", "depthwise_conv2d", "dense", "add", "mul", "pool2d", "softmax", "lookup", "concat", "slice", "pad"]


@st.composite
def chip_regions(draw, most=6):
    """A chip of two or three accelerators, and a graph that the first of them can plan."""
    one = replace(draw(accelerators()), name="one", label="ONE")
    others = [
        replace(draw(accelerators()), name=f"other{at}", dma_alignment=one.dma_alignment)
        for at in range(draw(st.sampled_from([1, 1, 1, 2])))
    ]
    if draw(st.booleans()):
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, unique=True))
        others[-1] = with_library(others[-1], kinds, draw(st.integers(0, 3)))
    images, any_rank = graphs(one, most), graphs(one, most, ANY_RANK, AnyRank)
    return Soc((one, *others)), draw(st.one_of(images, images, images, any_rank))


def values_of(graph, seed=0):
    random = np.random.default_rng(seed)
    inputs = [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
    return inputs, run_graph(graph, inputs)


def check_on_chip(chip, graph, place=None):
    plan = plan_region(graph, chip, place=place or {})
    inputs, expected = values_of(graph)
    check_chip_plan(plan, expected, inputs, permutations(range(len(plan.parts))))
    assert lanes_timeline(plan).total == plan.cycles
    assert plan.bound <= plan.cycles
    return plan


@st.composite
def ordered_regions(draw, most=4):
    """As `chip_regions`, where one accelerator also puts in order and gathers, and some tensors are so treated."""
    chip, graph = draw(chip_regions(most))
    able = draw(st.sampled_from([at for at, one in enumerate(chip.accelerators) if one.library is None]))
    limits = {kind: replace(DSP.limits[kind]) for kind in ("order", "gather")}
    costs = {"order": lambda layer: 2 * layer.ifm.elements, "gather": lambda layer: layer.ofm.elements // 3}
    ordering = replace(chip.accelerators[able], limits={**chip.accelerators[able].limits, **limits}, whole_cycles=costs)
    accelerators = tuple(ordering if at == able else one for at, one in enumerate(chip.accelerators))
    samples, layers, outputs = Samples(draw(st.integers(0, 99))), list(graph.layers), list(graph.outputs)
    for _ in range(draw(st.integers(1, 2))):
        known = [tensor for tensor in graph.inputs if tensor.shape] + [layer.ofm for layer in layers]
        ifm = draw(st.sampled_from([tensor for tensor in known if tensor.dtype == "int8"]))
        axis = draw(st.integers(0, len(ifm.shape) - 1))
        count = draw(st.integers(1, ifm.shape[axis]))
        layers.append(samples.order(ifm, axis, count, descending=draw(st.booleans())))
        outputs.append(layers[-1].ofm)
        if draw(st.booleans()):
            layers.append(samples.gather(ifm, layers[-1].ofm, axis))
            if ifm.shape[0] == 1 and ifm.quantization is not None:
                layers.append(samples.add(layers[-1].ofm, layers[-1].ofm))
            outputs.append(layers[-1].ofm)
    return replace(chip, accelerators=accelerators), replace(graph, layers=tuple(layers), outputs=tuple(outputs))


@pytest.mark.slow
@given(ordered_regions(most=6))
@settings(EXAMPLES, max_examples=examples(10))
def test_any_graph_with_orders_is_exact_on_any_chip(region):
    check_on_chip(*region)


@pytest.mark.slow
@given(chip_regions(most=9))
@settings(EXAMPLES, max_examples=examples(10))
def test_any_graph_is_exact_on_any_chip_in_the_cycles_foreseen(region):
    check_on_chip(*region)


@pytest.mark.slow
@given(chip_regions())
@settings(EXAMPLES, max_examples=examples(4))
def test_a_chip_is_never_slower_than_with_fewer_accelerators(region):
    chip, graph = region
    cycles, every = plan_region(graph, chip).cycles, range(len(chip.accelerators))
    for lanes in [some for count in every[1:] for some in combinations(every, count)]:
        try:
            fewer = plan_region(graph, chip.only(lanes)).cycles
        except PlanError:
            continue  # a layer fits another accelerator only
        assert cycles <= fewer


def test_accelerators_that_are_alike_are_left_out_once():
    samples = Samples(1)
    value = samples.tensor((1, 8, 8, 16))
    layer = samples.conv2d(value, 16, (1, 1))
    graph = graph_of([value], [layer], [layer.ofm])
    twins = tuple(replace(REFERENCE, name=name) for name in ("one", "two"))
    three = ChipPlanner(graph, Soc((*twins, DLA)), {})
    assert list(three.fewer()) == [(0, 1), (0, 2), (0,), (2,)]
    shared, bound = least_alone([layer], REFERENCE) / 2, known_bound(graph, twins[0])
    assert [three.may_take_less((0, 1), shared + more) for more in (0, 1)] == [False, True]
    assert [three.may_take_less((0,), bound + more) for more in (0, 1)] == [False, True]
    placed = ChipPlanner(graph, Soc((*twins, DLA)), {layer.name: "two"})
    assert list(placed.fewer()) == [(0, 1), (1, 2), (1,)]


def test_a_chip_with_a_library_is_as_fast_as_its_fastest_accelerator_by_itself():
    """Libraries take tensors as the model has them: no layer is swapped beside one, but all of them may be alone."""
    samples = Samples(1)
    value = samples.tensor((1, 32, 2, 16))
    layer = samples.conv2d(value, 16, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([value], [layer], [layer.ofm])
    assert plan_region(graph, VECTOR).cycles == plan_region(graph, Soc((DLA,))).cycles


@pytest.mark.slow
def test_several_layers_are_cut_as_one_part():
    """Nothing goes from one accelerator to the other: each has its rows of all layers."""
    samples = Samples(1)
    value = samples.tensor((1, 16, 16, 16))
    layers = [samples.conv2d(value, 16, (1, 1))]
    for _ in range(4):
        layers.append(samples.conv2d(layers[-1].ofm, 16, (1, 1)))
    graph = graph_of([value], layers, [layers[-1].ofm])
    plan = check_on_chip(TWINS, graph)
    assert [part.layers for part in plan.parts] == [(0, 1, 2, 3, 4)] * 2
    assert plan.cycles < 0.6 * plan_region(graph, Soc((REFERENCE,))).cycles


def dense_of_pixels(samples, ifm, channels):
    """A dense layer of each pixel, as TFLite has it: between reshapes."""
    rows = samples.reshape(ifm, (ifm.elements // ifm.shape[-1], ifm.shape[-1]))
    dense = samples.dense(rows.ofm, channels)
    return [rows, dense, samples.reshape(dense.ofm, (*ifm.shape[:-1], channels))]


@pytest.mark.slow
def test_pixels_without_rows_are_shared():
    """Tokens of a transformer: half of them go through all layers on each accelerator."""
    samples = Samples(1)
    value = samples.tensor((1, 64, 32))
    layers = dense_of_pixels(samples, value, 64)
    layers.append(samples.lookup(layers[-1].ofm))
    layers += dense_of_pixels(samples, layers[-1].ofm, 32)
    layers.append(samples.add(layers[-1].ofm, value))
    graph = graph_of([value], layers, [layers[-1].ofm])
    plan = check_on_chip(TWINS, graph)
    assert plan.cycles < 0.6 * plan_region(graph, Soc((REFERENCE,))).cycles


@st.composite
def layers_of_pixels(draw):
    """Layers of single pixels, of tensors with rows of these or without."""
    samples, channels = Samples(draw(st.integers(0, 99))), st.integers(1, 40)
    extents = draw(st.sampled_from([(48,), (50,), (61,), (8, 6), (3, 20)]))
    value = samples.tensor((1, *extents, draw(channels)))
    layers, ifms = [], [value]
    for _ in range(draw(st.integers(1, 5))):
        ifm = ifms[-1]
        kind = draw(st.sampled_from(["dense", "dense", "add", "mul", "softmax", "lookup", "reshape"]))
        if kind == "dense":
            layers += dense_of_pixels(samples, ifm, draw(channels))
        elif kind == "reshape":
            layers.append(samples.reshape(ifm, (1, *draw(st.permutations(ifm.shape[1:-1])), ifm.shape[-1])))
        elif kind in ("add", "mul"):
            other = draw(st.sampled_from([one for one in ifms if one.shape == ifm.shape]))
            layers.append(getattr(samples, kind)(ifm, other))
        elif kind == "lookup":
            layers.append(samples.lookup(ifm, by_channel=draw(st.booleans())))
        else:
            layers.append(samples.softmax(ifm))
        ifms.append(layers[-1].ofm)
    outputs = [one for one in ifms[1:-1] if draw(st.integers(0, 4)) == 0]
    return graph_of([value], layers, [*outputs, ifms[-1]])


@pytest.mark.slow
@pytest.mark.parametrize("block", [(2, 2), (3, 1)], ids=str)
def test_transposed_convolutions_are_shared(block):
    """Half of the rows each: the stores of the convolution put the pixels side by side."""
    samples = Samples(1)
    value = samples.tensor((1, 16, 16, 32))
    layers = samples.upsampled(value, 32, block)
    layers += samples.upsampled(layers[-1].ofm, 16, block)
    graph = graph_of([value], layers, [layers[-1].ofm])
    plan = check_on_chip(TWINS, graph)
    assert [part.layers for part in plan.parts] == [tuple(range(8))] * 2
    assert plan.cycles < 0.55 * plan_region(graph, Soc((REFERENCE,))).cycles


@pytest.mark.slow
def test_channels_from_pixels_are_shared():
    samples = Samples(1)
    value = samples.tensor((1, 16, 16, 16))
    layers = [samples.conv2d(value, 32, (3, 3), padding=(1, 1, 1, 1))]
    layers += samples.blocks_together(layers[-1].ofm, (2, 2))
    layers.append(samples.conv2d(layers[-1].ofm, 64, (1, 1)))
    graph = graph_of([value], layers, [layers[-1].ofm])
    assert check_on_chip(TWINS, graph).cycles < 0.6 * plan_region(graph, Soc((REFERENCE,))).cycles


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(12, 6), (6, 12), (8, 4, 2)], ids=str)
def test_heads_of_several_sizes_are_made_in_full(sizes):
    """As those of a detector: layers of one pixel each, but not of as many pixels."""
    samples = Samples(2)
    ifms = [samples.tensor((1, size, size, 48)) for size in sizes]
    heads = [samples.conv2d(ifm, 4, (1, 1)) for ifm in ifms]
    rows = [samples.reshape(head.ofm, (1, size * size, 4)) for head, size in zip(heads, sizes, strict=True)]
    joined = samples.concat([row.ofm for row in rows], 1)
    layers = [layer for pair in zip(heads, rows, strict=True) for layer in pair]
    check_on_chip(TWINS, graph_of(ifms, [*layers, joined], [joined.ofm]))


def test_a_reshape_to_one_dimension_is_not_shared():
    samples = Samples(1)
    value = samples.tensor((1, 4, 4, 8))
    layers = [samples.conv2d(value, 8, (1, 1))]
    layers.append(samples.reshape(layers[0].ofm, (128,)))
    plan = check_on_chip(TWINS, graph_of([value], layers, [layers[1].ofm]))
    assert len([part for part in plan.parts if 1 in part.layers]) == 1


@st.composite
def layers_of_blocks(draw):
    """Blocks of pixels that become channels, channels that become pixels, and rows that become others."""
    samples = Samples(draw(st.integers(0, 99)))
    value = samples.tensor((1, draw(st.sampled_from([4, 6, 8])), draw(st.sampled_from([2, 6, 16])), 8))
    layers, ifms = [], [value]
    for _ in range(draw(st.integers(1, 3))):
        ifm, block = ifms[-1], draw(st.sampled_from([(2, 2), (2, 1), (1, 2)]))
        _, height, width, channels = ifm.shape
        kind = draw(st.sampled_from(["apart", "apart", "together", "rows", "turned", "conv", "depthwise"]))
        if kind == "apart":
            kernel, around = draw(st.sampled_from([((1, 1), 0), ((3, 3), 1)]))
            layers.append(samples.conv2d(ifm, 4 * draw(st.integers(1, 6)), kernel, padding=(around,) * 4))
            layers += samples.blocks_apart(layers[-1].ofm, block)
        elif kind == "together" and height % block[0] == width % block[1] == 0:
            layers += samples.blocks_together(ifm, block)
        elif kind == "rows":
            layers.append(samples.reshape(ifm, (1, width, height, channels)))
        elif kind == "turned":
            layers.append(samples.transpose(ifm, (0, 1, 3, 2)))
        elif kind == "depthwise":
            layers.append(samples.depthwise(ifm, (3, 3), padding=(1, 1, 1, 1)))
        else:
            layers.append(samples.conv2d(ifm, draw(st.integers(1, 20)), (2, 2), padding=(0, 0, 1, 1)))
        ifms.append(layers[-1].ofm)
    if draw(st.booleans()):
        layers.append(samples.reshape(ifms[-1], (1, ifms[-1].elements)))
        layers.append(samples.dense(layers[-1].ofm, 10))
    made = [layer.ofm for layer in layers]
    outputs = [one for one in made[:-1] if draw(st.integers(0, 5)) == 0]
    return graph_of([value], layers, [*outputs, made[-1]])


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [layers_of_pixels(), layers_of_blocks()], ids=["pixels", "blocks"])
@given(accelerators(), st.data())
@settings(EXAMPLES, max_examples=12)
def test_any_layers_that_move_pixels_are_exact_on_any_two_accelerators(graphs, one, data):
    """With small arrays, so that it is worth while to share layers."""
    graph = data.draw(graphs)
    small = replace(one, array_rows=4, array_columns=4, dma_width=max(one.dma_width, 8), dma_setup=0)
    assume(not any(why_no_plan(layer, small) for layer in graph.layers))
    check_on_chip(Soc((replace(small, name="one"), replace(small, name="two"))), graph)


def test_a_layer_that_no_accelerator_can_run_is_named():
    graph = separable(blocks=1)
    only = replace(DSP, limits={"conv2d": DSP.limits["conv2d"]})
    with pytest.raises(PlanError, match=f"{graph.layers[1].name}: an accelerator of soc can run it: none can"):
        plan_region(graph, Soc((only,)))


def test_the_bound_holds_where_a_part_of_an_input_is_read():
    samples = Samples(1)
    value = samples.tensor((1, 1344))
    layer = samples.slice(value, (0, 646), (1, 112), (1, 1))
    chip = replace(PAIR, accelerators=tuple(replace(one, dma_setup=0, dma_width=2) for one in PAIR.accelerators))
    check_on_chip(chip, graph_of([value], [layer], [layer.ofm]))


def separable(blocks=3, size=16, channels=32):
    """Pointwise and depthwise convolutions in turn."""
    samples = Samples(1)
    value = samples.tensor((1, size, size, channels))
    inputs, layers = [value], []
    for _ in range(blocks):
        layers.append(samples.conv2d(value, channels, (1, 1)))
        layers.append(samples.depthwise(layers[-1].ofm, (3, 3), padding=(1, 1, 1, 1)))
        value = layers[-1].ofm
    return graph_of(inputs, layers, [value])


@pytest.mark.slow
def test_accelerators_work_on_one_inference_at_the_same_time():
    """Depthwise convolutions, slow on the one, run on the other, a few rows behind the pointwise ones."""
    graph = separable()
    plan = check_on_chip(PAIR, graph)
    alone = min(plan_region(graph, Soc((one,))).cycles for one in PAIR.accelerators)
    assert len(plan.parts) == 2
    assert plan.cycles < 0.6 * alone


def sorted_between(size=12, channels=8):
    """Rows of what one convolution makes are put in order for another one, and the order is an output, too."""
    samples = Samples(5)
    value = samples.tensor((1, size, size, channels))
    first = samples.conv2d(value, channels, (3, 3), padding=(1, 1, 1, 1))
    order = samples.order(first.ofm, 2, size)
    gather = samples.gather(first.ofm, order.ofm, 2)
    last = samples.conv2d(gather.ofm, channels, (3, 3), padding=(1, 1, 1, 1))
    layers = [first, order, gather, last]
    return graph_of([value], layers, [order.ofm, last.ofm])


@pytest.mark.parametrize("wish", [{}, {"conv2d": "dla"}, {"conv2d": "dsp"}], ids=str)
def test_layers_without_tiles_run_between_others(wish):
    graph = sorted_between()
    plan = check_on_chip(PAIR, graph, wish)
    where = {index: PAIR.accelerators[part.lane].name for part in plan.parts for index in part.layers}
    assert (where[1], where[2]) == ("dsp", "dsp")
    calls = [step for part in plan.parts for step in part.plan.steps if isinstance(step, WholeLayer)]
    assert [step.cycles for step in calls] == [DSP.cycles_of_whole(graph.layers[index]) for index in (1, 2)]


def test_a_suppression_has_a_workspace_and_may_read_constants():
    rng = np.random.default_rng(3)
    boxes = Tensor("boxes", (2, 20, 6), "float32")
    values = (rng.integers(1, 9, (2, 20, 6)) / 4).astype(np.float32)
    values[..., 4:] = values[..., 2:4] + 1
    count = Tensor("count", (2,), "int32", data=np.array([20, 7], np.int32))
    layer = Samples().suppression(boxes, count, most=5)
    plan = plan_region(graph_of([boxes], [layer], [layer.ofm]), PAIR)
    expected = run_graph(plan.graph, [values])
    check_chip_plan(plan, expected, [values], [(0,)])
    assert lanes_timeline(plan).total == plan.cycles == DSP.cycles_of_whole(layer) >= plan.bound
    assert plan.scratch_bytes == 4 * 20


def test_a_layer_without_tiles_is_for_chips():
    samples = Samples()
    value = samples.tensor((1, 4, 4, 8))
    layer = samples.order(value, 3, 2)
    with pytest.raises(PlanError, match=r"a layer of kind order runs beside the host on a chip, as of Soc\(\(dsp,\)\)"):
        plan_region(graph_of([value], [layer], [layer.ofm]), DSP)


def jobs_of_two_accelerators():
    """A library makes what a DSP orders and gathers, and reads that."""
    engine = with_library(replace(DLA, name="engine"), ["conv2d"])
    no_convolutions = replace(DSP, limits={kind: DSP.limits[kind] for kind in ("order", "gather")})
    return plan_region(sorted_between(), Soc((engine, no_convolutions)))


def test_jobs_of_two_accelerators_wait_for_each_other():
    """They are in the order of their array alone."""
    plan = jobs_of_two_accelerators()
    assert [len(part.layers) for part in plan.parts] == [2, 2]
    inputs, expected = values_of(plan.graph)
    check_chip_plan(plan, expected, inputs, permutations(range(2)))
    assert (
        plan.cycles
        == lanes_timeline(plan).total
        == sum(step.cycles for part in plan.parts for step in part.plan.steps if isinstance(step, WholeLayer))
    )


EVENTS = {
    "jobs of two accelerators": jobs_of_two_accelerators,
    "layers without tiles": lambda: plan_region(sorted_between(), PAIR, place={"conv2d": "dla"}),
    "copies of both": lambda: plan_region(separable(blocks=2), PAIR),
    "calls of a library": lambda: plan_region(separable(blocks=2), VECTOR, place={"depthwise_conv2d": "dsp"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", EVENTS.values(), ids=EVENTS)
def test_every_event_is_needed(make):
    """Without any one of them, some lane reads what is not there yet."""
    assert check_without_each_event(make())


def test_lanes_that_store_columns_of_different_channels_await_nothing():
    """Height and width are swapped: the rows of a copy, at distances of several pixels, are some channels each."""
    samples, sizes = Samples(), {"array_rows": 8, "array_columns": 8, "depthwise_rows": 2, "dma_width": 4, "queue": 4}
    layer = samples.depthwise(samples.tensor((1, 11, 4, 16)), (2, 2), strides=(1, 2), padding=(0, 0, 1, 0))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    one = accelerator(2048, 300, local_alignment=4, dma_alignment=4, dma_setup=0, packed_rows=True, **sizes)
    plan = check_on_chip(Soc((replace(one, name="one"), replace(one, name="other"))), graph)
    assert {part.lane for part in plan.parts} == {0, 1}
    assert not [step for part in plan.parts for step in part.plan.steps if isinstance(step, Await)]


@pytest.mark.slow
@given(chip_regions(most=3))
@settings(EXAMPLES, max_examples=15)
def test_every_event_of_any_plan_is_needed(region):
    chip, graph = region
    plan = plan_region(graph, chip)
    assume(len(plan.parts) <= 5)  # all orders of them are tried
    check_without_each_event(plan)


def check_without_each_event(plan):
    """How many events the plan awaits, none of which can be left out."""
    inputs, expected = values_of(plan.graph)
    orders = list(permutations(range(len(plan.parts))))
    awaited = [step for part in plan.parts for step in part.plan.steps if isinstance(step, Await)]
    for left_out in awaited:
        parts = tuple(replace(part, plan=without(part.plan, left_out)) for part in plan.parts)
        with pytest.raises((RefusedError, AssertionError)):
            check_chip_plan(replace(plan, parts=parts), expected, inputs, orders)
    return len(awaited)


@pytest.mark.slow
def test_a_librarys_calls_are_placed_by_their_cost():
    """Cheap ones are taken, dear ones are not; a wish decides."""
    graph = separable()
    for each, lanes in ((1, {0, 1}), (1000, {0})):
        chip = Soc((DLA, with_library(DSP, ["depthwise_conv2d"], each)))
        assert {part.lane for part in check_on_chip(chip, graph).parts} == lanes
    wished = plan_region(graph, chip, place={graph.layers[1].name: "dsp"})
    assert [part.layers for part in wished.parts if part.lane == 1] == [(1,)]


def test_a_library_alone_runs_a_region():
    """Reshapes share the bytes of their input: only a copy is more than a library can do."""
    samples = Samples(4)
    value = samples.tensor((1, 6, 6, 8))
    layers = [samples.conv2d(value, 8, (3, 3), padding=(1, 1, 1, 1))]
    layers.append(samples.add(layers[0].ofm, value))
    layers.append(samples.reshape(layers[1].ofm, (1, 288)))
    layers.append(samples.dense(layers[2].ofm, 10))
    chip = Soc((with_library(DSP, ["conv2d", "add", "dense"]),))
    graph = graph_of([value], layers, [layers[-1].ofm])
    plan = check_on_chip(chip, graph)
    assert plan.cycles == sum(2 * elements(layer) for layer in layers if layer.kind != "reshape")
    with pytest.raises(PlanError, match="an output is copied by a DMA: libraries alone have none"):
        plan_region(replace(graph, outputs=(layers[-1].ofm, value)), chip)
    with pytest.raises(
        PlanError, match=r"a reshape .* of what others read, is copied by a DMA: libraries alone have none"
    ):
        plan_region(replace(graph, outputs=(layers[2].ofm, layers[1].ofm)), chip)


def test_a_reshape_of_what_others_read_too_is_copied_by_a_dma():
    """The library copies nothing, and only it can add: the DLA reshapes and pools its output."""
    samples = Samples(4)
    value = samples.tensor((1, 6, 6, 8))
    added = samples.add(value, value)
    layers = [added, samples.reshape(added.ofm, (1, 288)), samples.pool(added.ofm, "max", (2, 2))]
    no_addition = replace(DLA, limits={kind: limits for kind, limits in DLA.limits.items() if kind != "add"})
    graph = graph_of([value], layers, [layer.ofm for layer in layers[1:]])
    plan = check_on_chip(Soc((no_addition, with_library(DSP, ["add"]))), graph)
    assert [(part.lane, part.layers) for part in plan.parts] == [(0, (1, 2)), (1, (0,))]


def without(plan, left_out):
    def kept(steps):
        return tuple(step for step in steps if step is not left_out)

    calls = tuple(replace(call, steps=kept(call.steps)) for call in plan.calls)
    return replace(plan, calls=calls, tail=kept(plan.tail))


def test_a_layer_that_is_wished_on_an_accelerator_runs_there():
    graph = separable(blocks=2)
    wished = {graph.layers[1].name: "dla", "conv2d": "dsp"}
    plan = plan_region(graph, PAIR, place=wished)
    lanes = {index: part.lane for part in plan.parts for index in part.layers}
    assert [lanes[index] for index in (0, 1, 2)] == [1, 0, 1]


def test_a_wish_that_cannot_be_is_refused_with_the_rule():
    small = replace(DSP, limits={"conv2d": replace(DSP.limits["conv2d"], strides=(2,))})
    graph = separable(blocks=1)
    with pytest.raises(InvalidInput, match="cannot run on dsp: stride is 2: got 1"):
        plan_region(graph, Soc((DLA, small)), place={"conv2d": "dsp"})


def test_outputs_that_no_layer_writes_are_copied():
    """An input that is an output as well, and an output that is given twice."""
    graph = separable(blocks=1)
    last = graph.layers[-1].ofm
    check_on_chip(PAIR, replace(graph, outputs=(last, graph.inputs[0], last)))


def test_an_input_of_one_element_and_no_dimensions_is_added():
    samples = Samples(3)
    value, scalar = samples.tensor((1, 8, 8, 16)), samples.tensor(())
    layers = [samples.conv2d(value, 16, (1, 1))]
    layers.append(samples.add(layers[0].ofm, scalar))
    check_on_chip(PAIR, graph_of([value, scalar], layers, [layers[-1].ofm]))


def test_two_equal_accelerators_share_a_layer():
    twins = Soc(tuple(replace(REFERENCE, name=name, label=name) for name in ("one", "two")))
    samples = Samples(2)
    value = samples.tensor((1, 32, 32, 16))
    layer = samples.conv2d(value, 64, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([value], [layer], [layer.ofm])
    plan = check_on_chip(twins, graph)
    assert [part.boxes != (None,) for part in plan.parts] == [True, True]
    assert plan.cycles < 0.65 * plan_region(graph, Soc(twins.accelerators[:1])).cycles


@pytest.mark.slow
def test_parts_of_narrow_images_have_packed_rows():
    """Exact, and faster than row by row: 8 outputs of a row fill half of an array's columns."""
    samples = Samples(1)
    value = samples.tensor((1, 8, 8, 32))
    layers = [samples.conv2d(value, 32, (3, 3), padding=(1, 1, 1, 1))]
    for _ in range(2):
        layers.append(samples.conv2d(layers[-1].ofm, 32, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([value], layers, [layers[-1].ofm])
    plan = check_on_chip(TWINS, graph)
    steps = [step for part in plan.parts for step in part.plan.steps]
    assert any(isinstance(step, Job) and step.image is not None and step.image.pitch for step in steps)
    by_rows = Soc(tuple(replace(one, packed_rows=False) for one in TWINS.accelerators))
    assert plan.cycles < 0.85 * plan_region(graph, by_rows).cycles
