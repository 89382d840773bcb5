"""Copies and jobs on buffers without addresses, and the bytes that they access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import round_up
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import PSUM_BYTES, Geometry, Product, Run, geometry, job_cycles, sums_channels
from byoc_hw.plan.array.storage import Join, Storage
from byoc_hw.plan.array.transfers import Transfer
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, WEIGHTS, Address, Copy, Image, Job, Started
from byoc_hw.tensor import Tensor


@dataclass(eq=False, slots=True)
class LocalBuffer:
    """A buffer in a local memory, without an address."""

    name: str
    space: int
    nbytes: int


@dataclass(frozen=True)
class SharedMemory:
    """Bytes that several regions access: `what` is a local memory of accelerator `number`, or a tensor in main memory.

    A tensor that is cut by channels is several slabs: `number` says which, and its places are pixels.
    """

    what: int | Tensor
    number: int = 0


class Access(NamedTuple):
    """Bytes `start` to `stop` (not included) of a buffer, of a storage in main memory, or of a shared memory; in an
    estimate for a chip also of an argument that is handed over, by its address."""

    place: LocalBuffer | Storage | SharedMemory | Address
    start: int
    stop: int
    writes: bool


@dataclass(eq=False, slots=True)
class Op:
    """A copy, a job or a call for a layer; `local` names the fields of the step that are relative to a buffer.

    `is_job` says whether the array does it, in the order of its jobs. A layer as a whole is one, in main memory.
    """

    step: Started
    layer: int
    accesses: tuple[Access, ...]
    local: Mapping[str, LocalBuffer]
    cycles: int
    is_job: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_job = not isinstance(self.step, Copy)

    def at(self, offsets: Mapping[LocalBuffer, int], slot: int = 0) -> Started:
        """The step with the addresses of its buffers, and the slot of its token, 0 where nothing waits for it."""
        moved = {name: getattr(self.step, name) + offsets[buffer] for name, buffer in self.local.items()}
        return self.step._replace(**moved, slot=slot)


@dataclass(frozen=True)
class Home:
    """The address of a storage in main memory, and its strides there if it is in another order.

    Of a storage that is one `part` of it by strides: from byte `offset` on; of some of its `channels` alone, from the
    first one to the end of them. With `box` it is the place of that box of another storage.
    """

    storage: Storage
    address: Address
    strides: tuple[int, int, int] | None = None
    part: Storage | None = None
    offset: int = 0
    box: Join | None = None
    channels: tuple[int, int] | None = None

    @property
    def shape(self) -> Storage:
        """The storage whose rows and pixels lie by the strides."""
        return self.part or self.storage


def copy_op(layer: int, move: Transfer, home: Home, buffer: LocalBuffer, inward: bool, accelerator: Accelerator) -> Op:
    """A copy between a home and a buffer. Raises `PlanError` where the DMA cannot take it.

    Where it ends with its storage and its buffer, it is rounded up to whole words of the DMA: both have room.
    """
    local, alignment = Address(buffer.space), accelerator.dma_alignment
    if alignment > 1:
        move = padded_end(move, home.storage.nbytes, buffer.nbytes, alignment)
    step = move.load(home.address, local) if inward else move.store(home.address, local)
    problem = misalignment(step, alignment)
    if problem is not None:
        raise PlanError(f"{home.storage.name}: {problem}")
    stop = move.local + (move.rows - 1) * move.local_stride + move.nbytes
    if move.local < 0 or stop > round_up(buffer.nbytes, alignment):
        raise PlanError(f"{home.storage.name}: a copy of whole rows needs a buffer of whole rows")
    accesses = [Access(buffer, move.local, stop, inward)]
    if home.address.space != FLASH:
        reach = (move.rows - 1) * move.main_stride + move.nbytes
        accesses.append(Access(home.storage, move.main, move.main + reach, not inward))
    cycles = copy_cycles(move.nbytes, move.rows, accelerator)
    return Op(step, layer, tuple(accesses), {"target" if inward else "source": buffer}, cycles)


def weights_copy(source: Address, nbytes: int, accelerator: Accelerator) -> tuple[Copy, int]:
    """The copy of a block of weights, and its cycles."""
    return Copy(Address(WEIGHTS), source, nbytes), copy_cycles(nbytes, 1, accelerator)


def weights_op(layer: int, step: Copy, buffer: LocalBuffer, cycles: int) -> Op:
    """The copy of a block of weights to the beginning of a buffer."""
    return Op(step, layer, (Access(buffer, 0, step.nbytes, True),), {"target": buffer}, cycles)


class JobCost(NamedTuple):
    """Cycles of a job, and the bytes of the weights that it reads."""

    cycles: int
    weights: int


def job_cost(layer: Layer, job: Job, accelerator: Accelerator) -> JobCost:
    """The cost of a job; jobs of a layer with the same shapes and kernel have the same."""
    cycles, weights = job_cycles(layer, job.ifm_shape, job.ofm_shape, accelerator, job.kernel), 0
    if isinstance(layer, Weighted):
        depths = job.ifm_shape[2] if sums_channels(layer) else 1
        weights = job.ofm_shape[2] * packed_channel_bytes(prod(job.kernel) * depths, layer.weights.bits)
    return JobCost(cycles, weights)


def job_op(index: int, layer: Layer, job: Job, local: Mapping[str, LocalBuffer], cost: JobCost) -> Op:
    """A job; its addresses are relative to the buffers in `local`."""
    accesses = [Access(local["ifm"], job.ifm, job.ifm + _span(job.ifm_shape, job.ifm_row, job.ifm_pixel), False)]
    if "ifm2" in local:
        accesses.append(Access(local["ifm2"], job.ifm2, job.ifm2 + _second_bytes(geometry(layer), job), False))
    if cost.weights:
        accesses.append(Access(local["weights"], job.weights, job.weights + cost.weights, False))
        if job.first or job.last:
            end = job.params + PARAMS_BYTES * job.ofm_shape[2]
            accesses.append(Access(local["params"], job.params, end, False))
    if "psum" in local:
        end = job.psum + PSUM_BYTES * prod(job.ofm_shape)
        accesses += [Access(local["psum"], job.psum, end, False)] * (not job.first)
        accesses += [Access(local["psum"], job.psum, end, True)] * (not job.last)
    if job.last:
        accesses.append(Access(local["ofm"], job.ofm, job.ofm + _span(job.ofm_shape, job.ofm_row, job.ofm_pixel), True))
    return Op(job, index, tuple(accesses), local, cost.cycles)


def run_job(
    index: int,
    layer: Layer,
    form: Run,
    inputs: Sequence[tuple[LocalBuffer, int]],
    ofm: tuple[LocalBuffer, int],
    elements: int,
    image: Image,
    accelerator: Accelerator,
) -> Op:
    """A job of an element-wise layer over a run of elements. Operands are buffers with the offset of the first byte."""
    shape = form.shape(elements)
    local = {"ofm": ofm[0]} | {name: buffer for name, (buffer, _) in zip(("ifm", "ifm2"), inputs, strict=False)}
    row, pixel = layer.ofm.bytes_of(elements), layer.ofm.bytes_of(form.each)
    job = Job(
        ifm=inputs[0][1],
        ifm2=inputs[1][1] if len(inputs) > 1 else 0,
        ofm=ofm[1],
        ifm_shape=shape,
        ofm_shape=shape,
        ifm_row=row,
        ofm_row=row,
        ifm_pixel=pixel,
        ofm_pixel=pixel,
        image=image,
    )
    return job_op(index, layer, job, local, job_cost(layer, job, accelerator))


def product_job(
    index: int,
    layer: Layer,
    form: Product,
    inputs: Sequence[tuple[LocalBuffer, int]],
    ofm: tuple[LocalBuffer, int],
    rows: int,
    image: Image,
    accelerator: Accelerator,
) -> Op:
    """A job over rows of one item of a matrix product. Operands are buffers with the offset of the first byte."""
    ifm_shape, ofm_shape = form.shapes(rows)
    job = Job(
        ifm=inputs[0][1],
        ifm2=inputs[1][1],
        ofm=ofm[1],
        ifm_shape=ifm_shape,
        ofm_shape=ofm_shape,
        ifm_row=rows * form.depth,
        ofm_row=rows * form.channels,
        ifm_pixel=form.depth,
        ofm_pixel=form.channels,
        image=image,
    )
    local = {"ifm": inputs[0][0], "ifm2": inputs[1][0], "ofm": ofm[0]}
    return job_op(index, layer, job, local, job_cost(layer, job, accelerator))


def padded_end(move: Transfer, main: int, local: int, alignment: int) -> Transfer:
    """A transfer of one row that ends with its `main` and `local` bytes, rounded up to whole words of the DMA."""
    if move.rows > 1 or move.main + move.nbytes != main or move.local + move.nbytes != local:
        return move
    return move._replace(nbytes=round_up(move.nbytes, alignment))


def misalignment(copy: Copy, alignment: int) -> str | None:
    """The rule of the DMA's alignment that a copy breaks, with the value and how to keep it, or None."""
    if alignment == 1:
        return None
    values = {"target": copy.target.offset, "source": copy.source.offset, "length": copy.nbytes}
    if copy.rows > 1:
        values |= {"target stride": copy.target_stride, "source stride": copy.source_stride}
    for what, value in values.items():
        if value % alignment:
            rule = f"a copy's addresses, lengths and strides are multiples of {alignment} bytes"
            return f"{rule}: got {what} {value} (pad the model's channels or outputs to a multiple of {alignment})"
    return None


def _second_bytes(form: Geometry, job: Job) -> int:
    """Bytes that a job reads of its second input."""
    if isinstance(form, Product):
        return form.item_bytes
    if isinstance(form, Run) and form.repeats:
        return form.each
    return _span(job.ifm_shape, job.ifm_row, job.ifm_pixel)


def _span(shape: tuple[int, int, int], row: int, pixel: int) -> int:
    """Bytes from the first to the last of a tile."""
    return (shape[0] - 1) * row + (shape[1] - 1) * pixel + shape[2]


def activations(name: str, nbytes: int) -> LocalBuffer:
    """A buffer in local activation memory."""
    return LocalBuffer(name, ACTIVATIONS, nbytes)
