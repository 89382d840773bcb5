"""The plan as data: the copies, jobs and waits of a region, and all addresses.

`emit` writes it as C. It mirrors `hwlib.h`, which documents each field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer
from byoc_hw.graph_text import shape_text
from byoc_hw.plan.region_memory import NOTHING, RegionMemory
from byoc_hw.tensor import Tensor

ACTIVATIONS, WEIGHTS, FLASH, SCRATCH, ARGUMENT = range(5)
"""Spaces of an address; a region's arguments follow `ARGUMENT`, inputs first."""

FLASH_ALIGNMENT = 4
"""The alignment of a region's constant data, in bytes: parameters are read as 32-bit words."""

SLOTS = 16
"""The number of token slots of a region."""


class Address(NamedTuple):
    """`offset` bytes from the start of `space`. In scratch, `block` is the name of the block."""

    space: int
    offset: int = 0
    block: str | None = None

    def __add__(self, nbytes: int) -> Address:  # type: ignore[override]
        return Address(self.space, self.offset + nbytes, self.block)


class Image(NamedTuple):
    """The position of a job's output in its layer's ofm of the model: dense, height before width.

    `shape` is (height, width, channels) of the box in the order of the job's bytes,
    `offset` and `strides` (of height and width) are in elements of the ofm. Of a job over packed rows, which lie
    `pitch` pixels apart, the output has a part of that box: the pixels from number `first` on, with those between rows.
    """

    offset: int
    shape: tuple[int, int, int]
    strides: tuple[int, int]
    pitch: int = 0
    first: int = 0


class Copy(NamedTuple):
    """Start a DMA transfer of `rows` rows of `nbytes`; strides in bytes. Its token goes to `slot`.

    Slot 0 is for copies that nothing waits for by slot, and is overwritten.
    """

    target: Address
    source: Address
    nbytes: int
    rows: int = 1
    target_stride: int = 0
    source_stride: int = 0
    slot: int = 0

    @property
    def bytes_moved(self) -> int:
        """The bytes of all rows."""
        return self.nbytes * self.rows

    @property
    def inward(self) -> bool:
        """Whether it copies to local memory."""
        return self.target.space in (ACTIVATIONS, WEIGHTS)

    @property
    def main(self) -> Address:
        """Its side in main memory."""
        return self.source if self.inward else self.target

    @property
    def local(self) -> Address:
        """Its side in local memory."""
        return self.target if self.inward else self.source

    @property
    def local_stride(self) -> int:
        """Bytes from row to row in local memory."""
        return self.target_stride if self.inward else self.source_stride


class Job(NamedTuple):
    """Start the array on one tile of the layer: offsets in local memory, extents in elements.

    `ifm`, `ifm2`, `ofm`, `psum` are in local activations, `weights`, `params` in local weights. `kernel` is the
    rows and columns of a kernel that it sums over, of a layer with weights.
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
    kernel: tuple[int, int] = (0, 0)
    first: bool = True
    last: bool = True
    image: Image | None = None
    slot: int = 0


class WholeLayer(NamedTuple):
    """On a chip of several accelerators: start the layer as a whole, which takes the array `cycles`.

    It reads `inputs` and writes `output` and `workspace`, in main memory. Constants of a library have no address.
    """

    inputs: tuple[Address | None, ...]
    output: Address
    workspace: Address | None
    cycles: int
    slot: int = 0

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Of all that it reads and writes: the output first, then inputs, then the workspace."""
        return tuple(one for one in (self.output, *self.inputs, self.workspace) if one is not None)


@dataclass(frozen=True)
class CopyWait:
    """Wait for the copy whose token is in `slot`."""

    slot: int = 0


@dataclass(frozen=True)
class JobWait:
    """Wait for the job, or the layer as a whole, whose token is in `slot`."""

    slot: int = 0


@dataclass(frozen=True)
class Signal:
    """On a chip of several accelerators: the copy whose token is in `slot`, the one started last, is event `event`;
    with `job` it is a job or a whole layer."""

    event: int
    slot: int = 0
    job: bool = False


@dataclass(frozen=True)
class Await:
    """On a chip of several accelerators: go on when event `event`, an operation of lane `lane`, has ended."""

    event: int
    lane: int


@dataclass(frozen=True)
class EngineSignal:
    """On a chip with events: an engine counts `event` up when it has done all that it was given before. With `job` the
    engine is the array, else the DMA."""

    event: int
    job: bool = False


@dataclass(frozen=True)
class EngineAwait:
    """On a chip with events: an engine does what it is given after this when `event` has come `value` times."""

    event: int
    value: int
    job: bool = False


@dataclass(frozen=True)
class Turn:
    """On a chip with events: the core goes on with the next lane."""


Started = Copy | Job | WholeLayer
"""Steps that start an operation of an engine."""

Queued = Started | EngineSignal | EngineAwait
"""Steps that take a place in the queue of an engine."""

Step = Queued | CopyWait | JobWait | Signal | Await | Turn


def engine_of(step: Queued) -> str:
    """The engine that a step is for: "dma" or "array"."""
    if isinstance(step, EngineSignal | EngineAwait):
        return "array" if step.job else "dma"
    return "dma" if isinstance(step, Copy) else "array"


@dataclass(frozen=True)
class LayerCall:
    """The steps that run when a layer begins or goes on. Its jobs are the layer's; its copies may be for any layer.

    `index` is the layer's place in the graph. A layer whose tiles alternate with other layers' has a
    call for each tile.
    """

    index: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class PlacedBuffer:
    """A buffer in a local memory, live from the start of step `first` to the end of step `last`.

    Steps are numbered through all calls and the tail. `name` is the tensor or the layer whose weights it holds.
    """

    name: str
    space: int
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class RegionPlan:
    """A planned region.

    `layers` are the graph's, each as it is mapped to the array (height and width may be swapped);
    `calls` run them. `flash` is the constant data: packed weights with their parameters, and constant
    activations. `tensors` has the addresses of activation tensors in main memory, by identity of the
    `Tensor`: arguments, constants, and those that do not stay in local memory. `scratch_bytes` is the part
    of the arena that the region needs while it runs. `tail` has the steps of `hwlib_wait`, `memory`
    the lifetimes for a placement in the arena. `local` is the map of the local
    memories. `reordered` are the spaces of arguments whose order the copies change. `blocks` are the offsets of the
    blocks of scratch, 0 of those that have no place yet. `ahead` is the symbol of the next region, if this one starts
    some of its copies: their source is the space `ahead_space`, the other region's constant data. `after` is the symbol
    of the region that starts copies of this one, which goes on with what is in local memory and in flight. `on` is the
    accelerator of a chip of which this region uses no other one; None where there is only one.
    """

    graph: Graph
    layers: tuple[Layer, ...]
    calls: tuple[LayerCall, ...]
    flash: bytes
    scratch_bytes: int
    tensors: dict[Tensor, Address] = field(repr=False)
    tail: tuple[Step, ...] = ()
    memory: RegionMemory = field(default=NOTHING, repr=False)
    local: tuple[PlacedBuffer, ...] = field(default=(), repr=False)
    reordered: frozenset[int] = frozenset()
    blocks: Mapping[str, int] = field(default_factory=dict, repr=False)
    ahead: str = ""
    after: str = ""
    on: Accelerator | None = field(default=None, repr=False)

    @property
    def ahead_space(self) -> int:
        """The space of the constant data of the region `ahead`: the one behind the arguments."""
        return ARGUMENT + len(self.graph.inputs) + len(self.graph.outputs)

    @property
    def copied_ahead(self) -> tuple[Copy, ...]:
        """The copies that it starts for the region `ahead`."""
        return tuple(
            step for step in self.steps if isinstance(step, Copy) and self.ahead and step.main.space == self.ahead_space
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return (*(step for call in self.calls for step in call.steps), *self.tail)

    @property
    def moved(self) -> dict[str, int]:
        """Bytes that the DMA moves, by kind.

        "weights" with all constants, the region's "inputs" and "outputs", what is "spilled" to main memory
        and loaded again. "reordered" are those of inputs and outputs that lie in another order there.
        """
        return self.moved_in(frozenset())

    def moved_in(self, between: Collection[int]) -> dict[str, int]:
        """As `moved`, where the arguments of some spaces are intermediates of a region that this plan is a part of."""
        kinds = {FLASH: "weights", SCRATCH: "spilled", **dict.fromkeys(between, "spilled")}
        kinds |= {self.ahead_space: "weights"} if self.ahead else {}
        moved = dict.fromkeys(("weights", "inputs", "outputs", "spilled", "reordered"), 0)
        for step in self.steps:
            if isinstance(step, Copy):
                space = step.source.space if step.inward else step.target.space
                kind = kinds.get(space, "inputs" if step.inward else "outputs")
                moved[kind] += step.bytes_moved
                moved["reordered"] += step.bytes_moved if space in self.reordered else 0
        return moved

    def __repr__(self) -> str:
        return f"<RegionPlan {self.graph.name}: {len(self.layers)} layers, {len(self.steps)} steps>"

    def __str__(self) -> str:
        """One line for the region, then a line for each call and for each of its steps."""
        needs = f"{len(self.flash)} bytes of flash, {self.scratch_bytes} of scratch"
        lines = [f"plan {self.graph.name}: {len(self.layers)} layers, {len(self.steps)} steps, {needs}"]
        for call in self.calls:
            lines.append(f"%{call.index} {self.layers[call.index].kind}")
            lines += [f"  {_step_text(step, self.graph)}" for step in call.steps]
        return "\n".join([*lines, "the end", *(f"  {_step_text(step, self.graph)}" for step in self.tail)])

    def placed(self, offsets: Mapping[str, int]) -> RegionPlan:
        """The same plan with each block of scratch at another offset from the region's base."""

        def moved(address: Address) -> Address:
            if address.block is None:
                return address
            return address._replace(offset=address.offset - self.blocks.get(address.block, 0) + offsets[address.block])

        def relocated(steps: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple(
                step._replace(target=moved(step.target), source=moved(step.source)) if isinstance(step, Copy) else step
                for step in steps
            )

        ends = (offsets[block.name] + block.nbytes for block in self.memory.scratch)
        return replace(
            self,
            calls=tuple(replace(call, steps=relocated(call.steps)) for call in self.calls),
            tail=relocated(self.tail),
            tensors={tensor: moved(address) for tensor, address in self.tensors.items()},
            scratch_bytes=max(ends, default=0),
            blocks={block.name: offsets[block.name] for block in self.memory.scratch},
        )


_LOCAL = {ACTIVATIONS: "activations", WEIGHTS: "weights", FLASH: "flash", SCRATCH: "scratch"}


def _address_text(address: Address, graph: Graph) -> str:
    argument = address.space - ARGUMENT
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    named = f"in{argument}" if argument < inputs else f"out{argument - inputs}"
    named = "ahead" if argument == inputs + outputs else named
    return f"{_LOCAL.get(address.space, named)}+{address.offset}"


def _step_text(step: Step, graph: Graph) -> str:
    if isinstance(step, Await):
        return f"await event {step.event} of lane {step.lane}"
    if isinstance(step, EngineAwait):
        return f"{engine_of(step)} awaits event {step.event}, {step.value} times"
    if isinstance(step, EngineSignal):
        return f"{engine_of(step)} signals event {step.event}"
    if isinstance(step, Turn):
        return "turn"
    slot = f"  slot {step.slot}" if step.slot else ""
    if isinstance(step, CopyWait):
        return f"wait copy{slot}"
    if isinstance(step, JobWait):
        return f"wait job{slot}"
    if isinstance(step, Signal):
        return f"signal event {step.event}{slot}"
    if isinstance(step, Copy):
        source, target = _address_text(step.source, graph), _address_text(step.target, graph)
        if step.rows == 1:
            return f"copy {source} -> {target}, {step.nbytes} bytes{slot}"
        strides = f"strides {step.source_stride} and {step.target_stride}"
        return f"copy {source} -> {target}, {step.rows} rows of {step.nbytes} bytes, {strides}{slot}"
    if isinstance(step, WholeLayer):
        inputs = ", ".join("a constant" if one is None else _address_text(one, graph) for one in step.inputs)
        return f"call {inputs} -> {_address_text(step.output, graph)}, {step.cycles} cycles{slot}"
    places = {name: getattr(step, name) for name in ("ifm", "ifm2", "ofm", "psum", "weights", "params")}
    used = ", ".join(f"{name} {offset}" for name, offset in places.items() if offset or name in ("ifm", "ofm"))
    place = "first " if step.first else "last " if step.last else ""
    part = "" if step.first and step.last else f"  {place}slice"
    return f"job {shape_text(step.ifm_shape)} -> {shape_text(step.ofm_shape)}  {used}{part}{slot}"
