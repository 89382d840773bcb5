"""The stages that turn one region's graph into its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Add, Graph, Reshape, Tensor
from byoc_hw.plan.flash import FlashImage
from byoc_hw.plan.layers import Region, copy_through, layer_steps
from byoc_hw.plan.memory import Lifetime, RegionMemory, blocks_from_lifetimes, peak, place
from byoc_hw.plan.sequence import Sequencer
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, Address, LayerCall, RegionPlan, Step

FLASH_ALIGNMENT = 4
"""Parameters are read as 32-bit words."""


def plan_region(graph: Graph, accelerator: Accelerator) -> RegionPlan:
    """Plan one region, layer by layer, each from main memory to main memory.

    The region's arguments, its scratch and its flash are taken to start at a multiple of 4 bytes
    and of the DMA's alignment. Intermediates are placed by lifetime among themselves; `placed` of
    the plan moves them among the tensors of a whole model. Arguments may share bytes where `memory`
    of the plan says that they are never live together. Raises `GraphError` for a graph that breaks its own rules,
    `PlanError` where a layer does not fit the accelerator.
    """
    if accelerator.library is not None:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} is driven by whole-layer calls: nothing to tile")
    graph.verify()  # first: every stage below trusts shapes and order
    alignment = lcm(FLASH_ALIGNMENT, accelerator.dma_alignment)
    flash = FlashImage(alignment)
    storage = _storage(graph)  # which tensors share bytes, before any of them is placed
    memory = _memory(graph, storage, alignment)
    arena = place(blocks_from_lifetimes(memory.scratch, alignment), peak(memory.scratch))
    homes = _homes(graph, storage, memory, arena.offsets, flash)  # before the layers: their copies name addresses
    region = Region(accelerator, homes, flash)
    calls = tuple(LayerCall(index, layer_steps(layer, region)) for index, layer in enumerate(graph.layers))
    tail = _copy_outputs(graph, homes, accelerator)  # last: every layer has written its output by then
    return RegionPlan(graph, graph.layers, calls, flash.contents(), arena.nbytes, homes, tail, memory=memory)


# ---------------------------------------------------------------- where tensors lie


@dataclass(eq=False)
class _Storage:
    """Bytes that one or more tensors share: a reshape's, or an addition's in place.

    `argument` is set for those of the caller, `steps` are the layers that touch them.
    """

    nbytes: int
    owner: str
    argument: int | None = None
    steps: list[int] = field(default_factory=list)


def _storage(graph: Graph) -> dict[Tensor, _Storage]:
    """The storage of each activation tensor that is not a constant.

    An output lives in its argument, also where later layers read it. A reshape shares its input's
    storage, unless it is an output and that storage is the caller's already.
    """
    outputs = {tensor: len(graph.inputs) + index for index, tensor in reversed(list(enumerate(graph.outputs)))}
    storage: dict[Tensor, _Storage] = {}
    for index, tensor in enumerate(graph.inputs):
        storage.setdefault(tensor, _Storage(tensor.nbytes, tensor.name, index))
    for step, layer in enumerate(graph.layers):
        shared = storage.get(layer.ifm) if isinstance(layer, Reshape) else None
        argument = outputs.get(layer.ofm)
        if isinstance(layer, Add):
            shared = _overwritten(graph, layer, step, storage)
        if shared is None or (argument is not None and shared.argument is not None):
            shared = _Storage(layer.ofm.nbytes, layer.ofm.name, argument)
        elif argument is not None:
            shared.argument = argument
        storage[layer.ofm] = shared
        for tensor in (*layer.inputs, layer.ofm):
            if tensor in storage:
                storage[tensor].steps.append(step)
    return storage


def _overwritten(graph: Graph, layer: Add, step: int, storage: dict[Tensor, _Storage]) -> _Storage | None:
    """The storage of an input that an addition may write its output over, or None.

    An addition loads a run of each input before it stores that run, and no other run of it later.
    So an input's bytes are free for the output if nothing reads them afterwards and they are not the
    caller's.
    """
    read_later = {storage[t] for later in graph.layers[step + 1 :] for t in later.inputs if t in storage}
    for tensor in layer.inputs:
        one = storage.get(tensor)
        if one is not None and one.argument is None and one.nbytes == layer.ofm.nbytes and one not in read_later:
            return one
    return None


def _memory(graph: Graph, storage: dict[Tensor, _Storage], alignment: int) -> RegionMemory:
    """What is alive when: a storage from the first layer that touches it to the last."""
    last = len(graph.layers)  # the step of the copies at the end
    for index, tensor in enumerate(graph.outputs):
        if storage[tensor].argument != len(graph.inputs) + index:
            storage[tensor].steps.append(last)
    scratch = dict.fromkeys(one for one in storage.values() if one.argument is None)
    names = {one: f"{graph.name}: {index:05} {one.owner}" for index, one in enumerate(scratch)}
    arguments: list[tuple[int, int] | None] = [None] * (len(graph.inputs) + len(graph.outputs))
    for index in range(len(graph.outputs)):
        arguments[len(graph.inputs) + index] = (last, last)  # unless a layer writes it
    for one in storage.values():
        if one.argument is not None and one.steps:
            arguments[one.argument] = (min(one.steps), max(one.steps))
    return RegionMemory(
        moments=(*(layer.name for layer in graph.layers), "the copies at its end"),
        scratch=tuple(Lifetime(n, one.nbytes, min(one.steps), max(one.steps), graph.name) for one, n in names.items()),
        arguments=tuple(arguments),
        alignment=alignment,
        blocks={tensor: names[one] for tensor, one in storage.items() if one in names},
    )


def _homes(
    graph: Graph, storage: dict[Tensor, _Storage], memory: RegionMemory, offsets: dict[str, int], flash: FlashImage
) -> dict[Tensor, Address]:
    """The address of every activation tensor; constants are appended to flash."""
    homes = {}
    for tensor in graph.tensors:
        one = storage.get(tensor)
        if one is None:
            homes[tensor] = _constant_home(tensor, flash)
        elif one.argument is not None:
            homes[tensor] = Address(ARGUMENT + one.argument)
        else:
            homes[tensor] = Address(SCRATCH, offsets[memory.blocks[tensor]], memory.blocks[tensor])
    return homes


def _constant_home(tensor: Tensor, flash: FlashImage) -> Address:
    assert tensor.data is not None, "Graph.verify has seen to it"
    return flash.add_constant(tensor.data)


def _copy_outputs(graph: Graph, homes: dict[Tensor, Address], accelerator: Accelerator) -> tuple[Step, ...]:
    """Outputs that live elsewhere: a tensor that is several outputs, or an input that is an output."""
    sequencer = Sequencer(graph.name, accelerator)
    for index, tensor in enumerate(graph.outputs):
        target = Address(ARGUMENT + len(graph.inputs) + index)
        if homes[tensor] != target:
            copy_through(sequencer, homes[tensor], target, tensor.nbytes, accelerator)
    return sequencer.finish()
