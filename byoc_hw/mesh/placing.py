"""Makes a plan of stages whose PEs are known: its channels, and as many credits as its memory has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from byoc_hw.integers import ceil_div
from byoc_hw.mesh.credits import held_cycles, least_credits
from byoc_hw.mesh.machine import Coordinates, Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import channels_of
from byoc_hw.mesh.plan import OUTSIDE, Channel, MeshPlan, PlanFigures, Stage
from byoc_hw.mesh.predict import busiest_link, busiest_pe, first_starts
from byoc_hw.mesh.routes import hops

_OUTSIDE_CREDITS = 2
"""Frames of the model's inputs that a PE takes before it has begun with the first, where it has room."""


def with_credits(
    network: MeshNetwork,
    mesh: Mesh,
    stages: Sequence[Stage],
    replicas: Sequence[tuple[Coordinates, ...]],
    cycles: Sequence[int],
    fixed: Sequence[int],
    work: int,
    objective: str = "throughput",
) -> MeshPlan | None:
    """The plan of stages on the PEs of `replicas`; None where a PE has too few bytes even with the least credits.

    `cycles` and `fixed`, the bytes without channels, are by stage. Each channel gets the credits for a frame every
    period, or where a PE has too few bytes for them, those for the shortest period that it has room for.
    """
    stages = tuple(replace(stage, pe=place) for stage, place in zip(stages, replicas[0], strict=True))
    channels = tuple(_with_hops(channel, stages) for channel in channels_of(network, stages))
    figures = PlanFigures(work, tuple(cycles), tuple(fixed), ())
    plan = MeshPlan(network, stages, channels, tuple(replicas), mesh, figures, objective)
    flow = plan.flow(1)
    inner = iter(least_credits(flow))
    least = [0 if _is_outer(channel) else next(inner) for channel in channels]
    period = max(busiest_pe(flow), busiest_link(flow), 1)
    held = iter(held_cycles(flow, first_starts(flow)))
    cycles_held = [_OUTSIDE_CREDITS * period if _is_outer(channel) else next(held) for channel in channels]
    credits = _credits(mesh, stages, channels, fixed, least, cycles_held, period)
    if credits is None:
        return None
    channels = tuple(replace(channel, credits=count) for channel, count in zip(channels, credits, strict=True))
    nbytes = tuple(_stage_bytes(number, channels, credits, fixed) for number in range(len(stages)))
    figures = PlanFigures(work, tuple(cycles), nbytes, tuple(least))
    return replace(plan, channels=channels, figures=figures)


def _is_outer(channel: Channel) -> bool:
    return OUTSIDE in (channel.source, channel.target)


def _with_hops(channel: Channel, stages: Sequence[Stage]) -> Channel:
    if _is_outer(channel):
        return channel
    source, target = stages[channel.source].pe, stages[channel.target].pe
    assert source is not None
    assert target is not None
    return replace(channel, hops=hops(source, target))


def _stage_bytes(stage: int, channels: Sequence[Channel], credits: Sequence[int], fixed: Sequence[int]) -> int:
    held = (channel.nbytes * count for channel, count in zip(channels, credits, strict=True) if channel.target == stage)
    return fixed[stage] + sum(held)


def _credits(
    mesh: Mesh,
    stages: Sequence[Stage],
    channels: Sequence[Channel],
    fixed: Sequence[int],
    least: Sequence[int],
    held: Sequence[int],
    period: int,
) -> list[int] | None:
    """The credits of each channel: on each PE those for the shortest period, not below `period`, that it has room for.
    None where even the least credits are too many."""
    by_place: dict[Coordinates, list[int]] = {}
    for number, stage in enumerate(stages):
        assert stage.pe is not None
        by_place.setdefault(stage.pe, []).append(number)
    incoming: list[list[int]] = [[] for _ in stages]
    for number, channel in enumerate(channels):
        if channel.target != OUTSIDE:
            incoming[channel.target].append(number)
    credits = [_OUTSIDE_CREDITS] * len(channels)
    for here in by_place.values():
        lanes = [lane for stage in here for lane in incoming[stage]]
        room = mesh.data - sum(fixed[stage] for stage in here)

        def wanted(period: int, lanes: Sequence[int] = lanes) -> dict[int, int]:
            return {lane: max(1, least[lane], ceil_div(held[lane], period)) for lane in lanes}

        def fits(period: int, room: int = room, wanted: Callable[[int], dict[int, int]] = wanted) -> bool:
            return sum(channels[lane].nbytes * count for lane, count in wanted(period).items()) <= room

        low, high = period - 1, max([period, *(held[lane] for lane in lanes)])
        if not fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        for lane, count in wanted(high).items():
            credits[lane] = count
    return credits
