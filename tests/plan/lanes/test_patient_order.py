"""The order of DMAs that know what becomes urgent soon."""

from byoc_hw.plan.lanes.joint import JointWork, joint_order, patient_order
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, Address, Copy, JobWait
from byoc_hw.plan.work.ops import Op

COPY = Copy(Address(ACTIVATIONS, 0), Address(ARGUMENT, 0), 1)
JOB = JobWait()  # any step that is no copy


def work_of(*rows):
    """Operations: what they are, their lane, their cycles, and those before them."""
    ops = tuple(Op(step, 0, (), {}, cycles) for step, _, cycles, _ in rows)
    lanes = tuple(lane for _, lane, _, _ in rows)
    return JointWork(ops, (0,) * len(rows), lanes, [set(before) for *_, before in rows], [])


URGENT = (
    (JOB, 0, 10, ()),
    (COPY, 0, 10, (0,)),  # stores what the first job made
    (JOB, 1, 200, (1,)),  # reads it
    (COPY, 0, 100, ()),  # weights that are needed later
    (JOB, 0, 10, (3,)),
)


def test_a_long_copy_waits_for_an_urgent_one_that_can_start_soon():
    eager, patient = (order(work_of(*URGENT)) for order in (joint_order, patient_order))
    assert (eager.start[3], eager.start[1], eager.cycles) == (0, 100, 310)
    assert (patient.start[1], patient.start[3], patient.cycles) == (10, 20, 220)


def test_a_short_copy_is_done_in_the_meantime():
    patient = patient_order(work_of(*URGENT, (COPY, 0, 8, ()), (JOB, 0, 1, (5,))))
    assert [patient.start[at] for at in (5, 1, 3)] == [0, 10, 20]


def test_a_copy_that_is_urgent_too_late_is_not_waited_for():
    late = ((JOB, 0, 60, ()), *URGENT[1:])
    assert patient_order(work_of(*late)).start[3] == 0


def test_patience_costs_no_cycles():
    """Waiting keeps the last job back here: the eager order is kept."""
    work = work_of((JOB, 0, 10, ()), (COPY, 0, 10, (0,)), (JOB, 1, 5, (1,)), (COPY, 0, 100, ()), (JOB, 0, 90, (3,)))
    assert patient_order(work).cycles == joint_order(work).cycles == 190
