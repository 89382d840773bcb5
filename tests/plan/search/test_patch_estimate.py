"""Estimates of groups in patches and slices."""

from dataclasses import replace

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.patch_estimate import PatchedGroup
from byoc_hw.plan.stages import lay_out

HARDWARE = accelerator(10 * 1024, dma_width=4)


def bottleneck():
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 24, 24, 16)), 96, (1, 1))
    deep = samples.depthwise(wide.ofm, strides=(2, 2), padding=(1, 1, 1, 1))
    narrow = samples.conv2d(deep.ofm, 24, (1, 1))
    return graph_of([wide.ifm], [wide, deep, narrow], [narrow.ofm])


def separable():
    samples = Samples()
    deep = samples.depthwise(samples.tensor((1, 24, 24, 64)), padding=(1, 1, 1, 1))
    point = samples.conv2d(deep.ofm, 96, (1, 1))
    return graph_of([deep.ifm], [deep, point], [point.ofm])


def group_of(mapped, layers):
    grouping, nothing = Grouping(mapped), frozenset()
    return grouping, PatchedGroup(grouping.estimates, 0, layers, nothing, nothing, nothing)


@pytest.mark.parametrize(("stripes", "columns", "slices"), [(6, 1, 6), (12, 1, 3), (3, 2, 6), (6, 2, 2), (4, 4, 1)])
@pytest.mark.parametrize("overlap", [True, False])
def test_cycles_are_about_those_of_the_plan(stripes, columns, slices, overlap):
    mapped = map_graph(bottleneck(), HARDWARE)
    grouping, group = group_of(mapped, 3)
    estimated = group.cycles(stripes, columns, slices, overlap, 1 << 20)
    made = Group(3, stripes, overlap=overlap, columns=columns, slices=slices)
    large = map_graph(bottleneck(), accelerator(1 << 20, dma_width=4))
    found = lay_out(large, Choices(mapped.mapping.swapped, (made,), grouping.blocks))
    assert estimated == pytest.approx(found.cycles, rel=0.15)


@pytest.mark.parametrize(("stripes", "columns", "slices"), [(1, 1, 2), (2, 1, 4), (3, 1, 4), (3, 2, 1)])
def test_cycles_with_an_input_that_comes_in_slices_are_about_those_of_the_plan(stripes, columns, slices):
    mapped = map_graph(separable(), HARDWARE)
    grouping, group = group_of(mapped, 2)
    estimated = group.cycles(stripes, columns, slices, True, 1 << 20)
    made = Group(2, stripes, columns=columns, slices=slices)
    large = map_graph(separable(), accelerator(1 << 20, dma_width=4))
    found = lay_out(large, Choices(mapped.mapping.swapped, (made,), grouping.blocks))
    assert estimated == pytest.approx(found.cycles, rel=0.2)


@pytest.mark.parametrize(("graph", "layers"), [(bottleneck(), 3), (separable(), 2)], ids=["expand", "depthwise"])
@pytest.mark.parametrize("overlap", [True, False])
def test_cycles_that_are_not_counted_in_full_are_no_more(graph, layers, overlap):
    mapped = map_graph(graph, HARDWARE)
    fewer = 0
    for columns, slices in (*group_of(mapped, layers)[1].forms(False), *group_of(mapped, layers)[1].forms(True)):
        for stripes in (1, 2, 5, 12):
            form = stripes, columns, slices, overlap, 1 << 20
            least, exact = group_of(mapped, layers)[1].cycles(*form, 0), group_of(mapped, layers)[1].cycles(*form)
            assert least <= exact
            fewer += least < exact
            assert group_of(mapped, layers)[1].cycles(*form, exact + 1) == exact
    assert fewer > 5


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "layers"), [(bottleneck(), 3), (separable(), 2)], ids=["expand", "depthwise"])
def test_what_fits_by_estimate_without_overlap_fits(graph, layers):
    mapped = map_graph(graph, HARDWARE)
    grouping, group = group_of(mapped, layers)
    fit = 0
    for columns, slices in (*group.forms(False), *group.forms(True)):
        for stripes in (2, 3, 4, 6, 12):
            if group.cycles(stripes, columns, slices, False, 9 * 1024) is None:
                continue
            made = Group(layers, stripes, overlap=False, columns=columns, slices=slices)
            lay_out(mapped, Choices(mapped.mapping.swapped, (made,), grouping.blocks))
            fit += 1
    assert fit > 5


def test_forms_are_slices_of_whole_rows_of_the_array_and_columns():
    _, group = group_of(map_graph(bottleneck(), HARDWARE), 2)
    slices = {count for columns, count in group.forms(False) if columns == 1}
    assert slices == {2, 3, 6}
    assert {columns for columns, _ in group.forms(False)} == {1}  # the output is narrower than the array


def test_fine_forms_are_narrow_columns_and_slices_of_a_part_of_a_row_of_the_array():
    _, group = group_of(map_graph(bottleneck(), HARDWARE), 2)
    found = list(group.forms(True))
    assert {count for columns, count in found if columns == 1} == {12, 24}
    assert {columns for columns, _ in found} == {1, 2, 3, 4, 6, 12}
    assert not set(found) & set(group.forms(False))


@pytest.mark.parametrize("graph", [bottleneck(), separable()], ids=["expand", "depthwise"])
@pytest.mark.parametrize(("stripes", "columns", "slices"), [(2, 1, 6), (4, 1, 3), (3, 2, 4)])
@pytest.mark.parametrize("overlap", [True, False])
def test_cycles_and_bytes_of_slices_that_are_summed_are_about_those_of_the_plan(
    graph, stripes, columns, slices, overlap
):
    mapped, nothing = map_graph(graph, HARDWARE), frozenset()
    grouping = Grouping(mapped)
    count = len(graph.layers)
    group = PatchedGroup(grouping.estimates, 0, count, nothing, nothing, nothing, summed=True)
    made = Group(count, stripes, overlap=overlap, columns=columns, slices=slices, summed=True)
    choices = Choices(mapped.mapping.swapped, (made,), grouping.blocks)
    fits = next(size for size in range(1024, 1 << 20, 512) if group.cycles(stripes, columns, slices, overlap, size))
    large = accelerator(1 << 20, dma_width=4)
    found = lay_out(map_graph(graph, large), choices)
    if overlap:
        assert group.cycles(stripes, columns, slices, overlap, 1 << 20) == pytest.approx(found.cycles, rel=0.2)
    lay_out(map_graph(graph, accelerator(round(1.1 * fits) // 16 * 16, dma_width=4)), choices)
    with pytest.raises(PlanError):
        lay_out(map_graph(graph, accelerator(fits // 2 // 16 * 16, dma_width=4)), choices)


@pytest.mark.parametrize(("stripes", "columns", "slices"), [(4, 1, 6), (12, 1, 3), (3, 2, 6)])
def test_cycles_of_outer_slices_are_about_those_of_the_plan(stripes, columns, slices):
    """Where weight memory has room for one slice."""
    wide, deep, _ = bottleneck().layers
    graph, nothing = graph_of([wide.ifm], [wide, deep], [deep.ofm]), frozenset()
    hardware = accelerator(1 << 20, weights=3 * 1024, dma_width=4)
    mapped = map_graph(graph, hardware)
    grouping = Grouping(mapped)
    group = PatchedGroup(grouping.estimates, 0, 2, nothing, nothing, nothing, outer=True)
    assert group.possible()
    estimated = group.cycles(stripes, columns, slices, True, 1 << 20)
    made = Group(2, stripes, columns=columns, slices=slices, slices_outer=True)
    found = lay_out(mapped, Choices(mapped.mapping.swapped, (made,), grouping.blocks))
    assert estimated == pytest.approx(found.cycles, rel=0.15)


def test_slices_are_outer_where_weights_do_not_stay_alone():
    wide, deep, narrow = bottleneck().layers
    nothing = frozenset()

    def group(layers, weights):
        graph = graph_of([wide.ifm], layers, [layers[-1].ofm])
        estimates = Grouping(map_graph(graph, accelerator(1 << 20, weights=weights))).estimates
        return PatchedGroup(estimates, 0, len(layers), nothing, nothing, nothing, outer=True)

    assert group([wide, deep], 2048).possible()
    assert group([wide, deep], 2048).cycles(4, 1, 2, True, 1 << 20) is None  # a slice has no room
    assert not group([wide, deep], 1 << 16).possible()
    assert not group([wide, deep, narrow], 2048).possible()


def test_slices_that_are_loaded_one_by_one_are_few():
    """Also where a layer without slices ends the group: there may be as many slices as channels elsewhere."""
    samples = Samples()
    graph = separable()
    layers = [*graph.layers, samples.add(graph.layers[-1].ofm, graph.layers[-1].ofm)]
    mapped = map_graph(graph_of(graph.inputs, layers, [layers[-1].ofm]), HARDWARE)
    for count in (2, 3):
        _, group = group_of(mapped, count)
        assert [slices for columns, slices in (*group.forms(False), *group.forms(True)) if columns == 1] == [2, 4, 8]


def test_matrix_product_is_not_possible_in_patches():
    samples = Samples()
    product = samples.matmul(samples.tensor((1, 6, 1, 4)), samples.tensor((1, 5, 4)))
    graph = graph_of([product.ifm, product.ifm2], [product], [product.ofm])
    assert not group_of(map_graph(graph, HARDWARE), 1)[1].possible()
    with pytest.raises(PlanError, match="has no patches"):
        lay_out(map_graph(graph, HARDWARE), Choices((False,), (Group(1, 2, columns=2),), (None,)))


@pytest.mark.parametrize(
    ("stripes", "columns", "slices", "summed"), [(6, 1, 6, False), (3, 2, 6, True), (6, 2, 3, True)]
)
def test_cycles_of_slices_in_alternating_order_are_about_those_of_the_plan(stripes, columns, slices, summed):
    """Where weight memory has room for some of them, and the DMA takes longer than the array."""
    hardware, nothing = accelerator(1 << 20, weights=4 * 1024, dma_width=1), frozenset()
    mapped = map_graph(bottleneck(), hardware)
    grouping = Grouping(mapped)
    group = PatchedGroup(grouping.estimates, 0, 3, nothing, nothing, nothing, summed=summed)
    form = Group(3, stripes, resident=False, columns=columns, slices=slices, summed=summed)
    found = []
    for alternating in (False, True):
        estimated = group.cycles(stripes, columns, slices, True, 1 << 20, alternating=alternating)
        made = replace(form, alternating=alternating)
        plan = lay_out(mapped, Choices(mapped.mapping.swapped, (made,), grouping.blocks))
        assert estimated == pytest.approx(plan.cycles, rel=0.15)
        found.append(plan.cycles)
    assert found[1] < 0.9 * found[0]
