"""A lower bound on the cycles of plans of a region on a chip, with what goes from lane to lane: a linear program.

The bound of `prices.py` gives each layer to the arrays in the cheapest way, and nothing has to be copied between them.
Here each lane also has a part of the elements of each layer, of 0 to 1, and every rule holds for every plan:

- All lanes together compute each element of a layer. An array takes at least its cycles of a full group for as many
  elements as a group has, and all arrays take at least a mixture of the ways to share the layer.
- A job reads local memory of its own lane. So the lane has computed, or loaded from main memory, the inputs that its
  elements need: any outputs of a window need at least as many inputs as `least_inputs` says.
- What a lane loads of a layer without having computed it, another lane has computed and stored. Outputs of the region
  are stored by those that have computed them, and its inputs that some layer reads all of are loaded.
- The array and the DMA of a lane do all that is theirs one after the other; the DMA its weights, loads and stores.

It holds for any number of lanes and layers. Parts of elements may be any numbers, so that a lane may have a little of
everything: small regions are better bounded by the whole numbers of `sharing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from byoc_hw.graph import Graph
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.alone import copied_in_full
from byoc_hw.plan.bound.latency import has_jobs
from byoc_hw.plan.bound.seen import PARTS, least_inputs
from byoc_hw.plan.bound.ways import Floats, LayerWork, able
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_MOST = 64.0
"""No time of a plan that is looked at is longer, in parts of the least."""


def cycles_of_flows(
    graph: Graph,
    chip: Soc,
    works: Sequence[LayerWork],
    ways: Sequence[Floats],
    counted: Sequence[bool],
    idle: Floats,
    least: float,
) -> float:
    """Cycles that no plan of a region on a chip goes below, `least` where nothing more is known.

    `works` and `ways` are of each layer, all of which is done of those that are `counted`; `idle` are the cycles in
    which each array has nothing to do.
    """
    if chip.shared or any(one.library for one in chip.accelerators) or not least:
        return least
    return max(least, _Flows(graph, chip, works, ways, counted, idle / least, least).solved() * least)


@dataclass
class _Program:
    """A linear program: the least of the first variable under rows that are each at least a number. No variable is
    below 0, or above its `most`."""

    most: list[float] = field(default_factory=list)
    rows: list[tuple[dict[int, float], float]] = field(default_factory=list)

    def var(self, most: float) -> int:
        """A new variable."""
        self.most.append(most)
        return len(self.most) - 1

    def at_least(self, row: Mapping[int, float], least: float = 0.0) -> None:
        """A new row."""
        self.rows.append((dict(row), least))

    def solved(self) -> float:
        """A number that the first variable is never below: any prices of the rows prove one, and the solver's are the
        best ones but for its rounding."""
        # The module around this one takes a second to import, and `pywraplp` crashes beside TVM.
        from ortools.linear_solver.python import model_builder_helper as glop

        model, solver = glop.ModelBuilderHelper(), glop.ModelSolverHelper("glop")
        for most in self.most:
            at = model.add_var()
            model.set_var_lower_bound(at, 0.0)
            model.set_var_upper_bound(at, most)
        model.set_var_objective_coefficient(0, 1.0)
        for row, least in self.rows:
            number = model.add_linear_constraint()
            model.set_constraint_lower_bound(number, least)
            for at, factor in row.items():
                model.set_constraint_coefficient(number, at, factor)
        solver.solve(model)
        if solver.status() != glop.SolveStatus.OPTIMAL:
            return 0.0  # nothing is proved
        return self._proved([max(price, 0.0) for price in solver.dual_values()])

    def _proved(self, prices: Sequence[float]) -> float:
        """What some prices of the rows prove."""
        left = np.zeros(len(self.most))  # of a unit of each variable, what no row pays for
        left[0] = 1.0
        for (row, _), price in zip(self.rows, prices, strict=True):
            left[list(row)] -= price * np.array(list(row.values()))
        paid = sum(least * price for (_, least), price in zip(self.rows, prices, strict=True))
        return float(paid + np.minimum(left, 0) @ np.array(self.most))


class _Flows:
    """The program of a region. Times are in parts of the `least` cycles, amounts in parts of a tensor."""

    def __init__(
        self,
        graph: Graph,
        chip: Soc,
        works: Sequence[LayerWork],
        ways: Sequence[Floats],
        counted: Sequence[bool],
        idle: Floats,
        least: float,
    ) -> None:
        self._graph, self._chip, self._works, self._ways, self._least = graph, chip, works, ways, least
        self._lanes = range(len(chip.accelerators))
        self._program = _Program()
        self._end = self._program.var(_MOST)
        self._arrays: list[dict[int, float]] = [{self._end: 1.0} for _ in self._lanes]
        self._dmas: list[dict[int, float]] = [{self._end: 1.0} for _ in self._lanes]
        self._own: dict[Tensor, dict[int, int]] = {}
        self._loads: dict[Tensor, dict[int, int]] = {}
        self._stores: dict[Tensor, dict[int, int]] = {}
        for index in range(len(graph.layers)):
            self._layer(index, counted[index])
        for index, layer in enumerate(graph.layers):
            if layer.ofm in self._own:
                self._reads(index)
        self._ends()
        for lane in self._lanes:
            self._program.at_least(self._arrays[lane], float(idle[lane]))
            self._program.at_least(self._dmas[lane])

    def solved(self) -> float:
        """The bound, in parts of the least."""
        return self._program.solved()

    def _layer(self, index: int, counted: bool) -> None:
        """The work of a layer: a mixture of the ways to share it, and what each lane has of its elements."""
        program, layer, ways = self._program, self._graph.layers[index], self._ways[index] / self._least
        if not ways.any():
            return
        mixture = [program.var(1.0) for _ in ways]
        program.at_least(dict.fromkeys(mixture, 1.0), 1.0)
        runs = [lane for lane in self._lanes if self._chip.accelerators[lane] in able(self._chip, layer)]
        whole = any(self._chip.accelerators[lane].runs_whole(layer) for lane in runs)
        if counted and has_jobs(layer) and not whole:
            self._own[layer.ofm] = {lane: program.var(1.0) for lane in runs}
            program.at_least(dict.fromkeys(self._own[layer.ofm].values(), 1.0), 1.0)
        for lane in self._lanes:
            cycles = program.var(_MOST)
            self._arrays[lane][cycles] = -1.0
            factors = zip(mixture, ways[:, lane], strict=True)
            program.at_least({cycles: 1.0} | {at: -float(each) for at, each in factors if each})
            if lane in self._own.get(layer.ofm, {}):
                all_of_it = self._works[index].least_of_element(lane) * layer.ofm.elements / self._least
                program.at_least({cycles: 1.0, self._own[layer.ofm][lane]: -all_of_it})
            for at, each in zip(mixture, ways[:, len(self._lanes) + lane], strict=True):
                self._dmas[lane][at] = -float(each)

    def _reads(self, index: int) -> None:
        """What a lane's elements of a layer need, it has computed or loaded."""
        layer = self._graph.layers[index]
        for tensor in dict.fromkeys(layer.inputs):
            by_pixel, parts = least_inputs(layer, tensor)
            known = tensor in self._own or tensor in self._graph.inputs
            if tensor.data is not None or not parts or not known:
                continue
            each = extents(layer.ofm)[2] if by_pixel else 1
            share = min(parts * layer.ofm.elements / (PARTS * each * tensor.elements), 1.0)
            for lane, elements in self._own[layer.ofm].items():
                row = {self._copied(self._loads, tensor, lane): 1.0, elements: -share}
                if lane in self._own.get(tensor, {}):
                    row[self._own[tensor][lane]] = 1.0
                self._program.at_least(row)

    def _copied(self, copies: dict[Tensor, dict[int, int]], tensor: Tensor, lane: int) -> int:
        """The part of a tensor that a lane's DMA loads, or stores."""
        by_lane = copies.setdefault(tensor, {})
        if lane not in by_lane:
            by_lane[lane] = self._program.var(1.0)
            width = self._chip.accelerators[lane].dma_width
            self._dmas[lane][by_lane[lane]] = -tensor.nbytes / width / self._least
        return by_lane[lane]

    def _ends(self) -> None:
        """What is loaded was stored by another lane, and inputs and outputs of the region are copied."""
        program = self._program
        inputs, outputs = copied_in_full(self._graph)
        for tensor in dict.fromkeys(inputs):
            program.at_least({self._copied(self._loads, tensor, lane): 1.0 for lane in self._lanes}, 1.0)
        for tensor in dict.fromkeys(outputs):
            able_to = self._own.get(tensor, self._lanes)
            program.at_least({self._copied(self._stores, tensor, lane): 1.0 for lane in able_to}, 1.0)
        for tensor, own in self._own.items():
            for lane, loaded in self._loads.get(tensor, {}).items():
                others = [self._copied(self._stores, tensor, other) for other in own if other != lane]
                program.at_least({loaded: -1.0} | dict.fromkeys(others, 1.0))
            for lane, stored in self._stores.get(tensor, {}).items():
                program.at_least({own[lane]: 1.0, stored: -1.0})
