"""Lifetimes in the finished steps: of scratch in main memory, and of buffers in local memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from byoc_hw.integers import round_up
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.order.waits import Owned
from byoc_hw.plan.region_memory import Lifetime, RegionMemory
from byoc_hw.plan.steps import ARGUMENT, FLASH_ALIGNMENT, SCRATCH, Copy, LayerCall, PlacedBuffer, Step
from byoc_hw.plan.work.ops import LocalBuffer, Op
from byoc_hw.plan.work.units import Work


def scratch_memory(mapped: MappedGraph, work: Work, calls: Sequence[LayerCall], tail: tuple[Step, ...]) -> RegionMemory:
    """Lifetimes in main memory, by call: from the first copy that touches a buffer to the last."""
    graph, of = mapped.graph, mapped.storages.of
    touched: dict[str, list[int]] = {}
    arguments: dict[int, list[int]] = {}
    for moment, steps in enumerate([*(call.steps for call in calls), tail]):
        for step in steps:
            for address in (step.source, step.target) if isinstance(step, Copy) else ():
                if address.block is not None:
                    touched.setdefault(address.block, []).append(moment)
                elif address.space >= ARGUMENT:
                    arguments.setdefault(address.space - ARGUMENT, []).append(moment)
    scratch = [storage for storage, home in work.homes.items() if home.address.space == SCRATCH]
    count = len(graph.inputs) + len(graph.outputs)
    spans = [arguments.get(index) for index in range(count)]
    return RegionMemory(
        moments=(*(graph.layers[call.index].name for call in calls), "the end"),
        scratch=tuple(
            Lifetime(
                one.block,
                round_up(one.nbytes, work.alignment),
                min(touched[one.block]),
                max(touched[one.block]),
                graph.name,
            )
            for one in scratch
        ),
        arguments=tuple(None if span is None else (min(span), max(span)) for span in spans),
        alignment=lcm(FLASH_ALIGNMENT, work.alignment),
        word=work.alignment,
        blocks={tensor: of[tensor].block for tensor in graph.tensors if of[tensor] in scratch},
    )


def local_map(ops: Sequence[Op], offsets: Mapping[LocalBuffer, int], steps: Sequence[Owned]) -> list[PlacedBuffer]:
    """The map of the local memories."""
    spans: dict[LocalBuffer, tuple[int, int]] = {}
    for at, owned in enumerate(steps):
        for access in ops[owned.op].accesses if owned.op is not None else ():
            if isinstance(access.place, LocalBuffer):
                spans[access.place] = spans.get(access.place, (at, at))[0], at
    return [
        PlacedBuffer(buffer.name, buffer.space, offsets[buffer], buffer.nbytes, first, last)
        for buffer, (first, last) in spans.items()
    ]
