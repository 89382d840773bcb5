from dataclasses import replace

import pytest

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan import ACTIVATIONS, SCRATCH, SLOTS, WEIGHTS, Address, Copy, CopyWait, Job, JobWait
from byoc_hw.plan.sequence import Sequencer, Span

JOB = Job(0, 0, (1, 1, 1), (1, 1, 1), 1, 1, 1, 1)


def load(start, nbytes=16, space=ACTIVATIONS):
    return Copy(Address(space, start), Address(SCRATCH), nbytes)


def store(start, nbytes=16):
    return Copy(Address(SCRATCH), Address(ACTIVATIONS, start), nbytes)


def span(start, nbytes=16, space=ACTIVATIONS):
    return (Span(space, start, start + nbytes),)


def kinds(sequencer):
    return [type(step) for step in sequencer.finish()]


@pytest.fixture
def sequencer():
    return Sequencer("layer", REFERENCE)


def test_job_waits_for_the_copy_that_brings_its_input(sequencer):
    sequencer.copy(load(0))
    sequencer.job(JOB, span(0), span(64))
    assert kinds(sequencer) == [Copy, CopyWait, Job, JobWait]


def test_copy_waits_for_the_job_that_makes_what_it_takes(sequencer):
    sequencer.job(JOB, span(0), span(64))
    sequencer.copy(store(64))
    assert kinds(sequencer) == [Job, JobWait, Copy, CopyWait]


def test_copy_waits_for_the_job_that_still_reads_what_it_overwrites(sequencer):
    sequencer.job(JOB, span(0), span(64))
    sequencer.copy(load(8))
    assert kinds(sequencer) == [Job, JobWait, Copy, CopyWait]


def test_copy_waits_for_the_job_that_still_writes_what_it_overwrites(sequencer):
    sequencer.job(JOB, span(0), span(64))
    sequencer.copy(load(64))
    assert kinds(sequencer) == [Job, JobWait, Copy, CopyWait]


def test_job_waits_for_the_copy_that_still_takes_what_it_overwrites(sequencer):
    sequencer.copy(store(64))
    sequencer.job(JOB, span(0), span(64))
    assert kinds(sequencer)[:3] == [Copy, CopyWait, Job]


def test_reading_the_same_bytes_needs_no_wait(sequencer):
    sequencer.copy(store(0))
    sequencer.job(JOB, span(0), span(64))
    assert kinds(sequencer)[:2] == [Copy, Job]


def test_the_two_local_memories_do_not_collide(sequencer):
    sequencer.job(JOB, span(0), span(64))
    sequencer.copy(load(0, space=WEIGHTS))
    assert kinds(sequencer)[:2] == [Job, Copy]


def test_copies_are_in_order_without_waits(sequencer):
    sequencer.copy(load(0))
    sequencer.copy(store(0))
    assert kinds(sequencer)[:2] == [Copy, Copy]


def test_rows_between_the_first_and_the_last_count_as_touched(sequencer):
    sequencer.copy(Copy(Address(ACTIVATIONS), Address(SCRATCH), 4, 3, 32, 4))
    sequencer.job(JOB, span(64), span(128))
    assert kinds(sequencer)[:3] == [Copy, CopyWait, Job]


def test_oldest_is_waited_for_where_no_slot_is_free(sequencer):
    for index in range(SLOTS + 1):
        sequencer.copy(load(16 * index))
    steps = sequencer.finish()
    assert [step.slot for step in steps[:SLOTS]] == list(range(SLOTS))
    assert steps[SLOTS : SLOTS + 2] == (CopyWait(0), Copy(Address(ACTIVATIONS, 16 * SLOTS), Address(SCRATCH), 16))


def test_names_the_copy_that_the_dma_cannot_take():
    sequencer = Sequencer("layer", replace(REFERENCE, dma_alignment=8))
    sequencer.copy(load(8))
    with pytest.raises(PlanError, match=r"layer: a copy's .* multiples of 8 bytes: got target 4"):
        sequencer.copy(load(4))
    with pytest.raises(PlanError, match="got source stride 12"):
        sequencer.copy(Copy(Address(ACTIVATIONS), Address(SCRATCH), 8, 2, 8, 12))
