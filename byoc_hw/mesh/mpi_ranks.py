"""Runs of a mesh on the ranks of MPI, on one machine or many.

Ranks on one machine share the memory of their rings. Between machines a channel has a ring at each end; the rank that
sends takes frames out of its ring and sends them in one message, and the rank that receives puts them into its own.
A message of a channel is sent once the one before it has been received, which happens when there is room for it.
"""

from __future__ import annotations

import array
import fcntl
import os
import platform
import stat
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from byoc_hw.emit.directory import METADATA, digest
from byoc_hw.errors import ByocHwError, RunError, ToolchainMissing
from byoc_hw.mesh.group import SLICE, Outside, PeGroup, RunTimes, SharedFrames, share
from byoc_hw.mesh.manifest import MANIFEST, Manifest
from byoc_hw.mesh.plan import OUTSIDE
from byoc_hw.mesh.rings import VIEW_BYTES, ring_end
from byoc_hw.mesh.runs import Outputs, StandstillWatch, ranks_of
from byoc_hw.mesh.stage_check import StageValidation
from byoc_hw.tensor import Array

_PAUSE, _PAUSES, _LONG_PAUSE = 0.0002, 16, 0.01
"""Seconds that a rank rests with nothing to send or receive, twice as many each time up to so many times as many; and
where nothing ever comes."""

_HEALTH = 0.5
"""Seconds between two messages that say how far the PEs of a rank are."""

_SECONDS_TO_READ = 5.0
"""How long a rank that ends the run waits for the launcher to read its last line."""

_HEALTH_TAG, _FIRST_CHANNEL_TAG = 1, 2

CompareSent = Callable[[SharedFrames, Sequence[int]], StageValidation]
"""Compares all frames that some PEs, by number, have sent with what they should be."""


def under_mpi() -> bool:
    """Whether a launcher of MPI started this process as one of several ranks."""
    return any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"))


def run_on_ranks(
    directory: Path,
    manifest: Manifest,
    inputs: Sequence[Sequence[Array]],
    timeout: float,
    *,
    messages: bool = False,
    compare: CompareSent | None = None,
) -> tuple[Outputs | None, list[StageValidation]]:
    """This rank's part of a run; the outputs on rank 0, None on the others.

    With `messages` ranks on one machine send messages too: each is a machine of its own. With `compare` rings hold all
    frames, and the first rank of each machine compares what the PEs there have sent; rank 0 gets what all found. A
    failure of any rank ends all of them, after a line that names it, and its PEs. `ToolchainMissing` without mpi4py,
    `InvalidInput` for more ranks than PEs.
    """
    mpi = _mpi()
    world = mpi.COMM_WORLD
    try:
        _check_alike(world, directory, manifest, len(inputs))
        rank = _Rank(mpi, directory, manifest, inputs, timeout, messages, len(inputs) if compare else None)
        outputs = rank.run()
        return outputs, rank.compared(compare) if compare else []
    except ByocHwError as error:
        _abort(world, str(error))


def _check_alike(world: Any, directory: Path, manifest: Manifest, frames: int) -> None:
    """Raise `RunError` on rank 0 for a rank that has another mesh in its directory, or other frames, than rank 0."""
    metadata = (directory / one.directory / METADATA for one in manifest.programs)
    contents = digest(b"".join(path.read_bytes() for path in (directory / MANIFEST, *metadata)))
    found = world.gather((contents, frames, f"{directory.resolve()} on {platform.node()}"))
    for rank, (other, count, where) in enumerate(found or ()):
        if other != contents:
            raise RunError(f"all ranks run the mesh of rank 0: rank {rank} has another one in {where}")
        if count != frames:
            raise RunError(f"all ranks run the {frames} frames of rank 0: rank {rank} has {count}")


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ToolchainMissing(f"MPI is not installed: install byoc-hw[mesh] ({error})") from error
    return MPI


def _abort(world: Any, message: str) -> NoReturn:
    print(f"rank {world.rank}: {message}", file=sys.stderr, flush=True)
    _wait_until_read(sys.stderr.fileno())
    world.Abort(1)
    os._exit(1)  # where a rank of another machine stands still, MPI's abort returns


def _wait_until_read(descriptor: int) -> None:
    """Wait until the launcher has read what was written to a pipe: at an abort it may end without doing so."""
    unread, end = array.array("i", [0]), time.monotonic() + _SECONDS_TO_READ
    while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < end:
        fcntl.ioctl(descriptor, termios.FIONREAD, unread)
        if not unread[0]:
            return
        time.sleep(_PAUSE)


class _Rank:
    def __init__(
        self,
        mpi: Any,
        directory: Path,
        manifest: Manifest,
        inputs: Sequence[Sequence[Array]],
        timeout: float,
        messages: bool,
        slots: int | None,
    ) -> None:
        self._mpi, self._world, self._manifest, self._timeout = mpi, mpi.COMM_WORLD, manifest, timeout
        groups = ranks_of(len(manifest.pes), self._world.size)
        self._owner = {pe: rank for rank, pes in enumerate(groups) for pe in pes} | {OUTSIDE: 0}
        self._own = groups[self._world.rank]
        kind = self._world.Split_type(mpi.COMM_TYPE_SHARED)
        self._machine = kind.Split(self._world.rank) if messages else kind
        machines = self._world.allgather(self._machine.bcast(self._world.rank))
        self._on_machine = [
            pe for pe in range(len(manifest.pes)) if machines[self._owner[pe]] == machines[self._world.rank]
        ]
        self._name_ranks()
        self.shared = SharedFrames(directory, manifest, len(inputs), self._window, slots)
        if self._machine.rank == 0:
            self.shared.start()
        self._group = PeGroup(directory, self.shared, self._own)
        self._outside = Outside(self.shared, inputs) if self._world.rank == 0 else None
        self._moves = _Moves(mpi, self.shared, self._owner, machines)
        self._failure: RunError | None = None

    def _window(self, nbytes: int) -> Array:
        """Memory that the ranks of this machine share."""
        own = nbytes + 64 if self._machine.rank == 0 else 0
        self._memory = self._mpi.Win.Allocate_shared(own, 1, comm=self._machine)
        buffer, _ = self._memory.Shared_query(0)
        whole = np.frombuffer(buffer, np.uint8)
        if own:
            whole[...] = 0  # of a single rank MPI gives bytes as they are
        return whole[-whole.ctypes.data % 64 :][:nbytes]

    def _name_ranks(self) -> None:
        """Say which process each rank is: a launcher reports a process that dies by its number."""
        labels = ", ".join(self._manifest.pes[pe].label for pe in self._own)
        lines = self._world.gather(f"rank {self._world.rank}: process {os.getpid()} on {platform.node()}: {labels}")
        if lines is not None:
            print("\n".join(lines), file=sys.stderr, flush=True)

    def run(self) -> Outputs | None:
        """All frames, from the first to the last."""
        self._world.Barrier()  # everything is loaded
        start, cpu, polled, pauses = time.monotonic(), time.process_time(), 0.0, 1
        thread = threading.Thread(target=self._compute, daemon=True)
        thread.start()
        watch = StandstillWatch(
            self.shared, lambda pe: f"rank {self._owner[pe]}, {self._manifest.pes[pe].label}", self._timeout
        )
        health = start
        ended: Any = None
        while True:
            begun = time.thread_time()
            if self._failure is not None:
                raise self._failure
            progress = self._moves.step()
            if self._outside is not None and not self._outside.done:
                if self._outside.step(0 if self._moves.any else SLICE):
                    progress = True
                    watch.note()
                watch.check()
            if ended is None and self._done(thread):
                seconds = time.monotonic() - start
                ended = self._world.Ibarrier()
            if ended is not None and ended.Test():
                break
            now = time.monotonic()
            if now > health:
                self._moves.tell_health(self._own)
                health = now + _HEALTH
            pauses = 1 if progress else min(2 * pauses, _PAUSES)
            if not progress:
                time.sleep(_PAUSE * pauses if self._moves.any else _LONG_PAUSE)
                polled += time.thread_time() - begun
        polled += sum(self.shared.views.polled[self._own.start : self._own.stop]) / 1e9
        spent = self._world.gather((time.process_time() - cpu, polled))
        if self._outside is None:
            return None
        used, waited = map(sum, zip(*spent, strict=True))
        return self._outside.outputs(), RunTimes(seconds, used, waited)

    def compared(self, compare: CompareSent) -> list[StageValidation]:
        """What the first rank of each machine finds: on rank 0, of all."""
        own = compare(self.shared, self._on_machine) if self._machine.rank == 0 else None
        return [one for one in self._world.gather(own) or () if one is not None]

    def _done(self, thread: threading.Thread) -> bool:
        return not thread.is_alive() and self._moves.done and (self._outside is None or self._outside.done)

    def _compute(self) -> None:
        try:
            self._group.run()
        except RunError as error:
            self._failure = error


class _Moves:
    """The messages of channels between machines that start or end at this rank."""

    def __init__(self, mpi: Any, shared: SharedFrames, owner: Mapping[int, int], machines: Sequence[int]) -> None:
        """`owner` has the rank of each PE, `machines` the first rank on the machine of each rank."""
        self._mpi, self._world, self._shared, self._owner = mpi, mpi.COMM_WORLD, shared, owner
        self._far = machines[self._world.rank] != machines[0]
        self._sends: list[int] = []
        self._receives: list[int] = []
        for number, channel in enumerate(shared.manifest.channels):
            source, target = owner[channel.source], owner[channel.target]
            if machines[source] == machines[target]:
                continue
            if source == self._world.rank:
                self._sends.append(number)
            if target == self._world.rank:
                self._receives.append(number)
        self._frames = {
            number: np.zeros((shared.layout.rings[number][1], shared.manifest.channels[number].nbytes), np.uint8)
            for number in (*self._sends, *self._receives)
        }
        self._ends = {
            number: ring_end(shared.addresses[number], self._frames[number], number in self._receives)
            for number in self._frames
        }
        self._flying: dict[int, Any] = {}
        self._moved = dict.fromkeys((*self._sends, *self._receives), 0)
        self._waiting: set[int] = set()
        self._health: Any = None

    @property
    def any(self) -> bool:
        """Whether there are such channels."""
        return bool(self._moved)

    @property
    def done(self) -> bool:
        """Whether all frames have gone through, and no message is under way."""
        manifest = self._shared.manifest
        whole = all(
            moved == share(self._shared.frames, manifest.channels[number].replica, manifest.replicas)
            for number, moved in self._moved.items()
        )
        return whole and not self._flying

    def step(self) -> bool:
        """Send, receive and note what can be: whether that was anything."""
        progress = False
        for number in self._sends:
            progress = self._send(number) or progress
        for number in self._receives:
            progress = self._receive(number) or progress
        self._read_health()
        return progress

    def _send(self, number: int) -> bool:
        if number in self._flying:
            if not self._flying[number].Test():
                return False
            del self._flying[number]
        frames, channel, end = self._frames[number], self._shared.manifest.channels[number], self._ends[number]
        end.at, end.count = 0, len(frames)
        if self._shared.rings.move(end) < 0:
            label = self._shared.manifest.pes[channel.source].label
            raise RunError(f"{label} sent a damaged frame of {channel.tensor}")
        if end.at == 0:
            return False
        target = self._owner[channel.target]
        self._flying[number] = self._world.Issend(frames[: end.at], target, _FIRST_CHANNEL_TAG + number)
        self._moved[number] += end.at
        return True

    def _receive(self, number: int) -> bool:
        frames, channel, end = self._frames[number], self._shared.manifest.channels[number], self._ends[number]
        if number not in self._waiting:
            source, tag = self._owner[channel.source], _FIRST_CHANNEL_TAG + number
            if not self._world.Iprobe(source, tag):
                return False
            status = self._mpi.Status()
            self._world.Recv(frames, source, tag, status)
            end.at, end.count = 0, status.Get_count() // channel.nbytes
            self._waiting.add(number)
        before = end.at
        self._shared.rings.move(end)
        self._moved[number] += end.at - before
        if end.at == end.count:
            self._waiting.remove(number)
        return bool(end.at > before)

    def tell_health(self, pes: Sequence[int]) -> None:
        """Tell rank 0 how far these PEs are, if it does not see it."""
        if not self._far or (self._health is not None and not self._health.Test()):
            return
        views = self._shared.views.rows[pes[0] : pes[-1] + 1]
        self._health = self._world.isend((pes[0], views.tobytes()), 0, _HEALTH_TAG)

    def _read_health(self) -> None:
        if self._world.rank != 0 or not self._world.Iprobe(self._mpi.ANY_SOURCE, _HEALTH_TAG):
            return
        first, data = self._world.recv(tag=_HEALTH_TAG)
        rows = np.frombuffer(data, np.uint8).reshape(-1, VIEW_BYTES)
        self._shared.views.rows[first : first + len(rows)] = rows
