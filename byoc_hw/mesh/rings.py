"""The C of rings and PEs from Python: no byte of a frame passes through Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_hw.errors import RunError
from byoc_hw.tensor import Array

LINE = 64
"""Rings and views start at a multiple of this many bytes."""

_LINK_ERRORS = {1: "a frame that is damaged, or not the next one", 2: "no such port", 3: "the other end is lost"}


class Memory:
    """Bytes that rings and views lie in: those of `buffer`, which others may share."""

    def __init__(self, buffer: Array) -> None:
        self._buffer = buffer
        self.address = int(buffer.ctypes.data)

    @classmethod
    def private(cls, nbytes: int) -> Memory:
        """Bytes of this process, zero."""
        room = np.zeros(nbytes + LINE, np.uint8)
        return cls(room[-room.ctypes.data % LINE :][:nbytes])


class Rings:
    """The functions of a ring's two ends."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.link_ring_bytes.restype = ctypes.c_uint64
        self._library.link_ring_bytes.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
        self._library.link_ring_start.restype = None
        self._library.link_ring_start.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
        for name in ("link_put_frames", "link_take_frames"):
            function = getattr(self._library, name)
            function.restype = ctypes.c_int64
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]

    def nbytes(self, slots: int, frame: int) -> int:
        """Bytes of a ring of `slots` frames."""
        return int(self._library.link_ring_bytes(slots, frame))

    def start(self, ring: int, slots: int, frame: int) -> None:
        """Make an empty ring at an address."""
        self._library.link_ring_start(ring, slots, frame)

    def put(self, ring: int, frames: Array) -> int:
        """Move as many frames, rows of uint8, into a ring as there is room for: their number."""
        return int(self._library.link_put_frames(ring, frames.ctypes.data, len(frames)))

    def take(self, ring: int, frames: Array) -> int:
        """Fill rows with the next frames of a ring, as far as there are any: their number, or -1 for a damaged one."""
        return int(self._library.link_take_frames(ring, frames.ctypes.data, len(frames)))


@dataclass(frozen=True)
class Ran:
    """How a call of a PE's loop ended."""

    done: bool
    stopped: bool
    progress: bool


class LoadedPe:
    """A PE's program in this process, with a state of its own: each PE loads another copy of its file."""

    def __init__(self, library: Path, label: str) -> None:
        self.label = label
        self._library = ctypes.CDLL(str(library))
        self._library.link_attach.restype = None
        self._library.link_attach.argtypes = [ctypes.c_bool, ctypes.c_uint16, ctypes.c_void_p]
        self._library.link_start.restype = None
        self._library.link_start.argtypes = [ctypes.c_void_p]
        self._library.link_run.restype = ctypes.c_int32
        self._library.link_run.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
        self._moved = ctypes.c_bool()

    def attach(self, sending: bool, port: int, ring: int) -> None:
        """Connect a port with the ring at an address."""
        self._library.link_attach(sending, port, ring)

    def start(self, view: int) -> None:
        """Begin with the first frame; the PE shows its state at the address `view`."""
        self._library.link_start(view)

    def run(self, frames: int, nanoseconds: int) -> Ran:
        """Go on for a while, or with 0 until the PE has to wait. Raises `RunError` for a failure, with the frame."""
        result = int(self._library.link_run(frames, nanoseconds, ctypes.byref(self._moved)))
        if result < 0:
            raise RunError(self._failure())
        return Ran(result == 1, result == 2, self._moved.value)

    def _failure(self) -> str:
        result, error, port, frame = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_uint32(), ctypes.c_uint64()
        self._library.link_failure(*map(ctypes.byref, (result, error, port, frame)))
        return f"{self.label} failed at {described_failure(result.value, error.value, port.value, frame.value)}"


def described_failure(result: int, error: int, port: int, frame: int) -> str:
    """A PE's failure in words, from the numbers of `link_failure`."""
    if result != -1:
        return f"frame {frame}: layer {result >> 8} with status {result & 0xFF}"
    way, number = ("send", port - 32768) if port >= 32768 else ("receive", port)
    return f"frame {frame}: {way} {number}: {_LINK_ERRORS.get(error, f'error {error}')}"


VIEW_BYTES = 64
_STEPS, _COMPUTED = slice(0, 8), slice(8, 16)


class Views:
    """What PEs show of themselves, one after another in memory."""

    def __init__(self, address: int, count: int) -> None:
        self.address = address
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * (VIEW_BYTES * count)).from_address(address))
        self._rows = self._bytes.reshape(count, VIEW_BYTES)

    def place(self, index: int) -> int:
        """The address of one view."""
        return self.address + index * VIEW_BYTES

    @property
    def steps(self) -> list[int]:
        """How often each PE's loop has gone round."""
        return [int(value) for value in self._column(_STEPS, np.uint64)]

    @property
    def computed(self) -> list[int]:
        """Frames that each PE has computed."""
        return [int(value) for value in self._column(_COMPUTED, np.uint64)]

    @property
    def computing(self) -> list[bool]:
        """Whether each PE is in its step now."""
        return [bool(value) for value in self._column(slice(16, 20), np.uint32)]

    def stop(self) -> None:
        """Ask every PE to end."""
        self._rows[:, 20] = 1

    def _column(self, place: slice, dtype: type) -> Array:
        return np.ascontiguousarray(self._rows[:, place]).view(dtype)[:, 0]


def packed(frames: Sequence[Array]) -> Array:
    """Some frames of one shape as rows of bytes."""
    return np.ascontiguousarray(np.stack(frames)).view(np.uint8).reshape(len(frames), -1)
