"""Chips of two accelerators, and plans on them that are made by hand: which layers run where is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.graph import Add, Conv2d, Dense, Graph, Pool2d, Reshape
from byoc_hw.integers import round_up
from byoc_hw.plan.chip_plan import ChipPlan, Part
from byoc_hw.plan.region import plan_tiles
from byoc_hw.plan.region_memory import Lifetime, RegionMemory
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.steps import ARGUMENT, FLASH, SCRATCH, Address, Await, Copy, Signal
from byoc_hw.soc import Soc
from byoc_hw.tensor import Quantization, Tensor

NPU = replace(REFERENCE, name="npu", label="NPU")
DSP = replace(SMALL, name="dsp", label="DSP", dma_alignment=4)
CHIP = Soc((NPU, DSP), name="twin", label="TWIN")

SCALE = Quantization((0.5,), (3,))
SUMS = Quantization((0.125,), (0,))


def activation(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, quantization=SCALE)


def constant(seed: int, *shape: int) -> Tensor:
    values = np.random.default_rng(seed).integers(-8, 8, shape).astype(np.int8)
    return Tensor(f"weights_{seed}", shape, quantization=Quantization((0.25,), (0,)), data=values)


def two_branches(name: str = "tvmgen_demo_twin_main_0", size: int = 16) -> Graph:
    """conv2d, then another conv2d beside an addition; their sum, average pooling, reshape and dense."""
    x, y = activation("x", 1, size, size, 4), activation("y", 1, size, size, 8)
    left, right = activation("left", 1, size, size, 8), activation("right", 1, size, size, 8)
    both, pooled = activation("both", 1, size, size, 8), activation("pooled", 1, 1, 1, 8)
    flat, out = activation("flat", 1, 8), activation("out", 1, 5)
    padding = {"padding": (1, 1, 1, 1)}
    layers = (
        Conv2d("first", ("conv",), x, y, constant(1, 8, 3, 3, 4), None, SUMS, -100, 100, **padding),
        Conv2d("left", ("conv",), y, left, constant(2, 8, 3, 3, 8), None, SUMS, -100, 100, **padding),
        Add("right", ("add",), y, right, y),
        Add("both", ("add",), left, both, right),
        Pool2d("pooled", ("pool",), both, pooled, kernel=(size, size)),
        Reshape("flat", ("reshape",), pooled, flat),
        Dense("out", ("dense",), flat, out, constant(3, 5, 8), None, SUMS, -128, 127),
    )
    return Graph(name, (x,), (out,), layers)


TWO_BRANCHES = ((0, (0,)), (0, (1,)), (1, (2,)), (1, (3, 4)), (0, (5, 6)))
"""The lane of each part of `two_branches`, and its layers."""


def chip_plan(graph: Graph, chip: Soc = CHIP, placed=TWO_BRANCHES) -> ChipPlan:
    """The plan with these parts. Each copy awaits all copies of another lane that write bytes it reads."""
    made = {graph.layers[index].ofm for _, layers in placed for index in layers}
    blocks = {tensor: f"block_{at}" for at, tensor in enumerate(graph.tensors) if tensor in made}
    parts = [_part(graph, chip, at, lane, layers, blocks) for at, (lane, layers) in enumerate(placed)]
    sizes = {blocks[tensor]: tensor.nbytes for part in parts for tensor in _between(part, blocks, graph)}
    sizes |= {part.scratch: part.plan.scratch_bytes for part in parts if part.scratch is not None}
    parts, events = _with_events(parts)
    at, offsets = 0, {}
    for name, nbytes in sizes.items():
        offsets[name], at = at, round_up(at + nbytes, 16)
    memory = RegionMemory(
        moments=("all",),
        scratch=tuple(Lifetime(name, round_up(nbytes, 4), 0, 0, graph.name) for name, nbytes in sizes.items()),
        arguments=((0, 0),) * (len(graph.inputs) + len(graph.outputs)),
        alignment=16,
        blocks={},
    )
    return ChipPlan(graph, chip, tuple(parts), events, offsets, at, 0, memory=memory)


def _part(graph, chip, at, lane, layers, blocks) -> Part:
    chosen = tuple(graph.layers[index] for index in layers)
    own = {layer.ofm for layer in chosen}
    read_elsewhere = {tensor for layer in graph.layers if layer not in chosen for tensor in layer.inputs}
    inputs = dict.fromkeys(t for layer in chosen for t in layer.inputs if t.data is None and t not in own)
    outputs = [layer.ofm for layer in chosen if layer.ofm in read_elsewhere or layer.ofm in graph.outputs]
    part, accelerator = Graph(f"{graph.name}_{at}", tuple(inputs), tuple(outputs), chosen), chip.accelerators[lane]
    plan = plan_tiles(part, accelerator, best_layout(part, accelerator).choices)
    ends = [*graph.inputs, *graph.outputs]
    arguments = tuple(
        Address(ARGUMENT + ends.index(tensor)) if tensor in ends else Address(SCRATCH, 0, blocks[tensor])
        for tensor in (*inputs, *outputs)
    )
    return Part(lane, plan, layers, (None,) * len(layers), arguments, f"own_{at}" if plan.scratch_bytes else None)


def _between(part: Part, blocks, graph: Graph):
    return [tensor for tensor in part.plan.graph.outputs if tensor in blocks and tensor not in graph.outputs]


def _bytes(copy: Copy, part: Part) -> set[tuple[object, int]]:
    """The bytes of main memory that a copy reads or writes, for those that parts share."""
    place, stride = (copy.source, copy.source_stride) if copy.inward else (copy.target, copy.target_stride)
    if place.space in (FLASH, SCRATCH):
        return set()
    start = part.arguments[place.space - ARGUMENT]
    first = start.offset + place.offset
    return {
        (start.block or start.space, first + row * stride + at) for row in range(copy.rows) for at in range(copy.nbytes)
    }


def _with_events(parts: list[Part]) -> tuple[list[Part], int]:
    written: list[tuple[int, int, int, set]] = []  # part, lane, step, bytes
    awaited: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (part, step): those of the copies
    for at, part in enumerate(parts):
        for number, step in enumerate(part.plan.steps):
            if isinstance(step, Copy):
                touched = _bytes(step, part)
                if not step.inward:
                    written.append((at, part.lane, number, touched))
                    continue
                awaited[at, number] = [
                    (other, copy) for other, lane, copy, bytes_ in written if lane != part.lane and bytes_ & touched
                ]
    signalled = list(dict.fromkeys(copy for copies in awaited.values() for copy in copies))
    events = {copy: event for event, copy in enumerate(signalled)}
    return [_rewritten(parts, at, awaited, events) for at in range(len(parts))], len(events)


def _rewritten(parts, at, awaited, events) -> Part:
    part, number, places = parts[at], 0, {}

    def steps_of(steps):
        nonlocal number
        found = []
        for step in steps:
            found += [Await(events[copy], parts[copy[0]].lane) for copy in awaited.get((at, number), ())]
            places[number] = sum(map(len, done)) + len(found)
            found.append(step)
            found += [Signal(events[at, number], step.slot)] if (at, number) in events else []
            number += 1
        done.append(found)
        return tuple(found)

    done: list[list] = []
    calls = tuple(replace(call, steps=steps_of(call.steps)) for call in part.plan.calls)
    tail = steps_of(part.plan.tail)
    local = tuple(replace(held, first=places[held.first], last=places[held.last]) for held in part.plan.local)
    return replace(part, plan=replace(part.plan, calls=calls, tail=tail, local=local))
