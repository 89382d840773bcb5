"""Programs of one region, and random stages of them, for tests of the mesh."""

import numpy as np
from plan_reference import run_graph, run_layer

from byoc_hw.graph import Graph
from byoc_hw.mesh.network import network_of
from byoc_hw.mesh.patches import channels_of, contains, form_of
from byoc_hw.mesh.pieces import ALL, NodePiece, PieceBox, axes_of
from byoc_hw.mesh.plan import OUTSIDE, Stage
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.program import Buffer, Program, RegionCall


def program_of(graph: Graph, name: str = "model") -> Program:
    """A model that is one region."""
    inputs = [Buffer(f"in{at}", t.nbytes, "input", t.shape, t.dtype) for at, t in enumerate(graph.inputs)]
    outputs = [Buffer(f"out{at}", t.nbytes, "output", t.shape, t.dtype) for at, t in enumerate(graph.outputs)]
    call = RegionCall(graph, (*inputs, *outputs))
    return Program(name, tuple(inputs), tuple(outputs), (call,))


def random_values(tensor, random):
    if tensor.dtype in ("int8", "uint8"):
        low = np.iinfo(tensor.dtype).min
        return random.integers(low, low + 256, tensor.shape).astype(tensor.dtype)
    return random.integers(-99, 99, tensor.shape).astype(tensor.dtype)


def taken(values, tensor, patch):
    """A patch of a tensor's values."""
    form = form_of(tensor)
    spread = values.reshape(form.rows, form.pixels, form.channels)
    return spread[slice(*patch.rows), :, slice(*patch.channels)]


def random_cuts(network, random, most=3):
    """Pieces of every node: some nodes whole, some cut at random places."""
    pieces = []
    for number, node in enumerate(network.nodes):
        axes = axes_of(node)
        if not axes or random.random() < 0.3:
            pieces.append(NodePiece(number, ALL))
            continue
        axis = axes[random.integers(len(axes))]
        shape = network.tensors[node.outputs[0]].shape
        extent = shape[1] if axis == "rows" else shape[-1]
        count = int(random.integers(1, min(most, extent) + 1))
        cuts = sorted(random.choice(np.arange(1, extent), count - 1, replace=False)) if count > 1 else []
        ends = [0, *map(int, cuts), extent]
        pieces += [NodePiece(number, PieceBox(axis, *ends[at : at + 2])) for at in range(count)]
    return pieces


def random_stages(network, random, count=4):
    """The pieces over `count` stages, each of which takes a run of them or some of a node's."""
    pieces = random_cuts(network, random)
    at, stages = 0, [[] for _ in range(count)]
    for index, piece in enumerate(pieces):
        at = max(at, index * count // len(pieces))
        back = int(random.integers(0, 2)) if piece.box is not ALL and at and _free(stages, at, piece) else 0
        stages[at - back].append(piece)
    return [Stage(tuple(stage)) for stage in stages if stage]


def _free(stages, at, piece):
    """Whether the stage before may take a piece too: of a node whose inputs it does not wait for."""
    return not stages[at] or all(other.node == piece.node for other in stages[at])


def run_stages(network, stages, inputs):
    """The outputs of a network, stage by stage in numpy: what channels carry, and nothing else, goes between them."""
    channels = channels_of(network, stages)
    programs = [stage_program(network, stages, at, channels, f"pe{at}") for at in range(len(stages))]
    known = {}  # (source, tensor) -> values with what is known of them
    for name, values in zip(network.inputs, inputs, strict=True):
        known[OUTSIDE, name] = values
    left = set(range(len(stages)))
    sent = {}
    while left:
        ready = [at for at in sorted(left) if not any(c.target == at and c.source in left for c in channels)]
        assert ready
        for at in ready:
            left.discard(at)
            arriving = [c for c in channels if c.target == at]
            values = _run_program(network, programs[at], arriving, known, sent)
            for channel in channels:
                if channel.source == at:
                    sent[channel] = _patch_values(network, programs[at], values, channel)
    return [_gathered(network, name, channels, sent, known) for name in network.outputs]


def _run_program(network, program, arriving, known, sent):
    values = {}
    for need, buffer in zip(program.inputs, program.program.inputs, strict=True):
        tensor = network.tensors[need.tensor]
        whole = np.zeros(tensor.shape, tensor.dtype)
        filled = np.zeros(tensor.shape, bool)
        for channel in arriving:
            if channel.tensor == need.tensor:
                taken(whole, tensor, channel.patch)[...] = _carried(network, channel, known, sent)
                taken(filled, tensor, channel.patch)[...] = True
        assert taken(filled, tensor, need.patch).all(), "every byte of an input arrives"
        inside = [c for c in arriving if c.tensor == need.tensor and contains(need.patch, c.patch)]
        assert sum(c.nbytes for c in inside) == buffer.nbytes, "and only once"
        values[buffer.name] = taken(whole, tensor, need.patch).reshape(buffer.shape)
    for call in program.program.calls:
        call.graph.verify()
        reads = [values[buffer.name] for buffer in call.arguments[: len(call.graph.inputs)]]
        found = run_graph(call.graph, reads)
        for tensor, buffer in zip(call.graph.outputs, call.arguments[len(call.graph.inputs) :], strict=True):
            values[buffer.name] = found[tensor]
    return values


def _carried(network, channel, known, sent):
    if channel.source == OUTSIDE:
        return taken(known[OUTSIDE, channel.tensor], network.tensors[channel.tensor], channel.patch)
    return sent[channel]


def _patch_values(network, program, values, channel):
    tensor = network.tensors[channel.tensor]
    for need, buffer in zip(program.outputs, program.program.outputs, strict=True):
        rows, channels = need.patch.rows, need.patch.channels
        inside = rows[0] <= channel.patch.rows[0] and channel.patch.rows[1] <= rows[1]
        inside = inside and channels[0] <= channel.patch.channels[0] and channel.patch.channels[1] <= channels[1]
        if need.tensor == channel.tensor and inside:
            whole = np.zeros(tensor.shape, tensor.dtype)
            part = taken(whole, tensor, need.patch)
            part[...] = values[buffer.name].reshape(part.shape)
            return taken(whole, tensor, channel.patch).copy()
    raise AssertionError(f"no output holds {channel}")


def _gathered(network, name, channels, sent, known):
    tensor = network.tensors[name]
    whole = np.zeros(tensor.shape, tensor.dtype)
    for channel in channels:
        if channel.target == OUTSIDE and channel.tensor == name:
            taken(whole, tensor, channel.patch)[...] = _carried(network, channel, known, sent)
    return whole


__all__ = [
    "network_of",
    "program_of",
    "random_stages",
    "random_values",
    "run_graph",
    "run_layer",
    "run_stages",
    "taken",
]
