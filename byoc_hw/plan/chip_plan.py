"""The plan of a region on a chip of several accelerators.

The region's layers are cut into parts. Each part runs on one accelerator, its lane, and is planned for that one alone:
its inputs and outputs are in main memory, or in local memory, where a later part of its lane reads them or accelerators
share it. The parts of a lane run one after the other, the lanes beside each other. Where a part touches memory that
another lane writes or reads before, it awaits an event: the end of that lane's copy or job. So a part starts as soon as
the first rows that it reads are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.chip_choices import ChipChoices
from byoc_hw.plan.library_layer import LibraryLayer
from byoc_hw.plan.region_memory import NOTHING, RegionMemory
from byoc_hw.plan.steps import (
    ARGUMENT,
    SCRATCH,
    Address,
    Copy,
    CopyWait,
    EngineSignal,
    Job,
    JobWait,
    LayerCall,
    RegionPlan,
    Step,
)
from byoc_hw.soc import Soc


@dataclass(frozen=True)
class ElementBox:
    """Elements of a dense tensor: so many along each dimension from element `start` on, and from one to the next."""

    start: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Layers of a region that run on one accelerator, with their plan.

    `lane` is the index of the accelerator. `layers` are the places of the plan's layers in the region's graph, and
    `boxes` say of each where what it computes lies in its layer's output, element after element: None for all of it.
    `arguments` say where the inputs, then the outputs of the plan's graph lie: in one of the region's arguments (space
    `ARGUMENT` and following), or in a block of its scratch (space `SCRATCH`, `block`, and `offset` in the block).
    `scratch` is the block with the plan's own scratch, None if it has none. The plan's steps contain `Signal` and
    `Await`. On an accelerator with a library, its jobs are calls, and `prepared` has what each layer's call needs.
    """

    lane: int
    plan: RegionPlan
    layers: tuple[int, ...]
    boxes: tuple[tuple[ElementBox, ...] | None, ...]
    arguments: tuple[Address, ...]
    scratch: str | None = None
    prepared: tuple[LibraryLayer, ...] = ()


@dataclass(frozen=True)
class ChipPlan:
    """A planned region on several accelerators.

    Those of `parts` with the same lane run in their order. Events are numbered from 0 to `events` - 1; each is
    signalled once. `blocks` has the offset of each block in the region's scratch, of `scratch_bytes`. `cycles` is
    the time from the start of the region to its end, and no plan takes fewer than `bound`. `costs` are
    the cycles of each layer by itself on each accelerator that can run it, by the accelerator's index. The tensors
    `handed_over`, by name, pass from part to part in local memory. The plan follows from its `choices`.
    """

    graph: Graph
    chip: Soc
    parts: tuple[Part, ...]
    events: int
    blocks: Mapping[str, int]
    scratch_bytes: int
    cycles: int
    bound: int = 0
    costs: tuple[Mapping[int, int], ...] = ()
    handed_over: tuple[str, ...] = ()
    memory: RegionMemory = field(default=NOTHING, repr=False)
    choices: ChipChoices | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        used = len({part.lane for part in self.parts})
        return f"<ChipPlan {self.graph.name}: {len(self.parts)} parts on {used} accelerators, {self.events} events>"

    def __str__(self) -> str:
        """The steps of each part, with its accelerator and the layers of the region that it has."""
        heads = (
            f"{self.chip.accelerators[part.lane].name}, layers {', '.join(f'%{index}' for index in part.layers)}"
            for part in self.parts
        )
        texts = (f"{head}\n{part.plan}" for head, part in zip(heads, self.parts, strict=True))
        return "\n".join([f"plan {self.graph.name}: {self.cycles} cycles, no plan below {self.bound}", *texts])

    @property
    def counters(self) -> int:
        """The events of the hardware that engines signal, numbered from 0."""
        signalled = (step.event for part in self.parts for step in part.plan.steps if isinstance(step, EngineSignal))
        return max(signalled, default=-1) + 1

    def of_lane(self, lane: int) -> tuple[Part, ...]:
        """The parts of a lane, in their order."""
        return tuple(part for part in self.parts if part.lane == lane)

    def placed(self, offsets: Mapping[str, int]) -> ChipPlan:
        """The same plan with its blocks at other offsets from the start of its scratch."""
        ends = (offsets[life.name] + life.nbytes for life in self.memory.scratch)
        blocks = {name: offsets[name] for name in self.blocks}
        return replace(self, blocks=blocks, scratch_bytes=max(ends, default=0))


CHIP_STAGES: Mapping[str, Callable[[ChipPlan], object]] = {
    "graph": lambda plan: plan.graph,
    "choices": lambda plan: plan.choices,
    "steps": lambda plan: plan,
}
"""The stages of planning on a chip that can be printed, by name: each value has a text."""


def works_alone(plan: ChipPlan) -> bool:
    """Whether one accelerator runs the region as if it had no other one beside it: through its HAL, each layer as it
    is in the region, without events."""
    if len(plan.parts) != 1 or plan.parts[0].prepared:
        return False
    (part,) = plan.parts
    every = sorted(part.layers) == list(range(len(plan.graph.layers)))
    return every and all(isinstance(step, Copy | Job | CopyWait | JobWait) for step in part.plan.steps)


def plan_of_one(plan: ChipPlan) -> RegionPlan:
    """The plan of a region whose accelerator works alone, as that of a single accelerator."""
    (part,) = plan.parts
    place = {layer: index for index, layer in enumerate(part.layers)}

    def moved(address: Address) -> Address:
        if address.space < SCRATCH:
            return address
        if address.space == SCRATCH:
            start = Address(SCRATCH, 0, part.scratch)
        else:
            start = part.arguments[address.space - ARGUMENT]
        block = 0 if start.block is None else plan.blocks[start.block]
        return Address(start.space, block + start.offset + address.offset)

    def steps(found: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            step._replace(target=moved(step.target), source=moved(step.source)) if isinstance(step, Copy) else step
            for step in found
        )

    def in_order(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(layers[place[index]] for index in range(len(layers)))

    return RegionPlan(
        graph=replace(plan.graph, layers=in_order(part.plan.graph.layers)),
        layers=in_order(part.plan.layers),
        calls=tuple(LayerCall(part.layers[call.index], steps(call.steps)) for call in part.plan.calls),
        flash=part.plan.flash,
        scratch_bytes=plan.scratch_bytes,
        tensors={},
        tail=steps(part.plan.tail),
        on=plan.chip.accelerators[part.lane],
    )


def busy_lanes(plans: Iterable[object]) -> list[int]:
    """The accelerators of a chip, by index, that have work in any of these regions."""
    return sorted({part.lane for plan in plans if isinstance(plan, ChipPlan) for part in plan.parts})
