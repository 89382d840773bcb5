"""Units of work: stripes of a group or tiles of a layer, and the order of their loads, jobs and stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from byoc_hw.errors import PlanError
from byoc_hw.graph_text import shape_text
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.steps import WEIGHTS, Copy, WholeLayer
from byoc_hw.plan.work.ops import Access, Home, LocalBuffer, Op


@dataclass
class Unit:
    """One stripe or tile of a group.

    With `overlap` it is loaded before the preceding unit of the group is computed, and stored after the
    following one is.
    """

    group: int
    overlap: bool
    loads: list[Op] = field(default_factory=list)
    jobs: list[Op] = field(default_factory=list)
    stores: list[Op] = field(default_factory=list)


class Busy(NamedTuple):
    """The number of some copies and jobs, and the cycles of both."""

    ops: int = 0
    copies: int = 0
    jobs: int = 0

    def with_ops(self, ops: Sequence[Op]) -> Busy:
        """These, and others."""
        jobs = sum(op.cycles for op in ops if op.is_job)
        copies = sum(op.cycles for op in ops) - jobs
        return Busy(self.ops + len(ops), self.copies + copies, self.jobs + jobs)

    @property
    def cycles(self) -> int:
        """Cycles of all jobs or of all copies, whichever are more: no order of them takes fewer."""
        return max(self.copies, self.jobs)

    def check(self, name: str, most: float, below: float) -> None:
        """Raise `PlanError` where these are more than `most`, or take `below` cycles or more."""
        if self.ops > most:
            raise PlanError(f"{name}: at most {most} jobs and copies are wanted: got {self.ops} or more")
        if self.cycles >= below:
            raise PlanError(f"{name}: fewer than {below} cycles are wanted: got {self.cycles} or more")


@dataclass(frozen=True)
class Work:
    """All copies and jobs, in a valid sequential order.

    `homes` has the places of storages in main memory: in scratch as an offset in their own block. `alignment`
    is the DMA's, in bytes. `starts` are the places at which groups begin, the first one left out.
    """

    ops: tuple[Op, ...]
    homes: dict[Storage, Home]
    alignment: int
    starts: tuple[int, ...] = ()

    @property
    def busy(self) -> Busy:
        """What both engines have to do."""
        return Busy().with_ops(self.ops)

    def __str__(self) -> str:
        """One line a copy or job: the layer, the bytes that it accesses, its cycles.

        `s3` is a storage in main memory, `a7` a buffer of local activations, `w2` one of local weights.
        """
        names: dict[LocalBuffer, str] = {}
        for access in (access for op in self.ops for access in op.accesses):
            if isinstance(access.place, LocalBuffer) and access.place not in names:
                names[access.place] = f"{'aw'[access.place.space == WEIGHTS]}{len(names)}"
        return "\n".join(_line(number, op, names) for number, op in enumerate(self.ops))


def _line(number: int, op: Op, names: Mapping[LocalBuffer, str]) -> str:
    reads, writes = (
        ", ".join(dict.fromkeys(_place(one, names) for one in op.accesses if one.writes == writing))
        for writing in (False, True)
    )
    if isinstance(op.step, Copy):
        what = f"copy {op.step.nbytes} bytes" + (f" x {op.step.rows} rows" if op.step.rows > 1 else "")
    elif isinstance(op.step, WholeLayer):
        what = "call"
    else:
        what = f"job {shape_text(op.step.ifm_shape)} -> {shape_text(op.step.ofm_shape)}"
    return f"{number:<5} %{op.layer:<4} {what:<28} {reads or 'flash'} -> {writes}, {op.cycles} cycles"


def _place(access: Access, names: Mapping[LocalBuffer, str]) -> str:
    place = access.place
    assert isinstance(place, LocalBuffer | Storage), "a region by itself shares no memory"
    return f"{names[place] if isinstance(place, LocalBuffer) else f's{place.index}'}[{access.start}:{access.stop}]"


def starts_of(units: Sequence[Unit]) -> tuple[int, ...]:
    """The places in the work at which the groups of these units begin, the first one left out."""
    sizes = accumulate(len(unit.loads) + len(unit.jobs) + len(unit.stores) for unit in units)
    return tuple(at for at, (one, other) in zip(sizes, pairwise(units), strict=False) if one.group != other.group)


def in_order(units: Sequence[Unit]) -> Iterator[Op]:
    """The work of all units, with their overlap. No load is moved before the store that writes its bytes."""
    loaded = 0
    late: list[Op] = []
    for index, unit in enumerate(units):
        if index == loaded:
            if unit.group != units[index - 1].group or _touched(late) & _touched(unit.loads):
                yield from late
                late = []
            yield from unit.loads
            loaded += 1
        following = units[index + 1] if index + 1 < len(units) else None
        if (
            following is not None
            and following.overlap
            and following.group == unit.group
            and not _touched(following.loads) & (_touched(late) | _touched(unit.stores))
        ):
            yield from following.loads
            loaded += 1
        yield from unit.jobs
        yield from late
        late = unit.stores
        if not unit.overlap:
            yield from late
            late = []
    yield from late


def _touched(ops: Sequence[Op]) -> set[Storage]:
    """The storages that copies access in main memory."""
    return {access.place for op in ops for access in op.accesses if isinstance(access.place, Storage)}
