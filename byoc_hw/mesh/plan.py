"""A plan for a mesh: which PE computes which pieces of a network, and the channels between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import NamedTuple

from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.flow import Flow, FlowStep, Lane
from byoc_hw.mesh.machine import Coordinates as Coordinates
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pe_stages import bytes_of_pe, stages_by_place
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.predict import busiest_link, busiest_pe, frames_to_fill, loads, period_of
from byoc_hw.mesh.routes import MeshLink, link_name
from byoc_hw.plan.lanes.cut import Range
from byoc_hw.report.cycles import short_name

_SHOWN = 24
"""The stages that a plan prints."""

_FEWEST_FRAMES, _FILLINGS, _MOST_MOVED = 64, 8, 200_000
"""What is simulated for a plan: at least so many frames, and so many times those that are in the pipeline at once; and
at most so many messages and frames of stages."""

OUTSIDE = -1
"""The source of the model's inputs and the target of its outputs: the host of the mesh."""


class Patch(NamedTuple):
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
class PlanFigures:
    """What is known of each stage, by its number: cycles of a frame, bytes of its PE's memory for data if it is there
    alone, and how many of these are its arena, which the stages of a PE share.

    `work` is the least cycles of the whole network on one PE whose memory has no end. `least` has the credits of each
    channel without which stages would block each other; of channels from or to outside it is 0. `planned` says whether
    `cycles` are those of stages that are planned; else they are those of their jobs, without copies that jobs do not
    hide. `period` is the cycles between two frames of a pipeline by itself as the simulator has them, 0 if it was not
    run.
    """

    work: int
    cycles: tuple[int, ...]
    nbytes: tuple[int, ...]
    arenas: tuple[int, ...]
    least: tuple[int, ...]
    planned: bool = False
    period: int = 0


@dataclass(frozen=True)
class MeshPlan:
    """Stages and channels of one pipeline, and how often it is there: `replicas` has the PEs of each copy, by stage.

    Times are in accelerator cycles. `objective` is "throughput" or "latency". Of the stages of one PE
    that can start, the one with the oldest frame does, then the first.
    """

    network: MeshNetwork
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]
    replicas: tuple[tuple[Coordinates, ...], ...] = ()
    mesh: Mesh | None = None
    figures: PlanFigures | None = None
    objective: str = "throughput"

    @property
    def placed(self) -> tuple[Mesh, PlanFigures]:
        """The mesh and the figures of a plan whose stages have PEs."""
        assert self.mesh is not None, "the plan has been placed"
        assert self.figures is not None, "the plan has been placed"
        return self.mesh, self.figures

    def flow(self, replicas: int | None = None) -> Flow:
        """What runs on the mesh for each frame, of the first `replicas` pipelines; by default of all."""
        mesh, figures = self.placed
        steps: list[FlowStep] = []
        lanes: list[Lane] = []
        count = len(self.stages)
        for group, places in enumerate(self.replicas[:replicas]):
            name = "stage {}" if len(self.replicas[:replicas]) == 1 else f"pipeline {group} stage {{}}"
            steps += [
                FlowStep(name.format(stage), place, cycles, 0, group)
                for stage, (place, cycles) in enumerate(zip(places, figures.cycles, strict=True))
            ]
            lanes += [
                Lane(channel.source + group * count, channel.target + group * count, channel.nbytes, channel.credits)
                for channel in self.inner_channels
            ]
        return Flow(mesh, tuple(steps), tuple(lanes))

    @cached_property
    def inner_channels(self) -> tuple[Channel, ...]:
        """The channels between stages, in the order of a pipeline's lanes in `flow`."""
        return tuple(channel for channel in self.channels if OUTSIDE not in (channel.source, channel.target))

    @cached_property
    def period(self) -> int:
        """Cycles between two frames of one pipeline: of its PEs, of links that all pipelines share, and of credits."""
        return max(self.period_alone, self.link_load)

    @cached_property
    def period_alone(self) -> int:
        """Cycles between two frames of the first pipeline, if no other one has messages on its links."""
        return self.placed[1].period or period_of(self.flow(1))

    @cached_property
    def link_loads(self) -> Mapping[MeshLink, int]:
        """Cycles that each link and port is busy while each pipeline has one frame. None has more than `period`."""
        return loads(self.flow())

    @property
    def link_load(self) -> int:
        """The cycles of the busiest link."""
        return max(self.link_loads.values(), default=0)

    def simulated(self) -> MeshPlan:
        """The plan with the period that the simulator has: messages that wait for each other on links are in it. A plan
        of more than some hundred messages stays as it is."""
        flow = self.flow(1)
        frames = max(_FEWEST_FRAMES, _FILLINGS * frames_to_fill(self.latency, self.period))
        if frames * (len(flow.lanes) + len(flow.steps)) > _MOST_MOVED:
            return self
        found = ceil(simulate(flow, frames).period())
        period = max(found, busiest_pe(flow), busiest_link(flow))
        return replace(self, figures=replace(self.placed[1], period=period))

    @property
    def throughput(self) -> float:
        """Frames a million cycles, of all pipelines."""
        return 1e6 * len(self.replicas) / self.period

    @cached_property
    def latency(self) -> int:
        """Cycles from the start of a frame to its end, if no other is in its way: its own messages may be in the way of
        each other."""
        return simulate(self.flow(1), 1).latency()

    @property
    def pes(self) -> int:
        """PEs that compute something."""
        return len({place for places in self.replicas for place in places})

    @property
    def pe_bytes(self) -> dict[Coordinates, int]:
        """Bytes for data of each PE of the first pipeline."""
        places, figures = self.replicas[0], self.placed[1]
        return {
            places[here[0]]: bytes_of_pe((figures.nbytes[number], figures.arenas[number]) for number in here)
            for here in stages_by_place(places)
        }

    @property
    def bound(self) -> float:
        """Frames a million cycles that no plan goes beyond: with all the mesh's PEs at work all the time."""
        mesh, figures = self.placed
        return 1e6 * len(mesh.alive) / figures.work

    @property
    def efficiency(self) -> float:
        """What is found over the bound."""
        return self.throughput / self.bound

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        mesh, figures = self.placed
        yield (
            f"{self.network.name} on {mesh.label}: {_counted(len(self.replicas), 'pipeline')} of "
            f"{_counted(len(self.stages), 'stage')}, {self.pes:,} of {len(mesh.alive):,} PEs"
        )
        yield (
            f"a frame every {self.period:,} cycles of a pipeline, {self.throughput:.4g} frames a million cycles; bound "
            f"{self.bound:.4g}, found / bound {self.efficiency:.3f}; latency {self.latency:,} cycles"
        )
        kind = (
            "planned, the longest as they are built"
            if figures.planned
            else "by the cycles of their jobs, without copies that these do not hide"
        )
        yield f"stages are {kind}"
        hops = max((channel.hops for channel in self.inner_channels), default=0)
        if self.link_loads:
            busiest = max(self.link_loads, key=lambda way: self.link_loads[way])
            load = f"{self.link_load:,} of {self.period:,} cycles a frame"
            yield f"busiest link: {link_name(busiest)}, {load}; at most {_counted(hops, 'hop')}"
        for number, stage in enumerate(self.stages[:_SHOWN]):
            names = ", ".join(f"{short_name(self.network.nodes[one.node].name)} {one.box}" for one in stage.pieces[:3])
            more = f" and {len(stage.pieces) - 3} more" if len(stage.pieces) > 3 else ""
            cycles, nbytes = figures.cycles[number], figures.nbytes[number]
            yield f"{number:4} {self.replicas[0][number]}: {cycles:,} cycles, {nbytes:,} bytes: {names}{more}"
        if len(self.stages) > _SHOWN:
            yield f"and {_counted(len(self.stages) - _SHOWN, 'stage')} more"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
