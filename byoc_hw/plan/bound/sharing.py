"""A lower bound on the cycles of plans of a small region on several accelerators: of all ways to share it, the best.

The bound of `prices.py` may mix ways to share a layer, and where it does, nothing has to be copied from one lane to the
other. Here each lane has its share of each layer, in whole numbers, and what follows from the shares is an integer
program. CP-SAT proves that no shares take fewer cycles than so many; every rule of the program holds for every plan:

- What a plan computes and never uses is left out. Of the elements of a layer each lane computes some; together they
  compute all, in the groups of `ways.py`, of which there are whole numbers.
- A job reads local memory of its own lane. So what an element needs of a layer before was computed on that lane, or
  stored by another one and loaded. Any set of outputs of a window needs at least as many inputs as if each output
  had an equal part of what it sees to itself, and no input more than one owner (Hall's theorem, for rows and for
  columns). Of a layer that sums over all channels, a pixel needs all channels of its inputs.
- Of such a layer, a pixel that some lanes compute nothing of has all of its channels on the others. So either these
  lanes have something of every pixel, or the others have something of every channel, and its weights. That holds for
  any choice of lanes.
- Each lane with a share of a layer begins after something of what it reads is there, in whole where its first job
  needs the whole, by a copy out and a copy in where it computed nothing of that itself.
- Of the outputs that a lane has of a layer, each group has at least those that are too many for all its other groups.
  What these need is there before the lane's first job of the layer; where it is a whole tensor, that is complete.
- An array has nothing to do before its first job, and what its last one makes is used after that: behind it are the
  ways behind the layer that this job is of. When a layer is complete, so are those before it: an array has done what it
  is the first to compute of them since its first job.
- A lane that has all of the layers takes as long as the only accelerator of a chip, for which there are more rules.
- A tensor that a lane loads in one copy is there in full before any job reads what others made of it; more copies have
  more setups.
- Equal lanes can be exchanged: the first one of them has the largest share of the first layer.
- A layer is complete when each of its elements was computed once. The outputs that see its last element come after
  that: all groups of them, but for sums that are added up in slices or in parts of the kernel. These are known to be
  whole where the layer fits into local memory at once: the planner cuts no others. Where all of them are on a lane
  that computes nothing of the element's layer, a copy out and a copy in lie between.
- Between the first job of a layer and the time at which another one is complete, each array does its share of all
  layers between them, which begin after the one and are needed in full for the other.

The rules of copies are in `sharing_copies.py`, those of boxes in `boxes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.alone import cycles_alone
from byoc_hw.plan.bound.boxes import BoxRules
from byoc_hw.plan.bound.latency import Latencies, has_jobs, reads_all
from byoc_hw.plan.bound.needs import Need, needed_before, whole_sums
from byoc_hw.plan.bound.reloads import both_engines
from byoc_hw.plan.bound.seen import PARTS, least_inputs, padded_on_all_sides, sees_one
from byoc_hw.plan.bound.shares import Share, Shares, parts_of_bytes, times
from byoc_hw.plan.bound.sharing_copies import CopyRules
from byoc_hw.plan.bound.ways import LayerWork, able, packs
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from byoc_hw.plan.bound.shares import Var

MOST_LAYERS = 8
"""The most layers of a region with such a bound: for larger ones the solver proves nothing in so little time."""

MOST_LANES = 4
"""The most accelerators of a chip with such a bound: rules are for each choice of them."""

_WORK = 0.6
"""The solver's deterministic time, of which one is about a second, for each accelerator beside the first."""

_UNPROBED = 1 << 18
"""The latest deadline for which the solver probes no variables: a later one would take it long without."""

_LEAST_WORK = 0.002
"""The deterministic time that each deadline counts at least: the solver reads the program."""

_FIRST_STEP, _STEP, _LONGEST_STEP, _LAST_STEP = 0.005, 0.08, 0.16, 0.01
"""The first step from one deadline to the next, as a part of the known cycles, the one behind it, the longest one, and
one that is not tried behind another one."""

_CLOSE = 0.001
"""The part of the known cycles that is not looked for between a deadline without a solution and one with it."""


def cycles_of_sharing(
    graph: Graph, chip: Soc, works: Sequence[LayerWork], counted: Sequence[bool], times: Latencies, least: int
) -> int:
    """Cycles that no plan of a region on a chip goes below, at least `least`: that many where nothing more is known.

    `works` has the work of each layer, all of which is done of those that are `counted`; `times` are the latencies.
    """
    if not 2 <= len(chip.accelerators) <= MOST_LANES or chip.shared or any(one.library for one in chip.accelerators):
        return least
    if len(graph.layers) > MOST_LAYERS:
        return least
    shared = [
        index
        for index, layer in enumerate(graph.layers)
        if counted[index] and has_jobs(layer) and not any(one.runs_whole(layer) for one in able(chip, layer))
    ]
    return _Program(graph, chip, works, shared, times, least).solved() if shared else least


def _choices(lanes: Sequence[int]) -> list[tuple[int, ...]]:
    """Some of the lanes, and last all of them."""
    return [some for count in range(1, len(lanes) + 1) for some in combinations(lanes, count)]


class _Program(Shares):
    """The shares, and the rules for them."""

    def __init__(
        self,
        graph: Graph,
        chip: Soc,
        works: Sequence[LayerWork],
        shared: Sequence[int],
        times: Latencies,
        least: int,
    ) -> None:
        super().__init__(graph, chip, times, least)
        self._works = works
        plain = replace(chip, accelerators=tuple(replace(one, packed_rows=False) for one in chip.accelerators))
        self._plain = [LayerWork(layer, plain) for layer in graph.layers]
        for index in shared:
            self.of_layer[index] = self._share(index, graph.layers[index])
        elements = self.of_layer[shared[0]].elements
        alike = [replace(one, name="any", label="any") for one in chip.accelerators]
        for one, other in combinations(self.lanes, 2):
            if alike[one] == alike[other]:
                self.model.add(elements[one] >= elements[other])  # of the plans with the lanes exchanged, one does so
        self._after = self._needs()
        BoxRules(self)
        self._one_lane()
        self._complete()
        complete = {index: self._before_complete(index) for index in self.of_layer}
        self._arrays(complete)
        CopyRules(self, self._after, self._time_of)

    def _one_lane(self) -> None:
        """A lane that has all of the layers takes as long as the only one of a chip, in parts; where all tensors fit
        local memory, as what is loaded again rests on the order of the layers."""
        graph, layers = self.graph, self.graph.layers
        if len(self.of_layer) < len(layers) or not all(tensor in self.made for tensor in graph.outputs):
            return
        for lane, one in enumerate(self.chip.accelerators):
            again = both_engines(graph, one, [1.0] * len(layers)).any()
            if all(one in able(self.chip, layer) for layer in layers) and not again:
                least = cycles_alone(graph, Soc((replace(one, name="alone"),)), parts=True)
                others = [~share.any[other] for share in self.of_layer.values() for other in self.others(lane)]
                self.model.add(self.end >= min(least, self.most)).only_enforce_if(others)

    def solved(self) -> int:
        """The cycles that are proved to be needed: the latest deadline that was found to leave no solution, and one.

        Deadlines are tried in steps. Often the known cycles are all that can be proved, which a short first step shows
        soon. Behind a deadline that is refuted the next step is long, and longer each time; where the solver does not
        know, half as long: a deadline that is much too early is refuted soon. The solver looks for contradictions alone
        (no linear relaxation), which finds them in a tenth of the time, and of small regions probes no variables
        before, which takes most of the time there.
        """
        known, most, step, limit = self.least, self.most, _FIRST_STEP, _WORK * (len(self.lanes) - 1)
        left = limit
        while left > 0 and most - known > _CLOSE * known:
            deadline = min(int(known * (1 + step)), (known + most) // 2)
            status, end, work = self._meets(deadline, min(left, limit / 2))
            left -= work
            if status == "INFEASIBLE":
                known, step = deadline + 1, min(max(2 * step, _STEP), _LONGEST_STEP)
            elif end is not None:
                most = end
            elif step / 2 <= _LAST_STEP:
                break
            else:
                step /= 2
        return known

    def _meets(self, deadline: int, work: float) -> tuple[str, int | None, float]:
        """What the solver finds out about a deadline with so much work: the status, the end of a solution if there is
        one, and the work that was done."""
        from ortools.sat.python import cp_model

        model, solver = self.model.clone(), cp_model.CpSolver()
        end = model.get_int_var_from_proto_index(self.end.index)
        model.add(end <= deadline)
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.linearization_level = 0
        if deadline <= _UNPROBED:
            solver.parameters.cp_model_probing_level = 0
        solver.parameters.max_deterministic_time = work
        status = solver.status_name(solver.solve(model))
        assert status in ("OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN"), f"the program is one: {status}"
        found = solver.value(end) if status in ("OPTIMAL", "FEASIBLE") else None
        return status, found, max(solver.response_proto.deterministic_time, _LEAST_WORK)

    # ------------------------------------------------------------ shares

    def _share(self, index: int, layer: Layer) -> Share:
        model, (height, width, channels) = self.model, extents(layer.ofm)
        elements, cycles, first, starts = ([self.var() for _ in self.lanes] for _ in range(4))
        any_of = [model.new_bool_var("") for _ in self.lanes]
        pixels = [self.var(height * width) for _ in self.lanes]
        depth = [self.var(channels) for _ in self.lanes]
        begin, complete = self.var(), self.var()
        groups = [self.var(height * width * channels) for _ in self.lanes]
        grouped = [self.var(height * width * channels) for _ in self.lanes]
        grouped_pixels = [self.var(height * width) for _ in self.lanes]
        lanes = [lane for lane in self.lanes if self.chip.accelerators[lane] in able(self.chip, layer)]
        for lane in self.lanes:
            if lane not in lanes:
                model.add(any_of[lane] == 0)
            model.add(elements[lane] >= any_of[lane])
            model.add(elements[lane] == 0).only_enforce_if(~any_of[lane])
            model.add(elements[lane] <= pixels[lane] * channels)
            model.add(elements[lane] <= depth[lane] * (height * width))
            model.add(starts[lane] >= int(self.times.before[index].get(lane, 0)))
        begins = [model.new_bool_var("") for _ in self.lanes]  # the lane that begins
        model.add_exactly_one(begins)
        for lane, which in enumerate(begins):
            model.add(begin >= starts[lane]).only_enforce_if(which)
            model.add_implication(which, any_of[lane])
        for some in _choices(self.lanes)[:-1]:  # something of every pixel, or the others something of every channel
            every = model.new_bool_var("")
            model.add(sum(pixels[lane] for lane in some) >= height * width).only_enforce_if(every)
            model.add(sum(depth[lane] for lane in self.lanes if lane not in some) >= channels).only_enforce_if(~every)
        busy = {lane: model.new_bool_var("") for lane in lanes}
        share = Share(
            *(elements, any_of, pixels, depth, cycles, first, busy),
            *(starts, begin, complete, groups, grouped, grouped_pixels),
        )
        self._work(index, lanes, share)
        return share

    def _work(self, index: int, lanes: Sequence[int], share: Share) -> None:
        """Cycles of the arrays for the elements of a layer: in whole groups, or by the element."""
        model, work, layer = self.model, self._works[index], self.graph.layers[index]
        total = prod(work.extents)
        done = {lane: self.var(total) for lane in lanes}  # of which the lane is the first to compute them
        model.add(sum(done.values()) >= total)
        for lane in lanes:
            setup = self.chip.accelerators[lane].job_setup
            model.add(done[lane] <= share.elements[lane])
            busy = share.busy[lane]
            model.add(done[lane] == 0).only_enforce_if(~busy)
            model.add(share.complete >= share.starts[lane] + share.first[lane]).only_enforce_if(busy)
            model.add(share.cycles[lane] >= share.first[lane] + times(setup, share.any[lane]))
            model.add(share.cycles[lane] >= int(self.job(index, lane)) * share.any[lane])
        for at, rate in enumerate(work.rates if not work.covers else ()):
            some, setup = lanes[at], self.chip.accelerators[lanes[at]].job_setup
            rate_parts = int(rate * PARTS)
            model.add(PARTS * share.first[some] >= rate_parts * done[some])
            model.add(
                PARTS * share.cycles[some] >= rate_parts * share.elements[some] + times(PARTS * setup, share.any[some])
            )
        ways = [(self._plain[index].covers, False)] if work.covers else []
        if any(packs(layer, one) for one in self.chip.accelerators):
            ways.append((work.covers, True))
        chosen = [(cover, packed, model.new_bool_var("")) for covers, packed in ways for cover in covers]
        if chosen:
            model.add_exactly_one(way for _, _, way in chosen)
        for cover, packed, way in chosen:
            groups = {lane: self.var(total) for lane in lanes}
            for each, least in zip(cover.each, cover.least, strict=True):
                model.add(sum(int(one) * groups[lane] for one, lane in zip(each, lanes, strict=True)) >= int(least))
            for at, lane in enumerate(lanes):
                every, setup = self.var(total), self.chip.accelerators[lane].job_setup
                outputs, cycles = int(cover.outputs[at]), int(cover.cycles[at])
                model.add(groups[lane] * outputs >= done[lane]).only_enforce_if(way)
                model.add(every * outputs >= share.elements[lane]).only_enforce_if(way)
                model.add(share.first[lane] >= cycles * groups[lane]).only_enforce_if(way)
                model.add(share.cycles[lane] >= cycles * every + times(setup, share.any[lane])).only_enforce_if(way)
                model.add(share.groups[lane] == every).only_enforce_if(way)
                others = every * outputs - outputs  # elements of all groups but one, at most
                model.add(share.grouped[lane] >= share.elements[lane] - others).only_enforce_if(way, share.any[lane])
                model.add(share.grouped_pixels[lane] * int(cover.channels[at]) >= share.grouped[lane]).only_enforce_if(
                    way
                )
                if isinstance(layer, Weighted):
                    model.add(every * int(cover.channels[at]) >= share.channels[lane]).only_enforce_if(way)
                if packed and padded_on_all_sides(layer):
                    fewer, filled = self._least_outputs(index, at), self.fill(layer, lane)
                    model.add(groups[lane] * fewer >= done[lane]).only_enforce_if(way, ~filled)
                    model.add(every * fewer >= share.elements[lane]).only_enforce_if(way, ~filled)

    def _least_outputs(self, index: int, place: int) -> int:
        """The most outputs of a group whose rows are not packed."""
        return max(int(cover.outputs[place]) for cover in self._plain[index].covers)

    # ------------------------------------------------------------ what is needed

    def _needs(self) -> dict[int, set[int]]:
        """Rules for what layers read; and the layers that begin after the first job of each."""
        after: dict[int, set[int]] = {index: {index} for index in self.of_layer}
        for index, share in self.of_layer.items():
            layer = self.graph.layers[index]
            for tensor in dict.fromkeys(layer.inputs):
                if tensor.data is None:
                    self._reads(index, share, tensor)
                    for lane in self.lanes:
                        self._reads_at_once(index, lane, tensor)
            needed = needed_before(self.graph, index, self.chip, whole=False)
            for tensor, (reader, need) in needed.items():
                made = self.made.get(tensor)
                if made in self.of_layer:
                    after[made].add(index)
                    self._begins(share, made, need, direct=reader == index)
        return after

    def _reads(self, index: int, share: Share, tensor: Tensor) -> None:
        """What a lane reads of a tensor for its share of a layer, it has computed or loads."""
        made = self.of_layer.get(self.made.get(tensor, -1))
        if made is None and tensor not in self.graph.inputs:
            return
        if tensor not in self.loaded:
            self.loaded[tensor] = [(self.var(tensor.elements), self.model.new_bool_var("")) for _ in self.lanes]
            self.in_one[tensor] = [self.model.new_bool_var("") for _ in self.lanes]
            for lane, (elements, some) in enumerate(self.loaded[tensor]):
                self.model.add(elements <= tensor.elements * some)
                if made is not None:  # stored by the others
                    self.model.add(elements <= sum(made.elements[other] for other in self.others(lane)))
        by_pixel, parts = least_inputs(self.graph.layers[index], tensor)
        for lane, (elements, _) in enumerate(self.loaded[tensor]):
            there = elements if made is None else elements + made.elements[lane]
            self.model.add(there >= share.any[lane])
            amount = share.pixels[lane] if by_pixel else share.elements[lane]
            self.model.add(PARTS * there >= parts * amount)

    def _reads_at_once(self, index: int, lane: int, tensor: Tensor) -> None:
        """What a group of a layer reads is there before the lane's first job of it, which has a group at least; and so
        is all that comes in one copy, if the lane made nothing of that. What others but this layer read may be there in
        another copy."""
        layer, share, one = self.graph.layers[index], self.of_layer[index], self.chip.accelerators[lane]
        if tensor not in self.loaded:
            return
        model, read = self.model, self.var(tensor.elements)
        if isinstance(layer, Weighted) and self._works[index].covers and whole_sums(layer, one, self.chip):
            by_pixel, parts = least_inputs(layer, tensor)
            model.add(PARTS * read >= parts * (share.grouped_pixels if by_pixel else share.grouped)[lane])
        self.at_first[index, lane, tensor] = read
        source = self.made.get(tensor, -1)
        made, at_once = self.of_layer.get(source), self.in_one[tensor][lane]
        loaded = self.loaded[tensor][lane][0]
        if made is None:
            model.add(read >= loaded).only_enforce_if(at_once, share.any[lane])
            return
        if sum(tensor in one.inputs for one in self.graph.layers) == 1:
            model.add(read >= loaded).only_enforce_if(at_once, share.any[lane], ~made.any[lane])
        every = model.new_bool_var("")
        parts_of: list[tuple[Var, Var]] = []
        model.add(read < tensor.elements).only_enforce_if(~every)
        model.add(share.starts[lane] >= made.complete).only_enforce_if(every, share.any[lane])
        far = made.complete + self.handed(self.others(lane), lane)
        model.add(share.starts[lane] >= far).only_enforce_if(every, share.any[lane], ~made.any[lane])
        unit = PARTS * one.dma_width
        for maker in self.lanes:
            part, some, cycles = self.var(tensor.elements), model.new_bool_var(""), self.var()
            model.add(part <= made.elements[maker])
            model.add(part == 0).only_enforce_if(~some)
            self._time_of(source, maker, part, cycles)
            copied = 0 if maker == lane else self.handed([maker], lane)
            there = made.starts[maker] + cycles + copied
            model.add(share.starts[lane] >= there).only_enforce_if(some, share.any[lane])
            if maker != lane:  # the copy that brings it brings all that the lane loads
                later = made.starts[maker] + cycles + self.copies[maker] + one.dma_setup
                all_there = unit * share.starts[lane] >= unit * later + parts_of_bytes(tensor) * loaded
                model.add(all_there).only_enforce_if(some, share.any[lane], at_once)
            parts_of.append((part, some))
        model.add(sum(part for part, _ in parts_of) >= read).only_enforce_if(share.any[lane])
        self.parts_at_first[index, lane, tensor] = parts_of

    def _begins(self, share: Share, index: int, need: Need, *, direct: bool) -> None:
        """No job of a layer begins before what any of them needs of an earlier one."""
        model, made, one = self.model, self.of_layer[index], self._works[index].ways(need.least)
        for lane in self.lanes:
            if need.all:
                model.add(share.starts[lane] >= made.complete)
                copied = self.handed(self.others(lane), lane) if direct else 0
                model.add(share.starts[lane] >= made.complete + copied).only_enforce_if(~made.any[lane])
            for which in self.lanes:  # all of it by one lane alone
                others = self.others(which)
                alone = one[~one[:, others].any(axis=1)][:, which]
                extra = self.handed([which], lane) if direct and which != lane else 0
                if alone.size:
                    model.add(share.starts[lane] >= made.starts[which] + int(alone.min()) + extra).only_enforce_if(
                        [~made.any[other] for other in others]
                    )
            model.add(share.starts[lane] >= made.begin + int(min(self.jobs(index))))

    # ------------------------------------------------------------ when layers are complete

    def _complete(self) -> None:
        """The outputs that see the last element of a layer come after it."""
        for index, share in self.of_layer.items():
            layer = self.graph.layers[index]
            if not reads_all(layer):
                continue
            for tensor in dict.fromkeys(layer.inputs):
                direct = self.made.get(tensor) in self.of_layer
                for source in self._sources(tensor):
                    self._follows(index, share, self.of_layer[source], tensor, direct)
                if direct:
                    self._follows_copies(index, share, self.made[tensor])

    def _sources(self, tensor: Tensor) -> set[int]:
        """The layers that are complete when all of a tensor is there."""
        index = self.made.get(tensor)
        if index is None:
            return set()
        if index in self.of_layer:
            return {index}
        layer = self.graph.layers[index]
        if has_jobs(layer) or not reads_all(layer):
            return set()
        return {source for one in layer.inputs for source in self._sources(one)}

    def _follows(self, index: int, share: Share, made: Share, tensor: Tensor, direct: bool) -> None:
        ways, mixed = self._works[index].ways_or_mixtures(sees_one(self.graph.layers[index], tensor))
        parts = np.array([self._part_behind(index, one) for one in self.chip.accelerators])
        for readers in _choices(self.lanes):
            possible = ways[[all(lane in readers or not way[lane] for lane in self.lanes) for way in ways]]
            if not len(possible):
                continue
            known = not mixed or len(readers) == 1 or possible.max() <= self._group(index)  # no mixture of ways
            for makers in _choices(self.lanes) if direct else (tuple(self.lanes),):
                far = np.array([0 if lane in makers else self.handed(makers, lane) for lane in self.lanes])
                behind = ((possible > 0) * far + possible * parts).max(axis=1).min() if known else 0.0
                literals = [
                    one if lane in which else ~one
                    for which, some in ((readers, share.any), (makers, made.any))[: 1 + direct]
                    for lane, one in enumerate(some)
                ]
                self.model.add(share.complete >= made.complete + int(behind)).only_enforce_if(literals)

    def _follows_copies(self, index: int, share: Share, source: int) -> None:
        """What only one lane computes of a layer, it computes after copies of what it needs and only others made."""
        model, made, layer = self.model, self.of_layer[source], self.graph.layers[index]
        tensor = self.graph.layers[source].ofm
        total = prod(extents(layer.ofm))
        pixels, parts = least_inputs(layer, tensor)
        parts = parts // extents(layer.ofm)[2] if pixels else parts
        for lane in self.lanes:
            others = self.others(lane)
            one = self._works[index].ways((1, 1, 1))[:, lane]
            job = int(one[one > 0].min() * self._part_behind(index, self.chip.accelerators[lane])) if one.any() else 0
            from_each = [self.var(tensor.elements) for _ in others]
            needed = parts * (total - sum(share.elements[other] for other in others))
            model.add(PARTS * (sum(from_each) + made.elements[lane]) >= needed)
            for other, copied in zip(others, from_each, strict=True):
                some, cycles = model.new_bool_var(""), self.var()
                model.add(copied == 0).only_enforce_if(~some)
                if len(others) > 1:
                    model.add(copied <= made.elements[other])
                self._time_of(source, other, copied, cycles)
                far = cycles + self.handed([other], lane) + job
                model.add(share.complete >= made.starts[other] + far).only_enforce_if(some)

    def _time_of(self, index: int, lane: int, elements: Var, cycles: Var) -> None:
        """At least so many cycles of the array for so many elements of a layer, which are there in whole groups."""
        work, model = self._works[index], self.model
        at = [one for one in self.lanes if self.chip.accelerators[one] in able(self.chip, self.graph.layers[index])]
        if lane not in at:
            return
        place = at.index(lane)
        if not work.covers:
            model.add(PARTS * cycles >= int(work.rates[place] * PARTS) * elements)
            return
        groups = self.var(prod(work.extents))
        model.add(groups * max(int(cover.outputs[place]) for cover in work.covers) >= elements)
        model.add(cycles >= min(int(cover.cycles[place]) for cover in work.covers) * groups)

    def _group(self, index: int) -> float:
        """The least cycles of a group of a layer on any of the arrays; 0 of one without groups."""
        return min((cycles for cover in self._works[index].covers for cycles in cover.cycles), default=0.0)

    def _part_behind(self, index: int, one: Accelerator) -> float:
        """The part of a group's cycles that is behind the last element that it sees."""
        layer = self.graph.layers[index]
        if one not in able(self.chip, layer) or not isinstance(layer, Weighted) or whole_sums(layer, one, self.chip):
            return 1.0
        return 0.0

    # ------------------------------------------------------------ engines

    def _arrays(self, complete: Mapping[int, Set[int]]) -> None:
        """The arrays do the work of all layers that lie between two others."""
        model = self.model
        for first, share in self.of_layer.items():
            behind = [min(self.times.behind[index].values(), default=0.0) for index in self._after[first]]
            for lane in self.lanes:
                everything = [self.of_layer[index].cycles[lane] for index in self._after[first]]
                model.add(self.end >= share.begin + sum(everything) + int(min(behind)))
            for last, before in complete.items():
                between = sorted(before & self._after[first])
                if len(between) > 1:
                    for lane in self.lanes:
                        work = sum(self.of_layer[index].first[lane] for index in between)
                        model.add(self.of_layer[last].complete >= share.begin + work)
        for lane in self.lanes:
            self._array(lane, complete)
        for index, share in self.of_layer.items():
            least = int(min(self.times.behind[index].values(), default=0.0))
            model.add(self.end >= share.complete + least)

    def _array(self, lane: int, complete: Mapping[int, Set[int]]) -> None:
        """An array has nothing to do before its first job, and what its last job makes is used after that."""
        model, some, start, left = self.model, self.model.new_bool_var(""), self.var(), self.var()
        work = sum(share.cycles[lane] for share in self.of_layer.values())
        model.add(self.end >= start + work + left).only_enforce_if(some)
        model.add(work == 0).only_enforce_if(~some)
        begins, ends = ({index: model.new_bool_var("") for index in self.of_layer} for _ in range(2))
        for chosen in (begins, ends):  # the lane's first job, and its last one, is of this layer
            model.add_exactly_one(~some, *chosen.values())
            for index, which in chosen.items():
                model.add_implication(which, self.of_layer[index].any[lane])
        for index, share in self.of_layer.items():
            model.add(start >= share.starts[lane]).only_enforce_if(begins[index])
            model.add(left >= int(self.times.behind[index].get(lane, self.most))).only_enforce_if(ends[index])
        self.last_jobs[lane] = left, ends
        for index, before in complete.items():
            share = self.of_layer[index]
            if lane in share.busy and len(before) > 1:
                first = sum(self.of_layer[one].first[lane] for one in before)
                model.add(share.complete >= start + first).only_enforce_if(share.busy[lane])

    def _before_complete(self, index: int) -> set[int]:
        """The layers that are complete when one is."""
        found, waiting = {index}, [index]
        while waiting:
            layer = self.graph.layers[waiting.pop()]
            if reads_all(layer):
                new = {source for tensor in layer.inputs for source in self._sources(tensor)} - found
                found |= new
                waiting += new
        return found
