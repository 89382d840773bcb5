"""The plan as data: what a region copies, computes and waits for, and where every byte lies.

What `emit` writes as C; it mirrors `hwlib.h`, where each field is documented.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from byoc_hw.graph import Graph, Layer, Tensor

ACTIVATIONS, WEIGHTS, FLASH, SCRATCH, ARGUMENT = range(5)
"""Spaces of an address; a region's arguments follow `ARGUMENT`, inputs first."""

SLOTS = 16
"""Tokens that a region can hold at a time."""


@dataclass(frozen=True)
class Address:
    """`offset` bytes from the start of `space`."""

    space: int
    offset: int = 0

    def __add__(self, nbytes: int) -> Address:
        return Address(self.space, self.offset + nbytes)


@dataclass(frozen=True)
class Copy:
    """Start a DMA transfer of `rows` rows of `nbytes`; strides in bytes. Its token goes to `slot`."""

    target: Address
    source: Address
    nbytes: int
    rows: int = 1
    target_stride: int = 0
    source_stride: int = 0
    slot: int = 0


@dataclass(frozen=True)
class Job:
    """Start the array on one tile of the layer: offsets in local memory, extents in elements.

    `ifm`, `ifm2`, `ofm`, `psum` are in local activations, `weights`, `params` in local weights.
    """

    ifm: int
    ofm: int
    ifm_shape: tuple[int, int, int]
    ofm_shape: tuple[int, int, int]
    ifm_row: int
    ofm_row: int
    ifm_pixel: int
    ofm_pixel: int
    ifm2: int = 0
    psum: int = 0
    weights: int = 0
    params: int = 0
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    first: bool = True
    last: bool = True
    slot: int = 0


@dataclass(frozen=True)
class CopyWait:
    """Wait for the copy whose token is in `slot`."""

    slot: int = 0


@dataclass(frozen=True)
class JobWait:
    """Wait for the job whose token is in `slot`."""

    slot: int = 0


Step = Copy | Job | CopyWait | JobWait


@dataclass(frozen=True)
class LayerPlan:
    """The steps that the wrapper of one layer runs."""

    layer: Layer
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class RegionPlan:
    """A planned region.

    `flash` is its constant data: packed weights with their parameters, and constant activations.
    `tensors` says where each activation tensor lies, by identity of the `Tensor`; `scratch_bytes`
    is what the region needs of the arena while it runs. `tail` holds the steps of `hwlib_wait`.
    """

    graph: Graph
    layers: tuple[LayerPlan, ...]
    flash: bytes
    scratch_bytes: int
    tensors: dict[Tensor, Address] = field(repr=False)
    tail: tuple[Step, ...] = ()
