"""What a stage reads and writes: patches of tensors, which of them its own pieces make, and channels for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from byoc_hw.errors import PlanError
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece, PieceBox, input_boxes
from byoc_hw.mesh.plan import OUTSIDE, Channel, Patch, Stage
from byoc_hw.plan.lanes.cut import Range
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class TensorForm:
    """A tensor as rows of pixels of channels, in memory in this order."""

    rows: int
    pixels: int
    channels: int

    @cached_property
    def whole(self) -> Patch:
        return Patch((0, self.rows), (0, self.channels))


class PatchNeed(NamedTuple):
    """A patch of a tensor that a stage reads and that comes from other stages or from outside."""

    tensor: str
    patch: Patch


@kept_in_first
def form_of(tensor: Tensor) -> TensorForm:
    """Rows, pixels of a row, channels of a tensor. What has no rows has one."""
    shape = tensor.shape or (1,)
    if len(shape) == 4 and shape[0] == 1:
        return TensorForm(shape[1], shape[2], shape[3])
    return TensorForm(1, prod(shape[:-1]), shape[-1])


@kept_in_first
def patch_of(tensor: Tensor, box: PieceBox) -> Patch:
    """The patch that a box is."""
    whole, span = form_of(tensor).whole, (box.start, box.stop)
    return Patch(
        span if box.axis == "rows" else whole.rows,
        span if box.axis == "channels" else whole.channels,
    )


@kept_in_first
def patch_bytes(tensor: Tensor, patch: Patch) -> int:
    """Bytes of a patch."""
    return tensor.bytes_of(_extent(patch.rows) * form_of(tensor).pixels * _extent(patch.channels))


def patch_shape(tensor: Tensor, patch: Patch) -> tuple[int, ...]:
    """The shape of a patch as a tensor."""
    if form_of(tensor).whole == patch:
        return tensor.shape
    shape = (*tensor.shape[:-1], _extent(patch.channels))
    return (1, _extent(patch.rows), *shape[2:]) if len(shape) == 4 and shape[0] == 1 else shape


def intersection(one: Patch, other: Patch) -> Patch | None:
    """What two patches share, or None."""
    rows, channels = _common(one.rows, other.rows), _common(one.channels, other.channels)
    return None if rows is None or channels is None else Patch(rows, channels)


def hull(patches: Sequence[Patch]) -> Patch:
    """The smallest patch that has all of some patches."""
    return Patch(_around([patch.rows for patch in patches]), _around([patch.channels for patch in patches]))


def sent_patch(tensor: Tensor, made: Patch, leaving: Patch) -> Patch:
    """What a stage holds to send of a patch that it makes: what leaves it, or where that is most of it, all of it."""
    return leaving if 2 * patch_bytes(tensor, leaving) <= patch_bytes(tensor, made) else made


def reads_of(network: MeshNetwork, piece: NodePiece) -> list[PatchNeed]:
    """What a piece reads, one for each of its node's inputs."""
    node = network.nodes[piece.node]
    boxes = input_boxes(node, piece.box)
    return [PatchNeed(name, patch_of(network.tensors[name], box)) for name, box in zip(node.inputs, boxes, strict=True)]


def writes_of(network: MeshNetwork, piece: NodePiece) -> list[PatchNeed]:
    """What a piece writes, one for each of its node's outputs."""
    return [PatchNeed(name, patch_of(network.tensors[name], piece.box)) for name in network.nodes[piece.node].outputs]


def stage_needs(network: MeshNetwork, stage: Stage) -> tuple[PatchNeed, ...]:
    """What comes into a stage, in the order in which its pieces read it.

    Of a tensor that the stage makes no piece of, this is one patch with all that it reads. Where it makes some of the
    tensor, these are the bands beside that. No two of them overlap.
    """
    made: dict[str, list[Patch]] = {}
    wanted: dict[str, list[Patch]] = {}
    for piece in stage.pieces:
        for need in writes_of(network, piece):
            made.setdefault(need.tensor, []).append(need.patch)
    for piece in stage.pieces:
        for need in reads_of(network, piece):
            wanted.setdefault(need.tensor, []).append(need.patch)
    needs: list[PatchNeed] = []
    for tensor, patches in wanted.items():
        if tensor not in made:
            needs.append(PatchNeed(tensor, hull(patches)))
            continue
        lacking = [patch for patch in patches if not any(contains(own, patch) for own in made[tensor])]
        if lacking:
            needs += [PatchNeed(tensor, band) for band in _bands(network, tensor, hull(lacking), made[tensor])]
    return tuple(needs)


def assembled(network: MeshNetwork, tensor: str, wanted: Patch, own: Sequence[Patch]) -> list[Patch]:
    """The patches, one behind the other along one axis, that hold a wanted patch: of `own` ones, and between them."""
    axis = band_axis(network.tensors[tensor], own)
    whole = form_of(network.tensors[tensor]).whole
    first, stop = getattr(wanted, axis)
    if any(getattr(patch, other_axis(axis)) != getattr(whole, other_axis(axis)) for patch in own):
        raise PlanError(f"{tensor}: pieces of one layer are cut along one axis")
    found, at = [], first
    for start, end in sorted(getattr(patch, axis) for patch in own):
        if end <= at or start >= stop:
            continue
        if start > at:
            found.append(_band(whole, axis, (at, start)))
        found.append(_band(whole, axis, (max(start, at), min(end, stop))))
        at = end
    if at < stop:
        found.append(_band(whole, axis, (at, stop)))
    return found


def band_axis(tensor: Tensor, own: Sequence[Patch]) -> str:
    """The axis along which patches of a tensor lie side by side."""
    return "channels" if any(patch.channels != form_of(tensor).whole.channels for patch in own) else "rows"


def other_axis(axis: str) -> str:
    """Of rows and channels the other one."""
    return "rows" if axis == "channels" else "channels"


def contains(one: Patch, other: Patch) -> bool:
    """Whether all of the other patch is in the first one."""
    return intersection(one, other) == other


def channels_of(network: MeshNetwork, stages: Sequence[Stage], credits: int = 2) -> tuple[Channel, ...]:
    """The channels between stages, from outside to the inputs and from the outputs to outside, in a fixed order.

    Each has one patch, of one that the source makes and one that the target needs. Raises `PlanError` for a piece
    that two stages compute, a node that is not computed in full, and stages that wait for each other.
    """
    made = _made(network, stages)
    found: list[Channel] = []
    targets = [(number, need) for number, stage in enumerate(stages) for need in stage_needs(network, stage)]
    outputs = [PatchNeed(name, form_of(network.tensors[name]).whole) for name in network.outputs]
    for target, need in [*targets, *((OUTSIDE, need) for need in outputs)]:
        tensor = network.tensors[need.tensor]
        for source, patch in made[need.tensor]:
            shared = intersection(patch, need.patch)
            if shared is not None:
                nbytes = patch_bytes(tensor, shared)
                found.append(Channel(source, target, need.tensor, shared, nbytes, credits))
    _check_order(stages, found)
    return tuple(found)


Leaving = Callable[[str, Patch], Patch | None]
"""What others read of a patch of a tensor that a stage makes; None if nothing."""


def leaving_stages(count: int, channels: Sequence[Channel]) -> list[Leaving]:
    """What leaves each of `count` stages by their channels."""
    patches: list[dict[str, list[Patch]]] = [{} for _ in range(count)]
    for channel in channels:
        if channel.source != OUTSIDE:
            patches[channel.source].setdefault(channel.tensor, []).append(channel.patch)

    def looked_up(sent: Mapping[str, Patch]) -> Leaving:
        return lambda name, _: sent.get(name)

    return [looked_up({name: hull(each) for name, each in one.items()}) for one in patches]


def _made(network: MeshNetwork, stages: Sequence[Stage]) -> dict[str, list[tuple[int, Patch]]]:
    """Who makes which patches of each tensor: all of it, once."""
    made = {name: [(OUTSIDE, form_of(network.tensors[name]).whole)] for name in network.inputs}
    for number, stage in enumerate(stages):
        for piece in stage.pieces:
            for need in writes_of(network, piece):
                known = made.setdefault(need.tensor, [])
                if any(intersection(patch, need.patch) for _, patch in known):
                    raise PlanError(f"{network.nodes[piece.node].name}: {piece.box} is computed twice")
                known.append((number, need.patch))
    for node in network.nodes:
        for name in node.outputs:
            tensor = network.tensors[name]
            there = sum(patch_bytes(tensor, patch) for _, patch in made.get(name, []))
            if there != tensor.nbytes:
                raise PlanError(f"{node.name}: the stages compute {there} of {tensor.nbytes} bytes of its output")
    return made


def _check_order(stages: Sequence[Stage], channels: Sequence[Channel]) -> None:
    """`PlanError` where stages wait for each other within a frame."""
    waits: dict[int, set[int]] = {number: set() for number in range(len(stages))}
    for channel in channels:
        if OUTSIDE not in (channel.source, channel.target):
            waits[channel.target].add(channel.source)
    while free := sorted(stage for stage, sources in waits.items() if not sources):
        for stage in free:
            del waits[stage]
        for sources in waits.values():
            sources.difference_update(free)
    if waits:
        raise PlanError(f"stages {', '.join(map(str, sorted(waits)))} wait for each other within a frame")


def _bands(network: MeshNetwork, tensor: str, wanted: Patch, own: Sequence[Patch]) -> list[Patch]:
    """The parts of what is assembled that no own patch holds."""
    return [
        patch for patch in assembled(network, tensor, wanted, own) if not any(contains(mine, patch) for mine in own)
    ]


def _band(whole: Patch, axis: str, span: Range) -> Patch:
    return Patch(span, whole.channels) if axis == "rows" else Patch(whole.rows, span)


def _extent(span: Range) -> int:
    return span[1] - span[0]


def _common(one: Range, other: Range) -> Range | None:
    found = max(one[0], other[0]), min(one[1], other[1])
    return found if found[0] < found[1] else None


def _around(spans: Sequence[Range]) -> Range:
    return min(start for start, _ in spans), max(stop for _, stop in spans)
