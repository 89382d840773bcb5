"""The jobs and copies of a group's stripes."""

from dataclasses import replace
from math import prod

import pytest
from plan_check import check
from plan_choices import layer_by_layer
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, Copy, Job, JobWait
from byoc_hw.plan.work.builder import WorkBuilder
from byoc_hw.plan.work.groups import region_work

SAME = (1, 1, 1, 1)


def chain(layers=2, height=12):
    samples = Samples()
    ifm = samples.tensor((1, height, 6, 4))
    made = []
    for _ in range(layers):
        made.append(samples.conv2d(made[-1].ofm if made else ifm, 4, padding=SAME))
    return graph_of([ifm], made, [made[-1].ofm])


def in_stripes(count, layers=1, blocks=None, **options):
    return Choices((False,), (Group(layers, count, **options),), (blocks,) * layers)


def steps_of(plan, kind):
    return [step for step in plan.steps if isinstance(step, kind)]


def stored(plan, space):
    """The bytes of a space that copies write, each as often as they do."""
    copies = [step for step in steps_of(plan, Copy) if step.target.space == space]
    return sorted(
        step.target.offset + row * step.target_stride + byte
        for step in copies
        for row in range(step.rows)
        for byte in range(step.nbytes)
    )


def work_of(graph, choices):
    work, _ = region_work(map_graph(graph, REFERENCE, choices.swapped, choices.copies_transpose), choices)
    return work


@pytest.mark.parametrize(
    ("limit", "rule"),
    [({"most": 20}, "at most 20 jobs and copies are wanted"), ({"below": 2000}, "fewer than 2000 cycles are wanted")],
)
def test_work_beyond_a_limit_is_not_carried_out_to_its_end(monkeypatch, limit, rule):
    """Of 12 stripes."""
    mapped, choices, made = map_graph(chain(), REFERENCE), in_stripes(12, 2), []
    add = WorkBuilder.add
    monkeypatch.setattr(WorkBuilder, "add", lambda region, unit: made.append(unit) or add(region, unit))
    with pytest.raises(PlanError, match=rule):
        region_work(mapped, choices, **limit)
    assert 1 < len(made) < 12


def test_pointwise_convolution_is_one_row_of_all_pixels():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 6, 5, 8)), 8, (1, 1))
    for stripes, pixels in ((1, [30]), (2, [15, 15])):
        plan = check(single(layer), REFERENCE, choices=in_stripes(stripes))
        assert [job.ofm_shape for job in steps_of(plan, Job)] == [(1, count, 8) for count in pixels]


def test_pointwise_convolution_keeps_its_rows_where_these_fill_the_array():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 2, 16, 8)), 8, (1, 1))
    plan = check(single(layer), REFERENCE, choices=in_stripes(1))
    assert [job.ofm_shape for job in steps_of(plan, Job)] == [(2, 16, 8)]


def test_pixels_of_a_tensor_that_is_no_image_are_rows():
    """A dense layer of twelve tokens, its addition, and a product whose second input has an item of several rows."""
    samples = Samples()
    tokens = samples.tensor((12, 8))
    dense = samples.dense(tokens, 8)
    added = samples.add(dense.ofm, dense.ofm)
    graph = graph_of([tokens], [dense, added], [added.ofm])
    for stripes, rows in ((1, [12]), (3, [4, 4, 4])):
        plan = check(graph, REFERENCE, choices=replace(in_stripes(stripes, 2), swapped=(False, False)))
        assert [prod(job.ofm_shape) // 8 for job in steps_of(plan, Job)] == [many for many in rows for _ in range(2)]
    items = samples.tensor((2, 5, 8))
    product = samples.matmul(samples.tensor((2, 6, 1, 8)), items)
    plan = check(single(product), REFERENCE, choices=in_stripes(4))
    assert [job.ofm_shape for job in steps_of(plan, Job)] == [(1, 3, 5)] * 4


def test_slices_of_depth_are_summed_in_psum():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 10)), 6)
    plan = check(single(layer), REFERENCE, choices=in_stripes(1, blocks=Blocks(3, 4)))
    jobs = steps_of(plan, Job)
    assert [(job.first, job.last) for job in jobs] == [(True, False), (False, False), (False, True)] * 2
    assert [(job.ifm_shape[2], job.ofm_shape[2]) for job in jobs] == [(4, 3), (4, 3), (2, 3)] * 2
    assert jobs[0].psum == jobs[1].psum == jobs[2].psum
    assert sum(prod(job.ofm_shape) for job in jobs if job.last) == layer.ofm.elements


@pytest.mark.parametrize("stripes", [1, 2, 5])
@pytest.mark.parametrize("overlap", [True, False])
def test_each_byte_of_an_output_is_stored_once(stripes, overlap):
    graph = chain(3)
    graph = replace(graph, outputs=(graph.outputs[0], graph.layers[0].ofm))  # rows of the halo are made twice
    plan = check(graph, REFERENCE, choices=in_stripes(stripes, 3, overlap=overlap))
    for index, tensor in enumerate(graph.outputs):
        assert stored(plan, ARGUMENT + 1 + index) == list(range(tensor.nbytes))
    made = sum(prod(job.ofm_shape) for job in steps_of(plan, Job))
    assert (made > sum(layer.ofm.elements for layer in graph.layers)) == (stripes > 1)


@pytest.mark.parametrize(("overlap", "order"), [(True, "LLJLJSJSS"), (False, "LJSLJSLJS")])
def test_stripe_is_loaded_before_the_one_in_front_and_stored_after_the_one_behind_is_computed(overlap, order):
    graph = chain(1)
    kinds = ""
    for op in work_of(graph, in_stripes(3, overlap=overlap)).ops:
        if isinstance(op.step, Job):
            kinds += "J"
        elif op.step.target.space >= ARGUMENT:
            kinds += "S"
        elif op.step.source.space >= ARGUMENT:
            kinds += "L"
    assert kinds == order


def test_load_of_the_second_stripe_is_begun_before_the_first_one_s_job_is_waited_for():
    plan = check(chain(1), accelerator(2000), choices=in_stripes(2))
    steps = plan.steps
    loads = [at for at, step in enumerate(steps) if isinstance(step, Copy) and step.source.space == ARGUMENT]
    waits = [at for at, step in enumerate(steps) if isinstance(step, JobWait)]
    assert len(loads) == 2
    assert loads[1] < waits[0]


def test_placing_a_plan_moves_scratch_and_nothing_else():
    graph = chain(4)
    hardware = accelerator(700)
    plan = check(graph, hardware, choices=layer_by_layer(graph, hardware))
    blocks = [block.name for block in plan.memory.scratch]
    offsets = {name: 1000 * (index + 1) for index, name in enumerate(blocks)}
    moved = plan.placed(offsets)
    assert len(blocks) == 3
    for before, after in zip(plan.steps, moved.steps, strict=True):
        for side in ("target", "source") if isinstance(before, Copy) else ():
            one, other = getattr(before, side), getattr(after, side)
            if one.space == SCRATCH:
                origin = next(place.offset for place in plan.tensors.values() if place.block == one.block)
                one = one._replace(offset=one.offset - origin + offsets[one.block])
            assert one == other
            after = after._replace(**{side: getattr(before, side)})
        assert before == after
    assert moved.scratch_bytes == 3000 + plan.memory.scratch[-1].nbytes
    assert moved.placed(dict.fromkeys(blocks, 0)).scratch_bytes == max(one.nbytes for one in plan.memory.scratch)
