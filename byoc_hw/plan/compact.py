"""A region's plan in the numbers that HWlib reads: steps of 16 bits, with rows for what does not fit them.

`hwlib.h` documents each step. A wait in front of a copy or a job becomes part of it. The tiles of jobs are made in RAM
while the region runs, in `places`, from a `TileForm` that several tiles share; a tile that no other one is like, or for
which no place is free, is a row of its own. A HAL may read a tile until its job was waited for: until then no other
tile is made in its place.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from byoc_hw.errors import PlanError
from byoc_hw.params.pack import Integers
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, WEIGHTS, Copy, CopyWait, Job, JobWait, RegionPlan, Step

MOST_PLACES = 16
MOST_FORMS = (1 << 16) // 28
MOST_ROWS = 1 << 16
"""What a step's fields hold."""

STEPS_A_FORM = 3
"""The steps of a region for each form that is put in a place: this takes the core about as long as a step."""

PLACES_OF_SINGLES = 2
"""Places in RAM for tiles that no other one is like, beside those that the others take."""

_NUMBER = 1 << 16
_BYTE = 1 << 8
_SPACES = 8
_MOST_UNIT = 8
_BYTES_OF_ROW = {"steps": 2, "forms": 28, "copies": 32, "tiles": 72}
"""On a core of 32 bits."""

_MOST_BYTES = {Copy: 36, Job: 76}
"""Bytes of a step with a row of its own; others are a number. A copy with strides takes 14, a tile with its form 44."""


class TileForm(NamedTuple):
    """What tiles have in common that differ in their addresses alone."""

    strides: tuple[int, int, int, int]
    ifm_shape: tuple[int, int, int]
    ofm_shape: tuple[int, int, int]
    padding: tuple[int, int, int, int]
    kernel: tuple[int, int]
    first: bool
    last: bool

    @classmethod
    def of(cls, job: Job) -> TileForm:
        """The form of a job's tile."""
        strides = (job.ifm_row, job.ofm_row, job.ifm_pixel, job.ofm_pixel)
        return cls(strides, job.ifm_shape, job.ofm_shape, job.padding, job.kernel, job.first, job.last)

    @property
    def fits(self) -> bool:
        """Whether the fields of `hwlib_form_t` hold it."""
        wide = (*self.strides, *self.ifm_shape, *self.ofm_shape)
        return max(wide) < _NUMBER and max(*self.padding, *self.kernel) < _BYTE


@dataclass(frozen=True)
class LayerStep:
    """The region's layer with this index begins. 1 number."""

    index: int
    numbers = 1


@dataclass(frozen=True)
class EndStep:
    """The region returns, or ends. 1 number."""

    numbers = 1


@dataclass(frozen=True)
class WaitStep:
    """The wait for a copy, or with `job` a job. 1 number."""

    slot: int
    job: bool
    numbers = 1


@dataclass(frozen=True)
class CopyStep:
    """A copy, after the job whose token is in slot `after`; with `row` the one in this row of the table."""

    copy: Copy
    after: int
    row: int | None = None

    @property
    def numbers(self) -> int:
        """The numbers that it takes."""
        return 2 if self.row is not None else 4 if self.copy.rows == 1 else 7


@dataclass(frozen=True)
class JobStep:
    """A job, after the copy whose token is in slot `after`. Its tile is a `row`, or made in `place`: from `form`, or of
    the form that is there. With `more` it says ifm2 and psum, too."""

    job: Job
    after: int
    row: int | None = None
    place: int = 0
    form: int | None = None
    more: bool = False

    @property
    def numbers(self) -> int:
        """The numbers that it takes."""
        return 2 if self.row is not None else 5 + (self.form is not None) + 2 * self.more


CompactStep = LayerStep | EndStep | WaitStep | CopyStep | JobStep


@dataclass(frozen=True)
class CompactPlan:
    """A region's plan. Offsets are counted in units of `1 << local_unit` and `1 << main_unit` bytes.

    `forms`, `copies` and `tiles` are the rows of the tables. The tiles that are made take as many `places` in RAM.
    """

    steps: tuple[CompactStep, ...]
    forms: tuple[TileForm, ...]
    copies: tuple[Copy, ...]
    tiles: tuple[Job, ...]
    places: int
    local_unit: int
    main_unit: int

    @property
    def nbytes(self) -> int:
        """Bytes of flash of all tables, on a core of 32 bits."""
        rows = {
            "steps": sum(step.numbers for step in self.steps),
            **{name: len(getattr(self, name)) for name in ("forms", "copies", "tiles")},
        }
        return sum(_BYTES_OF_ROW[name] * count for name, count in rows.items())


def compact(region: RegionPlan, *, returns_early: bool = False) -> CompactPlan:
    """The plan of a region in compact form; with `returns_early` it has an end before the tail, too.

    Raises `PlanError` for more layers, or more rows, than a step can name.
    """
    key = id(region), returns_early
    if key not in _COMPACTED:
        _COMPACTED[key] = _compacted(region, returns_early)
        weakref.finalize(region, _COMPACTED.pop, key).atexit = False
    return _COMPACTED[key]


def most_compact_bytes(region: RegionPlan) -> int:
    """Bytes of flash that the tables of a region have at most: no rows are compared."""
    numbers = len(region.calls) + 2  # a layer begins, and the region returns and ends
    return 2 * numbers + sum(_MOST_BYTES.get(type(step), 2) for step in region.steps)


_COMPACTED: dict[tuple[int, bool], CompactPlan] = {}
"""The compact forms of plans that are still there: several parts of a build ask for the bytes of their tables."""


def _compacted(region: RegionPlan, returns_early: bool) -> CompactPlan:
    steps = sum(map(len, (*(call.steps for call in region.calls), region.tail)))
    fields = _Fields(region)
    alike = _Compacting(region, fields, steps // STEPS_A_FORM, single=0, new=0)
    plan = alike.plan(returns_early)
    if not plan.tiles or not alike.left:
        return plan
    new = min(PLACES_OF_SINGLES, MOST_PLACES - plan.places)
    return _Compacting(region, fields, steps // STEPS_A_FORM, single=alike.left, new=new).plan(returns_early)


class _Fields:
    """What the fields of a region's steps hold: the units of offsets, and the forms of tiles with their number."""

    def __init__(self, region: RegionPlan) -> None:
        self._jobs = {id(step): step for step in region.steps if isinstance(step, Job)}
        copies = [step for step in region.steps if isinstance(step, Copy)]
        offsets = [at for job in self._jobs.values() for at in _local(job)]
        self.local_unit = _unit([*(one.local.offset for one in copies), *offsets])
        self.main_unit = _unit([one.main.offset for one in copies])
        self._forms = {at: TileForm.of(job) for at, job in self._jobs.items()}
        self.alike = Counter(self._forms[id(step)] for step in region.steps if isinstance(step, Job))
        self._fit = {at: self._fits(job, self._forms[at]) for at, job in self._jobs.items()}

    def form(self, job: Job) -> tuple[TileForm, bool]:
        """The form of a job's tile, and whether the fields of steps hold it."""
        return self._forms[id(job)], self._fit[id(job)]

    def _fits(self, job: Job, form: TileForm) -> bool:
        offsets = all(_fits(offset, self.local_unit) for offset in _local(job))
        return form.fits and offsets and max(job.weights, job.params) < _NUMBER


@dataclass
class _Place:
    """A place in RAM: the form that is there, ifm2 and psum, and the number of the job whose tile it has."""

    form: TileForm
    more: tuple[int, int]
    job: int


Row = TypeVar("Row", TileForm, Copy, Job)


@dataclass
class _Rows(Generic[Row]):
    """The rows of a table, without duplicates."""

    name: str
    most: int = MOST_ROWS
    rows: dict[Row, int] = field(default_factory=dict)

    def index(self, row: Row) -> int:
        if row not in self.rows and len(self.rows) == self.most:
            raise PlanError(f"a region has at most {self.most} different {self.name}")
        return self.rows.setdefault(row, len(self.rows))


class _Compacting:
    """Puts at most `most` forms, and no more than `single` that are a single tile's: `new` of them in new places."""

    def __init__(self, region: RegionPlan, fields: _Fields, most: int, single: int, new: int) -> None:
        self._most, self._single, self._new, self._put = most, single, new, 0
        self._region, self._fields = region, fields
        self._forms = _Rows[TileForm]("forms of tiles", MOST_FORMS)
        self._copies, self._tiles = _Rows[Copy]("copies"), _Rows[Job]("tiles")
        self._places: list[_Place] = []
        self._in_slot: dict[int, int] = {}  # the number of the job whose token is there
        self._jobs = self._ended = 0

    @property
    def left(self) -> int:
        """The forms that it could put beside those that it has put."""
        return self._most - self._put

    def plan(self, returns_early: bool) -> CompactPlan:
        steps: list[CompactStep] = []
        for call in self._region.calls:
            steps.append(LayerStep(call.index))
            steps += self._steps(call.steps)
        steps += [EndStep()] if returns_early else []
        steps += [*self._steps(self._region.tail), EndStep()]
        return CompactPlan(
            steps=tuple(steps),
            forms=tuple(self._forms.rows),
            copies=tuple(self._copies.rows),
            tiles=tuple(self._tiles.rows),
            places=len(self._places),
            local_unit=self._fields.local_unit,
            main_unit=self._fields.main_unit,
        )

    def _steps(self, steps: Sequence[Step]) -> Iterator[CompactStep]:
        """The steps of one call: waits become part of what follows them."""
        before: CopyWait | JobWait | None = None
        for step in steps:
            after = 0
            if before is not None:
                if before.slot and isinstance(step, Job if isinstance(before, CopyWait) else Copy):
                    after = before.slot
                else:
                    yield WaitStep(before.slot, isinstance(before, JobWait))
            before = None
            if isinstance(step, CopyWait | JobWait):
                before = step
                if isinstance(step, JobWait):
                    self._ended = max(self._ended, self._in_slot.get(step.slot, 0))
            elif isinstance(step, Copy):
                yield self._copy(step, after)
            else:
                assert isinstance(step, Job), "the others are steps of chips"
                yield self._job(step, after)
        if before is not None:
            yield WaitStep(before.slot, isinstance(before, JobWait))

    def _copy(self, copy: Copy, after: int) -> CopyStep:
        strides = (copy.rows, copy.target_stride, copy.source_stride) if copy.rows > 1 else ()
        fits = (
            copy.main.space - FLASH in range(_SPACES)
            and copy.local.space in ((ACTIVATIONS, WEIGHTS) if copy.inward else (ACTIVATIONS,))
            and _fits(copy.local.offset, self._fields.local_unit)
            and _fits(copy.main.offset, self._fields.main_unit)
            and max(copy.nbytes, *strides, 0) < _NUMBER
        )
        if fits:
            return CopyStep(copy, after)
        row = copy._replace(slot=0) if strides else copy._replace(slot=0, target_stride=0, source_stride=0)
        return CopyStep(copy, after, row=self._copies.index(row))

    def _job(self, job: Job, after: int) -> JobStep:
        self._jobs += 1
        self._in_slot[job.slot] = self._jobs
        form, fits = self._fields.form(job)
        single = self._fields.alike[form] == 1
        at = self._place(form, single) if fits and (self._single or not single) else None
        if at is None:
            return JobStep(job, after, row=self._tiles.index(job._replace(slot=0, image=None)))
        self._single -= single
        before = self._places[at] if at < len(self._places) else None
        more = (job.ifm2, job.psum)
        self._places[at : at + 1] = [_Place(form, more, self._jobs)]
        if before is None or before.form != form:
            self._put += 1
            return JobStep(job, after, place=at, form=self._forms.index(form), more=any(more))
        return JobStep(job, after, place=at, more=before.more != more)

    def _place(self, form: TileForm, single: bool) -> int | None:
        """A free place: one that has the form, else a new one while there are some; for a single tile a used one."""
        free = [at for at, place in enumerate(self._places) if place.job <= self._ended]
        having = [at for at in free if self._places[at].form == form]
        if having:
            return having[0]
        if not self.left:
            return None
        if single and free:
            return free[0]
        if len(self._places) < MOST_PLACES and (self._new or not single):
            self._new -= single
            return len(self._places)
        return free[0] if free else None


def _local(job: Job) -> tuple[int, int, int, int]:
    return job.ifm, job.ifm2, job.ofm, job.psum


_Offsets = TypeVar("_Offsets", int, Integers)


def _fits(offsets: _Offsets, unit: int) -> _Offsets:
    """Whether an offset, or each of several, is a number of units that a field holds."""
    found: _Offsets = (offsets % (1 << unit) == 0) & (offsets >> unit < _NUMBER)
    return found


def _unit(offsets: Sequence[int]) -> int:
    """The unit, as a power of two, that most offsets fit."""
    values = np.array(offsets, np.int64)
    return max(range(_MOST_UNIT), key=lambda unit: (np.count_nonzero(_fits(values, unit)), -unit))
