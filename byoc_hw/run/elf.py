"""Reads the symbols of a 32-bit little-endian ELF program: addresses by name, and functions by address."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_FUNCTION = 2
_OBJECT = 1


def symbols(program: Path) -> dict[str, int]:
    """Addresses of functions and variables by name. Where several have the same name, any of them."""
    return {name: address for name, address, _, _ in _entries(program.read_bytes())}


def function_at(program: Path, address: int) -> str | None:
    """The name of the function that holds an address; None if no function does."""
    for name, start, nbytes, kind in _entries(program.read_bytes()):
        if kind == _FUNCTION and start <= address < start + max(nbytes, 1):
            return name
    return None


def _entries(data: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Name, address, bytes and kind of each function and variable."""
    if data[:6] != b"\x7fELF\x01\x01":
        return
    offset, size, count = *struct.unpack_from("<I", data, 32), *struct.unpack_from("<HH", data, 46)
    sections = [struct.unpack_from("<10I", data, offset + index * size) for index in range(count)]
    for _, kind, _, _, start, nbytes, strings, _, _, entry in sections:
        if kind == 2:  # a symbol table
            names = sections[strings][4]
            for at in range(start, start + nbytes, entry):
                name, value, length, info, _, _ = struct.unpack_from("<IIIBBH", data, at)
                if info & 15 in (_FUNCTION, _OBJECT):
                    end = data.index(b"\0", names + name)
                    yield data[names + name : end].decode(errors="replace"), value, length, info & 15
