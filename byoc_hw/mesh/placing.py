"""Makes a plan of stages whose PEs are known: its channels, and as many credits as its memory has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from byoc_hw.integers import ceil_div
from byoc_hw.mesh.code_size import CODE_OF_A_PORT, PE_CODE
from byoc_hw.mesh.credits import held_cycles, least_credits
from byoc_hw.mesh.machine import Coordinates, Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import channels_of, patch_bytes, stage_needs
from byoc_hw.mesh.pe_source import MOST_PORTS, holder_of, received_buffer_bytes
from byoc_hw.mesh.pe_stages import bytes_of_pe, stages_by_place
from byoc_hw.mesh.plan import OUTSIDE, Channel, MeshPlan, PlanFigures, Stage
from byoc_hw.mesh.predict import busiest_link, busiest_pe, first_starts
from byoc_hw.mesh.routes import hops
from byoc_hw.mesh.stage_cycles import StageFigures

_OUTSIDE_CREDITS = 2
"""Frames of the model's inputs that a PE takes before it has begun with the first, where it has room."""


def with_credits(
    network: MeshNetwork,
    mesh: Mesh,
    stages: Sequence[Stage],
    replicas: Sequence[tuple[Coordinates, ...]],
    found: Sequence[StageFigures],
    work: int,
    objective: str = "throughput",
) -> MeshPlan | None:
    """The plan of stages on the PEs of `replicas`; None where a PE has too few bytes even with the least credits, for
    data or for code, or a stage too many channels.

    `found` has the figures of each stage. Each channel gets the credits for a frame every period, or where a PE has too
    few bytes for them, those for the shortest period that it has room for.
    """
    stages = tuple(replace(stage, pe=place) for stage, place in zip(stages, replicas[0], strict=True))
    channels = tuple(_with_hops(channel, stages) for channel in channels_of(network, stages))
    rooms = rooms_of(network, stages, found, channels)
    if any(why_no_room_for(here, mesh) for here in _by_place(stages, rooms)):
        return None
    cycles = tuple(one.cycles for one in found)
    figures = PlanFigures(work, cycles, (), (), ())
    plan = MeshPlan(network, stages, channels, tuple(replicas), mesh, figures, objective)
    flow = plan.flow(1)
    inner = iter(least_credits(flow))
    least = [0 if _is_outer(channel) else next(inner) for channel in channels]
    period = max(busiest_pe(flow), busiest_link(flow), 1)
    held = iter(held_cycles(flow, first_starts(flow)))
    cycles_held = [_OUTSIDE_CREDITS * period if _is_outer(channel) else next(held) for channel in channels]
    credits = _credits(mesh, stages, rooms, channels, least, cycles_held, period)
    if credits is None:
        return None
    channels = tuple(replace(channel, credits=count) for channel, count in zip(channels, credits, strict=True))
    nbytes, arenas = zip(*(one.nbytes(credits.__getitem__) for one in rooms), strict=True)
    figures = PlanFigures(work, cycles, nbytes, arenas, tuple(least))
    return replace(plan, channels=channels, figures=figures)


def why_not_placed(
    network: MeshNetwork,
    mesh: Mesh,
    stages: Sequence[Stage],
    places: Sequence[Coordinates] | None,
    found: Sequence[StageFigures],
) -> str | None:
    """What has no room even with one credit a channel: the stages of a PE, the bytes that they need there, and those
    that it has. Without `places` each stage is on a PE of its own. None if all fit."""
    alone = [(number, 0) for number in range(len(stages))]
    stages = tuple(replace(stage, pe=place) for stage, place in zip(stages, places or alone, strict=True))
    for here in _by_place(stages, rooms_of(network, stages, found, channels_of(network, stages))):
        why = why_no_room_for(here, mesh)
        if why is not None:
            numbers = ", ".join(str(one.number) for one in here)
            where = f" on PE {stages[here[0].number].pe}" if places else ""
            return f"stage {numbers}{where} fits {why}"
    return None


def bytes_of_stages(
    network: MeshNetwork, stages: Sequence[Stage], found: Sequence[StageFigures], channels: Sequence[Channel]
) -> tuple[tuple[int, int], ...]:
    """The bytes for data of each stage alone, with its buffers for what these channels bring it; and of these its
    arena."""
    rooms = rooms_of(network, stages, found, channels)
    return tuple(one.nbytes(lambda lane: channels[lane].credits) for one in rooms)


class StageRoom:
    """What stage `number` needs on its PE: with its figures, and the channels that it has. `receives` are the numbers
    of those that bring it what it reads, `sends` is how many others there are."""

    def __init__(self, network: MeshNetwork, number: int, stage: Stage, figures: StageFigures) -> None:
        self.number, self.figures = number, figures
        self._needs = stage_needs(network, stage)
        self._inputs = [patch_bytes(network.tensors[need.tensor], need.patch) for need in self._needs]
        self._held: list[tuple[int, int]] = []  # of each channel that it receives from, its input and its bytes
        self.receives: list[int] = []
        self.sends = 0

    def receive(self, lane: int, channel: Channel) -> None:
        """Count the channel of number `lane`, which brings the stage what it reads."""
        self.receives.append(lane)
        self._held.append((holder_of(self._needs, channel), channel.nbytes))

    def nbytes(self, credits: Callable[[int], int]) -> tuple[int, int]:
        """Bytes for data of the stage alone, with these credits of each channel, by its number; and of these its
        arena."""
        lanes = [(*held, credits(lane)) for held, lane in zip(self._held, self.receives, strict=True)]
        return self.figures.fixed + received_buffer_bytes(self._inputs, lanes), self.figures.arena

    @property
    def least(self) -> tuple[int, int]:
        """Bytes for data with one credit a channel, and of these its arena."""
        return self.nbytes(lambda _: 1)

    @property
    def code(self) -> int:
        """Bytes of its code and ports, but for what each PE has; 0 if its code is not known."""
        ports = len(self.receives) + self.sends
        return self.figures.code + CODE_OF_A_PORT * ports if self.figures.code else 0


def rooms_of(
    network: MeshNetwork, stages: Sequence[Stage], found: Sequence[StageFigures], channels: Sequence[Channel]
) -> list[StageRoom]:
    """What each stage needs on its PE."""
    rooms = [StageRoom(network, number, *pair) for number, pair in enumerate(zip(stages, found, strict=True))]
    for lane, channel in enumerate(channels):
        if channel.target != OUTSIDE:
            rooms[channel.target].receive(lane, channel)
        if channel.source != OUTSIDE:
            rooms[channel.source].sends += 1
    return rooms


def why_no_room_for(stages: Sequence[StageRoom], mesh: Mesh) -> str | None:
    """What some stages on one PE should fit, and what they have; None if they fit with one credit a channel."""
    for one in stages:
        for count, what in ((len(one.receives), "receives from"), (one.sends, "sends to")):
            if count > MOST_PORTS:
                return f"the {MOST_PORTS} ports of a program: stage {one.number} {what} {count} channels"
    data, code = bytes_of_pe(one.least for one in stages), PE_CODE + sum(one.code for one in stages)
    if data > mesh.data:
        return f"the {mesh.data} bytes of a PE for data: with one credit a channel it has {data}"
    if code > mesh.code and any(one.code for one in stages):
        return f"the {mesh.code} bytes of a PE for code: it has {code}"
    return None


def _by_place(stages: Sequence[Stage], rooms: Sequence[StageRoom]) -> list[list[StageRoom]]:
    """What is on each PE."""
    return [[rooms[number] for number in here] for here in stages_by_place([stage.pe for stage in stages])]


def _is_outer(channel: Channel) -> bool:
    return OUTSIDE in (channel.source, channel.target)


def _with_hops(channel: Channel, stages: Sequence[Stage]) -> Channel:
    if _is_outer(channel):
        return channel
    source, target = stages[channel.source].pe, stages[channel.target].pe
    assert source is not None
    assert target is not None
    return replace(channel, hops=hops(source, target))


def _credits(
    mesh: Mesh,
    stages: Sequence[Stage],
    rooms: Sequence[StageRoom],
    channels: Sequence[Channel],
    least: Sequence[int],
    held: Sequence[int],
    period: int,
) -> list[int] | None:
    """The credits of each channel: on each PE those for the shortest period, not below `period`, that it has room for.
    None where even the least credits are too many."""
    credits = [_OUTSIDE_CREDITS] * len(channels)

    def wanted(lane: int, period: int) -> int:
        return max(1, least[lane], ceil_div(held[lane], period))

    def fits(here: Sequence[StageRoom], period: int) -> bool:
        return bytes_of_pe(one.nbytes(lambda lane: wanted(lane, period)) for one in here) <= mesh.data

    for here in _by_place(stages, rooms):
        lanes = [lane for one in here for lane in one.receives]
        low, high = period - 1, max([period, *(held[lane] for lane in lanes)])
        if not fits(here, high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(here, middle) else (middle, high)
        for lane in lanes:
            credits[lane] = wanted(lane, high)
    return credits
