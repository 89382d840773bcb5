"""What waits for what, the order of copies, and the waits in the steps."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_check import check
from plan_choices import estimated
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.order.waits import with_waits
from byoc_hw.plan.region import lay_out_region, plan_region
from byoc_hw.plan.steps import ACTIVATIONS, SLOTS, WEIGHTS, Address, Copy, CopyWait, Job, JobWait
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op

UNPACKED = replace(REFERENCE, packed_rows=False)
"""Where no copy fills what a job has left between rows, and so waits for it."""


def buffer(nbytes=16):
    return LocalBuffer("buffer", ACTIVATIONS, nbytes)


def op(step, reads, writes, cycles=10):
    accesses = [Access(one, 0, one.nbytes, one in writes) for one in (*reads, *writes)]
    return Op(step, 0, tuple(accesses), {}, cycles)


def load(target, cycles=10):
    return op(Copy(Address(ACTIVATIONS), Address(ACTIVATIONS), 1), (), (target,), cycles)


def store(source, cycles=10):
    return op(Copy(Address(ACTIVATIONS), Address(ACTIVATIONS), 1), (source,), (), cycles)


def job(reads, writes, cycles=10):
    return op(Job(0, 0, (1, 1, 1), (1, 1, 1), 1, 1, 1, 1), reads, writes, cycles)


def steps_of(ops, offsets, queue=64):
    return [owned.step for owned in with_waits(ops, offsets, order(ops, offsets), queue)]


def kinds(steps):
    return [type(step).__name__ for step in steps]


def apart(*buffers):
    return {one: 16 * index for index, one in enumerate(buffers)}


def test_reader_waits_for_the_writer_and_the_next_writer_for_the_readers():
    ifm, ofm, after = buffer(), buffer(), buffer()
    ops = [load(ifm), job((ifm,), (ofm,)), store(ofm), load(after)]
    assert dependencies(ops, {ifm: 0, ofm: 16, after: 0}) == [set(), {0}, {1}, {0, 1}]


def test_buffers_depend_on_each_other_where_they_share_bytes():
    ifm, ofm, after = buffer(), buffer(), buffer()
    ops = [load(ifm), job((ifm,), (ofm,)), load(after)]
    for offset, expected in ((15, {0, 1}), (32, set()), (31, {1})):
        assert dependencies(ops, {ifm: 0, ofm: 16, after: offset})[2] == expected


def test_neither_readers_nor_jobs_depend_on_each_other():
    ifm, one, two = buffer(), buffer(), buffer()
    ops = [job((), (ifm,)), job((ifm,), (one,)), store(ifm), job((one, ifm), (two,)), job((), (two,))]
    assert dependencies(ops, apart(ifm, one, two)) == [set(), set(), {0}, set(), set()]


def test_copy_that_is_needed_first_goes_first():
    late, soon, ofm = buffer(), buffer(), buffer()
    ops = [load(late), load(soon), job((soon,), (ofm,)), job((late,), (ofm,))]
    found = order(ops, apart(late, soon, ofm))
    assert (found.copies, found.jobs) == ([1, 0], [2, 3])
    assert found.cycles == 30


def test_one_wait_covers_all_that_its_engine_began_before():
    first, second, ofm, last = buffer(), buffer(), buffer(), buffer()
    ops = [load(first), load(second), job((first, second), (ofm,)), job((first, ofm), (last,)), store(last)]
    steps = steps_of(ops, apart(first, second, ofm, last))
    assert kinds(steps) == ["Copy", "Copy", "CopyWait", "Job", "Job", "JobWait", "Copy", "CopyWait"]
    assert (steps[0].slot, steps[3].slot) == (0, 0)
    assert (steps[1].slot, steps[4].slot) == (steps[2].slot, steps[5].slot)


def test_next_job_is_asked_for_before_the_host_waits_for_the_one_in_front():
    one, two = buffer(), buffer()
    steps = steps_of([job((), (one,), 100), store(one), job((), (two,), 100)], apart(one, two))
    assert kinds(steps) == ["Job", "Job", "JobWait", "Copy", "CopyWait", "JobWait"]


def deep(layers=40):
    """Many small layers, whose weights are all prefetched."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 8))
    made = []
    for _ in range(layers):
        made.append(samples.conv2d(made[-1].ofm if made else ifm, 8, padding=(1, 1, 1, 1)))
    return graph_of([ifm], made, [made[-1].ofm])


def test_job_waits_for_its_weights_but_not_for_the_job_before():
    graph = deep(3)
    plan = plan_region(graph, UNPACKED, estimated(graph, UNPACKED))
    waits = [step for step in plan.steps if isinstance(step, JobWait)]
    stores = [step for step in plan.steps if isinstance(step, Copy) and step.source.space == ACTIVATIONS]
    assert 0 < len(waits) == len(stores)


def test_a_long_copy_waits_for_a_short_one_that_is_needed_earlier():
    first, second, result, late = buffer(), buffer(), buffer(), buffer()
    ops = [load(first), job((first,), (result,), 12), store(result), load(late, 500)]
    ops += [job((), (result,), 300), job((late,), (second,), 10)]
    found = order(ops, apart(first, second, result, late))
    assert found.copies == [0, 2, 3]
    assert (found.start[2], found.start[4], found.start[3]) == (22, 32, 32)


def test_where_tokens_run_out_the_host_waits_earlier():
    weights, ofm = [buffer() for _ in range(40)], buffer()
    ops = [load(one) for one in weights] + [job((one,), (ofm,), 100) for one in weights]
    steps = steps_of(ops, apart(*weights, ofm))
    held, most = {}, 0
    for step in steps:
        if isinstance(step, Copy) and step.slot:
            assert step.slot not in held
            held[step.slot] = step
        elif isinstance(step, CopyWait):
            done = list(held).index(step.slot)
            held = dict(list(held.items())[done + 1 :])
        most = max(most, len(held))
    assert most == SLOTS - 1
    assert kinds(steps).count("Job") == 40


def replayed(ops, offsets, queue):
    """The cycles of the steps: the host takes none, and waits for room in a queue too."""
    owned, now, ends, slots = with_waits(ops, offsets, order(ops, offsets), queue), 0, {True: [], False: []}, {}
    for one in owned:
        if one.op is None:
            now = max(now, slots[one.step.slot])
            continue
        mine = ends[ops[one.op].is_job]
        now = max(now, mine[-queue] if len(mine) >= queue else 0)
        mine.append(max(now, *mine[-1:], 0) + ops[one.op].cycles)
        slots[one.step.slot] = mine[-1]
    return max(map(max, filter(None, ends.values())), default=0)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 4, 8, 64]))
def test_no_queue_and_no_number_of_tokens_costs_cycles(seed, queue):
    """No start and no wait of the host holds the other engine back."""
    rng = Random(seed)
    buffers = [buffer() for _ in range(rng.choice([3, 10, 40]))]
    longest = rng.choice([5, 50, 3000])
    ops = [
        rng.choice([load, store, lambda one, cycles: job((one,), (rng.choice(buffers),), cycles)])(
            rng.choice(buffers), rng.randint(0, longest)
        )
        for _ in range(rng.choice([5, 60, 200]))
    ]
    offsets = apart(*buffers)
    assert replayed(ops, offsets, queue) == order(ops, offsets).cycles


def test_plan_with_more_copies_under_way_than_tokens_runs():
    graph = deep()
    plan = check(graph, UNPACKED, choices=estimated(graph, UNPACKED))
    assert {step.slot for step in plan.steps} == set(range(SLOTS))


def where(step):
    """A job, or the local bytes of a copy: its other end may have been moved in scratch."""
    if isinstance(step, Job):
        return step._replace(slot=0)
    return step.nbytes, step.rows, *(one for one in (step.target, step.source) if one.space in (ACTIVATIONS, WEIGHTS))


@pytest.mark.slow
@pytest.mark.parametrize("hardware", [REFERENCE, accelerator(900, 1200)], ids=["reference", "tiny"])
def test_steps_take_the_cycles_of_the_order_and_keep_it(hardware):
    graph = deep(6)
    laid = lay_out_region(graph, hardware)
    plan = plan_region(graph, hardware)
    assert laid.cycles == timeline(plan, hardware).total
    for kind, indices in ((Copy, laid.order.copies), (Job, laid.order.jobs)):
        expected = [laid.work.ops[index].at(laid.places) for index in indices]
        assert list(map(where, (step for step in plan.steps if isinstance(step, kind)))) == list(map(where, expected))
