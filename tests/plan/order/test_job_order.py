"""Jobs in another order than that of the layers."""

from dataclasses import replace

from plan_check import check
from plan_choices import estimated
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.order.job_order import Reordering
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.steps import ACTIVATIONS, SCRATCH, Address, Copy, Job
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op

SLOW = replace(REFERENCE, label="SLOW", dma_width=1, packed_rows=False, depthwise_rows=1)


def branches():
    """A convolution with many weights, a depthwise one with few of them, and the sum of both."""
    samples = Samples()
    image = samples.tensor((1, 8, 8, 16))
    wide = samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))
    deep = samples.depthwise(image, (3, 3), padding=(1, 1, 1, 1))
    added = samples.add(wide.ofm, deep.ofm)
    return graph_of([image], [wide, deep, added], [added.ofm])


def laid_out(graph, fine):
    chosen = replace(estimated(graph, SLOW), fine=fine)
    check(graph, SLOW, choices=chosen)
    return lay_out_region(graph, SLOW, chosen)


def test_the_layer_whose_weights_are_there_first_is_computed_first():
    plain, fine = (laid_out(branches(), fine) for fine in (False, True))
    assert [one.work.ops[one.order.jobs[0]].layer for one in (plain, fine)] == [0, 1]
    assert fine.cycles < 0.9 * plain.cycles


def test_each_order_has_all_of_the_work_and_what_a_job_needs_before_it():
    plain = laid_out(branches(), False)
    jobs = Reordering(plain.work.ops)
    runs = tuple(range(len(jobs.runs)))
    for other in jobs.moves(runs):
        ops = jobs.ops(other)
        assert set(ops) == set(plain.work.ops)
        layers = [op.layer for op in ops if op.is_job]
        assert layers[-1] == 2, "the sum is of both"
        loaded = set()
        for op in ops:
            reads = {one.place for one in op.accesses if not one.writes and op.is_job}
            assert reads <= loaded
            loaded |= {one.place for one in op.accesses if one.writes}


def test_the_order_of_the_layers_is_kept_where_no_other_one_is_faster():
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 16)), 16, (1, 1))]
    layers.append(samples.conv2d(layers[0].ofm, 16, (1, 1)))
    fine = laid_out(graph_of([layers[0].ifm], layers, [layers[1].ofm]), True)
    order = [fine.work.ops[index].layer for index in fine.order.jobs]
    assert order == sorted(order)


def test_copies_that_hang_on_each_other_in_many_ways_are_ordered_at_once():
    """Each copy needs the two before it: from the last to the first there are more ways than can be tried."""
    buffer = LocalBuffer("buffer", ACTIVATIONS, 64)
    ops = []
    for index in range(62):
        target, source = (ACTIVATIONS, SCRATCH) if index == 61 else (SCRATCH, ACTIVATIONS)
        accesses = [Access(buffer, at, at + 1, at == index) for at in range(max(0, index - 2), index + 1)]
        ops.append(Op(Copy(Address(target), Address(source), 1), 0, tuple(accesses), {}, 1))
    job = Job(0, 0, (1, 1, 1), (1, 1, 1), 1, 1, 1, 1)
    ops.append(Op(job, 0, (Access(buffer, 61, 62, False),), {}, 1))
    assert Reordering(ops).ops((0,)) == tuple(ops)
