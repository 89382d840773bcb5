"""The compact form of a plan: it has the steps of the plan, and each value in a field that holds it."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, given, settings
from plan_graphs import regions

from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.compact import (
    _COMPACTED,
    MOST_PLACES,
    CompactPlan,
    CopyStep,
    EndStep,
    JobStep,
    LayerStep,
    TileForm,
    WaitStep,
    compact,
    most_compact_bytes,
)
from byoc_hw.plan.region import plan_tiles
from byoc_hw.plan.steps import (
    ACTIVATIONS,
    ARGUMENT,
    FLASH,
    SCRATCH,
    WEIGHTS,
    Address,
    Copy,
    CopyWait,
    Job,
    JobWait,
    LayerCall,
    RegionPlan,
)

LOAD = Copy(Address(ACTIVATIONS), Address(ARGUMENT), 16)
JOB = Job(0, 16, (1, 16, 1), (1, 16, 1), 16, 16, 1, 1)


def region(*steps, tail=()) -> RegionPlan:
    """A region of one layer, only for its steps."""
    return RegionPlan(Graph("region", (), (), ()), (), (LayerCall(0, steps),), b"", 0, {}, tail)


def carried_out(plan: CompactPlan) -> list[object]:
    """The steps, as HWlib carries them out: tiles made in places, which a job in flight keeps."""
    found: list[object] = []
    forms: dict[int, TileForm] = {}
    others: dict[int, tuple[int, int]] = {}
    held: dict[int, int] = {}  # place: the number of the job that reads it
    slots: dict[int, int] = {}
    jobs = ended = 0
    for step in plan.steps:
        if isinstance(step, LayerStep | EndStep):
            found.append(step)
            continue
        waited = JobWait(step.slot) if isinstance(step, WaitStep) and step.job else None
        if isinstance(step, WaitStep):
            found.append(waited or CopyWait(step.slot))
        elif step.after:
            waited = JobWait(step.after) if isinstance(step, CopyStep) else None
            found.append(waited or CopyWait(step.after))
        if waited is not None:
            ended = max(ended, slots[waited.slot])
        if isinstance(step, CopyStep):
            copy = step.copy if step.row is None else plan.copies[step.row]._replace(slot=step.copy.slot)
            assert step.row is not None or held_by_fields(copy, plan)
            found.append(copy)
        elif isinstance(step, JobStep):
            jobs += 1
            slots[step.job.slot] = jobs
            if step.row is not None:
                found.append(plan.tiles[step.row]._replace(slot=step.job.slot))
                continue
            assert step.place < plan.places <= MOST_PLACES
            assert held.get(step.place, 0) <= ended, "the tile of a job in flight is made anew"
            held[step.place] = jobs
            if step.form is not None:
                forms[step.place], others[step.place] = plan.forms[step.form], (0, 0)
            if step.more:
                others[step.place] = (step.job.ifm2, step.job.psum)
            assert forms[step.place] == TileForm.of(step.job)
            assert others[step.place] == (step.job.ifm2, step.job.psum)
            for offset in (step.job.ifm, step.job.ifm2, step.job.ofm, step.job.psum):
                assert offset % (1 << plan.local_unit) == 0
                assert offset >> plan.local_unit < 1 << 16
            assert max(step.job.weights, step.job.params) < 1 << 16
            found.append(step.job._replace(image=None))
    return found


def held_by_fields(copy: Copy, plan: CompactPlan) -> bool:
    local, main = copy.local, copy.main
    return (
        local.offset % (1 << plan.local_unit) == 0
        and main.offset % (1 << plan.main_unit) == 0
        and max(local.offset >> plan.local_unit, main.offset >> plan.main_unit, copy.nbytes) < 1 << 16
        and main.space - FLASH < 8
        and (copy.rows == 1 or max(copy.rows, copy.target_stride, copy.source_stride) < 1 << 16)
    )


def expected(plan: RegionPlan) -> list[object]:
    found: list[object] = []
    for call in plan.calls:
        found += [LayerStep(call.index), *call.steps]
    found += [*plan.tail, EndStep()]
    return [step._replace(image=None) if isinstance(step, Job) else step for step in found]


@pytest.mark.slow
@given(regions())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=30)
def test_has_the_steps_of_the_plan(drawn):
    hardware, graph = drawn
    plan = plan_tiles(graph, hardware)
    assert carried_out(compact(plan)) == expected(plan)
    assert compact(plan, returns_early=True).nbytes <= most_compact_bytes(plan)


def test_a_wait_becomes_part_of_the_step_behind_it():
    steps = compact(region(LOAD._replace(slot=1), CopyWait(1), JOB._replace(slot=2), JobWait(2), LOAD)).steps
    assert [type(step) for step in steps] == [LayerStep, CopyStep, JobStep, CopyStep, EndStep]
    assert [getattr(step, "after", None) for step in steps] == [None, 0, 1, 2, None]


@pytest.mark.parametrize(
    "steps",
    [
        (LOAD._replace(slot=1), CopyWait(1), LOAD),
        (JOB._replace(slot=1), JobWait(1), JOB),
        (LOAD, CopyWait(0), JOB),  # the field's 0 is for none
    ],
    ids=["copy, copy", "job, job", "slot 0"],
)
def test_another_wait_is_a_step_of_its_own(steps):
    assert [type(step) for step in compact(region(*steps)).steps].count(WaitStep) == 1


def job_at(offset: int, **fields: object) -> Job:
    return JOB._replace(ifm=offset, **fields)


FITS = {
    "bytes": (LOAD._replace(nbytes=65535), LOAD._replace(nbytes=65536)),
    "rows": (
        LOAD._replace(rows=65535, target_stride=1, source_stride=1),
        LOAD._replace(rows=65536, target_stride=1, source_stride=1),
    ),
    "stride": (
        LOAD._replace(rows=2, target_stride=65535, source_stride=16),
        LOAD._replace(rows=2, target_stride=65536, source_stride=16),
    ),
    "space": (LOAD._replace(source=Address(FLASH + 7)), LOAD._replace(source=Address(FLASH + 8))),
    "out of weights": (
        Copy(Address(SCRATCH), Address(ACTIVATIONS), 16),
        Copy(Address(SCRATCH), Address(WEIGHTS), 16),
    ),
}


@pytest.mark.parametrize(("fits", "other"), FITS.values(), ids=FITS)
def test_a_copy_that_does_not_fit_is_a_row_of_a_table(fits: Copy, other: Copy):
    assert compact(region(fits)).copies == ()
    assert compact(region(other)).copies == (other,)


OF_JOB = {
    "weights": (JOB._replace(weights=65535), JOB._replace(weights=65536)),
    "extent": (JOB._replace(ifm_shape=(1, 65535, 1)), JOB._replace(ifm_shape=(1, 65536, 1))),
    "padding": (JOB._replace(padding=(255, 0, 0, 0)), JOB._replace(padding=(256, 0, 0, 0))),
}


@pytest.mark.parametrize(("fits", "other"), OF_JOB.values(), ids=OF_JOB)
def test_a_job_that_does_not_fit_has_a_row_for_its_tile(fits: Job, other: Job):
    assert compact(region(fits, fits, *[LOAD] * 8)).tiles == ()
    assert compact(region(other, other, *[LOAD] * 8)).tiles == (other,)


@pytest.mark.parametrize(("offset", "unit"), [(65535, 0), (65536, 1), (262140, 2)])
def test_offsets_are_counted_in_units_where_they_are_large(offset: int, unit: int):
    plan = compact(region(job_at(offset), job_at(offset), *[LOAD] * 8))
    assert (plan.local_unit, plan.tiles) == (unit, ())
    plan = compact(region(LOAD._replace(source=Address(FLASH, offset))))
    assert (plan.main_unit, plan.copies) == (unit, ())


def test_an_offset_between_units_has_a_row():
    odd = LOAD._replace(target=Address(ACTIVATIONS, 65537))
    assert compact(region(odd, *[odd._replace(target=Address(ACTIVATIONS, 65536))] * 2)).copies == (odd,)


def test_a_tile_stays_until_its_job_was_waited_for():
    plan = compact(region(*[job_at(16 * number) for number in range(MOST_PLACES + 2)], *[LOAD] * 60))
    assert plan.places == MOST_PLACES
    assert len(plan.tiles) == 2  # no place is free for the last ones
    alternating = [step for number in range(30) for step in (job_at(16 * number, slot=1), JobWait(1))]
    plan = compact(region(*alternating))
    assert (plan.places, plan.tiles, len(plan.forms)) == (1, (), 1)


def test_few_forms_are_put_for_the_steps_that_there_are():
    """Each takes the core as long as a step, or a little longer."""
    steps = [step for number in range(40) for step in (job_at(0, ifm_pixel=1 + number % 20, slot=1), JobWait(1))]
    plan = compact(region(*steps))
    assert sum(isinstance(step, JobStep) and step.form is not None for step in plan.steps) <= len(steps) // 3


def test_early_return_ends_before_the_tail():
    early = compact(region(LOAD, tail=(CopyWait(0),)), returns_early=True)
    assert [type(step) for step in early.steps] == [LayerStep, CopyStep, EndStep, WaitStep, EndStep]


@pytest.mark.slow
def test_refuses_more_rows_than_a_step_can_number():
    copies = [LOAD._replace(source=Address(ARGUMENT, offset), nbytes=65536) for offset in range(65537)]
    with pytest.raises(PlanError, match="a region has at most 65536 different copies"):
        compact(region(*copies))


def test_bytes_are_those_of_the_tables():
    """Numbers of 2 bytes: a layer, four for a copy, six and five for jobs, the end; a form of 28, a copy of 32."""
    other = LOAD._replace(nbytes=65536)
    plan = compact(region(LOAD, JOB._replace(slot=1), JobWait(1), JOB, other))
    assert plan.nbytes == 2 * (1 + 4 + 6 + 1 + 5 + 2 + 1) + 28 + 32


def test_tables_have_most_bytes_where_each_step_has_a_row():
    plan = region(LOAD._replace(nbytes=65536), JOB._replace(weights=65536), tail=(CopyWait(0),))
    assert compact(plan, returns_early=True).nbytes == most_compact_bytes(plan)


@pytest.mark.parametrize("steps", [(LOAD,), (LOAD._replace(rows=2),), (JOB._replace(psum=16),), (CopyWait(1),)])
def test_tables_have_fewer_bytes_where_steps_have_no_rows(steps):
    assert compact(region(*steps, *steps), returns_early=True).nbytes <= most_compact_bytes(region(*steps, *steps))


def test_compact_form_is_made_once_and_forgotten_with_the_plan():
    plan = region(LOAD, JOB)
    known = len(_COMPACTED)
    assert compact(plan) is compact(plan)
    assert compact(plan) is not compact(region(LOAD, JOB))
    assert compact(plan, returns_early=True) != compact(plan)
    assert len(_COMPACTED) == known + 2
    del plan
    gc.collect()
    assert len(_COMPACTED) <= known
