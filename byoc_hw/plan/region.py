"""The stages that turn one region's graph into its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.memory import Lifetime, RegionMemory, blocks_from_lifetimes, peak, place
from byoc_hw.plan.ops import Buffer, Op
from byoc_hw.plan.schedule import Owned, schedule
from byoc_hw.plan.search import best, lay_out
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, Copy, Job, LayerCall, LocalBuffer, RegionPlan, Step
from byoc_hw.plan.storage import Storages
from byoc_hw.plan.work import FLASH_ALIGNMENT, Work


def plan_region(graph: Graph, accelerator: Accelerator, choices: Choices | None = None) -> RegionPlan:
    """Plan one region, with the planner's own choices unless some are given.

    The region's arguments, its scratch and its flash are taken to start at a multiple of 4 bytes
    and of the DMA's alignment. What lies in scratch is placed by lifetime among itself; `placed` of
    the plan moves it among the tensors of a whole model. Arguments may share bytes where `memory`
    of the plan says that they are never live together. Raises `GraphError` for a graph that breaks its
    own rules, `PlanError` where a layer does not fit the accelerator or the choices do not fit the graph.
    """
    if accelerator.library is not None:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} is driven by whole-layer calls: nothing to tile")
    graph.verify()  # first: every stage below trusts shapes and order
    laid = best(graph, accelerator) if choices is None else lay_out(graph, choices, accelerator, exact=True)
    region, work, offsets = laid.region, laid.work, laid.offsets
    mapping, found = region.mapping, region.storages
    steps = schedule(work.ops, offsets, laid.order)  # with the waits that are needed
    calls, tail = _calls(steps, len(graph.layers), work.ops)
    memory = _main_memory(graph, found, calls, tail, work)
    arena = place(blocks_from_lifetimes(memory.scratch, memory.alignment), peak(memory.scratch))
    flash = region.flash.contents(mapping.layers)  # last: only now is it known which blocks are used
    plan = RegionPlan(
        graph=graph,
        layers=mapping.layers,
        calls=tuple(LayerCall(index, steps) for index, steps in calls),
        flash=flash,
        scratch_bytes=arena.nbytes,
        tensors={
            tensor: work.homes[found.of[tensor]].address for tensor in graph.tensors if found.of[tensor] in work.homes
        },
        tail=tail,
        memory=memory,
        local=tuple(_local(work.ops, offsets, steps)),
        reordered=frozenset(
            ARGUMENT + argument.index
            for storage in found.all
            for argument in (storage.source, *storage.sinks)
            if argument is not None and argument.strides is not None
        ),
    )
    return plan.placed(arena.offsets)


def _calls(
    steps: Sequence[Owned], layers: int, ops: Sequence[Op]
) -> tuple[list[tuple[int, tuple[Step, ...]]], tuple[Step, ...]]:
    """The steps by call: each job in a call of its layer, all else where it stands. The rest is the tail.

    Copies and waits that stand between two layers' jobs go to the first one's call, up to the first
    that is for the second.
    """
    owners = _owners(steps, layers)
    calls: list[tuple[int, list[Step]]] = []
    tail: list[Step] = []
    for owned, owner in zip(steps, owners, strict=True):
        if owner is None:
            tail.append(owned.step)
        elif calls and calls[-1][0] == owner:
            calls[-1][1].append(owned.step)
        else:
            calls.append((owner, [owned.step]))
    return [(owner, tuple(taken)) for owner, taken in calls], tuple(tail)


def _owners(steps: Sequence[Owned], layers: int) -> list[int | None]:
    """The layer in whose call each step is; None for the tail."""
    with_jobs = {owned.layer for owned in steps if isinstance(owned.step, Job)}

    def leads(owned: Owned) -> bool:
        """Whether a step can only be in its own layer's call, or says whose call it is in."""
        return isinstance(owned.step, Job) or (owned.layer not in with_jobs and owned.layer < layers)

    leaders = [at for at, owned in enumerate(steps) if leads(owned)]
    if not leaders:
        return [None] * len(steps)
    owners: list[int | None] = [None] * len(steps)
    current = steps[leaders[0]].layer
    following = iter([*leaders, None])
    upcoming = next(following)
    for at, owned in enumerate(steps):
        if upcoming is not None and at > upcoming:
            current, upcoming = steps[upcoming].layer, next(following)
        ahead = None if upcoming is None else steps[upcoming].layer
        if at == upcoming or (ahead is not None and owned.layer == ahead):
            current = ahead if ahead is not None else current
        owners[at] = current
    last = len(steps)  # the waits at the very end, and copies from argument to argument, are the tail
    while last > leaders[-1] + 1 and (steps[last - 1].op is None or steps[last - 1].layer >= layers):
        last -= 1
        owners[last] = None
    return owners


def _main_memory(
    graph: Graph,
    found: Storages,
    calls: Sequence[tuple[int, tuple[Step, ...]]],
    tail: tuple[Step, ...],
    work: Work,
) -> RegionMemory:
    """What of main memory is live in which call: from the first copy that touches it to the last."""
    touched: dict[str, list[int]] = {}
    arguments: dict[int, list[int]] = {}
    for moment, steps in enumerate([*(steps for _, steps in calls), tail]):
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
        moments=(*(graph.layers[index].name for index, _ in calls), "the end"),
        scratch=tuple(
            Lifetime(one.block, one.nbytes, min(touched[one.block]), max(touched[one.block]), graph.name)
            for one in scratch
        ),
        arguments=tuple(None if span is None else (min(span), max(span)) for span in spans),
        alignment=lcm(FLASH_ALIGNMENT, work.alignment),
        blocks={tensor: found.of[tensor].block for tensor in graph.tensors if found.of[tensor] in scratch},
    )


def _local(ops: Sequence[Op], offsets: Mapping[Buffer, int], steps: Sequence[Owned]) -> list[LocalBuffer]:
    """The map of the local memories."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for at, owned in enumerate(steps):
        for access in ops[owned.op].accesses if owned.op is not None else ():
            if isinstance(access.place, Buffer):
                spans[access.place] = spans.get(access.place, (at, at))[0], at
    return [
        LocalBuffer(buffer.name, buffer.space, offsets[buffer], buffer.nbytes, first, last)
        for buffer, (first, last) in spans.items()
    ]
