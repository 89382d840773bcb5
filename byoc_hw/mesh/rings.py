"""The C of rings and PEs from Python: no byte of a frame passes through Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_hw.errors import RunError
from byoc_hw.tensor import Array

LINE = 64
"""Rings and views start at a multiple of this many bytes."""

_LINK_ERRORS = {1: "a frame that is damaged, or not the next one", 2: "no such port", 3: "the other end is lost"}


def private_bytes(nbytes: int) -> Array:
    """Bytes of this process for rings and views, zero."""
    room = np.zeros(nbytes + LINE, np.uint8)
    return room[-room.ctypes.data % LINE :][:nbytes]


class RingEnd(ctypes.Structure):
    """One end of a ring, and rows of uint8 that go into it or come out of it: `at` of `count` have been moved."""

    _fields_ = (
        ("ring", ctypes.c_void_p),
        ("frames", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("sending", ctypes.c_bool),
    )


class Idle(ctypes.Structure):
    """What a thread knows of its turns without work: `polled` is the nanoseconds of CPU that they have taken."""

    _fields_ = (("turns", ctypes.c_uint64), ("mark", ctypes.c_uint64), ("polled", ctypes.c_uint64))


def ring_end(ring: int, frames: Array, sending: bool) -> RingEnd:
    """The end of the ring at an address. The rows must stay."""
    return RingEnd(ring, frames.ctypes.data, len(frames), 0, sending)


class Rings:
    """The functions of a ring's two ends."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.link_ring_bytes.restype = ctypes.c_uint64
        self._library.link_ring_bytes.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
        self._library.link_ring_start.restype = None
        self._library.link_ring_start.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
        self._library.link_frame.restype = ctypes.c_void_p
        self._library.link_frame.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._library.link_move.restype = ctypes.c_int32
        self._library.link_move.argtypes = [ctypes.c_void_p]
        self._library.link_move_all.restype = ctypes.c_int32
        self._library.link_move_all.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p]

    def frame(self, ring: int, number: int, nbytes: int) -> Array:
        """A copy of the bytes of one of the last frames that a ring held."""
        address = self._library.link_frame(ring, number)
        return np.array((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)

    def nbytes(self, slots: int, frame: int) -> int:
        """Bytes of a ring of `slots` frames."""
        return int(self._library.link_ring_bytes(slots, frame))

    def start(self, ring: int, slots: int, frame: int) -> None:
        """Make an empty ring at an address."""
        self._library.link_ring_start(ring, slots, frame)

    def move(self, end: RingEnd) -> int:
        """Move as many frames as can be moved at an end: above 0 if there were any, below for a damaged one."""
        return int(self._library.link_move(ctypes.byref(end)))

    def move_all(self, ends: ctypes.Array[RingEnd], nanoseconds: int, idle: Idle) -> int:
        """Move frames at all ends for a while: 1 when all are done, else 0; -1 - index for a damaged frame."""
        return int(self._library.link_move_all(ends, len(ends), nanoseconds, ctypes.byref(idle)))


class _Failure(ctypes.Structure):
    """`link_failure_t`."""

    _fields_ = (
        ("result", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("port", ctypes.c_uint32),
        ("frame", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Ran:
    """How a call of a PE's loop ended."""

    done: bool
    stopped: bool


class LoadedPe:
    """A PE's program in this process, with a state of its own: each PE loads another copy of its file."""

    def __init__(self, library: Path, label: str) -> None:
        self.label = label
        self._library = ctypes.CDLL(str(library))
        self._library.link_attach.restype = ctypes.c_bool
        self._library.link_attach.argtypes = [ctypes.c_bool, ctypes.c_uint16, ctypes.c_void_p]
        self._library.link_start.restype = None
        self._library.link_start.argtypes = [ctypes.c_void_p]
        self._library.link_run.restype = ctypes.c_int32
        self._library.link_run.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
        self._moved = ctypes.c_bool()

    def attach(self, sending: bool, port: int, ring: int) -> None:
        """Connect a port with the ring at an address. Raises `RunError` for a port that the program does not have."""
        if not self._library.link_attach(sending, port, ring):
            raise RunError(f"{self.label}: its program has no {'send' if sending else 'receive'} {port}")

    def start(self, view: int) -> None:
        """Begin with the first frame; the PE shows its state at the address `view`."""
        self._library.link_start(view)

    def run(self, frames: int, nanoseconds: int) -> Ran:
        """Go on for a while. Raises `RunError` for a failure, with the frame."""
        result = int(self._library.link_run(frames, nanoseconds, ctypes.byref(self._moved)))
        if result < 0:
            raise RunError(self._failure())
        return Ran(result == 1, result == 2)

    def _failure(self) -> str:
        found = _Failure()
        self._library.link_failure(ctypes.byref(found))
        return f"{self.label} failed at {described_failure(found.result, found.error, found.port, found.frame)}"


def described_failure(result: int, error: int, port: int, frame: int) -> str:
    """A PE's failure in words, from the numbers of `link_failure`."""
    if result != -1:
        return f"frame {frame}: layer {result >> 8} with status {result & 0xFF}"
    way, number = ("send", port - 32768) if port >= 32768 else ("receive", port)
    return f"frame {frame}: {way} {number}: {_LINK_ERRORS.get(error, f'error {error}')}"


VIEW_BYTES = 64
_STEPS, _COMPUTED, _USED, _POLLED = (slice(at, at + 8) for at in (0, 8, 24, 32))  # of link_view_t
_STOP = 16


class Views:
    """What PEs show of themselves, one after another in memory."""

    def __init__(self, address: int, count: int) -> None:
        self.address = address
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * (VIEW_BYTES * count)).from_address(address))
        self.rows = self._bytes.reshape(count, VIEW_BYTES)

    def place(self, index: int) -> int:
        """The address of one view."""
        return self.address + index * VIEW_BYTES

    @property
    def steps(self) -> list[int]:
        """How often each PE's loop has gone round."""
        return self._counts(_STEPS)

    @property
    def computed(self) -> list[int]:
        """Frames that each PE has computed."""
        return self._counts(_COMPUTED)

    @property
    def used(self) -> list[int]:
        """Nanoseconds of CPU that each PE has taken."""
        return self._counts(_USED)

    @property
    def polled(self) -> list[int]:
        """Nanoseconds of CPU that each PE has taken in turns in which it could do nothing."""
        return self._counts(_POLLED)

    def stop(self) -> None:
        """Ask every PE to end."""
        self.rows[:, _STOP] = 1

    def _counts(self, place: slice) -> list[int]:
        return [int(value) for value in np.ascontiguousarray(self.rows[:, place]).view(np.uint64)[:, 0]]
