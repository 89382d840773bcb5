"""The PEs of one rank: their programs in this process, joined by rings in memory that other ranks may share."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_hw.errors import RunError
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.mesh.libraries import library_of, rings_library
from byoc_hw.mesh.manifest import ChannelEntry, Manifest
from byoc_hw.mesh.plan import OUTSIDE
from byoc_hw.mesh.rings import LINE, VIEW_BYTES, Idle, LoadedPe, RingEnd, Rings, Views, private_bytes, ring_end
from byoc_hw.tensor import Array

SLICE = 20_000_000
"""Nanoseconds that a loop stays in C, before it looks for failures of others."""


_A_CREDIT, _RING_BYTES = 16, 32 * 1024
"""The frames that a ring holds for each credit of its channel, and the bytes up to which it does. So PEs on a computer
wait for each other once in many frames; with more room than its credits no channel blocks sooner."""


@dataclass(frozen=True)
class RunTimes:
    """Seconds of a run: how long it took, the CPU time of all its processes, and how much of that went into turns in
    which a PE, or who feeds them, could do nothing."""

    seconds: float
    cpu: float
    polling: float


@dataclass(frozen=True)
class RingPlaces:
    """Where rings and views lie in memory: `rings` has the offset and slots of each channel."""

    rings: tuple[tuple[int, int], ...]
    nbytes: int


def places_of(manifest: Manifest, rings: Rings, slots: int | None = None) -> RingPlaces:
    """Views of all PEs, then a ring for each channel, with `slots` slots if these are given."""
    at = VIEW_BYTES * len(manifest.pes)
    places = []
    for channel in manifest.channels:
        count = _slots_of(channel) if slots is None else slots
        places.append((at, count))
        at += round_up(rings.nbytes(count, channel.nbytes), LINE)
    return RingPlaces(tuple(places), at)


def _slots_of(channel: ChannelEntry) -> int:
    """As many as the channel has credits; of small frames some for each credit."""
    credits = max(channel.credits, 1)
    return credits * max(1, min(_A_CREDIT, _RING_BYTES // (credits * max(1, channel.nbytes))))


def share(frames: int, replica: int, replicas: int) -> int:
    """The frames of a pipeline: frame n goes to pipeline n modulo their number."""
    return ceil_div(frames - replica, replicas)


def own_copy(library: Path, folder: str, pe: int) -> Path:
    """A copy of a library for one PE: a file is loaded once in a process, with one state."""
    return Path(shutil.copyfile(library, Path(folder, f"pe{pe}.so")))


class SharedFrames:
    """All rings of a run of some frames. `memory` makes the bytes that they lie in; by default of this process."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        frames: int,
        memory: Callable[[int], Array] = private_bytes,
        slots: int | None = None,
    ) -> None:
        self.manifest, self.frames, self.rings = manifest, frames, Rings(rings_library(directory))
        self.layout = places_of(manifest, self.rings, slots)
        self._memory = memory(self.layout.nbytes)
        self._start = int(self._memory.ctypes.data)
        self.views = Views(self._start, len(manifest.pes))

    def start(self) -> None:
        """Make all rings, empty."""
        for channel, (_, slots), ring in zip(self.manifest.channels, self.layout.rings, self.addresses, strict=True):
            self.rings.start(ring, slots, channel.nbytes)

    @property
    def addresses(self) -> list[int]:
        """The address of each channel's ring."""
        return [self._start + at for at, _ in self.layout.rings]


class PeGroup:
    """Some PEs of a mesh in this process. The programs are loaded at once."""

    def __init__(self, directory: Path, shared: SharedFrames, pes: Sequence[int]) -> None:
        manifest = shared.manifest
        self._manifest, self._shared, self.pes = manifest, shared, tuple(pes)
        self._loaded: dict[int, LoadedPe] = {}
        with tempfile.TemporaryDirectory(prefix="byoc_hw_") as copies:
            for number in pes:
                pe = manifest.pes[number]
                library = library_of(directory, manifest.programs[pe.program])
                self._loaded[number] = LoadedPe(own_copy(library, copies, number), pe.label)
        for channel, ring in zip(manifest.channels, shared.addresses, strict=True):
            if channel.source in self._loaded:
                self._loaded[channel.source].attach(True, channel.source_port, ring)
            if channel.target in self._loaded:
                self._loaded[channel.target].attach(False, channel.target_port, ring)
        for number, one in self._loaded.items():
            one.start(shared.views.place(number))

    def run(self) -> None:
        """Run all PEs, a thread each, until every frame has left them or they are asked to stop.

        After a failure all PEs of the mesh are asked to stop, and `RunError` says which one failed.
        """
        failures: dict[int, RunError] = {}

        def run_one(number: int) -> None:
            pe = self._manifest.pes[number]
            mine = share(self._shared.frames, pe.replica, self._manifest.replicas)
            try:
                while True:
                    ran = self._loaded[number].run(mine, SLICE)
                    if ran.done or ran.stopped:
                        return
            except RunError as error:
                failures[number] = error
                self._shared.views.stop()

        threads = [threading.Thread(target=run_one, args=(number,), daemon=True) for number in self.pes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in sorted(failures):
            raise failures[number]


class Outside:
    """The host of a mesh: it feeds frames to the inputs, and collects the outputs."""

    def __init__(self, shared: SharedFrames, inputs: Sequence[Sequence[Array]]) -> None:
        """`inputs` has for each frame the model's inputs in order."""
        self._shared, self.count = shared, len(inputs)
        manifest = shared.manifest
        self._taken: dict[int, Array] = {}
        self._frames: list[Array] = []
        self._numbers: list[int] = []
        for number, channel in enumerate(manifest.channels):
            if channel.source == OUTSIDE:
                source = manifest.inputs.index(channel.tensor)
                own = inputs[channel.replica :: manifest.replicas]
                self._frames.append(self._rows(number, [frame[source] for frame in own]))
            elif channel.target == OUTSIDE:
                mine = share(self.count, channel.replica, manifest.replicas)
                self._frames.append(np.zeros((mine, channel.nbytes), np.uint8))
                self._taken[number] = self._frames[-1]
            else:
                continue
            self._numbers.append(number)
        ends = [
            ring_end(shared.addresses[number], rows, number not in self._taken)
            for number, rows in zip(self._numbers, self._frames, strict=True)
        ]
        self._ends = (RingEnd * len(ends))(*ends)
        self._idle = Idle()

    def _rows(self, number: int, frames: Sequence[Array]) -> Array:
        """The bytes of a channel's patch in each frame."""
        channel = self._shared.manifest.channels[number]
        tensor = self._shared.manifest.tensors[channel.tensor]
        if not frames:
            return np.zeros((0, channel.nbytes), np.uint8)
        patch = tensor.spread(np.stack(frames))[:, slice(*channel.patch.rows), :, slice(*channel.patch.channels)]
        return np.ascontiguousarray(patch).reshape(len(frames), -1).view(np.uint8)

    @property
    def done(self) -> bool:
        """Whether all outputs of all frames have arrived."""
        return all(end.at == end.count for end in self._ends)

    def step(self, nanoseconds: int) -> bool:
        """Feed and collect for a while, or with 0 what can be at once: whether that was anything.

        Raises `RunError` for a damaged frame.
        """
        before = [end.at for end in self._ends]
        result = self._shared.rings.move_all(self._ends, nanoseconds, self._idle)
        if result < 0:
            channel = self._shared.manifest.channels[self._numbers[-1 - result]]
            label = self._shared.manifest.pes[channel.source].label
            raise RunError(f"{label} sent a damaged frame of {channel.tensor}: none of its outputs is good")
        return before != [end.at for end in self._ends]

    @property
    def polling(self) -> float:
        """Seconds of CPU of turns in which nothing could be moved."""
        return int(self._idle.polled) / 1e9

    def outputs(self) -> list[list[Array]]:
        """The model's outputs in order, for each frame."""
        manifest = self._shared.manifest
        found = []
        for name in manifest.outputs:
            tensor = manifest.tensors[name]
            whole = np.zeros((self.count, *tensor.shape), tensor.dtype)
            for number, rows in self._taken.items():
                channel = manifest.channels[number]
                if channel.tensor != name:
                    continue
                part = tensor.spread(whole[channel.replica :: manifest.replicas])
                place = part[:, slice(*channel.patch.rows), :, slice(*channel.patch.channels)]
                place[...] = rows.view(tensor.dtype).reshape(place.shape)
            found.append(whole)
        return [[values[frame] for values in found] for frame in range(self.count)]
