"""From copies and jobs to steps: slots are given out, and waits put in where bytes would collide."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.plan.steps import ACTIVATIONS, SLOTS, WEIGHTS, Address, Copy, CopyWait, Job, JobWait, Step


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` (not included) of a local memory."""

    space: int
    start: int
    stop: int

    def overlaps(self, other: Span) -> bool:
        """Whether a byte is in both."""
        return self.space == other.space and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True)
class _InFlight:
    """A copy or a job that was started and not yet waited for."""

    order: int
    slot: int
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]

    def collides(self, reads: Iterable[Span], writes: Iterable[Span]) -> bool:
        if any(mine.overlaps(other) for mine in self.writes for other in (*reads, *writes)):
            return True
        return any(mine.overlaps(other) for mine in self.reads for other in writes)


class Sequencer:
    """Collects the steps of one layer.

    A copy that touches the bytes of a job in flight waits for that job first, and the other way
    round. Each engine works in the order in which it was given its work, so two copies, or two
    jobs, never wait for each other: a copy may send out what the copy before it brings in.
    """

    def __init__(self, name: str, accelerator: Accelerator) -> None:
        self._name = name
        self._alignment = accelerator.dma_alignment
        self._steps: list[Step] = []
        self._copies: deque[_InFlight] = deque()
        self._jobs: deque[_InFlight] = deque()
        self._started = 0

    def copy(self, copy: Copy) -> None:
        """Start a copy. Raises `PlanError` where the DMA cannot take it."""
        problem = misalignment(copy, self._alignment)
        if problem is not None:
            raise PlanError(f"{self._name}: {problem}")
        reads, writes = _local_spans(copy)
        self._wait_for_collisions(self._jobs, reads, writes)
        slot = self._free_slot()
        self._steps.append(replace(copy, slot=slot))
        self._copies.append(self._in_flight(slot, reads, writes))

    def job(self, job: Job, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> None:
        """Start a job that reads and writes these bytes of local memory."""
        self._wait_for_collisions(self._copies, reads, writes)
        slot = self._free_slot()
        self._steps.append(replace(job, slot=slot))
        self._jobs.append(self._in_flight(slot, reads, writes))

    def finish(self) -> tuple[Step, ...]:
        """Wait for all that is in flight; the steps so far."""
        while self._copies or self._jobs:
            self._wait_for_oldest()
        return tuple(self._steps)

    def _in_flight(self, slot: int, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> _InFlight:
        self._started += 1
        return _InFlight(self._started, slot, reads, writes)

    def _wait_for_collisions(self, engine: deque[_InFlight], reads: tuple[Span, ...], writes: tuple[Span, ...]) -> None:
        # Work started before the last collision is done by then: its tokens are given back at no cost.
        while any(work.collides(reads, writes) for work in engine):
            self._wait(engine)

    def _free_slot(self) -> int:
        if len(self._copies) + len(self._jobs) == SLOTS:
            self._wait_for_oldest()
        taken = {work.slot for work in (*self._copies, *self._jobs)}
        return next(slot for slot in range(SLOTS) if slot not in taken)

    def _wait_for_oldest(self) -> None:
        started = [engine for engine in (self._copies, self._jobs) if engine]
        self._wait(min(started, key=lambda engine: engine[0].order))

    def _wait(self, engine: deque[_InFlight]) -> None:
        slot = engine.popleft().slot
        self._steps.append(CopyWait(slot) if engine is self._copies else JobWait(slot))


def misalignment(copy: Copy, alignment: int) -> str | None:
    """The rule of the DMA's alignment that a copy breaks, with the value, or None."""
    if alignment == 1:
        return None
    values = {"target": copy.target.offset, "source": copy.source.offset, "length": copy.nbytes}
    if copy.rows > 1:
        values |= {"target stride": copy.target_stride, "source stride": copy.source_stride}
    for what, value in values.items():
        if value % alignment:
            return f"a copy's addresses, lengths and strides are multiples of {alignment} bytes: got {what} {value}"
    return None


def _local_spans(copy: Copy) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """What a copy reads and writes in local memory."""
    return (
        _local_span(copy.source, copy.nbytes, copy.rows, copy.source_stride),
        _local_span(copy.target, copy.nbytes, copy.rows, copy.target_stride),
    )


def _local_span(address: Address, nbytes: int, rows: int, stride: int) -> tuple[Span, ...]:
    if address.space not in (ACTIVATIONS, WEIGHTS):
        return ()
    return (Span(address.space, address.offset, address.offset + (rows - 1) * stride + nbytes),)
