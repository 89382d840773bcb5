"""The stages that turn one region's graph into its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Graph, Reshape, Tensor
from byoc_hw.plan.flash import FlashImage
from byoc_hw.plan.layers import Region, copy_through, layer_steps
from byoc_hw.plan.memory import Arena, Lifetime, blocks_from_lifetimes, peak, place
from byoc_hw.plan.sequence import Sequencer
from byoc_hw.plan.steps import ARGUMENT, SCRATCH, Address, LayerPlan, RegionPlan, Step

FLASH_ALIGNMENT = 4
"""Parameters are read as 32-bit words."""


def plan_region(graph: Graph, accelerator: Accelerator) -> RegionPlan:
    """Plan one region, layer by layer, each from main memory to main memory.

    The region's arguments, its scratch and its flash are taken to start at a multiple of 4 bytes
    and of the DMA's alignment. An output may not share bytes with an input, nor with another
    output: both are live throughout. Raises `GraphError` for a graph that breaks its own rules,
    `PlanError` where a layer does not fit the accelerator.
    """
    if accelerator.library is not None:
        raise PlanError(f"{graph.name}: accelerator {accelerator.name} is driven by whole-layer calls: nothing to tile")
    graph.verify()  # first: every stage below trusts shapes and order
    alignment = lcm(FLASH_ALIGNMENT, accelerator.dma_alignment)
    flash = FlashImage(alignment)
    storage = _storage(graph)  # which tensors share bytes, before any of them is placed
    arena = _place_scratch(graph, storage, alignment)
    homes = _homes(graph, storage, arena, flash)  # before the layers: their copies name addresses
    region = Region(accelerator, homes, flash)
    layers = tuple(LayerPlan(layer, layer_steps(layer, region)) for layer in graph.layers)
    tail = _copy_outputs(graph, homes, accelerator)  # last: every layer has written its output by then
    return RegionPlan(graph, layers, flash.contents(), arena.nbytes, homes, tail)


# ---------------------------------------------------------------- where tensors lie


@dataclass(eq=False)
class _Storage:
    """Bytes that one or more tensors share, in a reshape's case. `argument` is set for those of the caller."""

    nbytes: int
    owner: str
    argument: int | None = None
    steps: list[int] = field(default_factory=list)


def _storage(graph: Graph) -> dict[Tensor, _Storage]:
    """The storage of each activation tensor that is not a constant.

    An output lives in its argument from the start, also where later layers read it. A reshape
    shares its input's storage, unless it is an output and that storage is the caller's already.
    """
    outputs = {tensor: len(graph.inputs) + index for index, tensor in reversed(list(enumerate(graph.outputs)))}
    storage: dict[Tensor, _Storage] = {}
    for index, tensor in enumerate(graph.inputs):
        storage.setdefault(tensor, _Storage(tensor.nbytes, tensor.name, index))
    for step, layer in enumerate(graph.layers):
        shared = storage.get(layer.ifm) if isinstance(layer, Reshape) else None
        argument = outputs.get(layer.ofm)
        if shared is None or (argument is not None and shared.argument is not None):
            shared = _Storage(layer.ofm.nbytes, layer.ofm.name, argument)
        elif argument is not None:
            shared.argument = argument
        storage[layer.ofm] = shared
        for tensor in (*layer.inputs, layer.ofm):
            if tensor in storage:
                storage[tensor].steps.append(step)
    return storage


def _place_scratch(graph: Graph, storage: dict[Tensor, _Storage], alignment: int) -> Arena:
    """The intermediates that live in the region's own scratch, by lifetime in layers."""
    names = _scratch_names(storage)
    lifetimes = [
        Lifetime(name, one.nbytes, min(one.steps), max(one.steps), f"{graph.name}: {one.owner}")
        for one, name in names.items()
    ]
    return place(blocks_from_lifetimes(lifetimes, alignment), peak(lifetimes))


def _scratch_names(storage: dict[Tensor, _Storage]) -> dict[_Storage, str]:
    """Names for placement; a model's own names need not be unique."""
    scratch = dict.fromkeys(one for one in storage.values() if one.argument is None)
    return {one: f"{index:05} {one.owner}" for index, one in enumerate(scratch)}


def _homes(graph: Graph, storage: dict[Tensor, _Storage], arena: Arena, flash: FlashImage) -> dict[Tensor, Address]:
    """The address of every activation tensor; constants are appended to flash."""
    names = _scratch_names(storage)
    homes = {}
    for tensor in graph.tensors:
        one = storage.get(tensor)
        if one is None:
            homes[tensor] = _constant_home(tensor, flash)
        elif one.argument is not None:
            homes[tensor] = Address(ARGUMENT + one.argument)
        else:
            homes[tensor] = Address(SCRATCH, arena.offsets[names[one]])
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
