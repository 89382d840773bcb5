"""The cycles of a piece of a node on a PE, by the cost model of the planner: without slicing any weights."""

from __future__ import annotations

from functools import cached_property
from math import gcd, lcm

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Layer, Weighted
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import form_of, patch_of
from byoc_hw.mesh.pieces import ALL, NodePiece, PieceBox, input_boxes, piece_bytes, piece_layer
from byoc_hw.mesh.plan import Patch
from byoc_hw.plan.array.cost import flat, is_pointwise
from byoc_hw.plan.array.kinds import (
    Product,
    Run,
    Window,
    geometry,
    job_cycles,
    parts_of_kernel,
    product_cycles,
    sums_channels,
)
from byoc_hw.plan.array.window import Extents
from byoc_hw.plan.bound.ways import least_alone, packs
from byoc_hw.tensor import Tensor

HOST_CYCLES_PER_BYTE = 40
"""What a function of the host is taken to need for each byte of its arguments: about what a softmax does."""


class PieceCosts:
    """Cycles and bytes of the pieces of a network on one kind of PE; each is worked out once."""

    def __init__(self, network: MeshNetwork, accelerator: Accelerator) -> None:
        self.network = network
        self.accelerator = accelerator
        self._cycles: dict[NodePiece, int] = {}
        self._reads: dict[NodePiece, tuple[PieceBox, ...]] = {}
        self._patches: dict[NodePiece, tuple[tuple[str, Patch], ...]] = {}
        self._weights: dict[NodePiece, int] = {}

    def cycles(self, piece: NodePiece) -> int:
        """The cycles of a piece: those of its jobs in their cheapest mapping, or of the core."""
        found = self._cycles.get(piece)
        if found is None:
            found = self._cycles[piece] = self._cycles_of(piece)
        return found

    def reads(self, piece: NodePiece) -> tuple[PieceBox, ...]:
        """The boxes that a piece reads of its node's inputs."""
        found = self._reads.get(piece)
        if found is None:
            found = self._reads[piece] = input_boxes(self.network.nodes[piece.node], piece.box)
        return found

    def patches_read(self, piece: NodePiece) -> tuple[tuple[str, Patch], ...]:
        """The tensors that a piece reads, one for each of its node's inputs, and the patch of each."""
        found = self._patches.get(piece)
        if found is None:
            pairs = zip(self.network.nodes[piece.node].inputs, self.reads(piece), strict=True)
            found = tuple((name, patch_of(self.network.tensors[name], box)) for name, box in pairs)
            self._patches[piece] = found
        return found

    def weights(self, piece: NodePiece) -> int:
        """Bytes of a piece's constants."""
        found = self._weights.get(piece)
        if found is None:
            node = self.network.nodes[piece.node]
            found = piece_bytes(node, piece.box).weights
            if node.call is not None:
                found += self.network.host_constants.get(node.call.symbol, 0)
            self._weights[piece] = found
        return found

    def work(self) -> int:
        """The cycles of the jobs of the whole network."""
        return sum(self.cycles(NodePiece(number)) for number in range(len(self.network.nodes)))

    def least_work(self) -> int:
        """Cycles that the whole network takes at least, on one PE whose memory has no end. Raises `InvalidInput` for a
        network without any work."""
        found = sum(self._least(number) for number in range(len(self.network.nodes)))
        if not found:
            raise InvalidInput(f"{self.network.name}: a pipeline has work to do: it has none")
        return found

    def _least(self, number: int) -> int:
        """The cycles of a node, or where rows can be packed together, the fewest that this may leave."""
        layer, cycles = self.network.nodes[number].layer, self.cycles(NodePiece(number))
        if layer is None or not packs(layer, self.accelerator):
            return cycles
        return min(cycles, self.accelerator.job_setup + int(least_alone([layer], self.accelerator)))

    def _cycles_of(self, piece: NodePiece) -> int:
        node = self.network.nodes[piece.node]
        if node.layer is None:
            assert node.call is not None
            nbytes = sum(buffer.nbytes for buffer in node.call.arguments)
            return round(nbytes * HOST_CYCLES_PER_BYTE * self.accelerator.host_cycles_per_instruction)
        layer, box = node.layer, piece.box
        if self.accelerator.runs_whole(layer):
            return self.accelerator.cycles_of_whole(piece_layer(node, box))
        form = geometry(layer)
        if isinstance(form, Product):
            rows = form.items * form.rows if box.axis == "all" else box.stop - box.start
            return product_cycles(layer, form, rows, self.accelerator)
        if not isinstance(form, Window | Run):
            return 0
        return self._jobs(layer, _part(layer.ifm, self._read(piece)), _part(layer.ofm, box))

    def _read(self, piece: NodePiece) -> PieceBox:
        """What a piece reads of the first input that is no constant, or all."""
        return next(iter(self.reads(piece)), ALL)

    def _jobs(self, layer: Layer, ifm: Extents, ofm: Extents) -> int:
        """Cycles of the jobs: of a layer as it stands, with height and width swapped, or with all pixels in a row."""
        groups = layer.groups if isinstance(layer, Weighted) else 1
        ifm, ofm = ((height, width, channels // groups) for height, width, channels in (ifm, ofm))
        found = [job_cycles(layer, ifm, ofm, self.accelerator)]
        if is_pointwise(layer):
            found.append(job_cycles(layer, flat(ifm), flat(ofm), self.accelerator))
        form = geometry(layer)
        swaps = self.accelerator.tuning.swap and isinstance(layer, Weighted) and isinstance(form, Window)
        if swaps and len(parts_of_kernel(layer, self.accelerator)) == 1:
            assert isinstance(form, Window)
            kernel = form.columns.kernel, form.rows.kernel
            found.append(job_cycles(layer, _swapped(ifm), _swapped(ofm), self.accelerator, kernel))
        return groups * min(found)

    def granule(self, node: int, axis: str) -> int:
        """The fewest rows or channels of a piece for which its jobs have no idle rows or columns of the array; of what
        works channel by channel, nor the jobs of what makes its input."""
        if axis == "channels":
            return self._channel_granules[node]
        layer = self.network.nodes[node].layer
        if layer is None or self.accelerator.runs_whole(layer) or not is_pointwise(layer):
            return 1
        columns, form = self.accelerator.array_columns, form_of(layer.ofm)
        return min(form.rows, columns // gcd(columns, form.pixels))

    @cached_property
    def _channel_granules(self) -> list[int]:
        found: list[int] = []
        makers = self.network.makers
        for node in self.network.nodes:
            own = self._own_channels(node.layer)
            if node.layer is not None and not sums_channels(node.layer):
                own = lcm(own, *(found[makers[name]] for name in node.inputs if name in makers))
            found.append(own)
        return found

    def _own_channels(self, layer: Layer | None) -> int:
        """The channels that the array computes at a time."""
        if not isinstance(layer, Weighted) or self.accelerator.runs_whole(layer):
            return 1
        return self.accelerator.array_rows if sums_channels(layer) else self.accelerator.depthwise_rows


def _part(tensor: Tensor, box: PieceBox) -> Extents:
    form, count = form_of(tensor), box.stop - box.start
    rows = count if box.axis == "rows" else form.rows
    return rows, form.pixels, count if box.axis == "channels" else form.channels


def _swapped(whole: Extents) -> Extents:
    height, width, channels = whole
    return width, height, channels
