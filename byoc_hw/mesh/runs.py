"""Runs of a mesh on one computer: in threads of this process, or in processes that share memory."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.mesh.group import SLICE, Outside, PeGroup, RunTimes, SharedFrames, own_copy, share
from byoc_hw.mesh.libraries import library_of, rank_program
from byoc_hw.mesh.manifest import Manifest
from byoc_hw.mesh.rings import VIEW_BYTES, described_failure
from byoc_hw.tensor import Array

_PAUSE = 0.0002
_SHARED = Path("/dev/shm")
Outputs = tuple[list[list[Array]], RunTimes]
"""The outputs of each frame, and the time that they took."""

Look = Callable[[SharedFrames], None]


def ranks_of(pes: int, ranks: int) -> list[range]:
    """The PEs of each rank: neighbours together, as evenly as it goes. `InvalidInput` for more ranks than PEs."""
    if not isinstance(ranks, int) or not 1 <= ranks <= pes:
        raise InvalidInput(f"ranks are from 1 to the {pes} PEs of the mesh: got {ranks}")
    ends = [pes * rank // ranks for rank in range(ranks + 1)]
    return [range(first, stop) for first, stop in itertools.pairwise(ends)]


def run_in_threads(
    directory: Path,
    manifest: Manifest,
    inputs: Sequence[Sequence[Array]],
    ranks: int,
    timeout: float,
    look: Look | None = None,
) -> Outputs:
    """A thread for each PE, in this process. With `look` rings hold all frames, and it is shown them at the end."""
    shared = SharedFrames(directory, manifest, len(inputs), slots=len(inputs) if look else None)
    shared.start()
    group = PeGroup(directory, shared, range(len(manifest.pes)))
    failure: list[RunError] = []

    def run() -> None:
        try:
            group.run()
        except RunError as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    outside = Outside(shared, inputs)
    start, cpu = time.monotonic(), time.process_time()
    thread.start()

    def check() -> None:
        if failure:
            raise failure[0]

    try:
        outputs = _collect(shared, outside, timeout, check, lambda pe: manifest.pes[pe].label)
    finally:
        shared.views.stop()
    thread.join()
    check()
    times = RunTimes(time.monotonic() - start, time.process_time() - cpu, polling_of(shared, outside))
    if look:
        look(shared)
    return outputs, times


def polling_of(shared: SharedFrames, outside: Outside) -> float:
    """Seconds of CPU that the PEs, and who feeds them, have spent in turns without work."""
    return sum(shared.views.polled) / 1e9 + outside.polling


def run_in_processes(
    directory: Path,
    manifest: Manifest,
    inputs: Sequence[Sequence[Array]],
    ranks: int,
    timeout: float,
    look: Look | None = None,
) -> Outputs:
    """Processes with some PEs each, and rings in memory that they share. `look` is as for threads."""
    groups = ranks_of(len(manifest.pes), ranks)
    with tempfile.TemporaryDirectory(prefix="byoc_hw_", dir=_SHARED if _SHARED.is_dir() else None) as name:
        path = Path(name, "frames")
        slots = len(inputs) if look else None
        shared = SharedFrames(directory, manifest, len(inputs), partial(_in_file, path), slots)
        shared.start()
        outside = Outside(shared, inputs)
        workers: list[_Worker] = []
        try:
            for rank, pes in enumerate(groups):
                workers.append(_Worker(directory, shared, path, rank, pes))
            for worker in workers:
                worker.wait_until_ready(timeout)
            start, cpu = time.monotonic(), time.process_time()
            for worker in workers:
                worker.go()
            owner = {pe: rank for rank, pes in enumerate(groups) for pe in pes}

            def check() -> None:
                for worker in workers:
                    worker.check()

            outputs = _collect(
                shared, outside, timeout, check, lambda pe: f"rank {owner[pe]}, {manifest.pes[pe].label}"
            )
            seconds, cpu = time.monotonic() - start, time.process_time() - cpu
            for worker in workers:
                worker.end(timeout)
            if look:
                look(shared)
            return outputs, RunTimes(seconds, cpu + sum(shared.views.used) / 1e9, polling_of(shared, outside))
        finally:
            shared.views.stop()
            for worker in workers:
                worker.close()


def _in_file(path: Path, nbytes: int) -> Array:
    return np.memmap(path, np.uint8, "w+", shape=(nbytes,))


class _Worker:
    """A process with some PEs."""

    def __init__(self, directory: Path, shared: SharedFrames, memory: Path, rank: int, pes: Sequence[int]) -> None:
        self._manifest, self._pes, self.rank = shared.manifest, pes, rank
        self._copies = tempfile.TemporaryDirectory(prefix="byoc_hw_")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        command = [str(rank_program(directory)), str(memory), str(shared.layout.nbytes), str(len(self._manifest.pes))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._say("".join(f"{line}\n" for line in self._description(directory, shared)) + "load\n")

    def _description(self, directory: Path, shared: SharedFrames) -> Iterator[str]:
        for pe in self._pes:
            entry = self._manifest.pes[pe]
            library = own_copy(library_of(directory, self._manifest.programs[entry.program]), self._copies.name, pe)
            yield f"pe {pe * VIEW_BYTES} {share(shared.frames, entry.replica, self._manifest.replicas)} {library}"
            for channel, (offset, _) in zip(self._manifest.channels, shared.layout.rings, strict=True):
                if channel.source == pe:
                    yield f"port 1 {channel.source_port} {offset}"
                if channel.target == pe:
                    yield f"port 0 {channel.target_port} {offset}"

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        self._lines.extend(iter(stream.readline, ""))

    def _say(self, text: str) -> None:
        stream = self.process.stdin
        assert stream is not None
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            self.process.wait()
            self.check()

    def wait_until_ready(self, timeout: float) -> None:
        """Wait until its programs are loaded."""
        end = time.monotonic() + timeout
        while "ready\n" not in self._lines:
            self.check()
            if time.monotonic() > end:
                raise RunError(f"rank {self.rank} is not ready in {timeout:g} seconds: it is slow, or stuck")
            time.sleep(_PAUSE)

    def go(self) -> None:
        """Let it begin."""
        self._say("go\n")

    def check(self) -> None:
        """Raise `RunError` if the process has ended in any other way than with all frames done."""
        code = self.process.poll()
        if code is None or code == 0:
            return
        self._reader.join()
        self._errors.seek(0)
        said = [self._errors.read().decode(errors="replace").strip()]
        for line in self._lines:
            word, *numbers = line.split()
            if word == "failed":
                index, *values = map(int, numbers)
                said.append(f"{self._manifest.pes[self._pes[index]].label} failed at {described_failure(*values)}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise RunError(f"rank {self.rank} has ended ({how}): {'; '.join(filter(None, said)) or 'it said nothing'}")

    def end(self, timeout: float) -> None:
        """Wait until it has ended well."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"rank {self.rank} does not end: it is slow, or stuck") from error
        self.check()

    def close(self) -> None:
        """End it, whatever it does."""
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()
        self._copies.cleanup()


def _collect(
    shared: SharedFrames, outside: Outside, timeout: float, check: Callable[[], None], name: Callable[[int], str]
) -> list[list[Array]]:
    """Feed and collect until all frames are there. `check` raises what has gone wrong elsewhere."""
    watch = StandstillWatch(shared, name, timeout)
    while not outside.done:
        if outside.step(SLICE):
            watch.note()
        check()
        watch.check()
    check()
    return outside.outputs()


class StandstillWatch:
    """Notices that a mesh stands still, and finds who does."""

    def __init__(self, shared: SharedFrames, name: Callable[[int], str], timeout: float) -> None:
        self._shared, self._name, self._timeout = shared, name, timeout
        self.note()

    def note(self) -> None:
        """Something has come out."""
        self._last = time.monotonic()
        self._steps: list[int] | None = None

    def check(self) -> None:
        """Raise `RunError` if nothing has come out for too long: it names who stands still, or else who waits."""
        waited = time.monotonic() - self._last
        if waited > self._timeout / 2 and self._steps is None:
            self._steps = self._shared.views.steps
        if waited <= self._timeout:
            return
        views, before = self._shared.views, self._steps or []
        still = [pe for pe, (now, then) in enumerate(zip(views.steps, before, strict=True)) if now == then]
        computed = views.computed
        manifest = self._shared.manifest
        waiting = [pe for pe in still if not self._finished(pe, computed[pe])]
        if waiting:
            who = "; ".join(f"{self._name(pe)} at frame {computed[pe]}" for pe in waiting)
            raise RunError(f"no frame for {self._timeout:g} seconds: slow, or stuck, is {who}")
        who = ", ".join(f"{one.label} at frame {computed[pe]}" for pe, one in enumerate(manifest.pes))
        raise RunError(f"no frame for {self._timeout:g} seconds: every PE waits for another one: {who}")

    def _finished(self, pe: int, computed: int) -> bool:
        manifest = self._shared.manifest
        return computed == share(self._shared.frames, manifest.pes[pe].replica, manifest.replicas)
