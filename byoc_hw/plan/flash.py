"""The constant data of a region, in the order in which its tiles use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_hw.plan.steps import FLASH, Address


class FlashImage:
    """Blocks of constants, each at a multiple of `alignment` bytes and padded with zeros to one."""

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._bytes = bytearray()

    def add(self, data: bytes) -> Address:
        """Append a block; where it starts."""
        address = Address(FLASH, len(self._bytes))
        self._bytes += data
        self._bytes += bytes(-len(self._bytes) % self._alignment)
        return address

    def add_constant(self, data: npt.NDArray[Any]) -> Address:
        """Append an activation tensor that is constant, dense and little endian."""
        return self.add(np.ascontiguousarray(data, data.dtype.newbyteorder("<")).tobytes())

    def contents(self) -> bytes:
        """All blocks so far."""
        return bytes(self._bytes)
