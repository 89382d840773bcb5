"""A lower bound on the cycles of plans of a small region on two accelerators: of all ways to share it, the best.

The bound of `prices.py` may mix ways to share a layer, and where it does, nothing has to be copied from one lane to the
other. Here each lane has its share of each layer, in whole numbers, and what follows from the shares is an integer
program. CP-SAT proves that no shares take fewer cycles than so many; every rule of the program holds for every plan:

- What a plan computes and never uses is left out. Of the elements of a layer each lane computes some; together they
  compute all, in the groups of `ways.py`, of which there are whole numbers.
- A job reads local memory of its own lane. So what an element needs of a layer before was computed on that lane, or
  stored by the other one and loaded. Any set of outputs of a window needs at least as many inputs as if each output
  had an equal part of what it sees to itself, and no input more than one owner (Hall's theorem, for rows and for
  columns). Of a layer that sums over all channels, a pixel needs all channels of its inputs.
- Of such a layer, a pixel that one lane computes nothing of has all of its channels on the other one. So either a
  lane has something of every pixel, or the other one has something of every channel, and its weights.
- Each lane with a share of a layer begins after something of what it reads is there, in whole where its first job
  needs the whole, by a copy out and a copy in where it computed nothing of that itself.
- Before a lane's first job of a layer, its DMA has copied weights of it, and something of the region's inputs or of
  what the other lane made; and where that job reads what the lane made itself, all that came before its first job of
  that layer, too.
- Of the outputs that a lane has of a layer, each group has at least those that are too many for all its other groups.
  What these need is there before the lane's first job of the layer; where it is a whole tensor, that is complete.
- An array has nothing to do before its first job.
- Two equal lanes can be exchanged: the first one has the larger share of the first layer.
- A layer is complete when each of its elements was computed once. The outputs that see its last element come after
  that: all groups of them, but for sums that are added up in slices or in parts of the kernel. These are known to be
  whole where the layer fits into local memory at once: the planner cuts no others. Where all of them are on a lane
  that computes nothing of the element's layer, a copy out and a copy in lie between.
- Between the first job of a layer and the time at which another one is complete, each array does its share of all
  layers between them, which begin after the one and are needed in full for the other.
- Each DMA copies the shares of weights, inputs and outputs, and what goes to the other lane. Copies of what is
  computed come after the first job that may compute any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.plan.array.kinds import Run, Window, geometry, rows_at_a_time
from byoc_hw.plan.array.window import Axis, Extents, extents
from byoc_hw.plan.bound.latency import Latencies, copies_of, has_jobs, least_job, reads_all
from byoc_hw.plan.bound.needs import Need, needed_before, whole_sums
from byoc_hw.plan.bound.ways import Ints, LayerWork, able, packs, weight_bytes
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Var = cp_model.IntVar
    Expr = cp_model.LinearExpr

MOST_LAYERS = 8
"""The most layers of a region with such a bound: for larger ones the solver proves nothing in so little time."""

_WORK = 0.2
"""The solver's deterministic time, of which one is about a second."""

_PARTS = 1024
"""Fractions of the program are so many-th parts."""

_LANES = (0, 1)


def cycles_of_sharing(
    graph: Graph, chip: Soc, works: Sequence[LayerWork], counted: Sequence[bool], times: Latencies, least: int
) -> int:
    """Cycles that no plan of a region on a chip goes below, at least `least`: that many where nothing more is known.

    `works` has the work of each layer, all of which is done of those that are `counted`; `times` are the latencies.
    """
    if len(chip.accelerators) != len(_LANES) or chip.shared or any(one.library for one in chip.accelerators):
        return least
    if len(graph.layers) > MOST_LAYERS:
        return least
    shared = [
        index
        for index, layer in enumerate(graph.layers)
        if counted[index] and has_jobs(layer) and not any(one.runs_whole(layer) for one in able(chip, layer))
    ]
    return _Program(graph, chip, works, shared, times, least).solved() if shared else least


@dataclass(frozen=True)
class _Share:
    """What each lane does of a layer, as variables.

    Elements that it computes and uses, whether there are any, pixels and channels among them; cycles of its array for
    these, and for those that it is the first to compute; and the cycle at which its first job begins. `begin` is the
    cycle of the first job of any lane, `complete` that at which each element was computed once. Each group of a layer
    that has groups computes elements, of so many pixels, that the lane uses: `grouped` and `grouped_pixels` at least.
    """

    elements: Sequence[Var]
    any: Sequence[Var]
    pixels: Sequence[Var]
    channels: Sequence[Var]
    cycles: Sequence[Var]
    first: Sequence[Var]
    starts: Sequence[Var]
    begin: Var
    complete: Var
    grouped: Sequence[Var]
    grouped_pixels: Sequence[Var]


class _Program:
    def __init__(
        self,
        graph: Graph,
        chip: Soc,
        works: Sequence[LayerWork],
        shared: Sequence[int],
        times: Latencies,
        least: int,
    ) -> None:
        from ortools.sat.python import cp_model

        self._graph, self._chip, self._works, self._times, self._least = graph, chip, works, times, least
        self._model = cp_model.CpModel()
        self._copies = copies_of(chip)
        self._most = 64 * least + (1 << 20)
        self._end = self._model.new_int_var(least, self._most, "end")
        self._made = {layer.ofm: index for index, layer in enumerate(graph.layers)}
        plain = replace(chip, accelerators=tuple(replace(one, packed_rows=False) for one in chip.accelerators))
        self._plain = [LayerWork(layer, plain) for layer in graph.layers]
        self._filled: dict[tuple[Tensor, int], Var] = {}
        self._shares = {index: self._share(index, graph.layers[index]) for index in shared}
        self._before_jobs = {index: [self._var(self._most) for _ in _LANES] for index in shared}
        """By layer and lane: cycles of the copies that the lane's DMA does before its first job of the layer."""
        self._at_first: dict[tuple[int, int, Tensor], Var] = {}  # of a layer, on a lane: elements read by its first job
        self._loaded: dict[Tensor, Sequence[tuple[Var, Var]]] = {}  # by lane: elements, and whether there are any
        if len({replace(one, name="any", label="any") for one in chip.accelerators}) == 1:
            elements = self._shares[shared[0]].elements
            self._model.add(elements[0] >= elements[1])  # of a plan and that with the lanes exchanged
        self._after = self._needs()
        self._complete()
        self._arrays()
        self._dmas()

    def solved(self) -> int:
        """The cycles that the solver proves to be needed."""
        from ortools.sat.python import cp_model

        self._model.minimize(self._end)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = _WORK
        solver.parameters.use_objective_lb_search = True
        status = solver.status_name(solver.solve(self._model))
        assert status in ("OPTIMAL", "FEASIBLE", "UNKNOWN"), f"the program has a solution: {status}"
        return self._least if status == "UNKNOWN" else max(self._least, round(solver.best_objective_bound))

    # ------------------------------------------------------------ shares

    def _var(self, most: int) -> Var:
        return self._model.new_int_var(0, most, "")

    def _share(self, index: int, layer: Layer) -> _Share:
        model, (height, width, channels) = self._model, extents(layer.ofm)
        elements, cycles, first, starts = ([self._var(self._most) for _ in _LANES] for _ in range(4))
        any_of = [model.new_bool_var("") for _ in _LANES]
        pixels = [self._var(height * width) for _ in _LANES]
        depth = [self._var(channels) for _ in _LANES]
        begin, complete = self._var(self._most), self._var(self._most)
        grouped = [self._var(height * width * channels) for _ in _LANES]
        grouped_pixels = [self._var(height * width) for _ in _LANES]
        lanes = [lane for lane in _LANES if self._chip.accelerators[lane] in able(self._chip, layer)]
        for lane in _LANES:
            if lane not in lanes:
                model.add(any_of[lane] == 0)
            model.add(elements[lane] >= any_of[lane])
            model.add(elements[lane] == 0).only_enforce_if(~any_of[lane])
            model.add(elements[lane] <= pixels[lane] * channels)
            model.add(elements[lane] <= depth[lane] * (height * width))
            model.add(starts[lane] >= int(self._times.before[index].get(lane, 0)))
        which = model.new_bool_var("")  # the lane that begins
        model.add(begin >= starts[0]).only_enforce_if(~which)
        model.add(begin >= starts[1]).only_enforce_if(which)
        model.add_implication(~which, any_of[0])
        model.add_implication(which, any_of[1])
        for one, other in ((0, 1), (1, 0)):  # something of every pixel, or the other one something of every channel
            every = model.new_bool_var("")
            model.add(pixels[one] == height * width).only_enforce_if(every)
            model.add(depth[other] == channels).only_enforce_if(~every)
        share = _Share(elements, any_of, pixels, depth, cycles, first, starts, begin, complete, grouped, grouped_pixels)
        self._work(index, lanes, share)
        return share

    def _work(self, index: int, lanes: Sequence[int], share: _Share) -> None:
        """Cycles of the arrays for the elements of a layer: in whole groups, or by the element."""
        model, work, layer = self._model, self._works[index], self._graph.layers[index]
        total = prod(work.extents)
        done = {lane: self._var(total) for lane in lanes}  # of which the lane is the first to compute them
        model.add(sum(done.values()) >= total)
        for lane in lanes:
            setup = self._chip.accelerators[lane].job_setup
            model.add(done[lane] <= share.elements[lane])
            busy = model.new_bool_var("")
            model.add(done[lane] == 0).only_enforce_if(~busy)
            model.add(share.complete >= share.starts[lane] + share.first[lane]).only_enforce_if(busy)
            model.add(share.cycles[lane] >= share.first[lane] + setup * share.any[lane])
            model.add(share.cycles[lane] >= int(self._job(index, lane)) * share.any[lane])
        for at, rate in enumerate(work.rates if not work.covers else ()):
            some, setup = lanes[at], self._chip.accelerators[lanes[at]].job_setup
            rate_parts = int(rate * _PARTS)
            model.add(_PARTS * share.first[some] >= rate_parts * done[some])
            model.add(
                _PARTS * share.cycles[some] >= rate_parts * share.elements[some] + _PARTS * setup * share.any[some]
            )
        ways = [(self._plain[index].covers, False)] if work.covers else []
        if any(packs(layer, one) for one in self._chip.accelerators):
            ways.append((work.covers, True))
        chosen = [(cover, packed, model.new_bool_var("")) for covers, packed in ways for cover in covers]
        if chosen:
            model.add_exactly_one(way for _, _, way in chosen)
        for cover, packed, way in chosen:
            groups = {lane: self._var(total) for lane in lanes}
            for each, least in zip(cover.each, cover.least, strict=True):
                model.add(sum(int(one) * groups[lane] for one, lane in zip(each, lanes, strict=True)) >= int(least))
            for at, lane in enumerate(lanes):
                every, setup = self._var(total), self._chip.accelerators[lane].job_setup
                outputs, cycles = int(cover.outputs[at]), int(cover.cycles[at])
                model.add(groups[lane] * outputs >= done[lane]).only_enforce_if(way)
                model.add(every * outputs >= share.elements[lane]).only_enforce_if(way)
                model.add(share.first[lane] >= cycles * groups[lane]).only_enforce_if(way)
                model.add(share.cycles[lane] >= cycles * every + setup * share.any[lane]).only_enforce_if(way)
                others = every * outputs - outputs  # elements of all groups but one, at most
                model.add(share.grouped[lane] >= share.elements[lane] - others).only_enforce_if(way, share.any[lane])
                model.add(share.grouped_pixels[lane] * int(cover.channels[at]) >= share.grouped[lane]).only_enforce_if(
                    way
                )
                if isinstance(layer, Weighted):
                    model.add(every * int(cover.channels[at]) >= share.channels[lane]).only_enforce_if(way)
                if packed and _padded(layer):
                    fewer, filled = self._least_outputs(index, at), self._fill(layer, lane)
                    model.add(groups[lane] * fewer >= done[lane]).only_enforce_if(way, ~filled)
                    model.add(every * fewer >= share.elements[lane]).only_enforce_if(way, ~filled)

    def _least_outputs(self, index: int, place: int) -> int:
        """The most outputs of a group whose rows are not packed."""
        return max(int(cover.outputs[place]) for cover in self._plain[index].covers)

    def _fill(self, layer: Layer, lane: int) -> Var:
        """Whether the lane's DMA fills the room between rows of a layer's input."""
        key = layer.inputs[0], lane
        if key not in self._filled:
            self._filled[key] = self._model.new_bool_var("")
        return self._filled[key]

    def _job(self, index: int, lane: int) -> float:
        """The least cycles of a job of a layer."""
        one, layer = self._chip.accelerators[lane], self._graph.layers[index]
        return least_job(layer, one, self._chip) if one in able(self._chip, layer) else 0.0

    # ------------------------------------------------------------ what is needed

    def _needs(self) -> dict[int, set[int]]:
        """Rules for what layers read; and the layers that begin after the first job of each."""
        after: dict[int, set[int]] = {index: {index} for index in self._shares}
        for index, share in self._shares.items():
            layer = self._graph.layers[index]
            for tensor in dict.fromkeys(layer.inputs):
                if tensor.data is None:
                    self._reads(index, share, tensor)
                    for lane in _LANES:
                        self._reads_at_once(index, lane, tensor)
            needed = needed_before(self._graph, index, self._chip, whole=False)
            for tensor, (reader, need) in needed.items():
                made = self._made.get(tensor)
                if made in self._shares:
                    after[made].add(index)
                    self._begins(share, made, need, direct=reader == index)
        return after

    def _reads(self, index: int, share: _Share, tensor: Tensor) -> None:
        """What a lane reads of a tensor for its share of a layer, it has computed or loads."""
        made = self._shares.get(self._made.get(tensor, -1))
        if made is None and tensor not in self._graph.inputs:
            return
        if tensor not in self._loaded:
            self._loaded[tensor] = [(self._var(tensor.elements), self._model.new_bool_var("")) for _ in _LANES]
            for lane, (elements, some) in enumerate(self._loaded[tensor]):
                self._model.add(elements <= tensor.elements * some)
                if made is not None:  # stored by the other one
                    self._model.add(elements <= made.elements[1 - lane])
        by_pixel, parts = _least_inputs(self._graph.layers[index], tensor)
        for lane, (elements, _) in enumerate(self._loaded[tensor]):
            there = elements if made is None else elements + made.elements[lane]
            self._model.add(there >= share.any[lane])
            amount = share.pixels[lane] if by_pixel else share.elements[lane]
            self._model.add(_PARTS * there >= parts * amount)

    def _reads_at_once(self, index: int, lane: int, tensor: Tensor) -> None:
        """What a group of a layer reads is there before the lane's first job of it, which has a group at least."""
        layer, share, one = self._graph.layers[index], self._shares[index], self._chip.accelerators[lane]
        if not isinstance(layer, Weighted) or not self._works[index].covers or not whole_sums(layer, one, self._chip):
            return
        model, read = self._model, self._var(tensor.elements)
        by_pixel, parts = _least_inputs(layer, tensor)
        model.add(_PARTS * read >= parts * (share.grouped_pixels if by_pixel else share.grouped)[lane])
        self._at_first[index, lane, tensor] = read
        if (source := self._made.get(tensor, -1)) not in self._shares:
            return
        made, every = self._shares[source], model.new_bool_var("")
        parts_of: list[Var] = []
        model.add(read < tensor.elements).only_enforce_if(~every)
        model.add(share.starts[lane] >= made.complete).only_enforce_if(every, share.any[lane])
        far = made.complete + sum(self._copies)
        model.add(share.starts[lane] >= far).only_enforce_if(every, share.any[lane], ~made.any[lane])
        for maker in _LANES:
            part, some, cycles = self._var(tensor.elements), model.new_bool_var(""), self._var(self._most)
            model.add(part <= made.elements[maker])
            model.add(part == 0).only_enforce_if(~some)
            self._time_of(source, maker, part, cycles)
            copied = 0 if maker == lane else sum(self._copies)
            there = made.starts[maker] + cycles + copied
            model.add(share.starts[lane] >= there).only_enforce_if(some, share.any[lane])
            parts_of.append(part)
        model.add(sum(parts_of) >= read).only_enforce_if(share.any[lane])

    def _begins(self, share: _Share, index: int, need: Need, *, direct: bool) -> None:
        """No job of a layer begins before what any of them needs of an earlier one."""
        model, made, one = self._model, self._shares[index], self._works[index].ways(need.least)
        for lane in _LANES:
            other = 1 - lane
            copied = sum(self._copies) if direct else 0
            if need.all:
                model.add(share.starts[lane] >= made.complete)
                model.add(share.starts[lane] >= made.complete + copied).only_enforce_if(~made.any[lane])
            # All of it by one lane alone.
            for which, extra in ((lane, 0), (other, copied)):
                alone = one[one[:, 1 - which] == 0][:, which]
                if alone.size:
                    model.add(share.starts[lane] >= made.starts[which] + int(alone.min()) + extra).only_enforce_if(
                        ~made.any[1 - which]
                    )
            model.add(share.starts[lane] >= made.begin + int(min(self._jobs_of(index))))

    def _jobs_of(self, index: int) -> list[float]:
        return [self._job(index, lane) for lane in _LANES if self._job(index, lane)] or [0.0]

    # ------------------------------------------------------------ when layers are complete

    def _complete(self) -> None:
        """The outputs that see the last element of a layer come after it."""
        for index, share in self._shares.items():
            layer = self._graph.layers[index]
            if not reads_all(layer):
                continue
            for tensor in dict.fromkeys(layer.inputs):
                direct = self._made.get(tensor) in self._shares
                for source in self._sources(tensor):
                    self._follows(index, share, self._shares[source], tensor, direct)
                if direct:
                    self._follows_copies(index, share, self._made[tensor])

    def _sources(self, tensor: Tensor) -> set[int]:
        """The layers that are complete when all of a tensor is there."""
        index = self._made.get(tensor)
        if index is None:
            return set()
        if index in self._shares:
            return {index}
        layer = self._graph.layers[index]
        if has_jobs(layer) or not reads_all(layer):
            return set()
        return {source for one in layer.inputs for source in self._sources(one)}

    def _follows(self, index: int, share: _Share, made: _Share, tensor: Tensor, direct: bool) -> None:
        ways = self._works[index].ways(_sees_one(self._graph.layers[index], tensor))
        parts = np.array([self._part_behind(index, one) for one in self._chip.accelerators])
        for readers in (0b01, 0b10, 0b11):
            possible = ways[[all(readers >> lane & 1 or not way[lane] for lane in _LANES) for way in ways]]
            if not len(possible):
                continue
            for makers in (0b01, 0b10, 0b11) if direct else (0b11,):
                far = np.array([0 if makers >> lane & 1 else sum(self._copies) for lane in _LANES])
                behind = ((possible > 0) * far + possible * parts).max(axis=1).min()
                if readers == 0b11 and not (possible > 0).all(axis=1).any() and possible.max() > self._group(index):
                    behind = 0.0  # any mixture of these ways
                literals = [
                    one if which >> lane & 1 else ~one
                    for which, some in ((readers, share.any), (makers, made.any))[: 1 + direct]
                    for lane, one in enumerate(some)
                ]
                self._model.add(share.complete >= made.complete + int(behind)).only_enforce_if(literals)

    def _follows_copies(self, index: int, share: _Share, source: int) -> None:
        """What only one lane computes of a layer, it computes after copies of what it needs and only the other made."""
        model, made, layer = self._model, self._shares[source], self._graph.layers[index]
        tensor = self._graph.layers[source].ofm
        total = prod(extents(layer.ofm))
        pixels, parts = _least_inputs(layer, tensor)
        parts = parts // extents(layer.ofm)[2] if pixels else parts
        for lane in _LANES:
            other = 1 - lane
            copied, some = self._var(tensor.elements), model.new_bool_var("")
            model.add(_PARTS * (copied + made.elements[lane]) >= parts * (total - share.elements[other]))
            model.add(copied == 0).only_enforce_if(~some)
            cycles = self._var(self._most)
            self._time_of(source, other, copied, cycles)
            one = self._works[index].ways((1, 1, 1))[:, lane]
            job = int(one[one > 0].min() * self._part_behind(index, self._chip.accelerators[lane])) if one.any() else 0
            model.add(share.complete >= made.starts[other] + cycles + sum(self._copies) + job).only_enforce_if(some)

    def _time_of(self, index: int, lane: int, elements: Var, cycles: Var) -> None:
        """At least so many cycles of the array for so many elements of a layer, which are there in whole groups."""
        work, model = self._works[index], self._model
        at = [one for one in _LANES if self._chip.accelerators[one] in able(self._chip, self._graph.layers[index])]
        if lane not in at:
            return
        place = at.index(lane)
        if not work.covers:
            model.add(_PARTS * cycles >= int(work.rates[place] * _PARTS) * elements)
            return
        groups = self._var(prod(work.extents))
        model.add(groups * max(int(cover.outputs[place]) for cover in work.covers) >= elements)
        model.add(cycles >= min(int(cover.cycles[place]) for cover in work.covers) * groups)

    def _group(self, index: int) -> float:
        """The least cycles of a group of a layer on any of the arrays; 0 of one without groups."""
        return min((cycles for cover in self._works[index].covers for cycles in cover.cycles), default=0.0)

    def _part_behind(self, index: int, one: Accelerator) -> float:
        """The part of a group's cycles that is behind the last element that it sees."""
        layer = self._graph.layers[index]
        if one not in able(self._chip, layer) or not isinstance(layer, Weighted) or whole_sums(layer, one, self._chip):
            return 1.0
        return 0.0

    # ------------------------------------------------------------ engines

    def _arrays(self) -> None:
        """The arrays do the work of all layers that lie between two others."""
        model, complete = self._model, {index: self._before_complete(index) for index in self._shares}
        for first, share in self._shares.items():
            behind = [min(self._times.behind[index].values(), default=0.0) for index in self._after[first]]
            for lane in _LANES:
                everything = [self._shares[index].cycles[lane] for index in self._after[first]]
                model.add(self._end >= share.begin + sum(everything) + int(min(behind)))
            for last, before in complete.items():
                between = sorted(before & self._after[first])
                if len(between) > 1:
                    for lane in _LANES:
                        work = sum(self._shares[index].first[lane] for index in between)
                        model.add(self._shares[last].complete >= share.begin + work)
        for lane in _LANES:
            times = [self._times.before[index].get(lane, self._most) for index in self._shares]
            behind = [self._times.behind[index].get(lane, self._most) for index in self._shares]
            some = model.new_bool_var("")
            work = sum(share.cycles[lane] for share in self._shares.values())
            model.add(self._end >= work + int(min(times)) + int(min(behind))).only_enforce_if(some)
            model.add(work == 0).only_enforce_if(~some)
            begins = {index: model.new_bool_var("") for index in self._shares}  # the lane's first job is of this layer
            model.add_exactly_one(~some, *begins.values())
            for index, begun in begins.items():
                model.add_implication(begun, self._shares[index].any[lane])
                start = self._shares[index].starts[lane]
                model.add(self._end >= start + work + int(min(behind))).only_enforce_if(begun)
        for index, share in self._shares.items():
            least = int(min(self._times.behind[index].values(), default=0.0))
            model.add(self._end >= share.complete + least)

    def _before_complete(self, index: int) -> set[int]:
        """The layers that are complete when one is."""
        found, waiting = {index}, [index]
        while waiting:
            layer = self._graph.layers[waiting.pop()]
            if reads_all(layer):
                new = {source for tensor in layer.inputs for source in self._sources(tensor)} - found
                found |= new
                waiting += new
        return found

    def _dmas(self) -> None:
        """Each DMA does its copies, and those of what is computed after the first job that it may come of."""
        model = self._model
        # By lane: a layer that they follow or -1, and their cycles.
        loads: list[list[tuple[int, Expr | int]]] = [[], []]
        stores: list[list[tuple[int, Expr]]] = [[], []]
        for index, share in self._shares.items():
            layer = self._graph.layers[index]
            nbytes = weight_bytes(layer)
            each = int(nbytes * _PARTS / extents(layer.ofm)[2])
            for lane in _LANES:
                copied = self._copied(lane, share.any[lane], share.channels[lane], each) if nbytes else 0
                loads[lane].append((-1, copied))
                self._loaded_first(index, lane, copied)
            stored = [self._var(prod(extents(layer.ofm))) for _ in _LANES]
            some = [model.new_bool_var("") for _ in _LANES]
            read = layer.ofm in self._loaded
            each = layer.ofm.nbytes * _PARTS // layer.ofm.elements
            for lane in _LANES:
                model.add(stored[lane] <= share.elements[lane])
                model.add(stored[lane] <= layer.ofm.elements * some[lane])
                if read:
                    model.add(stored[lane] >= self._loaded[layer.ofm][1 - lane][0])
                stores[lane].append((index, self._copied(lane, some[lane], stored[lane], each)))
            if layer.ofm in self._graph.outputs:
                model.add(sum(stored) >= layer.ofm.elements)
        for tensor, by_lane in self._loaded.items():
            each = tensor.nbytes * _PARTS // tensor.elements
            for lane, (elements, some_of) in enumerate(by_lane):
                loads[lane].append((self._made.get(tensor, -1), self._copied(lane, some_of, elements, each)))
        for (_, lane), filled in self._filled.items():
            loads[lane].append((-1, self._copied(lane, filled, filled, _PARTS)))
        for lane in _LANES:
            width = self._chip.accelerators[lane].dma_width
            unit = _PARTS * width
            everything = [cycles for _, cycles in (*loads[lane], *stores[lane])]
            model.add(unit * self._end >= sum(everything))
            jobs = [self._job(index, lane) for index in self._shares]
            behind = [self._times.behind[index].get(lane, self._most) for index in self._shares]
            last = min(int(job + left) for job, left in zip(jobs, behind, strict=True))
            any_load = model.new_bool_var("")
            loaded = sum(cycles for _, cycles in loads[lane])
            model.add(unit * self._end >= loaded + unit * last).only_enforce_if(any_load)
            model.add(loaded == 0).only_enforce_if(~any_load)
            for first, share in self._shares.items():
                late = [cycles for index, cycles in (*loads[lane], *stores[lane]) if index in self._after[first]]
                job = int(min(self._jobs_of(first)))
                model.add(unit * self._end >= unit * (share.begin + job) + sum(late))

    def _loaded_first(self, index: int, lane: int, weights: Expr | int) -> None:
        """The copies of a lane that come before its first job of a layer.

        Weights do, or some of them, and something of each of the region's inputs that it reads. Of another input
        something is loaded, or made by a job of the lane, for which there were copies, too.
        """
        layer, share, before = self._graph.layers[index], self._shares[index], self._before_jobs[index][lane]
        model, unit = self._model, _PARTS * self._chip.accelerators[lane].dma_width
        copy = int(self._copies[lane])
        first: Expr | int = 0
        if isinstance(layer, Weighted):
            first = weights if self._at_once(layer, lane) else unit * copy * share.any[lane]
            if self._at_once(layer, lane) and (filled := self._filled.get((layer.ifm, lane))) is not None:
                first = first + self._copied(lane, filled, filled, _PARTS)
        model.add(share.starts[lane] >= before)
        model.add(unit * before >= first)
        needed = needed_before(self._graph, index, self._chip, whole=False)
        read = [tensor for tensor, (reader, _) in needed.items() if reader == index]
        inputs = sum(tensor not in self._made for tensor in read)
        model.add(unit * before >= first + unit * inputs * copy * share.any[lane])
        for tensor in read:
            if tensor not in self._made and (index, lane, tensor) in self._at_first:
                some, each = share.any[lane], tensor.nbytes * _PARTS // tensor.elements
                loaded = self._copied(lane, some, self._at_first[index, lane, tensor], each)
                model.add(unit * before >= first + loaded).only_enforce_if(some)
        for source in (self._made[tensor] for tensor in read if self._made.get(tensor, -1) in self._shares):
            made = self._shares[source]
            local = model.new_bool_var("")  # something that the first job reads is the lane's own
            model.add_implication(local, made.any[lane])
            model.add(unit * before >= first + unit * self._before_jobs[source][lane]).only_enforce_if(local)
            model.add(unit * before >= first + unit * copy).only_enforce_if(~local)
            job = int(self._job(source, 1 - lane)) + sum(self._copies)
            model.add(share.starts[lane] >= made.starts[1 - lane] + job).only_enforce_if(~local)

    def _at_once(self, layer: Weighted, lane: int) -> bool:
        """Whether all weights of a lane's share of a layer are copied before its first job.

        The planner cuts weights into blocks of as many channels as a group has, or more: of no more channels there is
        one block, where these are not in slices, as a lane has one part of a layer at most.
        """
        one = self._chip.accelerators[lane]
        few = layer.out_channels <= min(one.array_rows, rows_at_a_time(layer, one))
        return few and one.dma_alignment == 1 and whole_sums(layer, one, self._chip)

    def _copied(self, lane: int, some: Var, amount: Var, each: int) -> Expr:
        """Cycles of a DMA that copies so many things, if any, of so many parts of a byte: times its width and parts."""
        one = self._chip.accelerators[lane]
        return one.dma_setup * one.dma_width * _PARTS * some + each * amount


# ---------------------------------------------------------------- what windows see


def _sees_one(layer: Layer, tensor: Tensor) -> Extents:
    """The rows, columns and channels of the outputs that see an element of an input: the least, wherever it lies."""
    form = geometry(layer)
    if not isinstance(form, Window):
        return 1, 1, 1
    return _least_seen(form.rows), _least_seen(form.columns), form.group_channels if form.sums else 1


def _spans(axis: Axis) -> tuple[Ints, Ints]:
    """The inputs along an axis that each output sees: from the first, to one behind the last."""
    first = np.arange(axis.ofm) * axis.stride - axis.before
    return np.clip(first, 0, axis.ifm), np.clip(first + axis.reach, 0, axis.ifm)


def _padded(layer: Layer) -> bool:
    """Whether a layer has padding on all sides: any rows or columns of it have some, too."""
    form = geometry(layer)
    return isinstance(form, Window) and all(min(axis.before, axis.after) > 0 for axis in (form.rows, form.columns))


def _least_seen(axis: Axis) -> int:
    """The number of outputs that see an input, the least of all inputs."""
    if axis.dilation > 1:
        return 1
    first, stop = _spans(axis)
    places = np.arange(axis.ifm)[:, np.newaxis]
    return int(((first <= places) & (places < stop)).sum(axis=1).min())


def _least_inputs(layer: Layer, tensor: Tensor) -> tuple[bool, int]:
    """How many inputs any outputs see at least, for each pixel of them or else for each element: in parts."""
    form = geometry(layer)
    if isinstance(form, Run):
        return False, _PARTS if tensor.shape == layer.ofm.shape else 0
    if not isinstance(form, Window) or any(axis.dilation > 1 for axis in (form.rows, form.columns)):
        return False, 0
    if not form.sums and tensor.shape[-1] != layer.ofm.shape[-1]:
        return False, 0
    channels = form.in_channels if form.sums else 1
    return form.sums, int(_apart(form.rows) * _apart(form.columns) * channels * _PARTS)


def _apart(axis: Axis) -> float:
    """How many inputs along an axis each output may have to itself, of those that it sees: the fewest for an output
    that any outputs in a row see. By Hall's theorem others need not be looked at, as windows lie in a row."""
    first, stop = _spans(axis)
    some, more = np.meshgrid(np.arange(axis.ofm), np.arange(axis.ofm), indexing="ij")
    seen = np.maximum(stop[more] - first[some], 0) / np.maximum(more - some + 1, 1)
    return float(seen[some <= more].min()) * (1 - 1e-9)
