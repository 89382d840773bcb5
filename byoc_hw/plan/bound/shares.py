"""The variables of the ways to share a small region on several accelerators, which all rules are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.bound.latency import Latencies, copies_of, least_job
from byoc_hw.plan.bound.seen import PARTS
from byoc_hw.plan.bound.ways import able
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Var = cp_model.IntVar
    Expr = cp_model.LinearExpr


@dataclass(frozen=True)
class Share:
    """What each lane does of a layer, as variables.

    Elements that it computes and uses, whether there are any, pixels and channels among them; cycles of its array for
    these, and for those that it is the first to compute: there are none if it is not `busy`; and the cycle at which its
    first job begins. `begin` is the cycle of the first job of any lane, `complete` that at which each element was
    computed once. A layer with groups has so many `groups` on a lane. Each of them computes elements, of so many
    pixels, that the lane uses: `grouped` and `grouped_pixels` at least.
    """

    elements: Sequence[Var]
    any: Sequence[Var]
    pixels: Sequence[Var]
    channels: Sequence[Var]
    cycles: Sequence[Var]
    first: Sequence[Var]
    busy: Mapping[int, Var]
    starts: Sequence[Var]
    begin: Var
    complete: Var
    groups: Sequence[Var]
    grouped: Sequence[Var]
    grouped_pixels: Sequence[Var]


class Shares:
    """The shares of a region's layers, by index, as variables of a program, and what lanes load of tensors.

    No time is above `most`; `end` is that of the region. `made` has the layers by what they make. `filled` says whether
    a lane's DMA fills the room between rows of a tensor, and `loaded` has, by lane, how many elements of a tensor are
    copied from main memory, and whether there are any; `in_one` whether all of them come in one copy. `last_jobs` has,
    by lane, the cycles behind its last job, and whether this is one of a layer. `at_first` are elements of a tensor
    that the first job of a layer on a lane reads, and `parts_at_first` those of them that each lane has made, and
    whether there are any.
    """

    def __init__(self, graph: Graph, chip: Soc, times: Latencies, least: int) -> None:
        from ortools.sat.python import cp_model

        self.graph, self.chip, self.times, self.least = graph, chip, times, least
        self.lanes = range(len(chip.accelerators))
        self.model = cp_model.CpModel()
        self.most = 64 * least + (1 << 20)
        self.end = self.model.new_int_var(least, self.most, "end")
        self.copies = copies_of(chip)
        self.made = graph.made
        self.of_layer: dict[int, Share] = {}
        self.filled: dict[tuple[Tensor, int], Var] = {}
        self.loaded: dict[Tensor, Sequence[tuple[Var, Var]]] = {}
        self.in_one: dict[Tensor, Sequence[Var]] = {}
        self.last_jobs: dict[int, tuple[Var, Mapping[int, Var]]] = {}
        self.at_first: dict[tuple[int, int, Tensor], Var] = {}
        self.parts_at_first: dict[tuple[int, int, Tensor], Sequence[tuple[Var, Var]]] = {}

    def var(self, most: int | None = None) -> Var:
        """A number from 0 to `most`: a time without it."""
        return self.model.new_int_var(0, self.most if most is None else most, "")

    def fill(self, layer: Layer, lane: int) -> Var:
        """Whether the lane's DMA fills the room between rows of a layer's input."""
        key = layer.inputs[0], lane
        if key not in self.filled:
            self.filled[key] = self.model.new_bool_var("")
        return self.filled[key]

    def others(self, lane: int) -> list[int]:
        """The other lanes."""
        return [one for one in self.lanes if one != lane]

    def handed(self, makers: Sequence[int], lane: int) -> int:
        """The least cycles of a copy out of one of some lanes, and one into another."""
        return self.copies[lane] + min(self.copies[maker] for maker in makers)

    def job(self, index: int, lane: int) -> float:
        """The least cycles of a job of a layer."""
        one, layer = self.chip.accelerators[lane], self.graph.layers[index]
        return least_job(layer, one, self.chip) if one in able(self.chip, layer) else 0.0

    def jobs(self, index: int) -> list[float]:
        """The same on each lane that can run it."""
        return [self.job(index, lane) for lane in self.lanes if self.job(index, lane)] or [0.0]


def times(count: int, what: Var) -> Expr | int:
    """A variable so many times. None of it is a plain 0: to a constant expression, sums cannot be added."""
    return count * what if count else 0


def parts_of_bytes(tensor: Tensor) -> int:
    """The bytes of an element, in parts."""
    return tensor.nbytes * PARTS // tensor.elements
