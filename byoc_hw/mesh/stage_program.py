"""The program of a stage: the calls of one frame on one PE, as an ordinary model of the planner and the emitter.

Consecutive layers are a region, host functions stand between regions. What the stage reads of other stages are the
program's inputs, what leaves it the outputs. Where a piece reads a part of what is there, or several parts, a `Slice`
or a `Concat` comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from byoc_hw.errors import PlanError
from byoc_hw.graph import Concat, Graph, Layer, Slice
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import (
    PatchNeed,
    assembled,
    band_axis,
    contains,
    form_of,
    hull,
    intersection,
    patch_shape,
    reads_of,
    sent_patch,
    stage_needs,
    writes_of,
)
from byoc_hw.mesh.pieces import NodePiece, PieceBox, axes_of, piece_layer
from byoc_hw.mesh.plan import Channel, Patch, Stage
from byoc_hw.names import distinct
from byoc_hw.program import Buffer, Call, HostCall, Program, RegionCall
from byoc_hw.tensor import Quantization, Tensor


@dataclass(frozen=True, eq=False)
class StageProgram:
    """A stage's program, and the patch of the network that each of its inputs and outputs is, in their order."""

    program: Program
    inputs: tuple[PatchNeed, ...]
    outputs: tuple[PatchNeed, ...]


def stage_program(
    network: MeshNetwork, stages: Sequence[Stage], number: int, channels: Sequence[Channel], name: str, prefix: str = ""
) -> StageProgram:
    """The program of stage `number`, with `name` in front of its C names and `prefix` in front of those of its tensors.

    Raises `PlanError` for pieces that come before what they read, or that the stage's kinds of layers cannot be cut
    into.
    """
    sent = [(channel.tensor, channel.patch) for channel in channels if channel.source == number]

    def leaving(made: str, patch: Patch) -> Patch | None:
        parts = [intersection(part, patch) for tensor, part in sent if tensor == made]
        found = [part for part in parts if part is not None]
        return hull(found) if found else None

    return program_of_pieces(network, stages[number], leaving, name, prefix)


def program_of_pieces(
    network: MeshNetwork, stage: Stage, leaving: Callable[[str, Patch], Patch | None], name: str, prefix: str = ""
) -> StageProgram:
    """The program of a stage, with names as `stage_program` has them. `leaving` has what others, or whoever reads the
    model's outputs, read of a patch."""
    found: list[tuple[PatchNeed, PatchNeed]] = []
    for piece in stage.pieces:
        for need in writes_of(network, piece):
            part = leaving(need.tensor, need.patch)
            if part is not None:
                sent = sent_patch(network.tensors[need.tensor], need.patch, part)
                found.append((need, PatchNeed(need.tensor, sent)))
    return _Assembler(network, stage, name, prefix).program(found)


class _Assembler:
    def __init__(self, network: MeshNetwork, stage: Stage, name: str, prefix: str) -> None:
        self._network, self._stage, self._name, self._prefix = network, stage, name, prefix
        self._inputs = stage_needs(network, stage)
        self._there = {need: self._tensor(need) for need in self._inputs}
        self._cuts = {piece: self._cut(piece) for piece in stage.pieces}
        self._made = {need for cuts in self._cuts.values() for cut in cuts for need in writes_of(network, cut)}
        self._steps: list[Layer | HostCall] = []

    def program(self, leaving: Sequence[tuple[PatchNeed, PatchNeed]]) -> StageProgram:
        """The program whose outputs are parts of what it makes: pairs of what is made, and the part."""
        inputs = [self._there[need] for need in self._inputs]
        for piece in self._stage.pieces:
            for cut in self._cuts[piece]:
                self._piece(cut)
            made = writes_of(self._network, piece)
            for need, part in leaving:  # at once, so that what is made need not stay for it
                if need in made:
                    self._get(self._network.nodes[piece.node].name, part)
        outputs = [self._there[part] for _, part in leaving]
        program = self._calls(inputs, outputs)
        return StageProgram(program, self._inputs, tuple(part for _, part in leaving))

    def _tensor(self, need: PatchNeed) -> Tensor:
        whole = self._network.tensors[need.tensor]
        name = need.tensor if need.patch == form_of(whole).whole else _patch_name(need, whole)
        return replace(whole, name=self._prefix + name, shape=patch_shape(whole, need.patch))

    def _cut(self, piece: NodePiece) -> tuple[NodePiece, ...]:
        """A piece in parts by channels where the stage's other pieces read some of its channels only: they read what a
        part makes as it is there, and nothing is taken apart for them."""
        if piece.box.axis == "rows" or "channels" not in axes_of(self._network.nodes[piece.node]):
            return (piece,)
        (made,) = writes_of(self._network, piece)
        first, stop = made.patch.channels
        reads = (read for other in self._stage.pieces for read in reads_of(self._network, other))
        ends = {end for read in reads if read.tensor == made.tensor for end in read.patch.channels}
        spans = list(pairwise(sorted({first, stop, *(end for end in ends if first < end < stop)})))
        parts = tuple(NodePiece(piece.node, PieceBox("channels", *span)) for span in spans)
        return parts if len(parts) > 1 else (piece,)

    def _piece(self, piece: NodePiece) -> None:
        node = self._network.nodes[piece.node]
        reads = [self._get(node.name, need) for need in reads_of(self._network, piece)]
        if node.call is not None:
            for need in writes_of(self._network, piece):
                self._there[need] = self._tensor(need)
            self._steps.append(node.call)
            return
        (written,) = writes_of(self._network, piece)
        layer = piece_layer(node, piece.box)
        known = self._tensor(written)  # with the scale that another region reads it with, if the layer states none
        made = replace(layer.ofm, name=known.name, quantization=layer.ofm.quantization or known.quantization)
        given = iter(reads)
        self._steps.append(layer.on([one if one.data is not None else next(given) for one in layer.inputs], made))
        self._there[written] = made

    def _get(self, reader: str, need: PatchNeed) -> Tensor:
        """The tensor of a patch: as it is there, a part of that, or put together."""
        if need not in self._there:
            around = next((one for one in self._there if one.tensor == need.tensor and _holds(one, need)), None)
            self._there[need] = self._sliced(need, around) if around else self._joined(reader, need)
        return self._there[need]

    def _sliced(self, need: PatchNeed, around: PatchNeed) -> Tensor:
        ifm, ofm = self._there[around], self._tensor(need)
        begin = [0] * len(ifm.shape)
        begin[-1] = need.patch.channels[0] - around.patch.channels[0]
        if need.patch.rows != around.patch.rows:
            begin[1] = need.patch.rows[0] - around.patch.rows[0]
        self._steps.append(Slice(f"part {ofm.name}", (), ifm, ofm, begin=tuple(begin), steps=(1,) * len(begin)))
        return ofm

    def _joined(self, reader: str, need: PatchNeed) -> Tensor:
        own = [made.patch for made in self._made if made.tensor == need.tensor]
        if not own:
            raise PlanError(f"{reader}: nothing that the stage reads or makes has its input {need.tensor}")
        bands = [PatchNeed(need.tensor, patch) for patch in assembled(self._network, need.tensor, need.patch, own)]
        for band in bands:
            if not any(_holds(one, band) for one in self._there if one.tensor == band.tensor):
                raise PlanError(f"{reader}: the stage makes its input {need.tensor} only afterwards")
        parts = [self._get(reader, band) for band in bands]
        whole = self._network.tensors[need.tensor]
        along = band_axis(whole, own)
        hull = PatchNeed(
            need.tensor,
            Patch(
                (bands[0].patch.rows[0], bands[-1].patch.rows[1]),
                (bands[0].patch.channels[0], bands[-1].patch.channels[1]),
            ),
        )
        ofm = self._tensor(hull)
        axis = len(ofm.shape) - 1 if along == "channels" else 1
        self._steps.append(Concat(f"join {ofm.name}", (), parts[0], ofm, others=tuple(parts[1:]), axis=axis))
        self._there[hull] = ofm
        return ofm if hull == need else self._sliced(need, hull)

    # ------------------------------------------------------------ calls and buffers

    def _calls(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Program:
        groups = list(_groups(self._steps))
        arguments = [self._arguments(groups, at, outputs) for at in range(len(groups))]
        buffers = self._buffers(inputs, outputs, arguments)
        calls: list[Call] = []
        for group, (reads, writes) in zip(groups, arguments, strict=True):
            there = tuple(buffers[tensor.name] for tensor in (*reads, *writes))
            if isinstance(group, HostCall):
                calls.append(self._host_call(group, buffers))
                continue
            graph = Graph(f"{self._name}_region{len(calls)}", tuple(reads), tuple(writes), group)
            calls.append(RegionCall(graph, there))
        entering, leaving = (tuple(buffers[tensor.name] for tensor in tensors) for tensors in (inputs, outputs))
        return Program(self._name, entering, leaving, tuple(calls))

    def _host_call(self, call: HostCall, buffers: Mapping[str, Buffer]) -> HostCall:
        """A call with this program's names of its arguments: workspaces keep theirs."""
        named = {one.name: self._prefix + one.name for one in call.arguments}
        own = (replace(one, name=named[one.name]) for one in call.arguments)  # scratch is as it stands
        moments = tuple(frozenset(named.get(name, name) for name in moment) for moment in call.moments)
        return replace(call, arguments=tuple(buffers.get(one.name, one) for one in own), moments=moments)

    def _arguments(
        self, groups: Sequence[HostCall | tuple[Layer, ...]], at: int, outputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What a group reads of others, and what it writes for others or for outside."""
        later = {tensor.name for group in groups[at + 1 :] for tensor in self._reads(group)}
        wanted = later | {tensor.name for tensor in outputs}
        writes = [tensor for tensor in self._writes(groups[at]) if tensor.name in wanted]
        return self._reads(groups[at]), writes

    def _reads(self, group: HostCall | tuple[Layer, ...]) -> list[Tensor]:
        if isinstance(group, HostCall):
            reads = group.arguments[: len(group.arguments) - group.results]
            names = dict.fromkeys(buffer.name for buffer in reads if buffer.name in self._network.tensors)
            return [self._whole(name) for name in names]
        made = {layer.ofm for layer in group}
        tensors = (tensor for layer in group for tensor in layer.inputs)
        return list(dict.fromkeys(tensor for tensor in tensors if tensor.data is None and tensor not in made))

    def _writes(self, group: HostCall | tuple[Layer, ...]) -> list[Tensor]:
        if isinstance(group, HostCall):
            return [self._whole(buffer.name) for buffer in group.written]
        return [layer.ofm for layer in group]

    def _whole(self, name: str) -> Tensor:
        return self._there[PatchNeed(name, form_of(self._network.tensors[name]).whole)]

    def _buffers(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        arguments: Sequence[tuple[list[Tensor], list[Tensor]]],
    ) -> Mapping[str, Buffer]:
        """A buffer for each tensor between calls, by name: those of host functions have their own names."""
        tensors = [*inputs, *outputs, *(tensor for ends in arguments for side in ends for tensor in side)]
        entering, leaving = {tensor.name for tensor in inputs}, {tensor.name for tensor in outputs}

        def buffer(tensor: Tensor) -> Buffer:
            one = Buffer(tensor.name, tensor.nbytes, "intermediate", tensor.shape, tensor.dtype, _one_scale(tensor))
            if tensor.name in entering:
                return replace(one, role="input")
            return replace(one, role="output") if tensor.name in leaving else one

        return {tensor.name: buffer(tensor) for tensor in tensors}


def _one_scale(tensor: Tensor) -> Quantization | None:
    quantization = tensor.quantization
    return quantization if quantization is not None and len(quantization.scale) == 1 else None


def _groups(steps: Sequence[Layer | HostCall]) -> Iterator[HostCall | tuple[Layer, ...]]:
    layers: list[Layer] = []
    for step in steps:
        if not isinstance(step, HostCall):
            layers.append(step)
            continue
        if layers:
            yield _named(layers)
            layers = []
        yield step
    if layers:
        yield _named(layers)


def _named(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, with names that differ."""
    names = distinct(layer.name for layer in layers)
    return tuple(replace(layer, name=name) for layer, name in zip(layers, names, strict=True))


def _holds(one: PatchNeed, other: PatchNeed) -> bool:
    return contains(one.patch, other.patch)


def _patch_name(need: PatchNeed, whole: Tensor) -> str:
    form = form_of(whole)
    parts = []
    if need.patch.rows != form.whole.rows:
        parts.append(f"rows {need.patch.rows[0]} to {need.patch.rows[1] - 1}")
    if need.patch.channels != form.whole.channels:
        parts.append(f"channels {need.patch.channels[0]} to {need.patch.channels[1] - 1}")
    return f"{need.tensor} {' '.join(parts)}"
