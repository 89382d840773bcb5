"""One inference as early as possible: every layer is cut over many PEs, which take one layer after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from byoc_hw.errors import PlanError
from byoc_hw.mesh.code_size import PE_CODE
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import Leaving, channels_of, contains, leaving_stages, patch_of
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.placing import StageRoom, rooms_of, why_no_room_for, with_credits
from byoc_hw.mesh.plan import Channel, MeshPlan, Patch, Stage
from byoc_hw.mesh.stage_cycles import StageFigures, stages_in_full
from byoc_hw.mesh.stages import stage_bytes
from byoc_hw.mesh.units import Units, UnitWays

_JOINED = (1.0, 0.25, 0.0)
"""The shares of a PE's memory for data that several layers may take in one stage."""

_LEAN = (1.0, 8.0, 1e9)
"""`UnitWays.lean`: layers are cut by channels where rows would need too many weights on each PE. The next one is tried
if nothing fits with the ones before."""

_WORSE = 2
"""How often in a row more parts may be no help before no more are tried."""


def latency_plan(network: MeshNetwork, mesh: Mesh) -> MeshPlan:
    """The plan whose single inference ends first, of those with each layer in at most 1, 2, 4, 8 ... parts.

    More parts are tried until twice in a row they do not help. The parts of a layer are on different PEs. A PE has a
    stage for each layer that it computes a part of, or for several layers whose parts read nothing of each other; they
    take turns. Each stage is on the first PE that has room for it. Where parts would be smaller than what the array
    computes at a time, a layer has fewer.
    Raises `PlanError` where no such cut fits the PEs: with what does not, and how many PEs would do.
    """
    return _Planner(network, mesh).plan()


@dataclass(frozen=True, eq=False)
class _Cut:
    """The stages of groups of consecutive layers, group by group: `sizes` has how many each has. No two stages of a
    group may be on one PE."""

    network: MeshNetwork
    stages: tuple[Stage, ...]
    sizes: tuple[int, ...]

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        return channels_of(self.network, self.stages)

    @cached_property
    def leaving(self) -> list[Leaving]:
        return leaving_stages(len(self.stages), self.channels)


class _Planner:
    def __init__(self, network: MeshNetwork, mesh: Mesh) -> None:
        self._network, self._mesh = network, mesh
        self._costs = PieceCosts(network, mesh.pe)
        self._planned, self._least = stages_in_full(self._costs, mesh), self._costs.least_work()
        target = self._costs.work() // len(mesh.alive)
        self._units = [Units(self._costs, UnitWays(lean=lean), target, mesh.data) for lean in _LEAN]

    def plan(self) -> MeshPlan:
        """The plan of the best cut, as its stages are built."""
        tried: list[tuple[_Cut, MeshPlan | None]] = []
        best, worse = None, 0
        for number, cuts in enumerate(self._cuts()):
            if best is not None and (worse == _WORSE or 2**number > len(self._mesh.alive)):
                break
            found: list[tuple[_Cut, MeshPlan | None]] = []
            for alike in cuts:
                found += [(cut, self._plan(cut, self._figures(cut))) for cut in alike]
                if any(plan is not None for _, plan in found):
                    break
            least = min((plan.latency for _, plan in found if plan is not None), default=None)
            tried += found
            if least is not None and (best is None or least < best):
                best, worse = least, 0
            elif best is not None:
                worse += 1
        fitting = sorted((plan.latency, at) for at, (_, plan) in enumerate(tried) if plan is not None)
        others = [at for at, (_, plan) in enumerate(tried) if plan is None]
        for at in [*(at for _, at in fitting), *others]:  # what does not fit as it is planned quickly may fit as built
            plan = self._plan(tried[at][0], self._built(tried[at][0]))
            if plan is not None:
                return plan.simulated()
        raise PlanError(self._why_not([cut for cut, _ in tried]))

    # ------------------------------------------------------------ cuts

    def _cuts(self) -> Iterator[list[list[_Cut]]]:
        """Cuts with at most 1, 2, 4, 8 ... parts of each layer, by what is tried one after the other: as long as there
        are other ones."""
        parts, seen = 1, set[tuple[Stage, ...]]()
        while True:
            found: list[list[_Cut]] = []
            for units in self._units:
                cuts = {cut.stages: cut for cut in (self._cut(units, parts, share) for share in _JOINED)}
                found.append([cut for stages, cut in cuts.items() if stages not in seen])
                seen |= cuts.keys()
            if not any(found):
                return
            yield found
            parts *= 2

    def _cut(self, units: Units, parts: int, share: float) -> _Cut:
        groups: list[list[tuple[NodePiece, ...]]] = []
        for number in range(len(self._network.nodes)):
            pieces = units.parts_of(number, parts)
            if groups and self._follow(groups[-1], pieces, int(share * self._mesh.data)):
                groups[-1] = [(*part, piece) for part, piece in zip(groups[-1], pieces, strict=True)]
            else:
                groups.append([(piece,) for piece in pieces])
        stages = tuple(Stage(part) for group in groups for part in group)
        return _Cut(self._network, stages, tuple(map(len, groups)))

    def _follow(self, group: Sequence[tuple[NodePiece, ...]], pieces: Sequence[NodePiece], room: int) -> bool:
        """Whether each piece can be in a stage with one part of a group of layers: of what the group makes it reads
        something, of its own part only, and all fits `room` bytes."""
        if len(group) != len(pieces):
            return False
        for part, piece in zip(group, pieces, strict=True):
            made = {
                name: patch_of(self._network.tensors[name], one.box)
                for one in part
                for name in self._network.nodes[one.node].outputs
            }
            reads = [(made[name], patch) for name, patch in self._costs.patches_read(piece) if name in made]
            if not reads or not all(contains(*pair) for pair in reads):
                return False
        return all(self._bytes(part, piece) <= room for part, piece in zip(group, pieces, strict=True))

    def _bytes(self, part: tuple[NodePiece, ...], piece: NodePiece) -> int:
        """About the bytes of a stage of a part of a group of layers and a piece of the next one."""
        inside = {one.node for one in (*part, piece)}
        readers = self._network.readers

        def leaving(name: str, made: Patch) -> Patch | None:
            stays = name not in self._network.outputs and inside.issuperset(readers.get(name, ()))
            return None if stays else made

        return stage_bytes(self._costs, (*part, piece), leaving).total(1)

    # ------------------------------------------------------------ figures and places

    def _figures(self, cut: _Cut) -> list[StageFigures | None]:
        """The figures of the stages as they are planned quickly, or of their jobs for PEs without tiles to plan."""
        pairs = zip((stage.pieces for stage in cut.stages), cut.leaving, strict=True)
        if self._planned is not None:
            return [self._planned.of(*pair) for pair in pairs]
        cycles = [sum(map(self._costs.cycles, stage.pieces)) for stage in cut.stages]
        return [stage_bytes(self._costs, *pair).figures(each) for pair, each in zip(pairs, cycles, strict=True)]

    def _built(self, cut: _Cut) -> list[StageFigures | None]:
        """The figures of the stages as they are built."""
        if self._planned is None:
            return self._figures(cut)
        return [self._planned.built(stage.pieces, part) for stage, part in zip(cut.stages, cut.leaving, strict=True)]

    def _plan(self, cut: _Cut, figures: Sequence[StageFigures | None]) -> MeshPlan | None:
        """The plan of a cut; None if it does not fit."""
        found = [one for one in figures if one is not None]
        if len(found) < len(figures):
            return None
        rooms = rooms_of(self._network, cut.stages, found, cut.channels)
        places = _places(cut, rooms, self._mesh, len(self._mesh.alive))
        if places is None:
            return None
        replicas = [tuple(self._mesh.alive[at] for at in places)]
        plan = with_credits(self._network, self._mesh, cut.stages, replicas, found, self._least, "latency")
        if plan is None or self._planned is None:
            return plan
        return replace(plan, figures=replace(plan.placed[1], planned=True))

    # ------------------------------------------------------------ errors

    def _why_not(self, cuts: Sequence[_Cut]) -> str:
        """What does not fit, and how many PEs would do."""
        enough: list[tuple[int, int]] = []  # PEs, bytes of all stages
        alone = ""
        for cut in cuts:
            figures = self._built(cut)
            found = [one for one in figures if one is not None]
            if len(found) < len(figures):
                alone = f"{self._named(cut, figures.index(None))} fits the PE's local memories: no plan of it does"
                continue
            rooms = rooms_of(self._network, cut.stages, found, cut.channels)
            places = _places(cut, rooms, self._mesh, len(cut.stages))
            if places is not None:
                enough.append((max(places) + 1, sum(room.least[0] for room in rooms)))
                continue
            why = [(why_no_room_for([room], self._mesh), room.number) for room in rooms]
            reason, number = next(one for one in why if one[0] is not None)
            alone = f"{self._named(cut, number)} fits {reason}"
        if not enough:
            return f"{alone}; no number of PEs was found that would do"
        pes, nbytes = min(enough)
        each = f"{self._mesh.data} bytes for data and {self._mesh.code} for code"
        return (
            f"{self._network.name}: stages of its layers, or of parts of these, fit {len(self._mesh.alive)} PEs with "
            f"{each} of each: they have {nbytes} bytes for data; {pes} PEs would do"
        )

    def _named(self, cut: _Cut, number: int) -> str:
        pieces = cut.stages[number].pieces
        listed = ", ".join(f"{self._network.nodes[one.node].name} {one.box}" for one in pieces)
        return f"{self._network.name}: stage {number} of {listed}"


def _places(cut: _Cut, rooms: Sequence[StageRoom], mesh: Mesh, count: int) -> list[int] | None:
    """For each stage the first of `count` PEs that has room for it, by its number; None if there is none."""
    if any(why_no_room_for([room], mesh) for room in rooms):
        return None
    data, code = np.full(count, mesh.data), np.full(count, mesh.code - PE_CODE)
    arenas = np.zeros(count, dtype=np.int64)
    found: list[int] = []
    for size in cut.sizes:
        free = np.ones(count, dtype=bool)
        for room in rooms[len(found) : len(found) + size]:
            nbytes, arena = room.least
            own = nbytes - arena
            fits = free & (data - np.maximum(arenas, arena) >= own) & ((code >= room.code) | (room.code == 0))
            at = int(fits.argmax())
            if not fits[at]:
                return None
            free[at] = False
            data[at] -= own
            arenas[at] = max(arenas[at], arena)
            code[at] -= room.code
            found.append(at)
    return found
