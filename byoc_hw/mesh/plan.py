"""A plan for a mesh: which PE computes which pieces of a network, and the channels between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.plan.lanes.cut import Range

OUTSIDE = -1
"""The source of the model's inputs and the target of its outputs: the host of the mesh."""

Coordinates = tuple[int, int]
"""Column and row of a PE."""


@dataclass(frozen=True)
class Patch:
    """A rectangle of a tensor: a range of rows (dimension 1 of NHWC) and a range of channels (the last dimension).

    A tensor of other than 4 dimensions, or of a batch, has one row.
    """

    rows: Range
    channels: Range


@dataclass(frozen=True)
class Stage:
    """What one PE computes for each frame, in this order. `pe` is None before PEs are placed."""

    pieces: tuple[NodePiece, ...]
    pe: Coordinates | None = None


@dataclass(frozen=True)
class Channel:
    """A patch of a tensor that stage `source` sends to stage `target` in each frame.

    `credits` is the number of frames that it holds, `hops` the links on its way.
    """

    source: int
    target: int
    tensor: str
    patch: Patch
    nbytes: int
    credits: int = 2
    hops: int = 0


@dataclass(frozen=True)
class MeshPlan:
    """Stages and channels of one pipeline, and how often it is there: `replicas` has the PEs of each copy, by stage."""

    network: MeshNetwork
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]
    replicas: tuple[tuple[Coordinates, ...], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
