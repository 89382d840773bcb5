"""Tiles of a layer by itself whose rows a job takes as one: exact, and in fewer cycles."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import DIANA_DIGITAL, KIB, REFERENCE, SMALL
from byoc_hw.errors import PlanError
from byoc_hw.graph import Reshape
from byoc_hw.plan.array.packing import packs_tiles
from byoc_hw.plan.array.tiling import Tiler, tile_geometry
from byoc_hw.plan.choices import Choices, Group, Tiling
from byoc_hw.plan.region import lay_out_region, plan_region
from byoc_hw.plan.search.single_layer import tilings
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, Copy, Job
from byoc_hw.tensor import Quantization

SAME = (1, 1, 1, 1)


def tiled(tiling, layers=1, **changes):
    group = Group(layers, overlap=False, resident=False, tiling=tiling, **changes)
    return Choices((False,), (group,), (None,) * layers)


def behind_a_reshape(layer, quantization):
    """The graph of a layer whose input is that of the graph in another shape, there with a quantization of its own."""
    image = layer.ifm
    flat = replace(image, name="flat", shape=(1, image.elements), quantization=quantization)
    return graph_of([flat], [Reshape("shaped", (), flat, image), layer], [layer.ofm])


def fills(plan):
    """The copies of zero points."""
    return [
        step
        for step in plan.steps
        if isinstance(step, Copy) and step.source.space == FLASH and step.target.space == ACTIVATIONS
    ]


def jobs(plan):
    return [step for step in plan.steps if isinstance(step, Job)]


def test_a_job_takes_all_rows_of_a_tile_as_one():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 12, 8)), 8, padding=SAME)
    plan = check(single(layer), REFERENCE, choices=tiled(Tiling(4, 4, 8, 8, packed=True)))
    assert {job.ofm_shape for job in jobs(plan)} == {(1, 3 * 6 + 4, 8)}  # 5 columns of the input, and one of padding
    assert {(job.ifm_shape, job.ifm_row, job.padding) for job in jobs(plan)} == {((3, 24, 8), 6 * 8, (0, 0, 0, 0))}


def test_a_tile_that_sees_no_padding_needs_no_zero_points():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 12, 8)), 8, padding=SAME)
    plan = check(single(layer), replace(REFERENCE, dma_width=1), choices=tiled(Tiling(4, 4, 8, 8, packed=True)))
    # In a corner above or below, and on the left or on the right; on an edge one of them; in the middle none.
    assert len(fills(plan)) == 4 * 2 + 4 * 1
    valid = samples.conv2d(samples.tensor((1, 12, 12, 8)), 8)
    plan = check(single(valid), REFERENCE, choices=tiled(Tiling(5, 5, 8, 8, packed=True)))
    assert fills(plan) == []


def test_one_copy_fills_what_lies_between_all_rows_and_at_their_ends():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 6, 16)), 8, padding=SAME)
    plan = check(single(layer), replace(REFERENCE, dma_width=1), choices=tiled(Tiling(4, 6, 8, 16, packed=True)))
    assert [copy.rows for copy in fills(plan)] == [
        1,
        5,
        7,
        1,
        5,
    ]  # above, behind 5 rows; around 6 rows; below, before 5 rows


@pytest.mark.parametrize("quantization", [None, Quantization((0.5,), (7,))])
def test_padding_is_the_zero_point_of_the_layer_that_reads_it(quantization):
    """What goes before it may state none, or another one."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 12, 8)), 8, padding=SAME)
    assert layer.ifm.quantization.zero_point not in ((0,), (7,))
    check(behind_a_reshape(layer, quantization), REFERENCE, choices=tiled(Tiling(4, 4, 8, 8, packed=True), layers=2))


def test_tiles_of_the_same_input_differ_where_their_padding_does():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 2, 5, 8)), 8, padding=SAME)
    plan = check(single(layer), REFERENCE, choices=tiled(Tiling(1, 5, 8, 8, packed=True)))
    assert len(jobs(plan)) == 2


@pytest.mark.parametrize(
    ("width", "alignment"),
    [pytest.param(4, 1, marks=pytest.mark.slow), (2, 1), pytest.param(4, 4, marks=pytest.mark.slow)],
)
def test_narrow_tiles_fill_the_columns_of_the_array(width, alignment):
    """Local memory holds a few pixels of many channels."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 24, 24, 64)), 32, padding=SAME)
    hardware = replace(REFERENCE, activation_memory=4 * KIB, array_columns=32, dma_width=width)
    hardware = replace(hardware, dma_alignment=alignment)
    layout = lay_out_region(single(layer), hardware)
    assert any(group.tiling is not None and group.tiling.packed for group in layout.choices.groups)
    assert layout.cycles < 0.9 * lay_out_region(single(layer), replace(hardware, packed_rows=False)).cycles
    check(single(layer), hardware)


@pytest.mark.slow
def test_a_layer_whose_weights_have_no_room_is_in_packed_tiles():
    """Stripes of it could be packed, too, but each would load all weights."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 8, 8, 64)), 64, padding=SAME)
    small = replace(SMALL, activation_memory=12 * KIB, weight_memory=6 * KIB)
    layout = lay_out_region(single(layer), small)
    assert all(group.tiling is not None and group.tiling.packed for group in layout.choices.groups)
    assert layout.cycles < 0.8 * lay_out_region(single(layer), replace(small, packed_rows=False)).cycles
    check(single(layer), small)


def test_estimates_are_those_of_the_plan():
    """Jobs and copies of tiles of all forms: in corners, on edges, in the middle."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 12, 15, 8)), 8, padding=SAME)
    for tiling in (Tiling(4, 5, 8, 8, packed=True), Tiling(5, 15, 8, 8, packed=True), Tiling(12, 4, 8, 8, packed=True)):
        cost = Tiler(layer, tile_geometry(layer), REFERENCE).cost(tiling)
        ops = lay_out_region(single(layer), REFERENCE, tiled(tiling)).work.ops
        assert cost.jobs == sum(op.cycles for op in ops if op.is_job)
        assert cost.activations + cost.weights == sum(op.cycles for op in ops if not op.is_job)


@pytest.mark.parametrize("packed", [False, True])
def test_tiles_that_fit_have_room(packed):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 9, 9, 8)), 8, padding=(2, 1, 0, 1))
    for memory in (400, 700, 1100, 2000):
        hardware = accelerator(memory)
        tiler = Tiler(layer, tile_geometry(layer), hardware)
        for shape in ((1, 1), (2, 3), (3, 2), (4, 9), (8, 4)):
            tiling = Tiling(*shape, 8, 8, packed=packed)
            if tiler.fits(tiling):
                plan_region(single(layer), hardware, tiled(tiling))
            else:
                with pytest.raises(PlanError, match="local activation memory"):
                    plan_region(single(layer), hardware, tiled(tiling))


def test_a_tile_of_some_channels_of_a_depthwise_layer_loads_these_alone():
    """There is no slice that could come again, so its input is whole with these channels."""
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 9, 9, 16)), padding=SAME)
    hardware = accelerator(1700)
    for tiling in (Tiling(9, 9, 8, 1, whole_ifm=True), Tiling(9, 9, 8, 1, whole_ifm=True, packed=True)):
        assert Tiler(layer, tile_geometry(layer), hardware).fits(tiling)
        check(single(layer), hardware, choices=tiled(tiling))


def test_tiles_are_not_packed_where_they_cannot_be():
    samples = Samples()
    image = samples.tensor((1, 8, 8, 4))
    layers = {
        "a stride of 2": samples.conv2d(image, 4, strides=(2, 2)),
        "one row of all pixels": samples.conv2d(image, 4, (1, 1)),
        "outputs that see padding alone": samples.conv2d(image, 4, (2, 2), padding=(2, 0, 0, 0)),
        "a pool": samples.pool(image),
    }
    for layer in layers.values():
        assert not packs_tiles(layer, REFERENCE)
        with pytest.raises(PlanError, match=f"{layer.name}: a tiling fits its layer: got 2x2x4 from 1 .*, rows packed"):
            plan_region(single(layer), REFERENCE, tiled(Tiling(2, 2, 4, 1, packed=True)))
    layer = samples.conv2d(image, 4)
    with pytest.raises(PlanError, match=f"{layer.name}: a tiling fits its layer"):
        plan_region(single(layer), DIANA_DIGITAL, tiled(Tiling(2, 2, 4, 4, packed=True)))


def test_packed_tiles_are_tried_on_accelerators_that_have_packed_rows():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 24, 24, 64)), 64, padding=SAME)
    hardware = replace(REFERENCE, activation_memory=4 * KIB, array_columns=32)
    for packs in (True, False):
        found = list(tilings(layer, replace(hardware, packed_rows=packs), [(1, 1)]))
        assert {tiling.packed for tiling in found} == ({True, False} if packs else {False})


@st.composite
def packed_tiles(draw):
    """A graph of a layer, an accelerator, and choices of packed tiles, good or too large."""
    samples, drawn = Samples(draw(st.integers(0, 2**32 - 1))), random.Random(draw(st.integers(0, 2**32 - 1)))
    kernel = drawn.randint(1, 4), drawn.randint(1, 4)
    dilation = drawn.choice([(1, 1), (1, 1), (2, 1)])
    window = {
        "kernel": kernel,
        "padding": tuple(drawn.randint(0, kernel[side % 2] - 1) for side in range(4)),
        "dilation": dilation,
    }
    height, width = (drawn.randint(max(2, size * step), 14) for size, step in zip(kernel, dilation, strict=True))
    channels, groups = drawn.choice((1, 4, 6, 16)), drawn.choice((1, 1, 2))
    image = samples.tensor((1, height, width, channels * groups))
    if drawn.random() < 0.3:
        layer = samples.depthwise(image, **window)
    else:
        layer = samples.conv2d(image, drawn.choice((3, 8, 12)) * groups, groups=groups, **window)
    kinds = ("conv2d", "depthwise_conv2d")
    parts = REFERENCE.limits | {kind: replace(REFERENCE.limits[kind], max_kernel=(2, 3)) for kind in kinds}
    hardware = replace(
        REFERENCE,
        activation_memory=drawn.choice((2 * KIB, 8 * KIB, 64 * KIB)),
        array_columns=drawn.choice((4, 8, 16, 32)),
        array_rows=drawn.choice((4, 8)),
        depthwise_rows=drawn.choice((1, 4)),
        dma_width=drawn.choice((1, 4)),
        limits=drawn.choice((REFERENCE.limits, parts)),
    )
    form = tile_geometry(layer)
    sizes = form.rows.ofm, form.columns.ofm, form.group_channels, form.in_channels if form.sums else 1
    tiling = Tiling(
        *(drawn.randint(1, size) for size in sizes),
        rows_outer=drawn.random() < 0.3,
        whole_ifm=drawn.random() < 0.3,
        packed=True,
    )
    graph = drawn.choice((single(layer), behind_a_reshape(layer, None)))
    choices = tiled(tiling, len(graph.layers), pieces=drawn.choice((1, 4)))
    return graph, hardware, replace(choices, fine=drawn.random() < 0.5)


def check_packed(graph, hardware, choices):
    """Tiles that are packed are exact; others are refused."""
    layer = graph.layers[-1]
    tiler, tiling = Tiler(layer, tile_geometry(layer), hardware), choices.groups[0].tiling
    if packs_tiles(layer, hardware) and tiler.fits(tiling):
        check(graph, hardware, choices=choices)
    else:
        with pytest.raises(PlanError, match=r"a tiling fits its layer|local .* memory"):
            plan_region(graph, hardware, choices)


@pytest.mark.slow
@given(packed_tiles())
@settings(max_examples=8, deadline=None)
def test_packed_tiles_are_exact(case):
    check_packed(*case)


@pytest.mark.slow
@given(packed_tiles())
@settings(max_examples=30, deadline=None)
def test_many_packed_tiles_are_exact(case):
    check_packed(*case)
