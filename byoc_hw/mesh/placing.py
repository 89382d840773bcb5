"""Makes a plan of stages whose PEs are known: its channels, and as many credits as its memory has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_hw.mesh.credits import full_rate_credits, least_credits
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
    period; on a PE with too few bytes for them the largest channels get fewer.
    """
    stages = tuple(replace(stage, pe=place) for stage, place in zip(stages, replicas[0], strict=True))
    channels = tuple(_with_hops(channel, stages) for channel in channels_of(network, stages))
    figures = PlanFigures(work, tuple(cycles), tuple(fixed), ())
    plan = MeshPlan(network, stages, channels, tuple(replicas), mesh, figures, objective)
    flow = plan.flow(1)
    inner = iter(least_credits(flow))
    least = [0 if _is_outer(channel) else next(inner) for channel in channels]
    period = max(busiest_pe(flow), busiest_link(flow), 1)
    wanted = iter(full_rate_credits(flow, first_starts(flow), period))
    credits = [
        _OUTSIDE_CREDITS if _is_outer(channel) else max(fewest, next(wanted))
        for channel, fewest in zip(channels, least, strict=True)
    ]
    if not _shrink(mesh, stages, channels, fixed, least, credits):
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
    assert source is not None and target is not None
    return replace(channel, hops=hops(source, target))


def _stage_bytes(stage: int, channels: Sequence[Channel], credits: Sequence[int], fixed: Sequence[int]) -> int:
    held = (channel.nbytes * count for channel, count in zip(channels, credits, strict=True) if channel.target == stage)
    return fixed[stage] + sum(held)


def _shrink(
    mesh: Mesh,
    stages: Sequence[Stage],
    channels: Sequence[Channel],
    fixed: Sequence[int],
    least: Sequence[int],
    credits: list[int],
) -> bool:
    """Take credits away on PEs that have too few bytes for them: of the channel with the most bytes first. Whether all
    of them fit now."""
    by_place: dict[Coordinates, list[int]] = {}
    for number, stage in enumerate(stages):
        assert stage.pe is not None
        by_place.setdefault(stage.pe, []).append(number)
    incoming: list[list[int]] = [[] for _ in stages]
    for number, channel in enumerate(channels):
        if channel.target != OUTSIDE:
            incoming[channel.target].append(number)
    for here in by_place.values():
        lanes = [lane for stage in here for lane in incoming[stage]]
        total = sum(fixed[stage] for stage in here) + sum(channels[lane].nbytes * credits[lane] for lane in lanes)
        while total > mesh.data:
            spare = [lane for lane in lanes if credits[lane] > max(1, least[lane]) and channels[lane].nbytes]
            if not spare:
                return False
            lane = max(spare, key=lambda lane: (channels[lane].nbytes * credits[lane], -lane))
            credits[lane] -= 1
            total -= channels[lane].nbytes
    return True
