"""The regions of a stage's program in parts, where that is quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Graph
from byoc_hw.mesh.stage_program import StageProgram
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.stages import Layout
from byoc_hw.program import Buffer, Call, RegionCall
from byoc_hw.tensor import Tensor

_MUCH = 1.1
"""Cycles of a region over those of its jobs, from which on it is looked at in parts."""


_NEAR, _FAR = 1.004, 1.03
"""Cycles of a region over those of its jobs: up to the first a plan is good enough, up to the second it is not looked
at in patches."""


def quick_layout(graph: Graph, accelerator: Accelerator) -> Layout:
    """A region by the planner's own choices, before it looks for better ones near them."""
    least = least_alone(graph.layers, accelerator)
    return best_layout(graph, accelerator, _NEAR * least, _FAR * least)


LayOut = Callable[[Graph, Accelerator], Layout]
"""What lays out a region."""


def divided(stage: StageProgram, accelerator: Accelerator, lay_out: LayOut = quick_layout) -> StageProgram:
    """The program with those of its regions in parts that take fewer cycles so, as `lay_out` has them.

    A region ends before and behind each tensor that is put together of what comes and what the stage makes. Layers on
    both sides of it then have height and width swapped, or not, by themselves.
    """
    program = stage.program
    calls: list[Call] = []
    for call in program.calls:
        calls += _quickest(call, accelerator, lay_out) if isinstance(call, RegionCall) else [call]
    if len(calls) == len(program.calls):
        return stage
    numbered: list[Call] = []
    for call in calls:
        if isinstance(call, RegionCall):
            call = replace(call, graph=replace(call.graph, name=f"{program.name}_region{len(numbered)}"))
        numbered.append(call)
    return replace(stage, program=replace(program, calls=tuple(numbered)))


def _quickest(call: RegionCall, accelerator: Accelerator, lay_out: LayOut) -> list[RegionCall]:
    layers = call.graph.layers
    if not any(isinstance(layer, Concat) for layer in layers):
        return [call]
    whole = lay_out(call.graph, accelerator).cycles
    if whole <= _MUCH * least_alone(layers, accelerator):
        return [call]
    parts = list(_parts(call))
    return parts if sum(lay_out(part.graph, accelerator).cycles for part in parts) < whole else [call]


def _parts(call: RegionCall) -> Iterator[RegionCall]:
    graph = call.graph
    joins = [at for at, layer in enumerate(graph.layers) if isinstance(layer, Concat)]
    ends = sorted({0, len(graph.layers), *joins, *(at + 1 for at in joins)})
    buffers = dict(zip((*graph.inputs, *graph.outputs), call.arguments, strict=True))
    for first, stop in pairwise(ends):
        layers = graph.layers[first:stop]
        made = dict.fromkeys(layer.ofm for layer in layers)
        reads = dict.fromkeys(tensor for layer in layers for tensor in layer.inputs)
        later = {tensor for layer in graph.layers[stop:] for tensor in layer.inputs}
        inputs = tuple(tensor for tensor in reads if tensor.data is None and tensor not in made)
        outputs = tuple(tensor for tensor in made if tensor in later or tensor in graph.outputs)
        arguments = (buffers.setdefault(tensor, _between(tensor)) for tensor in (*inputs, *outputs))
        yield RegionCall(Graph(graph.name, inputs, outputs, layers), tuple(arguments))


def _between(tensor: Tensor) -> Buffer:
    return Buffer(tensor.name, tensor.nbytes, "intermediate", tensor.shape, tensor.dtype)
