"""The constant data of a region, in the order in which it is used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import lcm
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import round_up
from byoc_hw.params.pack import PARAMS_BYTES, pack, pack_params
from byoc_hw.params.requantize import folded_bias, sum_scales, weight_values
from byoc_hw.plan.array.kinds import parts_of_kernel
from byoc_hw.plan.array.weight_blocks import weights_bytes
from byoc_hw.plan.steps import FLASH, Address, Copy
from byoc_hw.tensor import Tensor


class WeightBlock(NamedTuple):
    """The weights of one copy: of `channels` output channels from `channel` on, `depths`
    input channels from `depth` on (0: no weights), after their parameters with `params`. Of a kernel in parts it
    has all of them, one behind the other."""

    layer: int
    channel: int
    channels: int
    depth: int
    depths: int
    params: bool


class FlashImage:
    """Lays out constants one after the other, and packs them in the end."""

    def __init__(self, accelerator: Accelerator, alignment: int, local_alignment: int) -> None:
        self._accelerator = accelerator
        self._dma_alignment = accelerator.dma_alignment
        self._alignment = alignment
        self._local_alignment = local_alignment
        self._nbytes = 0
        self._blocks: dict[WeightBlock, int] = {}
        self._constants: dict[Tensor, int] = {}
        self._fills: list[tuple[int | None, Tensor]] = []  # None: not of one value

    def constant(self, tensor: Tensor) -> Address:
        """The address of a constant activation tensor, dense."""
        if tensor not in self._constants:
            self._constants[tensor] = self._place(tensor.nbytes)
        return Address(FLASH, self._constants[tensor])

    def filled(self, value: int, nbytes: int) -> tuple[Tensor, Address]:
        """A run of at least `nbytes` bytes of one int8 value, and its address."""
        for other, tensor in self._fills:
            if other == value and tensor.nbytes >= nbytes:
                return tensor, self.constant(tensor)
        tensor = Tensor(f"fill {value}", (nbytes,), data=np.full(nbytes, value, np.int8))
        self._fills.append((value, tensor))
        return tensor, self.constant(tensor)

    def block(self, block: WeightBlock, layer: Weighted) -> tuple[Address, int]:
        """The address of a block, and its bytes."""
        nbytes = self._block_bytes(block, layer)
        if block not in self._blocks:
            self._blocks[block] = self._place(nbytes)
        return Address(FLASH, self._blocks[block]), nbytes

    def _block_bytes(self, block: WeightBlock, layer: Weighted) -> int:
        """Bytes of the copy of a block."""
        nbytes = self.weights_at(block) + weights_bytes(layer, block.channels, block.depths, self._accelerator)
        return round_up(nbytes, self._dma_alignment)

    def weights_at(self, block: WeightBlock) -> int:
        """The offset of the weights in a block."""
        if not block.params:
            return 0
        return round_up(PARAMS_BYTES * block.channels, self._local_alignment)

    @property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return round_up(self._nbytes, self._alignment)

    def contents(self, layers: Sequence[Layer]) -> bytes:
        """The bytes of all constants; blocks refer to `layers` by index."""
        image = bytearray(self.nbytes)
        for tensor, offset in self._constants.items():
            assert tensor.data is not None, "Graph.verify has seen to it"
            data = np.ascontiguousarray(tensor.data, tensor.data.dtype.newbyteorder("<")).tobytes()
            image[offset : offset + len(data)] = data
        packed = _Packer(layers, self._accelerator)
        for block, offset in self._blocks.items():
            if block.params:
                params = packed.params(block)
                image[offset : offset + len(params)] = params
            if block.depths:
                weights = packed.weights(block)
                start = offset + self.weights_at(block)
                image[start : start + len(weights)] = weights
        return bytes(image)

    def behind(self, one: int, nbytes: int, other: int, more: int) -> tuple[FlashImage, Callable[[int], int]]:
        """The same constants, with the `more` bytes at `other` moved behind the `nbytes` bytes at `one`: one copy takes
        both. With them comes what gives the new address of what lies at an address."""
        beside = lcm(self._alignment, self._local_alignment)
        size, there, gone = (
            round_up(nbytes, self._alignment),
            round_up(nbytes, beside),
            round_up(more, self._alignment),
        )

        def moved(at: int) -> int:
            early = gone if other < at else 0  # what the bytes at `other` leave
            if other <= at < other + gone:
                return at - other + one + there - (gone if other < one else 0)
            return at - early + (there - size + gone if at >= one + size else 0)

        return self._moved(moved, there - size), moved

    def moved_to(self, other: FlashImage) -> Callable[[int], int]:
        """What gives the address in another image, which has these constants at other addresses and maybe more, of what
        lies at an address in this one."""
        if other is self:
            return lambda at: at
        moves = sorted(
            [(at, other._blocks[block]) for block, at in self._blocks.items()]
            + [(at, other._constants[tensor]) for tensor, at in self._constants.items()]
        )

        def moved(at: int) -> int:
            before, behind = moves[bisect_right(moves, at, key=itemgetter(0)) - 1]
            return at - before + behind

        return moved

    def filling(self, copy: object) -> bytes | None:
        """The bytes, row by row, that a copy fills memory with, None of other copies and of jobs."""
        if not isinstance(copy, Copy) or copy.source.space != FLASH or copy.source_stride not in (0, copy.nbytes):
            return None
        nbytes = copy.rows * copy.nbytes
        for _, tensor in self._fills:
            start = copy.source.offset - self._constants[tensor]
            if tensor.data is not None and 0 <= start <= tensor.nbytes - nbytes:
                return tensor.data[start : start + nbytes].tobytes()
        return None

    def with_filling(self, data: bytes) -> tuple[FlashImage, Address]:
        """The same constants with some bytes to fill memory with, and their address."""
        image = self._moved(lambda at: at, 0)
        values = np.frombuffer(data, np.int8)
        if len(set(data)) == 1:
            return image, image.filled(int(values[0]), len(data))[1]
        tensor = Tensor("fill", (len(data),), data=values)
        image._fills.append((None, tensor))
        return image, image.constant(tensor)

    def _moved(self, moved: Callable[[int], int], more: int) -> FlashImage:
        """The same constants at other addresses, in `more` bytes more."""
        image = FlashImage(self._accelerator, self._alignment, self._local_alignment)
        image._nbytes = self._nbytes + more
        image._blocks = {block: moved(offset) for block, offset in self._blocks.items()}
        image._constants = {tensor: moved(offset) for tensor, offset in self._constants.items()}
        image._fills = list(self._fills)
        return image

    def _place(self, nbytes: int) -> int:
        offset = self._nbytes
        self._nbytes = round_up(offset + nbytes, self._alignment)
        return offset


class _Packer:
    """Packs blocks; computes what a layer's blocks share only once."""

    def __init__(self, layers: Sequence[Layer], accelerator: Accelerator) -> None:
        self._layers, self._accelerator = layers, accelerator
        self._params: dict[int, bytes] = {}

    def params(self, block: WeightBlock) -> bytes:
        if block.layer not in self._params:
            layer = self._layer(block)
            self._params[block.layer] = pack_params(folded_bias(layer), sum_scales(layer))
        start = PARAMS_BYTES * block.channel
        return self._params[block.layer][start : start + PARAMS_BYTES * block.channels]

    def weights(self, block: WeightBlock) -> bytes:
        layer = self._layer(block)
        channels = slice(block.channel, block.channel + block.channels)
        values = weight_values(layer)[channels, :, :, block.depth : block.depth + block.depths]
        return b"".join(
            pack(
                values[:, part.row : part.row + part.height, part.column : part.column + part.width], layer.weights.bits
            )
            for part in parts_of_kernel(layer, self._accelerator)
        )

    def _layer(self, block: WeightBlock) -> Weighted:
        layer = self._layers[block.layer]
        assert isinstance(layer, Weighted)
        return layer
