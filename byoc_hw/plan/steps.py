"""The plan as data: what a region copies, computes and waits for, and where every byte lies.

What `emit` writes as C; it mirrors `hwlib.h`, where each field is documented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from byoc_hw.graph import Graph, Layer, Tensor
from byoc_hw.plan.memory import NOTHING, RegionMemory

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
    `memory` says what is alive when, for whoever places the region among others.
    """

    graph: Graph
    layers: tuple[LayerPlan, ...]
    flash: bytes
    scratch_bytes: int
    tensors: dict[Tensor, Address] = field(repr=False)
    tail: tuple[Step, ...] = ()
    memory: RegionMemory = field(default=NOTHING, repr=False)

    def placed(self, offsets: Mapping[str, int]) -> RegionPlan:
        """The same plan with each block of scratch at another offset from the region's base.

        What one layer touches lies apart, so that an address says which tensor's byte it is.
        """
        tensors = {tensor: self._moved(address, tensor, offsets) for tensor, address in self.tensors.items()}
        layers = tuple(
            replace(plan, steps=_relocated(plan.steps, (*plan.layer.inputs, plan.layer.ofm), self.tensors, tensors))
            for plan in self.layers
        )
        tail = _relocated(self.tail, self.graph.outputs, self.tensors, tensors)
        ends = (offsets[block.name] + block.nbytes for block in self.memory.scratch)
        return replace(self, layers=layers, tail=tail, tensors=tensors, scratch_bytes=max(ends, default=0))

    def _moved(self, address: Address, tensor: Tensor, offsets: Mapping[str, int]) -> Address:
        return Address(SCRATCH, offsets[self.memory.blocks[tensor]]) if address.space == SCRATCH else address


def _relocated(
    steps: tuple[Step, ...],
    touched: Iterable[Tensor],
    before: Mapping[Tensor, Address],
    after: Mapping[Tensor, Address],
) -> tuple[Step, ...]:
    spans = [
        (before[tensor].offset, tensor.nbytes, after[tensor].offset)
        for tensor in touched
        if before[tensor].space == SCRATCH
    ]

    def moved(address: Address) -> Address:
        if address.space != SCRATCH:
            return address
        start, _, now = next(span for span in spans if span[0] <= address.offset < span[0] + span[1])
        return Address(SCRATCH, address.offset - start + now)

    return tuple(
        replace(step, target=moved(step.target), source=moved(step.source)) if isinstance(step, Copy) else step
        for step in steps
    )
