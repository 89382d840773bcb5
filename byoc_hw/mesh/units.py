"""The units of a network, and an order of them in which stages are runs of consecutive ones.

A unit is some rows or channels of a node. Nodes that are cut by rows are taken in groups: inside a group the rows of
a node follow as soon as what they read is there, so that few rows lie between any two units; the next group starts when
the one before is through. So a tensor inside a group is never needed as a whole, and one PE has the weights of one or
two groups only. Nodes that are cut by channels are groups by themselves, with what works channel by channel on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from byoc_hw.graph import Conv2d, Dense, MatMul
from byoc_hw.integers import ceil_div
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.patches import form_of
from byoc_hw.mesh.pieces import ALL, CutAxis, NodePiece, PieceBox, axes_of

_MAY_LOSE = 1.05
"""Cycles of all pieces over those of the whole, up to which an axis counts as good as any."""


@dataclass(frozen=True)
class UnitWays:
    """How a network is made into units: what a layer may be cut by rows for.

    A layer is cut by rows, if it has some, where its input has `lean` times as many bytes as its weights, which each PE
    then needs as a whole; else by channels. An axis along which the smallest units take more than `coarse` of a stage's
    cycles is left for the other one. About `finest` units have weights, inputs and outputs that fill a PE, or more.
    `group` is the bytes of weights of a group of layers that are cut by rows, `share` about the units of a stage.
    """

    lean: float = 1.0
    group: int = 24 * 1024
    coarse: float = 0.25
    finest: int = 24
    share: int = 12


class Units:
    """The units of a network in order, for stages of about `target` cycles on PEs with `room` bytes for data."""

    def __init__(self, costs: PieceCosts, ways: UnitWays, target: int, room: int) -> None:
        self._costs, self._ways = costs, ways
        self._nodes = costs.network.nodes
        self._makers = costs.network.makers
        self._target = max(1, target)
        self._room = room
        self.axes = self._choose_axes()
        self.pieces = tuple(self._ordered())

    # ------------------------------------------------------------ the axis of each node

    def _choose_axes(self) -> list[CutAxis | None]:
        found: list[CutAxis | None] = []
        for number in range(len(self._nodes)):
            found.append(self._axis(number, found))
        return found

    def _axis(self, number: int, before: Sequence[CutAxis | None]) -> CutAxis | None:
        node = self._nodes[number]
        allowed = axes_of(node)
        if len(allowed) < 2 or node.layer is None:
            return allowed[0] if allowed else None
        allowed = self._without_loss(number, allowed)
        makers = [before[self._makers[name]] for name in node.inputs if name in self._makers]
        if not isinstance(node.layer, Conv2d | Dense | MatMul) and makers and makers[0] in allowed:
            return makers[0]
        weights = self._costs.weights(NodePiece(number))
        return "rows" if "rows" in allowed and node.layer.ifm.nbytes >= self._ways.lean * weights else allowed[-1]

    def _without_loss(self, number: int, allowed: tuple[CutAxis, ...]) -> tuple[CutAxis, ...]:
        """The axes along which pieces take about as long together as the whole, and are small; or else the best one."""
        whole, parts = self._costs.cycles(NodePiece(number)), self._parts(number)
        prices = {}
        for axis in allowed:
            cycles = [self._costs.cycles(NodePiece(number, box)) for box in self._boxes(number, axis, parts)]
            prices[axis] = max(_MAY_LOSE, sum(cycles) / max(1, whole)) + max(
                self._ways.coarse, max(cycles) / self._target
            )
        least = min(prices.values())
        return tuple(axis for axis in allowed if prices[axis] <= least)

    def _parts(self, number: int) -> int:
        """The units that a node is to have: small against the cycles of a stage, and in bytes against a PE."""
        network = self._costs.network
        node = self._nodes[number]
        nbytes = sum(network.tensors[name].nbytes for name in (*node.inputs, *node.outputs))
        whole = NodePiece(number)
        by_cycles = ceil_div(self._costs.cycles(whole) * self._ways.share, self._target)
        return max(by_cycles, ceil_div(self._ways.finest * (nbytes + self._costs.weights(whole)), max(1, self._room)))

    def _boxes(self, number: int, axis: CutAxis, parts: int) -> list[PieceBox]:
        extent, granule = self._extent(number, axis), self._costs.granule(number, axis)
        grains = ceil_div(extent, granule)
        parts = min(parts, grains)
        ends = [min(extent, granule * (grains * part // parts)) for part in range(parts)] + [extent]
        return [PieceBox(axis, start, stop) for start, stop in pairwise(ends) if start < stop]

    def _extent(self, number: int, axis: CutAxis) -> int:
        form = form_of(self._costs.network.tensors[self._nodes[number].outputs[0]])
        return form.rows if axis == "rows" else form.channels

    def parts_of(self, number: int, most: int) -> list[NodePiece]:
        """A node in at most `most` parts of about the same size, none smaller than what the array takes at a time."""
        axis = self.axes[number]
        if axis is None or most < 2:
            return [NodePiece(number, ALL)]
        boxes = self._boxes(number, axis, most)
        return [NodePiece(number, box if len(boxes) > 1 else ALL) for box in boxes]

    # ------------------------------------------------------------ the order

    def _groups(self) -> Iterator[list[int]]:
        """Consecutive nodes: of those that are cut by rows as many as have weights for one PE; others by themselves."""
        group: list[int] = []
        weights = 0
        for number, axis in enumerate(self.axes):
            mine = self._costs.weights(NodePiece(number)) if axis == "rows" else 0
            if group and (axis != self.axes[group[-1]] or weights + mine > self._ways.group):
                yield group
                group, weights = [], 0
            group.append(number)
            weights += mine
        if group:
            yield group

    def _ordered(self) -> Iterator[NodePiece]:
        for group in self._groups():
            yield from _GroupOrder(group, {number: self._cut(number) for number in group}, self._costs, self._makers)

    def _cut(self, number: int) -> list[NodePiece]:
        return self.parts_of(number, self._parts(number))


class _GroupOrder:
    """The units of a group: each as late as what reads it allows, the last ones of all nodes in step."""

    def __init__(
        self,
        group: Sequence[int],
        cut: Mapping[int, Sequence[NodePiece]],
        costs: PieceCosts,
        makers: Mapping[str, int],
    ) -> None:
        self._cut, self._costs, self._makers = cut, costs, makers
        self._done = dict.fromkeys(group, 0)
        nodes = costs.network.nodes
        read = {makers.get(name) for number in group for name in nodes[number].inputs}
        self._ends = [number for number in group if number not in read]
        self._group = group

    def __iter__(self) -> Iterator[NodePiece]:
        steps = max(len(self._cut[number]) for number in self._group)
        for step in range(1, steps + 1):
            for number in self._ends:
                yield from self._up_to(number, ceil_div(len(self._cut[number]) * step, steps))
        for number in self._group:
            yield from self._up_to(number, len(self._cut[number]))

    def _up_to(self, number: int, count: int) -> Iterator[NodePiece]:
        while self._done[number] < count:
            piece = self._cut[number][self._done[number]]
            for name, box in zip(self._costs.network.nodes[number].inputs, self._costs.reads(piece), strict=True):
                maker = self._makers.get(name)
                if maker in self._done:
                    yield from self._up_to(maker, self._needed(maker, box))
            self._done[number] += 1
            yield piece

    def _needed(self, maker: int, box: PieceBox) -> int:
        """How many of a node's units hold a box of its output: the first ones."""
        cut = self._cut[maker]
        if box.axis == "all" or box.axis != cut[0].box.axis:
            return len(cut)
        return next((count for count, piece in enumerate(cut, 1) if piece.box.stop >= box.stop), len(cut))
