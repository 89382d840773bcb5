"""The rules of copies in the program of `sharing.py`. Each of them holds for every plan:

- Each DMA copies the shares of weights, inputs and outputs, and what goes to other lanes. Copies of what is
  computed come after the first job that may compute any of it.
- A tensor comes in one copy, or there are more setups; and what is stored of one goes in one copy behind the last job
  that makes any of it, or there are more setups.
- Before a lane's first job of a layer, its DMA has copied weights of it, and something of the region's inputs or of
  what another lane made; and where that job reads what the lane made itself, all that came before its first job of
  that layer, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from math import prod
from typing import TYPE_CHECKING

from byoc_hw.graph import Weighted
from byoc_hw.plan.array.kinds import rows_at_a_time
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.needs import needed_before, whole_sums
from byoc_hw.plan.bound.seen import PARTS, least_inputs
from byoc_hw.plan.bound.shares import Shares, parts_of_bytes, times
from byoc_hw.plan.bound.ways import weight_bytes
from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from byoc_hw.plan.bound.shares import Expr, Var


class CopyRules:
    """Adds the rules of copies; `after` are the layers that begin after the first job of each. `time_of` adds that so
    many elements of a layer, on a lane, take an array so many cycles at least."""

    def __init__(
        self, shares: Shares, after: Mapping[int, Set[int]], time_of: Callable[[int, int, Var, Var], None]
    ) -> None:
        self._shares, self._after, self._of_layer, self._time_of = shares, after, shares.of_layer, time_of
        self._graph, self._chip, self._model, self._made = shares.graph, shares.chip, shares.model, shares.made
        self._before_jobs = {index: [shares.var() for _ in shares.lanes] for index in shares.of_layer}
        """By layer and lane: cycles of the copies that the lane's DMA does before its first job of the layer."""
        self._own = {
            (index, lane): shares.model.new_bool_var("") for index in self._weighted() for lane in shares.lanes
        }
        """By layer and lane: whether a copy of its weights is counted, which may bring those of others, too."""
        for lane in shares.lanes:
            self._together(lane)
        self._dmas()

    def _weighted(self) -> list[int]:
        return [index for index in self._of_layer if isinstance(self._graph.layers[index], Weighted)]

    def _together(self, lane: int) -> None:
        """Weights of several layers may come in one copy, which counts for the one of them that begins first on the
        lane: it is before the first job of each."""
        model, unit = self._model, PARTS * self._chip.accelerators[lane].dma_width
        weighted, setup = self._weighted(), unit * self._chip.accelerators[lane].dma_setup
        there = {index: self._shares.var() for index in weighted}  # when the copy that counts for a layer has ended
        others: dict[int, list[Var]] = {index: [] for index in weighted}
        for index in weighted:
            share, own = self._of_layer[index], self._own[index, lane]
            joined = {other: model.new_bool_var("") for other in weighted if other != index}
            model.add(own + sum(joined.values()) == share.any[lane])
            for other, join in joined.items():
                model.add_implication(join, self._own[other, lane])
                model.add(share.starts[lane] >= there[other]).only_enforce_if(join)
                model.add(share.starts[lane] >= self._of_layer[other].starts[lane]).only_enforce_if(join)
                brought = self._shares.var(unit * self._shares.most)
                model.add(brought >= self._bytes_at_once(index, lane)).only_enforce_if(join)
                others[other].append(brought)
        for index in weighted:
            model.add(self._of_layer[index].starts[lane] >= there[index])
            copy = times(setup, self._own[index, lane]) + self._bytes_at_once(index, lane) + sum(others[index])
            model.add(unit * there[index] >= copy)

    def _bytes_at_once(self, index: int, lane: int) -> Expr | int:
        """The cycles of the DMA for the weights of a lane's share that are all there before its first job of a layer,
        times its width and parts."""
        layer = self._graph.layers[index]
        assert isinstance(layer, Weighted), "it has weights"
        if not self._at_once(layer, lane):
            return 0
        return int(weight_bytes(layer) * PARTS / layer.out_channels) * self._of_layer[index].channels[lane]

    def _dmas(self) -> None:
        """Each DMA does its copies, and those of what is computed after the first job that it may come of."""
        model = self._model
        # By lane: a layer that they follow or -1, and their cycles.
        loads: list[list[tuple[int, Expr | int]]] = [[] for _ in self._shares.lanes]
        stores: list[list[tuple[int, Expr]]] = [[] for _ in self._shares.lanes]
        for index, share in self._of_layer.items():
            layer = self._graph.layers[index]
            nbytes = weight_bytes(layer)
            each = int(nbytes * PARTS / extents(layer.ofm)[2])
            for lane in self._shares.lanes:
                if nbytes:
                    copied = self._copied(lane, self._own[index, lane], share.channels[lane], each)
                    loads[lane].append((-1, copied))
                self._loaded_first(index, lane)
            stored = [self._shares.var(prod(extents(layer.ofm))) for _ in self._shares.lanes]
            some = [model.new_bool_var("") for _ in self._shares.lanes]
            read = layer.ofm in self._shares.loaded
            each = parts_of_bytes(layer.ofm)
            for lane in self._shares.lanes:
                model.add(stored[lane] <= share.elements[lane])
                model.add(stored[lane] <= layer.ofm.elements * some[lane])
                if read:
                    others = sum(stored[other] for other in self._shares.others(lane))
                    model.add(others >= self._shares.loaded[layer.ofm][lane][0])
                copied, at_once = self._copied(lane, some[lane], stored[lane], each), model.new_bool_var("")
                self._stored_at_once(index, lane, at_once, stored[lane], copied)
                stores[lane].append((index, copied + self._again(lane, at_once, some[lane])))
            if layer.ofm in self._graph.outputs:
                model.add(sum(stored) >= layer.ofm.elements)
        for tensor, by_lane in self._shares.loaded.items():
            each = parts_of_bytes(tensor)
            for lane, (elements, some_of) in enumerate(by_lane):
                again = self._again(lane, self._shares.in_one[tensor][lane], some_of)
                copied = self._copied(lane, some_of, elements, each) + again
                loads[lane].append((self._made.get(tensor, -1), copied))
        for lane, any_filled in enumerate(self._any_filled()):
            loads[lane].append((-1, self._copied(lane, any_filled, any_filled, PARTS)))
        for lane in self._shares.lanes:
            width = self._chip.accelerators[lane].dma_width
            unit = PARTS * width
            everything = [cycles for _, cycles in (*loads[lane], *stores[lane])]
            model.add(unit * self._shares.end >= sum(everything))
            jobs = [self._shares.job(index, lane) for index in self._of_layer]
            behind = [self._shares.times.behind[index].get(lane, self._shares.most) for index in self._of_layer]
            last = min(int(job + left) for job, left in zip(jobs, behind, strict=True))
            any_load = model.new_bool_var("")
            loaded = sum(cycles for _, cycles in loads[lane])
            model.add(unit * self._shares.end >= loaded + unit * last).only_enforce_if(any_load)
            model.add(loaded == 0).only_enforce_if(~any_load)
            for first, share in self._of_layer.items():
                late = [cycles for index, cycles in (*loads[lane], *stores[lane]) if index in self._after[first]]
                job = int(min(self._shares.jobs(first)))
                model.add(unit * self._shares.end >= unit * (share.begin + job) + sum(late))

    def _again(self, lane: int, at_once: Var, some: Var) -> Expr | int:
        """The setup of another copy of what is not copied at once, if there is any; as `_copied`."""
        one = self._chip.accelerators[lane]
        setup = one.dma_setup * one.dma_width * PARTS
        self._model.add_implication(at_once, some)
        return times(setup, some) - times(setup, at_once)

    def _stored_at_once(self, index: int, lane: int, at_once: Var, stored: Var, copied: Expr) -> None:
        """What is stored at once is stored behind all jobs that make any of it. The last job of a lane is one of them
        where only jobs read what the layer makes: they are on other lanes."""
        shares, model, cycles = self._shares, self._model, self._shares.var()
        unit, ofm = PARTS * self._chip.accelerators[lane].dma_width, self._graph.layers[index].ofm
        self._time_of(index, lane, stored, cycles)
        behind = unit * (self._of_layer[index].starts[lane] + cycles) + copied
        model.add(unit * shares.end >= behind).only_enforce_if(at_once)
        if all(reader in self._of_layer for reader, layer in enumerate(self._graph.layers) if ofm in layer.inputs):
            left, ends = shares.last_jobs[lane]
            model.add(unit * left >= copied).only_enforce_if(at_once, ends[index])

    def _any_filled(self) -> list[Var]:
        """By lane, whether its DMA fills room between rows: one copy may do so in several tensors."""
        found = [self._model.new_bool_var("") for _ in self._shares.lanes]
        for (_, lane), filled in self._shares.filled.items():
            self._model.add_implication(filled, found[lane])
        return found

    def _loaded_first(self, index: int, lane: int) -> None:
        """The copies of a lane that come before its first job of a layer.

        Weights do, or some of them, and something of each of the region's inputs that it reads. Of another input
        something is loaded, or made by a job of the lane, for which there were copies, too: those of weights that
        count for that layer. The copy with the weights of the first layer that made something of it counts for no other
        one that did, as it counts for the earliest.
        """
        layer, share, before = self._graph.layers[index], self._of_layer[index], self._before_jobs[index][lane]
        model, unit = self._model, PARTS * self._chip.accelerators[lane].dma_width
        first: Expr | int = 0
        again: Expr | int = 0  # of this, what counts for the layer
        if isinstance(layer, Weighted):
            weights, setup = self._bytes_at_once(index, lane), unit * self._chip.accelerators[lane].dma_setup
            first, again = (weights + times(setup, some) for some in (share.any[lane], self._own[index, lane]))
            if self._at_once(layer, lane) and (filled := self._shares.filled.get((layer.ifm, lane))) is not None:
                first = first + self._copied(lane, filled, filled, PARTS)
        model.add(share.starts[lane] >= before)
        model.add(unit * before >= first)
        needed = needed_before(self._graph, index, self._chip, whole=False)
        read = [tensor for tensor, (reader, _) in needed.items() if reader == index]
        loaded: Expr | int = 0
        for tensor in read:
            if tensor not in self._made:
                amount = self._shares.at_first[index, lane, tensor]
                model.add(amount >= share.any[lane])
                loaded = loaded + self._copied(lane, share.any[lane], amount, parts_of_bytes(tensor))
        model.add(unit * before >= first + loaded)
        for tensor in read:
            if self._made.get(tensor, -1) in self._of_layer:
                self._made_first(index, lane, tensor, first, again)

    def _made_first(self, index: int, lane: int, tensor: Tensor, first: Expr | int, again: Expr | int) -> None:
        """The copies before the first job of a layer that reads what another one made, beside those of `first`: of what
        the other lane made, and of what its own jobs need of the region's inputs. Those of `again` are beside all that
        came before the first job of the other layer."""
        share, source = self._of_layer[index], self._made[tensor]
        made, before = self._of_layer[source], self._before_jobs[index][lane]
        model, unit = self._model, PARTS * self._chip.accelerators[lane].dma_width
        copy = int(self._shares.copies[lane])
        local = model.new_bool_var("")  # something that the first job reads is the lane's own
        model.add_implication(local, made.any[lane])
        model.add(unit * before >= again + unit * self._before_jobs[source][lane]).only_enforce_if(local)
        model.add(unit * before >= first + unit * copy).only_enforce_if(~local)
        others = {other: model.new_bool_var("") for other in self._shares.others(lane)}  # whose it is
        model.add_exactly_one(local, *others.values())
        for other, its in others.items():
            model.add_implication(its, made.any[other])
            job = int(self._shares.job(source, other)) + self._shares.handed([other], lane)
            model.add(share.starts[lane] >= made.starts[other] + job).only_enforce_if(its)
        parts = self._shares.parts_at_first.get((index, lane, tensor))
        if parts is not None:
            own, any_own = parts[lane]
            loaded = self._loaded_of([parts[other] for other in others], lane, tensor)
            for one in dict.fromkeys(self._graph.layers[source].inputs):
                if one in self._graph.inputs:
                    loaded = loaded + self._needed(lane, any_own, own, source, one)
            model.add(unit * before >= first + loaded).only_enforce_if(share.any[lane])

    def _loaded_of(self, parts: Sequence[tuple[Var, Var]], lane: int, tensor: Tensor) -> Expr:
        """Cycles of the copies of what other lanes made: one may bring all of it. A part has whether it is anything."""
        model, some = self._model, self._model.new_bool_var("")
        for _, any_of_it in parts:
            model.add_implication(any_of_it, some)
        everything = self._shares.var(tensor.elements)
        model.add(everything >= sum(one for one, _ in parts))
        return self._copied(lane, some, everything, parts_of_bytes(tensor))

    def _needed(self, lane: int, some: Var, amount: Var, index: int, tensor: Tensor) -> Expr:
        """Cycles of the copies of what so many elements of a layer need of an input, as those of `_copied`."""
        layer, needed = self._graph.layers[index], self._shares.var(tensor.elements)
        by_pixel, parts = least_inputs(layer, tensor)
        each = extents(layer.ofm)[2] if by_pixel else 1
        self._model.add(PARTS * each * needed >= parts * amount)
        return self._copied(lane, some, needed, parts_of_bytes(tensor))

    def _at_once(self, layer: Weighted, lane: int) -> bool:
        """Whether all weights of a lane's share of a layer are copied before its first job.

        The planner cuts weights into blocks of as many channels as a group has, or more: of no more channels there is
        one block, where these are not in slices, as a lane has one part of a layer at most. Of a layer with groups of
        channels a block may have one of these.
        """
        one = self._chip.accelerators[lane]
        few = layer.groups == 1 and layer.out_channels <= min(one.array_rows, rows_at_a_time(layer, one))
        return few and whole_sums(layer, one, self._chip)

    def _copied(self, lane: int, some: Var, amount: Var, each: int) -> Expr:
        """Cycles of a DMA that copies so many things, if any, of so many parts of a byte: times its width and parts."""
        one = self._chip.accelerators[lane]
        return times(one.dma_setup * one.dma_width * PARTS, some) + each * amount
