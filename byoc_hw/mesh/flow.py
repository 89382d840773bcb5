"""What runs on a mesh for each frame, without what it computes: steps on PEs, and the messages between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from byoc_hw.arguments import check_whole
from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.machine import Coordinates, Mesh

OUTPUT_BUFFERS = 2
"""Frames of its outputs that a step holds: it computes one while the one before is being sent."""


@dataclass(frozen=True)
class FlowStep:
    """What a PE computes for a frame in one go: it needs all its messages first, and sends its own afterwards.

    In its n-th turn a PE goes through its steps in order, each with frame n - `lag`: steps with a lag leave earlier
    ones time for what lies between them on other PEs. `group` is the pipeline that the step belongs to: its frames are
    counted by themselves.
    """

    name: str
    pe: Coordinates
    cycles: int
    lag: int = 0
    group: int = 0


@dataclass(frozen=True)
class Lane:
    """A message of `nbytes` for each frame between two steps, by index. The target has room for `credits` of them."""

    source: int
    target: int
    nbytes: int
    credits: int


@dataclass(frozen=True)
class Flow:
    """The steps of all PEs and the messages between them. Steps of one PE are in the order of its turn."""

    mesh: Mesh
    steps: tuple[FlowStep, ...]
    lanes: tuple[Lane, ...]

    def __post_init__(self) -> None:
        for step in self.steps:
            if step.pe not in self.mesh or step.pe in self.mesh.dead:
                raise InvalidInput(f"{step.name}: its PE is one of the mesh that is not dead: got {step.pe}")
            check_whole(f"{step.name}: cycles", step.cycles)
            check_whole(f"{step.name}: lag", step.lag)
        for number, lane in enumerate(self.lanes):
            for end in (lane.source, lane.target):
                check_whole(f"channel {number}: each end", end, 0, len(self.steps) - 1)
            check_whole(f"channel {number}: nbytes", lane.nbytes)
            check_whole(f"channel {number}: credits", lane.credits)

    @cached_property
    def turns(self) -> Mapping[Coordinates, tuple[int, ...]]:
        """The steps of each PE, in order."""
        found: dict[Coordinates, list[int]] = {}
        for index, step in enumerate(self.steps):
            found.setdefault(step.pe, []).append(index)
        return {place: tuple(indices) for place, indices in found.items()}

    @cached_property
    def incoming(self) -> tuple[tuple[int, ...], ...]:
        """The lanes into each step."""
        return self._lanes_by([lane.target for lane in self.lanes])

    @cached_property
    def outgoing(self) -> tuple[tuple[int, ...], ...]:
        """The lanes out of each step, in the order in which it sends."""
        return self._lanes_by([lane.source for lane in self.lanes])

    def _lanes_by(self, ends: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.steps]
        for number, end in enumerate(ends):
            found[end].append(number)
        return tuple(map(tuple, found))

    def name(self, lane: int) -> str:
        """A lane as messages name it."""
        one = self.lanes[lane]
        return f"{self.steps[one.source].name} -> {self.steps[one.target].name}"

    def with_credits(self, credits: Sequence[int]) -> Flow:
        """The same flow with other credits, by lane."""
        lanes = (replace(lane, credits=count) for lane, count in zip(self.lanes, credits, strict=True))
        return replace(self, lanes=tuple(lanes))
