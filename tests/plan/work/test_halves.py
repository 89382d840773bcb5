"""Copies and jobs that are cut in two."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plan_check import check_layout
from plan_choices import estimated
from plan_graphs import choices, joined_regions, regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.steps import Copy, Job
from byoc_hw.plan.work.halves import channel_cuts, channel_halves, copy_cuts, copy_halves, row_cuts, row_halves

EXAMPLES = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def ways_to_cut(op, layers, accelerator):
    """The ways to cut an operation, as functions of the place, with the places."""
    if isinstance(op.step, Copy):
        return [(copy_cuts(op, accelerator), lambda at: copy_halves(op, at, accelerator))]
    layer = layers[op.layer]
    return [
        (row_cuts(op, layer, accelerator), lambda at: row_halves(op, layer, at, accelerator)),
        (channel_cuts(op, layer, accelerator), lambda at: channel_halves(op, layer, at, accelerator)),
    ]


def with_cuts(layout, choose_cut):
    """The plan with its operations cut where `choose_cut` says, from the places and the operation."""
    layers, accelerator = layout.mapped.mapping.layers, layout.mapped.accelerator
    ops = []
    for op in layout.work.ops:
        ways = [(cuts, halves) for cuts, halves in ways_to_cut(op, layers, accelerator) if cuts]
        found = choose_cut(ways) if ways else None
        ops += [op] if found is None else found[1](found[0])
    work = replace(layout.work, ops=tuple(ops))
    return replace(layout, work=work, order=order(ops, layout.places))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [regions(most=5), joined_regions()], ids=["regions", "joined"])
@given(st.data())
@EXAMPLES
def test_plans_are_exact_wherever_operations_are_cut(kind, data):
    hardware, graph = data.draw(kind)
    chosen = replace(data.draw(choices(graph, hardware)), apart=False, fine=False)
    try:
        layout = lay_out_region(graph, hardware, chosen)
    except PlanError:
        assume(False)

    def anywhere(ways):
        cuts, halves = data.draw(st.sampled_from(ways))
        return (data.draw(st.sampled_from(cuts)), halves) if data.draw(st.integers(0, 3)) else None

    check_layout(with_cuts(layout, anywhere), graph, hardware)


def small_region():
    samples = Samples()
    image = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(image, 32, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 32, (1, 1))
    third = samples.add(first.ofm, second.ofm)
    last = samples.pool(third.ofm)
    return graph_of([image], [first, second, third, last], [second.ofm, last.ofm])


def check_cut_at_each_row(layout, graph, hardware, *, layer, rows):
    """The only operation of a layer with so many rows, cut at each of them, is exact."""
    for row in range(1, rows):

        def at_row(ways, row=row):
            alike = (halves for cuts, halves in ways if cuts == range(1, rows) and halves(row)[0].layer == layer)
            return next(((row, halves) for halves in alike), None)

        cut = with_cuts(layout, at_row)
        assert len(cut.work.ops) == len(layout.work.ops) + 1
        check_layout(cut, graph, hardware)


def test_a_run_with_one_value_for_all_elements_is_cut_at_any_row():
    samples = Samples()
    layer = samples.mul(samples.tensor((1, 4, 2, 4)), samples.tensor((1,)))
    graph, hardware = graph_of([*layer.inputs], [layer], [layer.ofm]), accelerator()
    layout = lay_out_region(graph, hardware, Choices((False,), (Group(1),), (None,), False))
    check_cut_at_each_row(layout, graph, hardware, layer=0, rows=4)


def test_an_addition_over_packed_rows_whose_last_one_ends_with_its_image_is_cut_at_any_row():
    graph, hardware = small_region(), replace(REFERENCE, array_rows=8, dma_width=2)
    chosen = replace(estimated(graph, hardware), groups=(Group(4),), blocks=(None,) * 4, fine=False)
    layout = lay_out_region(graph, hardware, chosen)
    (added,) = (op for op in layout.work.ops if op.is_job and op.layer == 2)
    rows, rest = divmod(added.step.ofm_shape[1], added.step.image.pitch * 32)
    assert (rows, rest) == (7, 8 * 32), "eight rows, with what is between them"
    check_cut_at_each_row(layout, graph, hardware, layer=2, rows=8)


@pytest.mark.parametrize("packed", [False, True], ids=["rows apart", "rows packed"])
def test_every_operation_of_a_small_region_can_be_cut_in_the_middle(packed):
    graph = small_region()
    hardware = replace(REFERENCE, array_rows=8, dma_width=2, packed_rows=packed)
    layout = lay_out_region(graph, hardware, estimated(graph, hardware))
    for way in (0, -1):
        cut = with_cuts(layout, lambda ways, way=way: (ways[way][0][len(ways[way][0]) // 2], ways[way][1]))
        assert len(cut.work.ops) > 1.5 * len(layout.work.ops)
        check_layout(cut, graph, hardware)


def test_both_parts_of_a_job_take_its_cycles():
    graph = small_region()
    hardware = replace(REFERENCE, array_rows=8, job_setup=0)
    layout = lay_out_region(graph, hardware, estimated(graph, hardware))
    jobs = [op for op in layout.work.ops if isinstance(op.step, Job) and op.layer in (0, 1)]
    assert jobs
    for op in jobs:
        for cuts, halves in ways_to_cut(op, layout.mapped.mapping.layers, hardware):
            for at in cuts:
                assert sum(part.cycles for part in halves(at)) == op.cycles


def test_a_copy_is_cut_between_words_of_the_dma():
    graph = small_region()
    hardware = replace(REFERENCE, dma_width=8, dma_alignment=4)
    layout = lay_out_region(graph, hardware, estimated(graph, hardware))
    copies = [op for op in layout.work.ops if isinstance(op.step, Copy)]
    assert any(op.step.rows == 1 for op in copies)
    for op in copies:
        for at in copy_cuts(op, hardware):
            first, second = copy_halves(op, at, hardware)
            assert first.cycles + second.cycles == op.cycles + hardware.dma_setup - hardware.dma_row_setup * (
                op.step.rows > 1
            )
            assert all(part.step.nbytes % hardware.dma_alignment == 0 for part in (first, second))
