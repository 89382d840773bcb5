"""Plans as JSON files: to hand to other tools, and to take from another mapper. docs/mesh.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.credits import check_credits
from byoc_hw.mesh.machine import Coordinates, Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import Leaving, channels_of, leaving_stages
from byoc_hw.mesh.pe_stages import bytes_of_pe, program_name, programs_of, stages_by_place
from byoc_hw.mesh.pieces import ALL, NodePiece, PieceBox, axes_of
from byoc_hw.mesh.placing import bytes_of_stages, why_not_placed, with_credits
from byoc_hw.mesh.plan import OUTSIDE, Channel, MeshPlan, Patch, Stage
from byoc_hw.mesh.routes import PORT, link_name
from byoc_hw.mesh.stage_cycles import StageCycles, StageFigures, sharpened, stages_in_full
from byoc_hw.mesh.stages import stage_bytes
from byoc_hw.schema import accepted, integer, list_of, nullable, one_of, read_json, row, structure, text

PLAN_FORMAT = 1
_GENERATOR = "byoc_hw mesh plan"
_LARGEST = 2**28

_PAIR = row(integer(), integer())
_PIECE = structure({"node": text, "axis": one_of("rows", "channels", "all")}, {"start": integer(), "stop": integer()})
_CHANNEL = structure(
    {
        "source": nullable(integer()),
        "target": nullable(integer()),
        "tensor": text,
        "rows": _PAIR,
        "channels": _PAIR,
        "credits": integer(0, 1 << 20),
    }
)
_SCHEMA = structure(
    {
        "generator": text,
        "format": integer(PLAN_FORMAT, PLAN_FORMAT),
        "stages": list_of(structure({"pes": list_of(_PAIR), "pieces": list_of(_PIECE)})),
    },
    {"channels": list_of(_CHANNEL), "objective": one_of("throughput", "latency"), "period": integer(1)},
)


def plan_json(plan: MeshPlan) -> str:
    """The text of a plan: the same bytes for the same plan."""
    mesh, _ = plan.placed
    programs = {number: program for program, numbers in enumerate(programs_of(plan.replicas[:1])) for number in numbers}
    plain = {
        "generator": _GENERATOR,
        "format": PLAN_FORMAT,
        "model": plan.network.name,
        "objective": plan.objective,
        "mesh": {"label": mesh.label, "width": mesh.width, "height": mesh.height},
        "period": plan.period,
        "latency": plan.latency,
        "stages": [_stage(plan, number, programs[number]) for number in range(len(plan.stages))],
        "channels": [_channel(plan, channel) for channel in plan.channels],
    }
    return json.dumps(plain, indent=1) + "\n"


def _stage(plan: MeshPlan, number: int, program: int) -> dict[str, Any]:
    _, figures = plan.placed
    ends = [(at, channel.source, channel.target) for at, channel in enumerate(plan.channels)]
    return {
        "program": program_name(plan.network.name, program),
        "pes": [list(places[number]) for places in plan.replicas],
        "cycles": figures.cycles[number],
        "bytes": figures.nbytes[number],
        "arena": figures.arenas[number],
        "pieces": [
            {
                "node": plan.network.nodes[piece.node].name,
                "axis": piece.box.axis,
                "start": piece.box.start,
                "stop": piece.box.stop,
            }
            for piece in plan.stages[number].pieces
        ],
        "inputs": [at for at, _, target in ends if target == number],
        "outputs": [at for at, source, _ in ends if source == number],
    }


def _channel(plan: MeshPlan, channel: Channel) -> dict[str, Any]:
    return {
        "source": None if channel.source == OUTSIDE else channel.source,
        "target": None if channel.target == OUTSIDE else channel.target,
        "tensor": channel.tensor,
        "rows": list(channel.patch.rows),
        "channels": list(channel.patch.channels),
        "bytes": channel.nbytes,
        "bytes_per_cycle": round(channel.nbytes / plan.period, 6),
        "credits": channel.credits,
        "hops": channel.hops,
    }


def read_plan(path: Path, network: MeshNetwork, mesh: Mesh) -> MeshPlan:
    """The plan in a file, for a network on a mesh. Cycles, bytes and, where the file has none, credits are worked out.

    Raises `InvalidInput` for a file that is no plan, or names nodes, PEs or channels that are not there; `PlanError`
    for stages that do not compute the network once, do not fit their PEs, or block each other: with those that would.
    """
    plain = accepted(path, read_json(path, _LARGEST), _SCHEMA)
    if plain["generator"] != _GENERATOR:
        raise InvalidInput(f"{path} is a plan for a mesh, generator {_GENERATOR!r}: got {plain['generator']!r}")
    stages = tuple(_read_stage(path, number, one, network) for number, one in enumerate(plain["stages"]))
    replicas = _read_places(path, plain["stages"], mesh)
    costs = PieceCosts(network, mesh.pe)
    channels = channels_of(network, stages)
    leaving, given = leaving_stages(len(stages), channels), _given_credits(plain.get("channels", ()))
    objective = plain.get("objective", "throughput")
    received = [
        sum(one.nbytes * given.get(_key(one), 1) for one in channels if one.target == number)
        for number in range(len(stages))
    ]
    planned = stages_in_full(costs, mesh)
    rooms = [mesh.data - each for each in received]
    figures = None if planned is None else _planned_figures(planned, stages, leaving, rooms, objective == "latency")
    in_full = figures is not None
    if figures is None:
        pairs = zip((one.pieces for one in stages), leaving, strict=True)
        figures = [stage_bytes(costs, *pair).figures(sum(map(costs.cycles, pair[0]))) for pair in pairs]
    plan = with_credits(network, mesh, stages, replicas, figures, costs.least_work(), objective)
    if plan is None:
        why = why_not_placed(network, mesh, stages, replicas[0], figures)
        raise PlanError(f"{path}: {why or 'PEs have room for the least credits of their channels: they have not'}")
    if in_full:
        plan = replace(plan, figures=replace(plan.placed[1], planned=True))
    if "channels" in plain:
        plan = _with_given(path, plan, given, figures)
    plan = plan.simulated()
    if "period" in plain:
        _check_links(path, plan, plain["period"])
    return plan


def _check_links(path: Path, plan: MeshPlan, period: int) -> None:
    """Raise `PlanError` for a link that is busy for longer than a frame."""
    for way, load in plan.link_loads.items():
        if load > period:
            mesh = plan.placed[0]
            link = mesh.link if PORT in way else mesh.link_of(*way)
            raise PlanError(
                f"{path}: {link_name(way)} carries what it can with a frame every {period} cycles, "
                f"{period * link.bytes_per_cycle} bytes: its load is {load} cycles a frame"
            )


def _planned_figures(
    planned: StageCycles, stages: Sequence[Stage], leaving: Sequence[Leaving], rooms: Sequence[int], every: bool
) -> Sequence[StageFigures] | None:
    """The figures of stages with so many bytes each beside what they receive: of the longest ones, or with `every` of
    all, as they are built. None where one cannot be planned."""
    quick: list[StageFigures] = []
    slots: list[int] = []
    for stage, part, room in zip(stages, leaving, rooms, strict=True):
        found = _figures(planned, stage, part, room)
        if found is None:
            return None
        slots.append(found[0])
        quick.append(found[1])

    def built(number: int) -> StageFigures | None:
        there = planned.left > 0 or every
        return planned.built(stages[number].pieces, leaving[number], slots[number]) if there else None

    if every:
        return [built(number) or one for number, one in enumerate(quick)]
    return sharpened(quick, built)


def _figures(planned: StageCycles, stage: Stage, leaving: Leaving, room: int) -> tuple[int, StageFigures] | None:
    """The figures of a stage with `room` bytes beside what it receives: as with one frame of that, or with two."""
    tried = ((slots, planned.of(stage.pieces, leaving, slots)) for slots in (1, 2))
    found = [(slots, one) for slots, one in tried if one is not None]
    return next(((slots, one) for slots, one in found if one.fixed <= room), found[0] if found else None)


def _read_stage(path: Path, number: int, plain: Mapping[str, Any], network: MeshNetwork) -> Stage:
    numbers = {node.name: at for at, node in enumerate(network.nodes)}
    pieces: list[NodePiece] = []
    for one in plain["pieces"]:
        if one["node"] not in numbers:
            raise InvalidInput(f"{path}: stage {number}: node is one of the network's: got {one['node']!r}")
        node = numbers[one["node"]]
        if any(piece.node == node for piece in pieces):
            raise InvalidInput(f"{path}: stage {number}: each node is in one piece of a stage: {one['node']} is in two")
        axis = one["axis"]
        if axis != "all" and axis not in axes_of(network.nodes[node]):
            axes = ", ".join((*axes_of(network.nodes[node]), "all"))
            raise InvalidInput(f"{path}: stage {number}: axis of {one['node']} is one of {axes}: got {axis}")
        box = ALL if axis == "all" else PieceBox(axis, one.get("start", 0), one.get("stop", 0))
        pieces.append(NodePiece(node, box))
    if not pieces:
        raise InvalidInput(f"{path}: stage {number}: a stage has at least one piece: got none")
    return Stage(tuple(sorted(pieces, key=lambda piece: piece.node)))


def _read_places(path: Path, stages: Sequence[Mapping[str, Any]], mesh: Mesh) -> list[tuple[Coordinates, ...]]:
    counts = {len(one["pes"]) for one in stages}
    if len(counts) != 1 or 0 in counts:
        raise InvalidInput(f"{path}: each stage has a PE for each pipeline, at least one: got {sorted(counts)} PEs")
    alive = set(mesh.alive)
    taken: dict[Coordinates, int] = {}
    for number, one in enumerate(stages):
        for replica, pair in enumerate(one["pes"]):
            place = pair[0], pair[1]
            if place not in alive:
                what = "dead" if place in mesh.dead else f"not of {mesh.width} x {mesh.height} PEs"
                raise InvalidInput(f"{path}: stage {number}: PE {place} can be used: it is {what}")
            if taken.setdefault(place, replica) != replica:
                raise InvalidInput(f"{path}: stage {number}: PE {place} is of one pipeline: it is of two")
    return [tuple((one["pes"][at][0], one["pes"][at][1]) for one in stages) for at in range(counts.pop())]


_ChannelKey = tuple[int, int, str, Patch]
"""What tells a channel from others: source, target, tensor, patch."""


def _key(channel: Channel) -> _ChannelKey:
    return channel.source, channel.target, channel.tensor, channel.patch


def _given_credits(given: Sequence[Mapping[str, Any]]) -> dict[_ChannelKey, int]:
    """The credits of a file's channels."""
    credits: dict[_ChannelKey, int] = {}
    for one in given:
        source, target = (OUTSIDE if one[end] is None else one[end] for end in ("source", "target"))
        patch = Patch((one["rows"][0], one["rows"][1]), (one["channels"][0], one["channels"][1]))
        credits[source, target, one["tensor"], patch] = one["credits"]
    return credits


def _with_given(
    path: Path, plan: MeshPlan, given: Mapping[_ChannelKey, int], found: Sequence[StageFigures]
) -> MeshPlan:
    """The plan with the credits of the file."""
    mesh, figures = plan.placed
    credits = dict(given)
    channels = []
    for channel in plan.channels:
        count = credits.pop(_key(channel), None)
        if count is None:
            raise InvalidInput(f"{path}: channels are those that the stages need: none for {_named(channel)}")
        channels.append(replace(channel, credits=count))
    for source, target, tensor, patch in credits:
        what = f"{tensor} rows {patch.rows} channels {patch.channels} from {source} to {target}"
        raise InvalidInput(f"{path}: channels are those that the stages need: {what} is not one")
    sizes = bytes_of_stages(plan.network, plan.stages, found, channels)
    for here in stages_by_place(plan.replicas[0]):
        place, count = plan.replicas[0][here[0]], bytes_of_pe(sizes[number] for number in here)
        if count > mesh.data:
            raise PlanError(f"{path}: PE {place} has {mesh.data} bytes for data: its stages need {count}")
    nbytes, arenas = zip(*sizes, strict=True)
    plan = replace(plan, channels=tuple(channels), figures=replace(figures, nbytes=nbytes, arenas=arenas))
    check_credits(plan.flow(1))
    return plan


def _named(channel: Channel) -> str:
    return f"{channel.tensor} from {channel.source} to {channel.target}, {channel.patch.rows}, {channel.patch.channels}"
