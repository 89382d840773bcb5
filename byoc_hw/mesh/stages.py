"""Cuts the units of a network into stages: runs of consecutive units that fit a PE, the longest as short as can be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate

from byoc_hw.integers import ceil_div
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.patches import form_of, hull, intersection, patch_bytes, patch_of, sent_patch
from byoc_hw.mesh.pieces import ALL, NodePiece, PieceBox
from byoc_hw.mesh.plan import Patch
from byoc_hw.mesh.stage_cycles import StageFigures

_EXACT_UNITS = 48
"""Up to so many units every cut is looked at; of more, each stage takes as many units as it can."""

_ENDLESS = 1 << 60
"""Cycles that no stage has."""

_WIDER = (32, 8, 2)
"""The longest stage is looked for up to one of so many parts above the mean first, and then anywhere."""

_CLOSE = 0.001
"""The search ends where the cycles of the longest stage are known up to this share."""


@dataclass(frozen=True)
class StageBytes:
    """Bytes of a stage on its PE: constants, what it receives of a frame, the buffers of what it sends, and the tensors
    that it makes.

    What it sends is there twice, so that it can compute the next frame meanwhile: as a tensor that it makes and in a
    buffer, or if it sends a small part of a tensor, in two buffers.
    """

    weights: int
    received: int
    sent: int
    inner: int

    def total(self, slots: int) -> int:
        """With `slots` frames of what is received."""
        return self.weights + slots * self.received + self.sent + self.inner

    def figures(self, cycles: int) -> StageFigures:
        """The figures of a stage of these bytes that is not planned."""
        return StageFigures(cycles, self.total(0), self.received)


Beyond = Callable[[int, int], int]
"""What a stage, by its first unit and the one behind its last, takes beyond what is worked out."""


def _nothing(first: int, stop: int) -> int:
    return 0


class StageCutter:
    """The units of a network in an order, and the stages that they can be cut into.

    `slots` is the frames that a stage's buffers for what it receives hold.
    """

    def __init__(self, costs: PieceCosts, units: Sequence[NodePiece], mesh: Mesh, slots: int = 2) -> None:
        self._costs, self._mesh, self.slots = costs, mesh, slots
        self._network = costs.network
        self.units = tuple(units)
        self._extents = self._whole_extents()
        self._places: dict[int, list[int]] = {}
        for at, unit in enumerate(units):
            self._places.setdefault(unit.node, []).append(at)
        self._started = sorted(self._places, key=lambda node: self._places[node][0])
        self._starts = [self._places[node][0] for node in self._started]
        self._opened: dict[int, tuple[int, ...]] = {}
        self._pieces: dict[tuple[int, int], NodePiece] = {}
        self._piece_jobs: dict[tuple[int, int], int] = {}
        self._cycles: dict[tuple[int, int], int] = {}
        self._jobs: dict[tuple[int, int], int] = {}
        self._readers = self._network.readers
        self._fitting: dict[tuple[int, int], bool] = {}
        self._extra: Beyond = _nothing
        self._further: Beyond = _nothing

    def with_extra(self, cycles: Beyond, nbytes: Beyond) -> StageCutter:
        """The same units, where stages take so many cycles beyond those of their jobs, and so many bytes beyond those
        that are worked out here."""
        other = copy(self)
        other._extra, other._cycles = cycles, {}
        other._further, other._fitting = nbytes, {}
        return other

    def _whole_extents(self) -> dict[int, int]:
        found = {}
        for unit in self.units:
            form = form_of(self._network.tensors[self._network.nodes[unit.node].outputs[0]])
            found[unit.node] = form.rows if unit.box.axis == "rows" else form.channels
        return found

    def pieces(self, first: int, stop: int) -> tuple[NodePiece, ...]:
        """The pieces of a stage of units `first` to `stop`, one of each node, in the order of nodes."""
        return tuple(self._joined(*span) for span in sorted(self._spans(first, stop)))

    def _spans(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The nodes with units from `first` to `stop`, each with the first and the last of them."""
        begun = self._started[bisect_left(self._starts, first + 1) : bisect_left(self._starts, stop)]
        for node in (*self._open(first), *begun):
            places = self._places[node]
            low, high = bisect_left(places, first), bisect_left(places, stop)
            if low < high:
                yield node, places[low], places[high - 1]

    def _open(self, at: int) -> tuple[int, ...]:
        """The nodes that have units up to unit `at`, and from it on."""
        if at not in self._opened:
            spans = ((node, places[0], places[-1]) for node, places in self._places.items())
            self._opened[at] = tuple(node for node, begin, end in spans if begin <= at <= end)
        return self._opened[at]

    def _joined(self, node: int, first: int, last: int) -> NodePiece:
        """The units of a node from one to another as a piece."""
        key = first, last
        if key not in self._pieces:
            one, other = self.units[first].box, self.units[last].box
            whole = one.axis == "all" or (one.start, other.stop) == (0, self._extents[node])
            self._pieces[key] = NodePiece(node, ALL if whole else PieceBox(one.axis, one.start, other.stop))
        return self._pieces[key]

    def cycles(self, first: int, stop: int) -> int:
        """The cycles of a stage: those of its jobs, and what it is taken to need beyond them."""
        key = first, stop
        if key not in self._cycles:
            self._cycles[key] = self.jobs(first, stop) + self._extra(first, stop)
        return self._cycles[key]

    def jobs(self, first: int, stop: int) -> int:
        """The cycles of the jobs of a stage."""
        key = first, stop
        if key not in self._jobs:
            self._jobs[key] = sum(self._jobs_of(*span) for span in self._spans(first, stop))
        return self._jobs[key]

    def _jobs_of(self, node: int, first: int, last: int) -> int:
        """The cycles of the units of a node from one to another as a piece."""
        key = first, last
        if key not in self._piece_jobs:
            self._piece_jobs[key] = self._costs.cycles(self._joined(node, first, last))
        return self._piece_jobs[key]

    def leaving_at(self, stop: int) -> Callable[[str, Patch], Patch | None]:
        """What units from `stop` on, or whoever reads the model's outputs, read of a patch of a tensor."""
        return lambda name, made: self._leaving(name, made, stop)

    def best(self, most: int, limit: int = _ENDLESS) -> tuple[tuple[int, int], ...] | None:
        """At most `most` stages, the longest as short as can be; None if so few of `limit` cycles do not fit."""
        if not self.units:
            return ()
        alone = [self._costs.cycles(unit) for unit in self.units]
        low = max(max(alone), sum(alone) // most) - 1
        wider = [low + ceil_div(low + 1, part) for part in _WIDER]
        for tried in [*(one for one in wider if one < limit), limit]:
            found = self.within(tried, most)
            if found is not None:
                break
            low = max(low, tried)
        else:
            return None
        high = self._longest(found)
        while high - low > max(1, _CLOSE * high):
            middle = (low + high) // 2
            better = self.within(middle, most)
            if better is None:
                low = middle
            else:  # a stage that is shorter, so that it fits, may be taken to have more cycles
                found, high = min(found, better, key=self._longest), min(middle, self._longest(better))
        return found

    def _longest(self, cuts: Sequence[tuple[int, int]]) -> int:
        return max(self.cycles(*cut) for cut in cuts)

    def within(self, limit: int, most: int | None = None) -> tuple[tuple[int, int], ...] | None:
        """The fewest stages of at most `limit` cycles that fit a PE each; None if there are none, or more than `most`.

        Where memory does not stop it, a stage that takes all that it can is part of the fewest. Where it does, a
        shorter one may be: what it would make itself a later one must receive. Then few units are tried in every way.
        """
        found = self._greedy(limit, len(self.units) if most is None else most)
        if len(self.units) <= _EXACT_UNITS and found is None:
            found = self._every(limit)
        return found if found is not None and (most is None or len(found) <= most) else None

    def _greedy(self, limit: int, most: int) -> tuple[tuple[int, int], ...] | None:
        found: list[tuple[int, int]] = []
        first, step = 0, 1
        while first < len(self.units):
            stop = self._fitting_part(first, self._reach(first, limit, step))
            if stop == first or len(found) == most:
                return None
            found.append((first, stop))
            first, step = stop, stop - first
        return tuple(found)

    def _reach(self, first: int, limit: int, step: int = 1) -> int:
        """The last end of a stage of at most `limit` cycles; `step` is about how many units that are."""
        stop = first
        while step:  # doubles the units, then halves: cycles grow with them
            if stop + step <= len(self.units) and self.cycles(first, stop + step) <= limit:
                stop += step
                step *= 2
            else:
                step //= 2
        return stop

    def _fitting_part(self, first: int, stop: int) -> int:
        """The last end of a stage that fits a PE, as if bytes always grew with the units."""
        if stop == first or self.fits(first, stop):
            return stop
        low, high = first, stop
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(first, middle) else (low, middle)
        return low

    def _every(self, limit: int) -> tuple[tuple[int, int], ...] | None:
        count = len(self.units)
        fewest: list[tuple[int, int]] = [(0, 0)] + [(count + 1, 0)] * count  # stages up to here, start of the last one
        for first in range(count):
            if fewest[first][0] > count:
                continue
            for stop in range(first + 1, self._reach(first, limit) + 1):
                if fewest[first][0] + 1 < fewest[stop][0] and self.fits(first, stop):
                    fewest[stop] = fewest[first][0] + 1, first
        if fewest[count][0] > count:
            return None
        found, stop = [], count
        while stop:
            found.append((fewest[stop][1], stop))
            stop = fewest[stop][1]
        return tuple(reversed(found))

    def fits(self, first: int, stop: int) -> bool:
        """Whether a stage fits the memory of a PE."""
        known = self._fitting.get((first, stop))
        if known is None:
            room = self._mesh.data - self._further(first, stop)
            pieces = self.pieces(first, stop)
            known = sum(map(self._costs.weights, pieces)) <= room
            if known:
                known = stage_bytes(self._costs, pieces, self.leaving_at(stop)).total(self.slots) <= room
            self._fitting[first, stop] = known
        return known

    def nbytes(self, first: int, stop: int) -> StageBytes:
        """The bytes of a stage."""
        return stage_bytes(self._costs, self.pieces(first, stop), self.leaving_at(stop))

    def figures(self, first: int, stop: int) -> StageFigures:
        """The figures of a stage that is not planned."""
        return self.nbytes(first, stop).figures(self.cycles(first, stop))

    def _leaving(self, name: str, made: Patch, stop: int) -> Patch | None:
        """What units from `stop` on read of a patch, or whoever reads the model's outputs."""
        if name in self._network.outputs:
            return made
        found: list[Patch] = []
        for reader in self._readers.get(name, ()):
            places = self._places[reader]
            later = bisect_left(places, stop)
            for at in {places[later], places[-1]} if later < len(places) else ():
                found += [patch for read, patch in self._costs.patches_read(self.units[at]) if read == name]
        return intersection(hull(found), made) if found else None


def stage_bytes(
    costs: PieceCosts, pieces: Sequence[NodePiece], leaving: Callable[[str, Patch], Patch | None]
) -> StageBytes:
    """The bytes of a stage of these pieces, each of another node. `leaving` has what it sends of a patch.

    Of a tensor that it makes only a part of, for pieces of its own, it puts together what comes and what it makes.
    """
    network = costs.network
    made: dict[str, Patch] = {}
    wanted: dict[str, list[Patch]] = {}
    last: dict[str, int] = {}
    for at, piece in enumerate(pieces):
        node = network.nodes[piece.node]
        made |= {name: patch_of(network.tensors[name], piece.box) for name in node.outputs}
        for name, patch in costs.patches_read(piece):
            wanted.setdefault(name, []).append(patch)
            last[name] = at
    received = sent = 0
    inner: list[tuple[int, int, int]] = []  # bytes, first and last piece
    for name, patches in wanted.items():
        tensor, whole = network.tensors[name], hull(patches)
        own = intersection(made[name], whole) if name in made else None
        lacking = patch_bytes(tensor, whole) - (0 if own is None else patch_bytes(tensor, own))
        received += lacking
        if lacking and own is not None:
            inner.append((patch_bytes(tensor, whole), 0, last[name]))
    for at, piece in enumerate(pieces):
        for name in network.nodes[piece.node].outputs:
            tensor, part = network.tensors[name], leaving(name, made[name])
            made_bytes = patch_bytes(tensor, made[name])
            end = last.get(name, at)
            if part is not None:
                held = sent_patch(tensor, made[name], part)
                sent += (OUTPUT_BUFFERS - (held == made[name])) * patch_bytes(tensor, held)
                end = len(pieces) - 1 if held == made[name] else end
            inner.append((made_bytes, at, end))
    return StageBytes(sum(map(costs.weights, pieces)), received, sent, _peak(inner, len(pieces)))


def _peak(spans: Sequence[tuple[int, int, int]], count: int) -> int:
    """The most bytes that are there at one of `count` moments: each of them from a first moment to a last."""
    change = [0] * (count + 1)
    for nbytes, start, end in spans:
        change[start] += nbytes
        change[max(end, start - 1) + 1] -= nbytes
    return max(accumulate(change[:count]))
